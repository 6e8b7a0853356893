"""This package: a server of one table, its own Python client. No set-up beyond docs/sampling.md.

Options: `url`, what the server listens on (loopback://: server and client in the client's process);
`busy_poll`, both ends wait without sleeping; `frames`, native frames.

Plain bytes: `Row()` items of the same columns as every peer's, by `client.extend`, which returns
when all are stored. Native frames: an `NStep(1, stack=4)` table of single frames, by a writer and
its `flush`; a batch is cut into the two stacks of each transition (`batch.transitions`), as the
others have them. `sample` lands in memory that is used again (`client.landing`), `ahead` is
`client.batches`. Keys name items, not places: an update of an overwritten item is refused, which
other peers here do not do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from replay_server import Batch, Client, Column, NStep, Prioritized, Row, Server, Spec, Table

from .peer import ALPHA, BETA, Columns, Peer, Sampled, Serving, Setting
from .pool import FRAME, STACK, load

NAME, BATCH_MAX, IDLE_MS = "items", 2048, 10**8


def table(setting: Setting) -> Table:
    """The table that a setting is about."""
    columns = [Column(name, setting.dtype(name), setting.shape(name)) for name in setting.columns]
    plan: Any = Row()
    if setting.options.get("frames"):
        columns = [Column("observation", np.uint8, FRAME), *columns[2:]]
        plan = NStep(1, stack=STACK)
    spec = Spec(tuple(columns))
    sampler = Prioritized(ALPHA)
    return Table(NAME, step=spec, plan=plan, capacity=setting.capacity, sampler=sampler)


def serve(setting: Setting) -> Serving:
    """A server of this process."""
    url = setting.options["url"]
    folder = tempfile.TemporaryDirectory(prefix="bench-peers-")
    options: dict[str, Any] = {"seed": 1, "batch_max": BATCH_MAX}
    if setting.options.get("busy_poll"):  # stopped while others are measured: no session ends
        options |= {"busy_poll": True, "idle_ms": IDLE_MS}
    server = Server([table(setting)], url.replace("{folder}", folder.name), **options)

    def close() -> None:
        server.close()
        with suppress(OSError):
            folder.cleanup()

    return Serving(server.address, close)


def connect(setting: Setting, address: str) -> Peer:
    """A client; over loopback:// with a server of its own."""
    serving = None if address else serve(setting)
    kind = Frames if setting.options.get("frames") else Plain
    return kind(setting, serving.address if serving else address, serving)


class Plain(Peer):
    """Items as plain rows."""

    def __init__(self, setting: Setting, address: str, serving: Serving | None) -> None:
        self.setting, self.serving = setting, serving
        busy = bool(setting.options.get("busy_poll"))
        self.client = Client(address, batch_max=BATCH_MAX, busy_poll=busy, timeout=30.0)
        self.landings: dict[int, Any] = {}

    def insert(self, items: Columns) -> None:
        self.client.extend(NAME, items)

    def sample(self, batch: int) -> Sampled:
        if batch not in self.landings:
            self.landings[batch] = self.client.landing(NAME, batch)
        return self.of(self.client.sample(NAME, batch, beta=BETA, out=self.landings[batch]))

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled]:
        with self.client.batches(NAME, batch, beta=BETA, prefetch=depth) as batches:
            for got in batches:
                yield self.of(got)

    def of(self, got: Batch) -> Sampled:
        """A batch as columns."""
        items = {name: column[:, 0] for name, column in got.data.items()}
        return Sampled(items, got.keys, got.weights)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        self.client.update_priorities(NAME, keys, priorities)

    def close(self) -> None:
        self.client.close()
        if self.serving:
            self.serving.close()


class Frames(Plain):
    """Each frame stored once, stacks cut when they are sampled."""

    def __init__(self, setting: Setting, address: str, serving: Serving | None) -> None:
        super().__init__(setting, address, serving)
        self.writer = self.client.writer(NAME)
        _, self.ends = load(setting.pool)
        self.after, self.final = -1, None  # the item that goes on the episode, its next frame

    def insert(self, items: Columns) -> None:
        add = self.writer.add
        now, then = items["observation"][:, -1], items["next_observation"][:, -1]
        numbers = items["action"].tolist()
        if self.after not in (-1, numbers[0]):
            self.writer.restart(final_observation=self.final)
        for i, number in enumerate(numbers):
            over = bool(items["terminated"][i])
            add(
                observation=now[i],
                action=number,
                reward=items["reward"][i],
                terminated=over,
                truncated=bool(self.ends[number]) and not over,
                next_observation=then[i],
            )
        self.after, self.final = -1 if self.ends[numbers[-1]] else numbers[-1] + 1, then[-1]
        self.writer.flush()

    def of(self, got: Batch) -> Sampled:
        data = got.transitions(gamma=1.0)
        items = {
            "observation": data.observations,
            "next_observation": data.next_observations,
            "action": data.actions,
            "reward": data.rewards,
            "terminated": got["terminated"][:, 0],
        }
        return Sampled(items, got.keys, got.weights)

    def close(self) -> None:
        self.writer.close(0)
        super().close()
