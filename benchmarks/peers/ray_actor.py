"""A Ray actor that holds cpprb: what RL libraries on Ray do for a replay of many workers.

`ray.init` in the server's process starts Ray for this host alone; a detached, named actor holds the
buffer; clients join by the address. Calls are `ray.get(actor.method.remote(...))`; `ahead` keeps
several calls under way, as Ray's page on pipelining advises. Large results go through Ray's object
store in shared memory, not over a socket: on one host that saves what a network would cost. Ray's
tokens are off: they would lie in the user's home, and nothing here leaves the host.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import numpy as np
import ray

from .arrays import buffer_of
from .peer import Columns, Peer, Sampled, Serving, Setting

NAME, SPACE = "replay", "bench-peers"
STORE_BYTES = 1 << 30


@ray.remote
class Replay:
    """The actor."""

    def __init__(self, setting: Setting) -> None:
        self.buffer = buffer_of(setting)

    def add(self, items: Columns) -> None:
        """Rows."""
        self.buffer.add(items)

    def sample(self, batch: int) -> dict[str, np.ndarray]:
        """A batch with `indexes` and `weights`."""
        return self.buffer.sample(batch)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        """Priorities of places."""
        self.buffer.update_priorities(keys, priorities)


def serve(setting: Setting) -> Serving:
    """Ray, and the actor."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
        namespace=SPACE,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
    )
    actor = Replay.options(name=NAME, num_cpus=0).remote(setting)
    ray.get(actor.__ray_ready__.remote())
    address = ray.get_runtime_context().gcs_address

    def close() -> None:
        ray.kill(actor)
        ray.shutdown()

    return Serving(address, close)


def connect(setting: Setting, address: str) -> Peer:
    """Joins that Ray."""
    ray.init(address=address, namespace=SPACE, _node_ip_address="127.0.0.1", log_to_driver=False)
    return RayReplay(ray.get_actor(NAME, SPACE))


class RayReplay(Peer):
    """A handle of the actor."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def insert(self, items: Columns) -> None:
        ray.get(self.actor.add.remote(items))

    def sample(self, batch: int) -> Sampled:
        return self.of(ray.get(self.actor.sample.remote(batch)))

    def of(self, got: dict[str, np.ndarray]) -> Sampled:
        """An answer as columns."""
        return Sampled(got, got["indexes"], got["weights"])

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled]:
        under_way = [self.actor.sample.remote(batch) for _ in range(depth)]
        while True:
            got = ray.get(under_way.pop(0))
            under_way.append(self.actor.sample.remote(batch))
            yield self.of(got)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        ray.get(self.actor.update.remote(keys, priorities))

    def close(self) -> None:
        ray.shutdown()
