"""One way to measure and to write down: rounds in turn, medians, intervals, JSON lines, Markdown.

A *cell* is one setting (a size, a batch). Its *variants* are what is compared. A round visits every
cell in an order drawn from the seed, and in it every variant once, so that a slow moment of the
machine falls on all. A variant's figure is the median of its rounds' medians; its interval is that
of the median under resampling of rounds. A row whose rounds disagree by DISAGREE or more is marked.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from replay_server.bench.machine import machine

DISAGREE = 1.5
RESAMPLES, LEVEL = 2000, 0.95
PACKAGES = ("replay-server", "numpy", "torch")


def header(seed: int, cores: Sequence[int], **said: Any) -> dict[str, Any]:
    """What has to stand above figures: machine, versions, cores, load of others, its speed now."""
    return {
        "machine": machine(),
        "python": sys.version.split()[0],
        "versions": {name: _version(name) for name in PACKAGES},
        "cores": list(cores),
        "load": [round(load, 2) for load in os.getloadavg()],
        "spin_ns": round(spin_ns(), 2),
        "seed": seed,
        **said,
    }


def spin_ns() -> float:
    """Nanoseconds of one turn of a plain loop: tells a machine in a slow state from itself."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(20_000):
            pass
        best = min(best, (time.perf_counter_ns() - begin) / 20_000)
    return best


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


@dataclass(frozen=True)
class Figure:
    """Of one variant in one cell. low, high: the interval; spread: worst round / best round."""

    value: float
    low: float
    high: float
    spread: float
    rounds: int

    @property
    def mark(self) -> str:
        return " (!)" if self.spread >= DISAGREE else ""


def figure(medians: Sequence[float], seed: int) -> Figure:
    """The median of rounds' medians, with the interval of that median."""
    values = np.asarray(medians, np.float64)
    drawn = np.random.default_rng(seed).choice(values, (RESAMPLES, len(values)))
    edge = (1 - LEVEL) / 2
    low, high = np.quantile(np.median(drawn, axis=1), [edge, 1 - edge])
    value = float(np.median(values))
    return Figure(value, float(low), float(high), float(values.max() / values.min()), len(values))


def lower(base: Sequence[float], other: Sequence[float], seed: int) -> Figure:
    """By which share `other` is below `base`, round by round: 0.25 where it takes three quarters.
    Both are medians of the same rounds, in their order."""
    shares = 1.0 - np.asarray(other, np.float64) / np.asarray(base, np.float64)
    drawn = np.random.default_rng(seed).choice(shares, (RESAMPLES, len(shares)))
    edge = (1 - LEVEL) / 2
    low, high = np.quantile(np.median(drawn, axis=1), [edge, 1 - edge])
    return Figure(float(np.median(shares)), float(low), float(high), 1.0, len(shares))


@dataclass
class Taken:
    """What rounds gave: {(cell, variant): a median a round}, and all samples."""

    medians: dict[tuple[Any, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    samples: dict[tuple[Any, str], list[np.ndarray]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, cell: Any, variant: str, samples: np.ndarray) -> None:
        """One round's samples of a variant."""
        self.medians[cell, variant].append(float(np.median(samples)))
        self.samples[cell, variant].append(samples)

    def quantile(self, cell: Any, variant: str, share: float) -> float:
        """Over all calls of all rounds."""
        return float(np.quantile(np.concatenate(self.samples[cell, variant]), share))


def rounds(
    cells: Sequence[Any],
    variants: Sequence[str],
    measure: Callable[[Any, str], np.ndarray | None],
    count: int,
    seed: int,
    say: Callable[[str], None],
    say_cell: Callable[[Any], None] = lambda cell: None,
) -> Taken:
    """`count` rounds; `measure(cell, variant)` returns a call's time each, float64 [N], or None
    where a variant has nothing to measure in a cell. `say_cell`: called before a cell's turn."""
    taken, chance, begin = Taken(), random.Random(seed), time.monotonic()
    for number in range(count):
        for cell in chance.sample(list(cells), len(cells)):
            say_cell(cell)
            for variant in chance.sample(list(variants), len(variants)):
                samples = measure(cell, variant)
                if samples is not None:
                    taken.add(cell, variant, samples)
        say(f"round {number + 1} of {count}, {time.monotonic() - begin:.0f} s")
    return taken


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "| " + " | ".join(cells) + " |"


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """JSON lines: the header first, then a row a figure."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
