"""Run folders: metrics as JSON lines and event files, their names, progress, phases, wandb."""

from __future__ import annotations

import io
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from replay_server import ConfigError
from replay_server.training import runs
from replay_server.training.progress import Progress, left
from replay_server.training.runs import METRICS, Metrics, Phases, Run, fraction, read_metrics
from replay_server.training.scalars import SCALARS

ROOT = Path(__file__).resolve().parents[2]
# What dashboards and notebooks are built on: a name here is never changed, only added.
PROMISED = {
    *("charts/episodic_return", "charts/episodic_length", "charts/epsilon"),
    *("losses/td", "losses/q_values", "losses/grad_norm"),
    *("replay/size", "replay/ratio", "replay/age", "replay/stale"),
    *("perf/env_sps", "perf/learner_sps", "perf/wait_fraction"),
}


def series(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """{name: [(step, value)]} of an event folder, as TensorBoard itself reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def test_the_promised_names_stand_in_the_code_and_in_the_docs():
    """Given the names people build on. Expect each there, and the page's table to be the code's."""
    assert SCALARS.keys() >= PROMISED
    page = (ROOT / "docs" / "run-folders.md").read_text()
    table = dict(re.findall(r"^\| `(\w+/\w+)` \| (.+) \|$", page, re.M))
    assert table == SCALARS


def test_a_line_is_a_json_object_and_a_point_in_tensorboard(tmp_path):
    """Given scalars, one not there yet, one not finite, one too large. Expect each line whole on
    the disk at once, and the same series in the event file."""
    run = Run(tmp_path, "learner", {"seed": 1})
    run.log(0, **{"losses/td": 0.5, "replay/age": None})
    run.log(1 << 40, **{"losses/td": 2.0, "replay/size": 7, "phase/wait": math.inf})
    run.log(1 << 41, **{"losses/td": 1e39})  # no float32 holds it
    first, second, _ = read_metrics(tmp_path)
    run.event(event="solved", mean=500.0)
    run.close()
    assert first["step"] == 0 and first["losses/td"] == 0.5 and "replay/age" not in first
    assert first["program"] == "learner" and abs(second["time"] - first["time"]) < 60
    assert second["phase/wait"] is None and "Infinity" not in (tmp_path / METRICS).read_text()
    assert read_metrics(tmp_path)[3]["event"] == "solved"
    read = series(tmp_path / "tensorboard" / "learner")
    assert read["losses/td"] == [(0, 0.5), (1 << 40, 2.0), (1 << 41, math.inf)]
    assert read["replay/size"] == [(1 << 40, 7.0)] and read["phase/wait"] == [(1 << 40, math.inf)]


def test_a_name_that_nobody_promised_is_refused(tmp_path):
    """Given a typo in a name. Expect it refused, since dashboards would stay empty."""
    run = Run(tmp_path, "learner", {}, tensorboard=False)
    with pytest.raises(AssertionError, match="losses/tdd"):
        run.log(1, **{"losses/tdd": 1.0})
    run.close()
    assert not (tmp_path / "tensorboard").exists()


def write_lines(folder: Path, name: str, count: int) -> None:
    run = Run(folder, name, {}, tensorboard=False)
    for step in range(count):
        run.log(step, **{"losses/td": float(step), "replay/size": 1e300, "charts/epsilon": 0.1})
    run.close()


def test_lines_of_several_programs_do_not_mix(tmp_path):
    """Given three processes that write into one folder. Expect every line of each, in order."""
    names = ["actor-0", "actor-1", "learner"]
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_lines, args=(tmp_path, n, 500)) for n in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    for name in names:
        assert [line["step"] for line in read_metrics(tmp_path, name)] == list(range(500))


def test_a_line_cut_short_is_left_out(tmp_path):
    """Given a kill in the middle of a line. Expect the whole ones, then what follows it."""
    (tmp_path / METRICS).write_text('{"program": "a", "step": 1}\n{"program": "a", "st')
    metrics = Metrics(tmp_path)
    assert [line["step"] for line in metrics.read("a")] == [1]
    with open(tmp_path / METRICS, "a") as file:
        file.write('\n{"program": "a", "step": 3}\n{"program": "b", "step": 4}\n')
    assert [line["step"] for line in metrics.read("a")] == [1, 3]
    assert [line["step"] for line in metrics.read()] == [1, 3, 4]


def test_the_commit_is_read_and_git_is_left_as_it_is(tmp_path, monkeypatch):
    """Given a repository whose files were touched, then one changed. Expect its commit, "-dirty"
    only then, and git's index never written: a program killed in between would leave its lock."""

    def git(*words):
        user = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *user, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    file, index = tmp_path / "code.py", tmp_path / ".git" / "index"
    monkeypatch.setattr(runs, "__file__", str(file))
    assert runs.commit() == "unknown"
    file.write_text("one")
    git("init", "-q")
    git("add", "code.py")
    git("commit", "-qm", "first")
    os.utime(file, (1, 1))
    before = index.read_bytes()
    head = git("rev-parse", "HEAD")
    assert runs.commit() == head
    file.write_text("two")
    assert runs.commit() == f"{head}-dirty"
    assert index.read_bytes() == before


def test_phases_add_up():
    """Given times by name. Expect shares since the last line, totals, and a wait by itself."""
    phases = Phases()
    for name, seconds in (("wait", 1.0), ("train", 3.0), ("limited", 6.0)):
        phases.add(name, seconds)
    assert fraction(phases.seconds, "wait", ("wait", "train")) == 0.25
    shares = phases.shares()
    assert shares["phase/limited"] == pytest.approx(6 * shares["phase/wait"])
    assert phases.shares() == {} and fraction({}, "wait", ("wait",)) == 0.0
    assert phases.all == {"wait": 1.0, "train": 3.0, "limited": 6.0}
    assert phases.text().startswith("limited ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_and_a_file_has_few():
    """Given news faster than a person reads. Expect a terminal to show each in one place and to
    keep what is said; a file to get the first, and what is said, whole."""
    screen, file = Terminal(), io.StringIO()
    for output in (screen, file):
        with Progress(output) as progress:
            progress.show("1 of 3, " + "x" * 300)
            progress.show("2 of 3")
            progress.say("the server is back")
            progress.show("3 of 3")
    shown = re.sub(r"[^\n]*\r\x1b\[K", "", screen.getvalue())  # what a terminal has in the end
    assert shown == "the server is back\n"
    assert screen.getvalue().count("\n") == 1 and "3 of 3" in screen.getvalue()
    assert max(map(len, re.split("[\r\n]", screen.getvalue()))) < 200
    assert file.getvalue().splitlines() == ["1 of 3, " + "x" * 300, "the server is back"]
    with Progress(file, every_s=0.0) as progress:
        progress.show("4 of 3")
    assert file.getvalue().endswith("4 of 3\n") and "\r" not in file.getvalue()


def test_what_is_left_is_told_in_words():
    """Given a rest and a rate. Expect minutes and seconds; no promise without a rate."""
    assert left(130, 2.0) == "1:05 left" and left(7384, 1.0) == "2:03:04 left"
    assert left(10, 0.0) == "no end in sight"


WANDB = """
    import json
    class Error(Exception): pass
    class Run:
        def __init__(self, file): self.file = file
        def log(self, values, step): print(json.dumps([step, values]), file=self.file, flush=True)
        def finish(self): self.file.close()
    def init(**given):
        if given["config"].get("seed") == 13: raise Error("no API key\\nlog in first")
        file = open(given["dir"] + "/wandb.jsonl", "w")
        print(json.dumps([given["group"], given["name"], given["config"]]), file=file, flush=True)
        return Run(file)
"""


def test_wandb_gets_the_same_scalars(tmp_path, monkeypatch):
    """Given a module in wandb's place (the real one: `make test-wandb`). Expect run, names, steps;
    one sentence where it does not start."""
    (tmp_path / "wandb.py").write_text(textwrap.dedent(WANDB))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    run = Run(tmp_path / "first", "actor-0", {"seed": 1}, wandb=True)
    run.log(5, **{"perf/env_sps": 10.0, "charts/episodic_return": None})
    run.close()
    head, line = map(json.loads, (tmp_path / "first" / "wandb.jsonl").read_text().splitlines())
    assert head == ["first", "first/actor-0", {"seed": 1}] and line == [5, {"perf/env_sps": 10.0}]
    with pytest.raises(ConfigError, match="no API key; WANDB_MODE=offline"):
        Run(tmp_path / "second", "actor-0", {"seed": 13}, wandb=True)
    monkeypatch.delitem(sys.modules, "wandb")


def test_a_missing_wandb_is_one_sentence(tmp_path, monkeypatch):
    """Given no such package. Expect the command that installs it, and no metrics begun."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        Run(tmp_path / "run", "learner", {}, wandb=True)
    assert not (tmp_path / "run" / METRICS).exists()


FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))  # a lock's line and no more
from actor.__main__ import main as actor
from deploy.demo import main as demo
from learner.__main__ import main as learner
nobody, run = ["--server", "udp://127.0.0.1:9"], ["--run", sys.argv[1]]
print(demo(["--minutes", "0.1", *run]), actor(nobody + run), learner(["train", *nobody, *run]))
"""


def test_a_disk_that_is_full_at_the_start_is_told_in_one_sentence_with_the_file(tmp_path):
    """Given no room for a run's first file. Expect code 2 of each program and one sentence that
    names the file, with nothing left beside it."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    said = done.stderr.splitlines()
    assert done.stdout.splitlines()[-1:] == ["2 2 2"], done.stderr
    files = ("config.toml", "tensorboard/actor-0/events", "tensorboard/learner/events")
    for line, name, file in zip(said, ("demo", "actor 0", "learner"), files, strict=True):
        assert line.startswith(f"{name}: [Errno 27] File too large: '{tmp_path / file}")
    assert not list(tmp_path.glob(".*"))
