"""An XDP program on an interface is a use of it, to doctor as to nic.sh."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conformance import plain
from hosts import tree_of_xa
from interfaces import DOCTOR, said_by_script, used
from namespaces import inside, the_pair
from veth import PORT, ip

from replay_server import Client, ReplayError, Server

SIOCETHTOOL, ETHTOOL_SCHANNELS = 0x8946, 0x3D


def test_a_server_over_af_xdp_is_a_use_of_its_interface(tmp_path):
    """Given a server over AF_XDP, without an address of the kernel's. Expect doctor and nic.sh to
    say in the same words that its program is there, and nothing once it has gone."""
    tree = tree_of_xa(tmp_path)
    url = f"dpdk://198.18.5.9:{PORT}?vdev=net_af_xdp,iface=xa&probe=off"
    words = the_pair().server.inside([sys.executable, "-c", DOCTOR])
    there = "an XDP program is on xa: a server over AF_XDP's, or a firewall"
    with used("nothing"):
        for expected in (there, ""):
            server = Server((plain(),), url, insecure=True) if expected else None
            found = subprocess.run(words, capture_output=True, text=True, check=True)
            said = said_by_script(tree)
            if server is not None:
                server.close()
            assert (expected in found.stdout) and bool(found.stdout.strip()) == bool(expected)
            assert (expected in said) and bool(said) == bool(expected)


def set_queues(interface: str, count: int) -> None:
    """As `ethtool -L INTERFACE rx COUNT`, of a veth pair's end."""
    wanted = array.array("I", [ETHTOOL_SCHANNELS, 0, 0, 0, 0, count, 1, 0, 0])
    asked = struct.pack("16sP16x", interface.encode(), wanted.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, asked)


@contextmanager
def queues(count: int) -> Iterator[None]:
    """The server's namespace with xq, of so many receive queues."""
    made = f"xq numrxqueues {count} type veth peer name xr".split()
    the_pair()
    with inside(the_pair().server):
        ip("link", "add", *made)
        try:
            for end in ("xq", "xr"):
                ip("link", "set", end, "up")
            yield
        finally:
            ip("link", "del", "xq")


def test_an_interface_of_more_queues_than_are_heard_is_refused():
    """Given an interface with two receive queues. Expect a server and a client over AF_XDP refused
    with the command that leaves one, and a server once that is done; one over raw sockets served
    as it is."""
    url = f"dpdk://198.18.5.9:{PORT}?vdev=net_af_xdp,iface=xq&probe=off"
    says = "xq spreads what comes over 2 receive queues, and AF_XDP would hear 1"
    with queues(2):
        for open_ in (
            lambda: Server((plain(),), url, insecure=True),
            lambda: Client(url + "&ip=198.18.5.8", timeout=5.0),
        ):
            with pytest.raises(ReplayError, match=says) as refused:
                open_()
        Server((plain(),), url.replace("af_xdp", "af_packet"), insecure=True).close()
        command = re.search(r"`ethtool -L xq rx (\d)`", str(refused.value))
        set_queues("xq", int(command[1]))
        Server((plain(),), url, insecure=True).close()
