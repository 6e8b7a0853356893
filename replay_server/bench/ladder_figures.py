"""What the rounds gave: samples by cell, their quantiles, the tables, and the verdict.

A cell is (frame size, work, bytes). Latencies of all rounds of a cell are one sample: each round
adds as many calls, so a slow minute weighs the same on every case. A quantile is the smallest value
that at least that share of the calls did not exceed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .ladder_cases import NIC, Case
from .row import Row

WORKS = ("put", "get")
PAPER = (0.327, 0.589)
QUANTILES = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
Cell = tuple[int, str, int]  # (mtu, work, bytes)


@dataclass(frozen=True)
class Target:
    """`least` of the median less than the case compared with, at every size up to `bytes_max`."""

    case: str
    bytes_max: int
    least: float


TARGETS = (Target("memif", 1400, PAPER[1]), Target("memif", 8192, PAPER[0]))


@dataclass
class Figures:
    """Everything measured. reasons: {(mtu, case): why it is not there, or no longer}."""

    sizes: tuple[int, ...]
    rate_sizes: tuple[int, ...]
    mtus: tuple[int, ...]
    cases: tuple[Case, ...]
    times_ns: dict[tuple[str, Cell], list[np.ndarray]] = field(
        default_factory=lambda: defaultdict(list)
    )
    rates: dict[tuple[str, Cell], list[float]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[tuple[int, str], str] = field(default_factory=dict)
    repeats: dict[tuple[int, str], int] = field(default_factory=dict)

    def quantile(self, case: str, cell: Cell, share: float) -> float | None:
        """Microseconds; None where nothing was measured."""
        rounds = self.times_ns.get((case, cell))
        if not rounds:
            return None
        return quantile(np.concatenate(rounds), share) / 1e3

    def calls(self, case: str, cell: Cell) -> int:
        return sum(len(part) for part in self.times_ns.get((case, cell), ()))

    def rate(self, case: str, cell: Cell) -> tuple[float, float] | None:
        """Steps or items per second: (median round, best round)."""
        rounds = self.rates.get((case, cell))
        return (float(np.median(rounds)), max(rounds)) if rounds else None

    def lower(self, case: Case, cell: Cell) -> float | None:
        """By which share of the other case's median this one's is lower; None where one lacks."""
        own, other = (self.quantile(key, cell, 0.5) for key in (case.key, case.against))
        return None if own is None or other is None else 1.0 - own / other


def quantile(values: np.ndarray, share: float) -> float:
    """The smallest of `values` [N] that at least `share` of them do not exceed."""
    ordered = np.sort(values)
    return float(ordered[max(0, int(np.ceil(share * len(ordered))) - 1)])


# ---- the verdict ----


@dataclass(frozen=True)
class Verdict:
    """met: None where a size up to bytes_max was not measured. worst: (share, work, bytes)."""

    target: Target
    mtu: int
    met: bool | None
    worst: tuple[float, str, int] | None

    @property
    def word(self) -> str:
        return {True: "met", False: "not met", None: "unmeasured"}[self.met]


def verdict(figures: Figures, target: Target, mtu: int) -> Verdict:
    """Whether puts and gets of every size up to the target's are as much lower as it wants."""
    case = next((case for case in figures.cases if case.key == target.case), None)
    cells = [
        (mtu, work, size) for work in WORKS for size in figures.sizes if size <= target.bytes_max
    ]
    found = [(figures.lower(case, cell) if case else None, *cell[1:]) for cell in cells]
    measured = [(share, work, size) for share, work, size in found if share is not None]
    worst = min(measured, default=None)
    if not measured or len(measured) < len(found):
        return Verdict(target, mtu, None, worst)
    return Verdict(target, mtu, worst[0] >= target.least, worst)


# ---- for people ----


def size_text(size: int) -> str:
    """64 B, 8 KiB."""
    return f"{size} B" if size < 1024 or size % 1024 else f"{size // 1024} KiB"


def percent(share: float | None) -> str:
    """A reduction, written as a change: -41.2 % is lower."""
    return "-" if share is None else f"{-100 * share:+.1f} %"


