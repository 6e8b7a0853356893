"""Both units of deploy/, started by a real systemd: sandbox, restarts, first boot, what is left."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Tree
from units import ROOT, Systemd, left_out

WHY = left_out()
pytestmark = pytest.mark.skipif(bool(WHY), reason=f"left out: {WHY}")
needs_dpdk = pytest.mark.skipif(
    not (ROOT / "replay_server/_dpdk.so").exists(),
    reason="left out: no data plane is built here (make dpdk)",
)
TABLES = """[server]
url = "udp://127.0.0.1:7400"
sessions = 4
batch_max = 16
weights_max = 0

[[table]]
name = "main"
capacity = 100
columns = [{ name = "x", dtype = "float32", shape = [2] }]
sampler = "uniform"
"""
CLIENT = """
import numpy as np
from replay_server import Client
with Client("{address}", connect_timeout=20) as client:
    client.extend("main", {{"x": np.ones((20, 2), np.float32)}})
    print(len(client.sample("main", 8)))
"""
BUSY = """
import socket, sys
taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taken.bind(("127.0.0.1", 7400))
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def kernel_udp(tmp_path) -> Iterator[Systemd]:
    """The unit for kernel UDP, not started."""
    Tree(tmp_path / "tree").put("dev/vfio/nothing")
    systemd = Systemd("replay-server", tmp_path, {}, user=False)
    (tmp_path / "etc/replay-server/server.toml").write_text(TABLES)
    with systemd:
        yield systemd


@pytest.fixture
def card(tmp_path) -> Iterator[Systemd]:
    """The unit for DPDK, not started, on a host whose card is with vfio-pci and has its pages."""
    tree = Tree(tmp_path / "tree")
    tree.nic(driver="vfio-pci", interface="", group="7")
    (tmp_path / "tree/dev/vfio/7").unlink()  # a device's file is made inside
    tree.pages(2048, {0: 2048})
    tree.mount()
    tree.put("told", "serve\n")
    systemd = Systemd("replay-server-dpdk", tmp_path, {}, user=True)
    (tmp_path / "etc/replay-server/server.toml").write_text(TABLES)
    with systemd:
        yield systemd


def test_the_unit_serves_and_comes_back(kernel_udp):
    """Given the unit for kernel UDP. Expect rows and draws in its sandbox, as no root; killed, it
    serves again; stopped, it ends well."""
    systemd = kernel_udp
    systemd.call("start", "replay-server")
    systemd.until_said("serving at udp://127.0.0.1:7400")
    assert systemd.python(CLIENT.format(address="udp://127.0.0.1:7400")) == "8\n"
    first = systemd.until(ActiveState="active")
    owner = systemd.inside("stat", "-c", "%u", f"/proc/{first['MainPID']}").stdout.strip()
    assert int(owner) >= 61184, "a dynamic user's number"
    systemd.kill()
    systemd.until_said("serving at udp://127.0.0.1:7400", times=2)
    assert systemd.until(ActiveState="active")["NRestarts"] == "1"
    assert systemd.python(CLIENT.format(address="udp://127.0.0.1:7400")) == "8\n"
    systemd.call("stop", "replay-server")
    assert systemd.until(ActiveState="inactive")["Result"] == "success"


def test_what_can_heal_is_tried_again_and_what_cannot_is_not(kernel_udp):
    """Given a port that another process has, longer than five starts take. Expect starts until it
    is free. Given a word that is wrong. Expect one start, and a failure that stays."""
    systemd = kernel_udp
    with systemd.beside(BUSY):
        systemd.call("start", "replay-server")
        systemd.until_said("taken by another program", times=7)
    systemd.until_said("serving at udp://127.0.0.1:7400")
    assert int(systemd.until(ActiveState="active")["NRestarts"]) >= 6
    systemd.call("stop", "replay-server")
    (systemd.folder / "etc/replay-server/server.toml").write_text("[server]\nsesions = 4\n")
    systemd.call("start", "replay-server")
    ended = systemd.until(ActiveState="failed")
    assert (ended["NRestarts"], ended["ExecMainStatus"]) == ("0", "2")


def test_the_first_boot_of_a_card(card):
    """Given vfio not loaded and the card's server started. Expect it loaded first, the card's group
    given to a user who is not root, and open to the sandbox (no such device: none is behind it);
    the card stays over a crash and goes back at a stop; of /run only its own folder is touched."""
    systemd, back = card, "+ echo 0000:03:00.0 > /opt/tree/sys/bus/pci/devices"
    systemd.inside("sh", "-c", "mkdir /run/dpdk; chmod 700 /run/dpdk; echo theirs > /run/dpdk/file")
    systemd.call("start", "replay-server-dpdk")
    systemd.until_said("serving")
    assert "No such device" in systemd.said.read_text(), systemd.text()
    assert "modprobe vfio_pci" in (systemd.folder / "log/modprobe").read_text()
    assert os.stat(systemd.folder / "tree/dev/vfio/7").st_uid == 990
    number = systemd.until(ActiveState="active")["MainPID"]
    assert systemd.inside("stat", "-c", "%u", f"/proc/{number}").stdout == "990\n"
    places = ("stat", "-c", "%U", "/run/replay-server-dpdk", "/run/dpdk")
    assert systemd.inside(*places).stdout == "replay-server\nroot\n"
    systemd.kill()
    systemd.until_said("serving", times=2)
    assert "stays: the service ended with signal" in systemd.said.read_text()
    assert back not in systemd.said.read_text()
    systemd.call("stop", "replay-server-dpdk")
    assert systemd.until(ActiveState="inactive")["Result"] == "success"
    assert back in systemd.said.read_text()
    left = systemd.inside("sh", "-c", "ls /run/replay-server-dpdk; cat /run/dpdk/file")
    assert left.stdout == "theirs\n" and "No such file" in left.stderr


