"""Pages whose tables a run writes: what is between the marks, from what rows."""

from __future__ import annotations

import pytest
from tracked import ROOT

from benchmarks.pages import replaced
from benchmarks.paper import tables as paper
from benchmarks.scale import page as scale

HEAD = {"machine": "a machine", "load": [0.5, 1], "spin_ns": 11.0, "revision": "abc"}
PAGES = {
    "benchmarks-paper.md": tuple(paper.PAPER),
    "benchmarks-peers.md": ("figures",),
    "benchmarks-scale.md": ("scale", "model", "ranks"),
}


def test_what_is_between_the_marks_is_replaced():
    """Given a page with marks. Expect what is between them replaced, and nothing else; and a page
    without these marks refused."""
    text = "a\n<!-- T2a -->\nold\n<!-- end of T2a -->\nb"
    new = replaced(text, "T2a", "new \\1")
    assert new == "a\n<!-- T2a -->\n\nnew \\1\n\n<!-- end of T2a -->\nb"
    with pytest.raises(SystemExit, match="no marks of T1"):
        replaced(text, "T1", "new")


@pytest.mark.parametrize("name", PAGES)
def test_each_page_has_its_marks(name):
    """Given the pages of the tree. Expect the marks of every part that a run writes."""
    text = (ROOT / "docs" / name).read_text()
    for part in PAGES[name]:
        assert "new" in replaced(text, part, "new")


def row(operation, **changed):
    """One of bench-scale."""
    return {
        "axis": "batch",
        "batch": 8,
        "operation": operation,
        "value": 1234567.0,
        "spread": 1.0,
        "server_ns": 56.4,
        **changed,
    }


def test_the_tables_of_what_grows():
    """Given two operations at one point and one at another. Expect a line a point, the mark where
    rounds disagree, and a dash for what was not measured."""
    rows = [row("insert"), row("sample", spread=1.5), row("insert", batch=1024, value=9.0)]
    text = scale.of_scale([HEAD, *rows])
    assert "a machine; load before: 0.5, 1;" in text and "### By items of a call" in text
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[-2:]]
    assert cells[0] == ["8", "1,234,567 (56)", "1,234,567 (!) (56)", "–", "–"]
    assert cells[1] == ["1,024", "9 (56)", "–", "–", "–"]


def test_the_tables_of_the_model():
    """Given requests of a core of one instruction a nanosecond, of which one took twice as long.
    Expect what a paper core of six serves at each line, and the error of the one."""
    shape = {"mtu": 1400, "instructions": 6000.0, "wire_bits": 8.0, "items": 8.0, "ns": 6000.0}
    rows = [{"name": "push", **shape}, {"name": "pull", **shape, "ns": 12000.0}]
    text = scale.of_model([HEAD, *rows])
    assert "| push    | 1400 | 6,000        | 8.0 (core)" in text
    assert "largest error is **50%**" in text and "| 12,000       | -50%  |" in text


def test_the_table_of_ranks():
    """Given a rank that was measured and one that was not. Expect by how much the model is off the
    one, and a dash for the other."""
    rows = [
        {"kind": "actors", "unit": "steps/s", "ranks": 1, "measured": 200.0, "here": 150.0,
         "apart": 1234.5},
        {"kind": "actors", "unit": "steps/s", "ranks": 2, "measured": None, "here": 150.0,
         "apart": 2.0},
    ]  # fmt: skip
    text = scale.of_ranks([{**HEAD, "cores": [0, 1]}, *rows])
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[-2:]]
    assert cells[0] == ["actors", "1", "steps/s", "200", "-25%", "1,230"]
    assert cells[1] == ["actors", "2", "steps/s", "–", "–", "2"]
