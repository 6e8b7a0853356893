"""Two versions of the tree, compared: what is worse, what is compared with, what is printed."""

from __future__ import annotations

import json
import math
import subprocess

import pytest

from benchmarks.track import run
from benchmarks.track.run import Row

BOUND = 1.03


def row(instructions=1.0, low=1.0, high=1.0):
    return Row("draw", 100.0, 100.0 * instructions, instructions, 50.0, low, (low + high) / 2, high)


@pytest.mark.parametrize(
    ("given", "worse"),
    [
        (row(), False),
        (row(instructions=1.03), False),
        (row(instructions=1.031), True),
        (row(low=1.02, high=1.2), False),  # the interval reaches below the bound
        (row(low=1.031, high=1.2), True),
        (row(low=0.8, high=0.9), False),
        (row(low=math.nan, high=math.nan), False),  # PAIRS=0
        (row(instructions=1.2, low=0.8, high=0.9), True),
    ],
)
def test_a_row_is_worse_by_its_count_or_by_all_of_its_interval(given, worse):
    """Given counts and intervals at either side of the bound. Expect the word, in its line too."""
    assert given.worse(BOUND) is worse
    assert (run.shown(given, BOUND)[-1] == "WORSE") is worse


def test_a_row_without_times_says_so():
    """Given PAIRS=0. Expect no time in the line, and null in JSON, which has no word for NaN."""
    bare = Row("draw", 200.0, 206.0, 1.03, *(math.nan,) * 4)
    line = ["draw", "200.0 -> 206.0", "+3.0 %", "", "not taken", ""]
    assert run.shown(bare, BOUND) == line
    found = json.loads(json.dumps(run.as_json(bare), allow_nan=False))
    assert found["tree"] == 206.0 and found["ns"] is None and found["high"] is None


def test_the_base_is_the_last_tag_or_the_revision_before(tmp_path, monkeypatch):
    """Given a repository without a tag, then with two. Expect HEAD^, then the later one."""

    def git(*words):
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(run, "ROOT", tmp_path)
    git("init")
    for number in range(3):
        git("commit", "--allow-empty", "-m", f"c{number}")
        assert run.default_base() == ("HEAD^" if number == 0 else f"v{number - 1}")
        git("tag", f"v{number}")


@pytest.mark.parametrize("pairs", ["-1", "1", "5"])
def test_too_few_pairs_are_refused(pairs):
    """Given fewer than an interval of 95 % needs. Expect the number that it needs."""
    with pytest.raises(SystemExit, match="fewer than 6 pairs"):
        run.main(["--pairs", pairs])
