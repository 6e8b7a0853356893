"""Failover of a dpdk:// server: killed and started with another MAC; links that flap or come late;
an AF_XDP device that could not be ended.

Nothing that was acknowledged may be lost, and a client goes on by itself. How long that takes is
told, not judged: a second is what is promised. An address that another host takes while
it is served stands in neighbours.py. Run by `make test-dpdk`, as root.

    make dpdk-failover        # KILLS=20 FLAPS=100; 2 and 5 in the suite
"""

from __future__ import annotations

import ctypes
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from beside import AF_XDP, SO_DOMAIN, own_sockets
from conformance import plain, plain_rows
from interfaces import NO_NAMESPACES, told, xdp_off, xdp_there
from losses import attach
from namespaces import INTERFACE, SERVER, inside, the_pair
from neighbours import EVERYONE, THIEF, Listener, colons, set_mac, url_of
from until import until
from veth import (
    KINDS,
    URL,
    WAIT_S,
    all_there,
    arp,
    facts,
    ip,
    mac_of,
    raw,
    server_mac,
    serving,
)

from replay_server import Client, ReplayError, Server

KILLS, FLAPS = int(os.environ.get("KILLS", "2")), int(os.environ.get("FLAPS", "5"))
PUSHES = 20  # before each kill
HELD = 6000  # pushes of ten rows, in a table of 65536
TOML = """
[server]
url = "{url}"
region = "{folder}/region"
[[table]]
name = "main"
capacity = 262144
columns = [
    {{ name = "x", dtype = "float64", shape = [4] }},
    {{ name = "label", dtype = "int32" }},
    {{ name = "flag", dtype = "bool" }},
]
"""


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    the_pair()
    return request.param


