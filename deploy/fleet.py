"""The processes of a run: started in order, started again where that helps, ended in order.

What ended before its work was done is started again: an actor, a worker; a learner, or whoever
keeps its weights, from its newest checkpoint; and a server, empty, at its address, to which actors
and learner come back by themselves. Each of them RESTARTS_MAX times; and none that ended because of
what it was asked for (exit code 2), which would be so again. One of several learners whose
gradients are averaged cannot come back alone: its part is missing in every step.
What cannot come back ends the run, with the reason and the program's last lines. So does, at its
end, what could not do all that it was to do then, as a learner whose last checkpoint is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from deploy.launch import Command, commands
from deploy.networks import Network
from deploy.plan import Plan
from deploy.processes import GRACE_S, Process
from deploy.table import server_toml
from replay_server.training import options
from replay_server.training.presets import Preset

START_S = 30.0
RESTARTS_MAX = 5
EXIT_ASKED_WRONG = 2
ENDED_FIRST = ("actor", "together", "environments", "learner", "weights", "server")
KINDS_OF = {"together": ("actor", "learner"), "weights": ("keeper of weights",)}
RESUMED = ("together", "learner", "weights")  # from a checkpoint
TORCHRUN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
)


class Fleet:
    """Of one plan. `say` gets a line for each thing that happens; `finished` says whether the
    actor or learner of this name did all that it was asked for.

    processes: those that were started and are not replaced.
    """

    def __init__(
        self,
        plan: Plan,
        settings: Preset,
        folder: Path,
        network: Network,
        say: Callable[[str], None],
        finished: Callable[[str], bool],
    ) -> None:
        self.plan, self.settings, self.folder, self.network = plan, settings, folder, network
        self.say, self.finished = say, finished
        self.processes: list[Process] = []
        self.asked: dict[str, Command] = {}
        self.restarts: dict[str, int] = {}
        self.address = ""  # what the server says of itself

    def start_all(self, args: options.Demo) -> None:
        """Workers and server first: the others need their addresses."""
        toml = self.folder / "server.toml"
        toml.write_text(server_toml(self.settings, url=self.network.url, seed=args.seed))
        metrics = ["--metrics", args.metrics] if args.metrics else []
        env, protocol = self.settings.env, self.settings.protocol
        others = commands(self.plan, self.folder, self.settings.envs, env, protocol)
        for command in others:
            if command.kind == "environments":
                self.start(command)
        words = ("serve", str(toml), *metrics)
        server = self.start(Command("server", "server", words))
        self.address = self.wait_for_address(server)
        self.asked["server"] = Command("server", "server", (*words, "--url", self.address))
        self.say(f"serving at {self.address}; {self.names(others)} are starting")
        for command in others:
            if command.kind != "environments":
                self.start(command)

    @staticmethod
    def names(others: list[Command]) -> str:
        """Of the programs that come behind the server, for a person."""
        kinds = [c.kind for c in others if c.kind != "environments"]
        kinds = [k for kind in kinds for k in KINDS_OF.get(kind, (kind,))]
        counted = [(kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)]
        return " and ".join(kind if n == 1 else f"{n} {kind}s" for kind, n in sorted(counted))

    def start(self, command: Command) -> Process:
        """One more process, its output in RUN/NAME.log."""
        words = list(command.words)
        if command.served:
            words += ["--server", self.network.address(self.address)]
        full = [sys.executable, "-u", "-m", "replay_server", *words]
        inside = self.network.served if command.kind == "server" else self.network.reached
        own = {name: value for name, value in os.environ.items() if not is_torchruns(name)}
        variables = {**own, **command.variables}
        log = self.folder / f"{command.name}.log"
        process = Process(command.name, inside(full), log, variables)
        self.asked[command.name] = command
        self.processes.append(process)
        return process

    def wait_for_address(self, server: Process) -> str:
        """The url in the server's line "serving at URL"; RuntimeError where none comes."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and server.ended() is None:
            for line in server.lines():
                if line.startswith("serving at "):
                    return line.split()[2]
            time.sleep(0.02)
        raise RuntimeError(f"the server did not start:\n{server.last_lines()}")

    def look(self) -> None:
        """Starts again what died and can come back; RuntimeError where the run cannot go on."""
        for process in list(self.processes):
            code = process.ended()
            if code is None or (code == 0 and self.is_done(process)):
                continue
            if code == EXIT_ASKED_WRONG or not self.may_restart(process.name):
                why = "" if code == EXIT_ASKED_WRONG else self.why_not(process.name)
                raise RuntimeError(f"{process.name} ended ({code}){why}:\n{process.last_lines()}")
            self.restart(process, code)

    def is_done(self, process: Process) -> bool:
        """Whether it ended since it had nothing left to do, as a server never has. Several learners
        are done when the first is, whose program alone says so."""
        kind = self.asked[process.name].kind
        if kind in ("learner", "weights", "together"):
            return self.finished("learner") or self.finished(process.name)
        return kind == "actor" and self.finished(process.name)

    def may_restart(self, name: str) -> bool:
        """Whether another one may take its place."""
        command = self.asked[name]
        here = command.kind != "server" or self.plan.transport in ("udp", "zmq")
        left = self.restarts.get(name, 0) < RESTARTS_MAX
        return "WORLD_SIZE" not in command.variables and here and left

    def why_not(self, name: str) -> str:
        """Why no other one may take its place."""
        if "WORLD_SIZE" in self.asked[name].variables:
            return ", and its part of the averaged gradients is missing in every update"
        if self.restarts.get(name, 0) >= RESTARTS_MAX:
            return f", after {RESTARTS_MAX} restarts"
        return f", and over {self.plan.transport} no server comes back at its address"

    def restart(self, process: Process, code: int) -> None:
        """Starts it again: who saves checkpoints from the newest, if there is one."""
        command = self.asked[process.name]
        self.restarts[process.name] = self.restarts.get(process.name, 0) + 1
        self.processes.remove(process)
        words = command.words
        saved = any((self.folder / "checkpoints").glob("*.json"))
        saves = command.kind in RESUMED and "--central" not in words
        if saves and saved and "--resume" not in words:
            words = (*words, "--resume", str(self.folder))
        self.say(
            f"{process.name} ended ({code}) and is started again "
            f"({self.restarts[process.name]} of {RESTARTS_MAX}): see {process.log}"
        )
        self.start(replace(command, words=words))

    def running(self) -> list[dict[str, object]]:
        """{name, kind, alive} of each process, by the name that its plan has for it."""
        kinds = {"together": "learner"}
        return [
            {
                "name": process.name,
                "kind": kinds.get(kind := self.asked[process.name].kind, kind),
                "alive": process.ended() is None,
            }
            for process in list(self.processes)
        ]

    def of_kind(self, *kinds: str) -> list[Process]:
        """The processes of these kinds."""
        return [p for p in self.processes if self.asked[p.name].kind in kinds]

    def end(self) -> None:
        """Ends all but the server, whatever state they are in. RuntimeError, when all have ended,
        where one could not do what it had to do then."""
        failed = []
        for kind, group in self.in_order():
            if kind != "server":
                failed += self._end(kind, group)
        self.processes = self.of_kind("server")
        if failed:
            raise RuntimeError("\n".join(failed))

    def close(self) -> None:
        """Ends what there is, the server last, and the network."""
        for kind, group in self.in_order():
            self._end(kind, group)
        self.network.close()

    def _end(self, kind: str, group: list[Process]) -> list[str]:
        """Ends those of one kind, who are told together: learners that are one end at the same
        step. What each of them said that ended with an error."""
        running = [process for process in group if process.ended() is None]
        for process in running:
            process.tell()
        failed = []
        for process in running:
            code = process.end()
            if process.killed:
                self.say(killed(process.name, kind, self.folder))
            elif code not in (0, -signal.SIGTERM):  # that: it was still starting
                failed.append(f"{process.name} ended ({code}):\n{process.last_lines()}")
        return failed

    def in_order(self) -> Iterator[tuple[str, list[Process]]]:
        """(kind, its processes), as they are ended."""

        def place(process: Process) -> int:
            return ENDED_FIRST.index(self.asked[process.name].kind)

        for i, group in groupby(sorted(self.processes, key=place), place):
            yield ENDED_FIRST[i], list(group)


def is_torchruns(variable: str) -> bool:
    """Whether a torchrun around this run means it: for programs of its own, not for these."""
    return variable in TORCHRUN or variable.startswith("TORCHELASTIC_")


def killed(name: str, kind: str, folder: Path) -> str:
    """That a program had to be killed, and what is lost of a learner's work."""
    said = f"the {name} did not end within {GRACE_S:g} s of being told to, and was killed"
    if kind not in ("learner", "together", "weights"):
        return said
    kept = [path.stem.rpartition("-")[2] for path in (folder / "checkpoints").glob("*-*.json")]
    step = max((int(number) for number in kept if number.isdigit()), default=None)
    since = "" if step is None else f" since its newest checkpoint (learner step {step})"
    return f"{said}: what it learned{since} is lost"
