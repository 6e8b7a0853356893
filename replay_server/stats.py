"""Counters as text: what moved, and in words what each one counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import _native


@dataclass(frozen=True)
class Stats:
    """A server at one moment: its counters by name, and who is there."""

    counters: dict[str, int]
    sessions: int
    incarnation: int
    weights_version: int


def lines(counters: Mapping[str, float]) -> list[str]:
    """One line for each counter that is not zero."""
    width = max((len(name) for name in counters), default=0)
    return [
        f"{name:<{width}} {value:>20,.0f}  {_native.COUNTER_SENTENCES.get(name, '')}".rstrip()
        for name, value in counters.items()
        if value
    ]
