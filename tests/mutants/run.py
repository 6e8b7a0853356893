"""Mutates the core by machine and tells which mutants no test finds.

    make mutants [N=600] [SEED=1] [FILES="credit.c flow.c"] [SINCE=REV] [JOBS=1] [SLOW=1]
    make mutants ONLY=survivors

N mutants are drawn by SEED from native/*.c, so that every file has its share; with SINCE=REV one
for each line that changed since REV (all of them if N is 0). Each is compiled alone; the same
object code as the tree's means it is equivalent. The rest run the checks that reach the mutated
line, first what found most in its file for its time, until one fails or runs out of time: killed.
The slow ones (Python's) come only where no other reaches the line, or with SLOW=1, or for ONLY.
tests/mutants/equivalent.txt lists those that a person found equivalent, with the reason.

Results go to build/mutants/results.jsonl; a run that was ended goes on where it was. Where tests
changed since, what other tests killed stays killed; where the core did, all begins anew.
build/mutants/survivors.txt has the diffs; ONLY=survivors judges those again with every check, and
ONLY=native/credit.c:60:61:0 one alone, with what the checks said.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from checks import CFLAGS, NONSENSE, PLAIN, ROOT, Check, Tree, is_driver
from mutate import Mutant, mutants_of

EQUIVALENT = ROOT / "tests/mutants/equivalent.txt"
SHARE_MIN = 3  # mutants of a file, however small
CPU_FILES = {"avx512": "avx512f", "sse42": "sse4_2"}  # files that need what a processor may lack


# ---- which mutants ----


def key_of(mutant: Mutant, source: bytes) -> str:
    """What names a mutant while other lines of its file move."""
    before, after = mutant.changed(source)
    return f"{mutant.file} | {before} | {after}"


def read_equivalent() -> dict[str, str]:
    """Reasons by key: blocks of `file: reason`, `- before`, `+ after`."""
    reasons: dict[str, str] = {}
    file = reason = before = ""
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else ():
        head = re.match(r"(native/\w+\.c): (.+)", line)
        if head:
            file, reason = head.groups()
        elif line.startswith("- "):
            before = line[2:].strip()
        elif line.startswith("+ "):
            reasons[f"{file} | {before} | {line[2:].strip()}"] = reason
    return reasons


def files_here(wanted: list[str]) -> list[str]:
    """The files to mutate; those that this processor cannot run are named and left out."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = []
    for path in sorted((ROOT / "native").glob("*.c")):
        lacking = [flag for word, flag in CPU_FILES.items() if word in path.stem]
        if wanted and path.name not in wanted and f"native/{path.name}" not in wanted:
            continue
        if any(flag not in flags for flag in lacking):
            print(f"left out: native/{path.name}, this processor has no {lacking[0]}")
        else:
            found.append(f"native/{path.name}")
    return found


