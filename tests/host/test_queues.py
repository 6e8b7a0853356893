"""Receive queues that a server over AF_XDP would not hear: doctor and nic.sh say the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hosts import Tree
from test_nic import SCRIPT

from replay_server.observe.doctor import examine, lines


@pytest.mark.parametrize("count", [1, 8])
def test_a_card_of_several_receive_queues_is_told_of(tmp_path: Path, count):
    """Given a card whose interface has one receive queue, and one with eight of them in use.
    Expect doctor and nic.sh to say of the second alone how to have one."""
    tree = Tree(tmp_path)
    tree.nic(group="7")
    for queue in range(count):
        (tmp_path / f"sys/class/net/ens1/queues/rx-{queue}").mkdir(parents=True)
        (tmp_path / f"sys/class/net/ens1/queues/tx-{queue}").mkdir()
    command = ["sh", str(SCRIPT), "status", "--root", str(tmp_path)]
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    told = f"one receive queue, and ens1 has {count}: ethtool -L ens1 combined 1"
    assert (told in script) == (told in "\n".join(lines(examine(tmp_path)))) == (count > 1)
    assert ("AF_XDP" in script) == (count > 1)
