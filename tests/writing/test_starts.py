"""Episodes that begin where the one before ended: a slip is refused, what is by right is not.

The slip is a loop that resets before it adds the step, so that the final observation is the reset's
and the next episode begins with it. What is by right: environments that always show the same, that
end where all episodes begin, or that have few places.
"""

import copy
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from replay_server import Client, NStep, Server, SpecError, Table, spec_from

STEPS = 1000
AGAIN = "was given its final observation again"


class Noise(gymnasium.Env):
    """Episodes of `length` steps of random observations; `start`: where each begins, None: random.
    `kind`: "dict", or the shape and dtype."""

    def __init__(self, shape=(4,), kind=np.float32, *, nested=False, start=None, length=5):
        self.box = spaces.Box(0, 255, shape, kind)
        self.observation_space, self.action_space = self.box, spaces.Discrete(2)
        self.nested, self.start, self.length, self.at = nested, start, length, 0
        if nested:
            self.observation_space = spaces.Dict({"place": self.box, "goal": self.box})
        self.random = np.random.default_rng(7)

    def _seen(self):
        if self.at == 0 and self.start is not None:
            return np.full(self.box.shape, self.start, self.box.dtype)
        seen = self.random.integers(1, 255, self.box.shape).astype(self.box.dtype)
        return {"place": seen, "goal": seen + 1} if self.nested else seen

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self._seen(), {}

    def step(self, action):
        self.at += 1
        return self._seen(), 1.0, False, self.at == self.length, {}


