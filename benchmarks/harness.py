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
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from replay_server.bench.machine import machine

DISAGREE, MARK = 1.5, " (!)"
RESAMPLES, LEVEL = 2000, 0.95
PROGRESS_S = 10.0
PACKAGES = ("replay-server", "numpy", "torch")
ROOT = Path(__file__).resolve().parents[1]


def header(seed: int, cores: Sequence[int], **said: Any) -> dict[str, Any]:
    """What has to stand above figures: machine, versions, cores, load of others, its speed now."""
    return {
        "machine": machine(),
        "python": sys.version.split()[0],
        "versions": {name: _version(name) for name in PACKAGES},
        "revision": revision(),
        "cores": list(cores),
        "load": [round(load, 2) for load in os.getloadavg()],  # of 1, 5 and 15 minutes
        "spin_ns": round(spin_ns(), 2),
        "seed": seed,
        **said,
    }


def revision() -> str:
    """The commit that is measured, "+" behind it where files differ; "unknown" without git."""
    asked = ["git", "describe", "--always", "--dirty=+", "--abbrev=8"]
    try:
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


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
        """What marks a row whose rounds disagree."""
        return MARK if self.spread >= DISAGREE else ""


def figure(medians: Sequence[float], seed: int) -> Figure:
    """The median of rounds' medians, with the interval of that median."""
    spread = float(np.max(medians) / np.min(medians))
    return Figure(*_of_medians(medians, seed), spread, len(medians))


def _of_medians(values: Sequence[float], seed: int) -> tuple[float, float, float]:
    """Their median, and its interval by the bootstrap (Efron 1979)."""
    drawn = np.random.default_rng(seed).choice(np.asarray(values), (RESAMPLES, len(values)))
    edge = (1 - LEVEL) / 2
    low, high = np.quantile(np.median(drawn, axis=1), [edge, 1 - edge])
    return float(np.median(values)), float(low), float(high)


def shares_lower(base: Sequence[float], other: Sequence[float]) -> list[float]:
    """By which share `other` is below `base`, round by round: 0.25 where it takes three quarters.
    Both are of the same rounds, in their order."""
    return (1.0 - np.asarray(other, np.float64) / np.asarray(base, np.float64)).tolist()


def share_figure(shares: Sequence[float], seed: int) -> Figure:
    """The median of rounds' shares, with the interval of that median."""
    return Figure(*_of_medians(shares, seed), 1.0, len(shares))


Samples = Mapping[str, np.ndarray]  # {what was measured: a number each call}


@dataclass
class Taken:
    """What rounds gave: {(cell, variant, what): the samples of each round, in order}."""

    samples: dict[tuple[Any, str, str], list[np.ndarray]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, cell: Any, variant: str, found: Samples) -> None:
        """One round's samples of a variant."""
        for what, samples in found.items():
            self.samples[cell, variant, what].append(np.asarray(samples))

    def rounds(self, cell: Any, variant: str, what: str, share: float = 0.5) -> list[float]:
        """That quantile of each round."""
        return [float(np.quantile(part, share)) for part in self.samples[cell, variant, what]]

    def quantile(self, cell: Any, variant: str, what: str, share: float) -> float:
        """Over all calls of all rounds."""
        return float(np.quantile(np.concatenate(self.samples[cell, variant, what]), share))


def rounds(
    cells: Sequence[Any],
    variants: Sequence[str],
    measure: Callable[[Any, str], Samples | None],
    count: int,
    seed: int,
    say: Callable[[str], None],
    say_cell: Callable[[Any], None] = lambda cell: None,
) -> Taken:
    """`count` rounds; `measure(cell, variant)` returns what each call took, float64 [N], by name;
    None where a variant has nothing to measure in a cell. `say_cell`: called before a cell's turn.
    A line is said each PROGRESS_S or so."""
    taken, chance, begin = Taken(), random.Random(seed), time.monotonic()
    said, done, of = begin, 0, len(cells) * len(variants) * count
    for number in range(count):
        for cell in chance.sample(list(cells), len(cells)):
            say_cell(cell)
            for variant in chance.sample(list(variants), len(variants)):
                found = measure(cell, variant)
                if found is not None:
                    taken.add(cell, variant, found)
                done += 1
                if (now := time.monotonic()) - said >= PROGRESS_S or done == of:
                    said = now
                    say(f"round {number + 1} of {count}, {done / of:.0%}, {now - begin:.0f} s")
    return taken


@dataclass(frozen=True)
class Best:
    """The cell that was best in one half of the rounds, and its share in the other half."""

    cell: Any
    chosen: float
    share: Figure


def best(shares: Mapping[Any, Sequence[float]], seed: int) -> Best:
    """shares: {cell: by which share a variant is lower, a number each round}. The cell is chosen by
    the median of the rounds 0, 2, 4 ...; its figure is that of the rounds 1, 3, 5 ..., which had no
    part in the choice: so chance in the choice is not in the figure."""
    chosen = {cell: float(np.median(of[0::2])) for cell, of in shares.items()}
    cell = max(chosen, key=lambda of: chosen[of])
    return Best(cell, chosen[cell], share_figure(shares[cell][1::2], seed))


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "| " + " | ".join(cells) + " |"


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """JSON lines: the header first, then a row a figure."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What `write_lines` wrote."""
    return [json.loads(line) for line in path.read_text().splitlines()]
