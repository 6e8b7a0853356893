"""Training a one-hot linear net to the values of the six-state chain, through any replay.

The pieces a tabular test is made of: `Trace` writes down what environments return, `play` stores
it with random actions, `train` runs the learner's own update on sampled batches, `reference.solve`
says what must come out. `replay` is anything with `sample` and `update`, as reference.Replay.

The optimizer's steps shrink as 1 / (1 + t / 300) and the second half of them is averaged
(`rate_at`, `Average`), so that what is left of the sampling noise is well below the tolerance of
1e-2.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from environments import ChainEnv
from given import transitions
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from reference import Recorded

from learner import dqn
from replay_server.spec import spec_from
from replay_server.training.networks import network_from
from replay_server.writing.autoreset import Autoreset, Rows, mode_of

GAMMA = 0.9
TOLERANCE = 1e-2


class Store(Protocol):
    """What `play` writes to."""

    def add(self, rows: Rows) -> None: ...


def chain(actions: int, count: int, mode: AutoresetMode) -> SyncVectorEnv:
    """`count` chains; one-action chains are the reward process."""
    return SyncVectorEnv([lambda: ChainEnv(actions)] * count, autoreset_mode=mode)


class Trace(VectorWrapper):
    """Environments whose episodes are written down as they are played.

    The record is made from what `step` returned, by rules of its own, and not from the rows that
    are stored: a row stored wrongly shows as values that differ. Next-step mode only.
    """

    def __init__(self, envs: SyncVectorEnv) -> None:
        super().__init__(envs)
        assert mode_of(envs) == "next-step", "the record knows this mode only"
        self.ended: list[Recorded] = []

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, infos = self.env.reset(**arguments)
        self.observation = observation.copy()
        self.running: list[list[tuple]] = [[] for _ in range(self.num_envs)]
        self.over = np.zeros(self.num_envs, np.bool_)
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        after, reward, terminated, truncated, infos = self.env.step(actions)
        for i in range(self.num_envs):
            if self.over[i]:
                continue  # this call was the reset
            cut = bool(terminated[i] or infos["life_lost"][i])
            state, action = int(self.observation[i]), int(actions[i])
            self.running[i].append((state, action, float(reward[i]), cut))
            if terminated[i] or truncated[i]:
                states, taken, rewards, cuts = zip(*self.running[i], strict=True)
                self.ended.append(Recorded((*states, int(after[i])), taken, rewards, cuts))
                self.running[i] = []
        self.over = terminated | truncated
        self.observation = after.copy()
        return after, reward, terminated, truncated, infos

    def episodes(self) -> list[Recorded]:
        """Every episode so far, those still open last."""
        still_open = [Recorded(*zip(*steps, strict=True)) for steps in self.running if steps]
        return self.ended + still_open


def play(envs: SyncVectorEnv, calls: int, seed: int, store: Store) -> list[Recorded]:
    """`calls` calls of step with random actions; every episode, as it was played."""
    envs = Trace(envs)
    reset = Autoreset(spec_from(envs), mode_of(envs), envs.num_envs)
    rng = np.random.default_rng(seed)
    observation, _ = envs.reset(seed=seed)
    for _ in range(calls):
        action = rng.integers(0, envs.single_action_space.n, envs.num_envs)
        after, reward, terminated, truncated, infos = envs.step(action)
        store.add(
            reset.rows(
                observation=observation,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=after,
                infos=infos,
                life_lost=infos["life_lost"],
            )
        )
        observation = after
    return envs.episodes()


def rate_at(step: int, rate: float) -> float:
    """The optimizer's step size at update `step`, counted from 1."""
    return rate / (1 + step / 300)


class Average:
    """The mean of a linear net's table over the second half of `updates`, [states, actions]."""

    def __init__(self, updates: int) -> None:
        self.updates, self.sum = updates, 0.0

    def add(self, step: int, online: torch.nn.Module) -> None:
        if step > self.updates // 2:
            self.sum = self.sum + online.table.weight.detach().numpy().T.astype(np.float64)

    def mean(self) -> np.ndarray:
        return self.sum / (self.updates - self.updates // 2)


def train(
    replay: Any, actions: int, n: int, updates: int, batch: int = 256, rate: float = 6.0
) -> np.ndarray:
    """Q float64 [states, actions] after training on batches drawn with beta = 1."""
    spec = spec_from(ChainEnv(actions))
    online, target = (
        network_from("linear", spec, actions, states=ChainEnv.STATES) for _ in range(2)
    )
    optimizer = torch.optim.SGD(online.parameters(), lr=rate)
    average = Average(updates)
    for step in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, rate)
        drawn = replay.sample(batch, beta=1.0)
        given = transitions(drawn.data, drawn.ahead, drawn.weights, GAMMA)
        report = dqn.update(
            online,
            target,
            optimizer,
            given,
            huber_delta=None,
            clip_norm=None,
        )
        replay.update(drawn.keys, report.td + 1e-2)
        if step % 10 == 0:
            target.load_state_dict(online.state_dict())
        average.add(step, online)
    return average.mean()


def writable(rows: Rows) -> list[tuple[int, dict[str, np.ndarray], bool]]:
    """(stream, row, end) in the order of writing: the steps, then the closing rows."""
    steps = [
        (int(stream), {name: column[i] for name, column in rows.columns.items()}, False)
        for i, stream in enumerate(rows.streams)
    ]
    for i, stream in enumerate(rows.ended_streams):
        row = {name: np.zeros_like(column[0]) for name, column in rows.columns.items()}
        row |= {name: column[i] for name, column in rows.closing.items()}
        steps.append((int(stream), row, True))
    return steps
