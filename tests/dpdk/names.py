"""Interfaces of the kernel's with odd names: only what is theirs is found with them.

A name is 1 to 15 bytes without `/`, `:` and spaces, so it may be a pattern of shells, or no UTF-8.
Run by `make test-dpdk`, as root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from interfaces import told
from losses import attach
from namespaces import inside, the_pair
from veth import PORT, ip

from replay_server.observe.xdp import with_xdp

PATTERNS = ("x*", "x?", "x[a-c]", "x\\b")  # that match xb
# A sysfs where the interface $1 has a virtual function, xb; then a command.
FUNCTION = [
    "unshare",
    "-m",
    "sh",
    "-ec",
    'mount -t tmpfs none /sys/class/net; mkdir -p "/sys/class/net/$1/device/virtfn0/net/xb"'
    '; shift; exec "$@"',
    "sh",
]


@contextmanager
def cable(name: str) -> Iterator[None]:
    """The server's namespace with an interface of that name, and xb, which carries a route."""
    with inside(the_pair().server), ExitStack() as stack:
        ip("link", "add", name, "type", "veth", "peer", "name", "xb")
        stack.callback(ip, "link", "del", name)
        ip("link", "set", name, "up")
        ip("link", "set", "xb", "up")
        ip("route", "add", "198.18.9.0/24", "dev", "xb")
        yield


@pytest.mark.parametrize("name", PATTERNS)
def test_a_name_that_is_a_pattern_has_no_functions_of_others(name):
    """Given an interface whose name is a pattern that matches another one's, which has a virtual
    function in use. Expect AF_XDP to find nothing in use; and that function, where it is its own.
    """
    url = f"dpdk://198.18.5.9:{PORT}?vdev=net_af_xdp,iface={name}&probe=off"
    with cable(name):
        assert told("server", url, *FUNCTION, "xb").startswith("opened\n")
        says = "xb carries a route, and AF_XDP takes every frame"
        assert says in told("server", url, *FUNCTION, name)


@pytest.mark.parametrize("name", [b"x\xff\xfe", "xdp\N{SNOWMAN}".encode()])
def test_a_program_is_seen_where_the_name_is_of_any_bytes(name):
    """Given an XDP program on an interface whose name is no UTF-8, or no ASCII. Expect the name and
    the program's, as doctor tells them."""
    named = os.fsdecode(name)
    with cable(named), inside(the_pair().server):
        attach(the_pair().server, named, "firewall")
        assert (named, "firewall") in with_xdp()
