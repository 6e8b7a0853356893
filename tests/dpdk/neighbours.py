"""A dpdk:// host among hosts: whose address it is, who else says so, and who answers from where.

The hosts are made here: the kernels of two network namespaces, other processes, and frames sent by
hand from the client's end. Conditions are awaited, never times. Run by `make test-dpdk`, as root.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conformance import plain, plain_rows
from namespaces import INTERFACE, SERVER, inside, leaked_mbufs, on, the_pair
from until import until
from veth import (
    KINDS,
    PORT,
    URL,
    WAIT_S,
    all_there,
    arp,
    datagram,
    facts,
    ip,
    mac_of,
    raw,
    server_mac,
    serving,
)

from replay_server import Client, ReplayError, Server
from replay_server.observe.doctor import examine
from replay_server.server import ServerOptions
from replay_server.serving.compiled import compile_tables

ROOT = Path(__file__).resolve().parents[2]
EVERYONE, OWN = b"\xff" * 6, "198.18.0.9"
THIEF = bytes.fromhex("02deadbeef01")
PROCESS = """
import os
import sys
from conformance import plain
from replay_server import Client, ReplayError, Server
what, url = sys.argv[1:3]
try:
    if what == "client":
        opened = Client(url, timeout=20.0)
    else:
        opened = Server((plain(65536),), url, insecure=True)
except ReplayError as error:
    print(error, flush=True)
else:
    child = os.fork() if what in ("parent", "again") else 1
    if child and what == "again":
        try:
            opened.close()
            opened = Server((plain(65536),), url, insecure=True)
        except ReplayError as error:
            print(error, flush=True)
    if child:
        print("opened", flush=True)
    sys.stdin.read()
    if child:
        opened.close()
"""


def url_of(kind: str, address: str = SERVER, more: str = "") -> str:
    return f"dpdk://{address}:{PORT}?{on(kind)}{more}"


@contextmanager
def process(what: str, url: str) -> Iterator[subprocess.Popen]:
    """One that opens a server or a client, each at its end of the pair, and tells how it went."""
    end = the_pair().client if what == "client" else the_pair().server
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = end.inside([sys.executable, "-c", PROCESS, what, url])
    with subprocess.Popen(command, **pipes) as started:
        try:
            yield started
        finally:
            started.kill()


def refused(what: str, url: str) -> str:
    with process(what, url) as started:
        return started.stdout.readline()


@pytest.fixture(autouse=True)
def at_the_client() -> None:
    """This thread is in the client's namespace."""
    the_pair()


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def colons(mac: bytes) -> str:
    return ":".join(f"{byte:02x}" for byte in mac)


