"""What can find a mutant: the checks, where their sources are, and how one is run within bounds."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from mutate import digest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tests/native"
KILL_TESTS = ("test_intent",)  # linked with the core of the simulator
REPLAYS = ("packet", "server", "client")
SIM_SEEDS = 4
# Of the Python tests those that drive the core through the drivers and need not train anything.
PYTHON_TESTS = (
    "client/test_client_errors",
    "server/test_server_config",
    "writing/test_writer",
    "sampling/test_waiting",
    "server/test_shards",
    "server/test_server",
    "sampling/test_client_landing",
    "oracles/test_conformance",
    "writing/test_block",
)
# Sockets, threads and the wall's clock: what these find counts when they find it twice.
REAL_TIME = re.compile(
    r"test_(pump|gate|transport|udp_host|work|loopback|region|link|service)|\.py"
)
MEMORY_MAX = 8 << 30
FILE_MAX = 1 << 30
OUT_OF_TIME = 124


@dataclass
class Check:
    """One way to find a mutant: a program and how it is run. The rest is measured."""

    name: str
    command: list[str]
    print: str  # a digest of its sources
    simulate: bool = False  # linked anew for each mutant, with kill sites
    python: bool = False
    short: bool = True  # fewer rounds where it has many: check_rounds()
    seconds: float = 0.0
    processor: float = 0.0  # seconds too, of the processor's clock
    reach: dict = field(default_factory=dict)  # file -> function -> [its print, lines from 0 on]

    @property
    def slow(self) -> bool:
        """Whether it runs only where no other reaches the line, or when asked for."""
        return self.python or not self.short

    @property
    def real_time(self) -> bool:
        return bool(REAL_TIME.search(self.name))


def sources_of(path: Path) -> set[Path]:
    """A C file of the tests and what it includes of them."""
    found, waiting = set(), [path]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
        waiting += [NATIVE / name for name in names]
    return found


def print_of(paths: list[Path]) -> str:
    every = set().union(*(sources_of(path) if path.suffix == ".c" else {path} for path in paths))
    return digest(b"".join(path.read_bytes() for path in sorted(every)))


def native_checks() -> list[Check]:
    found = []
    for path in sorted(NATIVE.glob("test_*.c")):
        kills = path.stem in KILL_TESTS
        command = ["{core}/" + path.stem] if kills else ["{programs}/" + path.stem]
        found.append(Check(path.stem, command, print_of([path]), simulate=kills))
        if "check_rounds(" in path.read_text():
            name = f"{path.stem} at length"
            found.append(Check(name, command, print_of([path]), simulate=kills, short=False))
    for target in REPLAYS:
        corpus = ROOT / "tests/corpus" / target
        if corpus.is_dir():
            sources = [NATIVE / f"fuzz_{name}.c" for name in (target, "port", "replay")]
            command = [f"{{programs}}/replay_{target}", str(corpus)]
            print = print_of([*sources, *filter(Path.is_file, corpus.rglob("*"))])
            found.append(Check(f"replay_{target}", command, print))
    sim = ["{core}/sim", "--seed", "1", "--seeds", str(SIM_SEEDS)]
    found.append(Check("sim", sim, print_of(sorted(NATIVE.glob("sim*.c"))), simulate=True))
    return found


def python_checks() -> list[Check]:
    found = []
    for name in PYTHON_TESTS:
        path = ROOT / f"tests/{name}.py"
        if path.exists():
            command = [sys.executable, "-m", "pytest", "-q", "-x", "--noconftest"]
            command += ["-p", "no:cacheprovider", f"tests/{name}.py"]
            found.append(Check(path.name, command, print_of([path]), python=True))
    return found


# ---- running one ----


def limits(processor: float):
    """What a mutant that runs wild may take; the timer outlives exec and ends it by SIGPROF."""

    def apply() -> None:
        signal.setitimer(signal.ITIMER_PROF, processor)
        whole = int(processor)
        resource.setrlimit(resource.RLIMIT_CPU, (whole + 2, whole + 3))  # children's too
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, FILE_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return apply


def ticks(pid: int) -> int:
    """The processor's time that a process has had, in ticks of 10 ms."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12]) + int(words[13]) + int(words[14])


def wait_for(pid: int, seconds: float) -> bool:
    """Waits for a process to end; False where it hangs, or was given ten times its time.

    Beyond three times what it took it may go on as long as it works, since others may share the
    machine; one that does nothing for three seconds waits for ever.
    """
    ends = os.pidfd_open(pid)
    try:
        if select.select([ends], [], [], 2 + 3 * seconds)[0]:
            return True
        last = time.monotonic() + 10 + 10 * seconds
        while time.monotonic() < last:
            before = ticks(pid)
            if select.select([ends], [], [], 3)[0]:
                return True
            if ticks(pid) - before < 2:
                return False
        return False
    finally:
        os.close(ends)


def run(command: list[str], directory: Path, bounds: tuple[float, float], **extra: str):
    """Runs a check in a folder of its own; returns (exit code, what it said, processor's seconds).

    `bounds` are the seconds it takes by the wall's clock and the processor's; it may take several
    times as much of each. The exit code of a run that ends by time is 124.
    """
    seconds, processor = bounds
    environment = os.environ | extra
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment |= {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment | {"TMPDIR": scratch},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=limits(0.5 + 4 * processor),
        )
        ended = wait_for(process.pid, seconds)
        with contextlib.suppress(ProcessLookupError):  # what it started goes with it
            os.killpg(process.pid, signal.SIGKILL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        said.seek(max(0, said.seek(0, 2) - 4000))
        text = said.read().decode(errors="replace")
    if not ended or code in (-signal.SIGXCPU, -signal.SIGPROF):
        code = OUT_OF_TIME
    return code, text, used.ru_utime + used.ru_stime
