"""Rollouts in place of batches: segments that are drawn once, and learned from in minibatches.

A draw of `batch` segments is a rollout. Its steps are cut at random into `minibatches` parts, of
sizes that differ by one at most, and so `epochs` times over: each part is what the loop calls a
batch. So one rollout is epochs * minibatches learner steps, whatever lengths its segments have: of
several learners each makes as many, whose gradients are averaged.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from learner.ppo import Steps
from replay_server.training.loop import Priorities

if TYPE_CHECKING:
    from learner.learner import Learner


@dataclass(frozen=True, eq=False)
class Minibatch:
    """M steps, as a learner takes a batch. keys: uint64 [M], of the segment that each is of."""

    steps: Steps
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def weights(self) -> Tensor:
        """float32 [M]: 1."""
        return self.steps.weights

    @property
    def ahead(self) -> np.ndarray:
        """As a batch of transitions has it."""
        return np.ones(len(self), np.int64)

    @property
    def drawables(self) -> np.ndarray:
        """With `probabilities`: importance weights of 1, as learners that are one agree on them at
        each batch (replicas.py), which is also how they hear that one of them ends."""
        return np.ones(len(self))

    probabilities = drawables

    @property
    def data(self) -> dict[str, Tensor]:
        """Its parts, by name."""
        seen = self.steps.observations
        parts = seen if isinstance(seen, dict) else {"observation": seen}
        names = ("actions", "log_probs", "advantages", "returns")
        return {**parts, **{name: getattr(self.steps, name) for name in names}}

    def transitions(self, gamma: float, device: Any, reward_clip: float | None) -> Steps:
        """Where a batch cuts transitions out of its items, here they are."""
        return self.steps


class Rollouts:
    """A replay (replay.py) of segments, in minibatches. Draws of torch's global generator."""

    def __init__(self, replay: Any, learner: Learner) -> None:
        self.replay, self.learner = replay, learner
        self.parts: deque[Minibatch] = deque()  # of the newest rollout, those still to come

    def ready(self) -> bool:
        """Whether a minibatch is there, or a rollout to be drawn."""
        return bool(self.parts) or self.replay.ready()

    def sample(self) -> Minibatch | None:
        """The next minibatch; None while no rollout is there."""
        if not self.parts:
            batch = self.replay.sample()
            if batch is None:
                return None
            self.parts.extend(self._cut(batch))
        return self.parts.popleft()

    def _cut(self, batch: Any) -> list[Minibatch]:
        preset = self.learner.preset
        steps = self.learner.algorithm.steps_of(batch, self.learner.device)
        of = np.repeat(np.asarray(batch.keys), np.asarray(batch.ahead, np.int64))
        found = []
        for _ in range(preset.epochs):
            order = torch.randperm(len(steps))
            # of fewer steps than parts some are learned from again: as many updates on each rank
            order = order.repeat(-(-preset.minibatches // len(steps)))
            for which in order.tensor_split(preset.minibatches):
                keys = of[which.numpy()]
                part = steps.chosen(which.to(self.learner.device))
                found.append(Minibatch(part, keys))
        return found

    def update(self, batch: Minibatch, priorities: Priorities) -> None:
        """Nothing: what was drawn is gone."""
