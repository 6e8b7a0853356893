"""One figure of a benchmark, whatever measured it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure. `batch`: items, steps or keys of one request; 0 where that says nothing."""

    name: str
    transport: str
    workload: str
    batch: int
    metric: str
    value: float | str
    unit: str
    machine: str
