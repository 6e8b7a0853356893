"""The three programs as a person starts them, over UDP, and what happens when one of them dies.

One story is told in order, since programs take seconds to start: they learn; the actor is killed
and started again; the learner is killed and goes on from its checkpoint; everything the actor was
told is stored is compared with what the server holds; the server stops and comes back empty on the
same port. In another, a killed server comes back empty before anybody gave it up. Then the demo is
interrupted, and nothing may be left of it. Waits are for conditions, each with a bound; what a
program said last is part of every failure.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_runs import PROMISED, series
from until import until

from actor.__main__ import Program as Actor
from deploy import demo as demo_module
from deploy.plan import load
from deploy.plan_run import PlanRun
from deploy.processes import Process
from deploy.sync import InTurn, Watch, in_turn
from deploy.table import server_toml, table_for
from learner import checkpoint, evaluate
from learner import judge as solved
from learner.__main__ import main as learner_main
from learner.learner import Learner
from replay_server import Client, Server
from replay_server.training import options
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import check_playable
from replay_server.training.presets import CARTPOLE, changed
from replay_server.training.runs import FINISHED, Run, read_metrics

BOUND_S = 40.0
SETTINGS = changed(CARTPOLE, envs=4, batch=32, min_size=200, capacity=50_000)
OPTIONS = ["--envs", "4", "--batch", "32", "--min-size", "200", "--capacity", "50000"]


def last_said(processes) -> str:
    """What each of these programs said last."""
    return "\n".join(f"-- {p.name} ({p.ended()})\n{p.last_lines(8)}" for p in processes)


class Programs:
    """Server, actor and learner with one run folder; each may be started several times."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running, self.starts = folder, {}, 0
        folder.mkdir(exist_ok=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"udp://127.0.0.1:{free.getsockname()[1]}"
        self.describe(SETTINGS)

    def describe(self, settings) -> None:
        """What the server's next start serves."""
        text = server_toml(settings, url=self.address, seed=1)
        (self.folder / "server.toml").write_text(text)

    def start(self, name: str, *command: str) -> Process:
        """One of the three, its output in a file of its own."""
        self.starts += 1
        full = [sys.executable, "-u", "-m", *command]
        process = Process(name, full, self.folder / f"{name}-{self.starts}.log")
        self.running[name] = process
        return process

    def start_server(self) -> None:
        process = self.start("server", "replay_server", "serve", str(self.folder / "server.toml"))
        self.until(lambda: "serving at" in process.log.read_text(), "the server serves")

    def start_actor(self) -> None:
        common = ["--server", self.address, "--run", str(self.folder), *OPTIONS]
        self.start("actor", "actor", "--ledger", *common)

    def start_learner(self, *more: str) -> None:
        common = ["--server", self.address, "--checkpoint-seconds", "0.5", *OPTIONS]
        self.start("learner", "learner", "train", *common, *more)

    def kill(self, name: str) -> None:
        """kill -9, and gone."""
        self.running[name].child.send_signal(signal.SIGKILL)
        self.running[name].child.wait()

    def until(self, condition, what):
        """The condition's value once it is true; a failure tells what each program said last."""
        return until(condition, what, said=lambda: last_said(self.running.values()))

    def values(self, name: str, field: str) -> list:
        """What a program logged under this name, over all its starts."""
        lines = read_metrics(self.folder, name)
        return [line[field] for line in lines if field in line]

    def said(self, name: str) -> str:
        return self.running[name].log.read_text()

    def counters(self) -> dict[str, int]:
        with Client(self.address) as client:
            return client.stats().counters

    def grow(self, name: str, field: str, by: int) -> None:
        """Waits until what this start of the program logs has risen by so much."""
        before = len(self.values(name, field))

        def grown() -> bool:
            new = self.values(name, field)[before:]
            return bool(new) and new[-1] >= new[0] + by

        self.until(grown, f"{field} of {name} grows")

    def close(self) -> None:
        for process in self.running.values():
            process.end()


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    started = Programs(tmp_path_factory.mktemp("programs"))
    yield started
    started.close()


def ledger_of(programs):
    """(exit code, {name: count}) of the ledger's reader, the program."""
    command = [sys.executable, "-m", "actor.ledger", str(programs.folder / "actor-0.ledger")]
    done = subprocess.run(
        [*command, "--server", programs.address], capture_output=True, text=True, timeout=BOUND_S
    )
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", done.stdout)}
    assert counts, done.stdout + done.stderr
    return done.returncode, counts


def test_three_programs_survive_each_other(programs):
    """Given actor and learner killed in turn, and a server that stops. Expect steps of both to
    grow again, versions that never fall, a ledger without a loss, and sentences."""
    programs.start_server()
    programs.start_learner("--run", str(programs.folder))
    programs.start_actor()
    programs.grow("actor-0", "step", by=300)
    programs.grow("learner", "step", by=20)

    programs.kill("actor")
    before = programs.counters()
    programs.start_actor()
    programs.grow("actor-0", "step", by=300)
    assert programs.counters()["steps_committed"] > before["steps_committed"]
    steps = programs.values("actor-0", "step")
    assert steps == sorted(steps), "the actor's second life goes on where the first was"

    checkpoints = programs.folder / "checkpoints"
    programs.until(lambda: list(checkpoints.glob("*.json")), "a checkpoint")
    programs.kill("learner")
    programs.start_learner("--resume", str(programs.folder))
    programs.grow("learner", "step", by=20)
    resumed = re.search(r"resumed from \S+: learner step (\d+)", programs.said("learner"))
    assert resumed and int(resumed[1]) > 0, programs.said("learner")
    lines = [line for line in read_metrics(programs.folder, "learner") if "step" in line]
    first = next(line for line in lines if line["life"] == 1)
    assert first["step"] >= int(resumed[1]), "its checkpoint's, told under its own life"
    programs.grow("actor-0", "step", by=300)

    for name in ("actor-0", "learner"):
        versions = programs.values(name, "weights/version")
        assert versions == sorted(versions) and versions[-1] > versions[0], f"versions of {name}"
    code, counts = ledger_of(programs)
    assert (code, counts["missing"], counts["different"]) == (0, 0, 0), counts
    # A fast machine goes round the table: what is gone then is the oldest, and nothing else.
    assert counts["equal"] + counts["overwritten"] == counts["acknowledged"], counts
    assert counts["equal"] >= min(counts["acknowledged"], 0.9 * SETTINGS.capacity) > 600, counts


def test_tensorboard_reads_what_they_logged(programs):
    """Given the run so far. Expect every name that people build on in some program's event files,
    as TensorBoard's own reader finds them, with the values of metrics.jsonl."""
    found: dict[str, list] = {}
    for name in ("actor-0", "learner"):
        read = series(programs.folder / "tensorboard" / name)
        for tag, points in read.items():
            assert [value for _, value in points] == pytest.approx(
                programs.values(name, tag)[: len(points)], rel=1e-6
            ), tag
        found |= read
    assert found.keys() >= PROMISED


def test_a_server_that_stops_is_waited_for(programs):
    """Given SIGTERM to the server. Expect both others to say so, and to go on when it is back."""
    server = programs.running["server"]
    server.child.terminate()
    assert server.child.wait(BOUND_S) == 0 and "stopped udp://" in programs.said("server")
    waiting = f"no server answers at {programs.address}"
    programs.until(lambda: waiting in programs.said("actor"), "the actor says so")
    programs.until(lambda: waiting in programs.said("learner"), "the learner says so")
    for name in ("actor", "learner"):
        assert "; trying again for up to 600 s" in programs.said(name), programs.said(name)
    assert programs.running["actor"].ended() is None
    assert programs.running["learner"].ended() is None
    programs.start_server()
    programs.grow("actor-0", "step", by=300)
    programs.grow("learner", "step", by=20)
    for name in ("actor", "learner"):
        process = programs.running[name]
        process.child.terminate()
        assert process.child.wait(BOUND_S) == 0, process.last_lines()
        assert "Traceback" not in programs.said(name), programs.said(name)


def test_after_a_restart_nobody_waits_for_the_other(tmp_path):
    """Given a killed server that comes back empty and lets nobody draw. Expect the weights there
    though no batch ever comes, rows too, and what was lost told by both."""
    programs = Programs(tmp_path)
    try:
        programs.start_server()
        programs.start_learner("--run", str(tmp_path))
        programs.start_actor()
        programs.grow("learner", "step", by=20)
        programs.grow("actor-0", "weights/learner_step", by=1)
        programs.describe(changed(SETTINGS, min_size=400_000, capacity=500_000))
        programs.kill("server")
        programs.start_server()
        back = "the server is back, and empty: "
        programs.until(lambda: back in programs.said("learner"), "the learner says so")
        with Client(programs.address) as client:
            programs.until(lambda: client.pull_weights() is not None, "weights are published")
            programs.until(
                lambda: client.stats().counters["steps_committed"] > 0, "the actor's rows arrive"
            )
            assert client.stats().counters["items_sampled"] == 0
        programs.until(lambda: back in programs.said("actor"), "the actor says so")
        assert "waiting up to" not in programs.said("actor").partition(back)[2]
        for name in ("actor", "learner"):
            assert "open a new writer" not in programs.said(name), programs.said(name)
    finally:
        programs.close()


def test_an_actor_goes_on_where_its_table_was_emptied(tmp_path):
    """Given client.reset beside an actor that plays. Expect it to say what is gone, and to play on:
    rows are stored again, by the same program."""
    programs = Programs(tmp_path)
    try:
        programs.start_server()
        programs.start_actor()
        with Client(programs.address) as client:
            programs.until(lambda: client.size("main") > 200, "rows arrive")
            client.reset("main")
            said = "the table was emptied: "
            programs.until(lambda: said in programs.said("actor"), "the actor says so")
            programs.until(lambda: client.size("main") > 200, "rows arrive again")
        assert programs.running["actor"].ended() is None
        assert "open a new writer" not in programs.said("actor"), programs.said("actor")
    finally:
        programs.close()


def test_an_actor_waits_for_the_first_weights_and_never_again(tmp_path, monkeypatch, capsys):
    """Given weights that are published as the actor waits for them, then a server that came back
    without any. Expect one sentence for that wait, and no second wait."""
    words = ["--run", str(tmp_path), "--no-tensorboard", "--no-ledger", *OPTIONS]
    weights = Learner(spec=table_for(SETTINGS).step, actions=2, preset=SETTINGS, seed=1).weights()
    published = []

    def wait(stop, seconds):
        assert not published, "waits again"
        with Client(server.address) as client:
            published.append(client.publish_weights(weights))

    monkeypatch.setattr(Stop, "wait", wait)
    with Server([table_for(SETTINGS)], "udp://127.0.0.1:0") as server:
        address = server.address
        words += ["--server", address]
        args = options.parse(options.Actor, "actor", "actor", "", words, check_playable)
        program = Actor(*args, Stop())
        program.connect()
        assert (program.actor.learner_step, published) == (0, [1])
        program.close_client()
    with Server([table_for(SETTINGS)], address):
        program.connect()
        program.actor.step()
        program.actor.writer.flush()
        assert program.actor.writer.state().steps_stored == SETTINGS.envs
        program.close()
    told = capsys.readouterr().out
    assert told.count("waiting up to 10 s for a learner's first weights") == 1, told


def processes_with(text: str) -> list[int]:
    """The processes whose command line contains this."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            found += [int(entry.name)] if text in line else []
    return found


def started(run: Path) -> bool:
    """The server at least is there."""
    return (run / "server.log").exists()


def learning(run: Path) -> bool:
    """The learner has learned from a batch."""
    return any(line.get("step", 0) > 0 for line in read_metrics(run, "learner"))


@pytest.mark.parametrize("moment", [started, learning])
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path, moment):
    """Given Ctrl-C while it starts, or once all learn. Expect exit code 130 and nobody left."""
    run = tmp_path / "run"
    command = [sys.executable, "-u", "-m", "deploy", "demo", "--run", str(run)]
    demo = Process("demo", command, tmp_path / "demo.log")
    least = 4 if moment is learning else 2
    until(
        lambda: moment(run) and len(processes_with(str(run))) >= least,
        moment.__doc__,
        said=lambda: last_said([demo]),
    )
    demo.child.send_signal(signal.SIGINT)
    assert demo.child.wait(BOUND_S) == 130, demo.last_lines()
    assert processes_with(str(run)) == []
    assert "interrupted: nothing is left running" in demo.last_lines()


def test_a_demo_in_turn_keeps_its_time_before_it_learns(tmp_path):
    """Given a replay that would take minutes to fill, and a moment. Expect an end behind it, with
    steps and no update."""
    run = tmp_path / "run"
    command = [sys.executable, "-u", "-m", "deploy", "demo", "--transport", "loopback"]
    command += ["--minutes", "0.05", "--min-size", "90000", "--run", str(run)]
    demo = Process("demo", command, tmp_path / "demo.log")
    assert demo.child.wait(BOUND_S) == 0, demo.last_lines()
    summary = json.loads((run / "summary.json").read_text())
    assert 0 < summary["env_steps"] < 90_000 and summary["learner_steps"] == 0


def test_a_demo_in_turn_shows_how_far_its_replay_is():
    """Given steps and no update yet. Expect a line that says how many of how many."""
    lines: list[str] = []
    shown = SimpleNamespace(show=lines.append)
    with InTurn(SETTINGS, seed=1) as parts:
        watch = Watch(parts, None, shown, 60.0)
        parts.collect()
        watch.at = -math.inf  # long ago
        watch.collected()
    assert lines[0].startswith(f"waiting for {SETTINGS.envs} of {SETTINGS.min_size:,} steps before")


@pytest.mark.parametrize("end", ["Ctrl-C", "--minutes", "an error"])
def test_a_demo_in_turn_keeps_what_it_learned(tmp_path, monkeypatch, capsys, end):
    """Given three updates, then one of the ends of a run that is not solved. Expect the newest net
    as a checkpoint, as the learner over a network keeps it, that `evaluate` takes."""
    args = options.Demo(run=tmp_path, transport="loopback", minutes=60.0, tensorboard=False)

    def look(watch, turn):
        if watch.parts.learner.step < 3:
            return
        if end == "an error":
            raise EnvError("no simulator")
        if end == "Ctrl-C":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            args.minutes = 0.0

    monkeypatch.setattr(Watch, "look", look)
    with contextlib.suppress(EnvError):
        assert (in_turn(args, SETTINGS) is None) == (end == "Ctrl-C")
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.json")] == [
        "step-000000003.json"
    ]
    assert learner_main(["evaluate", str(tmp_path), "--episodes", "1"]) == 0
    assert "step-000000003.json: mean return" in capsys.readouterr().out


def test_a_demo_in_turn_says_that_it_could_not_keep_what_it_learned(tmp_path, monkeypatch, capsys):
    """Given a disk that is full at the end. Expect a summary all the same, and a sentence."""
    args = options.Demo(run=tmp_path, transport="loopback", minutes=60.0, tensorboard=False)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    monkeypatch.setattr(Watch, "look", lambda *_: setattr(args, "minutes", 0.0))
    assert in_turn(args, SETTINGS)["learner_steps"] == 1
    assert "demo: no last checkpoint: [Errno 28] No space" in capsys.readouterr().out


def test_a_demo_has_no_session_but_when_it_asks(tmp_path, monkeypatch):
    """Given a demo whose programs were started. Expect no session of its own, which the server
    would give up in the minutes it has nothing to say, and none after its summary; in the summary,
    no datagram refused."""
    args = options.Demo(run=tmp_path)
    demo = PlanRun(args, SETTINGS, tmp_path)
    with Server([table_for(SETTINGS)], "udp://127.0.0.1:0") as server:
        monkeypatch.setattr(demo.fleet, "start", lambda *_: None)
        monkeypatch.setattr(demo.fleet, "wait_for_address", lambda _: server.address)
        demo.start_all()
        assert server.counters()["sessions"] == 0
        told = demo.summary(None)["server_counters"]
        assert (told["sessions_opened"], told["unknown_session"]) == (1, 0)
        assert server.counters()["sessions"] == 0
    demo.close()


def test_waiting_is_that_of_the_learners_who_draw(tmp_path):
    """Given one that keeps the weights and logs no waiting, and two that draw. Expect a mean."""
    demo = PlanRun(options.Demo(run=tmp_path), SETTINGS, tmp_path, load("central"))
    assert demo.waiting() == 0.0
    for name, share in (("learner", None), ("learner-1", 0.5), ("learner-2", 0.1)):
        run = Run(tmp_path, name, {}, tensorboard=False)
        run.log(1, **{"perf/wait_fraction": share, "perf/learner_sps": 1.0})
        run.close()
    assert demo.waiting() == pytest.approx(0.3)
    demo.close()


@pytest.mark.parametrize(("limited", "ends"), [(16.0, False), (None, True)])
def test_a_run_ends_when_all_steps_are_played(tmp_path, limited, ends):
    """Given actors that played all their steps, and a learner that goes on. Expect the run to go on
    while a limiter will end that, and to end where nothing would."""
    settings = changed(SETTINGS, steps_per_update=limited)
    demo = PlanRun(options.Demo(run=tmp_path), settings, tmp_path)
    learner, actor = (Run(tmp_path, n, {}, tensorboard=False) for n in ("learner", "actor-0"))
    learner.log(10, **{"perf/learner_sps": 50.0})
    assert not demo.used_up()
    actor.event(event=FINISHED)
    assert demo.used_up() == ends
    learner.log(11, **{"perf/learner_sps": 0.0})
    assert demo.used_up()
    for run in (learner, actor):
        run.close()
    demo.close()


def test_an_unsolved_demo_names_its_best_evaluation():
    """Given runs without a verdict. Expect the best greedy mean, or that there was none."""
    never = {"eval_return_mean": None, "train_seconds": None}
    assert demo_module._judged(never | {"greedy_return_best": 147.8}).endswith("was 147.8")
    assert demo_module._judged(never) == "no greedy evaluation yet"


def test_a_demo_says_that_it_judges(tmp_path, capsys, monkeypatch):
    """Given a network that is tried, reached the mark and plays its last episodes. Expect the
    learner and the demo to say how far that is, in place of rates that stand still."""
    monkeypatch.setitem(solved.EPISODES, "evaluate", 4)
    monkeypatch.setattr(evaluate, "SHOW_S", 0.0)
    said, spec = [], table_for(SETTINGS).step
    run = Run(tmp_path, "learner", {}, tensorboard=False)
    judge = solved.Judge(SETTINGS, spec, mark=0.0, seed=1, run=run, show=said.append)
    demo = PlanRun(options.Demo(run=tmp_path), SETTINGS, tmp_path)
    demo.progress.every_s = 0.0

    def look(*far, real=judge._report):
        real(*far)
        demo.show_progress()

    monkeypatch.setattr(judge, "_report", look)
    assert judge.verdict_on(Learner(spec=spec, actions=2, preset=SETTINGS, seed=1)) is not None
    judge.close()
    run.close()
    assert said[0].startswith("judging the newest weights: 0 of 20 episodes ended, the others at")
    assert "judging what reached the mark: 0 of 4 episodes ended" in said
    assert "of 4 episodes ended, the others at step" in said[-1]
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" s | ")[2] for line in lines] == said
    demo.close()
