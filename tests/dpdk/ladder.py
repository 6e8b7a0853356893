"""The ladder's rungs over DPDK: short runs, whole and not judged by their times.

Run by `make test-dpdk`; its name keeps it out of `make test`, where DPDK is not installed.
"""

from __future__ import annotations

import os

import pytest
from test_ladder import climb, expect_whole


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
