"""A replay buffer as single-file scripts have it: NumPy arrays, uniform draws, torch tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch


class Samples(NamedTuple):
    """Tensors of B transitions: [B, *shape], actions int64 [B], rewards and dones float32 [B]."""

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    dones: torch.Tensor
    next_observations: torch.Tensor


class ReplayBuffer:
    """The newest `size` transitions of a vector environment."""

    def __init__(self, size: int, envs: Any, device: torch.device) -> None:
        space = envs.single_observation_space
        self.size, self.device, self.count = size, device, 0
        self.observations = np.zeros((size, *space.shape), space.dtype)
        self.next_observations = np.zeros((size, *space.shape), space.dtype)
        self.actions = np.zeros(size, np.int64)
        self.rewards = np.zeros(size, np.float32)
        self.dones = np.zeros(size, np.float32)

    def add(self, obs: Any, next_obs: Any, actions: Any, rewards: Any, dones: Any) -> None:
        """One transition of each environment; all [E, ...]."""
        for i in range(len(obs)):
            at = self.count % self.size
            self.observations[at], self.next_observations[at] = obs[i], next_obs[i]
            self.actions[at], self.rewards[at], self.dones[at] = actions[i], rewards[i], dones[i]
            self.count += 1

    def sample(self, batch_size: int) -> Samples:
        """`batch_size` transitions, each equally likely."""
        rows = np.random.randint(0, min(self.count, self.size), batch_size)
        arrays = (self.observations, self.actions, self.rewards, self.dones, self.next_observations)
        return Samples(*(torch.as_tensor(array[rows], device=self.device) for array in arrays))