def slip(env, kept, mode=None, ends=20):
    """Resets before it adds, and goes on with what `kept` makes of next_observation; how many ends
    were taken, SpecError or none, and what was warned of."""
    vector = hasattr(env, "num_envs")
    table = Table("m", step=spec_from(env), plan=NStep(1), capacity=1024)
    taken, refused = 0, None
    with (
        Server([table], "loopback://") as server,
        Client(server.address) as client,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        writer = client.writer("m", autoreset=env if mode is None else mode)
        observation, _ = env.reset(seed=3)
        while taken < ends and refused is None:
            action = np.zeros(env.num_envs, np.int64) if vector else 0
            after, reward, terminated, truncated, infos = env.step(action)
            over = terminated | truncated
            if np.any(over):
                after = env.reset(options={"reset_mask": over} if vector else None)[0]
            try:
                writer.add_step(observation, action, after, reward, terminated, truncated, infos)
            except SpecError as error:
                refused = str(error)
            taken += bool(np.any(over))
            observation = kept(after)
        writer.close()
    return taken, refused, [str(each.message) for each in told]


COPIES = {
    "itself": lambda observation: observation,
    "np.array": np.array,
    "astype": lambda observation: observation.astype(np.float32),
    "torch": torch.tensor,
    "float64": lambda observation: np.asarray(observation, np.float64),
}


@pytest.mark.parametrize("kept", COPIES.values(), ids=COPIES)
def test_a_copy_of_the_resets_observation_is_refused_as_the_object_is(kept):
    """Given a single environment, handed over, that is reset before its step is added. Expect one
    warning at the first end and SpecError after the third, whatever became of the observation."""
    taken, refused, told = slip(Noise(), kept)
    assert taken == 3 and AGAIN in refused and len(told) == 1 and AGAIN in told[0]


@pytest.mark.parametrize(
    "env", [Noise((8, 8), np.uint8), Noise(nested=True)], ids=["frames", "dict"]
)
def test_frames_and_dicts_that_were_copied_are_refused(env):
    """Given frames and nested observations that were copied before they were added. Expect what the
    object itself gets: one warning, and SpecError after the third end."""
    taken, refused, told = slip(env, copy.deepcopy)
    assert taken == 3 and AGAIN in refused and len(told) == 1


@pytest.mark.parametrize("kept", [COPIES["itself"], np.array], ids=["itself", "copy"])
def test_resets_merged_into_the_observations_of_a_vector_are_refused(kept):
    """Given a vector in the mode DISABLED, handed over. Expect what a single environment gets."""
    envs = SyncVectorEnv([Noise] * 2, autoreset_mode=AutoresetMode.DISABLED)
    taken, refused, told = slip(envs, kept)
    assert taken == 3 and AGAIN in refused and len(told) == 1 and AGAIN in told[0]


@pytest.mark.parametrize("vector", [False, True], ids=["single", "vector"])
def test_a_few_integers_are_refused_once_it_is_no_chance(vector):
    """Given four bytes of chance. Expect SpecError at the eighth end, and a warning before: at the
    third, or at the first where the caller named the mode."""

    def made():
        env = Noise((4,), np.uint8)
        return SyncVectorEnv([lambda: env], autoreset_mode="Disabled") if vector else env

    taken, refused, told = slip(made(), np.array)
    assert taken == 8 and AGAIN in refused and len(told) == 1
    name = "disabled" if vector else "single"
    taken, refused, told = slip(made(), np.array, name)
    assert taken == 8 and AGAIN in refused and len(told) == 1
    for mode, ends, words in ((None, 2, 0), (None, 4, 1), (name, 2, 1)):
        assert [len(part) for part in slip(made(), np.array, mode, ends)[2:]] == [words]


@pytest.mark.parametrize("start", [9, 0])
@pytest.mark.parametrize("mode", [None, "single"], ids=["handed over", "named"])
def test_a_slip_where_every_episode_begins_alike_is_a_hint(mode, start):
    """Given an environment that always begins at one place, and be it zeros. Expect one warning,
    and no error: it may end there by right."""
    taken, refused, told = slip(Noise(start=start), np.array, mode)
    assert taken == 20 and refused is None
    assert len(told) == 1 and told[0].startswith("the environment ended, and the next")


def test_a_slip_on_a_lake_that_begins_at_zero_is_a_hint():
    """Given FrozenLake, whose episodes all begin at 0. Expect the same."""
    taken, refused, told = slip(gymnasium.make("FrozenLake-v1", max_episode_steps=6), np.array)
    assert taken == 20 and refused is None
    assert len(told) == 1 and told[0].startswith("the environment ended, and the next")


@pytest.mark.parametrize("value", [0, 3])
def test_what_always_shows_the_same_is_a_hint_where_it_was_named(value):
    """Given an environment whose observation never changes. Expect a hint where the mode was named,
    since it may be one that resets itself; none where it was handed over."""
    taken, refused, told = slip(Still(value=value), np.array, "single")
    assert taken == 20 and refused is None
    assert len(told) == 1 and told[0].startswith("the environment ended, and the next")
    assert slip(Still(value=value), np.array) == (20, None, [])


def test_a_final_observation_that_was_not_given_says_nothing():
    """Given terminations without a final observation, which are stored as zeros, of an environment
    that begins at zeros. Expect no word: nobody said that it ended there."""
    env = Noise(start=0)
    table = Table("m", step=spec_from(env), plan=NStep(1), capacity=1024)
    with (
        Server([table], "loopback://") as server,
        Client(server.address) as client,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        with client.writer("m", autoreset="single") as writer:
            for _ in range(20):
                observation, _ = env.reset()
                for over in (False, True):
                    after = env.step(0)[0]
                    known = None if over else after
                    writer.add_step(observation, 0, known, 1.0, over, False)
                    observation = after
    assert not told


class Still(Noise):
    """The same image for ever, one object or new each time."""

    def __init__(self, new=False, value=3):
        super().__init__((8, 8), np.uint8)
        self.new, self.image = new, np.full((8, 8), value, np.uint8)

    def _seen(self):
        return self.image.copy() if self.new else self.image


class Line(Noise):
    """A walk on four places, as a float; begins at any of them and ends anywhere."""

    def __init__(self, least=1):
        super().__init__((1,), np.float32, length=4)
        self.place, self.least = 0, least

    def _seen(self):
        if self.at == 0:
            self.place = int(self.random.integers(4))
        self.place = int(np.clip(self.place + self.random.integers(-1, 2), 0, 3))
        return np.array([self.place + self.least], np.float32)


class Loop(Noise):
    """A clock: one number that goes round, and every end is where all episodes begin."""

    def __init__(self, least=1):
        super().__init__((1,), np.float32, length=7)
        self.least = least

    def _seen(self):
        return np.array([self.least + self.at % 7], np.float32)


def gym(name, limit=None, **arguments):
    def made():
        env = gymnasium.make(name, **arguments)
        return TimeLimit(env, limit) if limit else env

    return made


BY_RIGHT = {
    "frozen lake": gym("FrozenLake-v1", 4),
    "frozen lake, one way": gym("FrozenLake-v1", 3, is_slippery=False),
    "taxi": gym("Taxi-v4", 3),
    "cliff": gym("CliffWalking-v1", 3),
    "still": Still,
    "still, new": lambda: Still(True),
    "still, zeros": lambda: Still(value=0),
    "line": Line,
    "line from zero": lambda: Line(0),
    "loop": Loop,
    "loop from zero": lambda: Loop(0),
    "cart pole": gym("CartPole-v1"),
}


LOOPS = (BY_RIGHT["loop"], BY_RIGHT["loop from zero"])


def played(env):
    """A right loop over an environment that is handed over; how many episodes it stored."""
    vector, ends = hasattr(env, "num_envs"), 0
    mode = getattr(env, "metadata", {}).get("autoreset_mode") if vector else None
    table = Table("m", step=spec_from(env), plan=NStep(1), capacity=1024)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        writer = client.writer("m", autoreset=env)
        env.action_space.seed(11)
        observation, _ = env.reset(seed=5)
        for _ in range(STEPS):
            action = env.action_space.sample()
            after, reward, terminated, truncated, infos = env.step(action)
            writer.add_step(observation, action, after, reward, terminated, truncated, infos)
            over, observation = terminated | truncated, after
            ends += int(np.sum(over))
            itself = gymnasium.wrappers.Autoreset in [type(env), *map(type, wrappers(env))]
            if vector and mode == AutoresetMode.DISABLED and over.any():
                observation, _ = env.reset(options={"reset_mask": over})
            elif not vector and not itself and over:
                observation, _ = env.reset()
        writer.close()
    return ends


def wrappers(env):
    while hasattr(env, "env"):
        env = env.env
        yield env


@pytest.mark.parametrize("mode", ["single", "wrapped", *AutoresetMode], ids=str)
@pytest.mark.parametrize("made", BY_RIGHT.values(), ids=BY_RIGHT)
def test_who_begins_where_it_ended_by_right_is_neither_refused_nor_warned(made, mode):
    """Given environments whose episodes begin where one ended, by right or by chance, handed over
    in every mode. Expect every step to be taken and no word; of the clock, whose every end is its
    start, one hint."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if mode == "single":
            env = made()
        elif mode == "wrapped":
            env = gymnasium.wrappers.Autoreset(made())
        else:
            env = SyncVectorEnv([made] * 3, autoreset_mode=mode)
        assert played(env) > 20
    told = [str(each.message) for each in told if "observation" in str(each.message)]
    clock = made in LOOPS and mode in ("single", AutoresetMode.DISABLED)
    assert len(told) == clock, told
