"""What a network card carries for its host, and what would be cut if the card were taken away.

    lost_with_card(Path("/"), "0000:03:00.0")    # ("ens1 carries the default route",); (): free

The same rule, and the same words, as deploy/nic.sh bind: an interface of the card, or of a virtual
function of it, is up and has an address or a route, or has something standing on it. It is read
below a root, as in host.py; IPv4 addresses that no route tells of are asked of the kernel, where
the root is the host's own.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from .sysfs import link_name, names, text

DEFAULT = "the default route"
DEPTH_MAX = 8  # how deep the kernel stacks interfaces
FOR_DPDK = ("vfio-pci", "igb_uio", "uio_pci_generic")
LINK_SCOPES = ("10", "20")  # of if_inet6: the host's own, the link's own
SIOCGIFADDR = 0x8915


def _lines(path: Path) -> list[list[str]]:
    """A table of procfs as words."""
    return [line.split() for line in text(path).splitlines()]


def _dotted(word: str) -> str:
    """An IPv4 address as /proc/net/route has it, the last byte first."""
    return socket.inet_ntoa(struct.pack("<I", int(word, 16)))


def _colons(word: str) -> str:
    return ipaddress.IPv6Address(bytes.fromhex(word)).exploded


def _routes(proc: Path, interface: str) -> Iterator[str]:
    for words in _lines(proc / "net/route"):
        if len(words) > 7 and words[0] == interface:
            default = words[1] == words[7] == "00000000"
            yield DEFAULT if default else f"the route to {_dotted(words[1])}/{_dotted(words[7])}"
    for words in _lines(proc / "net/ipv6_route"):
        if len(words) < 10 or words[9] != interface or _is_of_the_link(words[0]):
            continue
        default = set(words[0]) == {"0"} and words[1] == "00"
        yield DEFAULT if default else f"the route to {_colons(words[0])}/{int(words[1], 16)}"


def _is_of_the_link(word: str) -> bool:
    return word.startswith(("fe8", "fe9", "fea", "feb", "ff"))


def _addresses(root: Path, interface: str) -> Iterator[str]:
    for words in _lines(root / "proc/net/if_inet6"):
        if len(words) > 5 and words[5] == interface and words[3] not in LINK_SCOPES:
            yield f"the address {_colons(words[0])}"
    if root == Path("/") and (address := kernel_address(interface)):
        yield f"the address {address}"


def kernel_address(interface: str) -> str:
    """The first IPv4 address of an interface of this very host; "" where it has none."""
    import fcntl

    asked = interface.encode()[:15].ljust(40, b"\0")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            return socket.inet_ntoa(fcntl.ioctl(any_socket, SIOCGIFADDR, asked)[20:24])
    except OSError:
        return ""


def _carried(root: Path, interface: str) -> str:
    """One thing that an interface carries, the default route first; "" for nothing."""
    try:
        found = [*_routes(root / "proc", interface), *_addresses(root, interface)]
    except ValueError:  # words where numbers should be
        return "what procfs does not say in its usual way"
    return DEFAULT if DEFAULT in found else next(iter(found), "")


def _lost_with(root: Path, interface: str, depth: int = 0) -> Iterator[str]:
    folder = root / "sys/class/net" / interface
    if re.fullmatch("0x.*[02468aceACE]", text(folder / "flags")):  # IFF_UP is the last bit
        return
    if carried := _carried(root, interface):
        yield f"{interface} carries {carried}"
    for words in _lines(root / "proc/net/pppoe"):
        if words[2:3] == [interface]:
            yield f"a PPPoE session stands on {interface}"
    for name in names(folder) if depth < DEPTH_MAX else []:
        if name.startswith("upper_"):
            yield f"{name[6:]} stands on {interface}"
            yield from _lost_with(root, name[6:], depth + 1)


def interfaces_of(device: Path) -> tuple[str, ...]:
    """A function's interfaces; a virtio card's hang on the virtio device below the PCI one."""
    below = [device, *(device / name for name in names(device) if name.startswith("virtio"))]
    return tuple(name for place in below for name in names(place / "net"))


def lost_with_card(root: Path, address: str) -> tuple[str, ...]:
    """What is cut when DPDK takes a card: a sentence each. Nothing: the card is free."""
    device = root / "sys/bus/pci/devices" / address
    functions = [device, *(device / n for n in names(device) if n.startswith("virtfn"))]
    found: list[str] = []
    for function in functions:
        interfaces, held = interfaces_of(function), link_name(function / "driver")
        for interface in interfaces:
            found += _lost_with(root, interface)
        if interfaces or not held:
            continue
        if function != device:
            found.append(f"{held} has its virtual function {link_name(function)}")
        elif held not in FOR_DPDK:
            found.append(
                f"{held} has it and no interface is here: another network namespace may have one"
            )
    return tuple(found)
