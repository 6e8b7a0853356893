"""dpdk:// with a network behind it: a server past the kernel, clients of the kernel's over veth.

What a network does to it: questions, losses, a link that goes, frames made up by hand. The server
goes on, nothing acknowledged is lost, each drop has its reason, and no mbuf is missing at the end.
Run by `make test-dpdk`, as root; its name keeps it out of `make test`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from conformance import plain, plain_rows
from losses import losing
from namespaces import INTERFACE, SERVER, inside, leaked_mbufs, on, the_pair
from until import until

from replay_server import Client, NoRoom, ReplayError, Server
from replay_server.bench.namespaces import OFFLOADS, _ethtool, send_whole_frames

KINDS = ("af_packet", "af_xdp")
PORT = 7400
URL = f"udp://{SERVER}:{PORT}"
WAIT_S = 20.0
PR_CAPBSET_DROP, CAP_NET_RAW = 24, 13

PUSHER = """
import sys
from conformance import plain_rows
from replay_server import Client
client = Client(sys.argv[1], timeout=20.0)
client.extend("main", plain_rows(200))
print("pushed", flush=True)
for seed in range(1, 100000 if sys.argv[2] == "on" else 3):
    client.extend("main", plain_rows(200, seed))
print(len(client.sample("main", 64)), flush=True)
client.close()
"""

WAITER = """
import sys
from conformance import plain_rows
from replay_server import Client
client = Client(sys.argv[1], timeout=20.0)
client.extend("main", plain_rows(200))
print("pushed", flush=True)
sys.stdin.readline()
client.extend("main", plain_rows(200, 1))
print(client.counters()["retransmissions"], flush=True)
client.close()
"""

IN_VAIN = """
import sys, time
from replay_server import Client, ReplayError
for _ in range(2):
    began = time.monotonic()
    try:
        Client(sys.argv[1], connect_timeout=float(sys.argv[2]))
    except ReplayError:
        print(time.monotonic() - began)
"""


@contextmanager
def serving(kind: str, more: str = "", interface: str = INTERFACE, ip: str = SERVER) -> Iterator:
    """A server on that device, in the server's namespace; at its end no mbuf is missing."""
    before = leaked_mbufs()
    url = f"dpdk://{ip}:{PORT}?{on(kind, interface)}{more}"
    with inside(the_pair().server):
        server = Server((plain(65536),), url, insecure=True)
    with server:
        yield server
    assert leaked_mbufs() == before


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def facts(server: Server) -> dict[str, int]:
    return {fact.name: fact.value for fact in server.stats().facts}


def all_there(client: Client, keys, rows: dict[str, np.ndarray]) -> bool:
    held = client.get("main", keys)
    return bool(held.valid.all()) and np.array_equal(held["x"][:, 0], rows["x"])


def ip(*words: str) -> str:
    command = ["ip", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    return done.stdout


def mac_of(interface: str) -> bytes:
    shown = ip("-br", "link", "show", interface)  # sysfs shows another namespace's
    return bytes.fromhex(shown.split()[2].replace(":", ""))


@contextmanager
def raw() -> Iterator[Callable[[bytes], None]]:
    """Sends whole frames from the client's end of the pair."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as opened:
        opened.bind((INTERFACE, 0))
        yield lambda frame: opened.send(frame.ljust(60, b"\0")) and None


def sum16(data: bytes) -> int:
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def datagram(
    source: bytes,
    target: bytes,
    port: int = PORT,
    payload: bytes = b"?" * 64,
    ips: tuple[str, str] = ("198.18.0.2", SERVER),
) -> bytearray:
    """An Ethernet frame with a UDP datagram of the client's, its checksums right."""
    ends = socket.inet_aton(ips[0]) + socket.inet_aton(ips[1])
    size = 8 + len(payload)
    udp = struct.pack(">HHHH", 40000, port, size, 0) + payload
    checksum = sum16(ends + struct.pack(">HH", 17, size) + udp) or 0xFFFF
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0x4000, 64, 17, 0) + ends
    head = head[:10] + struct.pack(">H", sum16(head)) + head[12:]
    frame = target + source + b"\x08\x00" + head + udp
    return bytearray(frame[:40] + struct.pack(">H", checksum) + frame[42:])