def changed_lines(since: str, files: list[str]) -> dict[str, set[int]]:
    """The lines of each file that are new or altered since a revision."""
    diff = subprocess.run(
        ["git", "diff", "-U0", since, "--", *files],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines: dict[str, set[int]] = {}
    file = ""
    for row in diff.splitlines():
        if row.startswith("+++ b/"):
            file = row[6:]
        hunk = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", row)
        if hunk:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(file, set()).update(range(first, first + count))
    return lines


def spread(mutants: list[Mutant], chance: random.Random) -> list[Mutant]:
    """A file's mutants in the order in which they are taken: a line's second after all firsts."""
    by_line: dict[int, list[Mutant]] = {}
    for mutant in mutants:
        by_line.setdefault(mutant.line, []).append(mutant)
    for group in by_line.values():
        chance.shuffle(group)
    rounds: list[Mutant] = []
    lines = list(by_line.values())
    while lines:
        chance.shuffle(lines)
        rounds += [group.pop() for group in lines]
        lines = [group for group in lines if group]
    return rounds


def queues(args: argparse.Namespace) -> tuple[dict[str, list[Mutant]], dict[str, int]]:
    """For each file its mutants in order, and how many of them count."""
    files = files_here(args.files.split())
    found = {file: mutants_of(ROOT, file) for file in files}
    if args.only:
        return {}, {}
    if args.since:
        lines = changed_lines(args.since, files)
        found = {f: [m for m in found[f] if m.line in lines.get(f, ())] for f in files}
    waiting, wanted = {}, {}
    sites = sum(len(mutants) for mutants in found.values())
    for file, mutants in found.items():
        chance = random.Random(f"{args.seed} {file}")
        waiting[file] = spread(mutants, chance)
        if args.since:
            share = len({m.line for m in mutants}) if args.number else len(mutants)
        else:
            share = max(SHARE_MIN, round(args.number * len(mutants) / sites))
        wanted[file] = min(share, len(mutants))
    return waiting, wanted


# ---- judging ----


class Judge:
    """Compiles a mutant and runs the checks that reach it, in a folder of its thread's own."""

    def __init__(self, tree: Tree, slow: bool) -> None:
        self.tree, self.slow = tree, slow
        self.kills: Counter = Counter()  # by file and check: what killed before comes first
        self.equivalent = read_equivalent()
        self.places = threading.local()
        self.sources = {f"native/{path.name}": path.read_bytes() for path in tree.core}

    def folder(self) -> Path:
        if not hasattr(self.places, "folder"):
            folder = self.tree.build / f"worker_{threading.get_ident()}"
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "native").mkdir(parents=True)
            self.places.folder = folder
        return self.places.folder

    def compile(self, mutant: Mutant, flags: list[str], output: Path) -> bool:
        command = [*PLAIN, *CFLAGS, *flags, f"-I{ROOT / 'native'}", "-c", mutant.file]
        done = subprocess.run(
            [*command, "-o", str(output)], cwd=self.folder(), capture_output=True, text=True
        )
        return done.returncode == 0

    def reached_by(self, mutant: Mutant) -> list[Check]:
        """The checks that run the mutated line; for what is no code, those that run its function,
        and at file scope those that run its file."""
        lines = range(mutant.first, mutant.last + 1)
        checks = self.tree.checks
        has_code = not self.tree.code.get(mutant.file, set()).isdisjoint(lines)
        if not has_code and mutant.function:
            lines = range(mutant.function[0], mutant.function[1] + 1)
        if not has_code and not mutant.function:
            found = [check for check in checks if check.lines.get(mutant.file)]
        else:
            found = [c for c in checks if not c.lines.get(mutant.file, set()).isdisjoint(lines)]
        if not self.slow:
            found = [check for check in found if not check.python] or found
        return sorted(found, key=lambda check: self.cost(mutant.file, check))

    def cost(self, file: str, check: Check) -> tuple[bool, float]:
        """Seconds for each mutant of the file that the check may be hoped to kill."""
        return check.python, (check.seconds + 0.1) / (self.kills[file, check.name] + 0.2)

    def judge(self, mutant: Mutant, aloud: bool = False) -> dict:
        begin = time.monotonic()
        source = self.sources[mutant.file]
        result = {"name": mutant.name, "kind": mutant.kind, "key": key_of(mutant, source)}
        result["before"], result["after"] = mutant.changed(source)

        def done(state: str, why: str = "") -> dict:
            return result | {"state": state, "why": why, "s": round(time.monotonic() - begin, 2)}

        if result["key"] in self.equivalent:
            return done("equivalent", self.equivalent[result["key"]])
        folder = self.folder()
        (folder / mutant.file).write_bytes(mutant.applied(source))
        made = folder / "mutant.o"
        if not self.compile(mutant, NONSENSE, made):
            return done("nonsense", "does not compile")
        stem = ROOT / mutant.file
        if made.read_bytes() == self.tree.object_of("judge", stem).read_bytes():
            return done("equivalent", "the same object code")
        checks = self.reached_by(mutant)
        if not checks:
            return done("survived", "no check reaches this line")
        self.link(stem, made)
        sites = False
        for check in checks:
            if check.simulate and not sites:
                sites = self.link_sites(mutant, stem)
            code, text, seconds = self.tree.execute(check, "judge", folder)
            if aloud:
                print(f"{check.name}: exit code {code}, {seconds:.1f} s\n{text[-1500:]}")
            if code != 0:
                self.kills[mutant.file, check.name] += 1
                late = " (out of time)" if code == 124 else ""
                return done("killed", check.name + late)
        return done("survived", " ".join(check.name for check in checks))

    def link(self, stem: Path, made: Path) -> None:
        objects = [self.tree.object_of("judge", path) for path in self.tree.core if path != stem]
        output = self.folder() / "libcore.so"
        command = [*PLAIN, "-shared", *map(str, objects), str(made), "-o", str(output)]
        subprocess.run(command, check=True)

    def link_sites(self, mutant: Mutant, stem: Path) -> bool:
        made = self.folder() / "sites.o"
        assert self.compile(mutant, ["-DRP_SIMULATE"], made), mutant.name
        extra = {} if is_driver(stem) else {stem: made}
        self.tree.link_simulate("judge", self.folder(), extra)
        return True


