"""TorchRL's replay buffer, as far as a DQN loop asks of one, with its transitions in a server.

    from replay_server.integrations.torchrl import ReplayServerBuffer

    buffer = ReplayServerBuffer(env, 20_000, batch_size=128, alpha=0.6)

starts a server inside the program; address="udp://127.0.0.1:7400" makes it a client of the server
there, whose table must have the columns `columns_of(env)`; capacity and seed are that server's.
alpha=None draws uniformly, or as the server there does.

A collector's TensorDict is [time], or [environments, time]; its ("next", "observation") is the
last observation of an episode where one ended, so every row says by itself what it leads to:
terminated returns end, truncated ones bootstrap from that last observation.

A sampled TensorDict [B] has what TorchRL's losses look for: the observation, the action, "next"
(observation, reward, terminated, done), "priority_weight", "key", and for n_steps > 1
"steps_to_next_obs". ("next", "done") is ("next", "terminated"): a window does not hold the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from replay_server import (
    Client,
    Column,
    LimiterBlocked,
    NStep,
    Prioritized,
    Server,
    ServerRestarted,
    Spec,
    SpecError,
    Table,
    TableEmptied,
    Timeout,
    Uniform,
)
from replay_server.batch import checked_beta, checked_count
from replay_server.integrations.served import expect_items, gamma_for
from replay_server.support.values import numbers_of

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
except ImportError as error:
    raise ImportError(
        f"replay_server.integrations.torchrl needs tensordict and torch ({error}): "
        "pip install 'replay-server[torchrl]'"
    ) from error

TABLE = "main"


def columns_of(env: Any, observation: str = "observation") -> Spec:
    """The columns of one step of a TorchRL environment. observation: its key there, such as
    "pixels"; ValueError where it has none of that name."""
    there = list(env.observation_spec.keys())
    if observation not in there:
        raise ValueError(
            f"the environment has no observation {observation!r}: name one of "
            f"{', '.join(map(str, there))} as observation="
        )

    def column(name: str, of: Any) -> Column:
        shape = of.shape[len(env.batch_size) :]
        return Column(name, torch.empty(0, dtype=of.dtype).numpy().dtype, tuple(shape))

    reward = column("reward", env.reward_spec)
    if np.prod(reward.shape, dtype=int) != 1:
        raise ValueError(
            f"the environment gives {list(reward.shape)} rewards for a step, an item holds one: "
            "make one of them, by torchrl.envs.transforms.LineariseRewards or your own sum"
        )
    seen = column("observation", env.observation_spec[observation])
    rest = (Column("reward", np.float32), Column("terminated", np.bool_))
    return Spec((seen, column("action", env.action_spec), *rest))


class ReplayServerBuffer:
    """`extend`, `sample` and `update_tensordict_priority` of one environment's steps."""

    def __init__(
        self,
        env: Any,
        capacity: int,
        *,
        batch_size: int,
        alpha: float | None = None,
        beta: float = 0.4,
        n_steps: int = 1,
        gamma: float | None = None,
        address: str | None = None,
        seed: int | None = None,
        observation: str = "observation",
    ) -> None:
        self.batch_size, self.beta = checked_count(batch_size), checked_beta(beta)
        self.streams = env.batch_size.numel()
        self.observation = observation  # the environment's key, and that of what is drawn
        spec = columns_of(env, observation)
        self.server: Server | None = None
        if address is None:
            sampler = Uniform() if alpha is None else Prioritized(alpha)
            table = Table(TABLE, spec, NStep(n_steps), capacity, sampler, streams=self.streams)
            self.server = Server([table], seed=seed)
            address = self.server.address
        self.client = Client(address, specs={TABLE: spec})
        served = self.client.table(TABLE).alpha
        if alpha is not None and alpha != served:
            self.close()
            raise ValueError(
                f"alpha={alpha}, and table {TABLE!r} of {address} draws with {served}: leave alpha "
                "out, or give it that one"
            )
        self.gamma = gamma_for(self.client, TABLE, n_steps, gamma)
        self._begin()
        self._drawable = False  # something was: the table is not empty

    def _begin(self) -> None:
        """A writer that follows nothing yet."""
        self.writer = self.client.writer(TABLE, self.streams, autoreset="disabled")
        self._next: np.ndarray | None = None  # [streams, ...]: what the last step led to
        self._open = np.zeros(self.streams, np.bool_)  # its episode goes on

    def extend(self, steps: TensorDictBase | Sequence[TensorDictBase]) -> None:
        """Stores what a collector returned, [time] or [environments, time], in its order; or one
        step, [] or [environments]; or a list of such parts, each of which goes on where the one
        before ended.

        Without ("next", "truncated") an episode that is done and not terminated was truncated. A
        step that does not begin where the one before it led to begins an episode of its own, so
        steps may come in any order: each leads where it says.
        An error of a step says how many were taken, as `error.taken`: go on with those behind them.
        Where the table was emptied, or its server came back, a new writer has been opened.
        """
        parts = steps if isinstance(steps, list | tuple) else [steps]
        if not parts or not all(isinstance(part, TensorDictBase) for part in parts):
            raise ValueError(
                f"steps is {type(steps).__name__}: expected a TensorDict, or a list of some, as "
                "env.rollout or a collector returns"
            )
        parts = [self._by_stream(part) for part in parts if 0 not in part.batch_size]
        if not parts:
            return
        steps = torch.cat(parts, 1).cpu()
        following = steps["next"]
        terminated = following["terminated"]
        truncated = following.get("truncated", None)
        truncated = following["done"] & ~terminated if truncated is None else truncated
        rows = {
            "observation": steps[self.observation].numpy(),
            "action": steps["action"].numpy(),
            "next_observation": following[self.observation].numpy(),
            "reward": following["reward"][..., 0].numpy(),
            "terminated": terminated[..., 0].numpy(),
            "truncated": truncated[..., 0].numpy(),
        }
        taken, count = 0, steps.shape[1]
        before, elsewhere = self._seams(rows)
        try:
            for taken in range(count):
                if elsewhere[:, taken].any():
                    self.writer.restart(elsewhere[:, taken], before[:, taken])
                self.writer.add_batch(**{name: row[:, taken] for name, row in rows.items()})
                self._next = rows["next_observation"][:, taken]
                self._open = ~(rows["terminated"] | rows["truncated"])[:, taken]
            taken = count
            self.writer.flush()
        except (LimiterBlocked, Timeout, SpecError) as error:
            rest = f"go on with steps[..., {taken}:]" if taken < count else "none of them again"
            self._say_taken(error, f"of the {count} time steps {taken} were taken: {rest}", taken)
            raise
        except (ServerRestarted, TableEmptied) as error:
            self._begin()
            self._say_taken(error, "a new one was opened here: extend goes on with it", taken)
            raise

    def _say_taken(self, error: Any, rest: str, taken: int) -> None:
        said = str(error).replace(" (nothing of this call was taken: call it again)", "")
        error.taken, error.args = taken, (f"{said}; {rest}",)

    def _seams(self, rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """What each step's predecessor led to, [streams, time, ...]; and where an open episode goes
        on elsewhere, [streams, time]."""
        now, after = rows["observation"], rows["next_observation"]
        first = now[:, 0] if self._next is None else self._next
        before = np.concatenate([first[:, None], after[:, :-1]], 1)
        done = (rows["terminated"] | rows["truncated"])[:, :-1]
        goes_on = np.concatenate([self._open[:, None], ~done], 1)
        moved = (now != before).reshape(*now.shape[:2], -1).any(2)
        return before, moved & goes_on

    def _by_stream(self, steps: TensorDict) -> TensorDict:
        """The steps as [streams, time]; ValueError where they are not laid out so, or are padded:
        a step that nobody took would be stored."""
        end = "done" if steps.get(("next", "truncated"), None) is None else "truncated"
        following = (self.observation, "reward", "terminated", end)
        for key in (self.observation, "action", *(("next", name) for name in following)):
            if steps.get(key, None) is None:
                raise ValueError(
                    f"there is no {key!r} in these steps: extend takes what env.rollout gives"
                )
        mask = steps.get(("collector", "mask"), None)
        if mask is not None and not bool(mask.all()):
            raise ValueError(
                f"{int((~mask).sum())} of {mask.numel()} steps are padding (a collector's "
                "split_trajs=True): leave that out, this buffer cuts episodes by itself"
            )
        shape, count = tuple(steps.batch_size), self.streams
        streams = "one stream" if count == 1 else f"{count} streams"
        flat = len(shape) < 2 and math.prod(shape) % count == 0
        if not flat and (len(shape) < 2 or math.prod(shape[:-1]) != count):
            raise ValueError(
                f"steps of shape {shape}: expected [time] or [{count}, time], the environment's "
                f"{streams}; give each worker a buffer of its own"
            )
        return steps.reshape(count, -1)

    def sample(self, batch_size: int | None = None) -> TensorDict:
        """A TensorDict of `batch_size` transitions (None: the buffer's own); see the file's first
        lines."""
        count = self.batch_size if batch_size is None else checked_count(batch_size)
        if not self._drawable and self.server is not None:
            expect_items(self.client, TABLE, "extend it by more steps")
            self._drawable = True
        batch = self.client.sample(TABLE, count, beta=self.beta)
        found = batch.transitions(self.gamma, "cpu")
        terminated = (found.discounts == 0.0)[:, None]
        sample = TensorDict(
            {
                self.observation: found.observations,
                "action": found.actions,
                "next": {
                    self.observation: found.next_observations,
                    "reward": found.rewards[:, None],
                    "terminated": terminated,
                    "done": terminated,
                },
                "priority_weight": found.weights,
                "key": torch.from_numpy(batch.keys.astype(np.int64)),
            },
            [count],
        )
        n = batch["reward"].shape[1]
        if n > 1:
            ahead = np.minimum(batch.ahead, n).astype(np.int64)
            sample["steps_to_next_obs"] = torch.from_numpy(ahead)[:, None]
        return sample

    def update_tensordict_priority(self, sample: TensorDict) -> None:
        """New priorities: what the loss wrote as "td_error" (DQNLoss writes its square)."""
        errors = sample.get("td_error", None)
        if errors is None:
            raise ValueError(
                'there is no "td_error" in this TensorDict: hand over the one that the loss was '
                "computed of, or write it, [B], into it"
            )
        priorities = numbers_of("td_error", errors.reshape(-1).double()) + 1e-6
        keys = numbers_of("key", sample["key"])
        self.client.update_priorities(TABLE, keys, priorities, wait=False)

    def __len__(self) -> int:
        """Items that can be drawn now."""
        self.writer.flush()
        return self.client.size(TABLE)

    def close(self) -> None:
        """Ends the session, and the server where it is this program's."""
        self.client.close()
        if self.server is not None:
            self.server.close()
