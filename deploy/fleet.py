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

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit

from deploy.engines import Engine
from deploy.launch import Command, Places, commands
from deploy.networks import Network
from deploy.plan import Plan
from deploy.processes import GRACE_S, Logged
from deploy.table import server_toml
from replay_server.training import options
from replay_server.training.presets import Preset

START_S = 30.0
RESTARTS_MAX = 5
EXIT_ASKED_WRONG = 2
ENDED_FIRST = ("actor", "together", "environments", "learner", "weights", "server")
KINDS_OF = {"together": ("actor", "learner"), "weights": ("keeper of weights",)}
RESUMED = ("together", "learner", "weights")  # from a checkpoint


class Fleet:
    """Of one plan. `say` gets a line for each thing that happens; `finished` says whether the
    actor or learner of this name did all that it was asked for.

    shared: workers that another fleet starts, of a task of several agents. processes: those that
    were started and are not replaced.
    """

    def __init__(
        self,
        plan: Plan,
        settings: Preset,
        folder: Path,
        network: Network,
        say: Callable[[str], None],
        finished: Callable[[str], bool],
        engine: Engine | None = None,
        shared: Sequence[str] = (),
    ) -> None:
        self.engine, self.shared = engine or Engine(), shared
        self.plan, self.settings, self.folder, self.network = plan, settings, folder, network
        self.say, self.finished = say, finished
        self.processes: list[Logged] = []
        self.planned: dict[str, Command] = {}  # as they were started first
        self.asked: dict[str, Command] = {}
        self.restarts: dict[str, int] = {}
        self.address = ""  # what the server says of itself

    def start_all(self, args: options.Demo) -> None:
        """Workers and server first: the others need their addresses."""
        metrics = ["--metrics", args.metrics] if args.metrics else []
        toml = self.folder / "server.toml"
        server = Command("server", "server", ("serve", str(toml), *metrics))
        server = replace(server, process=self.plan.process_of("replay"))
        self.engine.place([server, *self.others(Places())])  # by name and size
        url = self.network.at(self.engine.host("server"))
        in_turns = self.plan.in_turns
        toml.write_text(server_toml(self.settings, url=url, seed=args.seed, in_turns=in_turns))
        others = self.others(self.engine)
        self.planned = {command.name: command for command in (server, *others)}
        for command in others:
            if command.kind == "environments":
                self.start(command)
        self.serve()
        self.say(f"serving at {self.address}; {self.names(others)} are starting")
        for command in others:
            if command.kind != "environments":
                self.start(command)

    def others(self, places: Places) -> list[Command]:
        """The commands of all but the server, with the addresses that these places have now."""
        settings = self.settings
        table = (self.folder, settings.envs, settings.env, settings.protocol)
        return commands(self.plan, *table, places, self.shared, settings.backend)

    def serve(self) -> None:
        """Starts the server where its engine has a place for it; there it comes back."""
        server = self.planned["server"]
        at = ("--url", self.network.at(self.engine.host("server")), *self.engine.open("server"))
        first = replace(server, words=(*server.words, *at))
        self.address = self.wait_for_address(self.start(first))
        back = (*server.words, "--url", self.address, *self.engine.open("server"))
        self.asked["server"] = replace(server, words=back)

    @staticmethod
    def names(others: list[Command]) -> str:
        """Of the programs that come behind the server, for a person."""
        kinds = [c.kind for c in others if c.kind != "environments"]
        kinds = [k for kind in kinds for k in KINDS_OF.get(kind, (kind,))]
        counted = [(kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)]
        return " and ".join(kind if n == 1 else f"{n} {kind}s" for kind, n in sorted(counted))

    def start(self, command: Command) -> Logged:
        """One more process, its output in RUN/NAME.log."""
        words = list(command.words)
        if command.served:
            words += ["--server", self.network.address(self.address)]
        full = [sys.executable, "-u", "-m", "replay_server", *words]
        inside = self.network.served if command.kind == "server" else self.network.reached
        log = self.folder / f"{command.name}.log"
        process = self.engine.start(command.name, inside(full), log, command.variables)
        self.asked[command.name] = command
        self.processes.append(process)
        return process

    def start_beside(self, name: str, words: tuple[str, ...], folder: Path) -> Logged:
        """A process that belongs to no fragment: its caller looks after it. Its log lies there."""
        full = [sys.executable, "-u", "-m", "replay_server", *words]
        return self.engine.start(name, full, folder / f"{name}.log", {})

    def wait_for_address(self, server: Logged) -> str:
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
            if process not in self.processes:
                continue  # it followed another one to a new host
            if code is None or (code == 0 and self.is_done(process)):
                continue
            if code == EXIT_ASKED_WRONG or not self.may_restart(process.name):
                why = "" if code == EXIT_ASKED_WRONG else self.why_not(process.name)
                raise RuntimeError(f"{process.name} ended ({code}){why}:\n{process.last_lines()}")
            self.restart(process, code)

    def is_done(self, process: Logged) -> bool:
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

    def restart(self, process: Logged, code: int) -> None:
        """Starts it again: who saves checkpoints from the newest, if there is one."""
        name, reason = process.name, f": {process.reason}" if process.reason else ""
        self.restarts[name] = self.restarts.get(name, 0) + 1
        self.processes.remove(process)
        self.say(
            f"{name} ended ({code}{reason}) and is started again "
            f"({self.restarts[name]} of {RESTARTS_MAX}): see {process.log}"
        )
        if self.engine.moved(name):
            self.follow(name)
        else:
            self.start(self.resumed(self.asked[name]))

    def resumed(self, command: Command) -> Command:
        """The same, from the newest checkpoint where it saves them and there is one."""
        words = command.words
        saved = any((self.folder / "checkpoints").glob("*.json"))
        saves = command.kind in RESUMED and "--central" not in words
        if saves and saved and "--resume" not in words:
            words = (*words, "--resume", str(self.folder))
        return replace(command, words=words)

    def follow(self, name: str) -> None:
        """Starts it on its new host, and again whoever was told of an address that is no more."""
        server, others = self.planned["server"], self.others(self.engine)
        host = self.engine.host(name)
        moved = {c.name for c in others if c != self.planned[c.name]} | {name}
        self.planned = {command.name: command for command in (server, *others)}
        if name == "server" or urlsplit(self.address).hostname != self.engine.host("server"):
            moved |= {"server"} | {command.name for command in others if command.served}
        left = self.processes_of(moved)
        for process in left:
            process.tell()
        for process in left:
            process.end()
        self.processes = [process for process in self.processes if process not in left]
        others_moved = ", ".join(sorted(moved - {name}))
        more = f"; started again with new addresses: {others_moved}" if others_moved else ""
        self.say(f"{name} is on host {host} now{more}")
        if "server" in moved:
            self.serve()
        for command in others:
            if command.name in moved:
                self.start(self.resumed(command))

    def processes_of(self, names: set[str]) -> list[Logged]:
        """Those of these names."""
        return [process for process in self.processes if process.name in names]

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

    def of_kind(self, *kinds: str) -> list[Logged]:
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

    def _end(self, kind: str, group: list[Logged]) -> list[str]:
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

    def in_order(self) -> Iterator[tuple[str, list[Logged]]]:
        """(kind, its processes), as they are ended."""

        def place(process: Logged) -> int:
            return ENDED_FIRST.index(self.asked[process.name].kind)

        for i, group in groupby(sorted(self.processes, key=place), place):
            yield ENDED_FIRST[i], list(group)


def killed(name: str, kind: str, folder: Path) -> str:
    """That a program had to be killed, and what is lost of a learner's work."""
    said = f"the {name} did not end within {GRACE_S:g} s of being told to, and was killed"
    if kind not in ("learner", "together", "weights"):
        return said
    kept = [path.stem.rpartition("-")[2] for path in (folder / "checkpoints").glob("*-*.json")]
    step = max((int(number) for number in kept if number.isdigit()), default=None)
    since = "" if step is None else f" since its newest checkpoint (learner step {step})"
    return f"{said}: what it learned{since} may be lost"
