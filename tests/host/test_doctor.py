"""doctor on hosts that differ, each a folder made here: verdicts on cards, and the last line."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import hosts
import pytest
from hosts import HOSTS, MLX5, NETWORKS, REALTEK, Tree

from replay_server.__main__ import main
from replay_server.observe import elf, netlink
from replay_server.observe.doctor import (
    AFTER,
    NOT,
    NOW,
    SOCKET_BYTES,
    UDP_URL,
    UNKNOWN,
    as_json,
    examine,
    lines,
)
from replay_server.observe.interfaces import lost_with
from replay_server.observe.netlink import addresses
from replay_server.observe.xdp import with_xdp

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = "usr/lib/x86_64-linux-gnu"
DPDK_URL = "dpdk://ADDRESS:7400?port=0000:03:00.0"
COMMAND = re.compile(r"^\s*(?:sh \S*nic\.sh|modprobe|chown|#) ?(.*)$")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """ELF files: a stub of EAL, two drivers, and data planes good and bad."""
    folder = tmp_path_factory.mktemp("objects")
    eal, other = hosts.compile_eal(folder), hosts.compile_eal(folder, 25)
    gone = hosts.compile_object(folder / "libgone.so.1", "int gone;", "-Wl,-soname,libgone.so.1")
    use, keep = "int rp_dpdk_object, rp_dpdk_takes_cards; ", "-Wl,--no-as-needed"
    shared = {name: hosts.compile_driver(folder, name, eal) for name in hosts.KMODS}
    return shared | {
        "eal": eal,
        "core": hosts.compile_object(folder / "core.so", "int core;"),
        "plane": hosts.compile_object(folder / "plane.so", use, keep, str(eal)),
        "virtual": hosts.compile_object(
            folder / "virtual.so", "int rp_dpdk_object;", keep, str(eal)
        ),
        "newer": hosts.compile_object(folder / "newer.so", use, keep, str(other)),
        "newer eal": other,
        "static": hosts.compile_object(
            folder / "static.so", use + "int rte_eal_init(void){return 0;}"
        ),
        "lacking": hosts.compile_object(folder / "lacking.so", use, keep, str(eal), str(gone)),
        "strange": hosts.compile_object(folder / "strange.so", "int other;", keep, str(eal)),
        "without": hosts.compile_object(folder / "without.so", use),
        "stack": hosts.compile_object(folder / "stack.so", use, "-Wl,-z,execstack"),
    }


@pytest.fixture
def host(tmp_path, built):
    """Makes a host: drivers of DPDK 22.11, and a package with this data plane ("" for none)."""

    def make(plane: str = "plane", drivers: bool = True, **settings) -> Tree:
        tree = Tree(tmp_path / "host", **settings)
        for name in ("eal", "newer eal"):
            tree.put(f"{LIBRARIES}/{built[name].name}").write_bytes(built[name].read_bytes())
        for name in hosts.KMODS if drivers else ():
            target = f"{LIBRARIES}/dpdk/pmds-23.0/{built[name].name}"
            tree.put(target).write_bytes(built[name].read_bytes())
        tree.put("package/_engine.abi3.so").write_bytes(built["core"].read_bytes())
        if plane:
            tree.put("package/_dpdk.so").write_bytes(built[plane].read_bytes())
        return tree

    return make


def look(tree: Tree, uid: int = 0):
    """The report, after its text and JSON were held against it."""
    report = examine(tree.root, tree.root / "package", uid=uid)
    told = lines(report)
    assert told[-1] == f"best URL for serve on this host: {report.url}"
    assert json.loads(as_json(report))["url"] == report.url
    return report


def commands(verdict) -> list[str]:
    """Its commands without the script's place; every one of a known kind."""
    found = [COMMAND.match(command) for command in verdict.commands]
    assert all(found), verdict.commands
    return [match[1] for match in found]


