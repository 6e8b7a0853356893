"""Made-up hosts for test_doctor.py and test_nic.py: a sysfs, procfs and libraries in a folder.

The ELF files are real ones: gcc builds them, with the records that DPDK's drivers carry.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

I40E, MLX5, REALTEK = (0x8086, 0x1583), (0x15B3, 0x1017), (0x10EC, 0x8168)
KMODS = {
    "net_i40e": "* igb_uio | uio_pci_generic | vfio-pci",
    "mlx5_eth": "* ib_uverbs & mlx5_core & mlx5_ib",
}
IDS = {"net_i40e": [[*I40E, 65535, 65535]], "mlx5_eth": [[*MLX5, 65535, 65535]]}


def compile_object(target: Path, source: str, *options: str) -> Path:
    """A shared object of one source, without libc."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", str(target)]
    # Options after the source: libraries are looked at in that order.
    subprocess.run([*command, "-x", "none", *options], input=source, text=True, check=True)
    return target


def compile_eal(folder: Path, abi: int = 23) -> Path:
    """A librte_eal.so of this ABI that has one function."""
    name = f"librte_eal.so.{abi}"
    source = "int rte_eal_init(void); int rte_eal_init(void) { return 0; }"
    return compile_object(folder / name, source, f"-Wl,-soname,{name}")


def record(name: str) -> str:
    """The JSON of a driver's record."""
    return json.dumps({"name": name, "kmod": KMODS[name], "pci_ids": IDS[name]})


def compile_driver(folder: Path, name: str, eal: Path) -> Path:
    """A driver's library, as DPDK's packages have it."""
    text = json.dumps("PMD_INFO_STRING= " + record(name))
    source = f"__attribute__((used)) static const char info[] = {text};"
    target = folder / f"librte_net_{name.rsplit('_', 1)[-1]}.so.23.0"
    return compile_object(target, source, "-Wl,--no-as-needed", str(eal))