# ---- the run ----


def prints() -> dict[str, str]:
    """A digest of each file that a result depends on."""
    patterns = ("native/*.[ch]", "tests/native/*.[ch]", "tests/mutants/[cm]*.py")  # not run.py
    return {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
    }


def is_still_true(row: dict, changed: set[str]) -> bool:
    """True if a result of last time holds though these files changed: tests other than its own."""
    if any(not re.match(r"tests/native/\w+\.c$", name) for name in changed):
        return False
    killer = f"tests/native/{row['why'].split(' ')[0]}.c"
    shared = any(not Path(name).stem.startswith("test_") for name in changed)  # simulator, fuzzers
    ours = killer not in changed and not (shared and not Path(killer).stem.startswith("test_"))
    return row["state"] == "nonsense" or (row["state"] == "killed" and ours)


def open_tree(build: Path, jobs: int) -> Tree:
    """The tree's two builds: those of last time where nothing changed."""
    tree = Tree(build, jobs)
    stamp, kept, results = build / "prints.json", build / "checks.json", build / "results.jsonl"
    now = prints()
    before = json.loads(stamp.read_text()) if stamp.exists() else {}
    changed = {name for name in now.keys() | before.keys() if now.get(name) != before.get(name)}
    if not changed and kept.exists():
        tree.load(kept)
        return tree
    rows = results.read_text().splitlines() if results.exists() else ()
    stamp.unlink(missing_ok=True)
    build.mkdir(parents=True, exist_ok=True)
    results.write_text("".join(f"{r}\n" for r in rows if is_still_true(json.loads(r), changed)))
    tree.open()
    tree.save(kept)
    stamp.write_text(json.dumps(now))
    return tree


def diff_of(result: dict) -> str:
    return f"    - {result['before']}\n    + {result['after']}"


def tell(result: dict, told: str) -> None:
    print(f"{told} {result['state']:10} {result['name']:36} {result['why'][:60]} ({result['s']} s)")
    if result["state"] == "survived":
        print(f"{diff_of(result)}\n    make mutants ONLY={result['name']}")
    sys.stdout.flush()


