"""A process of a peer's, its server or a client: `python -m benchmarks.peers.worker MODULE`.

Orders come as JSON, a line each, on standard input; answers go out the same way. What a peer prints
goes to standard error. The order of work is the benchmark's; the clock is read here, right before
and behind a call.

    {"do": "serve", "setting": {...}}                      -> {"address": ...}
    {"do": "connect", "setting": {...}, "address": ...}    -> {}
    {"do": "fill", "count": N, "batch": B}                 -> {"items": N}
    {"do": "prepare", "kind": ..., "batch": B}             -> {}; what is not to be counted
    {"do": "measure", "kind": ..., "batch": B, "seconds": s, ...} -> {"times": [s a call], ...}
    {"do": "close"}                                        -> {}, and the process ends

An answer {"error": sentence} means that this order failed; the process goes on.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .learn import TASKS, Learner
from .peer import Columns, Peer, Sampled, Setting
from .pool import load, wrong

CALLS_MAX = 20_000
AHEAD = 4


class Client:
    """One client, and the items that it inserts in turn."""

    def __init__(self, peer: Peer, setting: Setting) -> None:
        self.peer, self.at = peer, 0
        self.pool, _ = load(setting.pool)
        self.count = len(self.pool["action"])
        self.random = np.random.default_rng(os.getpid())
        self.checked = self.wrong = 0
        self.streams: dict[int, Iterator[Sampled]] = {}
        self.keys: Any = None

    def next_items(self, batch: int) -> Columns:
        """The pool's next `batch` items, views [batch, *shape]."""
        if self.at + batch > self.count:
            self.at = 0
        piece = slice(self.at, self.at + batch)
        self.at += batch
        return {name: column[piece] for name, column in self.pool.items()}

    def check(self, sampled: Sampled) -> Sampled:
        """Holds all bytes of a batch against what was inserted; outside of what is measured."""
        self.checked += len(sampled.items["action"])
        self.wrong += wrong(sampled.items, self.pool)
        return sampled

    def stream(self, batch: int) -> Iterator[Sampled] | None:
        """Batches ahead; the peer's own iterator, kept over jobs of this size."""
        if batch not in self.streams:
            stream = self.peer.ahead(batch, AHEAD)
            if stream is None:
                return None
            self.streams[batch] = stream
        return self.streams[batch]

    def prepare(self, kind: str, batch: int) -> None:
        """Keys for updates are drawn before anything is counted."""
        if kind == "update":
            self.keys = self.check(self.peer.sample(batch)).keys

    # -- jobs: {"times": seconds a call, "items": of these calls, "all_items": with warm ones} -----

    def insert(self, batch: int, order: dict[str, Any]) -> dict[str, Any]:
        """Acknowledged inserts; with `pace` so many seconds apart."""
        return self.timed(order, batch, lambda: self.peer.insert(self.next_items(batch)))

    def sample(self, batch: int, order: dict[str, Any]) -> dict[str, Any]:
        """One batch after the other."""
        last: list[Sampled] = []

        def call() -> None:
            last[:] = [self.peer.sample(batch)]

        done = self.timed(order, batch, call)
        self.check(last[0])
        return done

    def ahead(self, batch: int, order: dict[str, Any]) -> dict[str, Any]:
        """Batches that were asked for before; {"none": ...} where the peer cannot."""
        stream = self.stream(batch)
        if stream is None:
            return {"none": "nothing is fetched ahead"}
        last: list[Sampled] = []

        def call() -> None:
            last[:] = [next(stream)]

        done = self.timed({**order, "warm": 2 * AHEAD}, batch, call)
        self.check(last[0])
        return done

    def update(self, batch: int, order: dict[str, Any]) -> dict[str, Any]:
        """Acknowledged updates of the keys that `prepare` drew; {"none": ...} without such."""
        if self.keys is None:
            return {"none": "there are no priorities"}
        priorities = self.random.random(batch) + 0.5
        return self.timed(order, batch, lambda: self.peer.update(self.keys, priorities))

    def learn(self, batch: int, order: dict[str, Any]) -> dict[str, Any]:
        """A learner's loop: a batch (ahead where there is that), a step of `step` seconds in which
        it sleeps, as one does whose GPU works; the priorities go back. Times are what it waits."""
        stream = self.stream(batch)
        priorities = self.random.random(batch) + 0.5
        step, last = float(order.get("step", 0.0)), None
        times: list[float] = []
        number, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < order["seconds"] or number < 2 * AHEAD:
            before = time.perf_counter()
            last = self.peer.sample(batch) if stream is None else next(stream)
            got = time.perf_counter()
            if step:
                time.sleep(step)
            stepped = time.perf_counter()
            if last.keys is not None:
                self.peer.update(last.keys, priorities)
            times.append(got - before + time.perf_counter() - stepped)
            number += 1
            if number == AHEAD:  # what was fetched before the loop began
                begin, times = time.perf_counter(), []
        passed = time.perf_counter() - begin
        self.check(last)
        counts = {"items": len(times) * batch, "all_items": number * batch}
        return {"times": times, "seconds": passed, **counts}

    def learn_task(self, batch: int, order: dict[str, Any]) -> dict[str, Any]:
        """A task learned through the buffer, which has to be empty (learn.py)."""
        return Learner(self.peer, TASKS[order["kind"]], order["seed"]).run(order["seconds"])

    def timed(self, order: dict[str, Any], batch: int, call: Callable[[], None]) -> dict[str, Any]:
        """Calls until `seconds` are over, behind `warm` ones whose time does not count."""
        warm = int(order.get("warm", 2))
        for _ in range(warm):
            call()
        pace, times = float(order.get("pace", 0.0)), []
        begin = before = time.perf_counter()
        while (before - begin < order["seconds"] and len(times) < CALLS_MAX) or not times:
            call()
            after = time.perf_counter()
            times.append(after - before)
            if pace:
                time.sleep(max(0.0, pace - times[-1]))
                after = time.perf_counter()
            before = after
        counts = {"items": len(times) * batch, "all_items": (warm + len(times)) * batch}
        return {"times": times, "seconds": before - begin, **counts}


