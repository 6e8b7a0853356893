"""A run whose processes are killed, one after another: each comes back, or the run says why not.

The programs are real, over UDP on this machine; waits are for conditions, each with a bound.
"""

from __future__ import annotations

import json
import signal
import sys

import pytest
from running import BOUND_S, Running
from until import until

from deploy.fleet import RESTARTS_MAX, Fleet
from deploy.launch import Command
from deploy.networks import network
from deploy.plan import SHIPPED, load
from deploy.processes import TORCHRUN, Process
from replay_server.training.presets import CARTPOLE


def test_what_is_killed_comes_back(tmp_path):
    """Given a run with workers apart. Expect actor and learner to go on each time that one of the
    processes is killed: a worker, the actor, the learner, the server; a line that says so; and
    nothing left running behind Ctrl-C."""
    running = Running(tmp_path, "environments")
    try:
        running.grow("actor-0", "learner")
        port = running.folder / "environments-1.log"
        serves = port.read_text().split()[2].rstrip(":")
        for words, name in (
            (f"--serve {serves}", "environments-1"),
            ("-m replay_server actor", "actor-0"),
            ("-m replay_server learner", "learner"),
            ("-m replay_server serve", "server"),
        ):
            running.stop(words)
            running.comes_back(name)
            running.grow("actor-0", "learner")
            log = (running.folder / "actor-0.log").read_text()
            if name == "environments-1":
                assert "new episodes begin once they answer again" in log
                assert "the server" not in log.replace("serving", "")
    finally:
        running.end()


def test_actor_and_learner_in_one_process_come_back(tmp_path):
    """Given single-learner-fine, whose one process is killed before there can be a second
    checkpoint, and again. Expect it to go on from the newest each time, with the run's options."""
    running = Running(tmp_path, "single-learner-fine")
    try:
        for _ in range(2):
            running.grow("actor-0", "learner")
            running.stop("-m replay_server together")
            running.comes_back("together")
        running.grow("actor-0", "learner")
        log = (running.folder / "together.log").read_text()
        assert log.count("resumed from step-") == 2, log
    finally:
        running.end()


def test_learners_of_weights_elsewhere_come_back(tmp_path):
    """Given the plan central, of whose two learners one is killed, then who keeps the weights.
    Expect both to come back, the latter from its checkpoint, and all to go on."""
    running = Running(tmp_path, "central", "--envs", "2")
    try:
        running.grow("actor-0", "learner", "learner-1", "learner-2")
        running.stop("--number 2")
        running.comes_back("learner-2")
        running.grow("actor-0", "learner", "learner-1", "learner-2")
        running.stop("--gradients")
        running.comes_back("learner")
        running.grow("actor-0", "learner", "learner-1", "learner-2")
        assert "resumed from step-" in (running.folder / "learner.log").read_text()
    finally:
        running.end()
    for name in ("learner", "learner-1", "learner-2"):
        rates = [line.get("perf/learner_sps", 0.0) for line in running.metrics.read(name)]
        assert min(rates) >= 0.0, "a rate is that of its own updates"
    waited = [line.get("phase/idle", 0.0) for line in running.metrics.read("learner")]
    assert max(waited) > 0.1, "who keeps weights waits for gradients"


def test_turns_go_on_over_whatever_ends(tmp_path):
    """Given a run in turns with two actors. Expect it to go on when the server is killed, which
    comes back without weights; when an actor is killed; and when one is told to end, which is
    started again, since its steps are not played."""
    plan = tmp_path / "turns.toml"
    text = (SHIPPED / "single-learner-coarse.toml").read_text()
    plan.write_text(text.replace("policy", "synchronous = true\npolicy", 1))
    running = Running(tmp_path, str(plan), "--actors", "2")
    try:
        running.grow("actor-0", "actor-1", "learner")
        for words, name, number in (
            ("-m replay_server serve", "server", signal.SIGKILL),
            ("--number 1", "actor-1", signal.SIGKILL),
            ("--number 1", "actor-1", signal.SIGTERM),
        ):
            running.stop(words, number)
            running.comes_back(name, 0 if number == signal.SIGTERM else -number)
            running.grow("actor-0", "actor-1", "learner")
    finally:
        running.end()


