"""The programs of T2b: a server, a learner with its three samplers, and actors that insert.

    python -m benchmarks.paper.t2b_programs '{"role": "learner", "url": ..., "sizes": [64, 1024]}'

Sizes are those of items: a pair of tables each. The programs take turns: actors insert, then the
learner draws, so that what is timed is the sampler and no queue.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks import programs
from benchmarks.paper.samplers import SAMPLERS, insert, tables
from replay_server import Client

ACTORS_MAX = 64
WRITERS = ACTORS_MAX + 1
CAPACITY, CAPACITY_MIN, TABLE_BYTES = 1 << 15, 16 * 2 * WRITERS, 64 << 20
BATCH_MAX, FILL_AT_ONCE = 2048, 256
INSERTS = 4  # items of each actor before each batch
BETA = 0.4
PATIENCE_S = 20.0


def capacity_of(size: int) -> int:
    """Items in a table: as many as TABLE_BYTES hold, within bounds."""
    return max(CAPACITY_MIN, min(CAPACITY, TABLE_BYTES // size))


class ServerProgram:
    """The engine, with a pair of tables for each size."""

    def __init__(self, url: str, sizes: list[int], core: int) -> None:
        served = [
            table for size in sizes for table in tables(size, capacity_of(size), WRITERS, str(size))
        ]
        self.engine = programs.Engine(served, url, 2 * ACTORS_MAX)
        self.engine.go(core)

    def facts(self) -> dict[str, Any]:
        """Where it serves."""
        return {"address": self.engine.address}

    def close(self) -> None:
        self.engine.close()


class LearnerProgram:
    """Who draws."""

    def __init__(self, url: str, sizes: list[int], core: int) -> None:
        programs.pin(core)
        self.client = Client(url, timeout=PATIENCE_S, batch_max=BATCH_MAX)
        self.sizes, self.samplers = sizes, dict[tuple[int, str], Any]()

    def facts(self) -> dict[str, Any]:
        """Who it can draw with."""
        return {"samplers": list(SAMPLERS)}

    def prepare(self) -> None:
        """Its samplers, once the tables are filled."""
        for size in self.sizes:
            for name, kind in SAMPLERS.items():
                self.samplers[size, name] = kind(self.client, str(size))

    def draw(self, size: int, name: str, batch: int, update: bool) -> dict[str, Any]:
        """Seconds until the items and weights of a batch are there, and, where `update` is set, its
        new priorities are acknowledged."""
        sampler = self.samplers[size, name]
        begin = time.perf_counter()
        items, weights = sampler.sample(batch, BETA)
        if update:
            sampler.update_priorities(items, weights.astype(np.float64) + 1e-3)
        return {"seconds": time.perf_counter() - begin}

    def close(self) -> None:
        for sampler in self.samplers.values():
            sampler.close()
        self.client.close()


class ActorsProgram:
    """`sessions` clients that insert, one after the other."""

    def __init__(self, url: str, sizes: list[int], sessions: int, core: int) -> None:
        programs.pin(core)
        self.sizes, self.random = sizes, np.random.default_rng(1)
        self.clients = [
            Client(url, timeout=PATIENCE_S, batch_max=BATCH_MAX) for _ in range(sessions)
        ]

    def facts(self) -> dict[str, Any]:
        """How many there are."""
        return {"sessions": len(self.clients)}

    def fill(self) -> None:
        """Half of each table."""
        for size in self.sizes:
            for _ in range(capacity_of(size) // 2 // FILL_AT_ONCE):
                self._insert(self.clients[0], size, FILL_AT_ONCE)

    def insert(self, size: int, sessions: int) -> None:
        """INSERTS items of each of the first `sessions`."""
        for client in self.clients[:sessions]:
            self._insert(client, size, INSERTS)

    def _insert(self, client: Client, size: int, count: int) -> None:
        items = self.random.integers(0, 256, (count, size), dtype=np.uint8)
        insert(client, items, self.random.random(count), str(size))

    def close(self) -> None:
        for client in self.clients:
            client.close()


ROLES = {"server": ServerProgram, "learner": LearnerProgram, "actors": ActorsProgram}


def make(role: str, **options: Any) -> Any:
    """The program of that role."""
    return ROLES[role](**options)


if __name__ == "__main__":
    sys.exit(programs.run(make, sys.argv[1]))
