"""DPDK on hugepages of 1 GiB alone, as `make test-dpdk` sees it: a page is reserved for the time of
the test, where this machine has one. Its name keeps it out of `make test`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import SERVE, played

PAGES = Path("/sys/kernel/mm/hugepages")
SPARE_KB = 4 << 20  # reserve none where others would miss it


def free() -> int:
    return sum(int(path.read_text()) for path in PAGES.glob("*/free_hugepages"))


@pytest.fixture
def page(tmp_path) -> Iterator[str]:
    """A url on hugepages, where one page of 1 GiB is the only one free."""
    count = PAGES / "hugepages-1048576kB/nr_hugepages"
    available = Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]
    if free() or not count.exists() or int(available) < SPARE_KB:
        pytest.skip("left out: this machine has hugepages of its own, or no room for one of 1 GiB")
    before = count.read_text()
    try:
        count.write_text(f"{int(before) + 1}\n")
    except OSError:
        pytest.skip("left out: only root may reserve a hugepage")
    try:
        if not free():
            pytest.skip("left out: no 1 GiB of this machine's memory is in one piece")
        yield f"dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={tmp_path}/memif,huge=on"
    finally:
        count.write_text(before)


def serving(url: str) -> subprocess.Popen:
    """A server in a process of its own: DPDK starts in one way in each."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_one_page_of_a_gibibyte_is_enough(page):
    """Given the page taken by nobody. Expect a server on it, rows and draws."""
    with serving(page) as process:
        address = process.stdout.readline().strip()
        try:
            assert address.startswith("dpdk://") and free() == 0, address
            played(address)
        finally:
            process.stdin.close()


def test_without_a_page_it_is_a_sentence(tmp_path):
    """Given no free hugepage. Expect the sentence that names the script."""
    if free():
        pytest.skip("left out: this machine has hugepages of its own")
    url = f"dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={tmp_path}/memif,huge=on"
    with serving(url) as process:
        said = process.stdout.read()
    assert re.search(r"no hugepage is free.*nic\.sh", said), said