def bound(tree: Tree, **settings) -> Tree:
    """A card at vfio-pci with an IOMMU and hugepages: ready."""
    tree.modules("vfio_pci")
    tree.nic(**({"driver": "vfio-pci", "interface": "", "group": "7"} | settings))
    tree.pages(2048, dict.fromkeys(tree.nodes, 512))
    return tree


def test_a_bound_card_is_usable_now(host):
    """Given vfio-pci, an IOMMU, hugepages. Expect dpdk:// with the card's address, and a core."""
    report = look(bound(host()))
    (nic,) = report.nics
    assert (nic.usable, nic.why, nic.driver, nic.core) == (NOW, "", "net_i40e", 1)
    assert report.url == DPDK_URL
    assert "DPDK 22.11 linked in (shared)" in "\n".join(lines(report))


def test_the_same_host_without_a_data_plane_serves_udp(host):
    """Given a ready card and no _dpdk.so. Expect udp://, and plain words; with one, dpdk://."""
    report = look(bound(host(plane="")))
    (nic,) = report.nics
    assert (nic.usable, nic.port) == (NOT, NOW)
    assert report.url == UDP_URL
    told = "\n".join(lines(report))
    assert "has no DPDK data plane" in told and "udp:// is its best" in told
    assert "dpdk://ADDRESS" not in told


@pytest.mark.parametrize(
    ("plane", "said"),
    [
        ("lacking", "no libgone.so.1 on this host"),
        ("without", "no DPDK linked in"),
        ("virtual", "takes virtual devices only, no card"),
        ("strange", "no rp_dpdk_object in it"),
        ("newer", "its driver is of DPDK 22.11, and the data plane of 24.11"),
    ],
)
def test_a_data_plane_that_cannot_work_is_none(host, plane, said):
    """Given a library missing, no DPDK in it, DPDK of another year. Expect udp:// and the cause."""
    report = look(bound(host(plane=plane)))
    assert report.url == UDP_URL and report.nics[0].usable == NOT
    assert said in "\n".join(lines(report))


def test_a_static_data_plane_and_an_executable_stack_are_seen(host, built):
    """Given EAL inside our object, and a stack marked executable. Expect each told."""
    report = look(bound(host(plane="static")))
    assert (report.plane.dpdk, report.plane.abi, report.url) == ("static", "", DPDK_URL)
    assert elf.look_at(built["stack"], Path("/")).executable_stack
    assert not elf.look_at(built["plane"], Path("/")).executable_stack


def test_no_hugepages(host):
    """Given sizes but no pages. Expect the command for them; a kernel without: not usable."""
    tree = host()
    tree.modules("vfio_pci")
    tree.nic(driver="vfio-pci", interface="", group="7")
    tree.pages(2048, {0: 0})
    (nic,) = look(tree).nics
    assert (nic.usable, commands(nic)) == (AFTER, ["hugepages 1024 --size 2M"])
    for path in (tree.root / "sys/kernel/mm").rglob("*_hugepages"):
        path.unlink()
    (tree.root / "sys/kernel/mm/hugepages/hugepages-2048kB").rmdir()
    report = look(tree)
    assert report.nics[0].usable == NOT and "no hugepages" in report.nics[0].why
    assert report.url == UDP_URL


def test_no_card(host):
    """Given no PCI at all. Expect that said, and udp://."""
    report = look(host())
    assert report.nics == () and report.url == UDP_URL
    assert "nic: no PCI network card" in lines(report)


def test_a_card_with_its_kernel_driver_is_bound_first(host):
    """Given i40e, vfio-pci not loaded but there. Expect one bind; without an IOMMU, first that."""
    tree = host()
    tree.installable("vfio-pci")
    tree.nic(group="7")
    tree.pages(2048, {0: 512})
    report = look(tree)
    assert (report.nics[0].usable, commands(report.nics[0])) == (AFTER, ["bind 0000:03:00.0"])
    assert report.url == UDP_URL
    (tree.root / "sys/kernel/iommu_groups/7/devices/0000:03:00.0").unlink()
    (tree.root / "sys/kernel/iommu_groups/7/devices").rmdir()
    (tree.root / "sys/kernel/iommu_groups/7").rmdir()
    (nic,) = look(tree).nics
    first, second = commands(nic)
    assert "intel_iommu=on" in first and "--no-iommu" in first and second == "bind 0000:03:00.0"


