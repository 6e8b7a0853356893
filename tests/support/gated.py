"""An environment of which the first one of an actor does not step before a file is there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

GATE = "REPLAY_TEST_GATE"  # the file's path
LIMIT_S = 60.0


class Gated(gymnasium.Env):
    """Counts its steps; an episode has 16."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.first = seed & 0xFFFFFF == 0
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        until = time.monotonic() + LIMIT_S
        while self.first and not Path(os.environ[GATE]).exists() and time.monotonic() < until:
            time.sleep(0.001)
        self.steps += 1
        seen = np.array([self.steps, self.first], np.float32)
        return seen, 1.0, self.steps == 16, False, {}


gymnasium.register("Gated-v0", Gated)
