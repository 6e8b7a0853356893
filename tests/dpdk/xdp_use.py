"""An XDP program on an interface is a use of it, to doctor as to nic.sh."""

from __future__ import annotations

import subprocess
import sys

from conformance import plain
from hosts import tree_of_xa
from interfaces import DOCTOR, said_by_script, used
from namespaces import the_pair
from veth import PORT

from replay_server import Server


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
