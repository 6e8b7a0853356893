"""What a network card carries for its host, and what would be cut if the card were taken away.

    lost_with_card(Path("/"), "0000:03:00.0")    # ("ens1 carries the default route",); (): free

The same rule, and the same words, as deploy/nic.sh bind: an interface of the card, or of a virtual
function of it, is up and has an address or a route, or has something standing on it, or filters of
tc, or a process has a raw socket there, or somebody made it promiscuous. It is read below a root,
as in host.py. The kernel is asked for the rest, where the root is the host's own: IPv4 addresses
that no route names, routes that procfs does not show, filters, and who made it promiscuous.

What stands on it in another network namespace is seen by that alone, as a container's macvlan is on
a card that filters no MAC addresses; on one that does, it is not seen.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from .netlink import addresses, has_filters, is_made_promiscuous, routes
from .sysfs import lines, link_name, names, text
from .xdp import has_program

DEFAULT = "the default route"
DEPTH_MAX = 8  # how deep the kernel stacks interfaces
FOR_DPDK = ("vfio-pci", "igb_uio", "uio_pci_generic")
LINK_SCOPES = ("10", "20")  # of if_inet6: the host's own, the link's own
HOST = Path("/")


def _dotted(word: str) -> str:
    """An IPv4 address as /proc/net/route has it, the last byte first."""
    return socket.inet_ntoa(struct.pack("<I", int(word, 16)))


def _colons(word: str) -> str:
    return ipaddress.IPv6Address(bytes.fromhex(word)).exploded


def _routes(root: Path, interface: str) -> Iterator[str]:
    for words in lines(root / "proc/net/route"):
        if len(words) > 7 and words[0] == interface:
            default = words[1] == words[7] == "00000000"
            yield DEFAULT if default else f"the route to {_dotted(words[1])}/{_dotted(words[7])}"
    for words in lines(root / "proc/net/ipv6_route"):
        if len(words) < 10 or words[9] != interface or _is_of_the_link(words[0]):
            continue
        default = set(words[0]) == {"0"} and words[1] == "00"
        yield DEFAULT if default else f"the route to {_colons(words[0])}/{int(words[1], 16)}"
    # Procfs shows of each route one next hop, and of IPv4 one table.
    for to in routes(interface) if root == HOST else []:
        if to.version == 4:
            yield f"the route to {to.with_netmask}" if to.prefixlen else DEFAULT
        elif not _is_of_the_link(to.network_address.packed.hex()):
            yield f"the route to {to.exploded}" if to.prefixlen else DEFAULT


def _is_of_the_link(word: str) -> bool:
    return word.startswith(("fe8", "fe9", "fea", "feb", "ff"))


def _addresses(root: Path, interface: str) -> Iterator[str]:
    for words in lines(root / "proc/net/if_inet6"):
        if len(words) > 5 and words[5] == interface and words[3] not in LINK_SCOPES:
            yield f"the address {_colons(words[0])}"
    for address in addresses(interface) if root == HOST else []:
        yield f"the address {address}"


def _carried(root: Path, interface: str) -> str:
    """One thing that an interface carries, the default route first; "" for nothing."""
    try:
        found = [*_routes(root, interface), *_addresses(root, interface)]
    except ValueError:  # words where numbers should be
        return "what procfs does not say in its usual way"
    return DEFAULT if DEFAULT in found else next(iter(found), "")


def _opened(root: Path, wanted: str) -> Iterator[tuple[Path, str, str]]:
    """Each open file whose name in /proc/PID/fd matches: its place there, that name, its process;
    the lowest process first. Those of other users are seen by root alone. One look at all: a host
    has many files."""
    for process in sorted(int(name) for name in names(root / "proc") if name.isdigit()):
        folder = root / f"proc/{process}"
        for number in names(folder / "fd"):
            try:
                file = os.readlink(folder / "fd" / number)
            except OSError:  # closed since
                continue
            if re.search(wanted, file):
                yield folder / "fd" / number, file, f"{text(folder / 'comm')} (process {process})"


def _device_of(place: Path) -> str:
    """The number of the device that an open file is, as sysfs has it, or "". Its name says nothing:
    any user has such a file. O_PATH wants no right to what it names."""
    told = text(place.parents[1] / "fdinfo" / place.name)
    flags = re.search(r"^flags:\s*([0-7]+)", told, re.MULTILINE)
    if flags and int(flags[1], 8) & os.O_PATH:
        return ""
    try:
        found = os.stat(place)
    except OSError:
        return ""
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    return number if stat.S_ISCHR(found.st_mode) else ""


def _listeners(root: Path, interface: str) -> Iterator[str]:
    number = text(root / "sys/class/net" / interface / "ifindex")
    packets = lines(root / "proc/net/packet") if number else []
    inodes = [words[8] for words in packets if len(words) > 8 and words[4] == number]
    unseen = "a process of another user"
    looked = _opened(root, r"^socket:\[") if inodes else ()
    owners: dict[str, str] = {}
    for _, file, owner in looked:
        owners.setdefault(file, owner)  # several may have it: the lowest, as nic.sh says
    for owner in sorted({owners.get(f"socket:[{inode}]", unseen) for inode in inodes}):
        yield f"{owner} has a raw socket on {interface}"
    above = any(name.startswith("upper_") for name in names(root / "sys/class/net" / interface))
    if root == HOST and not inodes and not above and is_made_promiscuous(interface):
        yield f"a macvlan elsewhere, or a packet capture, made {interface} promiscuous"


def lost_with(root: Path, interface: str, depth: int = 0) -> Iterator[str]:
    """What is cut when an interface is taken away: a sentence each."""
    folder = root / "sys/class/net" / interface
    if re.fullmatch("0x.*[02468aceACE]", text(folder / "flags")):  # IFF_UP is the last bit
        return
    try:
        if carried := _carried(root, interface):
            yield f"{interface} carries {carried}"
        yield from _listeners(root, interface)
        if root == HOST and has_program(interface):
            yield f"an XDP program is on {interface}: a server over AF_XDP's, or a firewall"
        if root == HOST and has_filters(interface):
            yield f"a clsact or ingress qdisc of tc is on {interface}"
    except OSError:  # of netlink: what it did not say may be there
        yield f"the kernel does not say what {interface} carries"
    for words in lines(root / "proc/net/pppoe"):
        if words[2:3] == [interface]:
            yield f"a PPPoE session stands on {interface}"
    for name in names(folder) if depth < DEPTH_MAX else []:
        if name.startswith("upper_"):
            yield f"{name[6:]} stands on {interface}"
            yield from lost_with(root, name[6:], depth + 1)


def interfaces_of(device: Path) -> tuple[str, ...]:
    """A function's interfaces; a virtio card's hang on the virtio device below the PCI one."""
    below = [device, *(device / name for name in names(device) if name.startswith("virtio"))]
    return tuple(name for place in below for name in names(place / "net"))


def opened_past_the_kernel(root: Path) -> tuple[tuple[str, str], ...]:
    """The devices of vfio's and uio's that are open, by their numbers, and by whom; also in a
    folder that a process has for its root. For `opened_card`, of each card. Looked at are files of
    their names alone: another might lie in a network that does not answer."""
    kinds = (names(root / "sys/class" / kind) for kind in ("vfio", "vfio-dev", "uio"))
    known = "|".join(re.escape(name) for kind in kinds for name in kind)
    looked = _opened(root, rf"/({known})( \(deleted\))?$") if known else ()
    return tuple((number, owner) for place, _, owner in looked if (number := _device_of(place)))


def opened_card(root: Path, address: str, opened: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Who has the card past the kernel, a virtual machine or a server: a sentence each."""
    device = root / "sys/bus/pci/devices" / address
    group = link_name(device / "iommu_group") or "none"
    places = [root / "sys/class/vfio" / name for name in (group, f"noiommu-{group}")]
    places += [device / kind / n for kind in ("vfio-dev", "uio") for n in names(device / kind)]
    ours = {text(place / "dev") for place in places} - {""}
    found = dict.fromkeys(owner for number, owner in opened if number in ours)
    return tuple(f"{owner} has it open" for owner in found)


def lost_with_card(root: Path, address: str) -> tuple[str, ...]:
    """What is cut when DPDK takes a card: a sentence each. Nothing: the card is free."""
    device = root / "sys/bus/pci/devices" / address
    functions = [device, *(device / n for n in names(device) if n.startswith("virtfn"))]
    found: list[str] = []
    for function in functions:
        interfaces, held = interfaces_of(function), link_name(function / "driver")
        for interface in interfaces:
            found += lost_with(root, interface)
        if interfaces or not held:
            continue
        if function != device:
            found.append(f"{held} has its virtual function {link_name(function)}")
        elif held not in FOR_DPDK:
            found.append(
                f"{held} has it and no interface is here: another network namespace may have one"
            )
    return tuple(found)