@contextmanager
def served(folder: Path) -> Iterator[subprocess.Popen]:
    """`serve`, with a region, from its line "serving at" on."""
    command = [sys.executable, "-m", "replay_server", "serve", str(folder / "server.toml")]
    command = the_pair().server.inside([*command, "--insecure"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            while not server.stdout.readline().startswith("serving at"):
                assert server.poll() is None, "the server did not start"
            yield server
        finally:
            server.kill()


PUSHER = """
import sys
import threading
import time
import numpy as np
from conformance import plain_rows
from replay_server import Client
client, pushed, over = Client(sys.argv[1], timeout=60.0), [], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.wait(0.005):
    rows = plain_rows(10, len(pushed))
    pushed.append((client.extend("main", rows), rows["x"]))
    print(time.monotonic(), flush=True)
for keys, x in pushed:
    held = client.get("main", keys)
    assert held.valid.all() and np.array_equal(held["x"][:, 0], x)
print("all", len(pushed), client.counters()["retransmissions"], flush=True)
client.close()
"""


def next_push(pusher: subprocess.Popen, after: float) -> float:
    """When the first push that was acknowledged later was."""
    while (at := float(pusher.stdout.readline())) <= after:
        pass
    return at


@pytest.mark.parametrize("client", ["the kernel's", "past the kernel"])
def test_a_killed_server_comes_back_with_another_mac(kind, client, tmp_path):
    """Given a server on a region, killed under traffic and started with another MAC, again and
    again. Expect the client to go on by itself, without an error, and every row that was
    acknowledged before and after in its place."""
    (tmp_path / "server.toml").write_text(TOML.format(url=url_of(kind), folder=tmp_path))
    url = URL if client == "the kernel's" else url_of(kind, more=",ip=198.18.0.9")
    command = the_pair().client.inside([sys.executable, "-c", PUSHER, url])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    before, gaps = server_mac(), []
    try:
        with ExitStack() as open_:
            server = open_.enter_context(served(tmp_path))
            pusher = open_.enter_context(subprocess.Popen(command, **pipes))
            open_.callback(pusher.kill)
            for number in range(KILLS):
                for _ in range(PUSHES):
                    next_push(pusher, 0.0)
                server.kill()
                server.wait()
                set_mac(bytes.fromhex("0200c0ff") + (number + 1).to_bytes(2, "big"))
                server = open_.enter_context(served(tmp_path))
                begin = time.monotonic()
                gaps.append(next_push(pusher, begin) - begin)
            pusher.stdin.close()
            *_, last = pusher.stdout
            assert pusher.wait(WAIT_S) == 0 and last.startswith("all ")
    finally:
        set_mac(before)
    _, count, retries = last.split()
    middle = sorted(gaps)[len(gaps) // 2]
    told = f"{max(gaps):.2f} s after serving at most, {middle:.2f} s in the middle"
    print(
        f"\n{kind}, {client}: killed {KILLS} times, then another MAC: {count} pushes, all there"
        f"\n  the next one acknowledged {told}; {retries} requests sent again"
    )


def test_links_that_flap(kind):
    """Given a link that goes at either end of the cable, at once back or when the client has missed
    an answer, under traffic. Expect each push acknowledged and each row there, once."""
    rng, pushed, over = random.Random(61), [], threading.Event()
    with serving(kind) as server, Client(URL, timeout=60.0) as client:

        def push() -> None:
            while not over.is_set():
                rows = plain_rows(10, len(pushed))
                pushed.append((client.extend("main", rows), rows))

        def missed(sent: int) -> bool:
            return client.counters()["retransmissions"] > sent

        def change(end: str, to: str) -> None:
            with inside(getattr(the_pair(), end)):
                ip("link", "set", INTERFACE, to)

        busy = threading.Thread(target=push)
        busy.start()
        try:
            for _ in range(FLAPS):
                end, sent = rng.choice(("server", "client")), client.counters()["retransmissions"]
                change(end, "down")
                if rng.random() < 0.5:
                    until(partial(missed, sent), "it tries again")
                change(end, "up")
                at = len(pushed)
                until(lambda: len(pushed) > at + 1, "it goes on")  # noqa: B023 (at once)
        finally:
            over.set()
            busy.join(60)
        assert not busy.is_alive()
        newest = pushed[-HELD:]  # older rows made room
        assert all(all_there(client, *each) for each in newest)
        stored = server.counters()["steps_committed"]
        assert stored == 10 * len(pushed)
        print(
            f"\n{kind}: {FLAPS} flaps beside {len(pushed)} pushes: {stored} rows stored once; "
            f"{client.counters()['retransmissions']} requests sent again"
        )


@contextmanager
def no_link() -> Iterator[None]:
    """The client's end of the cable is down; up again at the end, if not before."""
    ip("link", "set", INTERFACE, "down")
    try:
        yield
    finally:
        ip("link", "set", INTERFACE, "up")


def test_an_address_is_asked_for_once_the_link_is_there(kind):
    """Given a server that opens where no link is, at the address of the host at the other end, and
    a link that comes then. Expect a refusal with its MAC: it was asked once it could hear."""
    theirs, told = colons(mac_of(INTERFACE)), []

    def open_server() -> None:
        with inside(the_pair().server):
            try:
                Server((plain(),), url_of(kind, "198.18.0.2"), insecure=True).close()
            except ReplayError as error:
                told.append(str(error))

    with no_link():
        opening = threading.Thread(target=open_server)
        opening.start()
        until(lambda: own_sockets(AF_XDP) + own_sockets(socket.AF_PACKET) > 0, "it opens")
        opening.join(1.0)  # who does not wait for the link is through by then
        ip("link", "set", INTERFACE, "up")
        opening.join(WAIT_S)
    assert len(told) == 1 and f"a host at {theirs} has 198.18.0.2" in told[0]


def test_an_address_taken_without_a_link_is_announced_when_that_comes(kind):
    """Given a server that has waited for a link in vain, and serves. Expect its address announced
    when the link comes, and again when it comes again; a host that says it has it, counted."""
    with no_link(), serving(kind) as server:
        for _ in range(2):
            ip("link", "set", INTERFACE, "up")
            with Listener() as heard:  # one that was down before it hears nothing
                assert next(heard.announcements())[6:12] == server_mac()
            assert facts(server)["has_link"] == 1
            with raw() as send:
                before = facts(server)["conflict"]
                send(arp(1, THIEF, SERVER, EVERYONE))
                until(lambda: facts(server)["conflict"] > before, "counted")  # noqa: B023 (at once)
            ip("link", "set", INTERFACE, "down")
            until(lambda: facts(server)["has_link"] == 0, "seen")


# -- an AF_XDP device that could not be ended ----------------------------------------------------

STEPS = """
import sys
from pathlib import Path
from beside import AF_XDP, SO_DOMAIN, own_sockets
from conformance import plain
from namespaces import leaked_mbufs
from replay_server import Server
server = Server((plain(65536),), sys.argv[1], insecure=True)
print("opened", flush=True)
sys.stdin.readline()
server.close()
mapped = Path("/proc/self/maps").read_text().count("socket:[")
print(mapped, "mapped,", own_sockets(AF_XDP), "open,", leaked_mbufs() > 0, flush=True)
sys.stdin.readline()
try:
    Server((plain(65536),), sys.argv[1], insecure=True).close()
    print("again", flush=True)
except Exception as error:
    print(error, flush=True)
"""
PIDFD_OPEN, PIDFD_GETFD = 434, 438  # the same numbers on every kind of machine
libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def replaced() -> Iterator[subprocess.Popen]:
    """A server over AF_XDP that may make no namespace, and whose program somebody replaced."""
    command = [sys.executable, "-c", NO_NAMESPACES + STEPS, url_of("af_xdp")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    the_pair()
    with subprocess.Popen(the_pair().server.inside(command), **pipes) as server:
        try:
            assert server.stdout.readline() == "opened\n"
            xdp_off()
            attach(the_pair().server, INTERFACE, "firewall")
            yield server
        finally:
            server.kill()
            xdp_off()


def step(server: subprocess.Popen) -> str:
    print(file=server.stdin, flush=True)
    return server.stdout.readline().strip()


def test_a_queue_is_free_when_its_device_could_not_be_ended():
    """Given a server that may make no namespace, whose program is replaced, and which closes.
    Expect nothing of its sockets left and the other program there; when that is gone, another
    process and this one served on the queue."""
    with replaced() as server:
        assert step(server) == "0 mapped, 0 open, False"
        assert "firewall" in xdp_there()
        xdp_off()
        assert told("server", url_of("af_xdp")) == "opened\n"
        assert step(server) == "again"


def take_socket(process: int) -> int:
    """A file of ours for the AF_XDP socket of that process."""
    whole = libc.syscall(PIDFD_OPEN, process, 0)
    for entry in Path(f"/proc/{process}/fd").iterdir():
        if os.readlink(entry).startswith("socket:"):
            file = libc.syscall(PIDFD_GETFD, whole, int(entry.name), 0)
            with socket.socket(AF_XDP, socket.SOCK_RAW, 0, os.dup(file)) as each:
                if each.getsockopt(socket.SOL_SOCKET, SO_DOMAIN) == AF_XDP:
                    os.close(whole)
                    return file
            os.close(file)
    raise AssertionError("it has none")


def test_frames_are_not_freed_under_a_socket_that_lives():
    """Given such a server whose socket another process holds, to which the kernel may still write.
    Expect its frames counted as leaked, not freed, and no server on the queue till it is let go."""
    with replaced() as server:
        held = take_socket(server.pid)
        try:
            assert step(server) == "0 mapped, 0 open, True"
            xdp_off()
            says = "a socket of another process, or of this one, has queue 0 of"
            assert says in told("server", url_of("af_xdp"))
        finally:
            os.close(held)
        assert step(server) == "again"