class Listener:
    """Every frame that comes to the client's end, or leaves it, from now on."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        self.socket.bind((INTERFACE, 0))
        self.socket.settimeout(WAIT_S)

    def arps(self, operation: int, sender: str, about: str) -> Iterator[bytes]:
        """ARP of the other end."""
        wanted = b"\x00" + bytes([operation]), socket.inet_aton(sender), socket.inet_aton(about)
        while True:
            frame, of = self.socket.recvfrom(2048)
            found = frame[20:22], frame[28:32], frame[38:42]
            if of[2] != socket.PACKET_OUTGOING and frame[12:14] == b"\x08\x06" and found == wanted:
                yield frame

    def announcements(self) -> Iterator[bytes]:
        return self.arps(1, SERVER, SERVER)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_) -> None:
        self.socket.close()


# -- an address that somebody has ----------------------------------------------------------------


def test_an_address_of_this_hosts_kernel_is_refused(kind):
    """Given the addresses that the kernels beside a server and a client have. Expect refusals that
    say where they are."""
    says = rf"198\.18\.0\.1 is the kernel's here, on {INTERFACE}: .* an address that nobody has"
    with inside(the_pair().server), pytest.raises(ReplayError, match=says):
        Server((plain(),), url_of(kind, "198.18.0.1"), insecure=True)
    with serving(kind):
        told = refused("client", url_of(kind, more=",ip=198.18.0.2"))
        assert f"198.18.0.2 is the kernel's here, on {INTERFACE}" in told


def test_an_address_of_another_host_is_refused_with_its_mac(kind):
    """Given addresses that the kernel at the other end of the cable has. Expect refusals that name
    its MAC and what to do; with probe=off, expect them to be taken all the same."""
    theirs = colons(mac_of(INTERFACE))
    says = rf"a host at {theirs} has 198\.18\.0\.2: end what has it, .*probe=off"
    with inside(the_pair().server), pytest.raises(ReplayError, match=says):
        Server((plain(),), url_of(kind, "198.18.0.2"), insecure=True)
    with inside(the_pair().server):
        Server((plain(),), url_of(kind, "198.18.0.2", "&probe=off"), insecure=True).close()
    told = refused("client", url_of(kind, more=",ip=198.18.0.1"))
    assert f"a host at {colons(server_mac())} has 198.18.0.1" in told


def test_a_second_server_on_an_interface_is_refused():
    """Given a server past the kernel in another process. Expect a second one told which process
    that is, and the first one to go on; after it was killed, expect the next one to serve."""
    url = url_of("af_packet")
    with process("server", url) as first:
        assert first.stdout.readline() == "opened\n"
        says = rf"process {first.pid} has {re.escape(SERVER)} on {INTERFACE} already: end it"
        with inside(the_pair().server), pytest.raises(ReplayError, match=says):
            Server((plain(),), url, insecure=True)
        with Client(URL, timeout=WAIT_S) as client:
            rows = plain_rows(300)
            assert all_there(client, client.extend("main", rows), rows)
        first.kill()
        first.wait()
    with serving("af_packet"), Client(URL, timeout=WAIT_S) as client:
        assert client.size("main") == 0


def test_what_a_killed_server_left_with_a_child_refuses_nobody():
    """Given a server that has forked and is killed, while its child lives and has its files. Expect
    the next one to serve, and one beside that to be told which process that is."""
    with process("parent", url_of("af_packet")) as first:
        assert first.stdout.readline() == "opened\n"
        first.kill()
        first.wait()
        with process("server", url_of("af_packet")) as second:
            assert second.stdout.readline() == "opened\n"
            told = refused("server", url_of("af_packet"))
            assert f"process {second.pid} has {SERVER} on {INTERFACE} already" in told
            with Client(URL, timeout=WAIT_S) as client:
                assert client.size("main") == 0


def test_a_server_that_has_forked_opens_its_device_again(kind):
    """Given a server whose child lives, and that closes. Expect it to serve there again, and every
    client to reach it: none of the child's sockets is given a part of what comes."""
    with process("again", url_of(kind)) as first:
        assert first.stdout.readline() == "opened\n"
        for _ in range(8):  # each from a port of its own
            with Client(URL, timeout=WAIT_S) as client:
                assert client.size("main") == 0


def test_no_other_user_keeps_a_server_from_its_address():
    """Given names that any user may take. Expect a server past the kernel not to care."""
    with inside(the_pair().server), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(f"\0replay-server/{INTERFACE}/0/{SERVER}")
        Server((plain(),), url_of("af_packet"), insecure=True).close()
    about = os.stat("/run/replay-server.lock")
    assert (about.st_uid, about.st_mode & 0o7777, about.st_size) == (0, 0o600, 0)


def test_what_a_killed_af_xdp_server_leaves_is_told():
    """Given a server over AF_XDP that is killed. Expect doctor to say what removes its program, and
    once that is done no word of it."""
    command = f"ip link set dev {INTERFACE} xdp off"
    with process("server", url_of("af_xdp")) as first:
        assert first.stdout.readline() == "opened\n"
    with inside(the_pair().server):
        until(lambda: command in "\n".join(examine().advice), "the kernel let go of its queue")
        subprocess.run(command.split(), check=True)
        assert command not in "\n".join(examine().advice)


def test_a_second_server_over_af_xdp_is_refused_and_leaves_nothing():
    """Given a server in another process that has the interface. Expect one at another address told
    about it, and no mbuf to stay behind."""
    before = leaked_mbufs()
    with process("server", url_of("af_xdp")) as first:
        assert first.stdout.readline() == "opened\n"
        says = f"process {first.pid} has {INTERFACE} already, and AF_XDP"
        with inside(the_pair().server), pytest.raises(ReplayError, match=says):
            Server((plain(),), url_of("af_xdp", "198.18.0.8"), insecure=True)
    assert leaked_mbufs() == before


