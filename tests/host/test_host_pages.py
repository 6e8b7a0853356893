"""What doctor and nic.sh make of hugepages, of any size and reserved ones, and of a host without an
IOMMU: what doctor promises, its commands bring about.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hosts import I40E, KMODS, Tree

from replay_server.observe.doctor import AFTER, NOT, NOW, Report, Verdict, judge, lines
from replay_server.observe.elf import Driver
from replay_server.observe.host import read_host

ROOT = Path(__file__).resolve().parents[2]
CARD, USER = "0000:03:00.0", 1000
DRIVER = Driver("net_i40e", "x.so", "23.0", KMODS["net_i40e"], ((*I40E, 0xFFFF, 0xFFFF),))


@pytest.fixture
def tree(tmp_path) -> Tree:
    """A host whose only card is at vfio-pci, in an IOMMU group of its own, with memory to spare."""
    tree = Tree(tmp_path / "host")
    tree.nic(driver="vfio-pci", group="7", interface="")
    tree.memory(262144, 200000)
    tree.mount()
    return tree


def look(tree: Tree, uid: int = 0) -> Verdict:
    host = read_host(tree.root, uid)
    return judge(host, host.nics[0], [DRIVER], None, "", uid)


def nic_sh(tree: Tree, *words: str) -> subprocess.CompletedProcess:
    command = ["sh", str(ROOT / "deploy/nic.sh"), *words, "--root", str(tree.root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def reserve(tree: Tree, size_kb: int, count: int) -> None:
    """So many pages are mapped by a process, and none of them touched: all count as free."""
    tree.put(f"sys/kernel/mm/hugepages/hugepages-{size_kb}kB/resv_hugepages", f"{count}\n")


@pytest.mark.parametrize(
    ("sizes_kb", "wanted"),
    [
        ((64, 2048, 32768, 1 << 20), "1024 --size 2M"),
        ((2048, 32768, 1 << 20), "1024 --size 2M"),
        ((524288, 16 << 20), "4 --size 512M"),
        ((64,), "32768 --size 64K"),
    ],
)
def test_pages_of_arm64(tree, sizes_kb, wanted):
    """Given the sizes of kernels for arm64. Expect pages of 2 MiB asked for where there are such,
    and a command that nic.sh takes: then the card is usable."""
    for size in sizes_kb:
        tree.pages(size, {0: 0})
    verdict = look(tree)
    assert verdict.port == AFTER and verdict.commands[0].endswith(f"hugepages {wanted}")
    done = nic_sh(tree, "hugepages", *wanted.split())
    assert done.returncode == 0, done.stderr
    for place in tree.root.glob("sys/**/nr_hugepages"):
        place.with_name("free_hugepages").write_text(place.read_text())
    assert look(tree).port == NOW


def test_pages_that_another_process_has_reserved(tree):
    """Given 1024 free pages, all of them reserved, then all but 32. Expect more asked for, and said
    whose they are; then usable now."""
    tree.pages(2048, {0: 1024})
    reserve(tree, 2048, 1024)
    verdict = look(tree)
    assert verdict.port == AFTER and verdict.commands[0].endswith("hugepages 2048 --size 2M")
    told = lines(Report(read_host(tree.root, 0), None, None, "", 0, (verdict,)))
    assert "hugepages of 2 MiB: 0 free of 1024, 1024 reserved by others" in told
    assert "hugepages-2048kB: 0 free of 1024" in nic_sh(tree, "status").stdout
    assert "are set, 0 of them free" in nic_sh(tree, "hugepages", "1024").stdout
    reserve(tree, 2048, 1024 - 32)
    assert look(tree).port == NOW


def test_a_user_without_an_iommu_is_promised_nothing(tree):
    """Given a card at its kernel driver and no IOMMU. Expect root told of --no-iommu; an ordinary
    user, whether vfio may do without or not, that only root may open it, and no command."""
    tree = Tree(tree.root.parent / "other")
    tree.nic()
    tree.pages(2048, {0: 512})
    tree.modules("vfio_pci")
    assert any("--no-iommu" in command for command in look(tree).commands)
    for switch in ("N\n", "Y\n"):
        tree.put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", switch)
        verdict = look(tree, USER)
        assert (verdict.port, verdict.commands) == (NOT, ())
        assert "only root may open the card" in verdict.why


def test_who_stays_with_the_kernels_driver_is_agreed_on():
    """Given nic.sh, which leaves some cards where they are. Expect dpdk:// to take those."""
    script = (ROOT / "deploy/nic.sh").read_text()
    left = re.search(r"\n    (mlx4_core[^)]*)\)", script)[1].split(" | ")
    source = (ROOT / "native/dpdk/dpdk_check.c").read_text()
    taken = re.search(r"those\[\] = \{(.*?)\};", source, re.S)[1]
    assert "mana" in left and all(f'"{name}"' in taken for name in left)
