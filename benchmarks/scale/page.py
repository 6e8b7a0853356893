"""Writes the tables of docs/benchmarks-scale.md again, and its pictures, from what was measured.

python -m benchmarks.scale.page build/bench-scale      or: make bench-scale-page
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, read_lines
from benchmarks.pages import replaced
from benchmarks.scale import plot, rank_plot, tables
from benchmarks.scale.axes import LABELS
from benchmarks.scale.model import Request, fitted

PAGE = ROOT / "docs" / "benchmarks-scale.md"
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100


def said(head: dict[str, Any]) -> str:
    """What the figures are of."""
    load = ", ".join(f"{value:g}" for value in head["load"])
    return textwrap.fill(
        f"Measured on: {head['machine']}; load before: {load}; a turn of a plain loop took "
        f"{head['spin_ns']:g} ns; revision {head['revision']}.",
        COLUMNS,
    )


def of_scale(lines: Sequence[dict[str, Any]]) -> str:
    """A table for each axis that was measured."""
    head, *rows = lines
    parts = [said(head)]
    for axis in dict.fromkeys(row["axis"] for row in rows):
        parts.append(f"### By {LABELS[axis]}\n\n" + "\n".join(tables.of_axis(axis, rows)))
    return "\n\n".join(parts)


def of_model(lines: Sequence[dict[str, Any]]) -> str:
    """What is said of other machines, and how wrong that is here."""
    head, *rows = lines
    requests = [Request(**row) for row in rows]
    own, errors = fitted(requests)
    worst = max(map(abs, errors))
    return "\n\n".join(
        (
            said(head),
            "\n".join(tables.of_model(requests, own)),
            textwrap.fill(tables.core_said(own), COLUMNS),
            f"The requests that the core was not fitted to. The largest error is **{worst:.0%}**.",
            "\n".join(tables.of_errors(requests, errors)),
        )
    )


def of_ranks(lines: Sequence[dict[str, Any]]) -> str:
    """What so many actors and learners came to."""
    return said(lines[0]) + "\n\n" + "\n".join(tables.of_ranks(lines))


def main(argv: list[str] | None = None) -> int:
    """The command."""
    folder = Path((sys.argv[1:] if argv is None else argv)[0])
    page = PAGE.read_text()
    for name, text in (("scale", of_scale), ("model", of_model), ("ranks", of_ranks)):
        if not (measured := folder / f"{name}.jsonl").exists():
            print(f"{name}: no {measured}; the page keeps what it has")
            continue
        lines = read_lines(measured)
        if lines[0].get("quick"):
            raise SystemExit(f"{measured} is of QUICK=1, which proves nothing: measure it whole")
        page = replaced(page, name, text(lines))
        if name == "scale":
            plot.draw(lines[1:], IMAGES / "scale.png", lines[0]["machine"])
        if name == "ranks":
            rank_plot.draw(lines, IMAGES / "scale-ranks.png")
    PAGE.write_text(page)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
