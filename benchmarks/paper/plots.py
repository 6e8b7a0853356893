"""One picture a claim, of JSON rows: by how much the latency is lower, beside the paper's range.

    draw(rows, "T2a", Path("t2a.png"), "EPYC, 2 cores; load 0.3")

Each panel varies one thing and holds the others at the centre of the grid. matplotlib is an extra;
it is imported here only.
"""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.paper.grids import CENTRE_SESSIONS, CENTRE_SIZE, CENTRE_STEP
from benchmarks.paper.tables import PAPER, Row, of_claim
from replay_server.bench.ladder_figures import size_text

MISSING = "no plots: matplotlib is not installed: pip install 'replay-server[plot]'"
FLOOR = -100.0  # per cent; what is lower stands at the edge
DODGE = 1.05  # lines stand beside each other
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = "osD^vPX*"
STYLES = ("-", "--", ":", "-.")  # of a kind of comparison
BATCH = 32
TITLES = {
    "T1": "T1: access latency past the kernel",
    "T2a": "T2a: an actor's push, replay in the network",
    "T2b": "T2b: a prioritized batch, drawn in the server",
}
CAPTIONS = {
    "T1": "Shown: how much sooner one put or get is answered when frames go past the kernel, with "
    "the same engine and client at both ends. Not shown: a network card; memif is kernel bypass "
    "without a NIC.",
    "T2a": "Shown: how much sooner an actor's push is acknowledged when the engine that stores it "
    "is not in the learner's process, with equal engine, transport and cores. Not shown: what "
    "hosts of their own and a network between them add: all programs share one machine's cores. "
    "Points below -100 % stand at the edge.",
    "T2b": "Shown: how much sooner a learner has a prioritized batch when the server draws it, "
    "beside two samplers at the client, with equal engine, transport and cores. Not shown: the "
    "distance of a real network, which makes each further round trip longer.",
}


def missing() -> str | None:
    """Why there are no plots here; None where there are."""
    return MISSING if importlib.util.find_spec("matplotlib") is None else None


@dataclass(frozen=True)
class Line:
    """(low, value, high) in per cent over x. kind: of comparison, 0 to 3."""

    name: str
    look: int
    kind: int
    points: list[tuple[float, tuple[float, float, float]]]


@dataclass(frozen=True)
class Panel:
    """One thing varied. what: of the latency; sizes: whether x is in bytes."""

    what: str
    title: str
    x: str
    sizes: bool
    lines: list[Line]


def _points(
    rows: Sequence[Row], x: str, found: Callable[[Row], Sequence[float] | None]
) -> list[tuple[float, tuple[float, float, float]]]:
    points = []
    for row in rows:
        if (shares := found(row)) is not None:
            low, value, high = (100 * share for share in shares)
            points.append((float(row[x]), (low, value, high)))
    return sorted(points)


def _fixed(rows: Sequence[Row], **fixed: Any) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in fixed.items())]


SIZE_AXIS = "bytes of one transition or item (log axis)"
SESSIONS_AXIS = "actor sessions (log axis)"
STEP_AXIS = "learner's step, ms (log axis)"
UNITS = {"size": "B", "sessions": "sessions", "step_ms": "ms a step"}
READINGS: dict[str, str] = {
    "network": "server on the learner's core (equal)",
    "beside actors": "server on the actors' core",
    "own core": "server on a core of its own (one more)",
    "polling": "the same, and it never sleeps",
}


def _t1(rows: Sequence[Row]) -> Iterator[Panel]:
    keys = [key for key in dict.fromkeys(row["transport"] for row in rows) if "af_" in key]
    keys += [key for key in ("memif", "memif-sleep") if _fixed(rows, transport=key)]
    for work in ("put", "get"):
        lines = []
        for look, key in enumerate(keys):
            these = _fixed(rows, transport=key, work=work, mtu=1400)
            against = next((row["against"] for row in these), "")
            points = _points(these, "size", lambda row: row.get("lower"))
            lines.append(Line(f"{key} below {against}", look, 0, points))
        yield Panel("median", f"{work}, one outstanding, frames of 1400 B", SIZE_AXIS, True, lines)


