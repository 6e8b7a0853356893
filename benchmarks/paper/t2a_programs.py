"""The programs of T2a: a server, a learner and actors, each in a process of its own.

    python -m benchmarks.paper.t2a_programs '{"role": "learner", "replay": "here", ...}'

    server    the engine alone
    learner   fetches a batch, trains a stated step, sends priorities back. Its option `replay` is
              where replay is: a URL (in the network), or "here": then the same engine serves in
              this process, in a thread of its own, and `url` is what it listens on
    actors    sessions that push one transition every PACE_S or so, each in a thread of its own. The
              call is in C (rp_link_probe_latency): no lock of Python's is held in what is timed

A stated step is a fixed number of torch matrix products, counted on an idle core. The products
release the GIL and the lines around them hold it, as a learner in Python does; what shares its core
makes a step longer, and how long it took is part of the answer.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks import programs
from replay_server import Client, Column, Prioritized, Server, Spec, Table, _native
from replay_server._native import Link, ffi, lib

SESSIONS_MAX = 64  # of actors
TABLE_BYTES, CAPACITY_MIN = 4 << 20, 16 * 2 * (SESSIONS_MAX + 1)
FILL, FILL_NS = 256, 1_000_000_000
BATCH, BETA = 32, 0.4
CALLS_MAX = 1 << 12  # of one order
MATRIX, CALIBRATIONS = 96, 400
FLOOR_CALLS = 300
PATIENCE_S = 20.0
PACE_S, PACE_VARIES = (
    0.004,
    (0.5, 1.5),
)  # an actor's step, each drawn: none keeps time with a learner


def table_of(size: int) -> Table:
    """Transitions of `size` bytes, drawn by priority; room for every actor's writer."""
    spec = Spec((Column("x", np.uint8, (size,)),))
    capacity = max(CAPACITY_MIN, TABLE_BYTES // size)
    return Table(
        f"s{size}",
        step=spec,
        capacity=capacity,
        sampler=Prioritized(0.6),
        writers=SESSIONS_MAX + 1,
        streams=1,
    )


def engine(sizes: list[int], url: str, busy_poll: bool = False) -> programs.Engine:
    """What serves, wherever it is."""
    return programs.Engine(list(map(table_of, sizes)), url, 2 * SESSIONS_MAX, busy_poll)


class ServerProgram:
    """The engine in a process of its own."""

    def __init__(self, url: str, sizes: list[int], busy_poll: bool = False) -> None:
        self.engine = engine(sizes, url, busy_poll)

    def facts(self) -> dict[str, Any]:
        """Where it serves."""
        return {"address": self.engine.address}

    def go(self, core: int) -> None:
        """Serves, on that core."""
        self.engine.go(core)

    def halt(self) -> None:
        """Serves no longer."""
        self.engine.halt()

    def close(self) -> None:
        self.engine.close()


class LearnerProgram:
    """A learner; with replay="here" the engine is in its process."""

    def __init__(self, replay: str, sizes: list[int], url: str = "") -> None:
        import torch

        torch.set_num_threads(1)  # it has one core
        self.engine = engine(sizes, url) if replay == "here" else None
        self.client: Client | None = None
        self.one = torch.full((MATRIX, MATRIX), 1.0 / MATRIX)
        self.multiply: Callable[..., Any] = torch.mm
        self.two = torch.empty_like(self.one)

    def facts(self) -> dict[str, Any]:
        """Where its engine serves; "" where it has none."""
        return {"address": self.engine.address if self.engine else ""}

    def go(self, core: int) -> None:
        """Its engine, if it has one, and what it does itself are on that core from now on."""
        if self.engine:
            self.engine.go(core)
        programs.pin(core)

    def halt(self) -> None:
        """Its engine rests."""
        if self.engine:
            self.engine.halt()

    def connect(self, url: str) -> None:
        """A session with the server."""
        self.client = Client(url, timeout=PATIENCE_S)

    def calibrate(self) -> dict[str, Any]:
        """Seconds of one product, the median of many."""
        times = np.zeros(CALIBRATIONS)
        for i in range(CALIBRATIONS):
            begin = time.perf_counter()
            self.multiply(self.one, self.one, out=self.two)
            times[i] = time.perf_counter() - begin
        return {"product_s": float(np.median(times))}

    def learn(self, size: int, products: int, seconds: float) -> dict[str, Any]:
        """Learns for that long, to the end of a step; {"fetch_s", "step_s"}: seconds of each."""
        assert self.client is not None, "connect comes first"
        client, table = self.client, f"s{size}"
        fetches, steps = list[float](), list[float]()
        landing, priorities = client.landing(table, BATCH), np.ones(BATCH)
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            batch = client.sample(table, BATCH, beta=BETA, out=landing)
            fetched = time.perf_counter()
            for _ in range(products):
                self.multiply(self.one, self.one, out=self.two)
            trained = time.perf_counter()
            client.update_priorities(table, batch, priorities, wait=False)
            fetches.append(fetched - begin)
            steps.append(trained - fetched)
        return {"fetch_s": fetches, "step_s": steps}

    def floor(self, size: int) -> dict[str, Any]:
        """Seconds of fetches where nothing lies between: an engine in this process's memory that
        the caller turns itself, and that no actor pushes to."""
        table, times = table_of(size), []
        with Server([table], seed=1) as server, Client(server.address) as client:
            client.extend(table.name, {"x": np.zeros((FILL, size), np.uint8)})
            landing = client.landing(table.name, BATCH)
            for _ in range(FLOOR_CALLS):
                begin = time.perf_counter()
                client.sample(table.name, BATCH, beta=BETA, out=landing)
                times.append(time.perf_counter() - begin)
        return {"fetch_s": times}

    def close(self) -> None:
        if self.client:
            self.client.close()
        if self.engine:
            self.engine.close()


class Session:
    """One actor's link, with a writer for each table."""

    def __init__(self, url: str, sizes: list[int]) -> None:
        self.link = Link(url, PATIENCE_S)
        self.memory, self.times_ns = np.zeros(max(sizes), np.uint8), np.zeros(CALLS_MAX, np.uint32)
        self.raw_times = _native.pointer("uint32_t[]", self.times_ns)
        self.probes = {size: self._open(size) for size in sizes}

    def _open(self, size: int) -> Any:
        info, what = ffi.new("struct rp_table_info *"), f"opening the table of {size} B"
        granted = ffi.new("struct rp_writer_granted *")
        name, ask = f"s{size}".encode(), self.link.request
        ask(lib.rp_link_table, name, info, what=what, timeout=PATIENCE_S)
        ask(lib.rp_link_writer, info, 1, granted, what=what, timeout=PATIENCE_S)
        probe = ffi.new("struct rp_probe *")
        probe.work, probe.bytes, probe.batch, probe.depth = lib.RP_PROBE_PUT, size, 1, 1
        probe.table, probe.patience_ns = info.number, _native.nanoseconds(PATIENCE_S)
        probe.memory = _native.pointer("uint8_t[]", self.memory)
        return probe

    def push(self, size: int, count: int, limit_ns: int) -> np.ndarray:
        """Nanoseconds of each push, until `count` are made or the time is over."""
        raw = self.link.raw
        made = lib.rp_link_probe_latency(raw, self.probes[size], self.raw_times, count, limit_ns)
        return self.times_ns[: _native.check(made, f"pushing {size} B")].copy()

    def play(self, size: int, seconds: float, chance: random.Random) -> list[int]:
        """Nanoseconds of each push of an actor that steps for that long; who is late does not hurry
        after the pushes that were not made."""
        times: list[int] = []
        begin = time.perf_counter()
        due, end = begin + chance.uniform(0.0, PACE_S), begin + seconds
        while due < end:
            time.sleep(max(0.0, due - time.perf_counter()))
            times += self.push(size, 1, FILL_NS).tolist()
            due = max(due + PACE_S * chance.uniform(*PACE_VARIES), time.perf_counter())
        return times


class ActorsProgram:
    """`sessions` actors in this process."""

    def __init__(self, replay: str, sizes: list[int], sessions: int, core: int) -> None:
        programs.pin(core)
        self.random = random.Random(core)
        self.sessions = [Session(replay, sizes) for _ in range(sessions)]

    def facts(self) -> dict[str, Any]:
        """How many there are."""
        return {"sessions": len(self.sessions)}

    def fill(self) -> None:
        """So many transitions in each table that a batch can be drawn."""
        for size in self.sessions[0].probes:
            self.sessions[0].push(size, FILL, FILL_NS)

    def play(self, size: int, sessions: int, seconds: float) -> dict[str, Any]:
        """The first `sessions` play at once for that long; {"push_ns": of all, "repeats": datagrams
        that these sessions ever sent again}."""
        playing = self.sessions[:sessions]
        with ThreadPoolExecutor(sessions) as pool:
            chances = [random.Random(self.random.random()) for _ in playing]
            begun = [
                pool.submit(session.play, size, seconds, chance)
                for session, chance in zip(playing, chances, strict=True)
            ]
            found = [future.result() for future in begun]
        repeats = sum(session.link.counters()["retransmissions"] for session in playing)
        return {"push_ns": list(itertools.chain(*found)), "repeats": repeats}

    def close(self) -> None:
        for session in self.sessions:
            session.link.close(0.5)


ROLES = {"server": ServerProgram, "learner": LearnerProgram, "actors": ActorsProgram}


def make(role: str, **options: Any) -> Any:
    """The program of that role."""
    return ROLES[role](**options)


if __name__ == "__main__":
    sys.exit(programs.run(make, sys.argv[1]))
