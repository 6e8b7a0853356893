"""The examples do what they print, and README's and docs/' code runs as it stands there.

The three training loops in environments of their own run under `make test-examples`; here only
their diffs are counted, and the judge is judged.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import run_examples

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("error::UserWarning")  # an example teaches none


def example(name):
    """The module of examples/NAME.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dict_observations_are_learned_from():
    """Given 2 500 steps. Expect the lit lamp found far more often than by random moves."""
    result = example("dict_observation").main(steps=2500)
    assert result["first"] < 0.5 < 0.8 < result["last"]
    assert result["served"] == 64 * len(range(504, 2500, 4))


def test_continuous_actions_are_served_and_bootstrap():
    """Given 1 200 steps of Pendulum, too few to learn. Expect every batch served, and no target
    that is cut: its episodes only ever end by the time limit."""
    result = example("continuous_actions").main(steps=1200)
    assert result["served"] == 2 * 128 * len(range(201, 300)) + 256
    assert result["bootstrapped"] == 1.0


def test_several_agents_learn_from_one_table():
    """Given 2 500 steps of two agents. Expect both in a batch, no item of two, and meetings."""
    result = example("several_agents").main(steps=2500, seed=2)
    assert result["mixed"] == 0 and min(result["share"]) > 0.3
    assert result["first"] < 0.85 < 0.9 < result["last"]
    assert result["served"] > 64 * 500


def test_several_processes_end_together():
    """Given two actors, and a learner that pauses for longer than their calls wait. Expect them to
    go on behind it, the limiter's ratio to hold, and all to end without an error."""
    command = [sys.executable, "-W", "error::UserWarning", ROOT / "examples/several_processes.py"]
    command += ["--actors", "2", "--updates", "120", "--pause", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    items, ratio, codes = re.findall(r"^(\d+) items|(\d+\.\d) times|(\[.*\])$", done.stdout, re.M)
    assert codes[2] == "[0, 0]" and int(items[0]) >= 500
    assert float(ratio[1]) == pytest.approx(120 * 64 / int(items[0]), abs=0.06)


def test_offline_data_goes_in_by_add():
    """Given 6 000 steps of random play as arrays. Expect all of them stored but for the
    windows that are open at its end, and the value learned to be what the arrays' returns tell."""
    result = example("offline").main(steps=6000, updates=1200)
    assert 5997 <= result["stored"] <= 6000
    assert result["learned"] == pytest.approx(result["measured"], rel=0.1)


def test_offline_rows_in_no_order_go_in_by_many_streams():
    """Given the same rows shuffled, not a multiple of the streams. Expect every one to be an item,
    and the same value learned."""
    result = example("offline").main(steps=6001, updates=2500, shuffled=True)
    assert result["stored"] == 6001
    assert result["learned"] == pytest.approx(result["measured"], rel=0.1)


@pytest.mark.parametrize("name", run_examples.NAMES)
def test_a_training_loop_changes_ten_lines_at_most(name):
    """Given the two scripts of an example. Expect a small diff, and README to show it whole."""
    diff, added, removed = run_examples.diff_of(name)
    assert 0 < added <= 10 and removed <= 10
    text = (ROOT / "examples" / name / "README.md").read_text()
    shown = re.search(r"```diff\n(.*?)```", text, re.DOTALL).group(1).splitlines()
    assert shown == [line for line in diff if not line.startswith("@@")]


def test_the_judge_of_the_training_loops():
    """Given runs that did not learn, differ, or went past the server. Expect a sentence each."""
    assert run_examples.changes(["a", "b", ""], ["a", "c", "d", "", ""])[1:] == (2, 1)
    counters = {"steps_committed": 1000, "items_sampled": 5000}
    good = {"return": 200.0, "random": 20.0, "counters": counters}
    assert run_examples.wrong(good, good, 1000) == []
    for changed, sentence in (
        ({"return": 50.0}, "less than 3 times"),
        ({"return": 2000.0}, "more than 6 times apart"),
        ({"counters": counters | {"items_sampled": 0}}, "served 0 items"),
        ({"counters": counters | {"steps_committed": 10}}, "stored 10 rows"),
    ):
        assert any(sentence in told for told in run_examples.wrong(good, good | changed, 1000))


def run_code_of(page):
    """What the Python blocks of a page leave behind, run in order as one script."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names = {}
    exec(compile("\n".join(blocks), page, "exec"), names)
    return names


def test_the_code_in_readme_runs():
    """Given every Python block of README.md, in order, as one script. Expect it to run, its
    batches to be drawn and its priorities to be applied."""
    names = run_code_of("README.md")
    assert len(names["batch"]) == 128 and names["batch"]["observation"].shape == (128, 2, 4)
    result = names["result"]
    assert result.applied > 0 and (result.stale, result.unknown) == (0, 0)


def test_the_code_that_readme_had_runs_on_its_pages():
    """Given the pages of weights, of rows of one's own and of a writer that goes on after a loss.
    Expect them to run, and the weights to arrive; `make test-docs` runs all pages."""
    names = run_code_of("docs/sessions.md")
    assert names["pulled"][0] == names["version"] > 0
    names = run_code_of("docs/writing.md")
    assert len(names["keys"]) == 10 and names["writer"].closed


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_no_loop_of_a_page_runs_over_an_info(page):
    """Given the Python blocks of a page. Expect no loop over `_`."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    loops = [n for n in ast.walk(ast.parse("\n".join(blocks))) if isinstance(n, ast.For)]
    targets = [loop.target.id for loop in loops if isinstance(loop.target, ast.Name)]
    assert "_" not in targets, "it is an info elsewhere: a type checker refuses two types of a name"
