"""A point's servers, each in a process of its own, and its clients, all in this one.

    python -m benchmarks.scale.serving --capacity 100000 --size 256 --batch 256

is what starts one: it prints its address and serves until its input ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.scale.axes import Point
from replay_server import Client, Column, Prioritized, Server, Spec, Table

TABLE, READY = "items", "serving "
CALLS, IN_FLIGHT, BYTES_A_ROUND = 40, 16, 64 << 20


def serve(args: argparse.Namespace) -> int:
    """The server's process."""
    spec = Spec((Column("item", np.uint8, (args.size,)),))
    sampler, users = Prioritized(0.6), args.sessions
    table = Table(TABLE, spec, capacity=args.capacity, sampler=sampler, writers=users, streams=1)
    options = {"seed": 1, "core": args.core, "batch_max": max(args.batch, 512)}
    options |= {"sessions": users, "sessions_per_address": users}
    with Server([table], args.url, **options) as server:
        print(READY + server.address, flush=True)
        sys.stdin.read()
    return 0


def processor_seconds(pid: int) -> float:
    """Of all threads of a process, the kernel's work for it included."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


class Serving:
    """The servers and clients of a point, filled."""

    def __init__(self, point: Point, url: str, core: int | None) -> None:
        self.point, self.random = point, np.random.default_rng(point.size)
        names = ("capacity", "size", "batch", "sessions")
        words = [f"--{name}={getattr(point, name)}" for name in names]
        words += ["--url", url] + ([] if core is None else ["--core", str(core)])
        command = [sys.executable, "-m", "benchmarks.scale.serving", *words]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(point.shards)
        ]
        addresses = [self._address(process) for process in self.processes]
        count = max(point.sessions, point.shards)
        most = max(point.batch, 512)
        self.clients = [
            Client(addresses[i % point.shards], batch_max=most, timeout=30.0) for i in range(count)
        ]
        self.rows = self.random.integers(0, 256, (point.batch, point.size), dtype=np.uint8)
        self.priorities = self.random.random(point.batch) + 0.01
        for client in self.clients[: point.shards]:
            self._fill(client)

    def _address(self, process: subprocess.Popen[str]) -> str:
        line = process.stdout.readline()
        if not line.startswith(READY):
            raise SystemExit(f"bench-scale: the server of {self.point} did not start")
        return line[len(READY) :].strip()

    def _fill(self, client: Client) -> None:
        """To the brim: a tree is as deep as it gets, and each insert overwrites."""
        rows = max(1, (8 << 20) // self.point.size)
        for left in range(self.point.capacity, 0, -rows):
            some = self.random.integers(0, 256, (min(rows, left), self.point.size), dtype=np.uint8)
            client.extend(TABLE, {"item": some}, priorities=self.random.random(len(some)) + 0.01)

    def _calls(self, operation: str, stack: ExitStack) -> list[Callable[[], int]]:
        """What each client does, again and again; each call returns its items."""
        point, calls = self.point, []
        clients = self.clients[: point.shards] if operation == "ahead" else self.clients
        for client in clients:
            if operation == "insert":
                calls.append(lambda c=client: len(c.extend(TABLE, {"item": self.rows})))
            elif operation == "sample":
                calls.append(lambda c=client: len(c.sample(TABLE, point.batch)))
            elif operation == "ahead":
                drawn = stack.enter_context(client.batches(TABLE, point.batch, prefetch=4))
                calls.append(lambda drawn=drawn: len(next(drawn)))
            else:
                keys = client.sample(TABLE, point.batch).keys
                calls.append(lambda c=client, keys=keys: self._update(c, keys))
        return calls

    def _update(self, client: Client, keys: np.ndarray) -> int:
        for _ in range(IN_FLIGHT):
            client.update_priorities(TABLE, keys, self.priorities, wait=False)
        client.flush()
        return IN_FLIGHT * len(keys)

    def measured(self, operation: str) -> tuple[np.ndarray, float]:
        """Items a second of each call [N], and the servers' nanoseconds for an item."""
        count = max(8, min(CALLS, BYTES_A_ROUND // (self.point.batch * self.point.size)))
        count = max(count, len(self.clients))
        rates, items = np.zeros(count), 0
        with ExitStack() as stack:
            calls = self._calls(operation, stack)
            for call in (*calls, *calls[:2]):
                call()  # warm
            before = self._servers_seconds()
            for i in range(count):
                begin = time.perf_counter()
                done = calls[i % len(calls)]()
                rates[i] = done / (time.perf_counter() - begin)
                items += done
            return rates, (self._servers_seconds() - before) / items * 1e9

    def _servers_seconds(self) -> float:
        return sum(processor_seconds(process.pid) for process in self.processes)

    def close(self) -> None:
        """Ends clients and processes."""
        for client in self.clients:
            client.close()
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(10)


def main(argv: list[str] | None = None) -> int:
    """One server."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.serving", description=__doc__)
    parser.add_argument("--capacity", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--url", default="udp://127.0.0.1:0")
    parser.add_argument("--core", type=int)
    args = parser.parse_args(argv)
    try:
        return serve(args)
    except KeyboardInterrupt:  # Ctrl-C goes to the whole group: the driver says what it means
        return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
