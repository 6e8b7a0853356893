"""A process beside its own devices: files of its own, other threads, children.

Run by `make test-dpdk`, as root, over a pair of network namespaces.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from conformance import plain
from namespaces import INTERFACE, SERVER, inside, leaked_mbufs, on, the_pair
from until import until
from veth import KINDS, PORT, WAIT_S, ip, serving

from replay_server import Client, ReplayError, Server

SOL_PACKET, PACKET_RX_RING, PACKET_VERSION, TPACKET_V2 = 263, 5, 10, 1
ETH_P_ALL, AF_XDP, SO_DOMAIN = 3, 44, 39


@pytest.fixture(autouse=True)
def at_the_client() -> None:
    """This thread is in the client's namespace."""
    the_pair()


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def is_open(opened: socket.socket) -> bool:
    try:
        return os.fstat(opened.fileno()) is not None
    except OSError:
        return False


def let_go(sockets: list[socket.socket]) -> None:
    for each in sockets:
        if is_open(each):
            each.close()
        else:  # its number may be another file's by now
            each.detach()


def raw_socket(interface: str = "", version: int | None = None) -> socket.socket:
    """As a program that looks at frames opens one."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    if version is not None:
        opened.setsockopt(SOL_PACKET, PACKET_VERSION, version)
    if interface:
        opened.bind((interface, 0))
    return opened


def own_sockets(domain: int) -> int:
    """How many this process has."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed since
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(domain, socket.SOCK_RAW, 0, os.dup(int(name))) as each:
                    count += each.getsockopt(socket.SOL_SOCKET, SO_DOMAIN) == domain
    return count


def test_sockets_this_process_had_stay_its_own(kind):
    """Given more raw sockets than a driver would ever open, some on the server's interface. Expect
    all of them open when a server there has come and gone, and none of its own left."""
    with inside(the_pair().server):
        had = [raw_socket(INTERFACE if number % 2 else "") for number in range(70)]
    try:
        with serving(kind):
            pass
        assert [is_open(each) for each in had].count(False) == 0
        assert own_sockets(socket.AF_PACKET) == len(had)
        assert own_sockets(AF_XDP) == 0, "of AF_XDP"
    finally:
        let_go(had)


def test_sockets_that_other_threads_open_meanwhile_are_left_alone(kind):
    """Given a thread that opens raw sockets all the while a server starts: on no interface, on the
    server's, with rings of the same form. Expect each of them open when the server is gone."""
    opened: list[socket.socket] = []
    over = threading.Event()

    def keep_opening() -> None:
        with inside(the_pair().server):
            while not over.wait(0.002):
                opened.append(raw_socket())
                opened.append(raw_socket(INTERFACE))
                opened.append(raw_socket(INTERFACE, TPACKET_V2))
                opened.append(raw_socket("lo", TPACKET_V2))

    other = threading.Thread(target=keep_opening)
    other.start()
    try:
        until(lambda: len(opened) > 0, "they are opened")
        with serving(kind):
            over.set()
            other.join(WAIT_S)
        assert [is_open(each) for each in opened].count(False) == 0, f"of {len(opened)}"
    finally:
        over.set()
        other.join(WAIT_S)
        let_go(opened)


def test_a_server_without_files_to_tell_its_sockets_is_refused(kind):
    """Given a process that has no file left. Expect a refusal, and a server once there are some."""
    before, files = leaked_mbufs(), []
    with serving(kind):  # DPDK runs, and what else opens files once
        pass
    url = f"dpdk://198.18.0.7:{PORT}?{on(kind)}"
    try:
        with inside(the_pair().server):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            some = len(os.listdir("/proc/self/fd")) + 8
            resource.setrlimit(resource.RLIMIT_NOFILE, (some, hard))
            try:
                with pytest.raises(OSError):
                    while True:
                        files.append(os.open("/dev/null", os.O_RDONLY))
                with pytest.raises(ReplayError):
                    Server((plain(),), url, insecure=True)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    finally:
        for each in files:
            os.close(each)
    with serving(kind):
        pass
    assert leaked_mbufs() == before


def test_a_server_that_awaits_its_link_holds_up_nobody_else():
    """Given a server that opens on an interface without a carrier, which it awaits for 4 s. Expect
    another server and its client to come and go in this process meanwhile, and one on the same
    interface to wait for it and to be refused."""
    with serving("af_packet"):  # DPDK runs
        pass
    url = f"dpdk://{SERVER}:{PORT}?{on('af_packet')}"
    ring = f"dpdk://10.0.0.1:{PORT}?vdev=net_ring"
    is_open, over = threading.Event(), threading.Event()

    def open_there() -> None:
        with inside(the_pair().server), Server((plain(),), url, insecure=True):
            is_open.set()
            over.wait(WAIT_S)

    other = threading.Thread(target=open_there)
    ip("link", "set", INTERFACE, "down")
    try:
        other.start()
        until(lambda: own_sockets(socket.AF_PACKET) > 0, "it has its device")
        with Server((plain(),), ring) as beside, Client(beside.address, timeout=WAIT_S) as client:
            assert client.size("main") == 0
        assert not is_open.is_set()
        with (
            inside(the_pair().server),
            pytest.raises(ReplayError, match="open in this process already"),
        ):
            Server((plain(),), url.replace(str(PORT), "7401"), insecure=True)
    finally:
        over.set()
        ip("link", "set", INTERFACE, "up")
        other.join(WAIT_S)


def raw_sockets_there() -> int:
    """On the server's interface, of all processes."""
    with inside(the_pair().server):
        number = socket.if_nametoindex(INTERFACE)
        lines = Path("/proc/thread-self/net/packet").read_text().splitlines()[1:]
    return sum(int(line.split()[4]) == number for line in lines)


def test_a_child_forked_while_a_server_opens_has_nothing_of_its_device(kind):
    """Given forks at several moments of a server's opening, and a child that outlives it. Expect no
    socket left on its interface when it is gone, and the next server to open there."""
    with serving(kind):  # DPDK runs
        pass
    url = f"dpdk://{SERVER}:{PORT}?{on(kind)},probe=off"
    for delay in range(0, 30, 2):
        opened: list[Server] = []

        def open_one(to: list[Server] = opened) -> None:
            with inside(the_pair().server):
                to.append(Server((plain(),), url, insecure=True))

        other = threading.Thread(target=open_one)
        other.start()
        time.sleep(delay / 1000)
        child = os.fork()
        if child == 0:
            time.sleep(WAIT_S)
            os._exit(0)
        try:
            other.join(WAIT_S)
            opened[0].close()
            assert raw_sockets_there() == 0, f"forked after {delay} ms"
            open_one()
            opened[1].close()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
