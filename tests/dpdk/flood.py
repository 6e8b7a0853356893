"""A hostile neighbour of a dpdk:// server, and an honest client that has to notice nothing.

The neighbour sends ARP of all kinds, ICMP, fragments, VLANs, sources that nobody has and noise: in
rounds, each counted, and as a flood beside the client's work. Run by `make test-dpdk`, as root.

    make dpdk-hostile        # FLOOD=200000 frames beside the client, 20000 in the suite
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
from conformance import plain_rows
from namespaces import INTERFACE, SERVER, the_pair
from neighbours import EVERYONE, THIEF, colons
from reasons import icmp, ip_packet, udp
from until import until
from veth import (
    KINDS,
    PORT,
    URL,
    all_there,
    arp,
    datagram,
    facts,
    mac_of,
    raw,
    server_mac,
    serving,
)

from replay_server import Client

FLOOD = int(os.environ.get("FLOOD", "20000"))
RETRIES = 32  # of requests, that one operation of the client's may need beside a flood


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    the_pair()
    return request.param


def test_a_hostile_neighbour_costs_an_honest_client_nothing(kind):
    """Given rounds of ARP of all kinds, ICMP, fragments, VLANs, sources that nobody has and a flood
    of what is no frame at all, drawn by chance. Expect each counted where it is no question, one
    answer at most to each, no datagram lent to the engine, and a client served all the while."""
    rng = random.Random(53)
    with serving(kind) as server, Client(URL, timeout=60.0) as client, raw() as send:
        mine, its = mac_of(INTERFACE), server_mac()
        rows = plain_rows(300)
        keys = client.extend("main", rows)
        before, dropped = facts(server), server.counters()["dropped_in"]
        sent = {name: 0 for name in ("source", "conflict", "vlan", "icmp", "arp", "protocol")}
        for round_ in range(20):
            for _ in range(100):
                name, frame = hostile(rng, mine, its)
                send(frame)
                if name:
                    sent[name] += 1
            for name, count in sent.items():
                wanted = before[name] + count
                until(lambda: facts(server)[name] >= wanted, name)  # noqa: B023 (at once)
            assert all_there(client, keys, rows)
            keys, rows = client.extend("main", more := plain_rows(100, round_)), more
        after = facts(server)
        for name in ("source", "conflict", "vlan", "icmp", "protocol"):
            assert after[name] == before[name] + sent[name], name
        assert server.counters()["dropped_in"] - dropped >= sum(sent.values())
        assert THIEF_TEXT in server.remark
        assert after["mbufs_in_use"] <= before["mbufs_in_use"] + 64


THIEF_TEXT = colons(THIEF)


def hostile(rng: random.Random, mine: bytes, its: bytes) -> tuple[str, bytes]:
    """A frame, and the reason it is dropped for; "": it is answered, or several may hold."""
    good = bytes(datagram(mine, its))
    probe = arp(1, THIEF, "0.0.0.0", EVERYONE)
    head = its + mine + b"\x08\x00"
    part = rng.randrange(1, 0x4000)  # of a packet, with more to come or without
    frames = [
        ("conflict", arp(rng.choice((1, 2)), THIEF, SERVER, EVERYONE)),
        ("source", arp(1, its, "198.18.0.44", EVERYONE)),
        ("source", arp(1, THIEF, f"{rng.choice((0, 127, 224, 255))}.1.2.3", EVERYONE)),
        ("source", bytes(datagram(mine, its, ips=(f"127.0.0.{rng.randrange(1, 255)}", SERVER)))),
        ("source", good[:6] + its + good[12:]),
        ("vlan", good[:12] + b"\x81\x00" + rng.randrange(1, 4096).to_bytes(2, "big") + good[12:]),
        ("vlan", good[:12] + b"\x81\x00\x00\x00\x81\x00\x00\x00" + good[12:]),
        ("arp", arp(2, THIEF, "198.18.0.2", its)),
        ("arp", arp(2, THIEF, "198.18.0.2", EVERYONE)),
        ("", probe),
        ("", rng.randbytes(rng.randrange(14, 1500))),
        ("", good[:12] + rng.randbytes(rng.randrange(2, 1400))),
        ("", good[:23] + rng.randbytes(rng.randrange(1, 1400))),
        ("", head + ip_packet(icmp(8), protocol=1)),
        ("", head + ip_packet(udp(PORT), fragment=part)),
        ("icmp", head + ip_packet(icmp(rng.choice((0, 3, 5, 13))), protocol=1)),
        ("icmp", head + ip_packet(icmp(8, 1), protocol=1)),
        ("protocol", head + ip_packet(udp(PORT), protocol=rng.choice((2, 6, 47, 132)))),
    ]
    return rng.choice(frames)


# -- a flood, while the client works -------------------------------------------------------------

FLOODER = """
import random
import socket
import sys
from flood import hostile
from namespaces import INTERFACE
rng = random.Random(59)
mine, its = (bytes.fromhex(word) for word in sys.argv[2:4])
frames = [hostile(rng, mine, its)[1].ljust(60, b"\\0") for _ in range(4096)]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as opened:
    opened.bind((INTERFACE, 0))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[1])):
        opened.send(frames[number % len(frames)])
print("sent", flush=True)
"""


def test_a_flood_beside_an_honest_client(kind):
    """Given a neighbour that floods, without a pause, while a client pushes, reads what it pushed,
    draws and updates. Expect each operation to succeed within a bound of requests sent again, the
    server alive, and its counters to say what came."""
    with serving(kind) as server, Client(URL, timeout=60.0) as client:
        command = [sys.executable, "-c", FLOODER, str(FLOOD), mac_of(INTERFACE).hex()]
        command.append(server_mac().hex())
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        keys = client.extend("main", rows := plain_rows(200))
        retries, told = [], facts(server)
        with subprocess.Popen(the_pair().client.inside(command), **pipes) as flooder:
            assert flooder.stdout.readline() == "ready\n"
            flooder.stdin.write("go on\n")
            flooder.stdin.flush()
            while flooder.poll() is None or len(retries) < 40:
                before = client.counters()["retransmissions"]
                if len(retries) % 4 == 0:
                    keys = client.extend("main", rows := plain_rows(200, len(retries)))
                elif len(retries) % 4 == 1:
                    assert all_there(client, keys, rows)
                elif len(retries) % 4 == 2:
                    batch = client.sample("main", 64)
                    assert len(batch) == 64
                else:
                    client.update_priorities("main", batch.keys, np.ones(64))
                retries.append(client.counters()["retransmissions"] - before)
            assert flooder.wait() == 0
        assert max(retries) <= RETRIES, retries
        after = facts(server)
        grown = {name: after[name] - told[name] for name in after if after[name] > told[name]}
        assert grown["conflict"] > 0 and grown["vlan"] > 0 and grown["source"] > 0
        words = f"{sum(retries)} requests sent again, {max(retries)} at most within one"
        print(f"\n{kind}: {FLOOD} frames beside {len(retries)} operations: none failed, {words}")
        print("  counted:", *(f"{name} {grown[name]}" for name in grown if "mbufs" not in name))
