"""`bench --ladder`: the same client work over every transport, in turns (result T1 of the paper).

Access latency is one put (a step of S bytes pushed, until the server acknowledged it as stored) or
one get (SAMPLE of one item of S bytes, until it has landed), one outstanding. Every case has a
server and a client in processes of their own, each pinned to a core, the largest datagram the same
on all (the paper's frame size); the client's loop is in C (drive/link_probe.c). Of all servers
only the one being measured runs.

Turns: a round visits every cell (work, size) in an order drawn from the seed, and in each cell
every case, so that a slow moment of the host falls on all of them. Rounds go on until the time is
over, which is known before; a case that fails is reported and the others go on.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _native
from ..errors import ConfigError, ReplayError
from . import ladder_cases as cases
from . import ladder_figures, ladder_plot
from .ladder_cases import HEADERS, NIC, VETH, Case
from .ladder_figures import WORKS, Figures
from .machine import expect_places, machine, write_rows
from .namespaces import Pair
from .stoppable import put_off, stoppable

SIZES = tuple(64 << i for i in range(11))  # 64 B .. 64 KiB
RATE_SIZES = (64, 1024, 8192, 65536)
MTUS = (1400, 8960)
FULL_S, QUICK_S = 360.0, 48.0
CALLS, WARM, CALLS_LIMIT_S = 200, 20, 0.1
RATE_LIMIT_S = 0.05
RATE_SHARE = 0.3  # of the time
START_S, ORDER_S, END_S = 60.0, 30.0, 10.0
PROGRESS_S = 10.0
EXIT_STOPPED = 130
SECONDS_MIN, SECONDS_MAX = 1.0, 24 * 3600.0


@dataclass(frozen=True)
class Course:
    """What is measured for how long. cores: server's and client's, the same where there is one."""

    cases: tuple[Case, ...]
    sizes: tuple[int, ...] = SIZES
    rate_sizes: tuple[int, ...] = RATE_SIZES
    mtus: tuple[int, ...] = MTUS
    seconds: float = FULL_S
    seed: int = 1
    calls: int = CALLS
    rate_limit_s: float = RATE_LIMIT_S
    cores: tuple[int, ...] = ()


def two_cores(cores: Sequence[int], siblings: Callable[[int], set[int]]) -> tuple[int, ...]:
    """The last core for the server and one for the client, which is no thread of the same one where
    that can be; one core where there is only one."""
    if len(cores) < 2:
        return tuple(cores)
    server = cores[-1]
    apart = [core for core in cores[:-1] if core not in siblings(server)]
    return server, (apart or cores)[0]


def siblings_of(core: int) -> set[int]:
    """The threads of a core, as far as the system says."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    found: set[int] = set()
    try:
        for part in path.read_text().strip().split(","):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    except (OSError, ValueError):
        pass  # no topology: every core is taken for one of its own
    return found


# ---- processes ----


