"""A run's folder: the options of its programs, what they measured, how long each phase took.

    RUN/config-NAME.toml    every option of program NAME as it was resolved (runfile.py)
    RUN/metrics.jsonl       one JSON object a line, of all programs, flushed as it is written:
                            "time" in seconds since 1970, "program", "life", "step", scalars by
                            name; life n+1 of a program goes on in the folder of life n: an actor
                            at the last step logged, a learner at its checkpoint's, so that of two
                            lines of a learner's step the one of the later life counts
    RUN/NAME.lock           held by program NAME as long as it lives; its process id
    RUN/tensorboard/NAME/   the same scalars as event files, for TensorBoard
    RUN/checkpoints/        the learner's
    RUN/summary.json        written by whoever judges the run

A line is one write to a file opened for appending, so lines of several programs never mix on a
local disk. A line that cannot be written is left out and the program goes on (Run.log). What the
names mean stands in scalars.py.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ConfigError, ReplayError
from . import scalars
from .record_file import RecordFile
from .wandb_run import WandbRun

METRICS = "metrics.jsonl"
FINISHED = "finished"  # the event of an actor or learner that did all that it was asked for
ENDED = "ended"  # that of a learner that was stopped before
ANOTHER = "name another folder with --run"


class RunTaken(ReplayError):
    """Another process is this program of this run."""


def commit() -> str:
    """The commit this code stands on, with "-dirty" where it was changed; "unknown" without git."""
    head, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno")
    return head + "-dirty" * bool(changed) if head else "unknown"


def _git(*words: str) -> str:
    """What git says here, or nothing. Without locks: one would stay behind where this process is
    killed, and would stop the user's next commit."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *words],
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """An OSError of a write (a full disk) says which file it was, as that of an open does."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def replace_text(path: Path, text: str) -> None:
    """The whole text under `path`, or nothing: written beside it and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _naming(path):
            beside.write_text(text)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """The document as JSON, whole or not at all."""
    replace_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n")


def make_folder(folder: Path) -> None:
    """A run's folder, unless it is there; ConfigError where there cannot be one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"{folder} is a file, and a run needs a folder: {ANOTHER}") from error
    except OSError as error:
        raise ConfigError(f"no folder {folder} can be made: {error.strerror}; {ANOTHER}") from error


@contextmanager
def held(folder: Path, name: str) -> Iterator[None]:
    """This program is the only NAME of the run folder within; RunTaken where there is one. What
    another one wrote is not touched by who is refused."""
    lock = _hold(folder / f"{name}.lock")
    try:
        yield
    finally:
        os.close(lock)


def _hold(path: Path) -> int:
    """The open file `path`, locked until it is closed or the process ends; RunTaken where another
    process has it. A file system without locks is taken as it is."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; {ANOTHER}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(file, 20).decode(errors="replace").strip()
        os.close(file)
        raise RunTaken(
            f"{path.stem} of {path.parent} runs already (process {holder}): end it first, or "
            f"{ANOTHER}"
        ) from error
    except OSError:
        return file
    os.truncate(file, 0)
    with _naming(path):
        os.write(file, f"{os.getpid()}\n".encode())
    return file


def first_free(folder: Path, name: str) -> int:
    """The first number n of which no program NAME-n lives in this run, by the locks' process ids:
    to try a lock would refuse the one who takes it at that moment."""
    return next(n for n in itertools.count() if not _lives(folder / f"{name}-{n}.lock"))


def _lives(path: Path) -> bool:
    try:
        os.kill(int(path.read_text()), 0)
    except PermissionError:
        return True  # of another user
    except (OSError, ValueError, OverflowError):
        return False
    return True