def test_a_kernel_without_the_modules(host):
    """Given neither vfio-pci nor uio. Expect not usable; given uio alone, a bind to that."""
    tree = host()
    tree.nic()
    tree.pages(2048, {0: 512})
    (nic,) = look(tree).nics
    assert nic.usable == NOT and "none of the modules" in nic.why
    tree.installable("uio_pci_generic")
    assert commands(look(tree).nics[0]) == ["bind 0000:03:00.0 --driver uio_pci_generic"]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_card_in_use_is_left_alone(host, network):
    """Given a card that carries something, by itself or by what stands on it. Expect a refusal in
    the words of nic.sh; a free card is usable after a bind."""
    tree = host()
    tree.installable("vfio-pci")
    tree.nic(group="7")
    tree.pages(2048, {0: 512})
    use, lost = NETWORKS[network]
    use(tree)
    nic = look(tree).nics[0]
    if lost:
        assert (nic.usable, nic.commands, nic.why) == (NOT, (), f"it is in use: {lost}")
    else:
        assert (nic.usable, commands(nic)) == (AFTER, ["bind 0000:03:00.0"])


def test_a_card_that_a_machine_has_open_is_not_usable_now(host):
    """Given a card on vfio-pci, then a virtual machine that has it. Expect its name."""
    tree = host()
    tree.nic(driver="vfio-pci", interface="", group="7")
    tree.pages(2048, {0: 512})
    tree.put("sys/class/iommu/dmar0/x", "")
    assert look(tree).nics[0].usable == NOW
    tree.opens(4242, "qemu-system-x86", tree.device("class/vfio/7", "dev/vfio/7"))
    nic = look(tree).nics[0]
    assert nic.usable == NOT
    assert nic.why == "it is in use: qemu-system-x86 (process 4242) has it open"


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_by_its_name(host, name):
    """Given one of the hosts that nic.sh is asked about too. Expect the verdict, why, and what has
    to be done, no more."""
    here, tree = HOSTS[name], host()
    here.make(tree)
    nic = look(tree, uid=here.uid).nics[0]
    assert nic.usable == {"now": NOW, "after commands": AFTER, "not": NOT}[here.usable], nic.why
    assert here.why in nic.why and bool(here.why) is bool(nic.why)
    told = commands(nic)
    assert len(told) == len(here.commands) and all(map(str.startswith, told, here.commands)), told


def test_a_module_that_needs_root_is_no_way_for_a_user(host):
    """Given a kernel with uio_pci_generic and no vfio-pci. Expect root's card bound to that, and an
    ordinary user told that there is no way."""
    tree = host()
    tree.installable("uio_pci_generic")
    tree.nic(group="7")
    tree.pages(2048, {0: 512})
    assert commands(look(tree).nics[0]) == ["bind 0000:03:00.0 --driver uio_pci_generic"]
    nic = look(tree, uid=4242).nics[0]
    assert (nic.usable, nic.commands) == (NOT, ()) and "no vfio-pci: that needs root" in nic.why


def test_an_address_without_a_route_is_asked_of_the_kernel():
    """Given this very host's loopback. Expect its address; of no interface, none."""
    assert "127.0.0.1" in addresses("lo")
    assert addresses("none such") == []


def test_a_kernel_that_does_not_tell_frees_no_interface(monkeypatch):
    """Given no file left for netlink. Expect a sentence, and no word of programs; else none of it:
    also where a name is of any bytes, where it knows no next hops, or ends in an error."""
    untold = "the kernel does not say what lo carries"
    assert untold not in lost_with(Path("/"), "lo")
    assert not netlink.is_made_promiscuous("w\udcff")

    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "no file left")

    unknown = struct.pack("=i", -errno.EOPNOTSUPP)
    netlink._look_at_end(netlink.RTM_GETNEXTHOP, unknown)
    with pytest.raises(OSError, match="not supported"):
        netlink._look_at_end(netlink.RTM_GETADDR, unknown)
    monkeypatch.setattr(netlink.socket, "socket", fails)
    assert list(lost_with(Path("/"), "lo")) == [untold] and with_xdp() == ()


