"""Writes the tables of docs/benchmarks-paper.md again, and its pictures, from what was measured.

    python -m benchmarks.paper.page build/bench-paper      or: make bench-paper-page

The page has a pair of marks for each claim; what stands between them is replaced.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import ROOT
from benchmarks.pages import replaced
from benchmarks.paper import plots, tables
from benchmarks.paper.__main__ import CLAIMS, JSON, where

PAGE = ROOT / "docs" / "benchmarks-paper.md"
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100


def main(argv: list[str] | None = None) -> int:
    """The command."""
    folder = Path((sys.argv[1:] if argv is None else argv)[0])
    head, *rows = harness.read_lines(folder / JSON)
    page = PAGE.read_text()
    for claim in CLAIMS:
        if not tables.of_claim(rows, claim):
            print(f"{claim}: not in {folder / JSON}; the page keeps what it has")
            continue
        text = "\n".join(tables.markdown(rows, claim))
        measured = textwrap.fill(f"Measured on: {where(head)}.", COLUMNS)
        page = replaced(page, claim, f"{measured}\n\n{text}")
        if without := plots.missing():
            print(without)
        else:
            plots.draw(rows, claim, IMAGES / f"paper-{claim.lower()}.png", where(head))
    PAGE.write_text(page)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
