"""Child processes that never outlive their parent, and how they are ended: politely, then surely.

Each child leads a session of its own (a terminal's Ctrl-C reaches only the parent, which then ends
its children in order) and is killed by the kernel if the parent dies without doing so (Linux).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from replay_server.support.parents import end_with

GRACE_S = 5.0
TORCHRUN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
)


def is_torchruns(variable: str) -> bool:
    """Whether a torchrun around this run means it: for programs of its own, not for these."""
    return variable in TORCHRUN or variable.startswith("TORCHELASTIC_")


class Logged:
    """What is said in a file, wherever the program runs."""

    reason = ""  # why it ended, where its exit code does not say

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self.told = False  # to end
        self.killed = False  # it did not end by itself then
        log.parent.mkdir(parents=True, exist_ok=True)
        self.begin = log.stat().st_size if log.exists() else 0  # what another one said before

    def lines(self) -> list[str]:
        """What it has said."""
        if not self.log.exists():
            return []
        with open(self.log, "rb") as file:
            file.seek(self.begin)
            return file.read().decode(errors="replace").splitlines()

    def last_lines(self, count: int = 5) -> str:
        """The end of its output, for an error message."""
        return "\n".join(self.lines()[-count:])


class Process(Logged):
    """One program with its output in a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """variables: its environment; None: this program's."""
        super().__init__(name, log)
        with open(log, "ab") as output:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
                preexec_fn=partial(end_with, os.getpid()),
            )

    def ended(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.child.poll()

    def tell(self) -> None:
        """SIGTERM, if it still runs; once, since programs take a second one for impatience."""
        if self.child.poll() is None and not self.told:
            self.told = True
            self.child.terminate()

    def end(self, grace_s: float = GRACE_S) -> int:
        """SIGTERM, then SIGKILL after `grace_s`; the exit code."""
        if self.child.poll() is None:
            self.tell()
            try:
                self.child.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.killed = True
        return self.child.wait()
