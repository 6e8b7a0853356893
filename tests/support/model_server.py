"""Servers of the model test: processes that may be killed at any moment, started in milliseconds.

One process imports everything and then forks a server for each line it reads, before it has any
thread; so a killed server is back as soon as its region is taken over.

    python tests/support/model_server.py
    < {"region": "...", "port": 0}      > {"pid": 1, "address": "udp://127.0.0.1:7400"}
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from replay_server import Column, MinSize, NStep, Prioritized, Server, Spec, Table

ROOT = Path(__file__).resolve().parents[2]
CAPACITY, MIN_SIZE, N_STEP = 256, 4, 2
WRITERS, WINDOW, STREAMS = 4, 4, 2

ROW = Spec((Column("x", np.int64),))
STEP = Spec(
    (
        Column("observation", np.float64),
        Column("action", np.int64),
        Column("reward", np.float64),
        Column("terminated", np.bool_),
    )
)


def tables() -> tuple[Table, Table]:
    """Plain rows whose priority is their mass, and episodes."""
    shape = {"capacity": CAPACITY, "writers": WRITERS, "window": WINDOW, "streams": STREAMS}
    return (
        Table("rows", ROW, sampler=Prioritized(1.0), limiter=MinSize(MIN_SIZE), **shape),
        Table("walk", STEP, plan=NStep(N_STEP), **shape),
    )


def serve(region: str | None, url: str) -> Server:
    return Server(tables(), url, seed=7, sessions=12, weights_max=1 << 12, region=region)


def child(order: dict, out: int) -> None:
    """A server until it is killed."""
    server = serve(order["region"], f"udp://127.0.0.1:{order['port']}")
    os.write(out, json.dumps({"pid": os.getpid(), "address": server.address}).encode() + b"\n")
    while True:
        signal.pause()


class Nursery:
    """The process that forks servers, as the test sees it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, region: str, port: int = 0) -> tuple[int, str]:
        """(pid, address) of a new server, which answers from now on."""
        self.process.stdin.write(json.dumps({"region": region, "port": port}) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        return told["pid"], told["address"]

    def kill(self, pid: int) -> None:
        """SIGKILL; returns when the process is gone and its port free."""
        os.kill(pid, signal.SIGKILL)
        self.process.stdin.write(json.dumps({"wait": pid}) + "\n")
        self.process.stdin.flush()
        assert json.loads(self.process.stdout.readline()) == {"gone": pid}

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            os.waitpid(order["wait"], 0)
            print(json.dumps({"gone": order["wait"]}), flush=True)
        elif os.fork() == 0:
            child(order, 1)


if __name__ == "__main__":
    main()
