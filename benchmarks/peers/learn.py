"""A task learned through a buffer, in NumPy alone: how long one learner takes with each.

Eight environments side by side and a learner in one process, in one loop: STEPS steps of each go
into the buffer in one acknowledged call, then UPDATES batches come out (ahead where the buffer has
that), each with its new priorities. Double DQN, two hidden layers, Adam, target copied now and
then. It ends when the last episodes, with their exploration, reach the task's score on average.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .peer import Columns, Peer, Sampled
from .worlds import CartPoles, Flights

ENVIRONMENTS, STEPS, UPDATES, BATCH, FIRST = 8, 4, 4, 64, 1024
RATE, COPY_EVERY, HIDDEN = 1e-3, 200, 64
EXPLORE_FROM, EXPLORE_TO, EXPLORE_STEPS = 1.0, 0.02, 8000
AHEAD = 4


@dataclass(frozen=True)
class Task:
    """What is learned. item: the kind of item of a transition; score: the mean over so many last
    episodes that ends it."""

    name: str
    world: type[CartPoles] | type[Flights]
    item: str
    gamma: float
    score: float
    episodes: int


TASKS = {
    "cartpole": Task("CartPole", CartPoles, "small", 0.99, 195.0, 20),
    "flight": Task("pixel", Flights, "flight", 0.9, 0.9, 200),
}


class Network:
    """Three layers of float32; `grow` is one step of Adam on the Huber loss."""

    def __init__(self, features: int, random: np.random.Generator) -> None:
        sizes = (features, HIDDEN, HIDDEN, 2)
        self.layers = [
            random.normal(0, np.sqrt(2 / a), (a, b)).astype(np.float32)
            for a, b in itertools.pairwise(sizes)
        ]
        self.layers += [np.zeros(b, np.float32) for b in sizes[1:]]
        self.moments = [np.zeros((2, *layer.shape), np.float32) for layer in self.layers]
        self.count = 0

    def forward(self, x: np.ndarray) -> list[np.ndarray]:
        """The input and each layer's output; the last is Q, [B, 2]."""
        values = [x]
        for i in range(3):
            x = x @ self.layers[i] + self.layers[3 + i]
            x = np.maximum(x, 0) if i < 2 else x
            values.append(x)
        return values

    def grow(self, values: list[np.ndarray], slope: np.ndarray) -> None:
        """One step down `slope`, the loss's by Q, [B, 2]."""
        slopes: list[Any] = [None] * 6
        for i in (2, 1, 0):
            slopes[i], slopes[3 + i] = values[i].T @ slope, slope.sum(axis=0)
            slope = (slope @ self.layers[i].T) * (values[i] > 0)
        self.count += 1
        for layer, moment, gradient in zip(self.layers, self.moments, slopes, strict=True):
            moment[0] += 0.1 * (gradient - moment[0])
            moment[1] += 0.001 * (gradient**2 - moment[1])
            mean = moment[0] / (1 - 0.9**self.count)
            square = moment[1] / (1 - 0.999**self.count)
            layer -= RATE * mean / (np.sqrt(square) + 1e-8)


class Learner:
    """The loop around a peer."""

    def __init__(self, peer: Peer, task: Task, seed: int) -> None:
        self.peer, self.task, self.random = peer, task, np.random.default_rng(seed)
        self.world = task.world(ENVIRONMENTS, self.random)
        features = task.world.features
        self.online, self.target = Network(features, self.random), Network(features, self.random)
        self.stream: Iterator[Sampled] | None = None
        self.scores: deque[float] = deque(maxlen=task.episodes)
        self.steps = self.updates = 0
        self.waits: list[float] = []

    def run(self, seconds: float) -> dict[str, Any]:
        """Learns until the score or the time is reached."""
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds and not self.reached:
            rows = self.play()
            before = time.perf_counter()
            self.peer.insert(rows)
            self.waits.append(time.perf_counter() - before)
            if self.steps >= FIRST:
                for _ in range(UPDATES):
                    self.learn()
        passed = time.perf_counter() - begin
        return {
            "times": self.waits,
            "seconds": passed,
            "items": self.updates * BATCH,
            "all_items": self.updates * BATCH + self.steps,
            "steps": self.steps,
            "reached": bool(self.reached),
        }

    @property
    def reached(self) -> bool:
        """Whether the last episodes were good enough."""
        full = len(self.scores) == self.task.episodes
        return full and float(np.mean(self.scores)) >= self.task.score

    def values(self, network: Network, observations: np.ndarray) -> list[np.ndarray]:
        """A network's layers for these observations, as items have them."""
        return network.forward(self.task.world.seen(observations))

    def play(self) -> Columns:
        """STEPS steps of each environment, as items."""
        parts: dict[str, list[np.ndarray]] = {}
        for _ in range(STEPS):
            now = self.world.observations
            share = min(1.0, self.steps / EXPLORE_STEPS)
            explored = EXPLORE_FROM + share * (EXPLORE_TO - EXPLORE_FROM)
            best = self.values(self.online, now)[-1].argmax(axis=1)
            random = self.random.integers(2, size=ENVIRONMENTS)
            actions = np.where(self.random.random(ENVIRONMENTS) < explored, random, best)
            played = self.world.step(actions)
            self.scores.extend(played.scores.tolist())
            self.steps += ENVIRONMENTS
            row = {"observation": now, "next_observation": played.after, "action": actions}
            row |= {"reward": played.rewards, "terminated": played.terminated}
            for name, value in row.items():
                parts.setdefault(name, []).append(value)
        return {name: np.concatenate(values) for name, values in parts.items()}

    def batch(self) -> Sampled:
        """The next one, ahead where the peer can."""
        if self.stream is None:
            self.stream = self.peer.ahead(BATCH, AHEAD) or iter(())
        got = next(self.stream, None)
        return self.peer.sample(BATCH) if got is None else got

    def learn(self) -> None:
        """One update, and its priorities."""
        before = time.perf_counter()
        got = self.batch()
        waited = time.perf_counter() - before
        items = {name: np.asarray(column) for name, column in got.items.items()}
        following = items["next_observation"]
        best = self.values(self.online, following)[-1].argmax(axis=1)
        ahead = self.values(self.target, following)[-1][np.arange(BATCH), best]
        goes_on = 1.0 - items["terminated"].reshape(BATCH)
        goal = items["reward"].reshape(BATCH) + self.task.gamma * goes_on * ahead
        values = self.values(self.online, items["observation"])
        actions = items["action"].reshape(BATCH).astype(np.int64)
        error = values[-1][np.arange(BATCH), actions] - goal
        weights = 1.0 if got.weights is None else np.asarray(got.weights).reshape(BATCH)
        slope = np.zeros((BATCH, 2), np.float32)
        slope[np.arange(BATCH), actions] = weights * np.clip(error, -1, 1) / BATCH
        self.online.grow(values, slope)
        self.updates += 1
        if self.updates % COPY_EVERY == 0:
            self.target.layers = [layer.copy() for layer in self.online.layers]
        before = time.perf_counter()
        if got.keys is not None:
            self.peer.update(got.keys, abs(error).astype(np.float64) + 1e-6)
        self.waits.append(waited + time.perf_counter() - before)
