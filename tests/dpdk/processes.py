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
def serving(
    socket: Path, more: str = "", **environment: str
) -> Iterator[tuple[subprocess.Popen, str]]:
    """A server in a process of its own, and the URL it told; `more` of the URL's options."""
    url = f"dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={socket}{more}"
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
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


NEWCOMER = """
import sys
from conformance import plain_rows
from replay_server import Client
with Client(sys.argv[1], connect_timeout=10.0) as client:
    client.extend("main", plain_rows(64))
    print("has a link", flush=True)
    sys.stdin.read()
"""


@contextmanager
def visited(address: str) -> Iterator[None]:
    """A client in a process of its own, which has the first link that was free."""
    command = [sys.executable, "-c", NEWCOMER, address]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "has a link\n"
        yield
        process.stdin.close()
        assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("links", [1, 2])
@pytest.mark.parametrize("named", ["", ",id=0"])
def test_a_client_whose_link_a_newcomer_took_goes_on_by_another(named, links, tmp_path):
    """Given a server that was started again, and a newcomer on the link of a client that sent
    nothing meanwhile. Expect that client to go on by the link that is left: at once; or, where
    there is none or id= named its own, as soon as the newcomer has left."""
    more = f",links={links}"
    with serving(tmp_path / "memif", more) as (process, address):
        client = Client(address + named, timeout=10.0)
        client.extend("main", plain_rows(16))
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    with serving(tmp_path / "memif", more) as (_, address):
        with visited(address):
            if links == 1 or named:
                with pytest.raises(ReplayError):
                    client.sample("main", 4, timeout=1.0)
            else:
                assert client.size("main") == 64
        assert len(client.sample("main", 4).keys) == 4
        client.close()


TOML = """
[server]
url = "dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={folder}/memif"
region = "{folder}/region"
sessions = 8
[[table]]
name = "main"
capacity = 4096
columns = [
    {{ name = "x", dtype = "float64", shape = [4] }},
    {{ name = "label", dtype = "int32" }},
    {{ name = "flag", dtype = "bool" }},
]
"""
HUGEPAGES = Path("/dev/hugepages")


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """`serve` as it is started by hand, with a place of its own for DPDK's folders; and the URL it
    told."""
    command = [sys.executable, "-m", "replay_server", "serve", str(folder / "server.toml")]
    place = os.environ | {"RUNTIME_DIRECTORY": str(folder / "run")}  # others start DPDK meanwhile
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=place, text=True)
    try:
        address = ""
        while not address:
            line = process.stdout.readline()
            assert line, "the server did not come up"
            address = line.split()[2] if line.startswith("serving at ") else ""
        yield process, address
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def left_behind(folder: Path) -> set[str]:
    """What lies where DPDK could leave something."""
    places = (HUGEPAGES.glob("*"), (folder / "run").rglob("*"))
    return {str(path) for place in places for path in place}


def test_kill_9_of_serve_needs_no_clean_up(tmp_path):
    """Given `serve` killed at work and started again. Expect its client to go on by itself, all it
    was told of to be there, and nothing left that a hand would have to remove."""
    (tmp_path / "server.toml").write_text(TOML.format(folder=tmp_path))
    (tmp_path / "run").mkdir()
    before, known, client = left_behind(tmp_path), set(), None
    for round_ in range(4):
        with served(tmp_path) as (process, address):
            client = client or Client(address, timeout=30.0)
            rows = plain_rows(256, seed=round_)
            known |= {row.tobytes() for row in rows["x"]}
            client.extend("main", rows)
            assert client.size("main") == len(known) == 256 * (round_ + 1)
            batch = client.sample("main", 256)
            assert all(np.asarray(row).tobytes() in known for row in batch.data["x"])
            if round_ < 3:
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=30)
    client.close(timeout=0.1)
    shared = {str(tmp_path / "run" / "dpdk")}  # by all programs on DPDK
    assert left_behind(tmp_path) == before | shared
    assert sorted(path.name for path in tmp_path.iterdir()) == ["region", "run", "server.toml"]


def test_dpdk_starts_with_the_arguments_it_takes_and_leaves_no_folder(tmp_path):
    """Given eal= of two arguments, and a place for DPDK's folders that was empty. Expect a server
    that answers, and of those folders the one that all programs on DPDK share."""
    place = tmp_path / "run"
    place.mkdir()
    more = ",eal=--iova-mode=va;-n2"
    with serving(tmp_path / "memif", more, RUNTIME_DIRECTORY=str(place)) as (process, address):
        played(address)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    assert [path.relative_to(place).as_posix() for path in place.rglob("*")] == ["dpdk"]


WAITS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # in threads of NumPy's too
from conformance import plain
from replay_server import Server
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
with Server((plain(),), sys.argv[1], insecure=True):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)
    print("waited for", signal.sigwait([signal.SIGTERM]))
"""


@pytest.mark.parametrize("vdev", ["net_ring", "net_memif,role=server,socket={}/memif"])
def test_a_signal_goes_to_the_thread_that_waits_for_it(vdev, tmp_path):
    """Given a program with a server, which blocks SIGTERM and waits for it. Expect it to get it,
    and no thread of DPDK's."""
    url = f"dpdk://10.0.0.1:7400?vdev={vdev.format(tmp_path)}"
    command = [sys.executable, "-c", WAITS, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.stdout == f"waited for {int(signal.SIGTERM)}\n", done.returncode


RINGS = """
from conformance import plain, plain_rows
from replay_server import Client, ClosedError, Server
def serve():
    return Server((plain(),), "dpdk://10.0.0.1:7400?vdev=net_ring", sessions=8)
with serve() as server:
    client = Client(server.address)
    client.extend("main", plain_rows(4))
with serve() as server:
    try:
        client.size("main")
    except ClosedError as error:
        print(error)
    with Client(server.address) as other:
        other.extend("main", plain_rows(8))
        print(other.size("main"))
client.close()
"""


def test_a_client_over_rings_is_told_that_its_server_has_closed():
    """Given a server over net_ring that was closed, and its successor in the same process. Expect
    a call of the old client to say so at once, and a new client to be served."""
    command = [sys.executable, "-c", RINGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    told, size = done.stdout.splitlines()
    assert told.endswith("the server stopped; open a client of the one that is started next")
    assert size == "8" and done.returncode == 0, done.stderr
