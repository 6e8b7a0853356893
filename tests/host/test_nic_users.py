"""deploy/nic.sh and the processes of a host: what they have open, and who they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosts import Tree
from test_nic import CARD, call, contents, steps

from replay_server.observe import interfaces
from replay_server.observe.host import read_host
from replay_server.observe.interfaces import opened_card, opened_past_the_kernel
from replay_server.observe.sysfs import names


def a_host(folder: Path, **card: str) -> Tree:
    """With one card in an IOMMU group."""
    tree = Tree(folder / "host")
    tree.nic(group="7", **card)
    tree.modules("vfio_pci", "vfio_iommu_type1")
    (tree.root / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True, exist_ok=True)
    return tree


def has_it_open(tree: Tree) -> tuple[str, ...]:
    return opened_card(tree.root, CARD, opened_past_the_kernel(tree.root))


def refused(tree: Tree, *words: str) -> str:
    """Why it is refused, with nothing changed."""
    before = contents(tree)
    done = call(tree, *words)
    assert (done.returncode, steps(done), contents(tree)) == (2, [], before), done
    return done.stderr


OF_CARD = f"bus/pci/devices/{CARD}"
DEVICES = [  # where sysfs has a device's number, and its file
    ("class/vfio/7", "vfio/7"),
    ("class/vfio/noiommu-7", "vfio/noiommu-7"),
    (f"{OF_CARD}/vfio-dev/vfio3", "vfio/devices/vfio3"),
    (f"{OF_CARD}/uio/uio5", "uio5"),
]


@pytest.mark.parametrize(("place", "file"), DEVICES)
def test_a_card_that_a_process_has_open_is_not_taken_from_it(tmp_path, place, file):
    """Given a virtual machine that has the card, and processes that have others. Expect each way to
    take it refused with the machine's name, in a unit's last step too; with --force, told."""
    tree = a_host(tmp_path, driver="vfio-pci", interface="")
    for name in ("vfio-pci", "uio_pci_generic"):
        (tree.root / "sys/bus/pci/drivers" / name).mkdir(parents=True, exist_ok=True)
    ours, kind = tree.device(place, f"dev/{file}"), place.split("/")[-2]
    others = [
        tree.device(f"class/{kind}/{n}", f"dev/others/{n}", "/dev/zero") for n in ("vfio", "uio55")
    ]
    tree.put(f"sys/class/{kind}/{ours.name}/dev", (tree.root / f"sys/{place}/dev").read_text())
    tree.opens(41, "other", *others, "socket:[7]")
    done = call(tree, "unbind", CARD, "--dry-run")
    assert done.returncode == 0 and "in use" not in done.stderr, done
    assert has_it_open(tree) == ()
    tree.opens(4242, "qemu-system-x86", "/dev/null", ours)
    assert has_it_open(tree) == ("qemu-system-x86 (process 4242) has it open",)
    says = f"{CARD} is in use: qemu-system-x86 (process 4242) has it open: end that first"
    assert says in refused(tree, "unbind", CARD)
    assert says in refused(tree, "unbind", CARD, "--after", "exit-code", "--status", "2")
    assert says in refused(tree, "bind", CARD, "--user", "daemon")
    assert says in refused(tree, "bind", CARD, "--driver", "uio_pci_generic")
    done = call(tree, "unbind", CARD, "--dry-run", "--force")
    assert done.returncode == 0
    assert "! --force cuts: qemu-system-x86 (process 4242) has it open" in done.stdout


def test_a_file_that_is_closed_meanwhile_hides_no_other(tmp_path, monkeypatch):
    """Given a machine that closes a file while its files are looked at. Expect its card seen."""
    tree = a_host(tmp_path, driver="vfio-pci", interface="")
    tree.opens(4242, "qemu-system-x86", tree.device("class/vfio/7", "dev/vfio/7"))

    def with_one_closed(folder: Path) -> list[str]:
        return ["99", *names(folder)] if folder.name == "fd" else names(folder)

    monkeypatch.setattr(interfaces, "names", with_one_closed)
    assert has_it_open(tree) == ("qemu-system-x86 (process 4242) has it open",)


def test_a_card_is_in_use_by_a_process_with_a_root_of_its_own(tmp_path):
    """Given a server in a folder that it has for its root, its card's file there, whose name may be
    gone by now. Expect the card refused, with its name."""
    tree = a_host(tmp_path, driver="vfio-pci", interface="")
    own = tree.device("class/vfio/7", "jail/dev/vfio/7")
    tree.opens(4242, "replay-server", own)
    own.with_name("7 (deleted)").symlink_to("/dev/full")
    tree.opens(4243, "other-server", own.with_name("7 (deleted)"))
    users = [
        f"{name} has it open"
        for name in ("replay-server (process 4242)", "other-server (process 4243)")
    ]
    assert list(has_it_open(tree)) == users
    assert f"{CARD} is in use: {'; '.join(users)}: end that" in refused(tree, "unbind", CARD)


def test_a_card_is_not_in_use_for_a_name_that_any_user_can_give(tmp_path):
    """Given files of the device's name, and another device so called. Expect the card free."""
    tree = a_host(tmp_path, driver="vfio-pci", interface="")
    tree.device("class/vfio/7", "dev/vfio/7")
    tree.put("tmp/x/dev/vfio/7")
    other = tree.device("class/mem/zero", "tmp/y/dev/vfio/7", "/dev/zero")
    gone = tree.root / "tmp/z/dev/vfio/7"
    tree.opens(41, "stranger", tree.root / "tmp/x/dev/vfio/7", other, gone)
    assert has_it_open(tree) == ()
    assert call(tree, "unbind", CARD, "--dry-run").returncode == 0


