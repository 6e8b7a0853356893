"""TransferQueue, verl's data plane, with its default storage: two units, reached by ZeroMQ.

Set up as its README and tutorials show: `init` in the server's process (controller and storage
units are Ray actors), the low-level client of every other process: `put` to a partition, `get_meta`
and `get_data` to sample. It is a queue of samples that are consumed once; a replay needs a sampler
of one's own, which is the tutorial's `RandomSamplerWithReplacement`: uniform, nothing is consumed.
There are no priorities. It has no bound either: an insert beyond the capacity clears the oldest
samples of its client first. `ahead` keeps batches coming by threads, each with its own request.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict

from .peer import Columns, Peer, Sampled, Serving, Setting

PARTITION, STORE_BYTES, OTHERS_SHARE = "replay", 1 << 30, 8


class RandomSampler(tq.BaseSampler):
    """Uniform draws; samples stay."""

    def sample(
        self, ready_indexes: list[int], batch_size: int, *args: Any, **kwargs: Any
    ) -> tuple[list[int], list[int]]:
        """(drawn indexes, none consumed)."""
        at = np.random.randint(0, len(ready_indexes), batch_size)
        return [ready_indexes[i] for i in at], []


def start_ray(address: str | None) -> None:
    """Ray of this host alone: a new one, or that at the address."""
    more: dict[str, Any] = {"address": address}
    if address is None:
        more = {"num_cpus": 8, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    ray.init(namespace=PARTITION, _node_ip_address="127.0.0.1", log_to_driver=False, **more)


def serve(setting: Setting) -> Serving:
    """Controller and storage."""
    start_ray(None)
    flags = {"allow_objects": True}
    tq.init(OmegaConf.create({"controller": {"sampler": RandomSampler()}}, flags=flags))
    address = ray.get_runtime_context().gcs_address

    def close() -> None:
        tq.close()
        ray.shutdown()

    return Serving(address, close)


def connect(setting: Setting, address: str) -> Peer:
    """A client."""
    start_ray(address)
    tq.init()
    share = OTHERS_SHARE if setting.options["client"] else 1
    return Queue(list(setting.columns), setting.capacity // share)


def dense(column: torch.Tensor) -> np.ndarray:
    """A column as an array; the queue may give rows of equal shape as a nested tensor."""
    return (torch.stack(column.unbind()) if column.is_nested else column).numpy()


class Queue(Peer):
    """One client of the queue; it clears what it inserted itself."""

    def __init__(self, names: list[str], capacity: int) -> None:
        self.client, self.names, self.capacity = tq.get_client(), names, capacity
        self.stored: deque[tuple[int, Any]] = deque()
        self.count = 0

    def insert(self, items: Columns) -> None:
        number = len(items["action"])
        while self.count + number > self.capacity:
            oldest, metadata = self.stored.popleft()
            self.client.clear_samples(metadata)
            self.count -= oldest
        columns = {name: torch.from_numpy(column) for name, column in items.items()}
        data = TensorDict(columns, batch_size=[number])
        self.stored.append((number, self.client.put(data, partition_id=PARTITION)))
        self.count += number

    def sample(self, batch: int) -> Sampled:
        metadata = self.client.get_meta(self.names, batch, PARTITION, task_name="learn")
        got = self.client.get_data(metadata)
        return Sampled({name: dense(got[name]) for name in self.names}, None, None)

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled]:
        with ThreadPoolExecutor(depth) as pool:
            under_way = deque(pool.submit(self.sample, batch) for _ in range(depth))
            while True:
                got = under_way.popleft().result()
                under_way.append(pool.submit(self.sample, batch))
                yield got

    def close(self) -> None:
        ray.shutdown()