class End:
    """A process of ladder_end.py: orders go in, answers come out. own_session: a terminal's Ctrl-C
    does not reach it, and Linux's autogroup shares a busy core out between it and other sessions.
    """

    def __init__(self, command: Sequence[str], log: Path, own_session: bool = True) -> None:
        self.log, self.facts = log, dict[str, Any]()
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=own_session,
            )

    @classmethod
    def all(
        cls, commands: Mapping[str, Sequence[str]], folder: Path, stack: ExitStack, **how: bool
    ) -> dict[str, End]:
        """{name: its process}, started side by side, each with what it said first in `facts`;
        `stack` ends them. Raises what one answered."""
        ends = {}
        for name, command in commands.items():
            with put_off():
                ends[name] = cls(command, folder / f"{name}.log", **how)
                stack.callback(ends[name].close)
        for end in ends.values():
            end.facts = end.answer(START_S)
        return ends

    def ask(self, order: str, **arguments: Any) -> dict[str, Any]:
        """The answer; ReplayError where it is an error, or there is none."""
        self.post(order, **arguments)
        return self.answer()

    def post(self, order: str, **arguments: Any) -> None:
        """Sends an order; `answer` is to be called for it."""
        try:
            self.process.stdin.write(json.dumps({"do": order, **arguments}) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise ReplayError(f"its process has ended: {self._last_words()}") from error

    def answer(self, seconds: float = ORDER_S) -> dict[str, Any]:
        """The answer to the oldest order that has none yet."""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            raise ReplayError(f"its process did not answer within {seconds:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise ReplayError(f"its process has ended: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ReplayError(answer["error"])
        return answer

    def _last_words(self) -> str:
        words = self.log.read_text().strip().splitlines()
        return words[-1] if words else f"exit code {self.process.poll()}"

    def close(self) -> None:
        """Ends its input, and it by force where that does not help. Twice is fine."""
        for end in (self._hang_up, self.process.terminate, self.process.kill):
            if self.process.poll() is None:
                end()
                try:
                    self.process.wait(END_S)
                except subprocess.TimeoutExpired:
                    continue
        self.process.stdout.close()
        self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):  # it was gone before it had read all
            self.process.stdin.close()


class Standing:
    """A case whose server and client stand, both waiting for their turn."""

    def __init__(self, case: Case, mtu: int, course: Course, pair: Pair | None, path: Path) -> None:
        self.case = case
        at = pair.server if pair is not None else None
        server_url, client_url = cases.urls(case, mtu, str(path / case.key), at)
        common = {"sizes": list(course.sizes), "busy": case.busy}
        server_core, client_core = course.cores[0], course.cores[-1]
        self._ends = ExitStack()
        try:
            self.server = self._start(
                pair and pair.server,
                path,
                {"role": "server", "url": server_url, "core": server_core, "aside": client_core}
                | common,
            )
            self.server.ask("go")
            url = client_url or self.server.facts["address"]
            self.client = self._start(
                pair and pair.client,
                path,
                {"role": "client", "url": url, "core": client_core, "mtu": mtu} | common,
            )
            if self.client.facts["mtu"] != mtu:
                raise ReplayError(
                    f"it takes frames of {self.client.facts['mtu']} B, not of {mtu} B"
                )
            self.server.ask("halt")
        except BaseException:
            self.close()
            raise

    def _start(self, place: Any, folder: Path, described: dict[str, Any]) -> End:
        command = [sys.executable, "-m", "replay_server.bench.ladder_end", json.dumps(described)]
        command = command if place is None else place.inside(command)
        name = f"{self.case.key}-{described['role']}"
        (end,) = End.all({name: command}, folder, self._ends).values()
        return end

    def measure(self, order: str, **arguments: Any) -> dict[str, Any]:
        """The client's answer while the server runs."""
        self.server.ask("go")
        try:
            return self.client.ask(order, **arguments)
        finally:
            self.server.ask("halt")

    def close(self) -> None:
        self._ends.close()


# ---- rounds ----


class Rounds:
    """Takes the cases in turns, and keeps what they gave in `figures`."""

    def __init__(self, course: Course, say: Callable[[str], None]) -> None:
        self.course, self.say = course, say
        self.figures = Figures(course.sizes, course.rate_sizes, course.mtus, course.cases)
        self.random = random.Random(course.seed)
        self.begin = self.said = time.monotonic()

    def run(self) -> Figures:
        """All frame sizes, one after the other."""
        mtus = self.course.mtus
        for i, mtu in enumerate(mtus):
            with ExitStack() as stack:
                standing = self._stand(mtu, stack)
                names = ", ".join(standing) or "none"
                self.say(f"{self._passed()} frames of {mtu} B, cases that stand: {names}")
                share = self.course.seconds / len(mtus)
                end = self.begin + (i + 1) * share
                if standing:
                    self._take(mtu, standing, "latency", end - RATE_SHARE * share)
                if standing:
                    self._take(mtu, standing, "rate", end)
        return self.figures

    def _stand(self, mtu: int, stack: ExitStack) -> dict[str, Standing]:
        """{key: case}, opened; those that cannot be opened are reported."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-ladder-")))
        standing = {}
        for case in self.course.cases:
            why = cases.missing(case, len(set(self.course.cores)))
            try:
                if why is not None:
                    raise ReplayError(why)
                pair = None
                if case.wire == VETH:
                    # its own: a device of DPDK's takes the interface's frames from the kernel
                    pair = stack.enter_context(Pair(mtu + HEADERS))
                standing[case.key] = Standing(case, mtu, self.course, pair, folder)
                stack.callback(standing[case.key].close)
            except (ReplayError, OSError) as error:
                self._fell(mtu, case.key, f"not here: {error}")
        return standing

    def _fell(self, mtu: int, key: str, why: str) -> None:
        self.figures.reasons[mtu, key] = why
        self.say(f"{key}, frames of {mtu} B: {why}")

    def _take(self, mtu: int, standing: dict[str, Standing], order: str, end: float) -> None:
        """Rounds of one kind until `end`: one whole one at least, the last cut between cells."""
        sizes = self.course.sizes if order == "latency" else self.course.rate_sizes
        number, cell = 0, None
        while standing and (number == 0 or time.monotonic() < end):
            number += 1
            for work, size, key in turns(self.random, sizes, tuple(standing)):
                if number > 1 and (work, size) != cell and time.monotonic() >= end:
                    break
                cell = work, size
                if key not in standing:
                    continue
                try:
                    self._turn(mtu, standing[key], order, work, size)
                except ReplayError as error:
                    standing.pop(key).close()
                    self._fell(mtu, key, f"failed in round {number}: {error}")
                self._progress(f"frames of {mtu} B, {order}, round {number}")
        self.say(f"{self._passed()} frames of {mtu} B, {order}: {number} rounds")

    def _turn(self, mtu: int, case: Standing, order: str, work: str, size: int) -> None:
        key = (case.case.key, (mtu, work, size))
        if order == "rate":
            answer = case.measure("rate", work=work, size=size, limit=self.course.rate_limit_s)
            self.figures.rates[key].append(answer["done"] * 1e9 / answer["ns"])
            return
        limits = {"calls": self.course.calls, "warm": WARM, "limit": CALLS_LIMIT_S}
        answer = case.measure("latency", work=work, size=size, **limits)
        self.figures.times_ns[key].append(np.array(answer["ns"], np.uint32))
        counters = case.client.ask("counters")
        self.figures.repeats[mtu, case.case.key] = counters["retransmissions"]

    def _passed(self) -> str:
        return f"{time.monotonic() - self.begin:4.0f} s of {self.course.seconds:.0f}:"

    def _progress(self, what: str) -> None:
        if time.monotonic() - self.said >= PROGRESS_S:
            self.said = time.monotonic()
            self.say(f"{self._passed()} {what}")


def turns(
    chance: random.Random, sizes: Sequence[int], keys: Sequence[str]
) -> Iterator[tuple[str, int, str]]:
    """One round, (work, size, case): each cell once, and in it each case once, orders drawn."""
    cells = [(work, size) for work in WORKS for size in sizes]
    chance.shuffle(cells)
    for work, size in cells:
        for key in chance.sample(list(keys), len(keys)):
            yield work, size, key


# ---- the command ----


def course_of(quick: bool, names: str, seconds: float, seed: int) -> Course:
    """The full ladder, or the quick one: four sizes, small frames."""
    if seconds and not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise ConfigError(f"--budget is {seconds:g}; expected {SECONDS_MIN:g} to {SECONDS_MAX:g} s")
    cores = two_cores(_native.cores(), siblings_of)
    short = {"sizes": RATE_SIZES, "mtus": MTUS[:1], "seconds": QUICK_S} if quick else {}
    chosen = {"seconds": seconds} if seconds else {}
    return Course(cases.chosen(names), seed=seed, cores=cores, **{**short, **chosen})


def expect_files(json_file: Path | None, plot: Path | None) -> None:
    """ConfigError where one of these could not be written in the end."""
    expect_places({"json": json_file, "plot": plot})
    if plot is not None and plot.suffix not in ladder_plot.SUFFIXES:
        ends = ", ".join(ladder_plot.SUFFIXES)
        raise ConfigError(f"--plot is {plot}; expected a name that ends in {ends}, or none")


def introduction(course: Course) -> Iterator[str]:
    """What is going to be done, for how long, and what each case is good for."""
    yield machine()
    server, client = course.cores[0], course.cores[-1]
    on_cores = f"servers on core {server}, clients on core {client}"
    yield (
        f"the ladder: {len(course.cases)} cases, "
        f"S of {ladder_figures.size_text(course.sizes[0])} to "
        f"{ladder_figures.size_text(course.sizes[-1])}, "
        f"frames of {' and '.join(map(str, course.mtus))} B, "
        f"{on_cores if _native.PINS else 'nothing pinned to a core'}, seed {course.seed}"
    )
    yield (
        f"takes about {course.seconds:.0f} s, starting included, or a whole round where that takes "
        "longer; --budget SECONDS says otherwise"
    )
    for case in course.cases:
        yield f"{case.key:12}{case.title}: {case.proves}; not: {case.leaves}"
    yield NIC


def ladder(course: Course, json_file: Path | None, plot_file: Path | None) -> int:
    """Measures, prints, writes; Ctrl-C ends every process and namespace first."""

    def say(line: str) -> None:
        print(line, flush=True)

    expect_files(json_file, plot_file)
    for line in introduction(course):
        say(line)
    if plot_file is not None and (without := ladder_plot.missing()):
        say(without)
        plot_file = None
    try:
        with stoppable():
            figures = Rounds(course, say).run()
    except KeyboardInterrupt:
        say("stopped before the end: there are no figures, and nothing is left running")
        return EXIT_STOPPED
    for mtu in course.mtus:
        for line in ladder_figures.lines(figures, mtu):
            say(line)
    where = machine()
    if json_file is not None:
        write_rows(json_file, ladder_figures.rows_of(figures, where))
    if plot_file is not None:
        for path in ladder_plot.plot(figures, plot_file, where):
            say(f"drew {path}")
    return 0