class Run:
    """Draws, judges, keeps: `jobs` mutants at a time."""

    def __init__(self, judge: Judge, results: Path, args: argparse.Namespace) -> None:
        self.judge, self.path, self.args = judge, results, args
        rows = results.read_text().splitlines() if results.exists() else ()
        self.known = {row["name"]: row for row in map(json.loads, rows)}
        self.results: list[dict] = []
        self.begin, self.fresh, self.total = time.monotonic(), 0, 0

    def keep(self, result: dict) -> None:
        with self.path.open("a") as out:
            out.write(json.dumps(result) + "\n")

    def take(self, result: dict) -> None:
        if result["name"] not in self.known:
            self.fresh += 1
            self.keep(result)
        elif result["key"] in self.judge.equivalent:  # listed since
            result |= {"state": "equivalent", "why": self.judge.equivalent[result["key"]]}
        if result["state"] == "nonsense":
            return
        self.results.append(result)
        spent = time.monotonic() - self.begin
        left = (self.total - len(self.results)) * spent / max(1, self.fresh)
        tell(result, f"[{len(self.results)}/{self.total}, {left / 60:.0f} min left]")

    def all(self, waiting: dict[str, list[Mutant]], wanted: dict[str, int]) -> None:
        """Judges each file's share; what does not compile is replaced by the file's next."""
        turns = [file for file, share in wanted.items() for _ in range(share)]
        random.Random(self.args.seed).shuffle(turns)  # what a run has done so far is of all files
        self.total = len(turns)
        under_way: dict = {}
        with ThreadPoolExecutor(self.args.jobs) as pool:
            while turns or under_way:
                while turns and len(under_way) < self.args.jobs:
                    file = turns.pop()
                    if not waiting[file]:
                        continue
                    mutant = waiting[file].pop(0)
                    known = self.known.get(mutant.name)
                    if not known:
                        under_way[pool.submit(self.judge.judge, mutant)] = file
                        continue
                    turns += [file] * (known["state"] == "nonsense")
                    self.take(known)
                if not under_way:
                    continue
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    file = under_way.pop(future)
                    result = future.result()
                    turns += [file] * (result["state"] == "nonsense")
                    self.take(result)

    def report(self) -> int:
        """Tells the sums, writes the survivors; returns how many."""
        survivors = [result for result in self.results if result["state"] == "survived"]
        order = sorted(survivors, key=lambda result: result["name"])
        if self.args.only in ("", "survivors"):  # one alone leaves the list of all as it is
            with (self.path.parent / "survivors.txt").open("w") as out:
                for result in order:
                    out.write(f"{result['name']} {result['kind']}: {result['why']}\n")
                    out.write(diff_of(result) + "\n")
        by_file: dict[str, Counter] = {}
        for result in self.results:
            by_file.setdefault(result["name"].split(":")[0], Counter())[result["state"]] += 1
        print(f"\n{'file':36} {'killed':>7} {'survived':>9} {'equivalent':>11}")
        for file, states in sorted(by_file.items()):
            row = [states[name] for name in ("killed", "survived", "equivalent")]
            print(f"{file:36} {row[0]:7} {row[1]:9} {row[2]:11}")
        states = Counter(result["state"] for result in self.results)
        listed = sum(
            result["why"] != "the same object code"
            for result in self.results
            if result["state"] == "equivalent"
        )
        judged = states["killed"] + states["survived"]
        print(
            f"{len(self.results)} mutants, seed {self.args.seed}: {states['killed']} killed, "
            f"{states['survived']} survived, {states['equivalent']} equivalent ({listed} of them "
            f"by tests/mutants/equivalent.txt): {100 * states['killed'] / max(1, judged):.1f} % "
            f"of what can be killed\nsurvivors: {self.path.parent / 'survivors.txt'}"
        )
        return states["survived"]


def chosen(only: str, build: Path) -> list[Mutant]:
    """The mutants that ONLY names: one, or `survivors` for those of the last run."""
    names = {only}
    if only == "survivors":
        text = (build / "survivors.txt").read_text()
        names = set(re.findall(r"^(native/\S+)", text, re.MULTILINE))
    files = sorted({name.split(":")[0] for name in names})
    return [m for file in files for m in mutants_of(ROOT, file) if m.name in names]


def main() -> int:
    """Draws, judges and reports; the exit code is 1 where one survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", default="", help="names of files in native/; all if none")
    parser.add_argument("--since", default="", help="lines that changed since this revision")
    parser.add_argument("--only", default="", help="one mutant by its name, or: survivors")
    parser.add_argument("--slow", action="store_true", help="every check that reaches the line")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--build", type=Path, default=ROOT / "build/mutants")
    args = parser.parse_args()
    again = chosen(args.only, args.build) if args.only else []
    tree = open_tree(args.build, args.jobs)
    judge = Judge(tree, args.slow or bool(args.only))
    run = Run(judge, args.build / "results.jsonl", args)
    if args.only:
        aloud = args.only != "survivors"
        for i, mutant in enumerate(again):
            result = judge.judge(mutant, aloud)
            run.results.append(result)
            run.keep(result)  # the last row of a name counts
            tell(result, f"[{i + 1}/{len(again)}]")
    else:
        run.all(*queues(args))
    return 1 if run.report() else 0


if __name__ == "__main__":
    sys.exit(main())