def test_mellanox_stays_with_its_kernel_driver(host):
    """Given mlx5_core. Expect no bind, only the modules it lacks."""
    tree = host()
    tree.nic(ids=MLX5, driver="mlx5_core", interface="ens2")
    tree.pages(2048, {0: 512})
    tree.modules("mlx5_core", "ib_uverbs")
    (nic,) = look(tree).nics
    assert (nic.usable, commands(nic)) == (AFTER, ["mlx5_ib"])
    tree.modules("mlx5_ib")
    report = look(tree)
    assert report.nics[0].usable == NOW and report.url == DPDK_URL


def test_mellanox_that_the_host_lives_on_is_left_alone(host):
    """Given mlx5_core with the default route, alone and beside a card that is ready. Expect what it
    carries, no command, and another URL: its kernel interface would hear nothing beside DPDK."""
    tree = host()
    tree.nic(ids=MLX5, driver="mlx5_core", interface="ens2")
    tree.default_route("ens2")
    tree.pages(2048, {0: 512})
    for loaded in ((), ("mlx5_core", "ib_uverbs", "mlx5_ib")):
        tree.modules(*loaded)
        report = look(tree)
        assert (report.nics[0].usable, commands(report.nics[0])) == (NOT, []), loaded
        assert "in use: ens2 carries the default route" in report.nics[0].why
        assert "hears nothing" in report.nics[0].why and report.url == UDP_URL
    assert look(bound(tree, address="0000:05:00.0")).url == DPDK_URL.replace(":03:", ":05:")


def test_a_host_that_forwards_is_told_what_it_does_beside_af_packet(host):
    """Given a host that forwards IPv4, as with containers, and one that does not. Expect a sentence
    for the first, where this build has dpdk://."""
    for plane, forwards, told in (("plane", "1", 1), ("plane", "0", 0), ("", "1", 0)):
        tree = host(plane)
        tree.put("proc/sys/net/ipv4/ip_forward", forwards)
        report = look(tree)
        assert sum("this host forwards IPv4" in sentence for sentence in report.advice) == told
        shutil.rmtree(tree.root)


def test_a_card_of_a_foreign_numa_node(host):
    """Given pages on node 0, the card on node 1. Expect pages asked for there, and its core."""
    tree = bound(host(nodes={0: "0-3", 1: "4-7"}), node=1)
    tree.put("sys/devices/system/cpu/isolated", "2,5")
    assert look(tree).nics[0].core == 5
    tree.pages(2048, {0: 512, 1: 0})
    report = look(tree)
    assert commands(report.nics[0]) == ["hugepages 1024 --size 2M --node 1"]
    assert "NUMA node 1, the card's own" in report.nics[0].why and report.url == UDP_URL


def test_a_card_that_no_driver_takes(host):
    """Given a Realtek card beside a ready one. Expect not usable, and the ready one's URL."""
    tree = bound(host())
    tree.nic("0000:05:00.0", ids=REALTEK, driver="r8169", interface="eth0")
    report = look(tree)
    assert [nic.usable for nic in report.nics] == [NOW, NOT]
    assert "takes 10ec:8168" in report.nics[1].why and report.url == DPDK_URL


