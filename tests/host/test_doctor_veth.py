"""What doctor says of veth pairs: a kernel's client behind one has to finish its checksums."""

from __future__ import annotations

import subprocess
import sys

import pytest
from apart import apart

from replay_server.observe.doctor import _about_host
from replay_server.observe.elf import Object
from replay_server.observe.host import Host

LOOK = """set -e
ip link add one type veth peer name two
ip link add beside type bridge
exec {python} -c '
from pathlib import Path
from replay_server.observe.host import read_host
print(*read_host(Path("/")).veths)'
"""


def test_the_ends_of_a_veth_pair_are_seen():
    """Given a namespace with a veth pair and a bridge. Expect the pair's two ends."""
    words = [*apart("--net"), "sh", "-c", LOOK.format(python=sys.executable)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and sorted(done.stdout.split()) == ["one", "two"], done


@pytest.mark.parametrize(
    ("names", "said"),
    [((), ""), (("a", "b"), "(a, b)"), (("a", "b", "c", "d", "e"), "(a, b, c and 2 more)")],
)
def test_the_other_end_of_a_veth_pair_is_told_what_it_needs(names, said):
    """Given ends of veth pairs, and none. Expect one sentence with the command, where the data
    plane is ready; none where it is not, or without such ends."""
    ready = Object("_dpdk.so", dpdk="shared", transport=True)
    for plane, count in ((ready, bool(names)), (None, 0)):
        told = [line for line in _about_host(Host(veths=names), plane, 0) if "veth pair" in line]
        assert len(told) == count and all("ethtool -K INTERFACE tx off" in line for line in told)
        assert all(said in line for line in told)
