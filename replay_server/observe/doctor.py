"""`replay-server doctor`: what this host can carry the server over, and what it lacks.

It reads (host.py: sysfs and procfs; elf.py: DPDK's drivers and our own objects), matches, and
ends in advice: for each network card whether DPDK can take it now, after which commands, or why
not; last of all the best URL for `serve`. It changes nothing and runs nothing, so it is safe on a
host that serves. dpdk:// is named only where this build has a data plane (`_dpdk.so`) that can be
loaded and takes cards, and a card that is ready; udp:// is right everywhere else.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..support.values import SHARDS_MAX
from ..training.programs import home
from . import elf, xdp
from .elf import Driver, Object
from .host import Host, Nic, read_host

PORT = 7400
UDP_URL = f"udp://127.0.0.1:{PORT}"
MEMIF_URL = f"dpdk://10.0.0.1:{PORT}?vdev=net_memif,role=server,socket="
NOW, AFTER, NOT, UNKNOWN = "usable now", "usable after", "not usable", "not known"
NO_PLANE = f"this build has no DPDK data plane (no replay_server/{elf.DATA_PLANE})"
INSTALL_DPDK = "apt-get install librte-meta-net"
SOCKET_BYTES = 8 << 20  # native/transport/transport_udp.h
USUAL_PAGE = 2 << 20  # smaller ones (arm64's 64 KiB) are too many for DPDK's tables
PAGES_BYTES = 2 << 30  # of free hugepages, where the host can spare so many
VETHS_NAMED = 3
CARD_BYTES = 64 << 20  # of hugepages: 40 MiB of frames at the largest mtu, rings, DPDK itself


@dataclass(frozen=True)
class Verdict:
    """What becomes of one card. `usable` counts this build in, `port` the host alone."""

    address: str
    usable: str
    port: str
    why: str = ""
    commands: tuple[str, ...] = ()
    driver: str = ""
    core: int | None = None  # where the server's thread is best pinned


@dataclass(frozen=True)
class Report:
    """All that was seen, and what follows from it."""

    host: Host
    core: Object | None
    plane: Object | None
    dpdk: str  # release of the drivers found; "" where there are none
    drivers: int
    nics: tuple[Verdict, ...] = ()
    advice: tuple[str, ...] = ()
    url: str = UDP_URL


@dataclass
class Plan:
    """What stands between a card and its use, as it is found."""

    refusals: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def needs(self, reason: str, *commands: str) -> None:
        """One thing that is missing, and what brings it."""
        self.reasons.append(reason)
        self.commands.extend(commands)


def script() -> str:
    """How to call deploy/nic.sh."""
    return f"sh {home() / 'deploy' / 'nic.sh'}"


def best_core(host: Host, node: int | None) -> int | None:
    """An isolated CPU of the card's node, else its last, since CPU 0 has the most to do."""
    here = host.nodes.get(node, ()) if node is not None else host.cpus
    isolated = [cpu for cpu in here if cpu in host.isolated]
    return (isolated or sorted(here, reverse=True) or [None])[0]


