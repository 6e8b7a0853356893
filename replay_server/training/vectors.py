"""What the vectors of environments made here have alike: next-step mode, spaces, seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class NextStepVector(VectorEnv):
    """`count` environments of these spaces, reset in the step behind an episode's end."""

    def __init__(self, observations: Space[Any], actions: Space[Any], count: int) -> None:
        self.num_envs = count
        # its own: ale-py writes the mode into a dict that all vector environments share
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = observations
        self.single_action_space = actions
        self.observation_space = batch_space(observations, count)
        self.action_space = batch_space(actions, count)

    def seeds_of(self, seed: Any) -> list[int] | None:
        """What `reset` was given as a seed for each environment; None where it was none. ValueError
        where they are not as many."""
        if seed is None:
            return None
        seeds = [seed + i for i in range(self.num_envs)] if np.ndim(seed) == 0 else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        return [int(each) for each in seeds]