def test_of_servers_that_start_at_once_one_serves():
    """Given four processes that start the same server. Expect one, and three told about it."""
    with (
        process("server", url_of("af_packet")) as a,
        process("server", url_of("af_packet")) as b,
        process("server", url_of("af_packet")) as c,
        process("server", url_of("af_packet")) as d,
    ):
        told = sorted(each.stdout.readline() for each in (a, b, c, d))
    assert told.count("opened\n") == 1
    assert sum(f"has {SERVER} on {INTERFACE} already" in line for line in told) == 3, told


@pytest.mark.parametrize(("rival", "serves"), [("000000000001", False), ("feffffffffff", True)])
def test_of_hosts_that_probe_at_once_the_lower_mac_has_it(kind, rival, serves):
    """Given another host that probes for the address while a server does. Expect it refused where
    that one's MAC is lower, else to serve."""
    mac, done = bytes.fromhex(rival), []

    def probe() -> None:
        with Listener() as heard, raw() as send:
            listening.set()
            next(heard.arps(1, "0.0.0.0", SERVER))
            send(arp(1, mac, "0.0.0.0", EVERYONE))
            done.append(True)

    listening = threading.Event()
    other = threading.Thread(target=probe)
    other.start()
    assert listening.wait(WAIT_S)
    if serves:
        with serving(kind):
            other.join(WAIT_S)
    else:
        says = f"a host at {colons(mac)} has {SERVER}"
        with inside(the_pair().server), pytest.raises(ReplayError, match=says):
            Server((plain(),), url_of(kind), insecure=True)
        other.join(WAIT_S)
    assert done


# -- while it serves -----------------------------------------------------------------------------


def test_who_probes_is_answered_whatever_its_frame_came_from(kind):
    """Given a probe for the server's address, and a question whose Ethernet source is another MAC
    than ARP says. Expect an answer to each, to the MAC that ARP says."""
    with serving(kind), Listener() as heard, raw() as send:
        send(arp(1, THIEF, "0.0.0.0", EVERYONE))
        assert next(heard.arps(2, SERVER, "0.0.0.0"))[:6] == THIEF
        question = arp(1, THIEF, "198.18.0.88", EVERYONE)
        send(question[:6] + bytes.fromhex("00005e000107") + question[12:])
        assert next(heard.arps(2, SERVER, "198.18.0.88"))[:6] == THIEF


def test_another_host_that_takes_the_address_is_told_and_counted(kind):
    """Given a host that announces the server's address, again and again. Expect each counted, one
    sentence with its MAC, one announcement against all of them, and the client served."""
    with Listener() as heard, serving(kind) as server, Client(URL, timeout=WAIT_S) as client:
        rows = plain_rows(300)
        keys = client.extend("main", rows)
        announced = heard.announcements()
        assert [next(announced)[6:12] for _ in range(2)] == [server_mac()] * 2, "once more, later"
        assert facts(server)["conflict"] == 0 and server.remark == ""
        with raw() as send:
            for number in range(1, 21):
                send(arp(1, THIEF, SERVER, EVERYONE, SERVER if number % 2 else "198.18.0.55"))
            until(lambda: facts(server)["conflict"] == 20, "all are counted")
            send(arp(1, THIEF, "198.18.0.88", EVERYONE))
        with Listener() as after, raw() as send:  # what is on its way comes before this answer
            send(arp(1, THIEF, "198.18.0.77", EVERYONE))
            next(after.arps(2, SERVER, "198.18.0.77"))
        assert server.remark == (
            f"another host, at {colons(THIEF)}, says it has this one's address, {SERVER}: "
            "end one of the two"
        )
        heard.socket.setblocking(False)
        count = 0
        with pytest.raises(BlockingIOError):
            for _ in announced:
                count += 1
        assert count == 1, "announcements in its defence"
        assert all_there(client, keys, rows)
        print(f"\n{kind}: 20 claims, 20 counted, 1 answered; told: {server.remark}")


