"""The curves as one picture: a column an axis, rates above, the server's cost of an item below."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.scale.axes import LABELS, OPERATIONS

WITHOUT = "no plot: matplotlib is not installed: pip install 'replay-server[plot]'"
# Okabe and Ito's colours, which stay apart for colour-blind readers
LOOKS = dict(zip(OPERATIONS, (("#000000", "o"), ("#0072B2", "s"), ("#009E73", "^"),
                              ("#D55E00", "D")), strict=True))  # fmt: skip
CAPTION = (
    "Shown: what one client of one server gets as one thing grows and the rest stays, over kernel "
    "UDP within one machine.\nNot shown: several machines, or what servers on cores of their own "
    "would serve together."
)


def draw(rows: list[dict[str, Any]], path: Path, where: str) -> bool:
    """Writes the picture of `rows`, as run.py's JSON has them; False, and a sentence, without
    matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        print(WITHOUT)
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axes = list(dict.fromkeys(row["axis"] for row in rows))
    figure = Figure(figsize=(4 * len(axes), 8), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(axes), sharex="col", sharey="row", squeeze=False)
    for column, axis in enumerate(axes):
        for operation, (colour, marker) in LOOKS.items():
            some = [row for row in rows if (row["axis"], row["operation"]) == (axis, operation)]
            at = [row[axis] for row in some]
            look = {"color": colour, "marker": marker, "label": f"{operation}: "
                    f"{OPERATIONS[operation]}"}  # fmt: skip
            grid[0, column].plot(at, [row["value"] for row in some], **look)
            low, high = [row["low"] for row in some], [row["high"] for row in some]
            grid[0, column].fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
            grid[1, column].plot(at, [row["server_ns"] for row in some], **look)
        for cell in grid[:, column]:
            cell.set_xscale("log")
            cell.set_yscale("log")
            cell.grid(True, which="major", alpha=0.4)
        grid[1, column].set_xlabel(f"{LABELS[axis]} (log)")
    grid[0, 0].set_ylabel("items a second (log)")
    grid[1, 0].set_ylabel("server's processor time\nfor an item, ns (log)")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"{CAPTION}\n{where}", fontsize=10)
    figure.savefig(path, dpi=100)
    return True
