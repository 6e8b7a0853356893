"""What a host's sysfs and procfs say: processors, hugepages, IOMMU, network cards. Read only.

    host = read_host(Path("/"))

Everything is read below a root, so a folder made by a test is a host too. What is not there is
None, empty or 0, never an exception: a kernel without NUMA, a port without a link and a host
without PCI are hosts like any other. No program is run, and nothing but the root is asked.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from .interfaces import FOR_DPDK, interfaces_of, lost_with_card, opened_card, opened_past_the_kernel
from .netlink import veths
from .sysfs import lines, link_name, names, number, text
from .xdp import with_xdp

NETWORK_CLASS = "02"
KIB = 1024


@dataclass(frozen=True)
class Pages:
    """Hugepages of one size (bytes); `free_on` and `total_on` hold those of each NUMA node.

    `reserved`: for a process that has mapped them and touched none yet. The kernel counts those as
    free, and does not say on which node; here they are not.
    """

    size: int
    total: int
    free: int
    free_on: dict[int, int]
    total_on: dict[int, int] = field(default_factory=dict)
    reserved: int = 0


@dataclass(frozen=True)
class Mount:
    """A hugetlbfs mount: where, its page size in bytes (0: the default), may this user write."""

    path: str
    page_size: int
    writable: bool


@dataclass(frozen=True)
class Sibling:
    """Another function of a card's IOMMU group, which a kernel driver holds. See Nic for `lost`."""

    address: str
    driver: str
    is_network: bool
    lost: tuple[str, ...]


@dataclass(frozen=True)
class Nic:
    """A PCI function of the network class. ids: vendor, device, and the subsystem's two."""

    address: str
    ids: tuple[int, int, int, int]
    driver: str
    interfaces: tuple[str, ...]
    speed_mbps: int | None
    link: str
    node: int | None
    iommu_group: str
    no_iommu: bool  # its group is one that vfio made up, without an IOMMU behind it
    group_others: tuple[Sibling, ...]
    lost: tuple[str, ...]  # what the host loses when DPDK takes it, as interfaces.py says it
    opened: tuple[str, ...]  # who has it past the kernel already
    vfio_writable: bool
    pcie: str = ""  # the link as it runs, such as "8.0 GT/s x8"
    pcie_mbps: int | None = None  # what it carries one way, without its packets' own headers
    queues: tuple[tuple[str, int], ...] = ()  # how many receive queues each interface has in use

    @property
    def name(self) -> str:
        """Vendor and device as lspci -n writes them."""
        return f"{self.ids[0]:04x}:{self.ids[1]:04x}"


@dataclass(frozen=True)
class Host:
    """One look at a host; `nodes` has the CPUs of each NUMA node."""

    machine: str = ""
    cpus: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    nodes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    threads_share_cores: bool = False
    governor: str = ""
    command_line: str = ""
    memlock: int | None = None  # bytes; None: no limit
    socket_limits: tuple[tuple[str, int], ...] = ()  # rmem_max and wmem_max: a socket's buffers
    pages: tuple[Pages, ...] = ()
    for_pages: int | None = None  # bytes that hugepages may still take; None: not known
    mounts: tuple[Mount, ...] = ()
    iommu: bool = False
    unsafe_no_iommu: bool = False
    forwards: bool = False  # IPv4, between interfaces
    modules: frozenset[str] = frozenset()
    installable: frozenset[str] = frozenset()  # kernel modules that modprobe would find
    nics: tuple[Nic, ...] = ()
    with_xdp: tuple[tuple[str, str], ...] = ()  # interfaces that have an XDP program: see xdp.py
    veths: tuple[str, ...] = ()  # interfaces whose other end may be a container's
    socket_folder: str = "/run"  # where this user alone may make a socket; "": nowhere


