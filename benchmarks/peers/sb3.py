"""Stable-Baselines3: `ReplayBuffer` of the off-policy algorithms, one environment, on the CPU.

`add` takes one step of each environment, so N items are N calls. `sample` gives tensors. Draws are
uniform: there are no priorities and nothing to update. `handle_timeout_termination` is off, as no
infos come with the items.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from .peer import Columns, Peer, Sampled, Setting


def connect(setting: Setting, address: str) -> Peer:
    """The buffer in this process; there is no address."""
    return Buffer(setting)


class Buffer(Peer):
    """The buffer's own calls."""

    def __init__(self, setting: Setting) -> None:
        dtype, shape = setting.dtype("observation"), setting.shape("observation")
        low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
        space = spaces.Box(low, high, shape, dtype.type)
        self.buffer = ReplayBuffer(
            setting.capacity,
            space,
            spaces.Discrete(1 << 30),
            device="cpu",
            handle_timeout_termination=False,
        )

    def insert(self, items: Columns) -> None:
        rows = zip(*(items[name][:, None] for name in ORDER), strict=True)
        for observation, following, action, reward, terminated in rows:
            self.buffer.add(observation, following, action, reward, terminated, [{}])

    def sample(self, batch: int) -> Sampled:
        got = self.buffer.sample(batch)
        items = {
            "observation": got.observations.numpy(),
            "next_observation": got.next_observations.numpy(),
            "action": got.actions.numpy()[:, 0],
            "reward": got.rewards.numpy()[:, 0],
            "terminated": got.dones.numpy()[:, 0].astype(np.bool_),
        }
        return Sampled(items, None, None)


ORDER = ("observation", "next_observation", "action", "reward", "terminated")
