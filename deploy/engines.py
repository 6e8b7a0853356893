"""What starts the processes of a run: this program, or Ray on the hosts of a cluster.

An engine is the `Places` of its processes (launch.py), and

    place(commands)   finds a place for each before anything starts; ConfigError where there is none
    start(...)        one process (processes.py has its methods)
    moved(name)       before a process is started again: whether its host is another one now
    close()           gives the places back

Ray is imported where a plan or --engine names it, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from deploy.launch import Command, Places
from deploy.plan import Plan, PlanError
from deploy.processes import Logged, Process, is_torchruns

INSTALL = "pip install 'replay-server[ray]'"


class Engine(Places):
    """Processes of this machine, children of this program."""

    def place(self, commands: Sequence[Command]) -> None:
        """There is always one more."""

    def start(
        self, name: str, command: Sequence[str], log: Path, variables: Mapping[str, str]
    ) -> Logged:
        """One more process, its output in `log`; `variables` beside this program's own."""
        own = {name: value for name, value in os.environ.items() if not is_torchruns(name)}
        return Process(name, command, log, {**own, **variables})

    def moved(self, name: str) -> bool:
        """This machine is where it was."""
        return False

    def close(self) -> None:
        """There is nothing to give back."""


def require_installed(plan: Plan) -> None:
    """PlanError where what is to start the processes is not there."""
    if plan.engine == "ray" and find_spec("ray") is None:
        raise PlanError(f"engine 'ray': Ray is not installed here: {INSTALL}")


def engine(plan: Plan, folder: Path, address: str = "", insecure: bool = False) -> Engine:
    """That of the plan. address: of Ray's cluster. insecure: hosts may reach one another's
    processes."""
    if plan.engine != "ray":
        return Engine()
    from deploy.ray_engine import RayEngine

    return RayEngine(folder, address, insecure)