class Run:
    """One program's part of a run folder, and the only one of its name as long as it lives (else
    RunTaken). wandb shows `arguments` as the run's; `say` prints a line for the person watching.

    life            how often the program was started with this folder before
    last_step       the largest step it logged in those lives, 0 without one
    lines_missing   lines in a row, up to now, that could not be written
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        arguments: Mapping[str, Any],
        *,
        tensorboard: bool = True,
        wandb: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        self.folder, self.name, self.say = folder, name, say
        self.lines_missing = 0
        make_folder(folder)
        self.lock = _hold(folder / f"{name}.lock")
        before = read_metrics(folder, name)
        self.life = 1 + max((line.get("life", 0) for line in before), default=-1)
        self.last_step = max((line.get("step", 0) for line in before), default=0)
        self.wandb = WandbRun(folder, name, arguments) if wandb else None
        self.events = None
        if tensorboard:
            from .event_file import EventFile  # here, since it needs the compiled core

            self.events = EventFile(folder / "tensorboard" / name)
        self.file = RecordFile(folder / METRICS)
        self.file.end_line()

    def begin(self) -> None:
        """The line by which the next life knows of this one; OSError where the disk is full."""
        self._write(time.time(), {"event": "began"})

    def log(self, step: int, **values: float | None) -> None:
        """A line of scalars at this step of the program; None means there is none yet.

        Where it cannot be written (a full disk) it is left out, and the program goes on. The
        person watching reads so at the first such line, and again when lines are written again.
        """
        found = {name: float(value) for name, value in values.items() if value is not None}
        for name in found:
            assert scalars.known(name), f"{name!r} is not one of the names in scalars.py"
        now = time.time()
        try:
            self._write(now, {"step": step, **found})
            if self.events:
                self.events.write(now, step, found)
            self._report_written()
        except OSError as error:
            self._report_missing(error)
        if self.wandb:
            self.wandb.log(step, found)

    def event(self, **facts: Any) -> None:
        """A line of facts that happened once; "event" says which. Left out as those of `log`."""
        try:
            self._write(time.time(), facts)
        except OSError as error:
            self._report_missing(error)

    def _write(self, now: float, values: Mapping[str, Any]) -> None:
        shown = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        line = json.dumps({"time": now, "program": self.name, "life": self.life, **shown}) + "\n"
        self.file.append(line.encode())

    def _report_missing(self, error: OSError) -> None:
        """Counts a line that is left out; reports the first of several."""
        self.lines_missing += 1
        if self.lines_missing == 1:
            self.say(
                f"{self.name}: metrics cannot be written ({error}): they are left out and "
                "everything else goes on; make room, and they are written again"
            )

    def _report_written(self) -> None:
        """After lines that are missing: how many, to the person watching and in the file."""
        if self.lines_missing:
            self._write(time.time(), {"event": "missing", "lines": self.lines_missing})
            self.say(f"{self.name}: metrics are written again; {self._missing()}")
            self.lines_missing = 0

    def _missing(self) -> str:
        lines = "line is" if self.lines_missing == 1 else "lines are"
        return f"{self.lines_missing} {lines} missing in {self.file.path} or in its event file"

    def close(self) -> None:
        """Closes every file, and lets another process go on in the folder."""
        if self.lines_missing:
            self.say(f"{self.name}: {self._missing()}")
        self.file.close()
        os.close(self.lock)
        if self.events:
            self.events.close()
        if self.wandb:
            self.wandb.close()


class Metrics:
    """The lines of a run folder's metrics, read as they grow: each line is parsed once, and a look
    at one program's costs nothing for the others'."""

    def __init__(self, folder: Path) -> None:
        self.path, self.offset = folder / METRICS, 0
        self.lines: list[dict[str, Any]] = []
        self.of: dict[str, list[dict[str, Any]]] = {}  # of each program
        self.happened: dict[str, list[dict[str, Any]]] = {}  # of each program, its events alone

    def read(self, program: str | None = None) -> list[dict[str, Any]]:
        """The whole lines so far, of one program or of all; what a kill cut short is left out."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                whole, end, _ = file.read().rpartition(b"\n")
            self.offset += len(whole) + len(end)
            for line in filter(None, map(_decoded, whole.splitlines())):
                self.lines.append(line)
                self.of.setdefault(line["program"], []).append(line)
                if "event" in line:
                    self.happened.setdefault(line["program"], []).append(line)
        return list(self.lines if program is None else self.of.get(program, ()))

    def events(self, program: str, kind: str) -> list[dict[str, Any]]:
        """The lines of this program's events of one kind, up to now."""
        self.read(program)
        return [line for line in self.happened.get(program, ()) if line["event"] == kind]

    def finished(self, program: str) -> bool:
        """Whether it did all that it was asked for, in any of its lives."""
        return bool(self.events(program, FINISHED))


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None  # cut short by a kill or a full disk
    return found if isinstance(found, dict) and "program" in found else None  # somebody else's


def largest(lines: list[dict[str, Any]], name: str) -> float | None:
    """The largest value that these lines have under this name; None without one."""
    return max((line[name] for line in lines if line.get(name) is not None), default=None)


def read_metrics(folder: Path, program: str | None = None) -> list[dict[str, Any]]:
    """All lines of metrics in the folder, or those of one program; read once."""
    return Metrics(folder).read(program)


class Phases:
    """Seconds that each phase of a loop took: `with phases("sample"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # since the last call of `shares`
        self.all: dict[str, float] = {}  # since the beginning
        self.begin = self.first = time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)

    def add(self, name: str, seconds: float) -> None:
        """Time that was measured elsewhere."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.all[name] = self.all.get(name, 0.0) + seconds

    def shares(self) -> dict[str, float]:
        """{"phase/NAME": share of the time since the last call}; starts anew."""
        now = time.perf_counter()
        whole = max(now - self.begin, 1e-9)
        shares = {f"{scalars.PHASES}{name}": spent / whole for name, spent in self.seconds.items()}
        self.seconds, self.begin = {}, now
        return shares

    def text(self) -> str:
        """The share of all the time that each phase took, for a person."""
        whole = max(time.perf_counter() - self.first, 1e-9)
        shares = sorted(((spent / whole, name) for name, spent in self.all.items()), reverse=True)
        return ", ".join(f"{name} {share:.1%}" for share, name in shares)


class Timed:
    """A part of a loop, whose every call counts as one phase."""

    def __init__(self, part: Any, phases: Phases, name: str) -> None:
        self._part, self._phases, self._name = part, phases, name

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._part, method)

        def timed(*arguments: Any) -> Any:
            with self._phases(self._name):
                return call(*arguments)

        return timed


def fraction(seconds: Mapping[str, float], name: str, among: tuple[str, ...]) -> float:
    """The seconds of one phase as a share of those of all phases in `among`; 0 without any."""
    whole = sum(seconds.get(part, 0.0) for part in among)
    return seconds.get(name, 0.0) / whole if whole > 0.0 else 0.0
