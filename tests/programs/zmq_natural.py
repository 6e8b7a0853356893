"""What people write when they need a replay server: pickle over ZeroMQ in front of a buffer.

`python tests/programs/zmq_natural.py` measures it beside this package over zmq+tcp, column by
column, in one run: both servers are processes of their own, both clients this one, and short rounds
take turns, so that what else the machine does falls on both. Told are the medians of the rounds,
and the best ones, which are what the machine gives when nothing else runs on it. The buffer is
cpprb's where that is installed, else plain numpy.

Rows are the bench's small ones: 4 float32 observation (twice at the natural program, which stores
transitions), action, reward, terminated; priorities to the power 0.6.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import zmq

from replay_server import Client, NStep, Server, Table
from replay_server.bench.python_client import SMALL

CAPACITY, FILL, ROWS, IN_FLIGHT = 1 << 17, 60_000, 1000, 8
URL = "zmq+tcp://127.0.0.1:0"


# ---- the natural program ----


class NumpyReplay:
    """A ring of columns and a sum tree of float64, in numpy."""

    def __init__(self) -> None:
        self.columns: dict[str, np.ndarray] = {}
        self.tree = np.zeros(2 * CAPACITY)
        self.head = self.count = 0

    def add(self, **rows: np.ndarray) -> None:
        """Columns [N, *shape], at priority 1."""
        count = len(next(iter(rows.values())))
        at = (self.head + np.arange(count)) % CAPACITY
        for name, column in rows.items():
            if name not in self.columns:
                self.columns[name] = np.zeros((CAPACITY, *column.shape[1:]), column.dtype)
            self.columns[name][at] = column
        self.head = int((self.head + count) % CAPACITY)
        self.count = min(self.count + count, CAPACITY)
        self.update_priorities(at, np.ones(count))

    def update_priorities(self, indexes: np.ndarray, priorities: np.ndarray) -> None:
        """Sets float64 [N]; each node above is summed anew."""
        nodes = np.asarray(indexes) + CAPACITY
        self.tree[nodes] = np.asarray(priorities) ** 0.6
        while nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self.tree[nodes] = self.tree[2 * nodes] + self.tree[2 * nodes + 1]

    def sample(self, count: int, beta: float) -> dict[str, np.ndarray]:
        """Columns [count, *shape], `indexes` and `weights`."""
        left = np.random.random(count) * self.tree[1]
        nodes = np.ones(count, np.int64)
        while nodes[0] < CAPACITY:
            nodes *= 2
            right = left >= self.tree[nodes]
            left -= np.where(right, self.tree[nodes], 0.0)
            nodes += right
        indexes = np.minimum(nodes - CAPACITY, self.count - 1)
        weights = (self.count * self.tree[nodes] / self.tree[1]) ** -beta
        batch = {name: column[indexes] for name, column in self.columns.items()}
        return batch | {"indexes": indexes, "weights": weights / weights.max()}


def new_buffer() -> Any:
    """cpprb's prioritized buffer, or the one above."""
    try:
        from cpprb import PrioritizedReplayBuffer
    except ImportError:
        return NumpyReplay()
    shapes: dict[str, Any] = {
        "observation": {"shape": 4},
        "next_observation": {"shape": 4},
        "action": {"dtype": np.int64},
        "reward": {"dtype": np.float32},
        "terminated": {"dtype": np.bool_},
    }
    return PrioritizedReplayBuffer(CAPACITY, shapes, alpha=0.6)


def serve_natural() -> None:
    """Prints its address; serves until its standard input ends."""
    buffer, context = new_buffer(), zmq.Context()
    socket = context.socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    print(f"serving {type(buffer).__name__} at tcp://127.0.0.1:{port}", flush=True)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while sys.stdin.fileno() not in dict(poller.poll()):
        sender, request = socket.recv_multipart()
        operation, arguments, named = pickle.loads(request)
        answer = getattr(buffer, operation)(*arguments, **named)
        socket.send_multipart([sender, pickle.dumps(answer, protocol=5)])


