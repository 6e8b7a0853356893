"""Tables of `make bench-scale` and `make bench-model`, from the rows of their JSON lines.

A row of bench-scale is one operation at one point: its axis, the point's numbers, the rate with its
interval, and the server's nanoseconds for an item. A row of bench-model is a Request (model.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import dpdk_cost as cost
from benchmarks.harness import DISAGREE, MARK, grid
from benchmarks.scale.axes import LABELS, OPERATIONS
from benchmarks.scale.model import LINES, PAPER_SPEED, RACK, Core, Request, served

Row = dict[str, Any]


def of_axis(axis: str, rows: Sequence[Row]) -> Iterator[str]:
    """The table of an axis, a line a point: each operation's rate and the server's cost."""
    some = [row for row in rows if row["axis"] == axis]
    shown = []
    for at in dict.fromkeys(row[axis] for row in some):
        cells = {row["operation"]: cell(row) for row in some if row[axis] == at}
        shown.append([f"{at:,}", *(cells.get(name, "–") for name in OPERATIONS)])
    return grid([LABELS[axis], *(f"{name}, items/s (server ns)" for name in OPERATIONS)], shown)


def cell(row: Row) -> str:
    """The rate, a mark where its rounds disagree, and the server's nanoseconds for an item."""
    mark = MARK if row["spread"] >= DISAGREE else ""
    return f"{row['value']:,.0f}{mark} ({row['server_ns']:,.0f})"


def of_model(requests: Sequence[Request], own: Core) -> Iterator[str]:
    """Items (pings: requests) a second of a paper core, for every machine and line."""
    paper, rows = Core(PAPER_SPEED, own.width), []
    for request in requests:
        row = [request.name, f"{request.mtu}", f"{request.instructions:,.0f}"]
        for line in LINES:
            for cores in (1, 8):
                rate, bound = served(request, paper, cores, line)
                row.append(f"{rate * (request.items or 1) / 1e6:,.1f} ({bound})")
            row.append(f"{RACK * rate * (request.items or 1) / 1e9:,.2f}")
        rows.append(row)
    head = ["request", "mtu", "instructions"]
    for line in LINES:
        at = f"{line / 1e9:.0f} GbE"
        head += [f"{at}: 1 core, M items/s", "8 cores", f"{RACK} hosts, G items/s"]
    return grid(head, rows)


def of_errors(requests: Sequence[Request], errors: Sequence[float]) -> Iterator[str]:
    """The requests that the core was not fitted to: what a turn takes, and by how much the model is
    off."""
    rows = [
        [request.name, f"{request.mtu}", f"{request.ns:,.0f}", f"{error:+.0%}"]
        for request, error in zip(requests[1::2], errors, strict=True)
    ]
    return grid(["request", "mtu", "measured, ns", "model"], rows)


def core_said(own: Core) -> str:
    """What a core does in a nanosecond, in a sentence."""
    return (
        f"Instructions a nanosecond: {PAPER_SPEED:g} on paper ({cost.PAPER_HZ / 1e9:g} GHz, "
        f"{cost.PAPER_IPC:g} a cycle), {own.speed:.2f} here; bytes: {own.width:.1f} a nanosecond, "
        "both."
    )


def of_ranks(lines: Sequence[Row]) -> Iterator[str]:
    """Of actors and of learners: measured, the model of this host and how wrong it is, and the
    model of a core for each."""
    head, *rows = lines
    cores = len(head["cores"])
    shown = []
    for row in rows:
        found, here = row["measured"], row["here"]
        got = ["–", "–"] if found is None else [three(found), f"{here / found - 1:+.0%}"]
        shown.append([row["kind"], f"{row['ranks']}", row["unit"], *got, three(row["apart"])])
    columns = ["of", "ranks", "unit", f"measured, {cores} cores for all", "model of that"]
    return grid([*columns, "a core for each, model"], shown)


def three(value: float) -> str:
    """Three digits of it."""
    return f"{float(f'{value:.3g}'):,g}"
