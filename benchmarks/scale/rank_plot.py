"""The curves of actors and learners from 1 to 64 as one picture: points where it was measured."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.plot import WITHOUT

CAPTION = (
    "Points: the programs of a run on one machine. Dashed: the model of that machine. Line: the "
    "model where each has a core of its own.\nNot shown: several machines, whose network takes "
    "longer than this machine's memory."
)
COLOURS = {"actors": "#0072B2", "learners": "#D55E00"}  # Okabe and Ito's


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes the picture of ranks.py's lines; a sentence without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        print(WITHOUT)
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    head, *rows = lines
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure = Figure(figsize=(5 * len(kinds), 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    for cell, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        some = [row for row in rows if row["kind"] == kind]
        ranks, colour = [row["ranks"] for row in some], COLOURS[kind]
        found = [row for row in some if row["measured"] is not None]
        cell.plot([row["ranks"] for row in found], [row["measured"] for row in found], "o",
                  color=colour, label="measured")  # fmt: skip
        cell.plot(ranks, [row["here"] for row in some], "--", color=colour,
                  label=f"model, {len(head['cores'])} cores for all")  # fmt: skip
        cell.plot(ranks, [row["apart"] for row in some], "-", color=colour,
                  label="model, a core for each")  # fmt: skip
        cell.set_xscale("log", base=2)
        cell.set_yscale("log")
        cell.set_xticks(ranks, [str(count) for count in ranks])
        cell.set_xlabel(f"{kind} (log)")
        cell.set_ylabel(f"{some[0]['unit']} (log)")
        cell.grid(True, which="major", alpha=0.4)
        cell.legend(frameon=False)
    figure.suptitle(f"{CAPTION}\n{head['machine']}", fontsize=9)
    figure.savefig(path, dpi=100)
