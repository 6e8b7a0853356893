"""Figures: how fast this is on this machine, engine alone, from C and from Python.

A figure is a `Row`; `replay-server bench --json FILE` prints all rows and writes them as
a JSON list. The engine's and the C client's come from the programs tests/native/bench_*.c, which
print a row a line (bench.h); they are there in a source checkout, built by its Makefile. The Python
client's are measured by python_client.py.

Rates are given as the median round and as the best one: the best is what the machine gives when
nothing else runs on it. Latencies are p50 and p99 over all calls; an amortised one is the time of
all calls over their number, waits included. A hash's value is its text.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from ..errors import ConfigError
from ..support.values import real, whole
from ..table import CAPACITY_MAX
from .row import Row

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("tree", "table", "server", "udp", "loopback")
PARTS = (*PROGRAMS, "python")
TIMEOUT_S = 600
TABLE_ITEMS_MIN = 16 * 1024  # sixteen windows of bench_table.c
PASSES_MAX, SECONDS_MIN = 1000, 0.001
HASH_UNIT = "siphash"


def machine() -> str:
    """Processor, cores and kernel, as far as the system says."""
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


# ---- all of it ----


def expect_places(files: Mapping[str, Path | None]) -> None:
    """ConfigError where a file of these options could not be written in the end."""
    for option, file in files.items():
        if file is None:
            continue
        if not file.parent.is_dir():
            raise ConfigError(f"--{option} is {file}, and there is no folder {file.parent}")
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise ConfigError(f"--{option} is {file}, and that is no file that can be written")


def write_rows(file: Path, rows: list[Row]) -> None:
    """The rows as a JSON list; ConfigError where the disk does not take them."""
    try:
        file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"--json {file}: {error.strerror}; the figures are above") from error
    print(f"wrote {len(rows)} rows to {file}", flush=True)


def measure(
    parts: tuple[str, ...], items: int, passes: int, seconds: float
) -> Iterator[tuple[str, list[Row]]]:
    """(part, its rows), part by part; a part that cannot be measured here has none."""
    where, without = machine(), missing()
    for part in parts:
        if part == "python":
            from .python_client import measured

            yield from ((part, rows) for rows in measured(seconds, where))
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
    whole("--items", items, TABLE_ITEMS_MIN if "table" in parts else 1, CAPACITY_MAX)
    whole("--passes", passes, 1, PASSES_MAX)
    real("--seconds", seconds, SECONDS_MIN, TIMEOUT_S)
    expect_places({"json": json_file})
    without = missing()
    print(machine(), flush=True)
    if without is not None and set(parts) & set(PROGRAMS):
        print(f"left out: {without}", flush=True)
    rows: list[Row] = []
    for _, measured in measure(parts, items, passes, seconds):
        rows += measured
        print("\n".join(map(line, measured)), flush=True)
    if json_file is not None:
        write_rows(json_file, rows)
    return 0
