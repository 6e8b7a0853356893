"""Two shards on one device with two queues, past the kernel of another network namespace: every
client gets to the shard it speaks to, those whose flow landed on the other queue after being told.
Nobody here computes how raw sockets spread flows, so clients try ports until one lands.

    make test-dpdk-veth, as root
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import namespaces
import numpy as np
import pytest
from conformance import plain, plain_rows

from replay_server import Client, Server, errors

CLIENTS, PORT = 8, 7400
DEVICE = f"vdev=net_af_packet,iface={namespaces.INTERFACE},queues=2"
SAME = r"with queues=2,mbufs=\d+ and mtu=1400: say the same"
WRONG = {
    (2, DEVICE): "the shards of that device are at ports 7400 to 7401",
    (0, DEVICE): "the shard at that port is served already",
    (1, DEVICE.replace("queues=2", "queues=3")): SAME,
    (1, DEVICE + ",mtu=1024"): SAME,
    (1, DEVICE + ",mbufs=100"): SAME,
    (1, DEVICE.removesuffix(",queues=2")): SAME,
    (1, DEVICE.replace("packet", "xdp") + ",take=on"): "as net_af_packet: say the same",
}


def serve(shard: int, device: str = DEVICE) -> Server:
    namespaces.the_pair()
    with namespaces.inside(namespaces.the_pair().server):
        url = f"dpdk://{namespaces.SERVER}:{PORT + shard}?{device}"
        return Server([plain(capacity=256, writers=CLIENTS)], url, seed=shard, insecure=True)


def test_every_client_reaches_its_shard():
    """Given two shards and eight clients of each. Expect all of them served, some told to move, and
    each shard to hold its own clients' rows alone."""
    with ExitStack() as open_:
        shards = [open_.enter_context(serve(shard)) for shard in (0, 1)]
        assert [shard.address for shard in shards] == [
            f"udp://{namespaces.SERVER}:{PORT + shard}" for shard in (0, 1)
        ]
        clients = [open_.enter_context(Client(shards[i % 2].address)) for i in range(2 * CLIENTS)]
        keys = [client.extend("main", plain_rows(20, i)) for i, client in enumerate(clients)]
        for i, client in enumerate(clients):
            assert client.stats().sessions == CLIENTS
            batch = client.get("main", keys[i])
            for name, column in plain_rows(20, i).items():
                np.testing.assert_array_equal(batch[name][:, 0], column)
        told = [shard.counters()["wrong_queue"] for shard in shards]
        moved = [client.counters()["rebinds"] for client in clients]
        print("refused by each shard:", told, "moves of each client:", moved)
        assert sum(told) >= sum(moved) >= 1, "sixteen flows on two queues, and none went wrong"
        for shard in shards:
            counters = shard.counters()
            assert counters["sessions_opened"] == CLIENTS
            assert counters["steps_committed"] == 20 * CLIENTS


VISITS = """
import sys
from replay_server import Client
moved = 0
for i in range(int(sys.argv[2])):
    with Client(sys.argv[1]) as client:
        assert client.stats().sessions == 1
        moved += client.counters()["rebinds"]
print("moved", moved)
"""


def test_a_shard_alone_hears_all_its_clients():
    """Given a shard before the other one opens, between, and after that one closed; then the other
    one alone. Expect every client served at each time, whatever queue its flow lands on."""

    def visit(shard: Server) -> None:
        for _ in range(CLIENTS):
            with Client(shard.address, timeout=5.0, connect_timeout=1.0) as client:
                assert client.stats().sessions >= 1

    def reports(shard: Server) -> int:
        return next(fact.value for fact in shard.stats().facts if fact.name == "has_link")

    with serve(0) as first:
        visit(first)
        with serve(1) as other, Client(first.address) as stays:
            visit(other)
            assert reports(first) == 1 and reports(other) == 0
            first.close()
            visit(other)
            assert reports(other) == 1, "the card's facts are those of the first one that is there"
            with pytest.raises(errors.ReplayError):
                stays.stats()
        with serve(0) as first:
            visit(first)


def test_a_client_past_its_own_kernel_moves_too():
    """Given a dpdk:// client of raw sockets in the other namespace, ten times. Expect it served
    each time, and to have sent from other ports where it was told to."""
    device = f"vdev=net_af_packet,iface={namespaces.INTERFACE},ip=198.18.0.9"
    with serve(0) as shard, serve(1) as other:
        command = [
            sys.executable,
            "-c",
            VISITS,
            f"dpdk://{namespaces.SERVER}:{PORT}?{device}",
            "10",
        ]
        done = subprocess.run(
            namespaces.the_pair().client.inside(command), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        moved = int(done.stdout.split()[1])
        print("moves of ten clients past the kernel:", moved)
        assert moved >= 1 and other.counters()["wrong_queue"] >= moved
        assert shard.counters()["sessions_opened"] == 10


def test_a_shard_that_does_not_fit_its_card_is_told_why():
    """Given an open card and URLs that disagree with it. Expect a sentence each, and the card to go
    on; once its last shard has left, expect it to be opened anew, otherwise."""
    with serve(0) as first:
        for (shard, device), sentence in WRONG.items():
            with pytest.raises(errors.ReplayError, match=sentence):
                serve(shard, device)
        with serve(1), Client(first.address) as client:
            assert client.stats().sessions == 1
        with serve(1), Client(first.address) as client:
            assert client.stats().sessions == 1, "a shard that came back"
    with serve(5, DEVICE.removesuffix(",queues=2")) as other, Client(other.address) as client:
        assert client.stats().sessions == 1
