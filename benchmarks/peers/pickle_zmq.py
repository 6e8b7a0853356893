"""What people write when they need a replay server: pickle over ZeroMQ in front of a buffer.

A ROUTER socket in front of cpprb (option `buffer`: "numpy" for the stand-in), requests and answers
by pickle, protocol 5. With `out_of_band` arrays are not pickled but sent as parts of their own,
without a copy at the sender (PEP 574, and pyzmq's page on serialization), and unpickled as views of
what was received. `ahead` sends requests before the answers are read: a DEALER socket has no turn
to keep.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import zmq

from .arrays import buffer_of
from .peer import Columns, Peer, Sampled, Serving, Setting

WAIT_MS = 60_000


def dumped(what: Any, out_of_band: bool) -> list[Any]:
    """An object as parts of a message."""
    if not out_of_band:
        return [pickle.dumps(what, protocol=5)]
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(what, protocol=5, buffer_callback=buffers.append)
    return [head, *buffers]


def send(socket: zmq.Socket, parts: list[Any]) -> None:
    """Large parts leave from where they lie."""
    socket.send_multipart(parts, copy=len(parts) == 1)


def receive(socket: zmq.Socket, out_of_band: bool) -> tuple[list[Any], Any]:
    """(the sender's name at a ROUTER, [] at a DEALER, what was sent)."""
    parts = socket.recv_multipart(copy=not out_of_band)
    named = 1 if socket.type == zmq.ROUTER else 0
    head, *buffers = parts[named:]
    if not out_of_band:
        return parts[:named], pickle.loads(head)
    return parts[:named], pickle.loads(head.buffer, buffers=[part.buffer for part in buffers])


def serve(setting: Setting) -> Serving:
    """A thread that answers until `close`."""
    buffer, context = buffer_of(setting), zmq.Context()
    socket = context.socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    out_of_band = bool(setting.options.get("out_of_band"))
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            if not socket.poll(100):
                continue
            sender, (operation, *arguments) = receive(socket, out_of_band)
            answer = getattr(buffer, operation)(*arguments)
            send(socket, [*sender, *dumped(answer, out_of_band)])
        socket.close(0)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()

    def close() -> None:
        over.set()
        thread.join(5.0)

    return Serving(f"tcp://127.0.0.1:{port}", close)


def connect(setting: Setting, address: str) -> Peer:
    """A client."""
    return PickleZmq(address, bool(setting.options.get("out_of_band")))


class PickleZmq(Peer):
    """Requests leave, answers come in order."""

    def __init__(self, address: str, out_of_band: bool) -> None:
        self.out_of_band, self.address = out_of_band, address
        self.context = zmq.Context()
        self.socket = self.opened()

    def opened(self) -> zmq.Socket:
        """A socket of its own."""
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        socket.connect(self.address)
        return socket

    def ask(self, *request: Any) -> Any:
        """A request and its answer."""
        send(self.socket, dumped(request, self.out_of_band))
        return receive(self.socket, self.out_of_band)[1]

    def insert(self, items: Columns) -> None:
        self.ask("add", items)

    def sample(self, batch: int) -> Sampled:
        return self.of(self.ask("sample", batch))

    def of(self, got: dict[str, np.ndarray]) -> Sampled:
        """An answer as columns."""
        return Sampled(got, got["indexes"], got["weights"])

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled]:
        request, socket = dumped(("sample", batch), self.out_of_band), self.opened()
        for _ in range(depth):
            send(socket, request)
        while True:
            got = receive(socket, self.out_of_band)[1]
            send(socket, request)
            yield self.of(got)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        self.ask("update_priorities", keys, priorities)

    def close(self) -> None:
        self.context.destroy(0)
