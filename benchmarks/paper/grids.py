"""The points that T2a and T2b are measured at, and for how long: quick, default and full.

The default varies one thing at a time around a centre (1 KiB, 4 actor sessions, a step of 10 ms);
the full grid is the product of all. Both have at least five rounds; quick, which is for tests, has
two, and proves nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from replay_server.bench import ladder


class T2aCell(NamedTuple):
    """bytes of a transition; sessions of actors; the learner's step in milliseconds."""

    size: int
    sessions: int
    step_ms: int


class T2bCell(NamedTuple):
    """bytes of an item; actor sessions that insert; items of a batch; whether priorities follow."""

    size: int
    sessions: int
    batch: int
    update: bool


@dataclass(frozen=True)
class Grid:
    """ladder_s: seconds of T1; _mtus: its frames; _cases: "" for all; redis_calls: of a size, in a
    round."""

    name: str
    rounds: int
    t2a: tuple[T2aCell, ...]
    t2b: tuple[T2bCell, ...]
    ladder_s: float
    ladder_mtus: tuple[int, ...]
    ladder_sizes: tuple[int, ...]
    ladder_cases: str
    redis_calls: int


CENTRE_SIZE, CENTRE_SESSIONS, CENTRE_STEP = 1024, 4, 10
SIZES, SESSIONS, STEPS = (64, 1024, 8192, 65536), (1, 4, 16, 64), (1, 10, 100)
QUICK_CASES = "udp,udp-sleep,memif"
ALL_SIZES, ALL_SESSIONS = tuple(64 << i for i in range(0, 11, 2)), (1, 2, 4, 8, 16, 32, 64)


def within(cells: Sequence[Any], sessions_max: int) -> tuple[Any, ...]:
    """The cells, with at most so many sessions; what becomes equal is there once."""
    fitting = (cell._replace(sessions=min(cell.sessions, sessions_max)) for cell in cells)
    return tuple(dict.fromkeys(fitting))


def _cross() -> tuple[list[T2aCell], list[T2bCell]]:
    """One thing varied at a time."""
    around = [(size, CENTRE_SESSIONS) for size in SIZES]
    around += [(CENTRE_SIZE, count) for count in SESSIONS if count != CENTRE_SESSIONS]
    t2a = [T2aCell(size, count, CENTRE_STEP) for size, count in around]
    steps = (step for step in STEPS if step != CENTRE_STEP)
    t2a += [T2aCell(CENTRE_SIZE, CENTRE_SESSIONS, step) for step in steps]
    t2b = [T2bCell(size, count, 32, update) for size, count in around for update in (False, True)]
    t2b += [T2bCell(size, CENTRE_SESSIONS, 512, True) for size in SIZES[:3]]
    return t2a, t2b


def grid(name: str) -> Grid:
    """ "quick", "default" or "full"."""
    if name == "quick":
        t2a = (T2aCell(64, 1, 1), T2aCell(1024, 4, 10))
        t2b = (T2bCell(64, 1, 32, True), T2bCell(1024, 4, 32, False))
        return Grid(name, 2, t2a, t2b, 4.0, (1400,), SIZES[:3], QUICK_CASES, 50)
    if name == "default":
        cross_a, cross_b = _cross()
        return Grid(name, 6, tuple(cross_a), tuple(cross_b), 90.0, (1400,), ladder.SIZES, "", 200)
    points = list(itertools.product(ALL_SIZES, ALL_SESSIONS))
    full_a = tuple(T2aCell(*point, step) for point in points for step in STEPS)
    full_b = tuple(
        T2bCell(*point, batch, update)
        for point in points
        for batch in (32, 512)
        for update in (False, True)
    )
    return Grid(name, 10, full_a, full_b, 360.0, ladder.MTUS, ladder.SIZES, "", 400)