def cpu_list(words: str) -> tuple[int, ...]:
    """The kernel's lists: "0-2,5" is (0, 1, 2, 5). What is no list is an empty one."""
    found: list[int] = []
    for part in words.split(","):
        ends = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        if ends:
            found.extend(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return tuple(found)


def may_write(path: Path, uid: int, groups: frozenset[int]) -> bool:
    """Whether the file's mode lets this user write; False where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return False
    if uid == 0:
        return True
    if found.st_uid == uid:
        return bool(found.st_mode & 0o200)
    return bool(found.st_mode & (0o020 if found.st_gid in groups else 0o002))


def read_host(root: Path, uid: int | None = None) -> Host:
    """Reads the host below `root` with the rights of user `uid` (default: who runs this)."""
    mine = uid is None or uid == os.geteuid()
    user = os.geteuid() if uid is None else uid
    groups = frozenset(os.getgroups()) | {os.getegid()} if mine else frozenset[int]()
    sys, proc = root / "sys", root / "proc"
    cpu = sys / "devices/system/cpu"
    return Host(
        machine=_machine(proc),
        cpus=cpu_list(text(cpu / "online")),
        isolated=cpu_list(text(cpu / "isolated")),
        nodes={
            node: cpu_list(text(sys / f"devices/system/node/node{node}/cpulist"))
            for node in _nodes(sys)
        },
        threads_share_cores=text(cpu / "smt/active") == "1",
        governor=text(cpu / "cpu0/cpufreq/scaling_governor"),
        command_line=text(proc / "cmdline"),
        memlock=_memlock(proc),
        socket_limits=_socket_limits(proc),
        pages=_pages(sys),
        for_pages=_for_pages(proc),
        mounts=_mounts(root, user, groups),
        iommu=_has_iommu(sys),
        unsafe_no_iommu=text(sys / "module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y",
        forwards=text(proc / "sys/net/ipv4/ip_forward") == "1",
        modules=_modules(sys, proc),
        installable=_installable(root),
        nics=_nics(root, user, groups),
        with_xdp=with_xdp() if root == Path("/") else (),
        veths=veths() if root == Path("/") else (),
        socket_folder=_socket_folder(root, user, groups),
    )


def _has_iommu(sys: Path) -> bool:
    """vfio without an IOMMU makes up groups: they are none."""
    groups = names(sys / "kernel/iommu_groups")
    return bool(names(sys / "class/iommu")) or any(not _made_up(sys, group) for group in groups)


def _made_up(sys: Path, group: str) -> bool:
    return text(sys / "kernel/iommu_groups" / group / "name") == "vfio-noiommu"


def _socket_folder(root: Path, uid: int, groups: frozenset[int]) -> str:
    if uid == 0:
        return "/run"
    own = (root / f"run/user/{uid}", root / "run/replay-server")
    private = (each for each in own if may_write(each, uid, groups) and not _is_shared(each))
    return next((f"/{each.relative_to(root)}" for each in private), "")


def _is_shared(folder: Path) -> bool:
    """Whether others than its owner may put a socket there."""
    return bool(folder.stat().st_mode & 0o022)


def _machine(proc: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", text(proc / "cpuinfo"), re.MULTILINE)
    return found[1] if found else ""


def _nodes(sys: Path) -> list[int]:
    found = (re.fullmatch(r"node(\d+)", name) for name in names(sys / "devices/system/node"))
    return sorted(int(node[1]) for node in found if node)


def _memlock(proc: Path) -> int | None:
    """The soft limit of locked memory in bytes; None where there is none."""
    found = re.search(r"^Max locked memory\s+(\d+)\s", text(proc / "self/limits"), re.MULTILINE)
    return int(found[1]) if found else None


def _socket_limits(proc: Path) -> tuple[tuple[str, int], ...]:
    found = ((name, number(proc / "sys/net/core" / name)) for name in ("rmem_max", "wmem_max"))
    return tuple((name, size) for name, size in found if size is not None)


def _pcie(device: Path) -> tuple[str, int | None]:
    """The slot's link as it runs now, and its Mbit/s: below 8 GT/s a byte takes ten bits."""
    rate = re.match(r"([\d.]{1,8}) GT/s", text(device / "current_link_speed"))
    width = number(device / "current_link_width")
    if not rate or not width or rate[1].count(".") > 1:
        return "", None
    per_lane = float(rate[1]) * (0.8 if float(rate[1]) < 8 else 128 / 130)
    return f"{rate[1]} GT/s x{width}", int(per_lane * width * 1000)


def _for_pages(proc: Path) -> int | None:
    """By the rule of deploy/nic.sh: an eighth of the memory stays, within 256 MiB and 2 GiB."""
    words = text(proc / "meminfo")
    found = [
        re.search(rf"^{name}:\s*(\d+) kB", words, re.M) for name in ("MemTotal", "MemAvailable")
    ]
    if not all(found):
        return None
    total, free = (int(each[1]) * KIB for each in found if each)
    return max(0, free - min(max(total // 8, 256 * KIB**2), 2 * KIB**3))


def _pages(sys: Path) -> tuple[Pages, ...]:
    found = []
    for name in names(sys / "kernel/mm/hugepages"):
        size = re.fullmatch(r"hugepages-(\d+)kB", name)
        if not size:
            continue
        folder = sys / "kernel/mm/hugepages" / name
        total, free, reserved = (
            number(folder / f"{what}_hugepages") or 0 for what in ("nr", "free", "resv")
        )
        usable = max(0, free - reserved)
        free_on, total_on = {}, {}
        for node in _nodes(sys):
            here = sys / f"devices/system/node/node{node}/hugepages" / name
            free = number(here / "free_hugepages")
            if free is not None:
                free_on[node] = min(free, usable) if reserved else free
                total_on[node] = number(here / "nr_hugepages") or 0
        found.append(Pages(int(size[1]) * KIB, total, usable, free_on, total_on, reserved))
    return tuple(sorted(found, key=lambda pages: pages.size))


def _mounts(root: Path, uid: int, groups: frozenset[int]) -> tuple[Mount, ...]:
    found = []
    for words in lines(root / "proc/mounts"):
        if len(words) < 4 or words[2] != "hugetlbfs":
            continue
        size = re.search(r"pagesize=(\d+)([KMG]?)", words[3])
        scale = {"": 1, "K": KIB, "M": KIB**2, "G": KIB**3}
        page_size = int(size[1]) * scale[size[2]] if size else 0
        writable = may_write(root / words[1].lstrip("/"), uid, groups)
        found.append(Mount(words[1], page_size, writable))
    return tuple(found)


def _modules(sys: Path, proc: Path) -> frozenset[str]:
    """Loaded or built in, with dashes as the kernel writes them in neither place."""
    loaded = {words[0] for words in lines(proc / "modules") if words}
    return frozenset(loaded | set(names(sys / "module")))


def _installable(root: Path) -> frozenset[str]:
    """The modules that lie ready for the running kernel."""
    release = text(root / "proc/sys/kernel/osrelease")
    folder = root / "lib/modules" / release
    listed = text(folder / "modules.dep") if release else ""
    found = re.findall(r"([\w-]+)\.ko(?:\.\w+)?:", listed)
    return frozenset(name.replace("-", "_") for name in found)


def _group(root: Path, group: str, address: str) -> tuple[Sibling, ...]:
    """Other functions of an IOMMU group that a kernel driver holds; bridges do not matter."""
    others, sys = [], root / "sys"
    for name in names(sys / "kernel/iommu_groups" / group / "devices") if group else []:
        device = sys / "bus/pci/devices" / name
        driver, kind = link_name(device / "driver"), text(device / "class")
        if name == address or not driver or driver.startswith("vfio") or kind.startswith("0x06"):
            continue
        is_network = kind.startswith("0x" + NETWORK_CLASS)
        lost = lost_with_card(root, name) if is_network else ()
        others.append(Sibling(name, driver, is_network, lost))
    return tuple(others)


def _queues(interface: Path) -> int:
    return sum(name.startswith("rx-") for name in names(interface / "queues"))


def _nics(root: Path, uid: int, groups: frozenset[int]) -> tuple[Nic, ...]:
    sys = root / "sys"
    net, found = sys / "class/net", []
    opened: tuple[tuple[str, str], ...] | None = None  # looked for where a card is bound
    for address in names(sys / "bus/pci/devices"):
        device = sys / "bus/pci/devices" / address
        if not text(device / "class").startswith("0x" + NETWORK_CLASS):
            continue
        interfaces = interfaces_of(device)
        speeds = [number(net / name / "speed") for name in interfaces]
        group = link_name(device / "iommu_group")
        made_up = bool(group) and _made_up(sys, group)
        vfio = root / "dev/vfio" / (f"noiommu-{group}" if made_up else group or "none")
        ids = tuple(
            number(device / name, 16) or 0
            for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
        )
        node = number(device / "numa_node")
        pcie, pcie_mbps = _pcie(device)
        driver = link_name(device / "driver")
        if driver in FOR_DPDK and opened is None:
            opened = opened_past_the_kernel(root)
        found.append(
            Nic(
                address=address,
                ids=(ids[0], ids[1], ids[2], ids[3]),
                driver=driver,
                interfaces=interfaces,
                speed_mbps=max((speed for speed in speeds if speed and speed > 0), default=None),
                link=", ".join(text(net / name / "operstate") for name in interfaces),
                node=node if node is not None and node >= 0 else None,
                iommu_group=group,
                no_iommu=made_up,
                group_others=_group(root, group, address),
                lost=lost_with_card(root, address),
                opened=opened_card(root, address, opened or ()),
                vfio_writable=may_write(vfio, uid, groups),
                pcie=pcie,
                pcie_mbps=pcie_mbps,
                queues=tuple((name, _queues(net / name)) for name in interfaces),
            )
        )
    return tuple(found)
