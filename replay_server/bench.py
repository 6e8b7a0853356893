"""Figures: how fast this is on this machine, engine alone, from C and from Python.

A figure is a `Row`; `python -m replay_server bench --json FILE` prints all rows and writes them as
a JSON list. The engine's and the C client's come from the programs tests/native/bench_*.c, which
print a row a line (bench.h); they are there in a source checkout, built by its Makefile. The Python
client's are measured here, with a server in this process: its thread never holds Python's lock.

Rates are told as the median round and as the best one: the best is what the machine gives when
nothing else runs on it. Latencies are p50 and p99 over all calls. A hash's value is its text.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .client import Client
from .errors import ConfigError
from .plans import NStep
from .server import Server
from .spec import Column, Spec
from .table import Table

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("tree", "table", "server", "udp", "loopback")
PARTS = (*PROGRAMS, "python")
TIMEOUT_S = 600
ENVIRONMENTS = 8
FILL_STEPS = 20_000
EXTEND_ROWS = 4096
HASH_UNIT = "siphash"

SMALL = Spec(
    (
        Column("observation", np.float32, (4,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)


@dataclass(frozen=True)
class Row:
    """One figure. `batch`: items, steps or keys of one request; 0 where that says nothing."""

    name: str
    transport: str
    workload: str
    batch: int
    metric: str
    value: float | str
    unit: str
    machine: str


def machine() -> str:
    """Processor, cores and kernel, as far as the system tells."""
    model, wide = platform.processor() or platform.machine(), ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            if key.strip() == "flags" and "avx512dq" in value.split():
                wide = ", AVX-512"
    except OSError:
        pass  # not Linux's /proc: the platform's own word stands
    return f"{model}{wide}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def parse(text: str, where: str) -> list[Row]:
    """The rows a bench program printed; its other lines are not for us."""
    rows = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 7:
            name, transport, workload, batch, metric, value, unit = fields
            number = value if unit == HASH_UNIT else float(value)
            rows.append(Row(name, transport, workload, int(batch), metric, number, unit, where))
    return rows


# ---- the programs in C ----


def missing() -> str | None:
    """Why the programs in C cannot be built here, in a sentence; None where they can."""
    if not (ROOT / "tests" / "native" / "bench_tree.c").exists():
        return "the engine's and the C client's figures: their programs are in a source checkout"
    if shutil.which("make") is None:
        return "the engine's and the C client's figures: there is no make to build their programs"
    return None


def program(part: str, items: int, passes: int, seconds: float) -> list[str]:
    """The command of a part, relative to the root; its first word is what make builds."""
    return {
        "tree": ["build/bench_tree", str(items), str(passes)],
        "table": ["build/bench_table", str(items), str(passes)],
        "server": ["build/bench_server", str(max(1, round(100 * seconds)))],
        "udp": ["build/bench_udp", str(seconds), "udp"],
        "loopback": ["build/bench_udp", str(seconds), "loopback"],
    }[part]


def native(part: str, items: int, passes: int, seconds: float, where: str) -> list[Row]:
    """Builds and runs one program. Raises ConfigError with its last words where it fails."""
    command = program(part, items, passes, seconds)
    for step in (["make", "--no-print-directory", command[0]], command):
        done = subprocess.run(step, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            raise ConfigError(f"{' '.join(step)} failed: {words[-1] if words else 'in silence'}")
    return parse(done.stdout, where)


# ---- the client in Python ----


def rounds(call: Callable[[], int], seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Calls until the time is over; what each call did [N], and how long it took in s [N]."""
    done, took = [], []
    begin = before = time.perf_counter()
    while before - begin < seconds or not took:
        done.append(call())
        after = time.perf_counter()
        took.append(after - before)
        before = after
    return np.array(done), np.array(took)


