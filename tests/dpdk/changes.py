"""An interface that changes under a dpdk:// server: it is too full, it goes and is back at once, it
gets another MAC address, its mtu is lowered.

What cannot be served is counted or said. Conditions are awaited, never times. Run by
`make test-dpdk`, as root.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from conformance import plain, plain_rows
from namespaces import INTERFACE, SERVER, inside, on, the_pair
from neighbours import EVERYONE, OWN, THIEF, Listener, colons
from until import until
from veth import (
    KINDS,
    PORT,
    PUSHER,
    URL,
    WAIT_S,
    all_there,
    arp,
    datagram,
    ip,
    mac_of,
    raw,
    server_mac,
)

from replay_server import Client, Server
from replay_server.bench.namespaces import Pair

FRAMES = 6000  # more than the rings of any of these devices hold

FACTS = """
import json, sys
from conformance import plain
from replay_server import Server
with Server((plain(),), sys.argv[1], insecure=True) as server:
    print("opened", flush=True)
    for _ in sys.stdin:
        facts = {fact.name: fact.value for fact in server.stats().facts}
        print(json.dumps(facts | {"lost": server.lost, "remark": server.remark}), flush=True)
"""


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    the_pair()
    return request.param


class Served:
    """A server in a process of its own, at the server's end of a pair."""

    def __init__(self, url: str, pair: Pair) -> None:
        command = pair.server.inside([sys.executable, "-c", FACTS, url])
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        assert self.process.stdout.readline() == "opened\n"

    def facts(self) -> dict:
        """What it counts, and says."""
        print(file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def until(self, name: str, least: int = 1) -> dict:
        """Its facts, once that one is there."""

        def there() -> dict | None:
            facts = self.facts()
            value = facts[name]
            return facts if (value if isinstance(value, int) else len(value)) >= least else None

        return until(there, f"{name} is {least} at least", said=lambda: str(self.facts()))


@contextmanager
def served(kind: str, more: str = "", pair: Pair | None = None) -> Iterator[Served]:
    url = f"dpdk://{SERVER}:{PORT}?{on(kind)}{more}"
    server = Served(url, pair or the_pair())
    try:
        yield server
    finally:
        server.process.communicate(timeout=WAIT_S)
    assert server.process.returncode == 0


# -- a ring that is full --------------------------------------------------------------------------


def test_frames_that_find_the_ring_full_are_counted(kind):
    """Given a server that does not look, and more frames than its rings hold; then it looks. Expect
    each frame received or counted as missed, however often that is asked."""
    with served(kind) as server, raw() as send:
        frame = bytes(datagram(mac_of(INTERFACE), server_mac(), 9))
        before = server.facts()
        server.process.send_signal(signal.SIGSTOP)
        for _ in range(FRAMES):
            send(frame)
        server.process.send_signal(signal.SIGCONT)
        after = server.facts()
        for _ in range(200):
            now = server.facts()
            came = {name: now[name] - before[name] for name in ("closed_port", "device_missed")}
            if sum(came.values()) >= FRAMES and now == after:
                break
            after = now
        print(kind, came)
        assert FRAMES <= sum(came.values()) <= FRAMES + 50 and came["device_missed"] > 0


# -- an interface that goes and is back ------------------------------------------------------------


def index_of(pair: Pair) -> str:
    return ip("-n", pair.server.namespace, "-o", "link", "show", INTERFACE).split(":")[0]


def move(pair: Pair) -> None:
    """To another namespace and back."""
    server, other = pair.server.namespace, f"{pair.server.namespace}-other"
    ip("netns", "add", other)
    try:
        ip("-n", server, "link", "set", INTERFACE, "netns", other)
        ip("-n", other, "link", "set", INTERFACE, "netns", server)
        ip("-n", server, "link", "set", INTERFACE, "up")
    finally:
        ip("netns", "del", other)


def make_again(pair: Pair) -> None:
    """Deleted, and another one of its name and number made."""
    server, client = pair.server.namespace, pair.client.namespace
    number = index_of(pair)
    ip("-n", server, "link", "del", INTERFACE)
    made = f"link add {INTERFACE} index {number} type veth peer name {INTERFACE} netns {client}"
    ip("-n", server, *made.split())
    ip("-n", server, "link", "set", INTERFACE, "up")


@pytest.mark.parametrize("how", [move, make_again])
def test_an_interface_that_was_gone_for_a_blink_is_gone(kind, how):
    """Given a server that does not look while its interface goes and comes back, with the same name
    and number. Expect it to say that it is gone: it hears nothing there any more."""
    with Pair() as pair, served(kind, pair=pair) as server:
        number = index_of(pair)
        server.process.send_signal(signal.SIGSTOP)
        how(pair)
        assert index_of(pair) == number
        server.process.send_signal(signal.SIGCONT)
        assert f"the interface {INTERFACE} is gone, and back" in server.until("lost")["lost"]


# -- another MAC address ---------------------------------------------------------------------------

OTHER_MAC = bytes.fromhex("021122334455")


@contextmanager
def another_mac(pair: Pair, mac: bytes) -> Iterator[None]:
    """The interface at the server's end has that one for a while."""
    with inside(pair.server):
        before = mac_of(INTERFACE)

    def become(mac: bytes) -> None:
        ip("-n", pair.server.namespace, "link", "set", INTERFACE, "address", colons(mac))

    become(mac)
    try:
        yield
    finally:
        become(before)


def test_another_mac_address_of_its_interface_is_taken_up(kind):
    """Given a server and its client, and an interface that gets another MAC address, and its first
    one again. Expect that announced, the client's rows stored, ARP answered with it, and both
    changes counted; the operator told once, and of a host that takes the address after that."""
    with served(kind) as server, Client(URL, timeout=WAIT_S) as client, Listener() as heard:
        client.extend("main", plain_rows(100, 1))
        assert server.facts()["remark"] == ""
        with another_mac(the_pair(), OTHER_MAC):
            while next(heard.announcements())[6:12] != OTHER_MAC:
                pass
            rows = plain_rows(100, 2)
            assert all_there(client, client.extend("main", rows), rows)
            ip("neigh", "flush", "dev", INTERFACE)
            with Client(URL, timeout=WAIT_S) as fresh:
                assert fresh.size("main") == 200
            told = server.until("mac_changes")
            assert told["mac_changes"] == 1
            assert f"another MAC address, {colons(OTHER_MAC)}" in told["remark"]
        rows = plain_rows(100, 3)
        assert all_there(client, client.extend("main", rows), rows)
        assert server.until("mac_changes", 2)["remark"] == told["remark"]
        with raw() as send:
            send(arp(1, THIEF, SERVER, EVERYONE))
        remark = "says it has this one's address"
        until(lambda: remark in server.facts()["remark"], "the thief is remarked on")


def test_a_client_past_the_kernel_takes_up_another_mac_address_of_its_interface(kind):
    """Given a client that pushes over a device of its own, whose interface gets another MAC
    address, and a server of the kernel's. Expect that announced, and more rows stored."""
    with Pair() as pair, ExitStack() as open_:
        with inside(pair.client):
            heard = open_.enter_context(Listener())
            server = Server((plain(65536),), f"udp://{pair.client.address}:{PORT}", insecure=True)
        open_.enter_context(server)
        url = f"dpdk://{pair.client.address}:{PORT}?{on(kind)},ip={OWN}"
        command = pair.server.inside([sys.executable, "-c", PUSHER, url, "on"])
        client = open_.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        open_.callback(client.kill)
        assert client.stdout.readline().strip() == "pushed"
        with another_mac(pair, OTHER_MAC):
            while next(heard.arps(1, OWN, OWN))[6:12] != OTHER_MAC:
                pass
            stored = server.counters()["steps_committed"]
            until(lambda: server.counters()["steps_committed"] > stored + 1000, "it goes on")


# -- a smaller mtu -----------------------------------------------------------------------------


def test_an_mtu_that_is_too_small_for_answers_is_shown(kind):
    """Given an interface whose own mtu is lowered below the server's, and raised again. Expect that
    shown for as long, since no device counts what it does not send."""

    def set_mtu(mtu: int) -> None:
        ip("-n", the_pair().server.namespace, "link", "set", INTERFACE, "mtu", str(mtu))

    with served(kind) as server:
        assert server.facts()["mtu_is_short"] == 0
        set_mtu(1400)
        try:
            server.until("mtu_is_short")
        finally:
            set_mtu(1500)
        until(lambda: server.facts()["mtu_is_short"] == 0, "it is large enough again")
