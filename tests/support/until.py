"""Waiting for what has to come: a condition, its name in words, a bound far beyond what it takes.

No test sleeps in its place, and none waits for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

BOUND_S, PAUSE_S = 60.0, 0.01

Value = TypeVar("Value")


def until(
    true: Callable[[], Value],
    what: str,
    seconds: float = BOUND_S,
    *,
    act: Callable[[], object] | None = None,
    said: Callable[[], str] = str,
) -> Value:
    """The condition's value once it is true. Between two looks it calls `act`, or pauses. A failure
    tells what was awaited, and what `said` has to tell then; a last look is behind the bound."""
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() > end
        if value := true():
            return value
        assert not late, f"not within {seconds:.0f} s: {what}\n{said()}"
        if act is None:
            time.sleep(PAUSE_S)
        else:
            act()
