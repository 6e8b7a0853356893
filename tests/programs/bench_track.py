"""Two versions of the tree, operation by operation: instructions, and time in turns.

    make bench-track [BASE=REV] [PAIRS=12|0] [ROWS="push_run draw"] [JSON=build/track/track.json]

BASE (default: the last tag, else the revision before this one) is checked out below build/track and
built there; this tree is built as it lies. Both build the programs tests/native/bench_track*.c:
this tree's own against each core where that compiles, else BASE's own; a row that BASE cannot have
is named and dropped.

Instructions are counted by callgrind inside the measured work alone, so they are the same at every
run: a row is worse above +3 %. Times are taken in turns, PAIRS of runs of both, each the lower
quartile of its rounds, so that what another program takes stays out of it; told is the 95 %
interval of the ratio (Student's t on the logarithms). A row is worse where all of the interval lies
above +3 %. PAIRS=0: instructions alone, as a machine that has other work to do counts them rightly
too. The exit code is 1 where a row is worse.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("bench_track", "bench_track_client")
HEADERS = ("bench_track.h", "bench_requests.h")
COUNTED_ROUNDS, TIMED_ROUNDS = 4, 16
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g"]
# Student's t, 97.5 %, by degrees of freedom
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
STUDENT_MORE = ((11, 2.23), (14, 2.20), (19, 2.14), (29, 2.09), (10**9, 2.05))


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
        subprocess.run(["tar", "-x", "-C", str(tree)], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            shutil.rmtree(tree)
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


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The 95 % interval of a ratio, and its middle, from paired runs."""
    logs = [math.log(ratio) for ratio in ratios]
    middle, degrees = statistics.mean(logs), len(logs) - 1
    student = STUDENT.get(degrees) or next(t for top, t in STUDENT_MORE if degrees <= top)
    half = student * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle - half), math.exp(middle), math.exp(middle + half)


def compare(row: str, base: Path, tree: Path, pairs: int) -> Row:
    """One row of the table: each pair runs both, in changing order."""
    counts = instructions(base, row), instructions(tree, row)
    ratios, times = [], []
    for i in range(pairs):
        order = (base, tree) if i % 2 else (tree, base)
        spent = {program: nanoseconds(program, row) for program in order}
        ratios.append(spent[tree] / spent[base])
        times.append(spent[tree])
    spread = interval(ratios) if ratios else (math.nan,) * 3
    return Row(row, *counts, counts[1] / counts[0], statistics.median(times or spread), *spread)


def told(row: Row) -> dict[str, object]:
    """A row as JSON has it: what was not taken is null."""
    return {name: None if value != value else value for name, value in asdict(row).items()}


def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def main() -> int:
    """Builds both versions, compares, prints; the exit code is 1 where a row is worse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="", help="revision to compare with")
    parser.add_argument("--pairs", type=int, default=12, help="0: no times; else 2 or more")
    parser.add_argument("--rows", default="", help="names of rows; all if none")
    parser.add_argument("--bound", type=float, default=1.03, help="what a ratio may reach")
    parser.add_argument("--build", type=Path, default=ROOT / "build/track")
    parser.add_argument("--json", type=Path, help="where the rows go as JSON")
    args = parser.parse_args()
    if args.pairs == 1 or args.pairs < 0:
        raise SystemExit("one pair has no interval: PAIRS=0 for none, or 2 and more")
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions are counted by callgrind: apt-get install valgrind")
    revision = args.base or default_base()
    args.build.mkdir(parents=True, exist_ok=True)
    base = check_out(revision, args.build.resolve())
    old = build(base, args.build.resolve() / f"{base.name}.build")
    new = build(ROOT, args.build.resolve() / "tree.build")
    rows, lost = [], []
    print(f"base {revision} ({base.name}), {args.pairs} pairs, bound {percent(args.bound)}")
    print(
        f"{'operation':20} {'instructions':>22} {'ratio':>9} {'ns':>10} {'time, 95 % interval':>28}"
    )
    for program, names in new.items():
        for name in names:
            if args.rows and name not in args.rows.split():
                continue
            if name not in old.get(program, ()):
                lost.append(f"{name}: {base.name} has no such row")
                continue
            places = [
                args.build.resolve() / at / program for at in (base.name + ".build", "tree.build")
            ]
            try:
                row = compare(name, *places, args.pairs)
            except RuntimeError as error:
                lost.append(f"{name}: {error}")
                continue
            rows.append(row)
            span = f"{percent(row.low)} .. {percent(row.high)}" if args.pairs else "not taken"
            mark = "  WORSE" if row.worse(args.bound) else ""
            print(
                f"{name:20} {row.base:10.1f} -> {row.tree:8.1f} {percent(row.instructions):>9} "
                f"{row.ns if args.pairs else 0:10.1f} {span:>28}{mark}",
                flush=True,
            )
    print("\n".join(f"dropped: {words}" for words in lost))
    path = args.json or args.build / "track.json"
    path.write_text(json.dumps({"base": base.name, "rows": [told(row) for row in rows]}, indent=1))
    worse = [row.name for row in rows if row.worse(args.bound)]
    print(f"{len(rows)} rows, worse: {', '.join(worse) or 'none'}; kept in {path}")
    return 1 if worse or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