def _varied(rows: Sequence[Row], claim: str) -> Iterator[Panel]:
    """A panel for each thing that T2a or T2b varies."""
    if claim == "T2a":
        held = {"size": CENTRE_SIZE, "sessions": CENTRE_SESSIONS, "step_ms": CENTRE_STEP}
        extra: dict[str, Any] = {}
        axes = {"size": SIZE_AXIS, "sessions": SESSIONS_AXIS, "step_ms": STEP_AXIS}
        names = [name for name in READINGS if name in rows[0]]
    else:
        held = {"size": CENTRE_SIZE, "sessions": CENTRE_SESSIONS}
        extra = {"batch": BATCH, "update": False}
        axes = {"size": SIZE_AXIS, "sessions": SESSIONS_AXIS}
        names = ["keys", "client"]
    for what in ("median", "p99") if claim == "T2a" else ("median",):
        for x, axis in axes.items():
            fixed = {name: value for name, value in held.items() if name != x}
            lines = []
            for look, key in enumerate(dict.fromkeys(row["transport"] for row in rows)):
                these = _fixed(rows, transport=key, **fixed, **extra)
                for kind, name in enumerate(names):
                    points = _points(these, x, partial(lowered, what, name))
                    label = f"{key}: {READINGS.get(name, f'server below {name}')}"
                    lines.append(Line(label, look, kind, points))
            title = ", ".join(f"{value} {UNITS[name]}" for name, value in fixed.items())
            title += f", batch of {BATCH}" if claim == "T2b" else ""
            yield Panel(what, title, axis, x == "size", lines)


def lowered(what: str, name: str, row: Row) -> Sequence[float] | None:
    """The reduction that a row of T2a or T2b holds under this name."""
    if "server" in row:
        return row["server"].get(f"lower_than_{name}")
    return row.get(name, {}).get("push_lower" if what == "median" else "push_p99_lower")


def draw(rows: Sequence[Row], claim: str, path: Path, where: str) -> bool:
    """Draws the claim's picture; whether there was something to draw."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = of_claim(rows, claim)
    panels = list(_t1(rows) if claim == "T1" else _varied(rows, claim)) if rows else []
    panels = [panel for panel in panels if any(line.points for line in panel.lines)]
    if not panels:
        return False
    kinds = list(dict.fromkeys(panel.what for panel in panels))
    wide = len(panels) // len(kinds)
    figure = Figure(figsize=(6 * wide, 3 + 4.5 * len(kinds)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(kinds), wide, sharey=True, squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=True):
        _panel(axis, panel, PAPER[claim])
    for axis, what in zip(axes[:, 0], kinds, strict=True):
        axis.set_ylabel(f"{what} lower by, %\n(bars: 95 % interval; below 0: higher)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    caption = textwrap.fill(CAPTIONS[claim], 62 * wide)
    figure.suptitle(f"{TITLES[claim]}\n{where}\n{caption}", fontsize=10)
    figure.savefig(path, dpi=100)
    return True


def _panel(axis: Any, panel: Panel, paper: tuple[float, float]) -> None:
    low, high = (100 * share for share in paper)
    axis.axhspan(low, high, color="#F0E442", alpha=0.4, linewidth=0, label="the paper's range")
    axis.axhline(0, color="black", linewidth=0.8)
    ticks = sorted({x for line in panel.lines for x, _ in line.points})
    for line in panel.lines:
        if line.points:
            apart = DODGE ** (line.look + 0.25 * line.kind)
            xs = [x * apart for x, _ in line.points]
            values = [max(FLOOR, value) for _, (_, value, _) in line.points]
            below = [max(0.0, value - max(FLOOR, low)) for _, (low, value, _) in line.points]
            above = [max(0.0, high - value) for _, (_, value, high) in line.points]
            axis.errorbar(
                xs,
                values,
                (below, above),
                color=COLOURS[line.look % len(COLOURS)],
                marker=MARKERS[(line.look + line.kind) % len(MARKERS)],
                linestyle=STYLES[line.kind],
                markerfacecolor="white" if line.kind else None,
                capsize=3,
                linewidth=1.4,
                label=line.name,
            )
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [size_text(int(x)) if panel.sizes else f"{x:g}" for x in ticks])
    axis.minorticks_off()
    axis.tick_params(axis="x", rotation=45)
    axis.set_ylim(FLOOR - 5, 105)
    axis.set_xlabel(panel.x)
    axis.set_title(panel.title, fontsize=10)
    axis.grid(True, alpha=0.4)
