"""Mutates the core by machine and tells which mutants no test finds.

    make mutants [N=600] [SEED=1] [FILES="credit.c flow.c"] [SINCE=REV] [JOBS=1] [SLOW=1]
    make mutants ONLY=survivors
    make mutants LISTED=1 [FILES="credit.c flow.c"] [JOBS=1] [SLOW=1]

N mutants are drawn by SEED from the core, so that every file has its share; with SINCE=REV one
for each line that changed since REV (all of them if N is 0). Each is compiled alone; the same
object code as the tree's means it is equivalent. The rest run the checks that reach the mutated
line, first what found most in its function for its time, until one fails or runs out of time:
killed. Slow ones (Python's, and walks at full length) come only where no other reaches the line,
or with SLOW=1, or for ONLY.
tests/mutants/equivalent.txt lists those that a person found equivalent, with the reason; they are
not judged. LISTED=1 judges these and no others, and names each that a check finds after all.

Results go to build/mutants/results.jsonl; a run that was ended goes on where it was. What a check
said of a mutant holds as long as the text of the mutated function and the check's own sources are
the same, so after a change only what it touched is judged again; remove the folder to begin anew.
build/mutants/survivors.txt has the diffs; ONLY=survivors judges those again with every check, and
ONLY=native/server/credit.c:60:61:0 one alone, with what the checks said.
"""

from __future__ import annotations

import argparse
import atexit
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

from checks import OUT_OF_TIME, ROOT, Check, python_checks
from mutate import Mutant, mutants_of
from tree import CFLAGS, NONSENSE, PLAIN, Tree, core_of, is_driver

EQUIVALENT = ROOT / "tests/mutants/equivalent.txt"
SAME_CODE = "the same object code"
SHARE_MIN = 3  # mutants of a file, however small
CPU_FILES = {"avx512": "avx512f", "sse42": "sse4_2"}  # files that need what a processor may lack


# ---- which mutants ----


def key_of(mutant: Mutant, source: bytes) -> str:
    """What names a mutant while other lines of its file move."""
    before, after = mutant.changed(source)
    return f"{mutant.file} | {mutant.unit.name} | {before} | {after}"


def read_equivalent(text: str) -> dict[str, list[str]]:
    """Reasons by key, one for each mutant that a key names: blocks of `file:functions: reason`,
    `- before`, `+ after`."""
    reasons: dict[str, list[str]] = {}
    file = functions = reason = before = ""
    for line in text.splitlines():
        head = re.match(r"(native/[\w/]+\.c)(?::(\w+(?: \w+)*))?: (.+)", line)
        if head:
            file, functions, reason = head[1], head[2] or "", head[3]
        elif line.startswith("- "):
            before = line[2:].strip()
        elif line.startswith("+ "):
            for function in functions.split() or [""]:
                key = f"{file} | {function} | {before} | {line[2:].strip()}"
                reasons.setdefault(key, []).append(reason)
    return reasons


