"""What is learned in `make bench-peers LEARN=n`: environments side by side, in NumPy alone.

CartPoles    Gymnasium's CartPole-v1, its equations written out (Barto et al. 1983)
Flights      pixels: a ball flies round a ring, left or right; only a stack of frames tells where
             to. The answer 0 or 1 is asked for at each step, the first is free. A wrong one ends
             the episode with nothing, the fourth right one with reward 1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LONGEST = 500
STACK, CELLS, CELL = 4, 11, 4
SIDE = CELLS * CELL  # pixels of a frame's side
GUESSES = 4


@dataclass(frozen=True)
class Outcome:
    """Of N environments: observations after the step [N, ...], rewards float32 [N], terminated bool
    [N], and the scores of episodes that ended."""

    after: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    scores: np.ndarray


class CartPoles:
    """`count` poles. observations: float32 [count, 4]: place, speed, angle, turn."""

    features = 4

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self.random = random
        self.state = self.fresh(count)
        self.ages = np.zeros(count, np.int64)

    def fresh(self, count: int) -> np.ndarray:
        """States of a beginning."""
        return self.random.uniform(-0.05, 0.05, (count, 4))

    @property
    def observations(self) -> np.ndarray:
        return self.state.astype(np.float32)

    @staticmethod
    def seen(observations: np.ndarray) -> np.ndarray:
        """What the network is given, float32 [B, 4]."""
        return observations.reshape(-1, 4)

    def step(self, actions: np.ndarray) -> Outcome:
        """A step of each; the score of an episode is its length."""
        _, speed, angle, turn = self.state.T
        force = np.where(actions == 1, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        pushed = (force + 0.05 * turn**2 * sin) / 1.1
        turned = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        moved = pushed - 0.05 * turned * cos / 1.1
        rates = np.stack([speed, moved, turn, turned], axis=1)
        self.state = self.state + 0.02 * rates
        self.ages += 1
        after = self.observations
        terminated = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > np.pi / 15)
        over = terminated | (self.ages >= LONGEST)
        lengths = self.ages[over].copy()
        self.state[over], self.ages[over] = self.fresh(int(over.sum())), 0
        return Outcome(after, np.ones(len(over), np.float32), terminated, lengths)


class Flights:
    """`count` balls. observations: uint8 [count, 4, 44, 44], the newest frame last."""

    features = STACK * CELLS * CELLS

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self.random, self.count = random, count
        self.stack = np.zeros((count, STACK, SIDE, SIDE), np.uint8)
        self.cell, self.height, self.way, self.age = (np.zeros(count, np.int64) for _ in range(4))
        self.begin(np.ones(count, bool))

    def begin(self, over: np.ndarray) -> None:
        """New episodes of these environments: empty frames before the first."""
        for values, below in ((self.cell, CELLS), (self.height, CELLS), (self.way, 2)):
            values[over] = self.random.integers(below, size=int(over.sum()))
        self.age[over] = 0
        self.stack[over] = 0
        self.draw(over)

    def draw(self, which: np.ndarray) -> None:
        """A ball in the newest frame of these environments."""
        for i in np.flatnonzero(which):
            top, left = CELL * self.height[i], CELL * self.cell[i]
            self.stack[i, -1, top : top + CELL, left : left + CELL] = 255

    @property
    def observations(self) -> np.ndarray:
        return self.stack.copy()

    @staticmethod
    def seen(observations: np.ndarray) -> np.ndarray:
        """A pixel of each cell, float32 [B, 484]."""
        frames = observations.reshape(-1, STACK, SIDE, SIDE)
        cells = frames[:, :, CELL // 2 :: CELL, CELL // 2 :: CELL]
        return cells.reshape(len(frames), -1).astype(np.float32) / 255

    def step(self, actions: np.ndarray) -> Outcome:
        """A step of each; the score of an episode is 1 where it was won, else 0."""
        wrong = (self.age > 0) & (actions != self.way)
        won = ~wrong & (self.age == GUESSES)
        self.age += 1
        self.cell = (self.cell + np.where(self.way == 1, 1, -1)) % CELLS
        self.stack[:, :-1] = self.stack[:, 1:]
        self.stack[:, -1] = 0
        self.draw(np.ones(self.count, bool))
        after, over = self.observations, wrong | won
        scores = won[over].astype(np.float64)
        self.begin(over)
        return Outcome(after, won.astype(np.float32), over, scores)
