"""Frames sent raw to a dpdk:// server over af_packet: each reason to drop one, and its counter.

The frames are built here, byte by byte, from the RFCs. The server stands in a network namespace of
its own; root only, run by `make test-dpdk`. Fragments are not among them: the kernel puts those
together before it hands them to af_packet.
"""

from __future__ import annotations

import socket
import struct

import namespaces
import pytest
from conformance import Place, plain, plain_rows
from until import until

from replay_server import Client
from replay_server.__main__ import main
from replay_server.observe.metrics import Endpoint, MetricsOptions

ME, MY_IP = bytes.fromhex("02aabbccdd01"), bytes([198, 18, 0, 99])
HERE = bytes(int(part) for part in namespaces.SERVER.split("."))
EVERYONE, ARP, IP = b"\xff" * 6, 0x0806, 0x0800
NOISE = (
    "ethertype",
    "foreign_mac",
    "arp",
)  # the kernels at both ends say such things by themselves


def checksum(data: bytes) -> int:
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def ip_packet(body: bytes, protocol: int = 17, **changes) -> bytes:
    """IPv4 from here to the server; `changes` to the header's fields, made before its checksum."""
    fields = {"first": 0x45, "total": 20 + len(body), "fragment": 0x4000, "source": MY_IP}
    fields |= {"target": HERE, "sum": None} | changes
    head = struct.pack(">BBHHHBBH", fields["first"], 0, fields["total"], 0, fields["fragment"], 64,
                       protocol, 0)  # fmt: skip
    head += fields["source"] + fields["target"]
    total = checksum(head) if fields["sum"] is None else fields["sum"]
    return head[:10] + struct.pack(">H", total) + head[12:] + body


def udp(port: int, data: bytes = b"a datagram", wrong: int = 0, longer: int = 0) -> bytes:
    """A UDP datagram to the server; `wrong` is added to its checksum, `longer` to its length."""
    size = 8 + len(data)
    head = struct.pack(">HHH", 50000, port, size + longer)
    pseudo = MY_IP + HERE + struct.pack(">BBH", 0, 17, size)
    total = checksum(pseudo + head + b"\0\0" + data)
    return head + struct.pack(">H", (total ^ wrong) or 0xFFFF) + data


def icmp(kind: int, wrong: int = 0) -> bytes:
    """An ICMP message: 8 asks for an echo."""
    body = struct.pack(">BBHHH", kind, 0, 0, 7, 1) + b"ping"
    return body[:2] + struct.pack(">H", checksum(body) ^ wrong) + body[4:]


def arp(
    operation: int = 1, target: bytes = HERE, sender: bytes = ME, source: bytes = MY_IP
) -> bytes:
    """RFC 826."""
    return struct.pack(">HHBBH", 1, IP, 6, 4, operation) + sender + source + bytes(6) + target


class Wire:
    """A raw socket in the client's namespace."""

    def __init__(self, interface: str) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        self.socket.bind((interface, 0))
        self.socket.settimeout(10.0)
        self.server = b""

    def send(self, kind: int, body: bytes, target: bytes | None = None, source: bytes = ME) -> None:
        target = self.server if target is None else target
        self.socket.send(target + source + struct.pack(">H", kind) + body)

    def answer(self, kind: int) -> bytes:
        """The body of the next frame of this type that comes to us."""
        while True:
            frame = self.socket.recv(9000)
            if frame[:6] == ME and struct.unpack(">H", frame[12:14])[0] == kind:
                return frame[14:]


@pytest.fixture(scope="module")
def stage():
    """(server, wire, port): a server, and a raw socket that has asked for its MAC address."""
    place = Place("dpdk-af_packet")
    pair = namespaces.the_pair()
    with place.served(plain(), mtu=1400) as server:
        wire = Wire(pair.client.interface)
        wire.send(ARP, arp(), EVERYONE)
        told = wire.answer(ARP)
        assert told[6:8] == b"\0\x02" and told[14:18] == HERE and told[18:24] == ME
        wire.server = told[8:14]
        yield server, wire, int(server.address.rpartition(":")[2].partition("?")[0])
        wire.socket.close()


def counted(server) -> dict[str, int]:
    """What came in and was dropped, by reason."""
    return {fact.name: fact.value for fact in server.stats().facts if fact.kind == "in"}


def reach(server, wanted: dict[str, int]) -> dict[str, int]:
    """Waits until each of these counts is there."""

    def there() -> dict[str, int] | None:
        now = counted(server)
        return now if all(now[name] >= value for name, value in wanted.items()) else None

    return until(there, str(wanted), said=lambda: str(counted(server)))