class Natural:
    """Its client: requests leave, answers come in order."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(address)
        self.under_way = 0

    def post(self, operation: str, *arguments: Any, **named: Any) -> None:
        self.socket.send(pickle.dumps((operation, arguments, named), protocol=5))
        self.under_way += 1

    def answer(self) -> Any:
        self.under_way -= 1
        return pickle.loads(self.socket.recv())

    def ask(self, operation: str, *arguments: Any, **named: Any) -> Any:
        self.post(operation, *arguments, **named)
        return self.answer()

    def ask_ahead(self, depth: int, operation: str, *arguments: Any, **named: Any) -> None:
        """One more request, and one answer once `depth` are under way."""
        self.post(operation, *arguments, **named)
        if self.under_way >= depth:
            self.answer()

    def settle(self) -> None:
        while self.under_way:
            self.answer()


# ---- the same jobs, both ways ----


def transitions(count: int) -> dict[str, np.ndarray]:
    """Columns of `count` small transitions."""
    rng = np.random.default_rng(1)
    return {
        "observation": rng.normal(size=(count, 4)).astype(np.float32),
        "next_observation": rng.normal(size=(count, 4)).astype(np.float32),
        "action": rng.integers(2, size=count),
        "reward": np.ones(count, np.float32),
        "terminated": np.zeros(count, np.bool_),
    }


def natural_jobs(natural: Natural) -> dict[str, Callable[[], int]]:
    """{column: what does one round's work and says how much it was}."""
    rows = transitions(ROWS)
    for _ in range(FILL // ROWS):
        natural.ask("add", **rows)
    indexes = natural.ask("sample", 512, 0.4)["indexes"]
    priorities = np.random.random(512) + 0.5

    def pushed_ahead() -> int:
        for _ in range(IN_FLIGHT):
            natural.ask_ahead(IN_FLIGHT, "add", **rows)
        natural.settle()
        return IN_FLIGHT * ROWS

    def sampled_ahead() -> int:
        for _ in range(32):
            natural.ask_ahead(4, "sample", 512, 0.4)
        natural.settle()
        return 32 * 512

    def updated() -> int:
        for _ in range(64):
            natural.ask_ahead(16, "update_priorities", indexes, priorities)
        natural.settle()
        return 64 * 512

    return {
        "push 1000, acknowledged": lambda: (natural.ask("add", **rows), ROWS)[1],
        "push 8 x 1000": pushed_ahead,
        "sample 32": lambda: len(natural.ask("sample", 32, 0.4)["weights"]),
        "sample 512": lambda: len(natural.ask("sample", 512, 0.4)["weights"]),
        "sample 512, 4 ahead": sampled_ahead,
        "update 512, ahead": updated,
    }


def serve_ours() -> None:
    """Prints its address; serves until its standard input ends."""
    steps = Table("steps", step=SMALL, plan=NStep(1), capacity=CAPACITY, writers=1)
    plain = Table("plain", step=SMALL, capacity=CAPACITY, writers=1)
    with Server([steps, plain], URL, seed=1) as server:
        print(f"serving replay_server at {server.address}", flush=True)
        sys.stdin.read()


def our_jobs(client: Client) -> dict[str, Callable[[], int]]:
    """The same columns."""
    rows = transitions(IN_FLIGHT * ROWS)
    following = rows.pop("next_observation")
    batch = {name: column[:ROWS] for name, column in rows.items()}
    with client.writer("steps", 8, autoreset="same-step") as writer:
        for i in range(0, FILL, 8):
            at = slice(i % 4000, i % 4000 + 8)
            step = {name: column[at] for name, column in rows.items()}
            ended = np.zeros(8, np.bool_)
            writer.add_batch(**step, truncated=ended, final_observation=following[at])
    other = Client(client.address)  # its thread fetches ahead, and sleeps while nobody takes
    small, large = client.landing("steps", 32), client.landing("steps", 512)
    keys = client.sample("steps", 512).keys
    priorities = np.random.random(512) + 0.5
    ahead = iter(other.batches("steps", 512, prefetch=4))

    def updated() -> int:
        for _ in range(64):
            client.update_priorities("steps", keys, priorities, wait=False)
        return client.flush().applied

    return {
        "push 1000, acknowledged": lambda: len(client.extend("plain", batch)),
        "push 8 x 1000": lambda: len(client.extend("plain", rows)),
        "sample 32": lambda: len(client.sample("steps", 32, out=small)),
        "sample 512": lambda: len(client.sample("steps", 512, out=large)),
        "sample 512, 4 ahead": lambda: sum(len(next(ahead)) for _ in range(32)),
        "update 512, ahead": updated,
    }


# ---- side by side ----


@contextmanager
def served(which: str) -> Iterator[str]:
    """A server in a process of its own; its address."""
    command = [sys.executable, __file__, "--serve", which]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            line = process.stdout.readline().split()
            print(*line, flush=True)
            yield line[-1]
        finally:
            process.stdin.close()
            process.wait(10)


def rate(job: Callable[[], int], seconds: float) -> float:
    """What a job does in a second, over about `seconds`."""
    done, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds or not done:
        done += job()
    return done / passed


def main(argv: list[str] | None = None) -> int:
    """Prints a row a column."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", choices=["natural", "ours"], help="be one of the servers")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each, in turn [50]")
    parser.add_argument("--seconds", type=float, default=0.03, help="time of a round [0.03]")
    args = parser.parse_args(argv)
    if args.serve:
        {"natural": serve_natural, "ours": serve_ours}[args.serve]()
        return 0
    with served("natural") as theirs, served("ours") as address, Client(address) as client:
        natural, ours = natural_jobs(Natural(theirs)), our_jobs(client)
        print(f"{'a second':26} {'ours':>13} {'natural':>12}  ratio  best: ours      natural")
        for name in natural:
            pairs = [
                (rate(ours[name], args.seconds), rate(natural[name], args.seconds))
                for _ in range(args.rounds)
            ]
            told = "".join(
                f"{ours_s:13,.0f} {theirs_s:12,.0f} {ours_s / theirs_s:6.2f}"
                for ours_s, theirs_s in (np.median(pairs, axis=0), np.max(pairs, axis=0))
            )
            print(f"{name:26} {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
