"""Training a one-hot linear net to the values of the six-state chain, through any replay.

The pieces a tabular test is made of: `play` writes episodes into a replay and records them,
`train` runs the learner's own update on sampled batches, `reference.solve` says what must come out.
`replay` is anything with `append`, `create`, `sample` and `update`, as reference.Replay has them.

The optimizer's steps shrink as 1 / (1 + t / 300) and the second half of them is averaged, so that
what is left of the sampling noise is well below the tolerance of 1e-2.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from environments import ChainEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reference import Recorded

from learner import dqn
from learner.networks import network_from
from replay_server.autoreset import Autoreset, Rows, mode_of
from replay_server.spec import spec_from

GAMMA = 0.9
TOLERANCE = 1e-2


class Store(Protocol):
    """What `play` writes to."""

    def add(self, rows: Rows) -> None: ...


def chain(actions: int, count: int, mode: AutoresetMode) -> SyncVectorEnv:
    """`count` chains; one-action chains are the reward process."""
    return SyncVectorEnv([lambda: ChainEnv(actions)] * count, autoreset_mode=mode)


def play(envs: SyncVectorEnv, calls: int, seed: int, store: Store) -> list[Recorded]:
    """`calls` calls of step with random actions; every episode, as it was played.

    The record is made from what the environment returned, by rules of its own, and not from the
    rows that are stored: a row stored wrongly shows as values that differ.
    """
    count = envs.num_envs
    reset = Autoreset(spec_from(envs), mode_of(envs), count)
    rng = np.random.default_rng(seed)
    observation, _ = envs.reset(seed=seed)
    running: list[list[tuple]] = [[] for _ in range(count)]
    over = np.zeros(count, np.bool_)
    episodes = []
    for _ in range(calls):
        action = rng.integers(0, envs.single_action_space.n, count)
        after, reward, terminated, truncated, infos = envs.step(action)
        lost = infos["life_lost"]
        store.add(
            reset.rows(
                observation=observation,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=after,
                infos=infos,
                life_lost=lost,
            )
        )
        assert mode_of(envs) == "next-step", "the record below knows this mode only"
        for i in range(count):
            if over[i]:
                continue  # this call was the reset
            cut = bool(terminated[i] or lost[i])
            running[i].append((int(observation[i]), int(action[i]), float(reward[i]), cut))
            if terminated[i] or truncated[i]:
                states, actions, rewards, cuts = zip(*running[i], strict=True)
                episodes.append(Recorded((*states, int(after[i])), actions, rewards, cuts))
                running[i] = []
        over = terminated | truncated
        observation = after
    for steps in filter(None, running):
        episodes.append(Recorded(*zip(*steps, strict=True)))
    return episodes


def train(
    replay: Any, actions: int, n: int, updates: int, batch: int = 256, rate: float = 3.0
) -> np.ndarray:
    """Q float64 [states, actions] after training on batches drawn with beta = 1."""
    spec = spec_from(ChainEnv(actions))
    online, target = (
        network_from("linear", spec, actions, states=ChainEnv.STATES) for _ in range(2)
    )
    optimizer = torch.optim.SGD(online.parameters(), lr=rate)
    average = np.zeros((ChainEnv.STATES, actions))
    for step in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate / (1 + step / 300)
        drawn = replay.sample(batch, beta=1.0)
        transitions = dqn.transitions_from(drawn.data, drawn.ahead, drawn.weights, n=n)
        report = dqn.update(
            online,
            target,
            optimizer,
            transitions,
            gamma=GAMMA,
            huber_delta=None,
            clip_norm=None,
        )
        replay.update(drawn.keys, report.td + 1e-2)
        if dqn.target_is_due(step, 10):
            target.load_state_dict(online.state_dict())
        if step > updates // 2:
            average += online.table.weight.detach().numpy().T.astype(np.float64)
    return average / (updates - updates // 2)


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
