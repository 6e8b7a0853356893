"""What a replay buffer has to have to be measured, behind a network or in the learner's process.

A peer is a module of this folder with

    serve(setting) -> Serving          in the server's process; missing where there is no server
    connect(setting, address) -> Peer  in each client's process

Items are columns, {name: [N, *shape]}, the same bytes for every peer. This file needs NumPy alone:
it is imported by the peers' own environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Columns = dict[str, np.ndarray]
ALPHA, BETA = 0.6, 0.4


@dataclass(frozen=True)
class Setting:
    """What a table holds. columns: {name: [dtype, shape]}; options: those of one row of the roster;
    pool: the file of items that clients insert (pool.py)."""

    item: str
    columns: dict[str, list[Any]]
    capacity: int
    pool: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def dtype(self, name: str) -> np.dtype:
        """Of a column."""
        return np.dtype(self.columns[name][0])

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one item's column."""
        return tuple(self.columns[name][1])

    @property
    def item_bytes(self) -> int:
        """Bytes of one item's columns."""
        return self.record.itemsize

    @property
    def record(self) -> np.dtype:
        """An item as one packed record: what peers that store bytes store."""
        fields = [(name, self.dtype(name), self.shape(name)) for name in self.columns]
        return np.dtype(fields)


@dataclass(frozen=True)
class Sampled:
    """A batch in the client's memory. items: {column: [B, *shape]}; keys: what `update` takes, [B];
    weights: [B], or None where the peer has none."""

    items: Columns
    keys: Any
    weights: np.ndarray | None


@dataclass(frozen=True)
class Serving:
    """A server that is up. address: what clients connect to; close: ends it."""

    address: str
    close: Callable[[], Any]


class Peer:
    """A client. Each call returns when its work is done: an insert when it is acknowledged."""

    def insert(self, items: Columns) -> None:
        """Stores N items; new ones get the peer's usual first priority."""
        raise NotImplementedError

    def sample(self, batch: int) -> Sampled:
        """`batch` items by priority; asks and waits."""
        raise NotImplementedError

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled] | None:
        """Batches that are fetched while the caller computes, `depth` under way; None where the
        peer has no such thing."""
        return None

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        """New priorities, float64 [B], of items that were sampled."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends what the client has."""


def packed(items: Columns, record: np.dtype) -> np.ndarray:
    """Columns as an array of records [N]; one copy."""
    count = len(next(iter(items.values())))
    rows = np.empty(count, record)
    for name in record.names or ():
        rows[name] = items[name]
    return rows


def unpacked(rows: np.ndarray) -> Columns:
    """Records [N] as columns of their own; one copy."""
    return {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}


def stacked(rows: list[bytes], record: np.dtype) -> Columns:
    """Byte strings of one record each, as columns."""
    return unpacked(np.frombuffer(b"".join(rows), record))
