"""deploy/nic.sh and the processes of a host: what they have open, and who they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import Tree
from test_nic import CARD, call, contents, steps


def a_host(folder: Path, **card: str) -> Tree:
    """With one card in an IOMMU group."""
    tree = Tree(folder / "host")
    tree.nic(group="7", **card)
    tree.modules("vfio_pci", "vfio_iommu_type1")
    (tree.root / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True, exist_ok=True)
    return tree


def opens(tree: Tree, process: int, name: str, *files: str) -> None:
    """A process of that name has these open."""
    (folder := tree.root / f"proc/{process}/fd").mkdir(parents=True)
    tree.put(f"proc/{process}/comm", name)
    for number, file in enumerate(files):
        (folder / str(number)).symlink_to(file)


def refused(tree: Tree, *words: str) -> str:
    """Why it is refused, with nothing changed."""
    before = contents(tree)
    done = call(tree, *words)
    assert (done.returncode, steps(done), contents(tree)) == (2, [], before), done
    return done.stderr


@pytest.mark.parametrize("file", ["vfio/7", "vfio/noiommu-7", "vfio/devices/vfio3", "uio5"])
def test_a_card_that_a_process_has_open_is_not_taken_from_it(tmp_path, file):
    """Given a virtual machine that has the card, and processes that have others. Expect each way to
    take it refused with the machine's name, in a unit's last step too; with --force, told."""
    tree = a_host(tmp_path, driver="vfio-pci", interface="")
    for place in ("vfio-pci", "uio_pci_generic"):
        (tree.root / "sys/bus/pci/drivers" / place).mkdir(parents=True, exist_ok=True)
    for place in ("vfio-dev/vfio3", "uio/uio5"):
        (tree.root / "sys/bus/pci/devices" / CARD / place).mkdir(parents=True)
    tree.put("dev/vfio/7", "")
    opens(tree, 41, "other", "/dev/vfio/77", "/dev/vfio/vfio", "/dev/uio55", "socket:[7]")
    done = call(tree, "unbind", CARD, "--dry-run")
    assert done.returncode == 0 and "in use" not in done.stderr, done
    opens(tree, 4242, "qemu-system-x86", "/dev/null", f"/dev/{file}")
    says = f"{CARD} is in use: qemu-system-x86 (process 4242) has it open: end that first"
    assert says in refused(tree, "unbind", CARD)
    assert says in refused(tree, "unbind", CARD, "--after", "exit-code", "--status", "2")
    assert says in refused(tree, "bind", CARD, "--user", "daemon")
    assert says in refused(tree, "bind", CARD, "--driver", "uio_pci_generic")
    done = call(tree, "unbind", CARD, "--dry-run", "--force")
    assert done.returncode == 0
    assert "! --force cuts: qemu-system-x86 (process 4242) has it open" in done.stdout


def test_an_interface_with_a_raw_socket_is_in_use(tmp_path):
    """Given processes with raw sockets on this interface, on another, on all. Expect the card in
    use for the first alone, with its name where that can be seen; free once it is down."""
    tree = a_host(tmp_path)
    packets = "sk RefCnt Type Proto Iface R Rmem User Inode\n"
    for index, inode in ((0, 11), (33, 12)):
        packets += f"0000000000000000 3 3 0003 {index} 1 0 0 {inode}\n"
    tree.put("sys/class/net/ens1/ifindex", "3")
    opens(tree, 41, "replay-serve", "/dev/null", "socket:[13]")
    tree.put("proc/net/packet", packets)
    assert call(tree, "bind", CARD, "--dry-run").returncode == 0
    tree.put("proc/net/packet", f"{packets}0000000000000000 3 3 0003 3 1 0 0 13\n")
    says = f"{CARD} is in use: replay-serve (process 41) has a raw socket on ens1: take that away"
    assert says in refused(tree, "bind", CARD)
    done = call(tree, "bind", CARD, "--dry-run", "--force")
    assert "! --force cuts: replay-serve (process 41) has a raw socket on ens1" in done.stdout
    tree.put("proc/net/packet", f"{packets}0000000000000000 3 3 0003 3 1 0 0 14\n")
    assert "a process of another user has a raw socket on ens1" in refused(tree, "bind", CARD)
    tree.put("sys/class/net/ens1/flags", "0x1002")
    assert call(tree, "bind", CARD, "--dry-run").returncode == 0


@pytest.mark.parametrize(
    "shown",
    ["mtu 1500 xdpgeneric qdisc noqueue", "mtu 1500 xdp/id:7 qdisc mq", "    prog/xdp id 7 tag 1f"],
)
def test_an_interface_with_an_xdp_program_is_in_use(tmp_path, shown):
    """Given an interface on which a server over AF_XDP runs. Expect its card kept."""
    tree = a_host(tmp_path)
    tree.put("bin/ip", "#!/bin/sh\necho '3: ens1: <UP> mtu 1500 qdisc mq'\n")
    (tree.root / "bin/ip").chmod(0o755)
    assert call(tree, "bind", CARD, "--dry-run").returncode == 0
    tree.put("bin/ip", f"#!/bin/sh\ncase $1 in link) echo '{shown}' ;; esac\n")
    (tree.root / "bin/ip").chmod(0o755)
    assert f"{CARD} is in use: an XDP program is on ens1" in refused(tree, "bind", CARD)
