"""One rank of test_replicas, as a program: `python rank.py RANK FILE UPDATES`, started as torchrun
starts it. Rank 1 stops after its updates; the others try one more and print what they are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import safetensors.torch
import torch
from given import batch_from

from learner.learner import Learner
from learner.replicas import Ended, Replicas
from replay_server import Batch, Column, Spec
from replay_server.training.actions import Bounds
from replay_server.training.contact import Stop
from replay_server.training.loop import learn
from replay_server.training.presets import changed, preset

SPEC = Spec(
    (
        Column("observation", np.float32, (4,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
SHARE = 8
BOX = Bounds(np.zeros((), np.float32), np.ones((), np.float32))  # of which SPEC's actions are edges


def learner_of(seed: int, name: str = "cartpole", *, compiled: bool = False) -> Learner:
    """A small learner by the preset `name`; its first weights depend on the seed."""
    settings = changed(preset(name), hidden=(8,), n=2, target_every=7)
    actions = BOX if settings.algorithm == "sac" else 2
    named = {"preset": settings, "seed": seed, "compiled": compiled}
    return Learner(spec=SPEC, actions=actions, **named)


def share_of(update: int, rank: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(data, probabilities) of what a rank draws for an update."""
    rng = np.random.default_rng([update, rank])
    data = {
        "observation": rng.standard_normal((SHARE, 2, 4)).astype(np.float32),
        "action": rng.integers(0, 2, (SHARE, 1)),
        "reward": rng.standard_normal((SHARE, 2)).astype(np.float32),
        "terminated": rng.random((SHARE, 2)) < 0.2,
    }
    return data, rng.uniform(0.001, 0.1, SHARE)


def batches(ranks: tuple[int, ...], updates: int) -> Iterator[Batch]:
    """The shares of these ranks, joined to one batch for each update."""
    for update in range(updates):
        shares = [share_of(update, rank) for rank in ranks]
        data = {name: np.concatenate([d[name] for d, _ in shares]) for name in shares[0][0]}
        count = len(data["reward"])
        batch = batch_from(data, np.full(count, 2), np.ones(count))
        yield replace(
            batch,
            probabilities=np.concatenate([p for _, p in shares]),
            drawables=np.full(count, 100, np.uint32),
        )


class Given:
    """A replay that hands out these batches and keeps the priorities."""

    def __init__(self, given: Iterator[Batch]) -> None:
        self.given = given
        self.priorities: list[Any] = []

    def sample(self) -> Batch:
        """The next."""
        return next(self.given)

    def update(self, batch: Batch, priorities: np.ndarray) -> None:
        """Kept."""
        self.priorities.append(priorities)


def main(rank: int, path: str, updates: int) -> None:
    """The updates, then the end; the network and the priorities into `path`."""
    torch.set_num_threads(1)
    replicas = Replicas("cpu", lambda sentence: None, Stop())
    learner = learner_of(seed=rank)
    replicas.join(learner)
    given = Given(batches((rank,), updates + 1))
    for _ in range(updates):
        learn(given, learner, replicas)
    found = {f"net/{name}": part for name, part in learner.acting.state_dict().items()}
    found["priorities"] = torch.from_numpy(np.concatenate(given.priorities))
    safetensors.torch.save_file(found, path)
    if rank == 1:
        replicas.leave()
    else:
        try:
            learn(given, learner, replicas)
        except Ended as ended:
            print(ended)
    replicas.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
