"""What the conformance tests share: transports, a server on each, and a twin that computes along.

A transport is a URL a server can be started on in this process. A new one joins the suite by a line
in TRANSPORTS; nothing in the tests knows which one they run on.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import namespaces
import numpy as np
from reference import Replay, power_constants

from replay_server import Client, Column, NStep, Plan, Server, Spec, Table
from replay_server.writing.autoreset import Rows

TRANSPORTS = {"loopback": "loopback://", "udp": "udp://127.0.0.1:0", "zmq": "zmq+tcp://127.0.0.1:0"}
OUTLIVES_ITS_SERVER = ("udp", "zmq")  # transports on which a client can meet the server's successor
if os.environ.get("CONFORMANCE") == "dpdk":  # make test-dpdk: what it builds is not there otherwise
    TRANSPORTS = {
        "dpdk-ring": "dpdk://10.0.0.1:0?vdev=net_ring",
        "dpdk-memif": "dpdk://10.0.0.1:0?vdev=net_memif,role=server,links=6,socket=",
    }
    OUTLIVES_ITS_SERVER = ("dpdk-memif",)
if os.environ.get("CONFORMANCE") == "veth":  # past the kernel of another network namespace
    TRANSPORTS = {
        f"dpdk-{kind}": f"dpdk://{namespaces.SERVER}:0?{namespaces.on(kind)}"
        for kind in ("af_packet", "af_xdp")
    }
    OUTLIVES_ITS_SERVER = tuple(TRANSPORTS)
SERVERS: dict[str, Any] = {}  # what makes the servers of a transport that are not in this process
CONSTANTS = power_constants(Path(__file__).parents[2] / "native/base/power_tables.h")
SEED = 7
WAIT_S = 20.0
_numbers = itertools.count(1)

SMALL = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
FRAMES = Spec((Column("observation", np.uint8, (84, 84), "first"), *SMALL.columns[1:]))
ROWS = Spec((Column("x", np.float64, (4,)), Column("label", np.int32), Column("flag", np.bool_)))


class Place:
    """Where servers of one transport are started."""

    def __init__(self, transport: str) -> None:
        self.transport = transport

    def url(self) -> str:
        """A new address."""
        if self.transport == "loopback":
            return f"loopback://conformance-{next(_numbers)}"
        url = TRANSPORTS[self.transport]
        if url.endswith("socket="):
            return f"{url}{tempfile.gettempdir()}/conformance-{os.getpid()}-{next(_numbers)}"
        return url

    @contextmanager
    def served(self, *tables: Table, url: str | None = None, **options: Any) -> Iterator[Server]:
        """A server of these tables."""
        options = {"seed": SEED, "sessions": 16, "weights_max": 1 << 20, **options}
        is_network = self.transport.startswith("dpdk-af_")
        leaked = namespaces.leaked_mbufs() if is_network else 0
        if is_network:
            with namespaces.inside(namespaces.the_pair().server):
                server = Server(tables, self.device(url), insecure=True, **options)
        else:
            url = (url or self.url()).replace("role=client", "role=server,links=6")
            server = SERVERS.get(self.transport, Server)(tables, url, **options)
        with server:
            yield server
        if is_network:
            assert namespaces.leaked_mbufs() == leaked, "every mbuf is back"

    def device(self, url: str | None) -> str:
        """The URL of a server past the kernel, at the port of the one its clients were told."""
        port = url.rpartition(":")[2] if url else "0"
        return self.url().replace(":0?", f":{port}?")

    @contextmanager
    def pair(self, *tables: Table, **options: Any) -> Iterator[tuple[Server, Client]]:
        """A server and a client of it, which waits long: a busy machine is no failure of either."""
        served = self.served(*tables, **options)
        with served as server, Client(server.address, timeout=WAIT_S) as client:
            yield server, client


def table(spec: Spec = SMALL, plan: Plan | None = None, **options: Any) -> Table:
    """A table named "main"; 3-step items where no plan is given."""
    plan = NStep(3) if plan is None else plan
    return Table("main", **{"step": spec, "plan": plan, "capacity": 4096, **options})


def plain(capacity: int = 4096, **options: Any) -> Table:
    """A table of plain rows."""
    return Table("main", **{"step": ROWS, "capacity": capacity, **options})


def plain_rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns of ROWS."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(count, 4)),
        "label": rng.integers(-9, 9, count, dtype=np.int32),
        "flag": rng.random(count) < 0.5,
    }


class Episodes:
    """Made-up play of B environments, autoreset "disabled": what add_batch takes, step by step."""

    def __init__(self, spec: Spec, streams: int, seed: int, end: float = 0.15) -> None:
        self.spec, self.streams, self.end = spec, streams, end
        self.rng = np.random.default_rng(seed)
        self.observation = self.observations()

    def observations(self) -> np.ndarray:
        column = self.spec["observation"]
        numbers = self.rng.integers(0, 255, (self.streams, *column.shape))
        return numbers.astype(column.dtype)

    def step(self) -> dict[str, Any]:
        """Arguments of one add_batch."""
        following = self.observations()
        ended = self.rng.random(self.streams) < self.end
        terminated = ended & (self.rng.random(self.streams) < 0.5)
        step = {
            "observation": self.observation,
            "action": self.rng.integers(0, 4, self.streams),
            "reward": self.rng.normal(size=self.streams).astype(np.float32),
            "terminated": terminated,
            "truncated": ended & ~terminated,
            "next_observation": following,
        }
        self.observation = np.where(
            ended.reshape(-1, *[1] * (following.ndim - 1)), self.observations(), following
        )
        return step


class Twin:
    """The same table in this process, by independent code (reference.Replay)."""

    def __init__(self, described: Table, client: Client, seed: int = SEED) -> None:
        """Begins where the keys of `client`'s table do, which is empty."""
        layout = described.layout
        self.replay = Replay(
            described.capacity,
            layout.plans[0].resolved.offsets,
            {column.name: column.pad for column in described.step},
            described.sampler.alpha,
            seed,
            CONSTANTS,
        )
        self.first = self.replay.head = client.table("main").head
        self.spec = described.step

    def append(self, rows: Rows) -> None:
        """Rows as a writer appends them: steps first, then closing rows."""
        for i, stream in enumerate(rows.streams.tolist()):
            self.replay.append(stream, {name: col[i] for name, col in rows.columns.items()})
        zeros = {c.name: np.zeros(c.shape, c.dtype) for c in self.spec}
        for i, stream in enumerate(rows.ended_streams.tolist()):
            closing = {name: column[i] for name, column in rows.closing.items()}
            self.replay.append(stream, zeros | closing, end=True)

    def create(self, streams: Any, steps: Any, priorities: Any = None) -> None:
        """Items at these rows."""
        given = [None] * len(steps) if priorities is None else priorities
        for stream, step, priority in zip(streams, steps, given, strict=True):
            self.replay.create(int(stream), int(step), priority)


def assert_equal_batches(batch: Any, expected: Any) -> None:
    """Every fact of a sampled batch, bit for bit, but the weights' last place."""
    for name in ("keys", "masses", "behind", "ahead", "ages"):
        assert getattr(batch, name).tolist() == getattr(expected, name).tolist(), name
    for name, column in expected.data.items():
        assert batch.data[name].tobytes() == column.tobytes(), name
    assert set(batch.totals.tolist()) == {expected.total}
    assert set(batch.drawables.tolist()) == {expected.count}
    assert np.allclose(batch.probabilities, expected.probabilities, rtol=1e-12)
    assert np.allclose(batch.weights, expected.weights, rtol=1e-6)