def test_the_groups_other_card_and_the_users_rights(host):
    """Given a shared IOMMU group, and a user who may not open it. Expect both, with commands."""
    tree = bound(host())
    tree.nic("0000:03:00.1", driver="i40e", interface="ens3", group="7")
    nic = look(tree).nics[0]
    assert nic.usable == AFTER and commands(nic) == ["bind 0000:03:00.1"]
    tree = bound(Tree(tree.root.parent / "second"))
    (tree.root / "dev/vfio/7").chmod(0o600)
    os.chown(tree.root / "dev/vfio/7", os.geteuid(), -1)
    report = examine(tree.root, tree.root, [], uid=os.geteuid() + 4242)
    assert not report.host.nics[0].vfio_writable
    assert examine(tree.root, tree.root, [], uid=os.geteuid()).host.nics[0].vfio_writable


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_group_that_nobody_gets(host, is_bound):
    """Given a SATA controller in the card's IOMMU group, then a card there that carries the default
    route. Expect not usable, with that function named, and no command."""
    tree = bound(host()) if is_bound else host()
    if not is_bound:
        tree.installable("vfio-pci")
        tree.nic(group="7")
        tree.pages(2048, {0: 512})
    sata = "0000:00:1f.2"
    tree.nic(sata, kind="0x010601", driver="ahci", interface="", group="7")
    (nic,) = look(tree).nics
    assert (nic.usable, nic.commands) == (NOT, ())
    assert f"{sata} (ahci) shares its IOMMU group 7 and is no network card" in nic.why
    (tree.root / "sys/kernel/iommu_groups/7/devices" / sata).unlink()
    tree.nic("0000:03:00.1", interface="ens3", group="7")
    tree.default_route("ens3")
    nic = look(tree).nics[0]
    assert (nic.usable, nic.commands) == (NOT, ())
    assert "0000:03:00.1 (i40e) shares its IOMMU group 7 and is in use: ens3 carries the" in nic.why


def test_a_card_without_an_iommu(host):
    """Given vfio's made-up group. Expect the IOMMU told as off, root's card usable, without a
    chown of a file that is not there; an ordinary user's not, since only root may open it."""
    tree = bound(host())
    tree.put("sys/kernel/iommu_groups/7/name", "vfio-noiommu\n")
    tree.put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
    (tree.root / "dev/vfio/7").rename(tree.root / "dev/vfio/noiommu-7")
    report = look(tree)
    assert any(line.startswith("IOMMU: off (vfio without it") for line in lines(report))
    assert (report.nics[0].usable, report.nics[0].why) == (NOW, "")
    nic = look(tree, uid=4242).nics[0]
    assert nic.usable == NOT and "only root may open it" in nic.why and nic.commands == ()


def test_pages_that_the_host_can_spare(host):
    """Given hosts of little memory. Expect no more pages advised than nic.sh takes, those that are
    free counted; where too few for a card are left, Expect not usable, and both figures."""
    tree = bound(host())
    for total, free, pages, count in (
        (262144, 200000, 0, 1024),
        (1024, 800, 0, 272),
        (1024, 800, 20, 292),
        (1024, 300, 0, None),
        (1024, 300, 10, 32),
    ):
        tree.memory(total, free)
        tree.pages(2048, {0: pages})
        (nic,) = look(tree).nics
        if count is None:
            assert (nic.usable, commands(nic)) == (NOT, [])
            assert "44 MiB may be hugepages, and a card wants 64" in nic.why
        else:
            assert (nic.usable, commands(nic)) == (AFTER, [f"hugepages {count} --size 2M"])
    shutil.rmtree(tree.root / "sys/kernel/mm/hugepages/hugepages-2048kB")
    tree.pages(1 << 20, {0: 0})
    for free, wanted in ((2000, "hugepages 1 --size 1G"), (1500, "")):
        tree.memory(4096, free)
        assert "".join(commands(look(tree).nics[0])) == wanted


def test_pages_that_are_too_few(host):
    """Given one free page of 2 MiB, then 31. Expect the count that makes enough free; given 32, or
    one of 1 GiB, Expect usable now."""
    tree = bound(host())
    tree.pages(2048, {0: 1})
    nic = look(tree).nics[0]
    assert (nic.usable, commands(nic)) == (AFTER, ["hugepages 1024 --size 2M"])
    assert "2 MiB of hugepages are free, and it wants 64" in nic.why
    tree.pages(2048, {0: 831})
    for place in tree.root.glob("sys/**/free_hugepages"):
        place.write_text("31")
    assert commands(look(tree).nics[0]) == ["hugepages 1824 --size 2M"]
    tree.pages(2048, {0: 32})
    assert look(tree).nics[0].usable == NOW
    tree.pages(2048, {0: 0})
    tree.pages(1 << 20, {0: 1})
    assert look(tree).nics[0].usable == NOW


