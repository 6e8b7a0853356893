"""Ctrl-C in a benchmark: it raises once, and never between a process and whoever will end it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)


class _Pressed:
    """What the handler and `put_off` share; signals come to the main thread alone."""

    depth = 0
    waits = False


def _stop(*_: Any) -> None:
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    if _Pressed.depth:
        _Pressed.waits = True
    else:
        raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[None]:
    """A first SIGINT or SIGTERM raises KeyboardInterrupt here; further ones disturb no clearing."""
    _Pressed.waits = False
    before = {number: signal.signal(number, _stop) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def put_off() -> Iterator[None]:
    """What raises within `stoppable` does so behind this: for a child that has begun, until it is
    known to whoever ends it."""
    _Pressed.depth += 1
    try:
        yield
    finally:
        _Pressed.depth -= 1
    if _Pressed.waits and not _Pressed.depth:
        _Pressed.waits = False
        raise KeyboardInterrupt
