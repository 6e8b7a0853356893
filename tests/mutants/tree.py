"""The tree built twice: once to count which check reaches which line, once to judge mutants by.

In the second the core is a shared object that the test programs load, so that a mutant costs one
compilation and one link. Programs that place kill sites (base/site.h) are linked anew, since the
list of sites has to lie in the program itself. What was built, counted and measured is kept, each
with a digest of what it was made from: after a change only the rest is made again. What a check
reaches is kept by function: in one whose text changed it is taken to reach every line of it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sysconfig import get_path

from checks import (
    KILL_TESTS,
    NATIVE,
    REPLAYS,
    ROOT,
    Check,
    native_checks,
    print_of,
    python_checks,
    run,
)
from mutate import Unit, digest, functions_of

sys.path.append(str(ROOT / "tests/support"))
from tracked import copy_tracked

COMPILER = os.environ.get("CC", "gcc").split()
PLAIN = [word for word in COMPILER if word != "ccache"]  # a mutant is compiled once in its life
BASE = ["-std=c11", "-D_GNU_SOURCE", "-fPIC", f"-I{ROOT / 'native'}"]
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
BASE += [f"-DRP_VERSION={VERSION.group(1)}"]
BASE += [f"-fmacro-prefix-map={ROOT}/="]  # an assertion's text is the same wherever it is compiled
CFLAGS = [*BASE, "-O1"]  # two thirds of what -O2 takes to compile
# What a person could not have written by a slip of one sign is no mutant.
NONSENSE = ["-Werror=incompatible-pointer-types", "-Werror=int-conversion"]
COUNTED = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc"
DRIVERS = ("drive", "os", "transport")  # rooms; the engine stands without them
LONGEST = 60.0  # what a check may take that was never measured


def is_driver(path: Path) -> bool:
    return path.parent.name in DRIVERS


def said_by(command: list[str]) -> str:
    """Runs it; returns nothing, or where it failed all its words."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return f"{' '.join(command)}\n{done.stdout}{done.stderr}" if done.returncode else ""


def parallel(jobs: int, commands: list[list[str]]) -> None:
    """Runs the commands, `jobs` at a time; one that fails ends the program with its words."""
    with ThreadPoolExecutor(jobs) as pool:
        for said in filter(None, pool.map(said_by, commands)):
            raise SystemExit(said)


def digest_of(paths: list[Path]) -> str:
    return digest(b"".join(path.read_bytes() for path in paths))


def core_of(root: Path) -> list[Path]:
    """The core's files: all but the data plane's, which need DPDK, and the program around it."""
    apart = ("dpdk", "appliance")
    every = sorted((root / "native").glob("*/*.c"))
    return [path for path in every if path.parent.name not in apart]


