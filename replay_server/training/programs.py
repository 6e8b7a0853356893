"""The training programs by name: `replay-server demo`, `replay-server actor`, `... learner`.

In a checkout they are the folders actor/, learner/ and deploy/. A wheel carries the same folders
below `replay_server/_programs`: packages called `actor` or `deploy` in site-packages would be
imported in place of the folders of that name that many a project has. Either way a program finds
its own packages first. They need more than the client does, so they are imported only here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ..errors import ConfigError


@dataclass(frozen=True)
class Program:
    """A package's module with a main, the words its command line begins with, what it does."""

    package: str
    first: tuple[str, ...]
    sentence: str
    module: str = "__main__"


PROGRAMS = {
    "demo": Program(
        "deploy", ("demo",), "server, actor and learner here, until CartPole is solved"
    ),
    "run": Program("deploy", ("run",), "the training loop on processes, by a plan"),
    "actor": Program("actor", (), "play environments and push every step"),
    "environments": Program(
        "actor", (), "step environments for an actor that is elsewhere", module="worker"
    ),
    "together": Program(
        "deploy", (), "actor and learner in one process, as `run` starts them", module="together"
    ),
    "learner": Program("learner", (), "train on what the server draws, or evaluate a checkpoint"),
}
NEEDED = ("torch", "gymnasium", "safetensors", "matplotlib")  # the extra [train]


def home() -> Path:
    """The folder that the programs' packages lie in: inside a wheel's package, else beside it."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_programs"
    return inside if inside.is_dir() else package.parent


def run_program(name: str, arguments: Sequence[str]) -> int:
    """Runs a program of PROGRAMS with its command line; its exit code."""
    if missing := [needed for needed in NEEDED if find_spec(needed) is None]:
        raise ConfigError(
            f"`{name}` trains a network and needs {' and '.join(missing)}, not installed here: "
            f"pip install 'replay-server[train]'"
        )
    program = PROGRAMS[name]
    sys.path.insert(0, str(home()))
    return import_module(f"{program.package}.{program.module}").main([*program.first, *arguments])