@pytest.mark.parametrize(("flags", "is_free"), [(os.O_PATH, True), (os.O_RDWR, False)])
def test_who_may_not_open_a_device_does_not_keep_it(tmp_path, flags, is_free):
    """Given this very process, with a device open, or no more than its name, which any user may
    have. Expect the card in use by the first alone."""
    tree = Tree(tmp_path / "host")
    tree.nic(driver="vfio-pci", interface="", group="full")
    tree.device("class/vfio/full", "dev/vfio/full")
    (tree.root / f"proc/{os.getpid()}").symlink_to(f"/proc/{os.getpid()}")
    opened = os.open("/dev/full", flags)
    try:
        assert (has_it_open(tree) == ()) == is_free
        done = call(tree, "unbind", CARD, "--dry-run")
        assert (done.returncode, "in use" in done.stderr) == ((0, False) if is_free else (2, True))
    finally:
        os.close(opened)


def test_a_name_of_a_process_reaches_no_terminal_as_it_is(tmp_path):
    """Given a machine whose name has escape sequences, a line's end, and no text. Expect its other
    letters, in one line."""
    tree = a_host(tmp_path, driver="vfio-pci", interface="")
    tree.opens(4242, "", tree.device("class/vfio/7", "dev/vfio/7"))
    (tree.root / "proc/4242/comm").write_bytes(b"q\x1b]0x\x07\nz\xff\x9b\n")
    said = call(tree, "unbind", CARD, "--dry-run").stderr
    assert "in use: q?]0x??z?? (process 4242) has it open: end" in said
    assert said.rstrip("\n").isprintable()
    done = call(tree, "unbind", CARD, "--dry-run", "--force")
    assert "! --force cuts: q?]0x??z?? (process 4242) has it open\n" in done.stdout


@pytest.mark.parametrize(("driver", "looks"), [("vfio-pci", 1), ("mlx5_core", 0)])
def test_all_cards_are_looked_for_at_once(tmp_path, monkeypatch, driver, looks):
    """Given many cards. Expect each process's files looked at once where some are bound, and not at
    all where none is."""
    tree = a_host(tmp_path, driver=driver, interface="")
    for slot in range(1, 9):
        tree.nic(f"0000:04:00.{slot}", driver=driver, interface="", group=str(slot))
    tree.opens(4242, "qemu-system-x86", tree.device("class/vfio/3", "dev/vfio/3"))
    seen = []
    listed = names

    def counted(folder: Path) -> list[str]:
        seen.extend([folder] if folder.name == "fd" else [])
        return listed(folder)

    monkeypatch.setattr(interfaces, "names", counted)
    found = read_host(tree.root)
    assert len(seen) == looks
    assert [bool(nic.opened) for nic in found.nics].count(True) == looks