def arp(operation: int, mac: bytes, address: str, to: bytes, asked: str = SERVER) -> bytes:
    """ARP to `asked` that says `address` is at `mac`."""
    who, whom = socket.inet_aton(address), socket.inet_aton(asked)
    fixed = struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation)
    return to + mac + b"\x08\x06" + fixed + mac + who + b"\0" * 6 + whom


# -- a host on its network -----------------------------------------------------------------------


def test_it_is_pinged_and_the_counters_agree_on_both_sides(kind):
    """Given a kernel's client that pushes and samples. Expect echoes, and equal counts of datagrams
    and steps at both ends."""
    with serving(kind) as server:
        if shutil.which("ping") is None:
            assert not os.environ.get("CI"), "iputils-ping is missing"
            print("left out: ping is not installed (apt-get install iputils-ping)")
        else:
            command = ["ping", "-c", "3", "-i", "0.05", "-W", "2", "-s", "1400", SERVER]
            done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
            assert " 3 received" in done.stdout, done.stdout + done.stderr
        client = Client(URL, timeout=WAIT_S)
        rows = plain_rows(3000)
        keys = client.extend("main", rows)
        assert all_there(client, keys, rows)
        for _ in range(20):
            assert len(client.sample("main", 256)) == 256
        until(
            lambda: (
                client.counters()["datagrams_out"] == server.counters()["datagrams_in"]
                and client.counters()["datagrams_in"] == server.counters()["datagrams_out"]
            ),
            "datagrams are counted alike on both sides",
        )
        assert server.counters()["steps_committed"] == 3000
        assert server.counters()["items_sampled"] == 20 * 256 + 3000
        client.close()


def test_clients_past_the_kernel_too(kind):
    """Given clients on a device of their own, and a VLAN. Expect rows pushed and drawn; frames
    without the tag dropped for that."""
    for vlan in ("", "&vlan=77"):
        with serving(kind, vlan) as server:
            url = f"dpdk://{SERVER}:{PORT}?{on(kind)},ip=198.18.0.9{vlan}"
            command = the_pair().client.inside([sys.executable, "-c", PUSHER, url, "few"])
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.stdout.split() == ["pushed", "64"], done.stderr
            assert server.counters()["steps_committed"] == 600
            with raw() as send:
                send(bytes(datagram(mac_of(INTERFACE), server_mac(), 9)))
            name = "other_vlan" if vlan else "closed_port"
            until(lambda: facts(server)[name] > 0, name)  # noqa: B023 (at once)


def server_mac() -> bytes:
    with inside(the_pair().server):
        return mac_of(INTERFACE)


