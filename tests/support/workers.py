"""A worker that steps environments, in a thread of the test's process."""

from __future__ import annotations

import threading

import zmq

from actor.worker import Options, Served, turn


class Worker:
    """One worker in a thread of this process, ended by `close`."""

    def __init__(self, env: str = "CartPole-v1", count: int = 2) -> None:
        self.context, self.ended = zmq.Context(), threading.Event()
        socket = self.context.socket(zmq.ROUTER)
        socket.setsockopt(zmq.LINGER, 0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        self.url, self.served = f"tcp://127.0.0.1:{port}", Served(Options(env=env, envs=count))
        self.thread = threading.Thread(target=self.run, args=(socket,))
        self.thread.start()

    def run(self, socket: zmq.Socket) -> None:
        """Answers until it is closed."""
        while not self.ended.is_set():
            if socket.poll(20):
                turn(socket, self.served)
        socket.close()

    def begin_anew(self) -> None:
        """As one that was killed and started again: it knows of no player."""
        self.served.player = b""

    def close(self) -> None:
        """Ends its thread, then its environments."""
        self.ended.set()
        self.thread.join()
        self.served.close()
        self.context.term()
