"""The Python client's figures, with a server in this process: its thread never holds Python's lock.

small  4 float32 observation, action, reward, terminated; n = 1
atari  84x84 uint8 frames, stack 4, n = 1 and n = 3: payload is what lands, frames once each

Over UDP server and client poll without sleeping where there are two cores; one row of the default,
which spins for 20 us before it sleeps, stands beside them. Frames are fetched over datagrams of
1400 bytes, which any network carries, and of 8960, which is the default within one host.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import time
from collections.abc import Callable, Iterator

import numpy as np

from ..client import Client
from ..plans import NStep
from ..server import Server
from ..spec import Column, Spec
from ..table import Table
from .row import Row

ENVIRONMENTS = 8
FILL_STEPS = 20_000
EXTEND_ROWS = (1000, 4096)
BATCHES_A_ROUND = 16
FRAME_STEPS = 800
FRAME_BATCH = 512
FRAME_BATCHES_A_ROUND = 4
MTUS = (1400, 8960)
UDP = "udp://127.0.0.1:0"

SMALL = Spec(
    (
        Column("observation", np.float32, (4,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
FRAMES = Spec((Column("observation", np.uint8, (84, 84)), *SMALL.columns[1:]))


def measured(seconds: float, where: str) -> Iterator[list[Row]]:
    """The rows, some at a time. `seconds` for each row; `where`: the machine."""
    yield list(PythonRows(UDP, seconds, where).small())
    yield list(PythonRows(UDP, seconds, where, busy=False).sampling())
    if importlib.util.find_spec("zmq"):
        yield list(PythonRows("zmq+tcp://127.0.0.1:0", seconds, where).small())
    yield list(PythonRows("loopback://", seconds, where).small())
    for mtu, n in itertools.product(MTUS, (1, 3)):
        yield list(PythonRows(f"{UDP}?mtu={mtu}", seconds, where).frames(n, mtu))


def rounds(call: Callable[[], float], seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Calls until the time is over; what each call did [N], and how long it took in s [N]."""
    done, took = [], []
    begin = before = time.perf_counter()
    while before - begin < seconds or not took:
        done.append(call())
        after = time.perf_counter()
        took.append(after - before)
        before = after
    return np.array(done), np.array(took)


