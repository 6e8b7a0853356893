"""Writes the tables of docs/benchmarks-scale.md again, and its pictures, from what was measured.

python -m benchmarks.scale.page build/bench-scale      or: make bench-scale-page
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, read_lines
from benchmarks.pages import replaced
from benchmarks.scale import plot, rank_plot, tables
from benchmarks.scale.axes import AXES, LABELS
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


PARTS = {"scale": of_scale, "model": of_model, "ranks": of_ranks}


ROUNDS = 5


def refused(name: str, lines: Sequence[dict[str, Any]]) -> str:
    """Why these lines are not published; "" where they are."""
    head, *rows = lines
    if head.get("quick"):
        return "is of QUICK=1, which proves nothing"
    if head.get("rounds", ROUNDS) < ROUNDS:
        return f"is of {head['rounds']} rounds, and the page says {ROUNDS}"
    missing = set(AXES) - {row["axis"] for row in rows} if name == "scale" else set()
    return f"was cut off: {', '.join(sorted(missing))} missing" if missing else ""


def measured(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """{part: its lines}, of those that were measured whole; SystemExit where one was not."""
    found = {}
    for name in PARTS:
        path = folder / f"{name}.jsonl"
        if not path.exists():
            print(f"{name}: no {path}; the page keeps what it has")
            continue
        try:
            found[name] = read_lines(path)
            why = refused(name, found[name])
        except (ValueError, IndexError) as error:
            raise SystemExit(f"{path} was cut off: measure it whole") from error
        if why:
            raise SystemExit(f"{path} {why}: measure it whole")
    return found


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.page", description=__doc__)
    parser.add_argument("folder", type=Path, help="where bench-scale and the others wrote")
    parts, page = measured(parser.parse_args(argv).folder), PAGE.read_text()
    for name, lines in parts.items():
        page = replaced(page, name, PARTS[name](lines))
    if lines := parts.get("scale"):
        plot.draw(lines[1:], IMAGES / "scale.png", lines[0]["machine"])
    if lines := parts.get("ranks"):
        rank_plot.draw(lines, IMAGES / "scale-ranks.png")
    PAGE.write_text(page)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