class Tree:
    """A host below `root`, at first with two CPUs, one node and no more."""

    def __init__(self, root: Path, nodes: dict[int, str] | None = None) -> None:
        self.root = root
        self.nodes = nodes or {0: "0-1"}
        last = max(int(words.split("-")[-1]) for words in self.nodes.values() if words)
        self.put("sys/devices/system/cpu/online", f"0-{last}")
        self.put("proc/cpuinfo", "processor : 0\nmodel name\t: Test CPU\n")
        self.put("proc/self/limits", "Max locked memory  8388608  8388608  bytes\n")
        self.put("proc/mounts", "proc /proc proc rw 0 0\n")
        self.put("proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask\n")
        for node, words in self.nodes.items():
            self.put(f"sys/devices/system/node/node{node}/cpulist", words)
        self.ip("exit 0")  # it knows of nothing

    def ip(self, script: str) -> None:
        """What this host has for `ip`, of a shell."""
        (self.root / "bin/ip").unlink(missing_ok=True)
        self.put("bin/ip", f"#!/bin/sh\n{script}\n").chmod(0o755)

    def put(self, name: str, content: str = "") -> Path:
        """Writes a file, with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def link(self, name: str, target: str) -> None:
        """A link, relative to where it lies, to a path below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(self.root / target, path.parent))

    def pages(self, size_kb: int, on: dict[int, int]) -> None:
        """Hugepages of one size, all free: how many on each node."""
        name = f"hugepages-{size_kb}kB"
        places = {f"sys/kernel/mm/hugepages/{name}": sum(on.values())}
        for node, count in on.items():
            places[f"sys/devices/system/node/node{node}/hugepages/{name}"] = count
        for place, count in places.items():
            self.put(f"{place}/nr_hugepages", str(count))
            self.put(f"{place}/free_hugepages", str(count))

    def memory(self, total_mib: int, free_mib: int) -> None:
        """What the host has, and what it could give."""
        words = (
            f"MemTotal: {total_mib << 10} kB\nMemFree: 1 kB\nMemAvailable: {free_mib << 10} kB\n"
        )
        self.put("proc/meminfo", words)

    def mount(self, options: str = "rw,pagesize=2M") -> None:
        """hugetlbfs at its usual place."""
        (self.root / "dev/hugepages").mkdir(parents=True)
        self.put("proc/mounts", f"hugetlbfs /dev/hugepages hugetlbfs {options} 0 0\n")

    def modules(self, *names: str) -> None:
        """Loaded kernel modules."""
        for name in names:
            (self.root / "sys/module" / name).mkdir(parents=True)

    def installable(self, *names: str) -> None:
        """Kernel modules that lie ready."""
        self.put("proc/sys/kernel/osrelease", "6.1.0-test\n")
        listed = "".join(f"kernel/drivers/{name}.ko.xz: \n" for name in names)
        self.put("lib/modules/6.1.0-test/modules.dep", listed)

    def nic(
        self,
        address: str = "0000:03:00.0",
        ids: tuple[int, int] = I40E,
        driver: str = "i40e",
        interface: str = "ens1",
        node: int = 0,
        group: str = "",
        kind: str = "0x020000",
    ) -> None:
        """A network card; without an interface name it has none."""
        device = f"sys/bus/pci/devices/{address}"
        for name, value in (("vendor", ids[0]), ("device", ids[1])):
            self.put(f"{device}/{name}", f"0x{value:04x}")
            self.put(f"{device}/subsystem_{name}", f"0x{value:04x}")
        self.put(f"{device}/class", kind)
        self.put(f"{device}/numa_node", str(node))
        self.put(f"{device}/driver_override", "(null)")
        if driver:
            (self.root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            self.link(f"{device}/driver", f"sys/bus/pci/drivers/{driver}")
        if interface:
            (self.root / device / "net" / interface).mkdir(parents=True)
            self.put(f"sys/class/net/{interface}/speed", "40000")
            self.interface(interface)
        if group:
            self.link(f"{device}/iommu_group", f"sys/kernel/iommu_groups/{group}")
            self.link(f"sys/kernel/iommu_groups/{group}/devices/{address}", device)
            self.put(f"dev/vfio/{group}")

    def interface(self, name: str, up: bool = True, on: str = "") -> None:
        """An interface of the kernel's, which stands on another one."""
        self.put(f"sys/class/net/{name}/operstate", "up" if up else "down")
        self.put(f"sys/class/net/{name}/flags", "0x1003" if up else "0x1002")
        if on:
            self.link(f"sys/class/net/{on}/upper_{name}", f"sys/class/net/{name}")

    def device(self, place: str, file: str, of: str = "/dev/full") -> Path:
        """A device's number below sys/, and a file of that number: one of this machine's own."""
        number = os.stat(of).st_rdev
        self.put(f"sys/{place}/dev", f"{os.major(number)}:{os.minor(number)}\n")
        (path := self.root / file).parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(of)
        return path

    def opens(self, process: int, name: str, *files: object) -> None:
        """A process of that name has these open."""
        (folder := self.root / f"proc/{process}/fd").mkdir(parents=True)
        self.put(f"proc/{process}/comm", name)
        for number, file in enumerate(files):
            (folder / str(number)).symlink_to(str(file))

    def virtual_function(self, address: str, of: str = "0000:03:00.0", **settings) -> None:
        """A network card that is a virtual function of another."""
        self.nic(address, **settings)
        self.link(f"sys/bus/pci/devices/{of}/virtfn0", f"sys/bus/pci/devices/{address}")
        self.link(f"sys/bus/pci/devices/{address}/physfn", f"sys/bus/pci/devices/{of}")

    def route(self, interface: str, to: str, bits: int) -> None:
        """A route of IPv4's main table."""
        mask = ((1 << 32) - (1 << (32 - bits))).to_bytes(4, "big")
        words = [f"{int.from_bytes(part, 'little'):08X}" for part in (socket.inet_aton(to), mask)]
        with (self.root / "proc/net/route").open("a", errors="surrogateescape") as file:
            file.write(f"{interface} {words[0]} 0101A8C0 0003 0 0 0 {words[1]} 0 0 0\n")

    def default_route(self, interface: str) -> None:
        """IPv4's default route leaves here."""
        self.route(interface, "0.0.0.0", 0)

    def route6(self, interface: str, to: str, bits: int) -> None:
        """A route of IPv6's."""
        where, zeros = socket.inet_pton(socket.AF_INET6, to).hex(), "0" * 32
        rest = f"{zeros} 00 {zeros} 00000400 00000002 00000000 00000001 {interface}\n"
        self.append("proc/net/ipv6_route", f"{where} {bits:02x} {rest}")

    def address6(self, interface: str, address: str, scope: int = 0) -> None:
        """An IPv6 address; scope 0x20 is the link's own."""
        bare = socket.inet_pton(socket.AF_INET6, address).hex()
        self.append("proc/net/if_inet6", f"{bare} 02 40 {scope:02x} 80 {interface:>8}\n")

    def append(self, name: str, line: str) -> None:
        """One line more in a file."""
        self.put(name, text + line if (text := self.text(name)) else line)

    def text(self, name: str) -> str:
        """A file's text; "" where there is none."""
        path = self.root / name
        return path.read_text() if path.exists() else ""


# What a host does with the card 0000:03:00.0 (ens1, up), and what is lost with it: "" for nothing.
def _management(tree: Tree) -> None:
    tree.default_route("ens9")
    tree.route("ens1", "10.1.2.0", 23)


def _default6(tree: Tree) -> None:
    tree.route6("ens1", "fd00::", 64)
    tree.route6("ens1", "::", 0)


def _bond(tree: Tree) -> None:
    tree.interface("bond0", on="ens1")
    tree.interface("br0", on="bond0")
    tree.default_route("br0")


def _open_vswitch(tree: Tree) -> None:
    tree.interface("ovs-system", up=False, on="ens1")
    tree.interface("br-ex")
    tree.default_route("br-ex")


def _vpn(tree: Tree) -> None:
    tree.interface("tun0")
    tree.route("tun0", "0.0.0.0", 1)
    tree.route("tun0", "128.0.0.0", 1)
    tree.route("ens1", "198.51.100.7", 32)


def _virtual_function(tree: Tree) -> None:
    tree.interface("ens1", up=False)
    tree.virtual_function("0000:03:02.0", driver="iavf", interface="ens1v0")
    tree.default_route("ens1v0")


def _guest(tree: Tree) -> None:
    tree.virtual_function("0000:03:02.0", driver="vfio-pci", interface="")


def _elsewhere(tree: Tree) -> None:
    (tree.root / "sys/bus/pci/devices/0000:03:00.0/net/ens1").rmdir()


def _pppoe(tree: Tree) -> None:
    tree.interface("ppp0")
    tree.default_route("ppp0")
    tree.put("proc/net/pppoe", "Id Address Device\n0100 00:11:22:33:44:55     ens1\n")


def _free(tree: Tree) -> None:
    tree.default_route("ens9")
    tree.route6("ens1", "fe80::", 64)
    tree.route6("ens1", "ff00::", 8)
    tree.address6("ens1", "fe80::1", 0x20)


def _down(tree: Tree) -> None:
    tree.address6("ens1", "fd00::1")
    tree.interface("bond0", on="ens1")
    tree.interface("ens1", up=False)


NETWORKS = {
    "default": (lambda tree: tree.default_route("ens1"), "ens1 carries the default route"),
    "default of IPv6": (_default6, "ens1 carries the default route"),
    "management": (_management, "ens1 carries the route to 10.1.2.0/255.255.254.0"),
    "address of IPv6": (
        lambda tree: tree.address6("ens1", "fd00::1"),
        "ens1 carries the address fd00:0000:0000:0000:0000:0000:0000:0001",
    ),
    "bond": (
        _bond,
        "bond0 stands on ens1; br0 stands on bond0; br0 carries the default route",
    ),
    "Open vSwitch": (_open_vswitch, "ovs-system stands on ens1"),
    "VPN": (_vpn, "ens1 carries the route to 198.51.100.7/255.255.255.255"),
    "VRF": (lambda tree: tree.interface("mgmt", on="ens1"), "mgmt stands on ens1"),
    "PPPoE": (_pppoe, "a PPPoE session stands on ens1"),
    "virtual function": (_virtual_function, "ens1v0 carries the default route"),
    "virtual function of a guest": (_guest, "vfio-pci has its virtual function 0000:03:02.0"),
    "another network namespace": (
        _elsewhere,
        "i40e has it and no interface is here: another network namespace may have one",
    ),
    "free": (_free, ""),
    "down": (_down, ""),
}


@dataclass(frozen=True)
class Host:
    """One with the card 0000:03:00.0; what doctor says of that to `uid`, and nic.sh to `words`."""

    make: Callable[[Tree], None]
    usable: str  # now, after commands, not
    why: str  # in doctor's reasons
    commands: tuple[str, ...]  # doctor's, as nic.sh's words
    words: tuple[str, ...]
    code: int
    said: str
    uid: int = 0


def _card(tree: Tree, pages: int = 512, bound: bool = False, group: str = "7") -> None:
    """A card with its kernel driver, or vfio-pci's; hugepages of 2 MiB, all free."""
    tree.installable("vfio-pci")
    if bound:
        tree.modules("vfio_pci")
    driver, interface = ("vfio-pci", "") if bound else ("i40e", "ens1")
    tree.nic(driver=driver, interface=interface, group=group)
    tree.pages(2048, {0: pages})


def _large_pages(tree: Tree) -> None:
    _card(tree, pages=0, bound=True)
    tree.pages(1 << 20, {0: 1})


def _no_large_pages(tree: Tree) -> None:
    _large_pages(tree)
    tree.memory(4096, 2000)
    shutil.rmtree(tree.root / "sys/kernel/mm/hugepages/hugepages-2048kB")
    tree.pages(1 << 20, {0: 0})


def _sata(tree: Tree) -> None:
    _card(tree)
    tree.nic("0000:00:1f.2", kind="0x010601", driver="ahci", interface="", group="7")


def _without_iommu(tree: Tree) -> None:
    _card(tree, bound=True)
    tree.put("sys/kernel/iommu_groups/7/name", "vfio-noiommu\n")
    tree.put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
    (tree.root / "dev/vfio/7").rename(tree.root / "dev/vfio/noiommu-7")


def _rights(tree: Tree) -> None:
    _card(tree, bound=True)
    (tree.root / "dev/vfio/7").chmod(0o600)


BIND = ("bind", "0000:03:00.0")
USER = 4242
HOSTS = {
    "one hugepage": Host(
        lambda tree: _card(tree, pages=1, bound=True),
        "after commands",
        "2 MiB of hugepages are free, and it wants 64",
        ("hugepages 1024 --size 2M",),
        ("hugepages", "1024", "--size", "2M"),
        0,
        "+ echo 1024 > ",
    ),
    "1 GiB pages": Host(
        _large_pages,
        "now",
        "",
        (),
        ("hugepages", "1", "--size", "1G"),
        0,
        "= 1 hugepages of 1G are set",
    ),
    "1 GiB pages, none set": Host(
        _no_large_pages,
        "after commands",
        "no hugepage is free",
        ("hugepages 1 --size 1G",),
        ("hugepages", "1", "--size", "1G"),
        0,
        "hugepages-1048576kB/nr_hugepages",
    ),
    "no IOMMU": Host(
        lambda tree: _card(tree, group=""),
        "after commands",
        "the IOMMU is off; its driver is i40e, not vfio-pci",
        ("add `intel_iommu=on iommu=pt`", "bind 0000:03:00.0"),
        BIND,
        2,
        "0000:03:00.0 has no IOMMU group: add `intel_iommu=on iommu=pt`",
    ),
    "no IOMMU, bound so": Host(_without_iommu, "now", "", (), BIND, 0, "is bound to vfio-pci"),
    "no IOMMU, bound so, ordinary user": Host(
        _without_iommu,
        "not",
        "it is bound without an IOMMU, and only root may open it so",
        (),
        BIND,
        0,
        "is bound to vfio-pci",
        uid=USER,
    ),
    "SATA controller in the group": Host(
        _sata,
        "not",
        "0000:00:1f.2 (ahci) shares its IOMMU group 7 and is no network card",
        (),
        BIND,
        0,
        "! 0000:00:1f.2 (ahci) shares IOMMU group 7 and is no network card: vfio gives",
    ),
    "ordinary user": Host(
        _card,
        "after commands",
        "its driver is i40e, not vfio-pci",
        (f"bind 0000:03:00.0 --user {USER}",),
        (*BIND, "--user", str(USER)),
        0,
        f"+ chown {USER} ",
        uid=USER,
    ),
    "ordinary user, bound for root": Host(
        _rights,
        "after commands",
        "this user may not open /dev/vfio/7",
        (f"{USER} /dev/vfio/7",),
        BIND,
        0,
        "is bound to vfio-pci",
        uid=USER,
    ),
}


def tree_of_xa(path: Path) -> Tree:
    """A made-up host whose card's interface is this namespace's xa."""
    tree = Tree(path)
    tree.nic(interface="xa", group="7")
    for name, real in (("sys/class/net", "/sys/class/net"), ("proc/net", "/proc/self/net")):
        shutil.rmtree(path / name)
        (path / name).symlink_to(real)
    (path / "bin/ip").unlink()
    for tool in ("ip", "tc"):
        (path / "bin" / tool).symlink_to(shutil.which(tool))
    return tree
