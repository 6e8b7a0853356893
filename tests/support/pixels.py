"""Pixels whose meaning is in their motion: a ball flies round a ring, and one frame cannot say how.

    gymnasium.make("pixels:Flight-v0")          with this folder on the path

The ball starts anywhere on a ring of CELLS cells, at any height, and flies left or right at one
cell a step. Actions: 0 says left, 1 says right. The first answer is free, since nobody can know
yet. Then GUESSES answers are needed: a wrong one ends the episode with nothing, the last right one
ends it with reward 1. So an episode's return is 1 or 0, and the reward comes at the end.

Where the ball is and whither it flies are independent at every step, so one frame says nothing.
More than that: no rule from single frames to answers wins more than half of the episodes (the two
directions pass the same cells, and no cell can be answered both ways): `best_of_single_frames`
tries every rule. With two frames of the stack, all can be won.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CELLS = 11
CELL = 4  # pixels a side
SIDE = CELLS * CELL
GUESSES = 4


class Flight(gymnasium.Env):
    """See above. Observations uint8 [44, 44]: black, and a ball of 4 x 4."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's word)

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = spaces.Discrete(2)
        self.render_mode = render_mode
        self.cell = self.height = self.direction = self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.cell, self.height = (int(self.np_random.integers(CELLS)) for _ in range(2))
        self.direction = int(self.np_random.integers(2))
        self.steps = 0
        return self.frame(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        wrong = self.steps > 0 and int(action) != self.direction
        won = not wrong and self.steps == GUESSES
        self.steps += 1
        self.cell = (self.cell + (1 if self.direction else -1)) % CELLS
        return self.frame(), float(won), wrong or won, False, {}

    def frame(self) -> np.ndarray:
        """What can be seen now."""
        frame = np.zeros((SIDE, SIDE), np.uint8)
        top, left = self.height * CELL, self.cell * CELL
        frame[top : top + CELL, left : left + CELL] = 255
        return frame

    def render(self) -> np.ndarray:
        return np.repeat(self.frame()[:, :, None], 3, axis=2)


def best_of_single_frames() -> float:
    """The largest share of episodes that any rule {cell: answer} wins, by trying all 2^CELLS."""
    rules = np.arange(1 << CELLS)[:, None] >> np.arange(CELLS) & 1  # [rules, CELLS]
    start, step = np.arange(CELLS)[:, None], np.arange(1, GUESSES + 1)
    wins = [(rules[:, (start - step) % CELLS] == 0).all(2)]  # flying left
    wins += [(rules[:, (start + step) % CELLS] == 1).all(2)]  # flying right
    return float(np.concatenate(wins, 1).mean(1).max())


gymnasium.register("Flight-v0", entry_point=Flight)