class PythonRows:
    """The rows of one transport."""

    def __init__(self, url: str, seconds: float, where: str, busy: bool = True) -> None:
        self.url, self.seconds, self.where = url, seconds, where
        self.busy = busy and url.startswith("udp") and (os.cpu_count() or 1) > 1
        self.transport = url.partition(":")[0]
        self.workload = "Python, small" + (", busy polling" if self.busy else "")
        self.rng = np.random.default_rng(1)

    def row(self, name: str, batch: int, metric: str, value: float, unit: str) -> Row:
        workload, where = self.workload, self.where
        return Row(name, self.transport, workload, batch, metric, float(value), unit, where)

    def latency(
        self, name: str, batch: int, call: Callable[[], object], amortised: bool = False
    ) -> Iterator[Row]:
        _, took = rounds(lambda: call() is None, self.seconds)
        for metric, share in (("p50", 0.5), ("p99", 0.99)):
            yield self.row(name, batch, metric, np.quantile(took, share) * 1e6, "us")
        if amortised:
            yield self.row(name, batch, "amortised", took.mean() * 1e6, "us")

    def rate(self, name: str, batch: int, unit: str, call: Callable[[], float]) -> Iterator[Row]:
        done, took = rounds(call, self.seconds)
        yield self.row(name, batch, "rate, median", np.median(done / took), unit)
        yield self.row(name, batch, "rate, best round", np.max(done / took), unit)

    def step(self) -> dict[str, np.ndarray]:
        """What 8 environments might have said."""
        observation = self.rng.normal(size=(2, ENVIRONMENTS, 4)).astype(np.float32)
        return {
            "observation": observation[0],
            "action": self.rng.integers(2, size=ENVIRONMENTS),
            "reward": np.ones(ENVIRONMENTS, np.float32),
            "terminated": self.rng.random(ENVIRONMENTS) < 0.01,
            "truncated": np.zeros(ENVIRONMENTS, np.bool_),
            "final_observation": observation[1],
        }

    def small(self) -> Iterator[Row]:
        """Writing and learning, over a table of small transitions and one of plain rows."""
        steps = Table("steps", step=SMALL, plan=NStep(1), capacity=1 << 17)
        plain = Table("plain", step=SMALL, capacity=1 << 17)
        with (
            Server([steps, plain], self.url, seed=1, busy_poll=self.busy) as server,
            Client(server.address, busy_poll=self.busy) as client,
        ):
            yield from self.writing(client)
            yield from self.extending(client)
            yield from self.learning(client)
            yield from self.updating(client)

    def sampling(self) -> Iterator[Row]:
        """Round trips alone."""
        steps = Table("steps", step=SMALL, plan=NStep(1), capacity=1 << 17)
        with (
            Server([steps], self.url, seed=1, busy_poll=self.busy) as server,
            Client(server.address, busy_poll=self.busy) as client,
        ):
            with client.writer("steps", streams=ENVIRONMENTS, autoreset="same-step") as writer:
                self.fill(writer)
            yield from self.round_trips(client, (32,))

    def fill(self, writer: object) -> Iterator[dict[str, np.ndarray]]:
        """Writes FILL_STEPS; steps to go on with, for ever."""
        steps = [self.step() for _ in range(256)]
        for step, after in zip(steps, [*steps[1:], steps[0]], strict=True):
            step["next_observation"] = after["observation"]
        ready = itertools.cycle(steps)
        for _ in range(FILL_STEPS // ENVIRONMENTS):
            writer.add_batch(**next(ready))
        writer.flush()
        return ready

    def writing(self, client: Client) -> Iterator[Row]:
        with client.writer("steps", streams=ENVIRONMENTS, autoreset="same-step") as writer:
            ready = self.fill(writer)
            yield from self.latency(
                "writer.add_batch", ENVIRONMENTS, lambda: writer.add_batch(**next(ready)), True
            )
        calm = {
            "observation": np.ones(4, np.float32),
            "action": 1,
            "reward": 1.0,
            "terminated": False,
            "truncated": False,
            "next_observation": np.ones(4, np.float32),
        }
        with client.writer("steps") as writer:
            yield from self.latency("writer.add", 1, lambda: writer.add(**calm), True)
            writer.flush()

            def acknowledged() -> None:
                writer.add(**calm)
                writer.flush()

            yield from self.latency("writer.add and flush", 1, acknowledged)

    def extending(self, client: Client) -> Iterator[Row]:
        for count in EXTEND_ROWS:
            columns = {
                "observation": self.rng.normal(size=(count, 4)).astype(np.float32),
                "action": self.rng.integers(2, size=count),
                "reward": np.ones(count, np.float32),
                "terminated": np.zeros(count, np.bool_),
            }
            yield from self.rate(
                "client.extend",
                count,
                "steps/s",
                lambda columns=columns: len(client.extend("plain", columns)),
            )

    def round_trips(self, client: Client, counts: tuple[int, ...]) -> Iterator[Row]:
        for count in counts:
            out = client.landing("steps", count)
            yield from self.latency(
                "client.sample",
                count,
                lambda count=count, out=out: client.sample("steps", count, out=out),
            )
        yield from self.latency(
            "client.sample, new memory", counts[0], lambda: client.sample("steps", counts[0])
        )

    def learning(self, client: Client) -> Iterator[Row]:
        yield from self.round_trips(client, (32, 512))
        with client.batches("steps", 512) as batches:

            def fetch() -> int:
                return sum(len(next(batches)) for _ in range(BATCHES_A_ROUND))

            yield from self.rate("client.batches", 512, "items/s", fetch)

    def updating(self, client: Client) -> Iterator[Row]:
        keys = client.sample("steps", 512).keys
        priorities = self.rng.random(512) + 0.5

        def update() -> int:
            for _ in range(64):
                client.update_priorities("steps", keys, priorities, wait=False)
            done = client.flush()
            return done.applied

        yield from self.rate("client.update_priorities", 512, "keys/s", update)

    def frames(self, n: int, mtu: int) -> Iterator[Row]:
        """Batches of stacked frames, as they are prefetched."""
        self.workload = f"Python, atari n={n}, mtu {mtu}"
        table = Table("frames", step=FRAMES, plan=NStep(n, stack=4), capacity=4096)
        seen = self.rng.integers(0, 256, (16, 84, 84)).astype(np.uint8)
        with (
            Server([table], self.url, seed=1, busy_poll=self.busy) as server,
            Client(server.address, busy_poll=self.busy, timeout=30.0) as client,
        ):
            with client.writer("frames") as writer:
                for i in range(FRAME_STEPS):
                    over = i % 200 == 199
                    after = seen[(i + 1 + over) % 16]  # an episode starts as none ended
                    writer.add_step(seen[i % 16], 1, after, 1.0, False, over)
            with client.batches("frames", FRAME_BATCH) as batches:

                def fetch() -> float:
                    done = [next(batches) for _ in range(FRAME_BATCHES_A_ROUND)]
                    return 8e-9 * sum(part.nbytes for b in done for part in b.data.values())

                yield from self.rate("client.batches", FRAME_BATCH, "Gbit/s", fetch)
