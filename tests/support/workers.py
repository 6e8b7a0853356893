"""A worker that steps environments, in a thread of the test's process; a stranger's raw bytes; an
address where nobody answers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import zmq

from actor.worker import Options, served_by, turn
from replay_server.training.asking import HEAD, Answerer


class Worker:
    """One worker in a thread of this process, ended by `close`."""

    def __init__(self, env: str = "CartPole-v1", count: int = 2) -> None:
        self.served = served_by(Options(env=env, envs=count))
        self.ended = threading.Event()
        self.line = Answerer("tcp://127.0.0.1:0", "--serve")
        self.url = self.line.address
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        """Answers until it is closed."""
        while not self.ended.is_set():
            turn(self.line, self.served, 0.02)

    def begin_anew(self) -> None:
        """As one that was killed and started again: it knows of no player."""
        self.served.player = b""

    def close(self) -> None:
        """Ends its thread, then its environments."""
        self.ended.set()
        self.thread.join()
        self.line.close()
        self.served.close()


def verbs_of(url: str, messages: Iterable[bytes], last: bytes) -> dict[int, int]:
    """{number: verb} of what a stranger is answered who sends these messages and then `last`, which
    is a question; up to that one's answer."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(url)
        for message in messages:
            stranger.send(message)
        stranger.send(last)
        verbs: dict[int, int] = {}
        while HEAD.unpack_from(last)[0] not in verbs:
            number, verb = HEAD.unpack_from(stranger.recv())
            verbs[number] = verb
        return verbs


@contextmanager
def silent() -> Iterator[tuple[str, zmq.Socket]]:
    """An address whose questions are never answered, and the socket that they come to."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        yield f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}", socket
