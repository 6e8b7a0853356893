"""Receive queues that a server over AF_XDP would not hear: doctor and nic.sh say the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hosts import Tree
from test_nic import SCRIPT

from replay_server.observe.doctor import examine, lines


@pytest.mark.parametrize("count", [1, 8, 16, 64])
def test_a_card_of_several_receive_queues_is_told_of(tmp_path: Path, count):
    """Given a card whose interface has one receive queue, and one with more of them in use.
    Expect doctor and nic.sh to say of the others alone how to have one, and doctor no more shards
    than serve takes."""
    tree = Tree(tmp_path)
    tree.nic(group="7")
    for queue in range(count):
        (tmp_path / f"sys/class/net/ens1/queues/rx-{queue}").mkdir(parents=True)
        (tmp_path / f"sys/class/net/ens1/queues/tx-{queue}").mkdir()
    command = ["sh", str(SCRIPT), "status", "--root", str(tmp_path)]
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    told = f"one receive queue, and ens1 has {count}: ethtool -L ens1 combined 1"
    doctor = "\n".join(lines(examine(tmp_path)))
    assert (told in script) == (told in doctor) == (count > 1)
    more = {64: " 1, or ethtool -L ens1 combined 16 and serve --shards 16"}
    assert count == 1 or more.get(count, f" 1, or serve --shards {count}") in doctor
    assert ("AF_XDP" in script) == (count > 1)
