"""What can find a mutant, built once for a tree: the checks, and the lines that each one reaches.

Two builds of everything. One counts lines (gcov), to tell which check reaches which line. The other
is judged: the core is a shared object that the test programs load, so that a mutant costs one
compilation and one link. Programs that place kill sites (native/site.h) are linked anew, since the
list of sites has to lie in the program itself.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from sysconfig import get_path

ROOT = Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CC", "gcc").split()
PLAIN = [word for word in COMPILER if word != "ccache"]  # a mutant is compiled once in its life
CFLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC"]
# What a person could not have written by a slip of one sign is no mutant.
NONSENSE = ["-Werror=incompatible-pointer-types", "-Werror=int-conversion"]
COUNTED = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc"
DRIVERS = ("transport_", "url", "pump", "service", "link", "wake", "clock")
KILL_TESTS = ("test_intent",)  # linked with the core of the simulator
REPLAYS = ("packet", "server", "client")
SIM_SEEDS = 4
# Of the Python tests those that drive the core through the drivers and need not train anything.
PYTHON_TESTS = (
    "test_client_errors",
    "test_server_config",
    "test_writer",
    "test_waiting",
    "test_shards",
    "test_server",
    "test_client_landing",
    "test_conformance",
    "test_block",
)
MEMORY_MAX = 8 << 30
FILE_MAX = 1 << 30


@dataclass
class Check:
    """One way to find a mutant: a program and how it is run; its lines and seconds are measured."""

    name: str
    command: list[str]
    simulate: bool = False  # linked anew for each mutant, with kill sites
    python: bool = False
    seconds: float = 0.0
    lines: dict[str, set[int]] = field(default_factory=dict)


def is_driver(path: Path) -> bool:
    return path.name.startswith(DRIVERS)


def parallel(jobs: int, commands: list[list[str]], directory: Path) -> None:
    """Runs the commands, `jobs` at a time; the first that fails ends the program with its words."""

    def one(command: list[str]) -> None:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, commands))


def limits(cpu_seconds: float):
    """What a mutant that runs wild may take."""

    def apply() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds) + 1, int(cpu_seconds) + 2))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, FILE_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return apply


def run(command: list[str], directory: Path, seconds: float, core: Path, **extra: str):
    """Runs a check in a folder of its own; returns (exit code, what it said, seconds).

    Its time is bounded by the processor's clock, and ten times as generously by the wall's, since
    other work may share the machine. The exit code of a run that ends by time is 124.
    """
    begin = time.monotonic()
    environment = os.environ | {"LD_LIBRARY_PATH": str(core), **extra}
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
            preexec_fn=limits(3 + 3 * seconds),
        )
        try:
            code = process.wait(10 + 10 * seconds)
        except subprocess.TimeoutExpired:
            code = 124
        with contextlib.suppress(ProcessLookupError):  # what it started goes with it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        said.seek(max(0, said.seek(0, 2) - 4000))
        text = said.read().decode(errors="replace")
    if code == -signal.SIGXCPU:
        code = 124
    return code, text, time.monotonic() - begin


class Tree:
    """The tree as it stands, built both ways below `build`."""

    def __init__(self, build: Path, jobs: int) -> None:
        self.build, self.jobs = build.resolve(), jobs
        self.core = sorted((ROOT / "native").glob("*.c"))
        self.tests = sorted((ROOT / "tests/native").glob("test_*.c"))
        self.sim = sorted((ROOT / "tests/native").glob("sim*.c"))
        self.checks: list[Check] = []
        self.code: dict[str, set[int]] = {}  # the lines of each file that are code

    # ---- building ----

    def object_of(self, variant: str, path: Path) -> Path:
        return self.build / variant / "objects" / f"{path.stem}.o"

    def compile_core(self, variant: str, files: list[Path], flags: list[str]) -> None:
        (self.build / variant / "objects").mkdir(parents=True, exist_ok=True)
        command = [*COMPILER, *CFLAGS, *flags, f"-I{ROOT / 'native'}", "-c"]
        parallel(
            self.jobs,
            [
                [*command, f"native/{path.name}", "-o", str(self.object_of(variant, path))]
                for path in files
            ],
            ROOT,
        )

    def link_core(self, variant: str, flags: list[str]) -> None:
        objects = [str(self.object_of(variant, path)) for path in self.core]
        output = self.build / variant / "libcore.so"
        parallel(1, [[*PLAIN, "-shared", *flags, *objects, "-o", str(output)]], ROOT)

    def link_simulate(self, variant: str, output: Path, extra: dict[Path, Path]) -> None:
        """Links the simulator and the kill tests into `output`, with some objects from `extra`."""
        flags = ["--coverage"] if variant.startswith("count") else []
        objects = [
            str(extra.get(path, self.object_of(f"{variant}_sites", path)))
            for path in self.core
            if not is_driver(path)
        ]
        sim = [str(self.object_of(f"{variant}_sites", path)) for path in self.sim]
        commands = [
            [*PLAIN, *flags, *objects, *sim, "-o", str(output / "sim"), "-lm", COUNTED],
        ]
        for name in KILL_TESTS:
            test = str(self.object_of(f"{variant}_sites", Path(name)))
            commands.append([*PLAIN, *flags, *objects, test, "-o", str(output / name), "-lm"])
        parallel(self.jobs, commands, ROOT)

    def programs(self, variant: str) -> None:
        """The test programs and the replays, once for each build: they load the core."""
        at = self.build / variant
        base = [*COMPILER, *CFLAGS, f"-I{ROOT / 'native'}"]
        tail = [f"-L{at}", "-lcore", "-lpthread", "-lm"]
        native = ROOT / "tests/native"
        commands = [
            [*base, str(path), "-o", str(at / path.stem), *tail]
            for path in self.tests
            if path.stem not in KILL_TESTS
        ]
        for target in REPLAYS:
            sources = [
                native / f"fuzz_{target}.c",
                native / "fuzz_port.c",
                native / "fuzz_replay.c",
            ]
            commands.append([*base, *map(str, sources), "-o", str(at / f"replay_{target}"), *tail])
        parallel(self.jobs, commands, ROOT)

    def sites(self, variant: str, flags: list[str]) -> None:
        files = [path for path in self.core if not is_driver(path)]
        self.compile_core(f"{variant}_sites", files, [*flags, "-DRP_SIMULATE"])
        command = [*COMPILER, *CFLAGS, "-DRP_SIMULATE", f"-I{ROOT / 'native'}", "-c"]
        others = [*self.sim, *(ROOT / f"tests/native/{name}.c" for name in KILL_TESTS)]
        parallel(
            self.jobs,
            [
                [*command, str(path), "-o", str(self.object_of(f"{variant}_sites", path))]
                for path in others
            ],
            ROOT,
        )
        self.link_simulate(variant, self.build / variant, {})

    def python_tree(self) -> None:
        """A copy of the Python files whose extension loads the core, for every check in Python."""
        copy = self.build / "python"
        shutil.rmtree(copy, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if name.endswith((".py", ".toml", ".h", ".md")) and (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        glue = copy / "glue.c"
        script = (
            "import sys; sys.path.insert(0, sys.argv[1]);"
            "from _build import ffibuilder; ffibuilder.emit_c_code(sys.argv[2])"
        )
        parallel(1, [[sys.executable, "-c", script, str(copy / "replay_server"), str(glue)]], ROOT)
        command = [*COMPILER, *CFLAGS, "-DPy_LIMITED_API=0x030a0000", f"-I{get_path('include')}"]
        command += [f"-I{ROOT / 'native'}", "-shared", str(glue), f"-L{self.build / 'judge'}"]
        command += ["-lcore", "-o", str(copy / "replay_server/_engine.abi3.so")]
        parallel(1, [command], ROOT)

    # ---- measuring ----

    def list_checks(self) -> list[Check]:
        found = [
            Check(path.stem, [f"{{core}}/{path.stem}"])
            if path.stem in KILL_TESTS
            else Check(path.stem, [f"{{programs}}/{path.stem}"])
            for path in self.tests
        ]
        for check in found:
            check.simulate = check.name in KILL_TESTS
        for target in REPLAYS:
            corpus = ROOT / "tests/corpus" / target
            if corpus.is_dir():
                command = [f"{{programs}}/replay_{target}", str(corpus)]
                found.append(Check(f"replay_{target}", command))
        sim = ["{core}/sim", "--seed", "1", "--seeds", str(SIM_SEEDS)]
        found.append(Check("sim", sim, simulate=True))
        for name in PYTHON_TESTS:
            if (ROOT / f"tests/{name}.py").exists():
                command = [sys.executable, "-m", "pytest", "-q", "-x", "--noconftest"]
                command += ["-p", "no:cacheprovider", f"tests/{name}.py"]
                found.append(Check(name + ".py", command, python=True))
        return found

    def execute(self, check: Check, variant: str, core: Path | None = None, **extra: str):
        """Runs one check against the core in `core` (the tree's own if None)."""
        programs = self.build / variant
        core = core or programs
        command = [word.format(programs=programs, core=core) for word in check.command]
        where = self.build / "python" if check.python else ROOT
        return run(command, where, check.seconds or 30, core, **extra)

    def count_lines(self, check: Check) -> None:
        """Fills in which lines of the core the check reaches."""
        prefix = self.build / "gcda" / check.name
        shutil.rmtree(prefix, ignore_errors=True)
        prefix.mkdir(parents=True)
        self.execute(check, "count", GCOV_PREFIX=str(prefix))
        check.seconds = 0
        data = sorted(prefix.rglob("*.gcda"))
        for path in data:  # gcov looks for the notes beside the counts
            notes = Path("/") / path.relative_to(prefix).with_suffix(".gcno")
            if notes.exists():
                shutil.copy2(notes, path.with_suffix(".gcno"))
        if not data:
            return
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(
                ["gcov", "--json-format", *map(str, data)], cwd=scratch, capture_output=True
            )
            for report in Path(scratch).glob("*.gcov.json.gz"):
                for entry in json.loads(gzip.decompress(report.read_bytes()))["files"]:
                    name = re.sub(r"^.*?(native/\w+\.[ch])$", r"\1", entry["file"])
                    for line in entry["lines"]:
                        self.code.setdefault(name, set()).add(line["line_number"])
                        if line["count"]:
                            check.lines.setdefault(name, set()).add(line["line_number"])

    def open(self) -> None:
        """Builds both ways, measures every check; says which fail on the tree itself."""
        begin = time.monotonic()
        print("building the tree to count lines ...", flush=True)
        counting = ["--coverage", "-O1"]
        self.compile_core("count", self.core, counting)
        self.link_core("count", ["--coverage"])
        self.programs("count")
        self.sites("count", counting)
        print("building the tree to judge by ...", flush=True)
        self.compile_core("judge", self.core, NONSENSE)
        self.link_core("judge", [])
        self.programs("judge")
        self.sites("judge", [])
        self.python_tree()
        for check in self.list_checks():
            self.count_lines(check)
            code, text, seconds = self.execute(check, "judge")
            if code != 0:
                print(f"left out, it fails without any mutant: {check.name}\n{text[-600:]}")
                continue
            check.seconds = seconds
            self.checks.append(check)
            print(f"  {check.name:28} {seconds:6.2f} s", flush=True)
        self.checks.sort(key=lambda check: (check.python, check.name == "sim", check.seconds))
        print(f"built and measured in {time.monotonic() - begin:.0f} s", flush=True)

    # ---- keeping ----

    def save(self, path: Path) -> None:
        rows = [
            check.__dict__ | {"lines": {k: sorted(v) for k, v in check.lines.items()}}
            for check in self.checks
        ]
        code = {name: sorted(lines) for name, lines in self.code.items()}
        path.write_text(json.dumps({"code": code, "checks": rows}))

    def load(self, path: Path) -> None:
        kept = json.loads(path.read_text())
        self.code = {name: set(lines) for name, lines in kept["code"].items()}
        for row in kept["checks"]:
            row["lines"] = {name: set(lines) for name, lines in row["lines"].items()}
            self.checks.append(Check(**row))
