"""Every number of a training run, in one place, a preset each.

Actor and learner read the same preset. A field's sentence is its "help" metadata, from which the
command lines make their --help; `changed(preset, name=value)` overrides fields by name.

`cartpole` is measured on one core (8 of 8 seeds at 500 in 20 to 50 s). `apex-paper` holds the
numbers that Horgan et al. 2018 publish and is meant for 360 actors: it does not learn CartPole in
minutes. Where it is not the paper's it says so beside it: a lost life cuts no return (--life-loss),
the ring drops its oldest step at every insert. `atari` is the same algorithm for one workstation;
its scores are not measured here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..support.arguments import nearest


def _setting(sentence: str, default: Any = dataclasses.MISSING) -> Any:
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={"help": sentence})
    return dataclasses.field(default=default, metadata={"help": sentence})


LOG_PROB = "log_prob"  # ppo's column: of the action, by the weights that chose it
SEGMENT_MAX = 1024  # a Sequence's
ROLLOUT_MAX = 16_000  # a queue's batch
SEED_MAX = (1 << 32) - 1  # of a run: envs.py builds the environments' seeds from it
BATCH_MAX = 1 << 16  # the protocol's
LAYER_MAX = 1 << 14  # two such layers have a gigabyte of weights between them
FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127  # torch computes in float32
COUNTS = (
    *("stack", "n", "capacity", "min_size", "batch", "steps_ahead", "prefetch", "target_every"),
    *("actors", "envs", "push_batch", "pull_every", "publish_every", "env_steps"),
    *("rollout", "epochs", "minibatches", "lanes_ready"),
)
SHARES = (
    *("gamma", "beta_start", "beta_end", "rmsprop_decay", "epsilon_base", "pull_jitter"),
    *("target_share", "gae_decay"),
)
LEAST = dict.fromkeys(COUNTS, 1) | {"beta_steps": 0, "states": 0, "lanes": 0}
BETWEEN = dict.fromkeys(SHARES, (0.0, 1.0)) | {
    "alpha": (0.0, 8.0),
    "mark": (-FLOAT32_MAX, FLOAT32_MAX),
    "entropy_weight": (0.0, FLOAT32_MAX),
}
SIZES = (  # above 0; the optional ones may be none
    *("learning_rate", "optimizer_epsilon", "priority_epsilon", "epsilon_power", "clip_norm"),
    *("huber_delta", "reward_clip", "steps_per_update", "publish_seconds", "clip_range"),
    "value_weight",
)


@dataclass(frozen=True)
class Traits:
    """What programs ask of an algorithm that they know by name alone.

    values: what its acting network gives: "q", values of Discrete actions; "logits" of these; or
    "gaussian", of the numbers of a Box. on_policy: it learns from rollouts of the present policy.
    """

    values: str
    on_policy: bool = False


TRAITS = {"dqn": Traits("q"), "sac": Traits("gaussian"), "ppo": Traits("logits", on_policy=True)}


def _those(which: Callable[[Traits], bool]) -> tuple[str, ...]:
    return tuple(name for name, traits in TRAITS.items() if which(traits))


_BY_Q = _those(lambda traits: traits.values == "q")
_BY_ITEMS = _those(lambda traits: not traits.on_policy)
_BY_ROLLOUTS = _those(lambda traits: traits.on_policy)
ONLY = {  # settings that some algorithms have, by these
    **dict.fromkeys(("huber_delta", "target_every", "epsilon_base", "epsilon_power"), _BY_Q),
    **dict.fromkeys(("beta_start", "beta_end", "beta_steps", "priority_epsilon"), _BY_ITEMS),
    **dict.fromkeys(("n", "alpha", "min_size", "steps_per_update"), _BY_ITEMS),
    **dict.fromkeys(("publish_every", "prefetch", "steps_ahead"), _BY_ITEMS),
    "target_share": ("sac",),
    **dict.fromkeys(("rollout", "epochs", "minibatches", "gae_decay"), _BY_ROLLOUTS),
    **dict.fromkeys(("clip_range", "value_weight", "entropy_weight"), _BY_ROLLOUTS),
}
CHOICES = {
    "algorithm": tuple(TRAITS),
    "network": ("mlp", "nature", "linear"),
    "optimizer": ("adam", "rmsprop"),
    "backend": ("sync", "async", "envpool"),
    "pad": ("zero", "first"),
    "protocol": ("sticky", "apex"),
}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One run's settings. Steps are environment steps, updates are learner steps."""

    env: str = _setting("Gymnasium id of the environment.")
    algorithm: str = _setting("dqn or ppo (Discrete actions), or sac (a Box of them).", "dqn")
    network: str = _setting("Kind of network: mlp, nature or linear.")
    hidden: tuple[int, ...] = _setting("Hidden layer sizes of mlp; stream size of nature.")
    states: int = _setting("Number of states, for the linear network only.", 0)
    stack: int = _setting("Frames in a stack.", 1)
    pad: str = _setting("What stands before an episode's first frame: zero or first.", "zero")
    protocol: str = _setting(
        "Atari: sticky (an action is repeated with probability 0.25) or apex (never).", "sticky"
    )

    n: int = _setting("Steps of the n-step return.", 3)
    gamma: float = _setting("Discount of one step.", 0.99)
    life_loss: bool = _setting("A lost life cuts returns, as termination does.", False)
    reward_clip: float | None = _setting("Rewards are clipped to this size at the learner.", None)
    alpha: float = _setting("Exponent that turns a priority into a mass.", 0.6)
    beta_start: float = _setting("Exponent of the importance weights at learner step 0.", 0.4)
    beta_end: float = _setting("Exponent of the importance weights from beta_steps on.", 0.4)
    beta_steps: int = _setting("Learner steps from beta_start to beta_end.", 0)
    priority_epsilon: float = _setting("Added to |TD|, so that no item is lost for good.", 1e-6)

    capacity: int = _setting("Steps the replay table holds.")
    min_size: int = _setting("Items in the table before the first update.")
    batch: int = _setting("Items of one update.")
    steps_per_update: float | None = _setting(
        "Environment steps for each update that the limiter aims at; none is unlimited.", None
    )
    steps_ahead: int = _setting("Steps either side may run ahead of that ratio.", 1000)
    prefetch: int = _setting("Batches on their way to the learner.", 2)

    optimizer: str = _setting("adam or rmsprop (centred).", "adam")
    learning_rate: float = _setting("Step size of the optimizer.")
    optimizer_epsilon: float = _setting("Epsilon in the optimizer's denominator.", 1e-8)
    rmsprop_decay: float = _setting("Decay of rmsprop's averages.", 0.95)
    huber_delta: float | None = _setting("Where Huber's loss turns linear; none is squared.", 1.0)
    clip_norm: float | None = _setting("Largest norm of the gradient.", 10.0)
    target_every: int = _setting("dqn: updates between copies of the online net to the target net.")
    target_share: float = _setting(
        "sac: share of the critics that their target nets take over at each update.", 0.005
    )
    rollout: int = _setting("ppo: steps of a segment; a batch of segments is a rollout.", 32)
    epochs: int = _setting("ppo: times that a rollout is learned from.", 10)
    minibatches: int = _setting("ppo: parts of a rollout, each an update.", 4)
    gae_decay: float = _setting("ppo: decay of advantages over steps, lambda.", 0.95)
    clip_range: float = _setting("ppo: how far the ratio of probabilities counts.", 0.2)
    value_weight: float = _setting("ppo: weight of the values' loss.", 0.5)
    entropy_weight: float = _setting("ppo: weight of the policy's entropy.", 0.0)

    actors: int = _setting("Actor processes.", 1)
    envs: int = _setting("Environments of each actor.", 1)
    backend: str = _setting(
        "How these are stepped: sync (one after the other), async (side by side) or envpool.",
        "sync",
    )
    lanes: int = _setting(
        "Processes of an actor that step its environments, beside its network; 0: itself.", 0
    )
    lanes_ready: int = _setting("Lanes of a pass of the network: the first that are ready.", 1)
    epsilon_base: float = _setting("Base of the ladder of epsilons.", 0.4)
    epsilon_power: float = _setting("Power of the ladder's last epsilon, less one.", 7.0)
    push_batch: int = _setting("Steps an actor gathers before it sends.", 50)
    pull_every: int = _setting("Steps of an actor between looks for new weights, at most.")
    pull_jitter: float = _setting("Share of pull_every by which actors differ at random.", 0.1)
    publish_every: int = _setting("Updates between publications of the weights.")
    publish_seconds: float = _setting("Longest time between publications of the weights.", 1.0)
    env_steps: int = _setting("Environment steps of all actors after which a run ends.")
    mark: float | None = _setting("Mean greedy return that the demo calls solved.", None)

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least {least}")
        if self.batch > BATCH_MAX:
            raise ValueError(f"batch is {self.batch}; expected at most {BATCH_MAX:,}")
        if not all(1 <= size <= LAYER_MAX for size in self.hidden):
            expected = f"expected sizes of at least 1, {LAYER_MAX:,} at most"
            raise ValueError(f"hidden is {list(self.hidden)}; {expected}")
        for name, (low, high) in BETWEEN.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} is {value}; expected {low:g} to {high:g}")
        for name in SIZES:
            value = getattr(self, name)
            if value is not None and not 0.0 < value <= FLOAT32_MAX:
                most = f", {FLOAT32_MAX:.3g} at most" if value > FLOAT32_MAX else ""
                raise ValueError(f"{name} is {value}; expected a number above 0{most}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                close = nearest(getattr(self, name), known)
                raise ValueError(f"no {name} {getattr(self, name)!r}; the nearest is {close!r}")
        if self.values != "q" and self.network != "mlp":
            only = f"{self.algorithm} has mlp alone: say --network mlp"
            raise ValueError(f"network is {self.network}; {only}")
        if self.on_policy:
            self._require_rollouts()
        self._require_lanes()

    def _require_lanes(self) -> None:
        """ValueError where lanes would be empty, or wait for more than there are."""
        if self.lanes > self.envs:
            raise ValueError(
                f"lanes is {self.lanes}, and an actor has {self.envs} environments: say --lanes "
                f"{self.envs} at most, or more --envs"
            )
        if self.lanes_ready > max(self.lanes, 1):
            raise ValueError(
                f"lanes_ready is {self.lanes_ready}; expected at most --lanes, {max(self.lanes, 1)}"
            )
        if self.lanes and self.on_policy:
            raise ValueError("ppo plays with the present weights alone: leave --lanes away")
        if self.lanes and self.backend != "sync":
            raise ValueError(f"lanes are processes: leave --backend {self.backend} away")

    @property
    def on_policy(self) -> bool:
        """Whether it learns from rollouts of the present policy, which a queue holds: segments of
        `rollout` steps with the probabilities of their actions, each drawn once."""
        return TRAITS[self.algorithm].on_policy

    @property
    def values(self) -> str:
        """What its acting network gives, as Traits has it."""
        return TRAITS[self.algorithm].values

    def _require_rollouts(self) -> None:
        """ValueError where ppo cannot play its rollouts, or the table cannot hold those that wait
        and those that are read."""
        if self.stack != 1:
            raise ValueError(f"stack is {self.stack}; ppo takes no stacks: say --stack 1")
        if self.rollout > SEGMENT_MAX:
            raise ValueError(f"rollout is {self.rollout}; expected at most {SEGMENT_MAX:,}")
        if self.batch > ROLLOUT_MAX:
            raise ValueError(f"batch is {self.batch}; of ppo's segments at most {ROLLOUT_MAX:,}")
        open_ones = self.envs * self.actors
        segments = (
            self.queue(in_turns=True) + self.batch + open_ones
        )  # that wait, are read, are not complete
        least = -(-segments * (self.rollout + 1) * 16 // 15)  # a share is kept for what is written
        if self.capacity < least:
            raise ValueError(
                f"capacity is {self.capacity:,}; {segments} segments of {self.rollout} steps and "
                f"their last rows need --capacity {least} at least"
            )

    def queue(self, in_turns: bool) -> int:
        """ppo: segments that may wait to be drawn: a rollout. Where nobody draws while actors play,
        also whatever one step of all environments can add to what is not a rollout yet."""
        return self.batch + in_turns * 2 * self.envs * self.actors

    @property
    def rows_ahead(self) -> float:
        """Steps that one actor may have unacknowledged: ppo's share of a rollout, so that it is
        played by weights that are not much older."""
        share = self.batch * self.rollout / self.actors
        return share if self.on_policy else self.steps_ahead

    @property
    def samples_per_insert(self) -> float | None:
        """The limiter's ratio: items served for each item inserted."""
        return None if self.steps_per_update is None else self.batch / self.steps_per_update

    @property
    def limiter_buffer(self) -> float | None:
        """The limiter's error buffer, in samples, either way."""
        ratio = self.samples_per_insert
        return None if ratio is None else max(ratio * self.steps_ahead, 2.0 * self.batch)


CARTPOLE = Preset(
    env="CartPole-v1",
    network="mlp",
    hidden=(128, 128),
    capacity=100_000,
    min_size=1_000,
    batch=128,
    steps_per_update=16.0,
    learning_rate=5e-4,
    target_every=250,
    envs=8,
    pull_every=400,
    publish_every=20,
    env_steps=1_500_000,
    mark=490.0,
)

ATARI = Preset(
    env="ALE/Pong-v5",
    network="nature",
    hidden=(512,),
    stack=4,
    reward_clip=1.0,
    capacity=1_000_000,
    min_size=20_000,
    batch=256,
    steps_per_update=32.0,
    steps_ahead=10_000,
    prefetch=8,
    learning_rate=1e-4,
    optimizer_epsilon=1.5e-4,
    target_every=2_500,
    actors=8,
    envs=8,
    pull_every=400,
    publish_every=50,
    env_steps=50_000_000,
)

# Horgan et al. 2018, DQN on Atari. 400 frames between pulls are 100 steps at an action repeat of 4.
# The paper drops the excess over 2 M every 100 learner steps; here the ring drops the oldest step
# at every insert. Reward clipping is the DQN convention that the paper builds on; pad, publication
# and the length of a run are ours, and so is that a lost life cuts no return.
APEX_PAPER = Preset(
    env="ALE/Pong-v5",
    protocol="apex",
    network="nature",
    hidden=(512,),
    stack=4,
    reward_clip=1.0,
    n=3,
    gamma=0.99,
    alpha=0.6,
    beta_start=0.4,
    beta_end=0.4,
    capacity=2_000_000,
    min_size=50_000,
    batch=512,
    steps_per_update=None,
    prefetch=16,
    optimizer="rmsprop",
    learning_rate=0.00025 / 4,
    optimizer_epsilon=1.5e-7,
    rmsprop_decay=0.95,
    huber_delta=None,
    clip_norm=40.0,
    target_every=2_500,
    actors=360,
    envs=1,
    push_batch=50,
    pull_every=100,
    pull_jitter=0.0,
    publish_every=1,
    publish_seconds=1.0,
    env_steps=1_000_000_000,
)

# Soft actor-critic, uniform replay. Haarnoja et al. 2018, table 1; of a network, a batch and a
# learning rate that suit this small task.
PENDULUM = Preset(
    env="Pendulum-v1",
    algorithm="sac",
    network="mlp",
    hidden=(128, 128),
    n=1,
    alpha=0.0,
    capacity=100_000,
    min_size=1_000,
    batch=128,
    steps_per_update=1.0,
    steps_ahead=100,
    learning_rate=1e-3,
    clip_norm=None,
    target_every=1,
    envs=2,
    push_batch=10,
    pull_every=20,
    pull_jitter=0.0,
    publish_every=10,
    env_steps=100_000,
    mark=-200.0,
)

# Proximal policy optimization (Schulman et al. 2017): 8 environments, rollouts of 8 segments.
CARTPOLE_PPO = Preset(
    env="CartPole-v1",
    algorithm="ppo",
    network="mlp",
    hidden=(64, 64),
    gamma=0.98,
    alpha=0.0,
    capacity=16_384,
    min_size=1,
    batch=8,
    rollout=32,
    epochs=10,
    minibatches=4,
    prefetch=1,
    learning_rate=1e-3,
    clip_norm=0.5,
    target_every=1,
    envs=8,
    push_batch=8,
    pull_every=1,
    pull_jitter=0.0,
    publish_every=1,
    env_steps=1_500_000,
    mark=490.0,
)

# Two agents: one sees which landmark is meant and can only speak, the other hears and only moves.
SPEAKER_LISTENER = dataclasses.replace(
    CARTPOLE,
    env="agents:mpe2.simple_speaker_listener_v4",
    gamma=0.95,
    steps_per_update=8.0,
    mark=-12.0,
)

PRESETS = {
    "cartpole": CARTPOLE,
    "cartpole-ppo": CARTPOLE_PPO,
    "pendulum": PENDULUM,
    "speaker-listener": SPEAKER_LISTENER,
    "atari": ATARI,
    "apex-paper": APEX_PAPER,
}


TORCH = "torch/"  # the same task, stepped as tensors (torch_envs.py)


def task_of(env: str) -> str:
    """The task that an environment's id names, however it is stepped."""
    return env.removeprefix(TORCH)


def preset_for(name: str, env: str) -> str:
    """`name`; where it is empty, the preset that suits `env` (which may be empty too)."""
    if name:
        return name
    return {PENDULUM.env: "pendulum"}.get(
        task_of(env), "atari" if env.startswith("ALE/") else "cartpole"
    )


def preset(name: str) -> Preset:
    """The preset `name`; ValueError that lists the others."""
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; the nearest is {nearest(name, PRESETS)!r}")
    return PRESETS[name]


def changed(base: Preset, **changes: Any) -> Preset:
    """`base` with fields replaced; ValueError naming a field that does not exist."""
    names = {field.name for field in dataclasses.fields(base)}
    for name in changes:
        if name not in names:
            raise ValueError(f"no setting {name!r}; the nearest is {nearest(name, names)!r}")
    return dataclasses.replace(base, **changes)
