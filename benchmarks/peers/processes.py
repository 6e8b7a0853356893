"""The driver's end of a worker: orders, answers, and what the kernel counts of its processes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .environments import python_of
from .roster import ROOT, Listed

TICKS = os.sysconf("SC_CLK_TCK")
LAST_WORDS = 3
SAID_EVERY_S = 10.0


class PeerFailed(Exception):
    """A worker said that it could not, did not answer in time, or is gone."""


class Process:
    """A worker in a process group of its own: Ctrl-C reaches the driver alone, which ends it."""

    def __init__(self, row: Listed, part: str, logs: Path) -> None:
        self.name = f"{row.name}, {part}"
        self.log = logs / f"{self.name.replace(',', '').replace(' ', '-').replace('+', '-')}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [python_of(row), "-m", "benchmarks.peers.worker", row.module],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.buffer = b""
        self.known = {self.process.pid}

    def post(self, **order: Any) -> None:
        """Sends an order; `answer` has what came of it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise PeerFailed(f"{self.name} is gone: {self.last_words()}") from error

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next answer. PeerFailed where it is an error, or none comes in time."""
        assert self.process.stdout is not None
        begin, file = time.monotonic(), self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            left = begin + seconds - time.monotonic()
            if left <= 0:
                raise PeerFailed(f"{self.name} did not answer in {seconds:.0f} s")
            if not select.select([file], [], [], min(left, SAID_EVERY_S))[0]:
                print(f"  {self.name}: {time.monotonic() - begin:.0f} s", flush=True)
                continue
            piece = os.read(file, 1 << 20)
            if not piece:
                code = self.process.wait(10)
                raise PeerFailed(f"{self.name} died (exit code {code}): {self.last_words()}")
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, seconds: float, /, **order: Any) -> dict[str, Any]:
        """An order and its answer."""
        self.post(**order)
        return self.answer(seconds)

    def last_words(self) -> str:
        """The end of what it wrote."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return " / ".join(line.strip() for line in lines[-LAST_WORDS:]) or "it said nothing"

    def tree(self) -> set[int]:
        """Process ids: its own and those of its children, theirs too."""
        found, parents = {self.process.pid}, _parents()
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in found} - found
            found |= more
            grown = bool(more)
        self.known |= found
        return found

    def cpu_s(self) -> float:
        """Seconds of processor that its processes have taken, with those of children that ended."""
        return sum(_cpu_s(pid) for pid in self.tree())

    def memory(self) -> int:
        """Bytes in memory that no file is behind, shared pages by share. Libraries do not count:
        their share falls as other processes load them."""
        return sum(_memory(pid) for pid in self.tree())

    def signal(self, number: int) -> None:
        """To the process group that it leads, if that is there."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def close(self, seconds: float) -> None:
        """Asks it to close; ends what is left of its processes, each by its id."""
        self.signal(signal.SIGCONT)
        tree = self.tree() if self.process.poll() is None else set()
        with suppress(PeerFailed, subprocess.TimeoutExpired, OSError):
            self.ask(seconds, do="close")
            self.process.wait(seconds)
        parents = _parents()
        for pid in sorted(tree):
            if pid == self.process.pid or (pid in parents and _group_ours(pid, tree, parents)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()


def _group_ours(pid: int, tree: set[int], parents: dict[int, int]) -> bool:
    """Whether this process is still one of the tree: its parent is one, or it was left behind."""
    return parents[pid] in tree or parents[pid] == 1


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat behind the name; [] where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parents() -> dict[int, int]:
    """{process: its parent} of the machine."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            found[int(name)] = int(fields[1])
    return found


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / TICKS if fields else 0.0


def _memory(pid: int) -> int:
    for file, keys in (
        ("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")),
        ("status", ("RssAnon:", "RssShmem:")),
    ):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
            found = [int(line.split()[1]) << 10 for line in lines if line.startswith(keys)]
            if found:
                return sum(found)
    return 0


def machine_busy_s() -> float:
    """Seconds of processor that all of the machine has taken since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, *interrupts = map(int, fields[:8])
    return (user + nice + system + sum(interrupts)) / TICKS


def wire_bytes() -> int:
    """Bytes that the loopback interface of this network namespace has received."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    return 0