def test_a_card_that_lacks_something_is_tried_until_it_has_it(card):
    """Given a host with no free hugepage (exit code 1). Expect more starts than systemd's usual
    five, then serving. Given nic.sh's refusal of a card in use. Expect the same. Given wrong words
    (exit code 2). Expect one start."""
    systemd, tree = card, card.folder / "tree"
    (tree / "told").write_text("1\n")
    systemd.call("start", "replay-server-dpdk", "--no-block")
    systemd.until_said("group:", times=7)
    (tree / "told").write_text("serve\n")
    systemd.until_said("serving")
    systemd.call("stop", "replay-server-dpdk")
    device = tree / "sys/bus/pci/devices/0000:03:00.0"
    (device / "driver").rename(tree / "kept")
    (device / "net/ens1").mkdir(parents=True)
    Tree.default_route(_at(tree), "ens1")
    systemd.call("start", "replay-server-dpdk", "--no-block")
    systemd.until_said("in use: ens1 carries the default route", times=7)
    (device / "net/ens1").rmdir()
    (tree / "kept").rename(device / "driver")
    systemd.until_said("serving", times=2)
    systemd.call("stop", "replay-server-dpdk")
    (tree / "told").write_text("2\n")
    systemd.call("start", "replay-server-dpdk", "--no-block")
    ended = systemd.until(ActiveState="failed")
    assert (ended["NRestarts"], ended["ExecMainStatus"]) == ("0", "2")


def variables(url: str) -> dict[str, str]:
    """The .env of a server at this address."""
    return {
        "REPLAY_SERVER_FILE": "/etc/replay-server/server.toml",
        "REPLAY_PORT": "0000:03:00.0",
        "REPLAY_NODE": "0",
        "REPLAY_HUGEPAGES": "1024",
        "REPLAY_HUGEPAGE_SIZE": "2M",
        "REPLAY_URL": url,
        "REPLAY_SERVER_OPTIONS": "--insecure",
    }


@needs_dpdk
def test_the_sandbox_of_a_card_lets_dpdk_serve(card):
    """Given the build's own data plane, and memory in place of a card. Expect rows and draws, and
    nothing left in /run."""
    url = "dpdk://10.0.0.1:7400?vdev=net_memif,role={},socket=/run/replay-server-dpdk/memif"
    card.environment(variables(url.format("server")))
    card.call("start", "replay-server-dpdk")
    card.until_said("serving at dpdk://")
    assert "No such file" in card.inside("ls", "/run/dpdk").stderr
    assert card.python(CLIENT.format(address=url.format("client"))) == "8\n"
    card.call("stop", "replay-server-dpdk")
    assert card.until(ActiveState="inactive")["Result"] == "success"
    assert "No such file" in card.inside("ls", "/run/replay-server-dpdk").stderr


@needs_dpdk
@pytest.mark.parametrize("kind", ["af_packet", "af_xdp"])
def test_virtual_devices_need_what_the_unit_says(card, kind):
    """Given the lines that the unit's comments name for a device, beside it, and a veth pair.
    Expect rows and draws from a kernel client at its other end."""
    text = (ROOT / "deploy/replay-server-dpdk.service").read_text()
    wanted = re.search(rf"^# {kind}:\n((?:#   .*\n)+)", text, re.M)[1]
    rights = wanted.replace("#   ", "")
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] != resource.RLIM_INFINITY:
        # A systemd that may not raise this machine's own limit: LimitMEMLOCK does nothing then.
        rights += "AmbientCapabilities=CAP_IPC_LOCK\nCapabilityBoundingSet=CAP_IPC_LOCK\n"
    card.rights(rights)
    for words in (
        "link add ours type veth peer name theirs",
        "link set ours up",
        "link set theirs up",
        "addr add 10.0.0.2/24 dev theirs",
    ):
        done = card.inside("ip", *words.split())
        assert done.returncode == 0, done.stderr
    card.python("from replay_server.bench.namespaces import send_whole_frames as f; f('theirs')")
    url = f"dpdk://10.0.0.1:7400?vdev=net_{kind},iface=ours"
    card.environment(variables(url) | {"REPLAY_PORT": "none"})
    card.call("start", "replay-server-dpdk", "--no-block")
    card.until_said("serving at udp://10.0.0.1:7400")
    assert card.python(CLIENT.format(address="udp://10.0.0.1:7400")) == "8\n"


def _at(root: Path) -> Tree:
    """A tree that is there already."""
    tree = object.__new__(Tree)
    tree.root = root
    return tree