def number(value: float | None) -> str:
    """Four digits or so."""
    if value is None:
        return "-"
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they must be, all but the first on the right."""
    table = [list(head), *map(list, rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    return [
        "  ".join(
            f"{text:{'<' if i == 0 else '>'}{widths[i]}}" for i, text in enumerate(row)
        ).rstrip()
        for row in table
    ]


def latency_table(figures: Figures, mtu: int, work: str) -> list[str]:
    """p50, p99 and p99.9 of each case over the sizes."""
    rows = []
    for case in measured(figures, mtu):
        for metric, share in QUANTILES:
            values = [figures.quantile(case.key, (mtu, work, s), share) for s in figures.sizes]
            title = case.title if metric == "p50" else ""
            rows.append([title, metric, *map(number, values)])
    what = {
        "put": "put: one step of S bytes pushed, until it is acknowledged as stored",
        "get": "get: SAMPLE of one item of S bytes, until it has landed",
    }[work]
    cells = [(mtu, work, size) for size in figures.sizes]
    calls = [figures.calls(case.key, cell) for case in measured(figures, mtu) for cell in cells]
    return [
        f"{what}; one outstanding, us; frames of {mtu} B; {min(calls, default=0):,} to "
        f"{max(calls, default=0):,} calls in a cell",
        *grid(["", "", *map(size_text, figures.sizes)], rows),
    ]


def rate_table(figures: Figures, mtu: int, work: str) -> list[str]:
    """Steps or items, and bytes, per second: the median round."""
    rows = []
    for case in measured(figures, mtu):
        rates = [figures.rate(case.key, (mtu, work, size)) for size in figures.rate_sizes]
        pairs = list(zip(figures.rate_sizes, rates, strict=True))
        items = [number(rate and rate[0] / 1e3) for _, rate in pairs]
        bits = [number(rate and rate[0] * size * 8 / 1e9) for size, rate in pairs]
        rows += [[case.title, "k/s", *items], ["", "Gbit/s", *bits]]
    what = {"put": "pushed", "get": "sampled"}[work]
    return [
        f"{what}, as fast as it goes, items and payload; the median round; frames of {mtu} B",
        *grid(["", "", *map(size_text, figures.rate_sizes)], rows),
    ]


def lower_table(figures: Figures, mtu: int) -> list[str]:
    """The medians against those of the case each is compared with."""
    rows = []
    titles = {case.key: case.title for case in figures.cases}
    for case in measured(figures, mtu):
        if case.against == case.key:
            continue
        for work in WORKS:
            shares = [percent(figures.lower(case, (mtu, work, s))) for s in figures.sizes]
            against = titles.get(case.against, case.against)
            title = f"{case.title} against {against}" if work == "put" else ""
            rows.append([title, work, *shares])
    return [
        f"T1, the median beside the tuned kernel path's; frames of {mtu} B; the paper: "
        f"{percent(PAPER[0])} .. {percent(PAPER[1])} (40 GbE cards)",
        *grid(["", "", *map(size_text, figures.sizes)], rows),
    ]


def verdict_line(judged: Verdict) -> str:
    """One sentence: the target, whether it is met, and where it is closest."""
    target = judged.target
    line = (
        f"T1 {target.case}, every S <= {size_text(target.bytes_max)}, frames of {judged.mtu} B: "
        f"at least {100 * target.least:.1f} % lower: {judged.word}"
    )
    if judged.worst is None:
        return line
    share, work, size = judged.worst
    return f"{line} ({100 * share:.1f} % at the least, {work} of {size_text(size)})"


def measured(figures: Figures, mtu: int) -> list[Case]:
    """The cases that gave at least one latency with this frame size."""
    with_samples = {
        key for (key, cell), rounds in figures.times_ns.items() if rounds and cell[0] == mtu
    }
    return [case for case in figures.cases if case.key in with_samples]


def lines(figures: Figures, mtu: int) -> Iterator[str]:
    """All tables and verdicts of one frame size."""
    for table in (latency_table, rate_table):
        for work in WORKS:
            yield from ("", *table(figures, mtu, work))
    yield from ("", *lower_table(figures, mtu), "")
    for target in TARGETS:
        yield verdict_line(verdict(figures, target, mtu))
    yield NIC
    for (where, key), count in figures.repeats.items():
        if where == mtu and count:
            yield f"{key}: {count:,} datagrams were sent again"


# ---- for programs ----


def rows_of(figures: Figures, where: str) -> list[Row]:
    """The figures as rows of the bench; batch is the size in bytes."""
    rows = []

    def add(name: str, case: str, cell: Cell, metric: str, value: float | str, unit: str) -> None:
        mtu, work, size = cell
        label = f"ladder.{name}.{work}" if work else f"ladder.{name}"
        rows.append(Row(label, case, f"frames of {mtu} B", size, metric, value, unit, where))

    for mtu in figures.mtus:
        for case in figures.cases:
            state = figures.reasons.get((mtu, case.key), "measured")
            add("case", case.key, (mtu, "", 0), "state", state, "")
        add("case", "nic", (mtu, "", 0), "state", "unmeasured", "")
        for case in measured(figures, mtu):
            for work in WORKS:
                for size in figures.sizes:
                    cell = (mtu, work, size)
                    for metric, share in QUANTILES:
                        value = figures.quantile(case.key, cell, share)
                        if value is not None:
                            add("access", case.key, cell, metric, value, "us")
                    add("access", case.key, cell, "calls", figures.calls(case.key, cell), "")
                    share = figures.lower(case, cell)
                    if share is not None and case.against != case.key:
                        add("T1", case.key, cell, f"lower than {case.against}", 100 * share, "%")
                for size in figures.rate_sizes:
                    rate = figures.rate(case.key, (mtu, work, size))
                    for metric, value in zip(("median", "best round"), rate or (), strict=False):
                        add("rate", case.key, (mtu, work, size), metric, value, "1/s")
                        payload = value * size
                        add("payload", case.key, (mtu, work, size), metric, payload, "bytes/s")
        for target in TARGETS:
            judged = verdict(figures, target, mtu)
            metric = f"{100 * target.least:.1f} % lower up to this size"
            add("T1", target.case, (mtu, "", target.bytes_max), metric, judged.word, "")
    return rows
