"""Many clients of one server: throughput, repeats over slow paths, incast, and memory.

`python tests/programs/clients_bench.py` (make bench-clients) measures this tree; `--before FOLDER`
measures another one too, with its engine built, in turns with it, so that what else the machine
does falls on both. Everything is on loopback; delay comes from a relay in user space. Each part is
a process of its own that prints one line of JSON:

    throughput  N client processes sample and update for some seconds; requests a second, all told
    paths       one client behind a relay: repeats among its requests, where nothing is lost
    incast      N client processes store four rows of 64 KiB each at the same moment, again and
                again; what the kernel dropped at the server's socket, how long a store took
    memory      what one client and its writer add to a process, at work

The bounds below are checked on this tree; a part beyond its bound makes the exit status 1.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from replay_server import Client, Column, NStep, Server, Spec, Table

FORK = multiprocessing.get_context("fork")  # after the imports: a child costs no start
ROWS = Spec((Column("x", np.float32, (12,)),))
LARGE = Spec((Column("x", np.float32, (1 << 14,)),))  # 64 KiB
SMALL = Spec(
    (
        Column("observation", np.float32, (12,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
GOES_ON = {"terminated": False, "truncated": False}
FILL, BATCH, PATH_ROUNDS, MEMORY_CLIENTS = 20_000, 32, 300, 4
INCAST_ROWS, INCAST_ROUNDS = 4, 10
PATHS_MS = (1, 30, 100)
TIMEOUT_S = 60.0
REPEATS_MOST, MEMORY_MOST, GAIN_LEAST = 0.01, 2 << 20, 2.0


def serve(table: Table, pipe: Any, sessions: int) -> None:
    """A server's process: tells its address, then its counters when asked, until the end."""
    with Server([table], "udp://127.0.0.1:0", seed=1, sessions=sessions) as server:
        pipe.send(server.address)
        while pipe.recv() == "counters":
            pipe.send(server.counters() | {"cpu_ns": time.process_time_ns()})


class Served:
    """A server in a process of its own."""

    def __init__(self, table: Table, sessions: int) -> None:
        self.pipe, other = FORK.Pipe()
        self.process = FORK.Process(target=serve, args=(table, other, sessions))
        self.process.start()
        self.address = self.pipe.recv()

    def counters(self) -> dict[str, int]:
        self.pipe.send("counters")
        return self.pipe.recv()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.send("end")
        self.process.join()


def crowd(count: int, work: Callable[[Any, Any], Any]) -> list[Any]:
    """What `count` processes return from work(barrier); all are ready at the barrier."""
    barrier, results = FORK.Barrier(count), FORK.SimpleQueue()
    made = [FORK.Process(target=lambda: results.put(work(barrier))) for _ in range(count)]
    for process in made:
        process.start()
    told = [results.get() for _ in made]
    for process in made:
        process.join()
    return told


def fill(address: str) -> Any:
    """Rows to draw from; their keys."""
    with Client(address, timeout=TIMEOUT_S) as client:
        return client.extend("main", {"x": np.zeros((FILL, 12), np.float32)})


def part_throughput(clients: int, seconds: float) -> dict[str, float]:
    """Requests a second of all clients together, and their repeats."""
    with Served(Table("main", step=ROWS, capacity=1 << 17, writers=4), clients + 8) as server:
        fill(server.address)

        def work(barrier: Any) -> tuple[int, int, int]:
            with Client(server.address, timeout=TIMEOUT_S) as client:
                client.sample("main", BATCH)
                barrier.wait()
                done, end = 0, time.monotonic() + seconds
                while time.monotonic() < end:
                    batch = client.sample("main", BATCH)
                    client.update_priorities("main", batch.keys, np.ones(BATCH))
                    done += 2
                told = client.counters()
                barrier.wait()
                return done, told["retransmissions"], told["datagrams_out"]

        begin = server.counters()["cpu_ns"]
        told = crowd(clients, work)
        done, repeats, sent = (sum(column) for column in zip(*told, strict=True))
        counters = server.counters()
        return {
            "per_s": done / seconds,
            "repeats": repeats / sent,
            "dropped": counters["dropped_in"],
            "beyond_share": counters.get("drop_share", 0) / done,
            "server_us": (counters["cpu_ns"] - begin) / 1000 / done,
        }