class Tree:
    """The tree as it stands, built both ways below `build`."""

    def __init__(self, build: Path, jobs: int) -> None:
        self.build, self.jobs = build.resolve(), jobs
        self.build.mkdir(parents=True, exist_ok=True)
        self.core = core_of(ROOT)
        self.sim = sorted(NATIVE.glob("sim*.c"))
        self.checks: list[Check] = []
        self.functions = {
            name: functions_of(ROOT, name)
            for name in (str(path.relative_to(ROOT)) for path in self.core)
        }
        self.headers = digest_of(sorted((ROOT / "native").rglob("*.h")))
        self.core_print = self.headers + digest_of(self.core)
        self.keep = self.build / "kept.json"
        self.kept: dict = {"made": {}, "code": {}, "checks": {}}
        if self.keep.exists():
            self.kept = json.loads(self.keep.read_text())
        self.lock = threading.RLock()
        self.python: list[Check] | None = None

    def save(self) -> None:
        for check in [*self.checks, *(self.python or ())]:
            row = {"print": check.print, "reach": check.reach, "core": self.core_print}
            row |= {"seconds": check.seconds, "processor": check.processor}
            self.kept["checks"][check.name] = row
        new = self.keep.with_suffix(".new")
        new.write_text(json.dumps(self.kept))
        new.replace(self.keep)

    # ---- building ----

    def make(self, wanted: list[tuple[Path, str, list[str]]]) -> None:
        """Runs (output, digest of its sources, command) where that is not what lies there."""
        made = self.kept["made"]
        due = []
        for output, key, command in wanted:
            key = digest((key + " ".join(command)).encode())
            name = str(output.relative_to(self.build))
            if made.get(name) != key or not output.exists():
                made.pop(name, None)
                due.append((name, key, command))
        parallel(self.jobs, [command for _, _, command in due])
        made.update({name: key for name, key, _ in due})

    def object_of(self, variant: str, path: Path) -> Path:
        return self.build / variant / "objects" / f"{path.stem}.o"

    def make_objects(self, variant: str, files: list[Path], flags: list[str]) -> None:
        (self.build / variant / "objects").mkdir(parents=True, exist_ok=True)
        wanted = []
        for path in files:
            output = self.object_of(variant, path)
            key = self.headers + print_of([path])
            command = [*COMPILER, *CFLAGS, *flags, "-c", str(path.relative_to(ROOT))]
            wanted.append((output, key, [*command, "-o", str(output)]))
        self.make(wanted)

    def link_core(self, variant: str, flags: list[str]) -> None:
        objects = [str(self.object_of(variant, path)) for path in self.core]
        output = self.build / variant / "libcore.so"
        command = [*PLAIN, "-shared", *flags, *objects, "-o", str(output)]
        self.make([(output, self.core_print, command)])

    def site_command(self, variant: str, name: str, folder: Path, extra: dict) -> list[str]:
        """Links the simulator or a kill test into `folder`, with some objects from `extra`."""
        variant_sites = f"{variant}_sites"
        objects = [
            str(extra.get(path, self.object_of(variant_sites, path)))
            for path in self.core
            if not is_driver(path)
        ]
        own = self.sim if name == "sim" else [NATIVE / f"{name}.c"]
        objects += [str(self.object_of(variant_sites, path)) for path in own]
        flags = ["--coverage"] if variant == "count" else []
        flags += [COUNTED] if name == "sim" else []
        return [*PLAIN, *flags, *objects, "-o", str(folder / name), "-lm"]

    def make_sites(self, variant: str, flags: list[str]) -> None:
        files = [path for path in self.core if not is_driver(path)]
        self.make_objects(f"{variant}_sites", files, [*flags, "-DRP_SIMULATE"])
        others = [*self.sim, *(NATIVE / f"{name}.c" for name in KILL_TESTS)]
        self.make_objects(f"{variant}_sites", others, ["-DRP_SIMULATE", "-O2"])
        at = self.build / variant
        key = self.core_print + print_of(others)
        names = ("sim", *KILL_TESTS)
        self.make([(at / name, key, self.site_command(variant, name, at, {})) for name in names])

    def make_programs(self, variant: str) -> None:
        """The test programs and the replays: they load the core."""
        at = self.build / variant
        tail = [f"-L{at}", "-lcore", "-lpthread", "-lm"]
        sources = {
            path.stem: [path]
            for path in sorted(NATIVE.glob("test_*.c"))
            if path.stem not in KILL_TESTS
        }
        for target in REPLAYS:
            names = (target, "port", "replay")
            sources[f"replay_{target}"] = [NATIVE / f"fuzz_{name}.c" for name in names]
        wanted = []
        for name, files in sources.items():
            key = self.headers + print_of(files)
            command = [*COMPILER, *BASE, "-O2", *map(str, files), "-o", str(at / name), *tail]
            wanted.append((at / name, key, command))
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(self.make_program, wanted))

    def make_program(self, wanted: tuple[Path, str, list[str]]) -> None:
        try:
            self.make([wanted])
        except SystemExit as failed:
            wanted[0].unlink(missing_ok=True)
            print(f"left out, it does not compile: {wanted[0].name}\n{failed}"[:1000], flush=True)

    def stands(self, check: Check) -> bool:
        """Whether its program was made."""
        at = self.build / "judge"
        return Path(check.command[0].format(programs=at, core=at)).exists()

    def make_variant(self, variant: str) -> None:
        coverage = ["--coverage"] if variant == "count" else []
        self.make_objects(variant, self.core, coverage or NONSENSE)
        self.link_core(variant, coverage)
        self.make_programs(variant)
        self.make_sites(variant, coverage)
        self.save()

    def make_python(self) -> None:
        """A copy of the Python files whose extension loads the core, for every check in Python."""
        copy = self.build / "python"
        shutil.rmtree(copy, ignore_errors=True)
        copy_tracked(copy, "*.py", "*.toml", "*.h", "*.md")
        glue = copy / "glue.c"
        script = (
            "import sys; sys.path.insert(0, sys.argv[1]);"
            "from _build import ffibuilder; ffibuilder.emit_c_code(sys.argv[2])"
        )
        parallel(1, [[sys.executable, "-c", script, str(copy / "replay_server"), str(glue)]])
        command = [*COMPILER, *CFLAGS, "-DPy_LIMITED_API=0x030a0000", f"-I{get_path('include')}"]
        command += ["-shared", str(glue), f"-L{self.build / 'judge'}"]
        command += ["-lcore", "-o", str(copy / "replay_server/_engine.abi3.so")]
        parallel(1, [command])

    # ---- measuring ----

    def execute(self, check: Check, variant: str, core: Path | None = None, **extra: str):
        """Runs one check against the core in `core` (the tree's own if None)."""
        programs = self.build / variant
        core = core or programs
        command = [word.format(programs=programs, core=core) for word in check.command]
        where = self.build / "python" if check.python else ROOT
        if check.short:
            extra["RP_TEST_SHORT"] = "1"
        bounds = (check.seconds or LONGEST, check.processor or LONGEST)
        return run(command, where, bounds, LD_LIBRARY_PATH=str(core), **extra)

    def count_lines(self, check: Check) -> None:
        """Fills in which lines of the core the check reaches."""
        prefix = self.build / "gcda" / check.name
        shutil.rmtree(prefix, ignore_errors=True)
        prefix.mkdir(parents=True)
        self.execute(check, "count", GCOV_PREFIX=str(prefix))
        data = sorted(prefix.rglob("*.gcda"))
        for path in data:  # gcov looks for the notes beside the counts
            notes = Path("/") / path.relative_to(prefix).with_suffix(".gcno")
            if notes.exists():
                shutil.copy2(notes, path.with_suffix(".gcno"))
        check.reach = {}
        if not data:
            return
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(
                ["gcov", "--json-format", *map(str, data)], cwd=scratch, capture_output=True
            )
            for report in Path(scratch).glob("*.gcov.json.gz"):
                for entry in json.loads(gzip.decompress(report.read_bytes()))["files"]:
                    name = re.sub(r"^.*?(native/\w+/\w+\.c)$", r"\1", entry["file"])
                    if name in self.functions:
                        self.take_lines(check, name, entry["lines"])
        shutil.rmtree(prefix)

    def take_lines(self, check: Check, file: str, lines: list[dict]) -> None:
        counts: dict[int, int] = {}
        for line in lines:
            number = line["line_number"]
            counts[number] = counts.get(number, 0) + line["count"]
        code, reach = self.kept["code"].setdefault(file, {}), check.reach.setdefault(file, {})
        for unit in self.functions[file]:
            inside = [n for n in range(unit.first, unit.last + 1) if n in counts]
            if inside:
                code[unit.name] = [unit.print, [n - unit.first for n in inside]]
                reached = [n - unit.first for n in inside if counts[n]]
                reach[unit.name] = [unit.print, reached]

    def prepare(self, checks: list[Check]) -> list[Check]:
        """Measures what is not known of the checks; leaves out those that fail on the tree."""
        checks = [check for check in checks if self.stands(check)]
        changed = []
        for check in checks:
            row = self.kept["checks"].get(check.name, {})
            if row.get("print") == check.print and self.knows_all(check, row["reach"]):
                check.reach = row["reach"]
                check.seconds, check.processor = row["seconds"], row["processor"]
            else:
                changed.append(check)
        if changed:
            print(f"counting the lines that {len(changed)} checks reach ...", flush=True)
            self.make_variant("count")
            with ThreadPoolExecutor(self.jobs) as pool:
                list(pool.map(self.count_lines, changed))
        with ThreadPoolExecutor(self.jobs) as pool:
            good = [check for check in pool.map(self.try_out, checks) if check]
        return sorted(good, key=lambda check: check.seconds)

    def knows_all(self, check: Check, reach: dict) -> bool:
        """Whether no file of the core is newer than the counts: all have some, if only of 0."""
        files = [file for file, functions in self.functions.items() if functions]
        linked = [f for f in files if not (check.simulate and is_driver(ROOT / f))]
        return not reach or all(file in reach for file in linked)

    def try_out(self, check: Check) -> Check | None:
        """Runs a check on the tree as it is, unless it did so before; None if it fails."""
        row = self.kept["checks"].get(check.name, {})
        if (row.get("print"), row.get("core")) == (check.print, self.core_print):
            return check
        begin, check.seconds, check.processor = time.monotonic(), 0.0, 0.0
        code, text, processor = self.execute(check, "judge")
        if code != 0:
            print(f"left out, it fails without any mutant: {check.name}\n{text[-600:]}")
            return None
        check.seconds, check.processor = time.monotonic() - begin, processor
        print(f"  {check.name:28} {check.seconds:6.2f} s, {processor:6.2f} s", flush=True)
        return check

    def open(self) -> None:
        begin = time.monotonic()
        self.make_variant("judge")
        self.checks = self.prepare(native_checks())
        self.save()
        print(f"built and measured in {time.monotonic() - begin:.0f} s", flush=True)

    def python_checks(self) -> list[Check]:
        """Measured when a first mutant asks for them: they take minutes."""
        with self.lock:
            if self.python is None:
                self.make_variant("count")
                self.make_python()
                self.python = self.prepare(python_checks())
                self.save()
            return self.python

    # ---- asking ----

    def reaches(self, check: Check, file: str, unit: Unit, lines: range) -> bool:
        """Whether a check runs one of these lines; of what is no code, whether it runs the unit."""
        functions = check.reach.get(file, {})
        if unit.name not in functions:  # at file scope, or newer than the counts: whoever runs it
            return any(reached for _, reached in functions.values())
        print, reached = functions[unit.name]
        code_print, code = self.kept["code"].get(file, {}).get(unit.name, ["", []])
        inside = {line - unit.first for line in lines}
        if print != unit.print or code_print != unit.print or inside.isdisjoint(code):
            return bool(reached)
        return not inside.isdisjoint(reached)
