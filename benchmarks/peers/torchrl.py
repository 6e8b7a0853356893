"""TorchRL: its replay buffer in the learner's process, and its remote buffer over torch's RPC.

`RemoteTensorDictReplayBuffer` on `LazyTensorStorage` with a `PrioritizedSampler`, made in the
server's process; clients hold an RRef of it and call `rref.rpc_sync().extend / sample /
update_priority`, as TorchRL's example of a distributed replay buffer does; `ahead` keeps several
`rpc_async` calls under way. TensorPipe carries tensors without pickling them. In one process the
same buffer is called directly, with no prefetching threads.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.distributed import rpc
from torchrl.data import LazyTensorStorage, RemoteTensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

from .peer import ALPHA, BETA, Columns, Peer, Sampled, Serving, Setting

SERVER, THREADS, TIMEOUT_S = "server", 8, 120.0
_held: list[Any] = []


def buffer_of(setting: Setting) -> Any:
    """A buffer in this process."""
    return RemoteTensorDictReplayBuffer(
        storage=LazyTensorStorage(setting.capacity),
        sampler=PrioritizedSampler(setting.capacity, ALPHA, BETA),
        batch_size=256,
    )


def held() -> Any:
    """The server's buffer, where that is called."""
    return _held[0]


def join(name: str, rank: int, clients: int, address: str) -> None:
    """Enters the group of the server and so many clients; returns when all are there."""
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=THREADS, init_method=f"tcp://{address}", rpc_timeout=TIMEOUT_S
    )
    rpc.init_rpc(name, rank=rank, world_size=clients + 1, rpc_backend_options=options)


def serve(setting: Setting) -> Serving:
    """The buffer, behind RPC."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    _held.append(buffer_of(setting))
    group = (SERVER, 0, setting.options["clients"], address)
    threading.Thread(target=join, args=group, daemon=True).start()
    return Serving(address, lambda: None)


def connect(setting: Setting, address: str) -> Peer:
    """A client, or the buffer itself where there is no address."""
    if not address:
        return Local(buffer_of(setting))
    number = int(setting.options["client"]) + 1
    join(f"client-{number}", number, setting.options["clients"], address)
    return Remote(rpc.remote(SERVER, held))


def tensors(items: Columns) -> TensorDict:
    """Columns as a TensorDict, without a copy."""
    columns = {name: torch.from_numpy(column) for name, column in items.items()}
    return TensorDict(columns, batch_size=[len(items["action"])])


class Local(Peer):
    """The buffer's own calls."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def insert(self, items: Columns) -> None:
        self.buffer.extend(tensors(items))

    def sample(self, batch: int) -> Sampled:
        return self.of(self.buffer.sample(batch))

    def of(self, got: TensorDict) -> Sampled:
        """A batch as NumPy views."""
        columns = {name: value.numpy() for name, value in got.items()}
        weights = columns.get("priority_weight", columns.get("_weight"))
        return Sampled(columns, got["index"], weights)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        self.buffer.update_priority(keys, torch.from_numpy(priorities).float())


class Remote(Local):
    """The same calls on an RRef."""

    def insert(self, items: Columns) -> None:
        self.buffer.rpc_sync().extend(tensors(items))

    def sample(self, batch: int) -> Sampled:
        return self.of(self.buffer.rpc_sync().sample(batch))

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled]:
        under_way = [self.buffer.rpc_async().sample(batch) for _ in range(depth)]
        for at in itertools.cycle(range(depth)):
            got = under_way[at].wait()
            under_way[at] = self.buffer.rpc_async().sample(batch)
            yield self.of(got)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        self.buffer.rpc_sync().update_priority(keys, torch.from_numpy(priorities).float())
