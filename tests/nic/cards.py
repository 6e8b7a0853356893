"""What an emulated card shows beside the conformance suite: a host that answers, frames that get
lost, servers that die, drivers that come and go. Run by run.py with the plugin over_card; its name
keeps it out of `make test`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conformance import plain, plain_rows
from guest import ADDRESS, CARDS, MAC
from over_card import CARD, HOST, PAGES, Served, numbers

from replay_server import Client, Prioritized, ReplayError
from replay_server.observe.doctor import CARD_BYTES
from replay_server.server import ServerOptions
from replay_server.serving.compiled import compile_tables

IMAGE = Path(os.environ["NIC_IMAGE"])
BUSYBOX = next(IMAGE.glob("busybox-static/**/bin/busybox"))  # its ping: here may be none
CONFIG = compile_tables((plain(),), ServerOptions(seed=7))


TURNS_MAX, BENT = 400, 6  # frames bent on their way in until the test has seen enough


def bent(host) -> int:
    return host.wire.counts()["bent_inward"]


def neighbour() -> str:
    """Whose MAC the kernel here has for the server's address."""
    told = subprocess.run(["ip", "neigh", "show", HOST], capture_output=True, text=True, check=True)
    found = re.search(r"lladdr (\S+)", told.stdout)
    return found[1] if found else ""


def pages_free(host) -> int:
    told = host.shell("sh /bin/nic.sh status")
    return int(re.search(r"hugepages-2048kB: (\d+) free", told)[1])


def test_it_answers_arp_and_ping_as_the_card(host):
    """Given a server, no client. Expect three echoes, and the card's own MAC by ARP."""
    with Served((plain(),)):
        told = subprocess.run(
            [BUSYBOX, "ping", "-c", "3", "-w", "20", HOST], capture_output=True, text=True
        )
        assert " 3 packets received" in told.stdout, told.stdout
        assert neighbour() == MAC


def test_counters_of_both_ends_agree(host):
    """Given rows and batches, nothing lost. Expect the frames and datagrams of one side to be
    those of the other, and no drop."""
    with Served((plain(),)) as server, Client(server.address) as client:
        before = host.wire.counts()
        client.extend("main", plain_rows(1000))
        for _ in range(20):
            client.sample("main", 64)
        mine, seen = client.counters(), server.counters()
        after = host.wire.counts()
        assert seen["steps_committed"] == 1000 and seen["samples"] == 20
        assert seen["drop_size"] == seen["drop_checksum"] == seen["dropped"] == 0
        assert seen["dropped_in"] == 0
        if not mine["retransmissions"]:  # else some were under way while we looked
            assert seen["datagrams_in"] == mine["datagrams_out"]
            assert seen["datagrams_out"] == mine["datagrams_in"]
        assert after["lost"] == before["lost"]
        assert after["inward"] - before["inward"] <= mine["datagrams_out"] + 2  # and ARP


@pytest.mark.parametrize("seed", [1, 2])
def test_frames_lost_moved_and_bent_cost_nothing_acknowledged(host, seed):
    """Given a wire that loses 3 %, moves 5 % and bends 3 % of the frames. Expect every row by its
    key, draws by the reference's rule, and bent frames dropped with a counter."""
    rng = np.random.default_rng(seed)
    rows, before = plain_rows(600, seed), host.wire.counts()
    with Served((plain(sampler=Prioritized(0.6)),)) as server:
        with Client(server.address, timeout=60.0, connect_timeout=60.0) as client:
            host.wire.faults(seed, loss=0.03, reorder=0.05, bent=0.03)
            try:
                keys = client.extend("main", rows, timeout=60.0)
                for turn in range(TURNS_MAX):
                    if turn >= 10 and bent(host) - before["bent_inward"] >= BENT:
                        break
                    batch = client.sample("main", 48, timeout=60.0)
                    index = (batch.keys - keys[0]).astype(int)
                    assert np.array_equal(batch["x"][:, 0], rows["x"][index])
                    done = client.update_priorities("main", batch, rng.random(48), timeout=60.0)
                    assert (done.stale, done.unknown) == (0, 0)
            finally:
                host.wire.faults(0)
            stored, valid = client.rows("main", keys, timeout=60.0)
            assert valid.all() and all(np.array_equal(stored[n], rows[n]) for n in rows)
            seen = server.counters()
        after = host.wire.counts()
        assert seen["steps_committed"] == 600
        assert min(after[name] - before[name] for name in ("lost", "moved", "bent_outward")) > 0
        assert after["bent_inward"] - before["bent_inward"] >= BENT
        assert seen["dropped_in"] + seen["drop_checksum"] > 0, "nobody noticed a bent frame"


def test_a_killed_server_is_followed_and_leaves_nothing(host):
    """Given kill -9 under a client, and a successor. Expect an error in time, every hugepage free
    again without a hand, and rows at the successor."""
    with Served((plain(),)) as server, Client(server.address) as client:
        client.extend("main", plain_rows(50))
        host.kill("KILL")
        assert pages_free(host) == PAGES
        with pytest.raises(ReplayError):
            client.sample("main", 8, timeout=0.5)
        host.serve(CONFIG)
        with Client(server.address, connect_timeout=30.0) as again:
            assert again.size("main") == 0
            again.extend("main", plain_rows(50))
            assert len(again.sample("main", 8)) == 8


