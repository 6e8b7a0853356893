"""T2b: sampling placed at the server, beside two samplers placed at the client.

    python -m benchmarks.paper.t2b --seconds 60 --json t2b.jsonl

The learner's time from asking for a batch to having its items and weights, with and without the
priority update that follows, one request at a time. Server and learner are processes of their own,
a core each where there are two; an inserter in the learner's process stores `--inserts` items
before each batch, outside the time that is measured, so that a client's tree has something to catch
up with. The three samplers are those of samplers.py: same server, same transport, same engine.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.paper.samplers import SAMPLERS, insert, tables
from replay_server import Client, Server

CAPACITY, FILL = 1 << 15, 1 << 14
SIZES, BATCHES = (64, 1024, 8192), (32, 512)
WARM, CALLS = 3, 20
PAPER = (0.219, 0.291)
READY = "serving "


def serve(url: str, size: int, core: int | None) -> int:
    """The server's process: prints its address, serves until its input ends."""
    with Server(tables(size, CAPACITY), url, seed=1, core=core, batch_max=2048) as server:
        print(READY + server.address, flush=True)
        sys.stdin.read()
    return 0


class Serving:
    """A server of items of `size` bytes in a process of its own, and a client of it, filled."""

    def __init__(self, url: str, size: int, core: int | None) -> None:
        command = [sys.executable, "-m", "benchmarks.paper.t2b", "--serve", str(size), "--url", url]
        command += [] if core is None else ["--core", str(core)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        if not line.startswith(READY):
            raise SystemExit(f"t2b: the server of {size} B did not start")
        self.size, self.random = size, np.random.default_rng(size)
        self.client = Client(line[len(READY) :].strip(), batch_max=2048)
        for _ in range(FILL // 1024):
            self.insert(1024)
        self.samplers = {name: kind(self.client) for name, kind in SAMPLERS.items()}

    def insert(self, count: int) -> None:
        """So many items of random priorities."""
        items = self.random.integers(0, 256, (count, self.size), dtype=np.uint8)
        insert(self.client, items, self.random.random(count))

    def close(self) -> None:
        """Ends samplers, client and process."""
        for sampler in self.samplers.values():
            sampler.close()
        self.client.close()
        self.process.stdin.close()
        self.process.wait(10)


def measured(serving: Serving, name: str, batch: int, update: bool, inserts: int) -> np.ndarray:
    """Seconds of each of CALLS calls."""
    sampler, times = serving.samplers[name], np.zeros(CALLS)
    for call in range(-WARM, CALLS):
        if inserts:
            serving.insert(inserts)
        begin = time.perf_counter()
        items, weights = sampler.sample(batch, 0.4)
        if update:
            sampler.update_priorities(items, weights.astype(np.float64) + 1e-3)
        if call >= 0:
            times[call] = time.perf_counter() - begin
    return times


def report(taken: harness.Taken, cells: list[Any], args: argparse.Namespace) -> list[dict]:
    """Prints the table; the rows for JSON."""
    rows, shown = [], []
    for cell in cells:
        size, batch, update = cell
        base = {name: taken.medians[cell, name] for name in SAMPLERS}
        row: dict[str, Any] = {"claim": "T2b", "bytes": size, "batch": batch, "update": update}
        line = [f"{size}", f"{batch}", "yes" if update else "no"]
        for name in SAMPLERS:
            found = harness.figure(base[name], args.seed)
            row[f"{name}_us"] = found.value * 1e6
            row[f"{name}_p99_us"] = taken.quantile(cell, name, 0.99) * 1e6
            line.append(f"{found.value * 1e6:.0f}{found.mark}")
        for name in ("keys", "client"):
            share = harness.lower(base[name], base["server"], args.seed)
            row[f"lower_than_{name}"] = [share.low, share.value, share.high]
            line.append(f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})")
        rows.append(row)
        shown.append(line)
    head = ["bytes", "batch", "update", "server us", "keys us", "client us"]
    head += ["server below keys", "server below client"]
    print("\n".join(harness.grid(head, shown)))
    print(f"the paper's range: {PAPER[0]:.1%} to {PAPER[1]:.1%} lower (40 GbE, its own sizes)")
    return rows


def main(argv: list[str] | None = None) -> int:
    """The command; 0 when all was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.t2b", description=__doc__)
    parser.add_argument("--url", default="udp://127.0.0.1:0", help="what the server listens on")
    parser.add_argument("--rounds", type=int, default=5, help="5 at least for an interval")
    parser.add_argument("--inserts", type=int, default=64, help="items stored before each batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="JSON lines of all figures")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.serve is not None:
        return serve(args.url, args.serve, args.core)
    cores = sorted(os.sched_getaffinity(0))
    apart = len(cores) > 1
    if apart:
        os.sched_setaffinity(0, {cores[0]})
    head = harness.header(args.seed, cores[:2], url=args.url, inserts=args.inserts)
    print(head, flush=True)
    servings = {size: Serving(args.url, size, cores[-1] if apart else None) for size in SIZES}
    cells = list(itertools.product(SIZES, BATCHES, (False, True)))
    try:
        taken = harness.rounds(
            cells,
            list(SAMPLERS),
            lambda cell, name: measured(servings[cell[0]], name, cell[1], cell[2], args.inserts),
            args.rounds,
            args.seed,
            lambda line: print(line, flush=True),
        )
    finally:
        for serving in servings.values():
            serving.close()
    rows = report(taken, cells, args)
    if args.json:
        harness.write_lines(args.json, [head, *rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())
