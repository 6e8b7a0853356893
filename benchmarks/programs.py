"""Programs of an experiment: processes that take orders a line, and answer each with a line.

    commands = {"server": command("benchmarks.paper.t2a_programs", {"role": "server", ...})}
    (program,) = start(commands, folder, stack).values()
    program.ask("go", core=1)

A program is a class whose public methods are its orders; `run` makes one of it. Orders and answers
are JSON objects, as those of `replay_server.bench.ladder.End`, which starts and ends the process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from replay_server import ReplayError, _native
from replay_server._native import Service, lib
from replay_server.bench.ladder import End
from replay_server.server import Config, ServerOptions
from replay_server.table import Table

IDLE_MS = 3_600_000  # a program that waits for its turn says nothing


def command(module: str, described: dict[str, Any]) -> list[str]:
    """The command of a program."""
    return [sys.executable, "-m", module, json.dumps(described)]


def start(commands: Mapping[str, Sequence[str]], folder: Path, stack: ExitStack) -> dict[str, End]:
    """{name: its program}, started side by side; `stack` ends them. Raises what one answered.

    All are in this process's session. Linux's autogroup gives each session the same share of a busy
    core, so a server in one of its own would be ahead of an engine in a learner by that alone.
    """
    return End.all(commands, folder, stack, own_session=False)


class Engine:
    """The engine that serves: the same code in a process of its own and in a learner's. Its thread
    is started and stopped, so that an engine that waits for its turn takes no time of another's."""

    def __init__(
        self, tables: Sequence[Table], url: str, sessions: int, busy_poll: bool = False
    ) -> None:
        options = ServerOptions(
            url, insecure=True, sessions=sessions, idle_ms=IDLE_MS, weights_max=0, batch_max=2048
        )
        config = Config(tuple(tables), options, seed=1)  # owns what config.raw points to
        # the address is this host's own, or in a namespace made for this
        self.service = Service(config.raw, url, insecure=1, busy_poll=busy_poll)

    @property
    def address(self) -> str:
        """What it serves at."""
        return _native.text(lib.rp_service_address(self.service.raw))

    def go(self, core: int) -> None:
        """Its thread runs from now on, on that core, as whatever this process starts later."""
        pin(core)
        _native.check(lib.rp_service_start(self.service.raw), "starting the engine's thread")

    def halt(self) -> None:
        """Its thread has ended; what is stored stays."""
        _native.check(lib.rp_service_stop(self.service.raw), "stopping the engine's thread")

    def close(self) -> None:
        """Frees its memory."""
        self.service.close()


def pin(core: int) -> None:
    """The calling thread, and those it starts, to that core; nothing where it is below 0."""
    if core >= 0 and _native.PINS:
        os.sched_setaffinity(0, {core})


def run(make: Callable[..., Any], described: str) -> int:
    """Answers orders until the input ends; 1 where one could not be followed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this ends its input
    program = None
    try:
        program = make(**json.loads(described))
        _say(program.facts())
        for line in sys.stdin:
            order = json.loads(line)
            _say(getattr(program, order.pop("do"))(**order) or {})
    except (ReplayError, OSError) as error:
        _say({"error": str(error)})
        return 1
    finally:
        if program is not None:
            program.close()
    return 0


def _say(fields: dict[str, Any]) -> None:
    print(json.dumps(fields), flush=True)
