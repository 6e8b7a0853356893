"""A run whose processes are killed, one after another: each comes back, or the run says why not.

The programs are real, over UDP on this machine; waits are for conditions, each with a bound.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest
from until import until

from deploy.fleet import RESTARTS_MAX, Fleet
from deploy.launch import Command
from deploy.networks import network
from deploy.plan import load
from deploy.processes import Process
from replay_server.training.presets import CARTPOLE
from replay_server.training.runs import Metrics

OPTIONS = ["--envs", "4", "--batch", "32", "--min-size", "200", "--capacity", "50000"]
OPTIONS += ["--hidden", "16", "--no-tensorboard", "--minutes", "5", "--solve-at", "1e9"]
BOUND_S = 60.0


class Running:
    """`run` of one plan as a person starts it, and what its metrics say."""

    def __init__(self, tmp_path, plan):
        self.folder, self.metrics = tmp_path / "run", Metrics(tmp_path / "run")
        command = [sys.executable, "-u", "-m", "deploy", "run", "--plan", plan]
        command += ["--run", str(self.folder), *OPTIONS]
        self.run = Process("run", command, tmp_path / "run.log")

    def said(self):
        """The end of what it printed."""
        return self.run.last_lines(12)

    def step(self, program):
        """The newest step that this program logged."""
        lines = self.metrics.read(program) if self.metrics.path.exists() else []
        return max((line["step"] for line in lines if "step" in line), default=0)

    def both_grow(self):
        """Waits until actor and learner have both gone on from where they are."""
        before = [self.step("actor-0"), self.step("learner")]

        def grown():
            assert self.run.ended() is None, self.said()
            after = [self.step("actor-0"), self.step("learner")]
            return all(new > old for new, old in zip(after, before, strict=True))

        until(grown, "actor and learner go on", BOUND_S, said=self.said)

    def kill(self, words):
        """kill -9 of the one process of this run whose command line holds these words."""
        mine = [pid for pid, line in children() if words in line and str(self.folder) in line]
        (pid,) = mine or [pid for pid, line in children() if words in line]
        os.kill(pid, signal.SIGKILL)


def children():
    """(process id, command line) of every process of this machine."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                yield int(pid), file.read().replace(b"\0", b" ").decode()
        except OSError:
            continue


def test_what_is_killed_comes_back(tmp_path):
    """Given a run with workers apart. Expect actor and learner to go on each time that one of the
    processes is killed: a worker, the actor, the learner, the server; a line that says so; and
    nothing left running behind Ctrl-C."""
    running = Running(tmp_path, "environments")
    try:
        running.both_grow()
        port = running.folder / "environments-1.log"
        serves = port.read_text().split()[2].rstrip(":")
        for words, name in (
            (f"--serve {serves}", "environments-1"),
            ("-m replay_server actor", "actor-0"),
            ("-m replay_server learner", "learner"),
            ("-m replay_server serve", "server"),
        ):
            running.kill(words)
            until(
                lambda name=name: f"{name} ended (-9) and is started again" in running.said(),
                f"{name} is started again",
                BOUND_S,
                said=running.said,
            )
            running.both_grow()
            log = (running.folder / "actor-0.log").read_text()
            if name == "environments-1":
                assert "new episodes begin once they answer again" in log
                assert "the server" not in log.replace("serving", "")
    finally:
        running.run.child.send_signal(signal.SIGINT)
        assert running.run.child.wait(60) == 130, running.said()
    assert [line for _, line in children() if str(running.folder) in line] == []


@pytest.fixture
def fleet(tmp_path):
    said = []
    made = Fleet(load("multiple-learners"), CARTPOLE, tmp_path, network("udp"), said.append)
    made.said = said
    yield made
    made.close()


def ending(fleet, name, kind, code):
    """A process of this kind that ends with this code, and has ended."""
    process = Process(
        name,
        [sys.executable, "-c", f"print('words'); raise SystemExit({code})"],
        fleet.folder / f"{name}.log",
    )
    process.child.wait(30)
    fleet.processes.append(process)
    fleet.asked[name] = Command(name, kind, ())


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [("actor-0", "actor", 2), ("learner-1", "learner", 1), ("learner", "weights", 1)],
    ids=["asked wrong", "one of several learners", "the weights"],
)
def test_what_cannot_come_back_ends_the_run(fleet, name, kind, code):
    """Given a process that would fail again, or whose place no other one can take. Expect an error
    with its name, its code and what it said last."""
    ending(fleet, "learner", "learner", 0)
    if kind == "learner":
        ending(fleet, name, kind, code)
    else:
        fleet.processes.clear()
        ending(fleet, name, kind, code)
    with pytest.raises(RuntimeError, match=rf"{name} ended \({code}\):\nwords"):
        fleet.look()


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