class PythonRows:
    """The rows of one transport, over a table of small transitions and one of plain rows."""

    def __init__(self, url: str, seconds: float, where: str) -> None:
        self.url, self.seconds, self.where = url, seconds, where
        self.busy = url.startswith("udp") and (os.cpu_count() or 1) > 1
        self.transport = url.partition(":")[0]
        self.workload = "Python, small" + (", busy polling" if self.busy else "")
        self.rng = np.random.default_rng(1)

    def row(self, name: str, batch: int, metric: str, value: float, unit: str) -> Row:
        workload, where = self.workload, self.where
        return Row(name, self.transport, workload, batch, metric, float(value), unit, where)

    def latency(self, name: str, batch: int, call: Callable[[], object]) -> Iterator[Row]:
        _, took = rounds(lambda: call() is None, self.seconds)
        for metric, share in (("p50", 0.5), ("p99", 0.99)):
            yield self.row(name, batch, metric, np.quantile(took, share) * 1e6, "us")

    def rate(self, name: str, batch: int, unit: str, call: Callable[[], int]) -> Iterator[Row]:
        done, took = rounds(call, self.seconds)
        yield self.row(name, batch, "rate, median", np.median(done / took), unit)
        yield self.row(name, batch, "rate, best round", np.max(done / took), unit)

    def step(self) -> dict[str, np.ndarray]:
        """What 8 environments might have said."""
        observation = self.rng.normal(size=(2, ENVIRONMENTS, 4)).astype(np.float32)
        return {
            "observation": observation[0],
            "action": self.rng.integers(2, size=ENVIRONMENTS),
            "reward": np.ones(ENVIRONMENTS, np.float32),
            "terminated": self.rng.random(ENVIRONMENTS) < 0.01,
            "truncated": np.zeros(ENVIRONMENTS, np.bool_),
            "next_observation": observation[1],
        }

    def measure(self) -> Iterator[Row]:
        """Opens server and client; yields the rows."""
        steps = Table("steps", step=SMALL, plan=NStep(1), capacity=1 << 17)
        plain = Table("plain", step=SMALL, capacity=1 << 17)
        with (
            Server([steps, plain], self.url, seed=1, busy_poll=self.busy) as server,
            Client(server.address, busy_poll=self.busy) as client,
        ):
            yield from self.writing(client)
            yield from self.learning(client)

    def writing(self, client: Client) -> Iterator[Row]:
        ready = [self.step() for _ in range(256)]
        ready_steps = itertools.cycle(ready)
        with client.writer("steps", streams=ENVIRONMENTS, autoreset="same-step") as writer:
            for _ in range(FILL_STEPS // ENVIRONMENTS):
                writer.add_batch(**next(ready_steps))
            yield from self.latency(
                "writer.add_batch", ENVIRONMENTS, lambda: writer.add_batch(**next(ready_steps))
            )
        columns = {
            "observation": self.rng.normal(size=(EXTEND_ROWS, 4)).astype(np.float32),
            "action": self.rng.integers(2, size=EXTEND_ROWS),
            "reward": np.ones(EXTEND_ROWS, np.float32),
            "terminated": np.zeros(EXTEND_ROWS, np.bool_),
        }
        yield from self.rate(
            "client.extend", EXTEND_ROWS, "steps/s", lambda: len(client.extend("plain", columns))
        )

    def learning(self, client: Client) -> Iterator[Row]:
        for count in (32, 512):
            out = client.landing("steps", count)
            yield from self.latency(
                "client.sample",
                count,
                lambda count=count, out=out: client.sample("steps", count, out=out),
            )
        keys = client.sample("steps", 512).keys
        priorities = self.rng.random(512) + 0.5

        def update() -> int:
            for _ in range(64):
                client.update_priorities("steps", keys, priorities, wait=False)
            done = client.flush()
            return done.applied

        yield from self.rate("client.update_priorities", 512, "keys/s", update)


# ---- all of it ----


def python_urls() -> list[str]:
    """What the Python client is measured on; ZeroMQ where its package is installed."""
    zmq = ["zmq+tcp://127.0.0.1:0"] if importlib.util.find_spec("zmq") else []
    return ["udp://127.0.0.1:0", *zmq, "loopback://"]


def measure(
    parts: tuple[str, ...], items: int, passes: int, seconds: float
) -> Iterator[tuple[str, list[Row]]]:
    """(part, its rows), part by part; a part that cannot be measured here has none."""
    where, without = machine(), missing()
    for part in parts:
        if part == "python":
            for url in python_urls():
                yield part, list(PythonRows(url, seconds, where).measure())
        elif without is None:
            yield part, native(part, items, passes, seconds, where)


def line(row: Row) -> str:
    """A row for people."""
    value = row.value if isinstance(row.value, str) else f"{row.value:,.2f}"
    batch = f"{row.batch}" if row.batch else ""
    return (
        f"{row.name:26} {row.transport:9} {row.workload:30} {batch:>5}  "
        f"{row.metric:18} {value:>16} {row.unit}"
    )


def bench(
    parts: tuple[str, ...], items: int, passes: int, seconds: float, json_file: Path | None
) -> int:
    """Measures, prints, writes; what is left out is said in one line."""
    wrong = [part for part in parts if part not in PARTS]
    if wrong:
        raise ConfigError(f"there is no part {wrong[0]!r}; the parts are {', '.join(PARTS)}")
    without = missing()
    print(machine(), flush=True)
    if without is not None and set(parts) & set(PROGRAMS):
        print(f"left out: {without}", flush=True)
    rows: list[Row] = []
    for _, measured in measure(parts, items, passes, seconds):
        rows += measured
        print("\n".join(map(line, measured)), flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        print(f"wrote {len(rows)} rows to {json_file}")
    return 0
