"""dpdk:// between two Python processes over memif: a server, a client, kill -9, a successor.

Run by `make test-dpdk`; its name keeps it out of `make test`, where DPDK is not installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conformance import plain_rows

from replay_server import Client, ReplayError

SERVE = """
import sys
from conformance import plain
from replay_server import Server
with Server((plain(),), sys.argv[1], sessions=8, seed=7) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


@contextmanager
def serving(socket: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """A server in a process of its own, and the URL it told."""
    url = f"dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={socket}"
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().strip()
        assert address, "the server did not come up"
        yield process, address
    finally:
        process.stdin.close()
        process.wait(timeout=30)


def played(address: str) -> None:
    """Pushes rows and finds them again."""
    with Client(address, connect_timeout=10.0) as client:
        rows = plain_rows(256)
        client.extend("main", rows)
        batch = client.sample("main", 64)
        known = {row.tobytes() for row in rows["x"]}
        assert all(np.asarray(row).tobytes() in known for row in batch.data["x"])


def test_rows_pass_between_two_processes_and_a_killed_server_is_followed(tmp_path):
    """Given a server that is killed. Expect rows before, an error then, rows from its successor."""
    cores = os.sched_getaffinity(0)
    socket = tmp_path / "memif"
    with serving(socket) as (process, address):
        played(address)
        with Client(address) as client:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
            with pytest.raises(ReplayError):
                client.sample("main", 4, timeout=0.5)
    assert os.sched_getaffinity(0) == cores
    with serving(socket) as (_, address):
        played(address)