def test_turns_go_on_with_the_actors_that_are_left(tmp_path):
    """Given a run in turns whose actors have few steps to play, of which one had a start. Expect
    the run to end by itself, with all steps played."""
    plan = tmp_path / "turns.toml"
    text = (SHIPPED / "single-learner-coarse.toml").read_text()
    plan.write_text(text.replace("policy", "synchronous = true\npolicy", 1))
    running = Running(tmp_path, str(plan), "--actors", "2", "--env-steps", "4000")
    try:
        until(lambda: running.lines("actor-1") > 0, "it plays", BOUND_S, said=running.said)
        running.stop("--number 1")  # what it played since its last line it plays again
        assert running.run.child.wait(BOUND_S) == 0, running.said()
        assert "not solved in 4,000 steps" in running.said()
    finally:
        running.run.end()


def test_a_run_in_one_process_ends_with_its_steps(tmp_path):
    """Given single-learner-fine and few steps to play. Expect the run to end behind them."""
    running = Running(tmp_path, "single-learner-fine", "--env-steps", "3000")
    try:
        assert running.run.child.wait(BOUND_S) == 0, running.said()
        assert "not solved in 3,000 steps" in running.said()
    finally:
        running.run.end()


@pytest.mark.parametrize("plan", ["single-learner-coarse", "single-learner-fine"])
def test_a_run_ends_with_its_updates(tmp_path, plan):
    """Given a learner that is to make 50 updates. Expect the run to end behind them, with no
    restart, and its summary to have just as many."""
    options = tmp_path / "run.toml"
    options.write_text("[learner]\nupdates = 50\n")
    running = Running(tmp_path, plan, "--config", str(options))
    try:
        assert running.run.child.wait(BOUND_S) == 0, running.said()
    finally:
        running.run.end()
    summary = json.loads((running.folder / "summary.json").read_text())
    assert summary["learner_steps"] == 50 and summary["restarts"] == 0
    assert (running.folder / "checkpoints" / "step-000000050.json").exists()


@pytest.mark.parametrize("plan", ["single-learner-coarse", "single-learner-fine"])
def test_a_last_checkpoint_that_is_lost_is_said(tmp_path, plan):
    """Given a learner that cannot write its last checkpoint as the run is interrupted. Expect exit
    code 2, and the learner's sentence in what the run says."""
    running = Running(tmp_path, plan)
    try:
        running.grow("actor-0", "learner")
        folder = running.folder / "checkpoints"
        folder.rename(tmp_path / "elsewhere")
        folder.write_text("a file in its place")
        running.run.child.send_signal(signal.SIGINT)
        assert running.run.child.wait(BOUND_S) == 2, running.said()
    finally:
        running.run.end()
    assert "no last checkpoint" in running.said()
    assert running.left() == []


def test_a_folder_is_used_again(tmp_path):
    """Given a run that was interrupted before anybody wrote metrics, and another in its folder.
    Expect it to reach its own server, not the address in the log of the first."""
    first = Running(tmp_path, "single-learner-coarse")
    try:
        until(lambda: "serving at" in first.said(), "it serves", BOUND_S, said=first.said)
    finally:
        first.end()
    first.metrics.path.unlink(missing_ok=True)
    second = Running(tmp_path, "single-learner-coarse")
    try:
        second.grow("actor-0", "learner")
    finally:
        second.end()


def test_a_folder_has_one_run(tmp_path):
    """Given a run, and another one started in the same folder before there are metrics. Expect the
    second refused with the first one's process, and the first one's options left as they are."""
    first = Running(tmp_path, "single-learner-coarse", "--seed", "1")
    try:
        lock = tmp_path / "run" / "run.lock"
        until(lambda: lock.exists() and lock.read_text(), "it has its folder", BOUND_S)
        second = Running(tmp_path, "single-learner-coarse", "--seed", "2")
        assert second.run.child.wait(BOUND_S) == 2
        assert f"runs already (process {first.run.child.pid})" in second.said()
        first.grow("actor-0", "learner")
        assert "seed = 1\n" in (tmp_path / "run" / "config.toml").read_text()
    finally:
        first.end()


def test_learners_that_are_one_lose_nothing_as_they_end(tmp_path):
    """Given two learners held back by the limiter as the run is told to end. Expect neither to be
    killed, and a checkpoint of the last step."""
    running = Running(tmp_path, "multiple-learners", "--envs", "1", "--steps-per-update", "64")
    try:
        running.grow("actor-0", "learner")
    finally:
        running.end()
    assert "killed" not in running.said()
    logged = max(line.get("step", 0) for line in running.metrics.read("learner"))
    newest = max((running.folder / "checkpoints").glob("step-*.json"))
    assert int(newest.stem.removeprefix("step-")) >= logged