@pytest.mark.parametrize("program", ["serve", "replay-serve"])
def test_who_serves_says_once_that_another_host_has_its_address(program, tmp_path):
    """Given a server's program and a host that announces its address twice. Expect one line, with
    the MAC."""
    if program == "serve":
        command = [sys.executable, "-m", "replay_server", "serve", "deploy/cartpole.toml", "--url"]
    else:
        (tmp_path / "tables.bin").write_bytes(compile_tables((plain(),), ServerOptions()))
        command = [str(ROOT / "build/replay-serve"), str(tmp_path / "tables.bin")]
    command += [url_of("af_packet"), "--insecure"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipes["env"] = os.environ | {"REPLAY_DPDK": str(ROOT / "replay_server/_dpdk.so")}
    with subprocess.Popen(the_pair().server.inside(command), **pipes) as server, raw() as send:
        try:
            while not server.stdout.readline().startswith("serving"):
                assert server.poll() is None
            send(arp(1, THIEF, SERVER, EVERYONE))
            line = server.stderr.readline()
            assert f"another host, at {colons(THIEF)}, says it has this one's address" in line
            send(arp(1, THIEF, SERVER, EVERYONE))
            with Client(URL, timeout=WAIT_S) as client:
                until(lambda: told(client, "conflict") == 2, "it is counted")
            server.send_signal(signal.SIGTERM)
            _, rest = server.communicate(timeout=WAIT_S)
            assert "another host" not in rest and server.returncode == 0, rest
        finally:
            server.kill()


def told(client: Client, name: str) -> int:
    return next(fact.value for fact in client.stats().facts if fact.name == name)


def test_a_priority_is_no_vlan(kind):
    """Given frames tagged with a priority and no VLAN, and frames of VLANs. Expect the first taken
    as they would be without it, the others dropped for their tag."""
    with serving(kind) as server, raw() as send:
        frame = bytes(datagram(mac_of(INTERFACE), server_mac(), 9))
        before = facts(server)
        for tag in (b"\xe0\x00", b"\x10\x00", b"\x00\x01", b"\xef\xff"):
            send(frame[:12] + b"\x81\x00" + tag + frame[12:])
        until(lambda: facts(server)["vlan"] == before["vlan"] + 2, "of VLANs")
        until(lambda: facts(server)["closed_port"] == before["closed_port"] + 2, "of none")


@pytest.mark.parametrize("client", ["the kernel's", "past the kernel"])
def test_clients_follow_a_server_that_comes_back_with_another_mac(kind, client):
    """Given a server that is killed, and started with another MAC. Expect the client to go on, and
    where it is its kernel's, that to know the MAC before anybody asks."""
    is_kernels = client.startswith("the")
    url = URL if is_kernels else url_of(kind, more=f",ip={OWN}")
    macs = bytes.fromhex("0200c0ffee01"), bytes.fromhex("0200c0ffee02")
    before = server_mac()
    command = the_pair().client.inside([sys.executable, "-c", FOLLOWER, url])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    try:
        set_mac(macs[0])
        with process("server", url_of(kind)) as first:
            assert first.stdout.readline() == "opened\n"
            follower = subprocess.Popen(command, **pipes)
            assert follower.stdout.readline() == "pushed\n"
            assert not is_kernels or neighbour() == macs[0]
            first.kill()
            first.wait()
        set_mac(macs[1])
        with serving(kind) as server:
            until(lambda: not is_kernels or neighbour() == macs[1], "its kernel was told")
            follower.stdin.write("go on\n")
            follower.stdin.flush()
            assert follower.stdout.readline() == "pushed again\n"
            assert server.counters()["steps_committed"] >= 200
    finally:
        follower.kill()
        follower.wait()
        set_mac(before)


FOLLOWER = """
import sys
from conformance import plain_rows
from replay_server import Client, ReplayError
client = Client(sys.argv[1], timeout=5.0)
client.extend("main", plain_rows(200))
print("pushed", flush=True)
sys.stdin.readline()
while True:
    try:
        client.extend("main", plain_rows(200, 1))
        break
    except ReplayError as error:
        print(type(error).__name__, file=sys.stderr)
        if type(error).__name__ == "Timeout":
            raise
print("pushed again", flush=True)
"""


def set_mac(mac: bytes) -> None:
    with inside(the_pair().server):
        ip("link", "set", INTERFACE, "address", colons(mac))


def neighbour() -> bytes:
    """Where the kernel at the client's end has the server."""
    words = ip("neigh", "show", SERVER, "dev", INTERFACE).split()
    return bytes.fromhex(words[words.index("lladdr") + 1].replace(":", ""))


# -- a server behind a virtual router ------------------------------------------------------------


class Router:
    """A host of two MACs, as VRRP and bonds make them: ARP tells the one, and from the other come
    the datagrams, and ARP's own frames. Behind it is a server of the kernel's, at any address."""

    ADDRESS, TOLD, SENDS = "198.18.0.50", bytes.fromhex("00005e000107"), THIEF

    def __init__(self, server: str) -> None:
        host, _, port = server.removeprefix("udp://").rpartition(":")
        self.server = host, int(port)
        self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        self.wire.bind((INTERFACE, 0))
        self.behind = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.behind.bind(("127.0.0.1", 0))
        self.client = b""  # its latest frame
        self.over = threading.Event()
        self.threads = [
            threading.Thread(target=self.pass_on, args=each)
            for each in ((self.wire, self.to_server), (self.behind, self.to_client))
        ]
        for thread in self.threads:
            thread.start()

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.wire.close()
        self.behind.close()

    def pass_on(self, came: socket.socket, take: Callable[[bytes], None]) -> None:
        came.settimeout(0.05)
        while not self.over.is_set():
            with suppress(TimeoutError):
                take(came.recv(2048))

    def to_server(self, frame: bytes) -> None:
        asked = b"\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01"
        if frame[12:22] == asked and frame[38:42] == socket.inet_aton(self.ADDRESS):
            answer = arp(2, self.TOLD, self.ADDRESS, frame[22:28], OWN)
            self.wire.send((answer[:6] + self.SENDS + answer[12:]).ljust(60, b"\0"))
        elif frame[:6] == self.TOLD and frame[23] == socket.IPPROTO_UDP:
            self.client = frame
            self.behind.sendto(frame[42 : 34 + int.from_bytes(frame[38:40], "big")], self.server)

    def to_client(self, payload: bytes) -> None:
        frame = datagram(self.SENDS, self.client[6:12], 0, payload, (self.ADDRESS, OWN))
        ports = self.client[36:38] + self.client[34:36]
        self.wire.send(frame[:34] + ports + frame[38:40] + b"\0\0" + frame[42:])


def test_a_client_takes_answers_from_another_mac_than_arp_told(kind):
    """Given a server behind a router that answers from another MAC than it has in ARP, whose frames
    of ARP come from that one too. Expect a client past the kernel to push through it; and what
    comes from another port or address of it dropped as a stranger's."""
    with (
        inside(the_pair().server),
        Server((plain(65536),), "udp://127.0.0.1:0") as server,
        Router(server.address) as router,
    ):
        command = [sys.executable, "-c", THROUGH, url_of(kind, Router.ADDRESS, f",ip={OWN}")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(the_pair().client.inside(command), **pipes) as client:
            try:
                assert client.stdout.readline() == "pushed\n"
                to, port = router.client[6:12], int.from_bytes(router.client[34:36], "big")
                for source, address in ((9, Router.ADDRESS), (PORT, "198.18.0.51")):
                    frame = datagram(THIEF, to, port, ips=(address, OWN))
                    frame[34:36] = source.to_bytes(2, "big")
                    frame[40:42] = b"\0\0"
                    router.wire.send(frame)
                told, _ = client.communicate("go on\n", timeout=WAIT_S)
                assert told.split() == ["True", "2"]
            finally:
                client.kill()


THROUGH = """
import sys
import numpy as np
from conformance import plain_rows
from replay_server import Client
with Client(sys.argv[1], timeout=10.0) as client:
    rows = plain_rows(300)
    keys = client.extend("main", rows)
    print("pushed", flush=True)
    sys.stdin.readline()
    held = client.get("main", keys)
    strangers = [fact.value for fact in client.facts() if fact.name == "stranger"]
    print(held.valid.all() and np.array_equal(held["x"][:, 0], rows["x"]), *strangers)
"""
