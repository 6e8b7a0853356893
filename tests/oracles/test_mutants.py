"""What the mutants' machine changes in a C file, what it leaves alone, how it names them."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("tree_sitter_c", reason="pip install -e '.[mutants]'")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mutants"))

from mutate import mutants_of
from run import EQUIVALENT, ROOT, Judge, Run, chosen, key_of, read_equivalent

SOURCE = """\
int clamp(int value, int bound) {
    assert(bound > 0);
    if (value < bound && value != 3) {
        note(value,
             bound);
        return value + 1;
    }
    char text[8] = "a < b";
    return bound;
}
"""


@pytest.fixture
def changes(tmp_path: Path) -> list[tuple[int, str, str]]:
    """(line, kind, the changed line) of every mutant of SOURCE."""
    (tmp_path / "clamp.c").write_text(SOURCE)
    found = mutants_of(tmp_path, "clamp.c")
    assert len({mutant.name for mutant in found}) == len(found)
    return [(m.line, m.kind, m.changed(SOURCE.encode())[1]) for m in found]


def test_each_kind_of_mutant_is_made(changes):
    """Given operators, a constant, a call, returns. Expect each changed, one place at a time."""
    assert {
        (3, "operator", "if (value <= bound && value != 3) {"),
        (3, "operator", "if (value < bound || value != 3) {"),
        (3, "operator", "if (value < bound && value == 3) {"),
        (3, "operator", "if (value < bound && value < 3) {"),
        (3, "operator", "if (value < bound && value > 3) {"),
        (3, "constant", "if (value < bound && value != (3 - 1)) {"),
        (3, "condition", "if (!(value < bound && value != 3)) {"),
        (4, "arguments", "note(bound, value);"),
        (6, "operator", "return value - 1;"),
        (9, "returned", "return 0;"),
    } <= set(changes)


def test_unequal_to_nothing_becomes_equal_alone(tmp_path):
    """Given what is compared with 0 or NULL, where nothing is less. Expect one mutant of each."""
    source = "int has(char *p, unsigned n) {\n    return n != 0 && p != NULL;\n}\n"
    (tmp_path / "has.c").write_text(source)
    found = [m.changed(source.encode())[1] for m in mutants_of(tmp_path, "has.c")]
    assert "return n == 0 && p != NULL;" in found and "return n != 0 && p == NULL;" in found
    assert not [line for line in found if "<" in line or ">" in line]


def test_a_minimum_becomes_a_maximum_and_its_arguments_stay(tmp_path):
    """Given rp_min. Expect rp_max of the same two, and no mutant that only turns them round."""
    source = "int least(int a, int b) {\n    return rp_min(a, b);\n}\n"
    (tmp_path / "least.c").write_text(source)
    found = [(m.kind, m.changed(source.encode())[1]) for m in mutants_of(tmp_path, "least.c")]
    assert ("operator", "return rp_max(a, b);") in found
    assert not [kind for kind, _ in found if kind == "arguments"]


def test_assertions_texts_and_sizes_stay(changes):
    """Given an assertion, a text and an array's size. Expect no mutant of their lines."""
    assert not [change for change in changes if change[0] in (2, 8)]


def test_the_lines_behind_a_mutant_keep_their_numbers(tmp_path):
    """Given a call over two lines. Expect its dropped form to leave as many lines."""
    (tmp_path / "clamp.c").write_text(SOURCE)
    dropped = [m for m in mutants_of(tmp_path, "clamp.c") if (m.line, m.kind) == (4, "dropped")]
    assert len(dropped) == 1
    after = dropped[0].applied(SOURCE.encode())
    assert after.count(b"\n") == SOURCE.count("\n") and b"note" not in after


def test_every_equivalent_mutant_is_one_of_the_tree():
    """Given the list with reasons. Expect each to be a mutant that its file has: none is stale, and
    none excuses another that reads the same."""
    reasons = read_equivalent(EQUIVALENT.read_text())
    files = {key.split(" | ")[0] for key in reasons}
    every = Counter(
        key_of(mutant, (ROOT / file).read_bytes())
        for file in files
        for mutant in mutants_of(ROOT, file)
    )
    listed = {key: len(found) for key, found in reasons.items()}
    assert len(reasons) >= 10 and listed == {key: every[key] for key in reasons}


def test_listed_mutants_are_judged_on_demand(tmp_path, capsys):
    """Given one file, and a check that finds one of its listed mutants. Expect all those listed for
    that file and no other to be chosen, and the one that is found told as no equivalent."""
    reasons = read_equivalent(EQUIVALENT.read_text())
    args = Namespace(listed=True, only="", files="compare.c", build=tmp_path, slow=False)
    mutants = chosen(args, reasons)
    source = (ROOT / "native/protocol/compare.c").read_bytes()
    of_file = [key for key in reasons if key.startswith("native/protocol/compare.c ")]
    assert sorted(key_of(mutant, source) for mutant in mutants) == sorted(of_file) != []
    tree = Namespace(core=[], checks=[])
    run = Run(Judge(tree, False), tmp_path / "results.jsonl", args)
    name = "native/protocol/compare.c:1:1:0"
    row = {"name": name, "before": "a < b", "after": "a <= b", "why": "a_test"}
    run.results = [row | {"state": "survived"}, row | {"state": "killed"}]
    assert run.report_listed() == 1
    said = capsys.readouterr().out
    assert f"no equivalent: {name}, a_test finds it" in said
    assert "2 listed as equivalent: a check finds 1 of them" in said


def test_an_equivalent_mutant_excuses_its_function_alone(tmp_path):
    """Given a line that two functions have, and a reason for one. Expect the other's not excused;
    and a reason with a colon, of a line at file scope, read as it stands."""
    text = "int {}(void) {{\n    return least() + 1;\n}}\n"
    (tmp_path / "native").mkdir()
    path = tmp_path / "native/two.c"
    path.write_text("enum { FLAG = 1 };\n" + text.format("first") + text.format("second"))
    reasons = read_equivalent(
        "native/two.c:second: any number: it says the same\n"
        "- return least() + 1;\n+ return least() - 1;\n"
        "native/two.c: a flag: any number but 0\n"
        "- enum { FLAG = 1 };\n+ enum { FLAG = (1 + 1) };\n"
    )
    source = path.read_bytes()
    excused = {
        mutant.unit.name: reasons[key_of(mutant, source)]
        for mutant in mutants_of(tmp_path, "native/two.c")
        if key_of(mutant, source) in reasons
    }
    assert excused == {"second": ["any number: it says the same"], "": ["a flag: any number but 0"]}
