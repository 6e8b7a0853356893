"""Counters as text: what moved, how fast, and in words what each one counts."""

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


def lines(
    counters: Mapping[str, int], before: Mapping[str, int] | None = None, seconds: float = 0.0
) -> list[str]:
    """One line for each counter that is not zero; with `before`, how fast it moved since."""
    width = max((len(name) for name in counters), default=0)
    text = []
    for name, value in counters.items():
        if value == 0:
            continue
        rate = ""
        if before is not None and seconds > 0.0:
            rate = f"{(value - before.get(name, 0)) / seconds:>14,.0f}/s"
        sentence = _native.COUNTER_SENTENCES.get(name, "")
        text.append(f"{name:<{width}} {value:>20,}{rate}  {sentence}".rstrip())
    return text