def test_a_host_has_its_share_of_sessions(kind):
    """Given a share of two, and three clients of one host. Expect the third refused, a client at
    another address served, and the third one too once another has closed."""
    with inside(the_pair().server):
        url = f"dpdk://{SERVER}:{PORT}?{on(kind)}"
        server = Server((plain(),), url, insecure=True, sessions=8, sessions_per_address=2)
    with server, Client(URL, timeout=WAIT_S), ExitStack() as open_:
        open_.enter_context(Client(URL, timeout=WAIT_S))
        with pytest.raises(NoRoom, match="sessions_per_address"):
            Client(URL, timeout=WAIT_S)
        url = f"dpdk://{SERVER}:{PORT}?{on(kind)},ip=198.18.0.9"
        command = the_pair().client.inside([sys.executable, "-c", PUSHER, url, "few"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == ["pushed", "64"], done.stderr
        open_.close()
        Client(URL, timeout=WAIT_S).close()


def test_a_client_that_finds_nobody_gives_up_in_time(kind):
    """Given an address that nobody has. Expect a client of it to take its `connect_timeout`, the
    waits of its device's opening included, both times.

    Time itself is what is tested. A busy machine makes some tries longer, by any amount; waits that
    are added make all of them longer, by 1.2 s. So the best of several processes counts.
    """
    timeout, added = 1.5, 1.2
    url = f"dpdk://198.18.0.77:{PORT}?{on(kind)},ip=198.18.0.9"
    command = the_pair().client.inside([sys.executable, "-c", IN_VAIN, url, str(timeout)])
    tries: list[float] = []
    while len(tries) < 8 and not (tries and tries[-1] < timeout + added / 2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        took = [float(word) for word in done.stdout.split()]
        assert len(took) == 2, done.stderr
        assert min(took) > timeout - 0.1, took  # it never gives up early
        tries.append(max(took))
    assert tries[-1] < timeout + added / 2, tries


# -- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["towards the client", "towards the server"])
def test_nothing_acknowledged_is_lost_with_the_frames(kind, direction):
    """Given every fifth frame lost below the protocol. Expect every acknowledged row in its place,
    and retransmissions counted."""
    towards_server = direction.endswith("server")
    if towards_server and kind == "af_xdp":
        end = None  # its own program is where frames would be lost: they are on the way back
    else:
        end = the_pair().server if towards_server else the_pair().client
    with serving(kind) as server, Client(URL, timeout=60.0) as client:
        with losing(end or the_pair().client, INTERFACE, 51):
            pushed = []
            for seed in range(4):
                rows = plain_rows(400, seed)
                pushed.append((client.extend("main", rows), rows))
                assert len(client.sample("main", 64)) == 64
        assert all(all_there(client, keys, rows) for keys, rows in pushed)
        assert client.counters()["retransmissions"] > 0
        assert server.counters()["steps_committed"] == 1600


def test_a_link_that_goes_comes_back(kind):
    """Given a link taken down under traffic. Expect the client to wait, and all rows after it."""
    with serving(kind) as server, Client(URL, timeout=60.0) as client:
        before = plain_rows(500, 1)
        kept = client.extend("main", before)
        with inside(the_pair().server):
            ip("link", "set", INTERFACE, "down")
        with ThreadPoolExecutor(1) as pool:
            during = plain_rows(500, 2)
            waiting = pool.submit(client.extend, "main", during)
            sent = client.counters()["retransmissions"]
            until(lambda: client.counters()["retransmissions"] > sent + 2, "it tries again")
            assert not waiting.done()
            with inside(the_pair().server):
                ip("link", "set", INTERFACE, "up")
            keys = waiting.result(60)
        assert all_there(client, kept, before) and all_there(client, keys, during)
        assert server.counters()["steps_committed"] == 1000


@pytest.mark.parametrize("mbufs", [40, 8])
def test_a_pool_that_runs_dry_slows_and_loses_nothing(kind, mbufs):
    """Given a server of fewer mbufs than frames come at once. Expect it to lack some, count that,
    and lose no row."""
    with serving(kind, f"&mbufs={mbufs}") as server, Client(URL, timeout=60.0) as client:
        rows = plain_rows(4000)
        keys = client.extend("main", rows)
        for _ in range(5):
            assert len(client.sample("main", 1000)) == 1000
        assert all_there(client, keys, rows)
        told = facts(server)
        assert told["mbufs_lacked"] + told["device_no_mbufs"] > 0


def test_a_peer_that_dies_is_forgotten(kind):
    """Given a client killed while it pushes. Expect others served, and its acknowledged rows."""
    with serving(kind) as server, Client(URL, timeout=WAIT_S) as client:
        command = [sys.executable, "-c", PUSHER, URL, "on"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pusher:
            assert pusher.stdout.readline().strip() == "pushed"
            pusher.send_signal(signal.SIGKILL)
            pusher.wait(timeout=WAIT_S)
        assert server.counters()["steps_committed"] >= 200
        rows = plain_rows(300, 5)
        assert all_there(client, client.extend("main", rows), rows)


def test_made_up_frames_move_nobody_and_are_counted(kind):
    """Given ARP that gives a known peer's address to another, frames of every wrong kind and a
    flood to a closed port. Expect each counted under its reason, and the peer served as before."""
    with serving(kind) as server, Client(URL, timeout=WAIT_S) as client, raw() as send:
        rows = plain_rows(300)
        keys = client.extend("main", rows)
        mine, its = mac_of(INTERFACE), server_mac()
        thief = bytes.fromhex("02deadbeef01")
        good = datagram(mine, its)
        for operation, to in ((2, its), (2, b"\xff" * 6), (1, its)):
            send(arp(operation, thief, "198.18.0.2", to))
        bad = {
            "foreign_mac": thief + bytes(good[6:]),
            "vlan": bytes(good[:12]) + b"\x81\x00\x00\x4d" + bytes(good[12:]),
            "ethertype": bytes(good[:12]) + b"\x86\xdd" + bytes(good[14:]),
            "ip_checksum": bytes(good[:24]) + b"\0\0" + bytes(good[26:]),
            "udp_checksum": bytes(good[:-1]) + b"!",
            "fragment": fragment(mine, its),
        }
        if kind == "af_packet":
            del bad["fragment"]  # its driver has the kernel put fragments together
        before = facts(server)
        for frame in bad.values():
            send(frame)
        for name in bad:
            until(lambda: facts(server)[name] > before[name], name)  # noqa: B023 (at once)
        sent = client.counters()["retransmissions"]
        flood = bytes(datagram(mine, its, 9))
        at = facts(server)["closed_port"]
        for _ in range(10):
            for _ in range(200):
                send(flood)
            at += 200
            until(lambda: facts(server)["closed_port"] >= at, "all")  # noqa: B023 (at once)
            assert all_there(client, keys, rows)
        assert facts(server)["closed_port"] == at and facts(server)["arp"] == 2
        assert client.counters()["retransmissions"] == sent, "its answers went to nobody else"


def test_a_client_is_moved_by_no_answer_it_did_not_ask_for(kind):
    """Given ARP that gives the server's address to another, sent to a client past the kernel.
    Expect its next rows to go to the server, the first time."""
    url = f"dpdk://{SERVER}:{PORT}?{on(kind)},ip=198.18.0.9"
    command = the_pair().client.inside([sys.executable, "-c", WAITER, url])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with serving(kind) as server, subprocess.Popen(command, **pipes) as client:
        try:
            assert client.stdout.readline().strip() == "pushed"
            lie = arp(2, bytes.fromhex("02deadbeef01"), SERVER, mac_of(INTERFACE), "198.18.0.9")
            with inside(the_pair().server), raw() as send:
                for _ in range(5):
                    send(lie)
            told, _ = client.communicate("go on\n", timeout=WAIT_S)
            assert told.strip() == "0", "retransmissions: it was moved"
        finally:
            client.kill()
        assert server.counters()["steps_committed"] == 400


def fragment(source: bytes, target: bytes) -> bytes:
    frame = datagram(source, target)
    frame[20:22] = b"\x20\x00"
    frame[24:26] = b"\0\0"
    frame[24:26] = struct.pack(">H", sum16(bytes(frame[14:34])))
    return bytes(frame)


def test_a_veth_pair_that_leaves_checksums_out_is_named(kind):
    """Given a client whose end of the pair leaves checksums to a card. Expect no answer, and a
    counter whose sentence says why; an answer once that is off."""
    with serving(kind) as server:
        _ethtool(INTERFACE, OFFLOADS["checksums"], 1)
        try:
            with pytest.raises(ReplayError, match="no answer"):
                Client(URL, timeout=1.0)
        finally:
            send_whole_frames(INTERFACE)
        said = {fact.name: fact for fact in server.stats().facts}["udp_checksum"]
        assert said.value > 0 and "from a veth pair: its tx checksum offload" in said.sentence
        with Client(URL, timeout=WAIT_S) as client:
            rows = plain_rows(200)
            assert all_there(client, client.extend("main", rows), rows)


# -- a tap ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mtu", [1400, 1472])
def test_a_tap_serves_the_kernel_beside_it_and_its_checksums_are_used(mtu):
    """Given a tap that computes checksums, and datagrams as large as it carries. Expect rows both
    ways; what it calls wrong dropped."""
    more = f"&mtu={mtu}"
    with serving("tap", more, "rtap0", "198.18.1.1") as server, inside(the_pair().server):
        ip("addr", "add", "198.18.1.2/24", "dev", "rtap0")
        ip("link", "set", "rtap0", "up")
        with Client(f"udp://198.18.1.1:{PORT}?mtu={mtu}", timeout=WAIT_S) as client:
            rows = plain_rows(2000)
            assert all_there(client, client.extend("main", rows), rows)
            assert len(client.sample("main", 500)) == 500
        neighbour = ip("neigh", "show", "198.18.1.1", "dev", "rtap0").split()
        mac = bytes.fromhex(neighbour[neighbour.index("lladdr") + 1].replace(":", ""))
        source = bytes.fromhex("021111111111")
        wrong = datagram(source, mac, ips=("198.18.1.2", "198.18.1.1"))
        wrong[-1] ^= 1
        before = facts(server)["udp_checksum"]
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as opened:
            opened.bind(("rtap0", 0))
            opened.send(bytes(wrong))
        until(lambda: facts(server)["udp_checksum"] == before + 1, "it is counted")


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("vdev=net_af_packet,iface=nothere0", "no network interface nothere0.*ip link"),
        ("vdev=net_af_xdp,iface=nothere0", "no network interface nothere0.*ip link"),
        ("vdev=net_af_packet", "needs iface="),
        (f"vdev=net_af_packet,iface={INTERFACE}&mtu=1480", "at most mtu=1472"),
        (f"vdev=net_af_xdp,iface={INTERFACE}&mtu=2000", "at most mtu=1472, until ip link set"),
        (f"vdev=net_af_xdp,iface={INTERFACE}&mtu=8000", "at most mtu=1472, .* over AF_XDP 3472 "),
        ("vdev=net_tap,iface=rtap1&mtu=1480", "mtu=1480 is too large: .*at most mtu=1472"),
        (f"vdev=net_ring,iface={INTERFACE}", "iface= goes with"),
        ("port=banana", "PCI address.*doctor"),
        ("port=0000:7f:1f.7", "no PCI card 0000:7f:1f.7.*doctor"),
        ("vdev=net_ring,port=0000:7f:1f.7", "one device"),
        (f"vdev=net_af_packet,iface={INTERFACE},vlan=4095", "1 to 4094"),
        (f"vdev=net_af_packet,iface={INTERFACE},mbufs=7", "8 or more"),
        (f"vdev=net_af_packet,iface={INTERFACE},memory=77", "memory=512 already"),
        (f"vdev=net_af_packet,iface={INTERFACE},cores=two", "list of processors"),
        (f"vdev=net_af_packet,iface={INTERFACE},queues=1,queues=2", "said twice"),
        (f"vdev=net_af_packet,iface={INTERFACE}&mtu=600&mtu=600", "mtu"),
    ],
)
def test_a_wrong_device_is_a_sentence(options, says):
    """Given urls that cannot be. Expect the reason and the next step, and the server beside it."""
    url = f"dpdk://{SERVER}:{PORT}?{options}"
    beside = started() if "iface=replay" in options else serving("af_packet")
    with beside, inside(the_pair().server), pytest.raises(ReplayError, match=says):
        Server((plain(),), url, insecure=True)


def test_no_mtu_of_its_interface_gives_af_xdp_a_larger_one():
    """Given an interface whose own mtu is large. Expect AF_XDP refused beyond what a page holds,
    and no word of `ip link set`, which does not help."""
    url = f"dpdk://{SERVER}:{PORT}?{on('af_xdp')}&mtu=3480"
    with started(), inside(the_pair().server):
        ip("link", "set", INTERFACE, "mtu", "9000")
        try:
            with pytest.raises(ReplayError, match="at most mtu=3472 over AF_XDP, as its frames"):
                Server((plain(),), url, insecure=True)
        finally:
            ip("link", "set", INTERFACE, "mtu", "1500")


@contextmanager
def started() -> Iterator[None]:
    """DPDK runs in this process, and no device is open."""
    with serving("af_packet"):
        pass
    yield


def test_a_device_is_opened_once_and_not_without_a_word():
    """Given a second server on a device, and none told that it is insecure. Expect refusals."""
    url = f"dpdk://{SERVER}:{PORT}?vdev=net_af_packet,iface={INTERFACE}"
    with inside(the_pair().server):
        with pytest.raises(ReplayError, match=r"other hosts could reach it.*insecure"):
            Server((plain(),), url)
        with serving("af_packet"), pytest.raises(ReplayError, match="open in this process already"):
            Server((plain(),), url, insecure=True)


def test_a_missing_permission_is_a_sentence_and_nothing_is_printed():
    """Given root without CAP_NET_RAW. Expect which right is missing, and nothing on stderr."""
    script = (
        "import sys; from conformance import plain; from replay_server import Server, ReplayError\n"
        "try: Server((plain(),), sys.argv[1], insecure=True)\n"
        "except ReplayError as error: print(error)"
    )
    for kind in KINDS:
        url = f"dpdk://{SERVER}:{PORT}?{on(kind)}"
        done = subprocess.run(
            the_pair().server.inside([sys.executable, "-c", script, url]),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            preexec_fn=without_raw_sockets,
        )
        assert "CAP_NET_RAW" in done.stdout and done.stderr == "", done.stdout + done.stderr


def without_raw_sockets() -> None:
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0)
