"""Collecting and learning in turns, across processes: for runs that repeat, step by step.

    actors    `done(stored)` after each step of their environments: how many rows it stored, all of
              them acknowledged; returns when the learner has learned what was due
    learner   `collected()` gives the rows of that step once every actor has sent its own; then it
              learns, and `go()` lets all of them on

    | number u64 | stored u64 |   the question of an actor; the same number comes back as the answer

A question is repeated every AGAIN_S, and counts once.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable

import zmq

from ..errors import ConfigError, Timeout

MESSAGE = struct.Struct("<QQ")
AGAIN_S, SLICE_MS = 1.0, 100
LOCAL = ("tcp://127.0.0.1:", "tcp://localhost:", "ipc://")


class Taking:
    """An actor's end. stopped: ends each wait; patience: seconds that one may last."""

    def __init__(self, url: str, number: int, patience: float, stopped: Callable[[], bool]) -> None:
        self.url, self.patience, self.stopped = url, patience, stopped
        self.number = secrets.randbits(48)  # another start of this actor is not taken for this one
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.ROUTING_ID, f"actor-{number}".encode())
        self.socket.connect(url)

    def done(self, stored: int) -> None:
        """This actor's part of the turn is over; returns as the next one begins, or once stopped.
        Timeout where it does not begin."""
        self.number += 1
        until, again_at = time.monotonic() + self.patience, 0.0
        while not self.stopped():
            now = time.monotonic()
            if now >= until:
                raise Timeout(f"the learner of the turns at {self.url} is silent: is it running?")
            if now >= again_at:
                self.socket.send(MESSAGE.pack(self.number, stored))
                again_at = now + AGAIN_S
            if self.socket.poll(SLICE_MS):
                answer = self.socket.recv()
                if len(answer) == MESSAGE.size and MESSAGE.unpack(answer)[0] == self.number:
                    return

    def close(self) -> None:
        """Gives the connection up."""
        self.socket.close()
        self.context.term()


class Giving:
    """The learner's end, for `actors` of them. Serves at `url`."""

    def __init__(self, url: str, actors: int) -> None:
        if not url.startswith(LOCAL):
            raise ConfigError(
                f"--turns {url}: other machines may reach it; say tcp://127.0.0.1:..."
            )
        self.actors = actors
        self.names = {f"actor-{number}".encode() for number in range(actors)}
        self.there: dict[bytes, tuple[int, int]] = {}  # of each actor: its question's number, rows
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, 1 << 10)
        try:
            self.socket.bind(url)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"--turns {url}: {error}") from error
        self.address = self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
        self.gone: dict[bytes, int] = {}  # the newest question of each that was answered

    def collected(self, seconds: float) -> int | None:
        """The rows of a turn, once all actors have theirs; None where that takes longer."""
        until = time.monotonic() + seconds
        while len(self.there) < self.actors:
            left = until - time.monotonic()
            if left <= 0 or not self.socket.poll(int(left * 1000) + 1):
                return None
            who, *rest = self.socket.recv_multipart()
            if who not in self.names or len(rest) != 1 or len(rest[0]) != MESSAGE.size:
                continue
            number, stored = MESSAGE.unpack(rest[0])
            if number == self.gone.get(who):
                self.socket.send_multipart([who, MESSAGE.pack(number, 0)])  # its answer was lost
            else:
                self.there[who] = number, stored
        return sum(stored for _, stored in self.there.values())

    def go(self) -> None:
        """The next turn begins."""
        for who, (number, _) in self.there.items():
            self.socket.send_multipart([who, MESSAGE.pack(number, 0)])
            self.gone[who] = number
        self.there = {}

    def close(self) -> None:
        """Serves no more."""
        self.socket.close()
        self.context.term()