def test_a_card_takes_no_more_pages_than_doctor_says(host):
    """Given a server on the card. Expect its hugepages within the figure that doctor asks for."""
    with Served((plain(),)):
        used = PAGES - pages_free(host)
    assert 0 < used * (2 << 20) <= CARD_BYTES, used


def test_it_stops_and_tells_what_it_counted(host):
    """Given SIGTERM. Expect its counters, the card and every hugepage free."""
    with Served((plain(),)) as server, Client(server.address) as client:
        client.extend("main", plain_rows(70))
        said = numbers(host.kill("TERM"))
    assert said["steps_committed"] == 70 and pages_free(host) == PAGES


def test_our_script_gives_the_card_back_and_takes_it_again(host):
    """Given unbind, twice, bind, twice. Expect the kernel's driver, ours, and no second step."""
    if host.pid:
        host.kill("TERM")
    told = host.shell(f"sh /bin/nic.sh unbind {ADDRESS}")
    assert f"vfio-pci -> {CARDS[CARD][2]}" in told
    assert "+" not in host.shell(f"sh /bin/nic.sh unbind {ADDRESS}")
    assert "interfaces=eth0" in host.shell("sh /bin/nic.sh status")
    refused = host.shell(
        f"replay-serve --insecure /tmp/config 'dpdk://{HOST}:1?port={ADDRESS}'", code=1
    )
    assert "not to vfio-pci" in refused and len(refused.splitlines()) == 1
    host.shell("ip link set eth0 up && ip addr add 198.18.9.1/24 dev eth0")
    used = host.shell(f"sh /bin/nic.sh bind {ADDRESS} 2>&1", code=2)
    assert "in use: eth0 carries the route to 198.18.9.0/255.255.255.0" in used and "+" not in used
    host.shell("ip route del 198.18.9.0/24 dev eth0")  # its address is all it has then
    used = host.shell(f"sh /bin/nic.sh bind {ADDRESS} 2>&1", code=2)
    assert "in use: eth0 carries the address 198.18.9.1/24" in used and "+" not in used
    host.shell("ip link set eth0 down")
    told = host.shell(f"sh /bin/nic.sh hugepages {PAGES // 2}")
    assert f"= {PAGES} hugepages of 2M are set" in told and pages_free(host) == PAGES
    assert "-> vfio-pci" in host.shell(f"sh /bin/nic.sh bind {ADDRESS}")
    assert "+" not in host.shell(f"sh /bin/nic.sh bind {ADDRESS}")
    host.serve(CONFIG)
    with Client(f"udp://{HOST}:7400", connect_timeout=30.0) as client:
        client.extend("main", plain_rows(10))
        assert client.size("main") == 10


def test_a_card_unbound_under_its_server_ends_it_with_a_sentence(host):
    """Given nic.sh unbind while a client pushes and samples. Expect one sentence, the counters and
    exit code 1 from the server; the kernel has the card, and a successor serves once it is back."""
    with Served((plain(),)) as server, Client(server.address) as client:
        client.extend("main", plain_rows(40))
        client.sample("main", 8)
        assert "vfio-pci ->" in host.shell(f"sh /bin/nic.sh unbind {ADDRESS} --force", seconds=90)
        said = host.ended()
        assert f"the card {ADDRESS} is taken away" in said and "exit 1" in said, said
        assert numbers(said)["steps_committed"] == 40
        assert (
            "interfaces=eth0" in host.shell("sh /bin/nic.sh status") and pages_free(host) == PAGES
        )
        with pytest.raises(ReplayError):
            client.sample("main", 8, timeout=0.5)
    assert "-> vfio-pci" in host.shell(f"sh /bin/nic.sh bind {ADDRESS}")
    host.serve(CONFIG)
    with Client(server.address, connect_timeout=30.0) as again:
        again.extend("main", plain_rows(10))
        assert again.size("main") == 10


def test_the_image_is_small():
    """Given the guest's whole disk. Expect less than 30 MB."""
    assert (IMAGE / "initramfs").stat().st_size < 30e6


def test_it_serves_under_uio_too(host):
    """Given uio_pci_generic instead of vfio-pci, bound by our script. Expect rows and draws, and
    vfio-pci again behind that."""
    if host.pid:
        host.kill("TERM")
    host.shell(f"sh /bin/nic.sh unbind {ADDRESS}")
    bound = host.shell(f"sh /bin/nic.sh bind {ADDRESS} --driver uio_pci_generic")
    assert "-> uio_pci_generic" in bound
    host.serve(CONFIG)
    with Client(f"udp://{HOST}:7400", connect_timeout=30.0) as client:
        rows = plain_rows(200)
        keys = client.extend("main", rows)
        stored, valid = client.rows("main", keys)
        assert valid.all() and np.array_equal(stored["x"], rows["x"])
        assert len(client.sample("main", 32)) == 32
    host.kill("TERM")
    assert "uio_pci_generic ->" in host.shell(f"sh /bin/nic.sh unbind {ADDRESS}")
    assert "-> vfio-pci" in host.shell(f"sh /bin/nic.sh bind {ADDRESS}")