class Relay(threading.Thread):
    """Passes datagrams of one client on to `address` and back, each half a trip late."""

    def __init__(self, address: str, trip_s: float) -> None:
        super().__init__(daemon=True)
        host, port = address.removeprefix("udp://").partition("?")[0].split(":")
        self.near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.near.bind(("127.0.0.1", 0))
        self.far.connect((host, int(port)))
        for end in (self.near, self.far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            end.setblocking(False)
        self.address = f"udp://127.0.0.1:{self.near.getsockname()[1]}"
        self.late_s, self.client, self.ended = trip_s / 2, None, threading.Event()
        self.start()

    def run(self) -> None:
        waiting: list[tuple[float, int, socket.socket, bytes]] = []
        number = 0
        while not self.ended.is_set():
            left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.05
            ready, _, _ = select.select([self.near, self.far], [], [], left)
            for end in ready:
                data, peer = end.recvfrom(1 << 16)
                if end is self.near:
                    self.client = peer
                number += 1
                heapq.heappush(waiting, (time.monotonic() + self.late_s, number, end, data))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, end, data = heapq.heappop(waiting)
                if end is self.near:
                    self.far.send(data)
                else:
                    self.near.sendto(data, self.client)

    def close(self) -> None:
        self.ended.set()
        self.join()
        self.near.close()
        self.far.close()


def part_paths() -> dict[str, float]:
    """Repeats of one client among its requests, by round trip; its connect is among them."""
    told = {}
    with Served(Table("main", step=ROWS, capacity=1 << 17, writers=8), 16) as server:
        fill(server.address)
        for trip_ms in PATHS_MS:
            relay = Relay(server.address, trip_ms / 1000)
            with Client(relay.address, timeout=TIMEOUT_S, mtu=1400) as client:
                rows = {"x": np.zeros((64, 12), np.float32)}
                for _ in range(PATH_ROUNDS // 3):
                    client.extend("main", rows)
                    batch = client.sample("main", BATCH)
                    client.update_priorities("main", batch.keys, np.ones(BATCH))
                counters = client.counters()
            told[f"{trip_ms} ms"] = counters["retransmissions"] / counters["datagrams_out"]
            relay.close()
    return told


def part_incast(clients: int) -> dict[str, float]:
    """All clients store rows of 64 KiB at once, again and again."""
    table = Table("main", step=LARGE, capacity=16 * clients, writers=clients, window=1)
    with Served(table, clients + 8) as server:

        def work(barrier: Any) -> tuple[list[float], int, int]:
            took = []
            with Client(server.address, timeout=TIMEOUT_S) as client:
                rows = {"x": np.zeros((INCAST_ROWS, 1 << 14), np.float32)}
                client.extend("main", rows)
                for _ in range(INCAST_ROUNDS):
                    barrier.wait()
                    begin = time.monotonic()
                    client.extend("main", rows)
                    took.append(time.monotonic() - begin)
                told = client.counters()
                barrier.wait()
                return took, told["retransmissions"], told["datagrams_out"]

        told = crowd(clients, work)
        took = sorted(seconds for seconds, _, _ in told for seconds in seconds)
        counters = server.counters()
        stored = counters["steps_committed"]
        assert stored == clients * INCAST_ROWS * (INCAST_ROUNDS + 1), f"{stored} steps are stored"
        return {
            "dropped": counters["dropped_in"],
            "repeats": sum(r for _, r, _ in told) / sum(s for _, _, s in told),
            "median_ms": 1000 * statistics.median(took),
            "p99_ms": 1000 * took[int(0.99 * len(took))],
        }


def resident() -> int:
    """Bytes of memory this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def part_memory() -> dict[str, float]:
    """What a client and its writer add; the first ones pay for the process and are not counted."""
    table = Table("main", step=SMALL, plan=NStep(3), capacity=1 << 17, writers=16)
    with Served(table, 32) as server:

        def pair() -> Any:
            client = Client(server.address, timeout=TIMEOUT_S)
            writer = client.writer("main")
            for _ in range(500):
                seen = np.zeros(12, np.float32)
                writer.add(observation=seen, action=0, reward=0.0, **GOES_ON)
            writer.flush()
            landing = client.landing("main", BATCH)
            for _ in range(20):
                batch = client.sample("main", BATCH, out=landing)
                client.update_priorities("main", batch.keys, np.ones(BATCH))
            return client, writer

        kept = [pair()]
        before = resident()
        kept += [pair() for _ in range(MEMORY_CLIENTS)]
        told = (resident() - before) / MEMORY_CLIENTS
        for client, writer in kept:
            writer.close()
            client.close()
        return {"bytes": told}


def measured(tree: Path, part: str, args: argparse.Namespace) -> dict[str, float]:
    """A part's figures in a process that imports the package from `tree`."""
    command = [sys.executable, __file__, "--part", part, "--clients", str(args.clients)]
    run = subprocess.run(
        [*command, "--seconds", str(args.seconds)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if run.returncode:
        raise SystemExit(f"{part} of {tree} failed:\n{run.stderr}")
    return json.loads(run.stdout)


def shown(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def beyond(part: str, figures: dict[str, float]) -> str | None:
    """Why these figures of this tree are not good enough."""
    if part == "paths" and max(figures.values()) > REPEATS_MOST:
        return f"more than {REPEATS_MOST:.0%} of the requests are repeated"
    if part == "throughput" and figures["beyond_share"] > REPEATS_MOST:
        return f"more than {REPEATS_MOST:.0%} of small requests are dropped as beyond a share"
    if part == "incast" and figures["dropped"]:
        return "the kernel dropped datagrams"
    if part == "memory" and figures["bytes"] > MEMORY_MOST:
        return f"a client takes more than {MEMORY_MOST} bytes"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="another tree, its engine built")
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3, help="of throughput, the trees in turns")
    parser.add_argument("--parts", default="throughput,paths,incast,memory")
    parser.add_argument("--part", help="measure this one here and print JSON")
    args = parser.parse_args()
    if args.part:
        call = {
            "throughput": lambda: part_throughput(args.clients, args.seconds),
            "paths": part_paths,
            "incast": lambda: part_incast(args.clients),
            "memory": part_memory,
        }
        print(json.dumps(call[args.part]()))
        return 0
    trees = {"now": Path(__file__).resolve().parents[2]}
    if args.before and not list(args.before.glob("replay_server/_engine*.so")):
        parser.error(
            f"--before {args.before}: no engine is built there; run "
            "`python setup.py build_ext --inplace` in it first"
        )
    if args.before:
        trees = {"before": args.before.resolve(), **trees}
    wrong, ratios = [], []
    for part in args.parts.split(","):
        for _ in range(args.rounds if part == "throughput" else 1):
            told = {name: measured(tree, part, args) for name, tree in trees.items()}
            for name, figures in told.items():
                print(f"{part:<11}{name:<7} {shown(figures)}", flush=True)
            if part == "throughput" and args.before:
                ratios.append(told["now"]["per_s"] / told["before"]["per_s"])
            wrong += [f"{part}: {why}" for why in [beyond(part, told["now"])] if why]
    if ratios:
        gain = statistics.median(ratios)
        print(f"throughput of now to before: {gain:.2f} (rounds {min(ratios):.2f} to "
              f"{max(ratios):.2f})")  # fmt: skip
        wrong += [f"throughput: less than {GAIN_LEAST:g} times that of before"] * (
            gain < GAIN_LEAST
        )
    print("\n".join(wrong) or "all within their bounds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
