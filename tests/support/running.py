"""`run` of a plan as a person starts it, looked at and disturbed by a test."""

from __future__ import annotations

import os
import signal
import sys

from until import until

from deploy.processes import Process
from replay_server.training.runs import Metrics

OPTIONS = ["--envs", "4", "--batch", "32", "--min-size", "200", "--capacity", "50000"]
OPTIONS += ["--hidden", "16", "--no-tensorboard", "--minutes", "5", "--solve-at", "1e9"]
BOUND_S = 60.0


class Running:
    """`run` of one plan as a person starts it, and what its metrics say."""

    def __init__(self, tmp_path, plan, *options):
        self.folder, self.metrics = tmp_path / "run", Metrics(tmp_path / "run")
        command = [sys.executable, "-u", "-m", "deploy", "run", "--plan", plan]
        command += ["--run", str(self.folder), *OPTIONS, *options]
        self.run = Process("run", command, tmp_path / "run.log")

    def said(self):
        """The end of what it printed."""
        return self.run.last_lines(12)

    def lines(self, program):
        """How many lines of metrics with a step above 0 this program wrote."""
        lines = self.metrics.read(program) if self.metrics.path.exists() else []
        return sum(line.get("step", 0) > 0 for line in lines)

    def grow(self, *programs, seconds=BOUND_S):
        """Waits until each of these programs has gone on from where it is."""
        before = [self.lines(program) for program in programs]

        def grown():
            assert self.run.ended() is None, self.said()
            after = [self.lines(program) for program in programs]
            return all(new > old + 1 for new, old in zip(after, before, strict=True))

        until(grown, f"{programs} go on", seconds, said=self.said)

    def stop(self, words, number=signal.SIGKILL):
        """Sends a signal to the one process of this run whose command line holds these words."""
        parent = self.run.child.pid
        (pid,) = [pid for pid, line in processes() if words in line and parent_of(pid) == parent]
        os.kill(pid, number)

    def comes_back(self, name, code=-signal.SIGKILL):
        """Waits for the line that says so."""
        line = f"{name} ended ({code}) and is started again"
        until(lambda: line in self.said(), line, BOUND_S, said=self.said)

    def end(self):
        """Ctrl-C; nothing may be left running."""
        self.run.child.send_signal(signal.SIGINT)
        assert self.run.child.wait(BOUND_S) == 130, self.said()
        assert self.left() == []

    def left(self):
        """The command lines of its processes that still run."""
        return [line for _, line in processes() if str(self.folder) in line]


def parent_of(pid):
    """The process id of its parent; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def processes():
    """(process id, command line) of every process of this machine."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                yield int(pid), file.read().replace(b"\0", b" ").decode()
        except OSError:
            continue
