"""Buffers in one process that the peers behind a network hold: cpprb's, and a stand-in of NumPy.

cpprb 11, set up as its page on PER shows: `PrioritizedReplayBuffer(size, env_dict, alpha)`,
`add` of many rows at once, `sample(batch, beta)`, `update_priorities`. Its priorities are those of
places: an update of a place that was overwritten goes to the new item.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .peer import ALPHA, BETA, Columns, Setting


class NumpyReplay:
    """A ring of columns and a sum tree of float64, in NumPy. capacity: a power of two."""

    def __init__(self, setting: Setting) -> None:
        self.capacity = setting.capacity
        self.columns = {
            name: np.zeros((self.capacity, *setting.shape(name)), setting.dtype(name))
            for name in setting.columns
        }
        self.tree = np.zeros(2 * self.capacity)
        self.head = self.count = 0

    def add(self, rows: Columns) -> None:
        """Columns [N, *shape], at priority 1."""
        count = len(next(iter(rows.values())))
        at = (self.head + np.arange(count)) % self.capacity
        for name, column in rows.items():
            self.columns[name][at] = column
        self.head = int((self.head + count) % self.capacity)
        self.count = min(self.count + count, self.capacity)
        self.update_priorities(at, np.ones(count))

    def update_priorities(self, indexes: np.ndarray, priorities: np.ndarray) -> None:
        """Sets float64 [N]; each node above is summed anew."""
        nodes = np.asarray(indexes) + self.capacity
        self.tree[nodes] = np.asarray(priorities) ** ALPHA
        while nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self.tree[nodes] = self.tree[2 * nodes] + self.tree[2 * nodes + 1]

    def draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(places int64 [count], weights [count]) in proportion to priority^alpha."""
        left = np.random.random(count) * self.tree[1]
        nodes = np.ones(count, np.int64)
        while nodes[0] < self.capacity:
            nodes *= 2
            right = left >= self.tree[nodes]
            left -= np.where(right, self.tree[nodes], 0.0)
            nodes += right
        indexes = np.minimum(nodes - self.capacity, self.count - 1)
        weights = (self.count * self.tree[nodes] / self.tree[1]) ** -BETA
        return indexes, weights / weights.max()

    def sample(self, count: int) -> dict[str, np.ndarray]:
        """Columns [count, *shape], `indexes` and `weights`."""
        indexes, weights = self.draw(count)
        batch = {name: column[indexes] for name, column in self.columns.items()}
        return batch | {"indexes": indexes, "weights": weights}


class CpprbReplay:
    """cpprb's prioritized buffer, with the same three calls."""

    def __init__(self, setting: Setting) -> None:
        from cpprb import PrioritizedReplayBuffer

        shapes: dict[str, Any] = {
            name: {"shape": setting.shape(name) or 1, "dtype": setting.dtype(name)}
            for name in setting.columns
        }
        self.buffer = PrioritizedReplayBuffer(setting.capacity, shapes, alpha=ALPHA)

    def add(self, rows: Columns) -> None:
        """Columns [N, *shape], at the largest priority so far."""
        self.buffer.add(**rows)

    def update_priorities(self, indexes: np.ndarray, priorities: np.ndarray) -> None:
        """float64 [N]."""
        self.buffer.update_priorities(indexes, priorities)

    def sample(self, count: int) -> dict[str, np.ndarray]:
        """Columns [count, *shape], `indexes` and `weights`."""
        return self.buffer.sample(count, BETA)


def buffer_of(setting: Setting) -> Any:
    """The one that the option `buffer` names: "cpprb" or "numpy"."""
    return {"cpprb": CpprbReplay, "numpy": NumpyReplay}[setting.options["buffer"]](setting)