def test_each_reason_is_counted_alone(stage, capsys):
    """Given frames of every reason, of each another number. Expect just these counts at the server,
    at a client, in `stats` and at the endpoint, with their sentences; and the server goes on."""
    server, wire, port = stage
    good = ip_packet(udp(port))
    frames = {
        "runt": [(IP, good[:15]), (ARP, arp()[:20])],
        "foreign_mac": [(IP, good, b"\x02\x11\x22\x33\x44\x55")],
        "ethertype": [(0x1234, good)],
        "arp": [(ARP, arp(target=MY_IP)), (ARP, arp(operation=3)), (ARP, arp(operation=2))],
        "source": [
            (IP, ip_packet(udp(port), source=bytes([0, 1, 2, 3]))),
            (IP, ip_packet(udp(port), source=HERE)),
            (IP, ip_packet(udp(port), source=bytes([127, 0, 0, 1]))),
            (IP, good, None, wire.server),
            (ARP, arp(sender=b"\x03\x99\x99\x99\x99\x99")),
            (ARP, arp(sender=wire.server)),
        ],
        "conflict": [(ARP, arp(source=HERE)), (ARP, arp(operation=2, source=HERE))],
        "ip_version": [(IP, ip_packet(udp(port), first=0x46)), (IP, b"\x65" + good[1:])],
        "ip_length": [(IP, ip_packet(udp(port), total=400)), (IP, ip_packet(udp(port), total=19))],
        "ip_checksum": [(IP, ip_packet(udp(port), sum=1))],
        "vlan": [(0x8100, b"\x00\x05\x08\x00" + good)],
        "foreign_ip": [(IP, ip_packet(udp(port), target=bytes([198, 18, 0, 77])))],
        "protocol": [(IP, ip_packet(udp(port), protocol=6))],
        "icmp": [(IP, ip_packet(icmp(13), protocol=1)), (IP, ip_packet(icmp(8, 1), protocol=1))],
        "udp_length": [(IP, ip_packet(udp(port, longer=1))), (IP, ip_packet(udp(port, b"")))],
        "udp_checksum": [(IP, ip_packet(udp(port, wrong=0x0101)))],
        "closed_port": [(IP, ip_packet(udp(port + 1)))],
        "oversized": [(IP, ip_packet(udp(port, bytes(1408))))],
    }
    before, expected = counted(server), {}
    for number, (reason, variants) in enumerate(frames.items(), 2):
        for i in range(number):
            wire.send(*variants[i % len(variants)])
        expected[reason] = number
    now = reach(server, {name: before[name] + number for name, number in expected.items()})
    moved = {name: now[name] - before[name] for name in now}
    for name, number in moved.items():
        if name in NOISE:
            assert number >= expected[name], name
        else:
            assert number == expected.get(name, 0), f"{name}: {moved}"
    with (
        Endpoint(MetricsOptions("127.0.0.1:0")) as endpoint,
        Client("udp://" + server.address.partition("//")[2].partition("?")[0]) as client,
    ):
        client.extend("main", plain_rows(64))
        told = {fact.name: fact.value for fact in client.stats().facts if fact.kind == "in"}
        endpoint.show(server)
        assert main(["stats", endpoint.url]) == 0
    assert main(["stats", client.address]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, number in expected.items():
        assert name in NOISE or told[name] == before[name] + number
        rows = [line.split(maxsplit=2) for line in lines if line.startswith(f"dropped_in_{name} ")]
        assert len(rows) == 2 and rows[1][2] == sentence_of(server, name), rows


def sentence_of(server, name: str) -> str:
    """Of this fact."""
    return next(fact.sentence for fact in server.stats().facts if fact.name == name)


def test_a_ping_is_answered_and_counts_as_no_drop(stage):
    """Given an echo request with padding behind it. Expect its answer, and mbufs back."""
    server, wire, _ = stage
    before, at_rest = counted(server), levels(server)
    for _ in range(300):
        wire.send(IP, ip_packet(icmp(8), protocol=1) + bytes(18))
        told = wire.answer(IP)
        assert told[20] == 0 and told[24:32] == icmp(8)[4:] and checksum(told[20:32]) == 0
    now = counted(server)
    assert all(now[name] == before[name] for name in now if name not in NOISE)
    assert sum(levels(server).values()) == sum(at_rest.values())
    assert levels(server)["mbufs_in_use"] <= at_rest["mbufs_in_use"] + 64


def levels(server) -> dict[str, int]:
    """Mbufs in use and free."""
    return {fact.name: fact.value for fact in server.stats().facts if fact.kind == "level"}