def _pages(host: Host, nic: Nic, plan: Plan) -> None:
    """Free hugepages where the card's memory has to lie."""
    if not host.pages:
        plan.refusals.append("this kernel has no hugepages")
        return
    foreign = nic.node is not None and len(host.nodes) > 1
    node = nic.node or 0
    free_of = {p.size: p.free_on.get(node, 0) if foreign else p.free for p in host.pages}
    free = sum(size * count for size, count in free_of.items())
    if free >= CARD_BYTES:
        return
    least = min(host.pages, key=lambda pages: (pages.size < USUAL_PAGE, pages.size))
    spare = PAGES_BYTES if host.for_pages is None else host.for_pages
    more = min(PAGES_BYTES // least.size - free_of[least.size], spare // least.size)
    if free + more * least.size < CARD_BYTES:
        plan.refusals.append(
            f"this host has too little free memory: {free + spare >> 20} MiB may be hugepages, "
            f"and a card wants {CARD_BYTES >> 20}"
        )
        return
    total = least.total_on.get(node, 0) if foreign else least.total
    count = max(total, free_of[least.size]) + more
    where = f" on NUMA node {nic.node}, the card's own" if foreign else ""
    words = f" --node {nic.node}" if foreign else ""
    kind = _size(least.size).replace(" ", "").removesuffix("iB")
    reason = f"no hugepage is free{where}"
    if free:
        reason = f"{free >> 20} MiB of hugepages are free{where}, and it wants {CARD_BYTES >> 20}"
    plan.needs(reason, f"{script()} hugepages {count} --size {kind}{words}")


def _group(nic: Nic, plan: Plan) -> None:
    """vfio gives a group to nobody while a kernel driver holds a function of it."""
    for other in nic.group_others:
        what = f"{other.address} ({other.driver}) shares its IOMMU group {nic.iommu_group}"
        if not other.is_network:
            plan.refusals.append(
                f"{what} and is no network card: vfio gives the group to nobody while the kernel "
                f"has that; another slot may have a group of its own"
            )
        elif other.lost:
            plan.refusals.append(f"{what} and is in use: {'; '.join(other.lost)}")
        else:
            plan.needs(what, f"{script()} bind {other.address}")


def _unbound(host: Host, nic: Nic, driver: Driver, uid: int, plan: Plan) -> None:
    """The card has its kernel driver, or none: it has to change hands, into this user's."""
    if nic.lost:
        plan.refusals.append(f"it is in use: {'; '.join(nic.lost)}")
        return
    ready = host.modules | host.installable
    wanted = [name for name in ("vfio-pci", "uio_pci_generic") if name in driver.modules]
    module = next((name for name in wanted if name.replace("-", "_") in ready), None)
    if module is None:
        plan.refusals.append(
            f"this kernel has none of the modules its driver wants ({', '.join(driver.modules)})"
        )
        return
    if module == "vfio-pci":
        _group(nic, plan)
    elif uid != 0:
        plan.refusals.append(f"this kernel has {module} for it and no vfio-pci: that needs root")
        return
    protected = host.iommu and bool(nic.iommu_group)
    if not protected and module == "vfio-pci" and uid:
        plan.refusals.append(
            "the IOMMU is off, and without one only root may open the card: add `intel_iommu=on "
            "iommu=pt` (AMD: `iommu=pt`) to the kernel line and restart, or serve as root"
        )
    elif not protected and not host.unsafe_no_iommu and module == "vfio-pci":
        plan.needs(
            "the IOMMU is off",
            "# add `intel_iommu=on iommu=pt` (AMD: `iommu=pt`) to the kernel line and restart; "
            "where there is no IOMMU, add --no-iommu to the next command, or with a kernel without "
            "CONFIG_VFIO_NOIOMMU --driver uio_pci_generic: the card may then write to any memory",
        )
    held = f"its driver is {nic.driver}" if nic.driver else "it has no driver"
    option = f" --driver {module}" if module != "vfio-pci" else f" --user {uid}" if uid else ""
    plan.needs(f"{held}, not {module}", f"{script()} bind {nic.address}{option}")


def _bifurcated(host: Host, nic: Nic, driver: Driver, plan: Plan) -> None:
    """The card stays with its kernel driver, beside DPDK, which what comes to its MAC goes to."""
    if nic.lost:
        plan.refusals.append(
            f"it is in use: {'; '.join(nic.lost)}: DPDK would take what comes to its MAC from the "
            f"kernel, which keeps the card and hears nothing"
        )
    absent = [m for m in driver.modules if m.replace("-", "_") not in host.modules]
    if absent:
        plan.needs(
            f"it stays with its kernel driver, and {', '.join(absent)} is not loaded",
            *(f"modprobe {module}" for module in absent),
        )


def _bound(host: Host, nic: Nic, uid: int, plan: Plan) -> None:
    """The card is DPDK's already: may this user have it, and has nobody else?"""
    if nic.opened:
        plan.refusals.append(f"it is in use: {'; '.join(nic.opened)}")
    if nic.driver != "vfio-pci":
        if uid != 0:
            plan.needs(
                f"{nic.driver} needs root",
                f"{script()} unbind {nic.address}",
                f"{script()} bind {nic.address}",
            )
        return
    if nic.no_iommu:
        if uid != 0:
            plan.refusals.append("it is bound without an IOMMU, and only root may open it so")
        return
    if not host.iommu and not host.unsafe_no_iommu:
        plan.refusals.append("it is bound to vfio-pci, but the IOMMU is off")
    _group(nic, plan)
    if nic.iommu_group and host.iommu and not nic.vfio_writable:
        plan.needs(
            f"this user may not open /dev/vfio/{nic.iommu_group}",
            f"chown {uid} /dev/vfio/{nic.iommu_group}",
        )


def judge(
    host: Host, nic: Nic, known: list[Driver], plane: Object | None, unknown: str, uid: int = 0
) -> Verdict:
    """One card's verdict. `unknown`: why drivers could not be looked at, "" where they were."""
    core = best_core(host, nic.node)
    if unknown:
        usable = UNKNOWN if takes_cards(plane) else NOT
        return Verdict(nic.address, usable, UNKNOWN, unknown, core=core)
    fitting = [driver for driver in known if driver.takes(nic.ids)]
    loadable = [d for d in fitting if plane is None or not plane.abi or d.abi == plane.abi]
    plan, driver = Plan(), (loadable or fitting or [None])[0]
    if driver is None:
        plan.refusals.append(f"no DPDK driver on this host takes {nic.name}")
    elif not loadable:
        plan.refusals.append(
            f"its driver is of DPDK {elf.release(driver.abi)}, and the data plane of "
            f"{elf.release(plane.abi if plane else '')}"
        )
    else:
        if driver.bifurcated:
            _bifurcated(host, nic, driver, plan)
        elif nic.driver in driver.modules:
            _bound(host, nic, uid, plan)
        else:
            _unbound(host, nic, driver, uid, plan)
        _pages(host, nic, plan)
    port = NOT if plan.refusals else AFTER if plan.reasons else NOW
    return Verdict(
        address=nic.address,
        usable=port if takes_cards(plane) else NOT,
        port=port,
        why="; ".join(plan.refusals or plan.reasons),
        commands=() if plan.refusals else tuple(plan.commands),
        driver=driver.name if driver else "",
        core=core,
    )


def ready(plane: Object | None) -> bool:
    """Whether the data plane is there, has DPDK in it, and can be loaded."""
    return plane is not None and plane.sound and bool(plane.dpdk) and plane.transport


def takes_cards(plane: Object | None) -> bool:
    """Whether it is ready, and not for virtual devices alone."""
    return plane is not None and ready(plane) and plane.cards


def memif_url(host: Host, uid: int) -> str:
    """Where this user's server may make its socket: nobody else may stand there before it does."""
    url = f"{MEMIF_URL}{host.socket_folder or '/run/replay-server'}/replay.memif"
    made = f"after `install -d -o {uid} /run/replay-server`, as root: "
    return url if host.socket_folder else f"{made}{url}"


def _about_build(
    core: Object | None, plane: Object | None, readable: bool, memif: str
) -> list[str]:
    """What our own objects lack, and the URL for processes of this host."""
    advice = []
    if core is None:
        advice.append("the compiled core is missing, and nothing serves without it: make engine")
    for what in (core, plane):
        if what is None or not readable:
            continue
        name = Path(what.path).name
        if what.trouble:
            advice.append(f"{name} cannot be read: {what.trouble}; build it anew: make engine")
        elif what.missing:
            brings = ": apt-get install libdpdk-dev" if what is plane else ""
            advice.append(
                f"{name} cannot be loaded: no {', '.join(what.missing)} on this host{brings}"
            )
        if what.executable_stack:
            advice.append(f"{name} asks for an executable stack: build it anew")
    if plane is None:
        advice.append(
            f"{NO_PLANE}: it does not serve dpdk://, and udp:// is its best; one is built in a "
            f"checkout: apt-get install libdpdk-dev, then make dpdk"
        )
    elif readable and plane.sound and not ready(plane):
        lacks = "no DPDK linked in" if not plane.dpdk else f"no {elf.SYMBOL} in it"
        advice.append(f"{Path(plane.path).name} has {lacks}: build it anew with make dpdk")
    elif readable and ready(plane):
        if not plane.cards:
            advice.append(f"{Path(plane.path).name} takes virtual devices only, no card")
        advice.append(
            f"past the kernel between processes of this host, each with a core of its own: {memif}"
        )
    return advice


def shown(line: str) -> str:
    """The line with what is not printable as escapes: names may hold any bytes."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return line if line.isprintable() else "".join(escaped)


def shell_word(name: str) -> str:
    """The name as a word of a shell; bytes that are no text as bash, zsh, POSIX 2024 have them."""
    if name.isprintable():
        return shlex.quote(name)
    escaped = (
        chr(b) if 32 < b < 127 and chr(b) not in "'\\" else f"\\{b:03o}" for b in os.fsencode(name)
    )
    return f"$'{''.join(escaped)}'"


def _about_xdp(name: str, whose: str) -> str:
    """An XDP program on an interface, that no server or client is known to use over AF_XDP."""
    if whose == xdp.LEFT:
        return (
            f"{name} has the XDP program of a server or client over AF_XDP that was killed: the "
            f"next one takes it over, and ip link set dev {shell_word(name)} xdp off, as root, "
            "removes it"
        )
    if whose == xdp.MAYBE:
        return (
            f"{name} has the XDP program of a server or client over AF_XDP: if none runs there, it "
            "was killed, and the next one takes its program over; ip link set dev "
            f"{shell_word(name)} xdp off, as root, removes it"
        )
    if whose == xdp.UNKNOWN:
        return f"{name} has an XDP program, and AF_XDP nothing beside it: root's doctor says whose"
    return f"{name} has an XDP program, {whose}: AF_XDP would replace it, and is refused there"


def _about_veths(names: tuple[str, ...]) -> list[str]:
    """What the other ends need where a server is to hear them. A host of containers has many."""
    if not names:
        return []
    more = f" and {len(names) - VETHS_NAMED} more" if len(names) > VETHS_NAMED else ""
    return [
        f"behind a veth pair ({', '.join(names[:VETHS_NAMED])}{more}) the kernel leaves checksums "
        f"to a card that is none, and a server over af_packet or af_xdp drops what comes from "
        f"there; where such a client is, on its own interface: ethtool -K INTERFACE tx off"
    ]


def _about_host(host: Host, plane: Object | None, uid: int) -> list[str]:
    """What makes any transport slower here, and what only DPDK cares for."""
    advice = []
    if host.governor not in ("", "performance"):
        advice.append(
            f"the frequency governor is {host.governor}: latency is better with `performance` "
            f"(deploy/LATENCY.md)"
        )
    if len(host.cpus) > 1:
        advice.append(
            f"the lowest latency on this host: serve ... --busy-poll --core "
            f"{best_core(host, None)}, which takes that CPU for itself"
        )
    advice += [_about_xdp(name, whose) for name, whose in host.with_xdp if whose != xdp.USED]
    small = {name: size for name, size in host.socket_limits if size < SOCKET_BYTES}
    if uid and small:
        more = " ".join(f"net.core.{name}={SOCKET_BYTES}" for name in small)
        advice.append(
            f"the kernel gives a UDP socket {min(small.values()) >> 10} KiB, and the server asks "
            f"for {SOCKET_BYTES >> 10}: sysctl -w {more}, else fewer datagrams may be on their way"
        )
    advice += [
        f"{nic.address} has {nic.speed_mbps / 1000:g} Gbit/s behind a PCIe link of "
        f"{nic.pcie_mbps / 1000:.0f} ({nic.pcie}): another slot"
        for nic in host.nics
        if nic.speed_mbps and nic.pcie_mbps and nic.pcie_mbps < nic.speed_mbps
    ]
    if not ready(plane):
        return advice
    if host.forwards:
        advice.append(
            "this host forwards IPv4: beside a server over af_packet its kernel forwards what "
            "comes to that, or answers its clients by ICMP; on that server's interface: "
            "sysctl -w net.ipv4.conf.INTERFACE.forwarding=0"
        )
    advice += _about_veths(host.veths)
    if not host.isolated:
        advice.append("no CPU is isolated: deploy/LATENCY.md has the kernel line")
    if uid and host.memlock is not None and host.memlock < 1 << 30:
        advice.append(
            f"this user may lock {host.memlock >> 20} MiB of memory, and vfio wants all that DPDK "
            f"takes: ulimit -l unlimited, or LimitMEMLOCK=infinity in the service"
        )
    if host.mounts and not any(mount.writable for mount in host.mounts):
        paths = ", ".join(mount.path for mount in host.mounts)
        advice.append(f"this user may not write to {paths}: only DPDK's --in-memory works")
    return advice


def examine(
    root: Path = Path("/"),
    package: Path | None = None,
    folders: list[Path] | None = None,
    uid: int = 0,
) -> Report:
    """Looks at the host below `root` as user `uid`.

    package: the folder of our objects (default: this package's); folders: of DPDK's drivers
    (default: where distributions put them).
    """
    named = os.environ.get(elf.VARIABLE) if package is None else None
    package = package or Path(__file__).resolve().parents[1]
    readable = elf.readable()
    host = read_host(root, uid)
    own: dict[str, Object] = {}
    found = dict(elf.own_objects(package))
    if named:
        found["data plane"] = Path(named)
    for kind, path in found.items():
        seen = elf.look_at(path, root) if readable else Object(str(path))
        own[kind] = seen
    core, plane = own.get("core"), own.get("data plane")
    folders = elf.driver_folders(root) if folders is None else folders
    files = elf.driver_files(folders)
    if plane is not None and not plane.trouble:  # drivers may be linked into it
        files.append(Path(plane.path))
    known, unread = elf.drivers(files) if readable else ([], [])
    unknown = ""
    if not readable:
        unknown = f"pyelftools is missing, which reads what DPDK's drivers take: {elf.INSTALL}"
    elif not any(driver.pci_ids for driver in known):  # those linked in may be virtual ones
        unknown = f"DPDK's drivers are not installed here: {INSTALL_DPDK}"
    nics = tuple(judge(host, nic, known, plane, unknown, uid) for nic in host.nics)
    advice = [unknown] if unknown else []
    advice += [f"not looked at: {what}" for what in unread]
    advice += _about_build(core, plane, readable, memif_url(host, uid))
    advice += _about_host(host, plane, uid)
    abis = sorted({driver.abi for driver in known} - {""})
    report = Report(
        host=host,
        core=core,
        plane=plane,
        dpdk=", ".join(elf.release(abi) for abi in abis),
        drivers=len(known),
        nics=nics,
    )
    return _with_url(report, advice)


def _with_url(report: Report, advice: list[str]) -> Report:
    """The report with the best URL, and how others reach it."""
    speed = {nic.address: nic.speed_mbps or 0 for nic in report.host.nics}
    takers = [nic for nic in report.nics if nic.usable == NOW]
    if not takers:
        advice.append(
            f"clients of other hosts: udp://0.0.0.0:{PORT} with --insecure on a network whose "
            f"every host you trust, or zmq+tcp:// with keys"
        )
        return dataclasses.replace(report, advice=tuple(advice), url=UDP_URL)
    best = max(takers, key=lambda nic: speed[nic.address])
    pinned = "" if best.core is None else f", with --core {best.core}"
    advice.append(
        f"ADDRESS is the one that {best.address} shall answer at: the kernel's is not its{pinned}"
    )
    url = f"dpdk://ADDRESS:{PORT}?port={best.address}"
    return dataclasses.replace(report, advice=tuple(advice), url=url)


def _size(size: int) -> str:
    """A hugepage's size as people say it."""
    shift, unit = next(each for each in ((30, "G"), (20, "M"), (10, "K")) if size >> each[0])
    return f"{size >> shift} {unit}iB"


def _host_lines(host: Host) -> list[str]:
    """The host in a few lines."""
    count = len(host.nodes)
    nodes = "; ".join(
        f"node {node}: {len(cpus)} CPUs" if cpus else f"node {node}: no CPU"
        for node, cpus in host.nodes.items()
    )
    rows = [
        f"host: {len(host.cpus)} CPUs{f' ({host.machine})' if host.machine else ''}, "
        f"{count or 'no'} NUMA node{'' if count == 1 else 's'}"
        + (f" ({nodes})" if count > 1 else "")
        + f", {len(host.isolated) or 'none'} isolated"
    ]
    for pages in host.pages:
        free = "".join(f", node {node}: {free}" for node, free in pages.free_on.items())
        rows.append(
            f"hugepages of {_size(pages.size)}: {pages.free} free of {pages.total}"
            + (free if len(pages.free_on) > 1 else "")
            + (f", {pages.reserved} reserved by others" if pages.reserved else "")
        )
    rows += [] if host.pages else ["hugepages: none in this kernel"]
    rows += [
        f"hugetlbfs at {mount.path}: {'' if mount.writable else 'not '}writable"
        for mount in host.mounts
    ] or ["hugetlbfs: not mounted"]
    loaded = [name for name in ("vfio_pci", "uio_pci_generic", "igb_uio") if name in host.modules]
    rows.append(
        f"IOMMU: {'on' if host.iommu else 'off'}"
        f"{' (vfio without it is allowed)' if host.unsafe_no_iommu else ''}; "
        f"loaded: {', '.join(loaded) or 'neither vfio-pci nor uio'}"
    )
    return rows


def _build_lines(report: Report) -> list[str]:
    """Our shared objects and DPDK's drivers, one line each."""
    rows = []
    for what in (report.core, report.plane):
        if what is None:
            continue
        linked = f"DPDK {elf.release(what.abi)} " if what.abi else "DPDK "
        linked = f"{linked}linked in ({what.dpdk})" if what.dpdk else "no DPDK linked in"
        state = "not looked at" if not what.needed and not what.trouble else linked
        rows.append(f"build: {Path(what.path).name}: {what.trouble or state}")
    rows += [] if report.plane else [f"build: {NO_PLANE}"]
    found = f"{report.drivers} of DPDK {report.dpdk}" if report.drivers else "none found"
    return [*rows, f"DPDK's network drivers: {found}"]


def _nic_lines(nic: Nic, verdict: Verdict, plane: Object | None) -> list[str]:
    """A card, and what becomes of it."""
    speed = f"{nic.speed_mbps / 1000:g} Gbit/s" if nic.speed_mbps else "speed not known"
    what = " ".join((*nic.interfaces, f"({nic.driver or 'no driver'})"))
    node = "no NUMA node" if nic.node is None else f"NUMA node {nic.node}"
    rows = [f"nic {nic.address} {nic.name} {what}: {speed}, {node}"]
    by = f" by {verdict.driver}" if verdict.driver else ""
    port = f"{verdict.port}{by}" + (" these commands" if verdict.port == AFTER else "")
    port += f": {verdict.why}" if verdict.why else ""
    if verdict.usable != verdict.port:
        lack = "which takes virtual devices only" if ready(plane) else "which has no data plane"
        port = f"{NOT} by this build, {lack}; the port itself: {port}"
    rows += [f"    {port}", *(f"        {command}" for command in verdict.commands)]
    return rows + [_queues_line(name, count) for name, count in nic.queues if count > 1]


def _queues_line(name: str, count: int) -> str:
    """How an interface of several receive queues gets as many shards."""
    fewer = f"ethtool -L {shell_word(name)} combined"
    shards = f"serve --shards {min(count, SHARDS_MAX)}"
    shards = f"{fewer} {SHARDS_MAX} and {shards}" if count > SHARDS_MAX else shards
    return (
        f"    AF_XDP there hears one receive queue, and {name} has {count}: {fewer} 1, or {shards}"
    )


def lines(report: Report) -> list[str]:
    """The report as text; the URL is the last word."""
    rows = _host_lines(report.host) + _build_lines(report)
    for nic, verdict in zip(report.host.nics, report.nics, strict=True):
        rows += _nic_lines(nic, verdict, report.plane)
    rows += [] if report.nics else ["nic: no PCI network card"]
    rows += [f"advice: {sentence}" for sentence in report.advice]
    return [*rows, f"best URL for serve on this host: {report.url}"]


def as_json(report: Report) -> str:
    """The report as one JSON object."""

    def plain(value: Any) -> Any:
        return sorted(value) if isinstance(value, frozenset) else str(value)

    return json.dumps(dataclasses.asdict(report), indent=2, default=plain)
