"""The ladder as a picture: median and p99 over size, a line a case, and below that how much lower
the medians past the kernel are than the tuned kernel path's. One PNG for each frame size.

matplotlib is an extra; it is imported here only.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .ladder_cases import CASES, Case
from .ladder_figures import PAPER, TARGETS, WORKS, Figures, measured, size_text

SUFFIXES = (".png", ".svg", ".pdf")
WITHOUT = (
    "no plot: matplotlib is not installed: pip install 'replay-server[plot]'; "
    "--plot none says that none is wanted"
)
# Okabe and Ito's colours, which stay apart for colour-blind readers, and a marker each
LOOKS = dict(
    zip(
        (case.key for case in CASES),
        (
            ("#999999", "s"),
            ("#E69F00", "v"),
            ("#000000", "o"),
            ("#56B4E9", "D"),
            ("#D55E00", "^"),
            ("#CC79A7", "P"),
            ("#0072B2", "X"),
            ("#F0E442", "p"),
            ("#009E73", "*"),
            ("#009E73", "x"),
        ),
        strict=True,
    )
)
LABELS = (
    "median, us",
    "p99, us",
    "% lower than polling kernel UDP\n(dashed: what memif has to reach)",
)
TITLES = {
    "put": "put: one step pushed, until acknowledged",
    "get": "get: one item sampled, until landed",
}


def missing() -> str | None:
    """Why no plot can be drawn here, in a sentence; None where one can."""
    return WITHOUT if importlib.util.find_spec("matplotlib") is None else None


def paths_of(path: Path, mtus: tuple[int, ...]) -> list[Path]:
    """One file for each frame size: the first is `path` itself."""
    return [path if i == 0 else path.with_stem(f"{path.stem}-{mtu}") for i, mtu in enumerate(mtus)]


def plot(figures: Figures, path: Path, where: str) -> list[Path]:
    """Draws; the files written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    paths = paths_of(path, figures.mtus)
    for file, mtu in zip(paths, figures.mtus, strict=True):
        figure = Figure(figsize=(13, 13), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(3, 2, sharex=True, sharey="row", height_ratios=(3, 2, 2))
        for column, work in enumerate(WORKS):
            _latency(axes[0, column], figures, (mtu, work), 0.5)
            _latency(axes[1, column], figures, (mtu, work), 0.99)
            _lower(axes[2, column], figures, (mtu, work))
            axes[0, column].set_title(TITLES[work])
            axes[2, column].set_xlabel("S, bytes of one step or item")
            ticks = [size_text(size) for size in figures.sizes]
            axes[2, column].set_xticks(figures.sizes, ticks, rotation=45)
            axes[2, column].minorticks_off()
        for row, label in enumerate(LABELS):
            axes[row, 0].set_ylabel(label)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False)
        figure.suptitle(f"Access latency, one call outstanding, frames of {mtu} B\n{where}")
        figure.savefig(file, dpi=100)
    return paths


def _latency(axis: Any, figures: Figures, where: tuple[int, str], share: float) -> None:
    """A line a case, over sizes."""
    from matplotlib.ticker import LogLocator

    for case in measured(figures, where[0]):
        values = [figures.quantile(case.key, (*where, size), share) for size in figures.sizes]
        _line(axis, case, figures.sizes, values)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.grid(True, which="major", alpha=0.4)
    axis.grid(True, which="minor", axis="y", alpha=0.15)


def _lower(axis: Any, figures: Figures, where: tuple[int, str]) -> None:
    """By how much the median of each case past the kernel is lower than its kernel one's."""
    low, high = (100 * share for share in PAPER)
    axis.axhspan(low, high, color="#F0E442", alpha=0.35, linewidth=0)
    place = (figures.sizes[-1], low + 2, "the paper's range")
    behind = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.5}
    axis.text(*place, fontsize=9, va="bottom", ha="right", bbox=behind, zorder=3)
    for target in TARGETS:
        colour, _ = LOOKS[target.case]
        reach = (figures.sizes[0], target.bytes_max)
        axis.plot(reach, [100 * target.least] * 2, color=colour, linestyle="--", linewidth=1)
    axis.axhline(0, color="black", linewidth=0.8)
    for case in measured(figures, where[0]):
        if case.server.startswith("dpdk:"):
            shares = [figures.lower(case, (*where, size)) for size in figures.sizes]
            shares = [None if share is None else 100 * share for share in shares]
            _line(axis, case, figures.sizes, shares)
    axis.set_ylim(-50, 100)
    axis.grid(True, alpha=0.4)


def _line(axis: Any, case: Case, sizes: Sequence[int], values: Sequence[float | None]) -> None:
    """Where there are values."""
    points = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
    colour, marker = LOOKS[case.key]
    if points:
        axis.plot(
            *zip(*points, strict=True),
            color=colour,
            marker=marker,
            markersize=9 if marker == "*" else 6,
            label=case.title,
        )