def test_the_socket_is_one_that_this_user_can_make(host):
    """Given root, a user with a folder in /run/user, one with the units', one without. Expect
    a place for each in which others may make nothing, and what makes one where there is none."""
    tree = host()
    own = tree.put("run/user/4242/bus").parent
    own.chmod(0o700)
    os.chown(own, 4242, -1)
    units = tree.put("run/replay-server/there").parent
    os.chown(units, 8, -1)
    places = {0: "/run", 4242: "/run/user/4242", 8: "/run/replay-server", 7: "/run/replay-server"}
    for uid, place in places.items():
        told = "\n".join(look(tree, uid=uid).advice)
        assert f"net_memif,role=server,socket={place}/replay.memif" in told
        assert ("`install -d -o 7 /run/replay-server`, as root" in told) == (uid == 7)


def test_what_drivers_are_missing_is_told(host):
    """Given no DPDK on the host. Expect the package to install, cards not known, udp://."""
    report = look(bound(host(drivers=False)))
    assert report.nics[0].usable == UNKNOWN and report.url == UDP_URL
    assert "apt-get install" in report.nics[0].why


def test_without_pyelftools_the_rest_still_runs(host, monkeypatch):
    """Given no pyelftools. Expect one sentence with the command, all else as before."""
    tree = bound(host())
    monkeypatch.setitem(sys.modules, "elftools", None)
    report = look(tree)
    told = lines(report)
    assert sum("advice:" in line and "replay-server[doctor]" in line for line in told) == 1
    assert report.nics[0].port == UNKNOWN and report.url == UDP_URL
    assert any(line.startswith("hugepages of 2 MiB: 512 free") for line in told)


def test_damaged_files_are_told_not_thrown(host, built, tmp_path):
    """Given an object cut at every 397th byte, and noise. Expect a report each time."""
    tree = bound(host())
    whole = built["net_i40e"].read_bytes()
    target = tree.root / f"{LIBRARIES}/dpdk/pmds-23.0/{built['net_i40e'].name}"
    for length in range(0, len(whole), 397):
        target.write_bytes(whole[:length])
        report = examine(tree.root, tree.root / "package")
        assert report.nics[0].usable in (NOW, NOT)
        if length < 64:  # shorter than the header: no ELF file at all
            assert any("not a sound ELF" in sentence for sentence in report.advice)
    (tree.root / "package/_dpdk.so").write_bytes(whole[:300])
    report = look(tree)
    assert report.url == UDP_URL and any("_dpdk.so" in line for line in report.advice)