def files_here(wanted: list[str]) -> list[str]:
    """The files to mutate; those that this processor cannot run are named and left out."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = []
    for path in core_of(ROOT):
        name = str(path.relative_to(ROOT))
        lacking = [flag for word, flag in CPU_FILES.items() if word in path.stem]
        if wanted and path.name not in wanted and name not in wanted:
            continue
        if any(flag not in flags for flag in lacking):
            print(f"left out: {name}, this processor has no {lacking[0]}")
        else:
            found.append(name)
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
        self.ran: Counter = Counter()  # by file or function, and check
        self.killed: Counter = Counter()
        self.equivalent = read_equivalent(EQUIVALENT.read_text())
        self.places = threading.local()
        self.sources = {str(path.relative_to(ROOT)): path.read_bytes() for path in tree.core}

    def folder(self) -> Path:
        if not hasattr(self.places, "folder"):
            folder = self.tree.build / f"worker_{os.getpid()}_{threading.get_ident()}"
            for path in self.tree.core:
                (folder / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            self.places.folder = folder
        return self.places.folder

    def compile(self, mutant: Mutant, flags: list[str], output: Path) -> bool:
        command = [*PLAIN, *CFLAGS, *flags, "-c", mutant.file]
        done = subprocess.run(
            [*command, "-o", str(output)], cwd=self.folder(), capture_output=True, text=True
        )
        return done.returncode == 0

    def same_code(self, mutant: Mutant) -> bool:
        """Whether the compiler that optimises more sees no difference."""
        made, plain = self.folder() / "made.o", self.folder() / "plain.o"
        if not self.compile(mutant, ["-O2"], made):
            return False
        mutated = self.folder() / mutant.file
        kept = mutated.read_bytes()
        mutated.write_bytes(self.sources[mutant.file])
        same = self.compile(mutant, ["-O2"], plain) and plain.read_bytes() == made.read_bytes()
        mutated.write_bytes(kept)
        return same

    def reached_by(self, mutant: Mutant) -> list[Check]:
        """The checks that run the mutated line, the likeliest to find it in little time first.

        Of what is no code, those that run its function, and at file scope those that run its file.
        """
        lines = range(mutant.first, mutant.last + 1)
        here = [mutant.file, mutant.unit, lines]
        found = [check for check in self.tree.checks if self.tree.reaches(check, *here)]
        if not self.slow:
            found = [check for check in found if not check.slow] or found
        if self.slow or not found:
            found += [c for c in self.tree.python_checks() if self.tree.reaches(c, *here)]
        return sorted(found, key=lambda check: self.cost(mutant, check))

    def cost(self, mutant: Mutant, check: Check) -> tuple[bool, float]:
        """Seconds for each mutant that the check may be hoped to kill; its function tells most."""
        file, function = (mutant.file, check.name), (mutant.file, mutant.unit.name, check.name)
        killed = 0.1 + self.killed[file] + 4 * self.killed[function]
        ran = 1.0 + self.ran[file] + 4 * self.ran[function]
        return check.slow, (check.processor + 0.2 * check.seconds + 0.02) * ran / killed

    def learn(self, result: dict) -> None:
        """Remembers which checks ran on a mutant, and which found it."""
        file = result["name"].split(":")[0]
        for place in ((file,), (file, result["function"])):
            for name in result["passed"]:
                self.ran[(*place, name)] += 1
            if result["state"] == "killed":
                self.ran[(*place, result["why"])] += 1
                self.killed[(*place, result["why"])] += 1

    def judge(self, mutant: Mutant, before: dict, aloud: bool = False) -> dict:
        """`before` holds what was found out about it earlier."""
        begin = time.monotonic()
        source = self.sources[mutant.file]
        result = {"name": mutant.name, "id": mutant.id, "kind": mutant.kind}
        result |= {"key": key_of(mutant, source), "function": mutant.unit.name}
        result["before"], result["after"] = mutant.changed(source)
        passed = {} if aloud else dict(before.get("passed", {}))

        def done(state: str, why: str = "", killer: str = "") -> dict:
            seconds = round(time.monotonic() - begin, 2)
            more = {"state": state, "why": why, "killer": killer, "passed": passed, "s": seconds}
            return result | more

        folder = self.folder()
        (folder / mutant.file).write_bytes(mutant.applied(source))
        made = folder / "mutant.o"
        if not self.compile(mutant, NONSENSE, made):
            return done("nonsense", "does not compile")
        stem = ROOT / mutant.file
        if made.read_bytes() == self.tree.object_of("judge", stem).read_bytes():
            return done("equivalent", SAME_CODE)
        checks = self.reached_by(mutant)
        if not checks:
            return done("survived", "no check reaches this line")
        linked: set[str] = set()
        for check in checks:
            if passed.get(check.name) == check.print:
                continue
            code = self.fails(check, mutant, linked, aloud)
            if code:
                result["code"] = code
                return done("killed", check.name, check.print)
            passed[check.name] = check.print
        if self.same_code(mutant):
            return done("equivalent", SAME_CODE)
        return done("survived", " ".join(check.name for check in checks))

    def fails(self, check: Check, mutant: Mutant, linked: set[str], aloud: bool) -> int:
        """The exit code with which a check finds the mutant, or 0. One of sockets and threads has
        to find it twice, and so has one that ran out of time: others may use the machine."""
        self.link(check, mutant, linked)
        for _ in range(2):
            begin = time.monotonic()
            code, text, _ = self.tree.execute(check, "judge", self.folder())
            if aloud:
                seconds = time.monotonic() - begin
                print(f"{check.name}: exit code {code}, {seconds:.1f} s\n{text[-1500:]}")
            if code == 0 or not (check.real_time or code == OUT_OF_TIME):
                break
        return code

    def link(self, check: Check, mutant: Mutant, linked: set[str]) -> None:
        """Links what the check runs, once for a mutant."""
        stem, folder = ROOT / mutant.file, self.folder()
        program = check.name.split()[0] if check.simulate else "libcore.so"
        if program in linked:
            return
        linked.add(program)
        if not check.simulate:
            objects = [self.tree.object_of("judge", path) for path in self.tree.core]
            objects[self.tree.core.index(stem)] = folder / "mutant.o"
            command = [*PLAIN, "-shared", *map(str, objects), "-o", str(folder / program)]
        else:
            sites = folder / "sites.o"
            if "sites" not in linked and not is_driver(stem):
                assert self.compile(mutant, ["-DRP_SIMULATE"], sites), mutant.name
                linked.add("sites")
            extra = {} if is_driver(stem) else {stem: sites}
            command = self.tree.site_command("judge", program, folder, extra)
        subprocess.run(command, check=True)


# ---- the run ----


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
        self.known = {row["id"]: row for row in map(json.loads, rows)}
        self.prints = {check.name: check.print for check in judge.tree.checks}
        for row in self.known.values():
            judge.learn(row)
        self.results: list[dict] = []
        self.begin, self.fresh, self.total = time.monotonic(), 0, 0

    def keep(self, result: dict) -> None:
        with self.path.open("a") as out:  # the last row of an id counts
            out.write(json.dumps(result) + "\n")

    def kept(self, mutant: Mutant) -> dict | None:
        """What was found out about a mutant, under its name of today; None if it is not all."""
        source = self.judge.sources[mutant.file]
        key = key_of(mutant, source)
        found = self.known.get(mutant.id, {})
        listed = self.judge.equivalent.get(key)
        if listed:
            before, after = mutant.changed(source)
            found = {"before": before, "after": after, "kind": mutant.kind, "s": 0.0} | found
            return found | {"name": mutant.name, "state": "equivalent", "why": listed[0]}
        if not found:
            return None
        state = found["state"]
        if state == "killed" and self.print_of(found["why"]) != found["killer"]:
            return None
        if state == "survived":
            checks = self.judge.reached_by(mutant)
            if not checks or any(found["passed"].get(c.name) != c.print for c in checks):
                return None
        return found | {"name": mutant.name, "key": key}

    def print_of(self, name: str) -> str | None:
        if name.endswith(".py") and name not in self.prints:
            self.prints |= {check.name: check.print for check in python_checks()}
        return self.prints.get(name)

    def look(self, mutant: Mutant) -> dict:
        result = self.judge.judge(mutant, self.known.get(mutant.id, {}))
        self.judge.learn(result)
        self.keep(result)
        return result

    def take(self, result: dict, fresh: bool) -> None:
        self.fresh += fresh
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
                    known = self.kept(mutant)
                    if not known:
                        under_way[pool.submit(self.look, mutant)] = file
                        continue
                    turns += [file] * (known["state"] == "nonsense")
                    self.take(known, False)
                if not under_way:
                    continue
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    file = under_way.pop(future)
                    result = future.result()
                    turns += [file] * (result["state"] == "nonsense")
                    self.take(result, True)

    def again(self, mutants: list[Mutant]) -> None:
        """Judges these, whatever is known of them or listed; one alone with what checks say."""
        aloud = self.args.only not in ("", "survivors")
        with ThreadPoolExecutor(self.args.jobs) as pool:
            known = [self.known.get(mutant.id, {}) for mutant in mutants]
            judged = pool.map(lambda m, before: self.judge.judge(m, before, aloud), mutants, known)
            for i, result in enumerate(judged):
                self.results.append(result)
                self.keep(result)
                tell(result, f"[{i + 1}/{len(mutants)}]")

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
        late = sum(result.get("code") == OUT_OF_TIME for result in self.results)
        listed = sum(
            result["why"] != SAME_CODE for result in self.results if result["state"] == "equivalent"
        )
        judged = states["killed"] + states["survived"]
        print(
            f"{len(self.results)} mutants, seed {self.args.seed}: {states['killed']} killed "
            f"({late} of them by time), "
            f"{states['survived']} survived, {states['equivalent']} equivalent ({listed} of them "
            f"by tests/mutants/equivalent.txt): {100 * states['killed'] / max(1, judged):.1f} % "
            f"of what can be killed\nsurvivors: {self.path.parent / 'survivors.txt'}"
        )
        return states["survived"]

    def report_listed(self) -> int:
        """Of the listed ones, those that are no equivalents: a check finds them."""
        wrong = [result for result in self.results if result["state"] == "killed"]
        for result in sorted(wrong, key=lambda result: result["name"]):
            print(f"no equivalent: {result['name']}, {result['why']} finds it\n{diff_of(result)}")
        print(f"{len(self.results)} listed as equivalent: a check finds {len(wrong)} of them")
        return len(wrong)


def chosen(args: argparse.Namespace, equivalent: dict) -> list[Mutant]:
    """The mutants that ONLY names, one, or `survivors` for those of the last run; or the listed."""
    if args.listed:
        wanted = files_here(args.files.split())
        every = [m for file in wanted for m in mutants_of(ROOT, file)]
        return [m for m in every if key_of(m, (ROOT / m.file).read_bytes()) in equivalent]
    names = {args.only}
    if args.only == "survivors":
        text = (args.build / "survivors.txt").read_text()
        names = set(re.findall(r"^(native/\S+)", text, re.MULTILINE))
    files = sorted({name.split(":")[0] for name in names})
    return [m for file in files for m in mutants_of(ROOT, file) if m.name in names]


def main() -> int:
    """Draws, judges and reports; the exit code is 1 where one survived, or one listed did not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", default="", help="names of files in native/; all if none")
    parser.add_argument("--since", default="", help="lines that changed since this revision")
    parser.add_argument("--only", default="", help="one mutant by its name, or: survivors")
    parser.add_argument("--listed", action="store_true", help="those listed as equivalent, judged")
    parser.add_argument("--slow", action="store_true", help="every check that reaches the line")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--build", type=Path, default=ROOT / "build/mutants")
    args = parser.parse_args()
    tree = Tree(args.build, args.jobs)
    tree.open()
    judge = Judge(tree, args.slow or bool(args.only))
    run = Run(judge, args.build / "results.jsonl", args)
    if args.only or args.listed:
        run.again(chosen(args, judge.equivalent))
    else:
        run.all(*queues(args))
    return 1 if (run.report_listed() if args.listed else run.report()) else 0


if __name__ == "__main__":
    sys.exit(main())
