"""Questions and answers between the programs of a run, over ZeroMQ: each is acted on once.

    | number u64 | verb u8 | body |    both ways, little-endian; an answer has its question's number

An `Asker` has one question under way. It repeats it every AGAIN_S, over reconnections and restarts
of the other end, until the answer is there. An `Answerer` keeps of each asker the number of the
newest question that it answered: a repeat is told apart, so that its owner answers it again and
does nothing twice. What else comes from a peer is left unanswered.

A first number is drawn, so that a program that was started again under the same name is not taken
for the one before. Only this machine is served, unless its owner says otherwise.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import zmq

from ..errors import ConfigError, Timeout

HEAD = struct.Struct("<QB")
AGAIN_S, SLICE_MS = 1.0, 100
BYTES_MAX = 4 << 30  # of one message
ASKERS_MAX = 4096  # whose newest number is kept
UNDER_WAY = 2  # copies of a question that may wait for a connection
LOCAL = ("tcp://127.0.0.1:", "tcp://localhost:", "ipc://")


def is_local(url: str) -> bool:
    """Whether only programs of this machine reach an end that serves there."""
    return url.startswith(LOCAL)


class Asker:
    """The end that asks. name: how the other end knows it; not given: drawn. stopped: ends each
    wait. ConfigError where `url` is no address."""

    def __init__(
        self, url: str, stopped: Callable[[], bool] = lambda: False, name: bytes = b""
    ) -> None:
        self.url, self.stopped = url, stopped
        self.number, self.question, self.again_at = secrets.randbits(48), b"", 0.0
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, UNDER_WAY)
        self.socket.setsockopt(zmq.MAXMSGSIZE, BYTES_MAX)
        self.socket.setsockopt(zmq.ROUTING_ID, name or b"a" + os.urandom(16))
        try:
            self.socket.connect(url)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"{url}: {error}; an address is tcp://HOST:PORT") from error

    def ask(self, verb: int, body: bytes = b"") -> None:
        """Sends a question; the one before needs no answer any more."""
        self.number += 1
        self.question = HEAD.pack(self.number, verb) + body
        self._send()

    def _send(self) -> None:
        with contextlib.suppress(zmq.Again):  # nobody is there: the next repeat may find somebody
            self.socket.send(self.question, zmq.DONTWAIT)
        self.again_at = time.monotonic() + AGAIN_S

    def answer(self, until: float) -> tuple[int, bytes]:
        """(verb, body) of the answer, awaited until that time of the monotonic clock; Timeout where
        none comes, or the wait was stopped."""
        while True:
            now = time.monotonic()
            if now >= until or self.stopped():
                raise Timeout(f"no answer from {self.url}")
            if now >= self.again_at:
                self._send()
            if self.socket.poll(min(SLICE_MS, int((until - now) * 1000) + 1)):
                data = self.socket.recv()
                if len(data) >= HEAD.size:
                    number, verb = HEAD.unpack_from(data)
                    if number == self.number:  # else of a question that was given up
                        return verb, data[HEAD.size :]

    def close(self) -> None:
        """Gives the connection up."""
        self.socket.close()


class Question(NamedTuple):
    """What an asker wants. again: it was answered before, and is to be answered so again."""

    who: bytes
    number: int
    verb: int
    body: bytes
    again: bool


def heard(askers: Sequence[Asker], milliseconds: int) -> list[int]:
    """The places of those that something has come for; waits so long for the first."""
    poller = zmq.Poller()
    for asker in askers:
        poller.register(asker.socket, zmq.POLLIN)
    there = {socket for socket, _ in poller.poll(milliseconds)}
    return [place for place, asker in enumerate(askers) if asker.socket in there]


class Answerer:
    """The end that answers, at `url`; ConfigError, which begins with `what`, where it cannot be
    served there. insecure: other machines may reach it too."""

    def __init__(self, url: str, what: str, *, insecure: bool = False) -> None:
        if not insecure and not is_local(url):
            raise ConfigError(
                f"{what} {url}: other machines may reach it; say tcp://127.0.0.1:PORT"
            )
        self.answered: dict[bytes, int] = {}
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        # A name is its newest connection's: the one before may be half open.
        self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, BYTES_MAX)
        try:
            self.socket.bind(url)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"{what} {url}: {error}") from error
        self.address = self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()

    def question(self, seconds: float) -> Question | None:
        """The next one, if one comes within that time."""
        if not self.socket.poll(int(seconds * 1000)):
            return None
        who, *rest = self.socket.recv_multipart()
        if len(rest) != 1 or len(rest[0]) < HEAD.size:
            return None
        number, verb = HEAD.unpack_from(rest[0])
        return Question(who, number, verb, rest[0][HEAD.size :], self.answered.get(who) == number)

    def answer(self, question: Question, verb: int, body: bytes = b"") -> None:
        """Sends the answer; whoever is gone does not get it."""
        self.answered.pop(question.who, None)
        self.answered[question.who] = question.number
        while len(self.answered) > ASKERS_MAX:
            self.answered.pop(next(iter(self.answered)))
        self.socket.send_multipart([question.who, HEAD.pack(question.number, verb) + body])

    def close(self) -> None:
        """Serves no more."""
        self.socket.close()
