"""The ladder's cases over DPDK: short runs, whole and not judged by their times.

Run by `make test-dpdk`; its name keeps it out of `make test`, where DPDK is not installed.
"""

from __future__ import annotations

import os

import pytest
from test_ladder import climb, expect_whole

from replay_server.bench import namespaces


def test_the_ladder_over_memif_and_udp(tmp_path, capsys):
    """Given shared memory beside kernel UDP. Expect every cell measured, and a verdict of T1."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("both ends poll, and there is one core")
    names = ("udp", "memif")
    rows = climb(tmp_path, *names)
    expect_whole(rows, names)
    verdicts = [row for row in rows if row["name"] == "ladder.T1"]
    assert len(verdicts) == 2 and all(row["value"] in ("met", "not met") for row in verdicts)
    assert f"8 KiB, frames of 1400 B: at least 32.7 % lower: {verdicts[1]['value']}" in (
        capsys.readouterr().out
    )


def test_the_ladder_over_a_veth_pair(tmp_path):
    """Given the same pair with kernel UDP, then with DPDK at the server's end, then at both. Expect
    every cell measured: none has an address that a kernel holds."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("both ends poll, and there is one core")
    if why := namespaces.missing():
        pytest.skip(why)
    names = ("veth-udp", "af_packet", "af_xdp", "af_packet2", "af_xdp2")
    expect_whole(climb(tmp_path, *names), names)


def test_the_ladder_asleep(tmp_path):
    """Given both ends asleep, over memif and UDP. Expect every cell measured."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("both ends are pinned, and there is one core")
    names = ("udp-sleep", "memif-sleep")
    expect_whole(climb(tmp_path, *names), names)