def test_an_interface_with_a_raw_socket_is_in_use(tmp_path):
    """Given processes with raw sockets on this interface, on another, on all. Expect the card in
    use for the first alone, with its name where that can be seen; free once it is down."""
    tree = a_host(tmp_path)
    packets = "sk RefCnt Type Proto Iface R Rmem User Inode\n"
    for index, inode in ((0, 11), (33, 12)):
        packets += f"0000000000000000 3 3 0003 {index} 1 0 0 {inode}\n"
    tree.put("sys/class/net/ens1/ifindex", "3")
    tree.opens(41, "replay-serve", "/dev/null", "socket:[13]")
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


def test_of_several_processes_with_one_raw_socket_the_first_is_named(tmp_path):
    """Given a socket that several processes have, and one with a file called so. Expect the lowest
    that has the socket, named by doctor and by nic.sh."""
    tree = a_host(tmp_path)
    tree.put("sys/class/net/ens1/ifindex", "3")
    line = "0000000000000000 3 3 0003 3 1 0 0 13"
    tree.put("proc/net/packet", f"sk RefCnt Type Proto Iface R Rmem User Inode\n{line}\n")
    tree.opens(7, "called-so", "/tmp/a -> socket:[13]", "/tmp/socket:[13]")
    for process, name in ((900, "child"), (41, "replay-serve"), (1000, "grandchild")):
        tree.opens(process, name, "socket:[13]")
    says = "replay-serve (process 41) has a raw socket on ens1"
    assert list(interfaces.lost_with(tree.root, "ens1")) == [says]
    assert f"{CARD} is in use: {says}: take that away" in refused(tree, "bind", CARD)


FIRST = "3: {}: <BROADCAST,UP> mtu 1500 {}qdisc mq state UP"


def shows(tree: Tree, *lines: str) -> None:
    """What its `ip link` prints."""
    printed = "\n".join(lines)
    tree.ip(f"case $* in *link*) cat <<'END'\n{printed}\nEND\n;; esac")


@pytest.mark.parametrize(
    "shown",
    [
        (FIRST.format("ens1", "xdpgeneric "),),
        (FIRST.format("ens1", "xdp/id:7 "),),
        (FIRST.format("xdp0@en1", "xdpdrv "),),
        (FIRST.format("ens1", "xdpoffload "),),
        (FIRST.format("ens1", ""), "    prog/xdp id 7 tag 1f"),
    ],
)
def test_an_interface_with_an_xdp_program_is_in_use(tmp_path, shown):
    """Given an interface on which a server over AF_XDP runs. Expect its card kept."""
    tree = a_host(tmp_path)
    shows(tree, *shown)
    assert f"{CARD} is in use: an XDP program is on ens1" in refused(tree, "bind", CARD)


@pytest.mark.parametrize("name", ["ens1", "xdp0@en1"])
def test_a_name_is_no_xdp_program(tmp_path, name):
    """Given an interface, or one called so, whose alias has the word. Expect its card taken."""
    tree = a_host(tmp_path)
    shows(tree, FIRST.format(name, ""), "    alias uplink xdp lab, prog/xdp too")
    assert call(tree, "bind", CARD, "--dry-run").returncode == 0


@pytest.mark.parametrize(
    ("flags", "count", "is_free"),
    [("UP", 0, True), ("UP", 1, False), ("PROMISC,UP", 1, True), ("PROMISC,UP", 2, False)],
)
def test_an_interface_that_somebody_made_promiscuous_is_in_use(tmp_path, flags, count, is_free):
    """Given one with its own switch set or not, and a capture. Expect its card kept for that."""
    tree = a_host(tmp_path)
    first = f"3: ens1: <BROADCAST,{flags}> mtu 1500 qdisc mq state UP"
    shows(tree, first, f"    link/ether 02:00:00:00:00:01 promiscuity {count} minmtu 68")
    says = f"{CARD} is in use: a macvlan elsewhere, or a packet capture, made ens1 promiscuous: "
    if is_free:
        assert call(tree, "bind", CARD, "--dry-run").returncode == 0
    else:
        assert says in refused(tree, "bind", CARD)