@pytest.fixture
def fleet(tmp_path):
    said = []
    plan, done = load("multiple-learners"), set()
    made = Fleet(plan, CARTPOLE, tmp_path, network("udp"), said.append, done.__contains__)
    made.said, made.done = said, done
    yield made
    made.close()


def ending(fleet, name, kind, code, variables=None):
    """A process of this kind that ends with this code, and has ended."""
    process = Process(
        name,
        [sys.executable, "-c", f"print('words'); raise SystemExit({code})"],
        fleet.folder / f"{name}.log",
    )
    process.child.wait(30)
    fleet.processes.append(process)
    fleet.asked[name] = Command(name, kind, (), variables or {})


@pytest.mark.parametrize(
    ("name", "kind", "code", "why"),
    [
        ("actor-0", "actor", 2, ""),
        ("learner-1", "learner", 1, ", and its part of the averaged gradients is missing"),
        ("learner-1", "learner", 0, ", and its part of the averaged gradients is missing"),
        ("actor-1", "actor", 1, f", after {RESTARTS_MAX} restarts"),
    ],
    ids=["asked wrong", "one of several learners", "one of them, too early", "again and again"],
)
def test_what_cannot_come_back_ends_the_run(fleet, name, kind, code, why):
    """Given a process that would fail again, or whose place no other one can take. Expect an error
    with its name, its code, why it does not come back, and what it said last."""
    fleet.restarts["actor-1"] = RESTARTS_MAX
    ending(fleet, name, kind, code, {"WORLD_SIZE": "2"} if kind == "learner" else {})
    with pytest.raises(RuntimeError, match=rf"{name} ended \({code}\){why}.*:\nwords"):
        fleet.look()


def test_what_is_done_is_left_in_peace(fleet):
    """Given an actor and a learner that ended with nothing left to do. Expect nothing."""
    ending(fleet, "actor-0", "actor", 0)
    ending(fleet, "together", "together", 0)
    fleet.done |= {"actor-0", "learner"}
    fleet.look()
    assert fleet.said == [] and fleet.restarts == {}


def test_programs_are_not_told_of_a_torchrun_around_them(fleet, monkeypatch):
    """Given a shell in which torchrun's variables are set. Expect a process without them, but with
    those that the plan gives it."""
    strange = (*TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID")
    for name in strange:
        monkeypatch.setenv(name, "7")
    told = {}
    monkeypatch.setattr(
        "deploy.engines.Process", lambda name, command, log, variables: told.update(variables)
    )
    fleet.start(Command("learner", "learner", (), {"RANK": "1"}))
    assert told["RANK"] == "1" and not set(told) & set(strange) - {"RANK"}
    fleet.processes.clear()


def test_what_dies_again_and_again_ends_the_run(fleet, monkeypatch):
    """Given an actor that dies each time it is started. Expect RESTARTS_MAX more of them, each with
    a line, then an error."""
    monkeypatch.setattr(
        Fleet, "start", lambda self, command: ending(self, command.name, "actor", 1)
    )
    ending(fleet, "actor-0", "actor", 1)
    for _ in range(RESTARTS_MAX):
        fleet.look()
    with pytest.raises(RuntimeError, match=r"actor-0 ended \(1\)"):
        fleet.look()
    assert len(fleet.said) == RESTARTS_MAX


def test_a_learner_goes_on_from_its_checkpoint(fleet, monkeypatch):
    """Given a single learner that was killed, with a checkpoint there. Expect --resume, once."""
    started = []
    monkeypatch.setattr(Fleet, "start", lambda self, command: started.append(command.words))
    (fleet.folder / "checkpoints").mkdir()
    for i in range(2):
        fleet.processes.clear()
        ending(fleet, "learner", "learner", 1)
        fleet.asked["learner"] = Command("learner", "learner", ("learner", "train"))
        if i == 1:
            (fleet.folder / "checkpoints" / "step-1.json").write_text("{}")
        fleet.look()
    assert started == [("learner", "train"), ("learner", "train", "--resume", str(fleet.folder))]
