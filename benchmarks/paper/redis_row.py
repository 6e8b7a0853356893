"""Redis in memory: SET and GET of one value through kernel TCP, beside T1's puts and gets.

This is our reading of the paper's baseline, a shared-memory server reached through the kernel. The
client is a socket and some lines of Python, since redis-py would add 20 to 60 µs a call that are no
transport's. It polls the socket without sleeping, and Nagle's delay is off: both help Redis. The
server is Redis as it comes, without persistence, on a core of its own; it sleeps in epoll.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from deploy.processes import Process
from replay_server import ReplayError

MISSING = "redis-server is not installed: apt-get install redis-server"
START_S, ANSWER_S = 10.0, 5.0
WARM = 20
RECEIVE_BYTES = 1 << 17


def missing() -> str | None:
    """Why there is no Redis here, in a sentence; None where there is."""
    return None if shutil.which("redis-server") else MISSING


class Client:
    """One connection, one request at a time."""

    def __init__(self, port: int, timeout: float = ANSWER_S) -> None:
        self.timeout = timeout
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.memory = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.memory)

    def ask(self, request: bytes, answer_bytes: int) -> memoryview:
        """The answer, of which the length is known: SET's is "+OK", GET's a value's."""
        end, sent, got = time.perf_counter() + self.timeout, 0, 0
        while got < answer_bytes:
            try:
                if sent < len(request):
                    sent += self.socket.send(request[sent:] if sent else request)
                got += self.socket.recv_into(self.view[got:answer_bytes])
            except BlockingIOError:
                if time.perf_counter() > end:
                    raise ReplayError(f"Redis did not answer within {self.timeout:g} s") from None
            if got and self.memory[0] == ord("-"):
                raise ReplayError(f"Redis refused: {bytes(self.view[1:got])!r}")
        return self.view[:got]

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()


def bulk(value: bytes) -> bytes:
    """A value as Redis's protocol has it, with its length."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def requests(key: bytes, value: bytes) -> dict[str, tuple[bytes, bytes]]:
    """{"put": (SET, its answer), "get": (GET, its answer)}."""
    put = b"*3\r\n" + bulk(b"SET") + bulk(key) + bulk(value)
    return {"put": (put, b"+OK\r\n"), "get": (b"*2\r\n" + bulk(b"GET") + bulk(key), bulk(value))}


def timed(client: Client, work: str, size: int, calls: int) -> np.ndarray:
    """Seconds of each of `calls` calls of one work, "put" or "get"; every answer is looked at."""
    of, times = requests(b"x%d" % size, b"\x5a" * size), np.zeros(calls)
    client.ask(of["put"][0], len(of["put"][1]))
    request, expected = of[work]
    for call in range(-WARM, calls):
        begin = time.perf_counter()
        answer = client.ask(request, len(expected))
        if call >= 0:
            times[call] = time.perf_counter() - begin
        if answer != expected:
            raise ReplayError(f"Redis answered {bytes(answer[:40])!r} to a {work} of {size} B")
    return times


class Server:
    """redis-server on a free port of this host, on one core; ended by `close`."""

    def __init__(self, core: int, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no"}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        pinned = ["taskset", "-c", str(core)] if shutil.which("taskset") else []
        command = [*pinned, "redis-server", *words, "--dir", str(folder)]
        self.process = Process("redis", command, folder / "redis.log")

    def connect(self) -> Client:
        """A client, as soon as it serves."""
        end = time.monotonic() + START_S
        while True:
            try:
                return Client(self.port)
            except OSError as error:
                if self.process.ended() is not None or time.monotonic() > end:
                    said = self.process.last_lines(2)
                    raise ReplayError(f"redis-server did not start: {error}: {said}") from error
                time.sleep(0.02)

    def close(self) -> None:
        """Ends it."""
        self.process.end()


def rounds(
    sizes: Sequence[int], calls: int, count: int, cores: Sequence[int], folder: Path
) -> dict[tuple[str, int], list[np.ndarray]]:
    """{(work, size): seconds, [calls] each round}. cores: the server's first, the client's last.
    Raises ReplayError where there is no Redis."""
    if why := missing():
        raise ReplayError(why)
    found: dict[tuple[str, int], list[Any]] = {}
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[-1]})
        server = Server(cores[0], folder)
        stack.callback(server.close)
        client = server.connect()
        stack.callback(client.close)
        for _ in range(count):
            for work in ("put", "get"):
                for size in sizes:
                    found.setdefault((work, size), []).append(timed(client, work, size, calls))
    return found