class Worker:
    """What orders come to."""

    def __init__(self, module: str) -> None:
        self.module = importlib.import_module(f"benchmarks.peers.{module}")
        self.client: Client | None = None
        self.close: list[Callable[[], Any]] = []

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """One order; its answer."""
        what = order["do"]
        if what == "serve":
            serving = self.module.serve(Setting(**order["setting"]))
            self.close.append(serving.close)
            return {"address": serving.address}
        if what == "connect":
            setting = Setting(**order["setting"])
            self.client = Client(self.module.connect(setting, order["address"]), setting)
            self.close.append(self.client.peer.close)
            return {}
        if what == "close":
            while self.close:
                self.close.pop()()
            return {}
        assert self.client is not None
        if what == "fill":
            for _ in range(order["count"] // order["batch"]):
                self.client.peer.insert(self.client.next_items(order["batch"]))
            return {"items": order["count"] // order["batch"] * order["batch"]}
        if what == "prepare":
            self.client.prepare(order["kind"], order["batch"])
            return {}
        job = "learn_task" if order["kind"] in TASKS else order["kind"]
        done = getattr(self.client, job)(order["batch"], order)
        counts = {"checked": self.client.checked, "wrong": self.client.wrong}
        self.client.checked = self.client.wrong = 0
        return {**done, **counts}


def main() -> int:
    """Obeys until the input ends or a `close`."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker: Worker | None = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            worker = worker or Worker(sys.argv[1])
            answer = worker.obey(order)
        except Exception as error:
            traceback.print_exc()
            said = str(error).strip().splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {said[0]}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()
        if order["do"] == "close":
            break
    out.flush()
    os._exit(0)  # threads of a peer's are not waited for: what had to be closed is


if __name__ == "__main__":
    sys.exit(main())
