"""Two versions of the tree, operation by operation: instructions, and time in turns.

    make bench-track [BASE=REV] [PAIRS=12|0] [ROWS="push_run draw"] [KEEP=1]

BASE (default: the last tag, else the revision before this one) is checked out below build/track and
built there; this tree is built as it lies. Both build the programs tests/native/bench_track*.c:
this tree's own against each core where that compiles, else BASE's own; a row that BASE cannot have
is named and dropped.

Instructions are counted by callgrind inside the measured work alone, so they are the same at every
run: a row is worse above +3 %. Times are taken in turns, PAIRS of runs of both, each the lower
quartile of its rounds, so that what another program takes stays out of it; shown is the ratio's
interval (harness.py). A row is worse where all of the interval lies above +3 %. PAIRS=0:
instructions alone, as a machine that has other work to do counts them rightly too. The exit code
is 1 where a row is worse.

KEEP=1 writes the rows to benchmarks/track/VERSION.jsonl, a file for each version in the tree.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import ROOT

PROGRAMS = ("bench_track", "bench_track_client")
HEADERS = ("bench_track.h", "bench_requests.h")
PAIRS_MIN = 6  # of fewer, all may lie on one side by chance, once in 16 or more often
COUNTED_ROUNDS, TIMED_ROUNDS = 4, 16
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-DRP_VERSION=tracked", "-O2", "-g"]
KEPT = ROOT / "benchmarks/track"


@dataclass
class Row:
    """One operation: instructions of each version, and the ratio of times with its interval."""

    name: str
    base: float
    tree: float
    instructions: float  # ratio
    ns: float  # of this tree
    low: float
    middle: float
    high: float

    def worse(self, bound: float) -> bool:
        return self.instructions > bound or self.low > bound


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def default_base() -> str:
    """The last tag, or where there is none the revision before this one."""
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True
    )
    return tag.stdout.strip() if tag.returncode == 0 else "HEAD^"


def check_out(revision: str, where: Path) -> Path:
    """The revision's files below `where`."""
    tree = where / git("rev-parse", "--short", f"{revision}^{{commit}}")
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.Popen(
            ["git", "archive", revision, "native", "tests/native"], cwd=ROOT, stdout=subprocess.PIPE
        )
        tar = subprocess.run(["tar", "-x", "-C", str(tree)], stdin=archive.stdout)
        if archive.wait() != 0 or tar.returncode != 0:
            shutil.rmtree(tree)  # the next run would take half a tree for a whole one
            raise SystemExit(f"git archive {revision} failed")
    return tree


def build(tree: Path, output: Path) -> dict[str, list[str]]:
    """Builds the programs on a tree's core; returns (program: its rows)."""
    output.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "gcc").split()
    objects, running = [], []
    apart = ("dpdk", "appliance")
    every = sorted((tree / "native").rglob("*.c"))  # in one folder before, in rooms since
    for path in (path for path in every if path.parent.name not in apart):
        objects.append(str(output / f"{path.stem}.o"))
        command = [*compiler, *FLAGS, f"-I{tree / 'native'}", "-c", str(path), "-o", objects[-1]]
        running.append(subprocess.Popen(command))
        if len(running) == (os.cpu_count() or 1) and running.pop(0).wait() != 0:
            raise SystemExit(f"the core of {tree} does not compile")
    if any(process.wait() != 0 for process in running):
        raise SystemExit(f"the core of {tree} does not compile")
    found = {}
    for name in PROGRAMS:
        own, ours = tree / f"tests/native/{name}.c", ROOT / f"tests/native/{name}.c"
        for source in dict.fromkeys((ours, own)):
            # our program with their headers: a copy beside its own alone, so that quotes look there
            copy = output / f"{name}.c"
            if not source.exists():
                continue
            shutil.copy2(source, copy)
            for header in HEADERS:
                if (source.parent / header).exists():
                    shutil.copy2(source.parent / header, output / header)
            command = [*compiler, *FLAGS, f"-I{tree / 'native'}", f"-I{tree / 'tests/native'}"]
            command += [str(copy), *objects, "-o", str(output / name), "-lpthread", "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                listed = subprocess.run([output / name], check=True, capture_output=True, text=True)
                found[name] = listed.stdout.split()
                break
            print(f"{source} does not compile on {tree.name}: {done.stderr.splitlines()[0]}")
    return found


def say(command: list[str]) -> str:
    """What a program prints; raises where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    return done.stdout


def instructions(program: Path, row: str) -> float:
    """Of one operation, as callgrind counts them inside measured()."""
    out = program.parent / f"{row}.callgrind"
    valgrind = ["valgrind", "-q", "--tool=callgrind", "--toggle-collect=measured"]
    said = say([*valgrind, f"--callgrind-out-file={out}", str(program), row, str(COUNTED_ROUNDS)])
    operations = int(re.search(r"operations\t(\d+)", said)[1])
    return int(re.search(r"^summary: (\d+)", out.read_text(), re.MULTILINE)[1]) / operations


def nanoseconds(program: Path, row: str) -> float:
    """Of one operation: the lower quartile of a run's rounds."""
    said = say([str(program), row, str(TIMED_ROUNDS)])
    return statistics.quantiles(map(float, re.findall(r"round\t(\S+)", said)))[0]


def compare(row: str, base: Path, tree: Path, pairs: int) -> Row:
    """One row of the table: each pair runs both, in changing order."""
    counts = instructions(base, row), instructions(tree, row)
    spent: dict[Path, list[float]] = {base: [], tree: []}
    for i in range(pairs):
        for program in (base, tree) if i % 2 else (tree, base):
            spent[program].append(nanoseconds(program, row))
    if not pairs:
        return Row(row, *counts, counts[1] / counts[0], *(math.nan,) * 4)
    share = harness.share_figure(harness.shares_lower(spent[base], spent[tree]), seed=1)
    ratios = (1 - share.high, 1 - share.value, 1 - share.low)
    return Row(row, *counts, counts[1] / counts[0], statistics.median(spent[tree]), *ratios)


def as_json(row: Row) -> dict[str, object]:
    """A row as JSON has it: what was not taken is null."""
    return {name: None if value != value else value for name, value in asdict(row).items()}


def this_version() -> str:
    """As pyproject.toml has it."""
    return re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]