def test_a_sysfs_full_of_nonsense_is_a_host(tmp_path):
    """Given folders where files should be, and words where numbers should be. Expect a report."""
    tree = Tree(tmp_path)
    tree.nic()
    for name in ("speed", "operstate"):
        (tmp_path / "sys/class/net/ens1" / name).write_bytes(b"\xff\xfe\n")
    tree.put("proc/mounts", "a\nhugetlbfs /x hugetlbfs pagesize=lots 0 0\n")
    tree.put("proc/net/route", "\n\nens1\n")
    tree.put("sys/devices/system/cpu/isolated", "one,2-")
    (tmp_path / "sys/devices/system/cpu/smt/active").mkdir(parents=True)
    (tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").mkdir(parents=True)
    assert look(tree).url == UDP_URL
    assert look(Tree(tmp_path / "empty")).url == UDP_URL
    assert examine(tmp_path / "not there", tmp_path).url == UDP_URL


def test_a_host_with_one_thing_wrong_is_a_host(host, tmp_path):
    """Given each file of a ready host gone, noise, a folder, a circle. Expect a report each."""
    tree, chance = bound(host()), random.Random(7)
    files = sorted(path for path in tree.root.rglob("*") if path.is_file() or path.is_symlink())
    kept, ends = tmp_path / "kept", set()
    for path in files:
        path.rename(kept)
        for damage in ("gone", "noise", "folder", "circle"):
            if damage == "noise":
                path.write_bytes(chance.randbytes(200))
            elif damage == "folder":
                path.mkdir()
            elif damage == "circle":
                path.symlink_to(path.name)
            report = examine(tree.root, tree.root / "package", uid=4242)
            ends.add(lines(report)[-1].split()[-1])
            if damage == "folder":
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        kept.rename(path)
    assert ends == {UDP_URL, DPDK_URL} and look(tree).url == DPDK_URL


def test_narrow_slots_and_small_buffers_are_told(host):
    """Given PCIe 2.0 x8 and a small rmem_max. Expect both told, with figures; else neither."""
    tree = bound(host(), interface="ens1")
    device = tree.root / "sys/bus/pci/devices/0000:03:00.0"
    for rate, width, buffer, told in (("5.0", 8, 212992, True), ("8.0", 8, 8 << 20, False)):
        (device / "current_link_speed").write_text(f"{rate} GT/s PCIe\n")
        (device / "current_link_width").write_text(f"{width}\n")
        for name in ("rmem_max", "wmem_max"):
            tree.put(f"proc/sys/net/core/{name}", f"{buffer}\n")
        advice = "\n".join(look(tree, uid=4242).advice)
        assert ("40 Gbit/s behind a PCIe link of 32 (5.0 GT/s x8)" in advice) is told
        assert ("a UDP socket 208 KiB" in advice) is told
    tree.put("proc/sys/net/core/rmem_max", f"{64 << 20}\n")  # larger stays
    tree.put("proc/sys/net/core/wmem_max", "212992\n")
    advice = "\n".join(look(tree, uid=4242).advice)
    assert "sysctl -w net.core.wmem_max=8388608, else" in advice and "rmem_max" not in advice


def test_the_names_are_the_cores():
    """Given the core's headers. Expect the object, symbol, variable and size that doctor knows."""
    native = ROOT / "native/transport"
    told = "".join((native / name).read_text() for name in ("transport_dpdk.h", "transport_dpdk.c"))
    for name in (elf.DATA_PLANE, elf.SYMBOL, elf.VARIABLE):
        assert f'"{name}"' in told
    assert elf.CARDS in told
    sizes = "".join(path.read_text() for path in native.glob("transport_udp*.h"))
    shift = re.search(r"RP_UDP_SOCKET_BYTES\D+(\d+)u? << (\d+)", sizes)
    assert int(shift[1]) << int(shift[2]) == SOCKET_BYTES


def test_records_as_debians_drivers_have_them():
    """Given DPDK's own libraries. Expect every record that a search of the bytes finds."""
    files = elf.driver_files(elf.driver_folders(Path("/")))
    if not files:
        pytest.skip("left out: no DPDK drivers here (apt-get install librte-meta-net)")
    found, unread = elf.drivers(files)
    expected = [
        json.loads(text)
        for path in files
        for text in re.findall(rb"PMD_INFO_STRING= (\{[^\0]*\})\0", path.read_bytes())
    ]
    assert unread == [] and len(found) == len(expected) > 0
    for driver, wanted in zip(found, expected, strict=True):
        assert driver.name == wanted["name"] and driver.abi.isdigit()
        assert [list(entry) for entry in driver.pci_ids] == wanted.get("pci_ids", [])


def test_this_very_host_from_the_command_line(capsys):
    """Given the machine that runs this. Expect code 0, advice, a URL last; JSON says the same."""
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1].startswith("best URL for serve on this host: ")
    done = subprocess.run(
        [sys.executable, "-m", "replay_server", "doctor", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["url"] == told[-1].split()[-1], done.stderr
