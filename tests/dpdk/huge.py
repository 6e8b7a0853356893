"""DPDK on hugepages, one of 1 GiB or a few small ones, as `make test-dpdk` sees it: they are
reserved for the time of a test, where this machine has some. Its name keeps it out of `make test`.
"""

from __future__ import annotations

import mmap
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import SERVE, played

PAGES = Path("/sys/kernel/mm/hugepages")
MAP_HUGETLB = 0x40000
SPARE_KB = 4 << 20  # reserve none where others would miss it


def free() -> int:
    return sum(int(path.read_text()) for path in PAGES.glob("*/free_hugepages"))


@contextmanager
def reserved(size_kb: int, pages: int, folder: Path) -> Iterator[str]:
    """A url on hugepages, where these are the only ones free."""
    count = PAGES / f"hugepages-{size_kb}kB/nr_hugepages"
    available = Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]
    if free() or not count.exists() or int(available) < SPARE_KB:
        pytest.skip("left out: this machine has hugepages of its own, or no room for some")
    before = count.read_text()
    try:
        count.write_text(f"{int(before) + pages}\n")
    except OSError:
        pytest.skip("left out: only root may reserve a hugepage")
    try:
        if free() != pages:
            pytest.skip("left out: this machine's memory is not in pieces so large")
        yield f"dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={folder}/memif,huge=on"
    finally:
        count.write_text(before)


@pytest.fixture
def page(tmp_path) -> Iterator[str]:
    """A url on hugepages, where one page of 1 GiB is the only one free."""
    with reserved(1 << 20, 1, tmp_path) as url:
        yield url


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


def test_too_few_pages_are_told_with_what_sets_more(tmp_path):
    """Given 16 MiB of small hugepages, less than the frames take. Expect the script's name, and no
    word of memory=, which does nothing there; memory= beyond them is told with what there is."""
    with reserved(2048, 8, tmp_path) as url:
        with serving(f"{url}&mtu=8960") as process:
            said = process.stdout.read()
        assert re.search(r"no memory for frames: too few hugepages.*nic\.sh hugepages", said), said
        assert "say memory=" not in said
        with serving(f"{url},memory=64") as process:
            said = process.stdout.read()
    assert "memory=64 is more than this host's free hugepages, 16 MiB" in said, said


def test_pages_that_another_process_reserved_are_not_free(tmp_path):
    """Given 8 pages, all mapped by a process that has touched none: the kernel counts them as free.
    Expect the sentence for none."""
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_HUGETLB
    with reserved(2048, 8, tmp_path) as url, mmap.mmap(-1, 16 << 20, flags):
        assert free() == 8
        with serving(url) as process:
            said = process.stdout.read()
    assert re.search(r"no hugepage is free.*nic\.sh", said), said


def test_without_a_page_it_is_a_sentence(tmp_path):
    """Given no free hugepage. Expect the sentence that names the script."""
    if free():
        pytest.skip("left out: this machine has hugepages of its own")
    url = f"dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={tmp_path}/memif,huge=on"
    with serving(url) as process:
        said = process.stdout.read()
    assert re.search(r"no hugepage is free.*nic\.sh", said), said
