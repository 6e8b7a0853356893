"""What grows: one thing at a time, from a base point.

A point is one setting of a server and its clients. Each axis changes one number of BASE and leaves
the rest, so a curve shows what that number alone does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from replay_server.table import RESERVED_SHARE

OPERATIONS = {
    "insert": "extend of a batch, acknowledged, one after the other",
    "sample": "sample of a batch, one after the other",
    "ahead": "batches, 4 asked for ahead",
    "update": "new priorities of a batch, 16 calls in flight",
}
LEFT_OUT = {("sessions", "ahead")}  # which one session does for itself


def operations_of(axis: str) -> list[str]:
    """What is measured along this axis."""
    return [name for name in OPERATIONS if (axis, name) not in LEFT_OUT]


STEP_OVERHEAD = 64  # bytes of memory beside an item's own, at most: keys, masses, tree, plan
WINDOW = 64  # rows a session may have unanswered where sessions grow


@dataclass(frozen=True)
class Point:
    """One setting. size: bytes of an item; shards: server processes, each with its table."""

    capacity: int = 100_000
    sessions: int = 1
    batch: int = 256
    size: int = 256
    shards: int = 1

    @property
    def memory(self) -> int:
        """Bytes of the tables, about."""
        return self.shards * self.capacity * (self.size + STEP_OVERHEAD)


BASE = Point()
AXES = {
    "capacity": (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
    "sessions": (1, 4, 16, 64, 256, 1024),
    "batch": (1, 8, 32, 128, 512, 2048),
    "size": (64, 512, 4096, 16_384, 65_536),
    "shards": (1, 2, 4),
}
LABELS = {
    "capacity": "items of the table",
    "sessions": "sessions, used in turn",
    "batch": "items of a call",
    "size": "bytes of an item",
    "shards": "server processes",
}
QUICK = {"capacity": (1_000, 10_000), "batch": (8, 64), "sessions": (1, 4), "shards": (2,)}
SMALL = Point(capacity=1_000, batch=32, size=64)


def points(axes: dict[str, tuple[int, ...]], base: Point) -> dict[str, list[Point]]:
    """{axis: its points}; a large item has a smaller table, so that memory stays the base's, and
    sessions have one with room for a window of each."""
    found: dict[str, list[Point]] = {}
    for axis, values in axes.items():
        found[axis] = [replace(base, **{axis: value}) for value in values]
        if axis == "size":
            found[axis] = [
                replace(point, capacity=min(base.capacity, 400_000_000 // point.size))
                for point in found[axis]
            ]
        if axis == "sessions":
            room = WINDOW * RESERVED_SHARE * max(values)
            found[axis] = [
                replace(point, capacity=max(base.capacity, room)) for point in found[axis]
            ]
    return found


def fitting(found: dict[str, list[Point]], memory: int) -> Iterator[str]:
    """Drops, in place, the largest points of an axis until the tables of all others, which stand at
    once, fit into `memory` bytes; a sentence each."""
    for axis, some in found.items():
        while some and (needed := sum(point.memory for point in some)) > memory:
            largest = max(some, key=lambda point: (point.memory, getattr(point, axis)))
            some.remove(largest)
            yield (
                f"left out: {axis} {getattr(largest, axis):,}: the tables of this axis take "
                f"{needed / 2**30:.1f} GiB, and this machine has {memory / 2**30:.1f} GiB for them"
            )