def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def shown(row: Row, bound: float) -> list[str]:
    """A line of the table."""
    timed = row.ns == row.ns
    return [
        row.name,
        f"{row.base:.1f} -> {row.tree:.1f}",
        percent(row.instructions),
        f"{row.ns:.1f}" if timed else "",
        f"{percent(row.low)} .. {percent(row.high)}" if timed else "not taken",
        "WORSE" if row.worse(bound) else "",
    ]


def compared(args: argparse.Namespace, base: Path) -> tuple[list[Row], list[str]]:
    """Every row that both versions have, said as it comes; and what was dropped, each with why."""
    folder = args.build.resolve()
    old, new = build(base, folder / f"{base.name}.build"), build(args.tree, folder / "tree.build")
    rows, lost = [], []
    for program, names in new.items():
        for name in names:
            if args.rows and name not in args.rows.split():
                continue
            if name not in old.get(program, ()):
                lost.append(f"{name}: {base.name} has no such row")
                continue
            places = [folder / at / program for at in (f"{base.name}.build", "tree.build")]
            try:
                rows.append(compare(name, *places, args.pairs))
            except RuntimeError as error:
                lost.append(f"{name}: {error}")
                continue
            print("  ".join(shown(rows[-1], args.bound)), flush=True)
    return rows, lost


def main(argv: list[str] | None = None) -> int:
    """Builds both versions, compares, prints; the exit code is 1 where a row is worse."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.track.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base", default="", help="revision to compare with")
    parser.add_argument(
        "--pairs", type=int, default=12, help=f"0: no times; else {PAIRS_MIN} or more"
    )
    parser.add_argument("--rows", default="", help="names of rows; all if none")
    parser.add_argument("--bound", type=float, default=1.03, help="what a ratio may reach")
    parser.add_argument("--build", type=Path, default=ROOT / "build/track")
    parser.add_argument("--tree", type=Path, default=ROOT, help="what is compared with it")
    parser.add_argument("--beside", type=Path, help="a folder in place of a revision")
    parser.add_argument("--json", type=Path, help="where the rows go as JSON lines")
    parser.add_argument("--keep", action="store_true", help=f"also below {KEPT.relative_to(ROOT)}")
    args = parser.parse_args(argv)
    if args.pairs < 0 or 0 < args.pairs < PAIRS_MIN:
        raise SystemExit(f"fewer than {PAIRS_MIN} pairs have no interval of 95 %: PAIRS=0 for none")
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions are counted by callgrind: apt-get install valgrind")
    args.build.mkdir(parents=True, exist_ok=True)
    revision = str(args.beside or args.base or default_base())
    base = args.beside or check_out(revision, args.build.resolve())
    print(f"base {revision} ({base.name}), {args.pairs} pairs, bound {percent(args.bound)}")
    rows, lost = compared(args, base)
    table = [shown(row, args.bound) for row in rows]
    head = ["operation", "instructions", "ratio", "ns", "time, 95 % interval", ""]
    print("\n".join(["", *harness.grid(head, table), *(f"dropped: {words}" for words in lost)]))
    kept = [args.json or args.build / "track.jsonl"]
    kept += [KEPT / f"{this_version()}.jsonl"] if args.keep else []
    about = harness.header(1, [], base=base.name, pairs=args.pairs, version=this_version())
    for path in kept:
        harness.write_lines(path, [about, *map(as_json, rows)])
    worse = [row.name for row in rows if row.worse(args.bound)]
    places = ", ".join(map(str, kept))
    print(f"{len(rows)} rows, worse: {', '.join(worse) or 'none'}; kept in {places}")
    return 1 if worse or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
