"""cpprb in the learner's process: no server, no copy between processes. See arrays.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import buffer_of
from .peer import Columns, Peer, Sampled, Setting


class InProcess(Peer):
    """The buffer itself."""

    def __init__(self, setting: Setting) -> None:
        self.buffer = buffer_of(setting)

    def insert(self, items: Columns) -> None:
        self.buffer.add(items)

    def sample(self, batch: int) -> Sampled:
        got = self.buffer.sample(batch)
        return Sampled(got, got["indexes"], got["weights"])

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        self.buffer.update_priorities(keys, priorities)


def connect(setting: Setting, address: str) -> Peer:
    """The buffer in this process; there is no address."""
    return InProcess(setting)
