"""Interfaces, their addresses and routes, from the kernel's netlink, in this network namespace.

for index, link in links(): ...    # link[IFLA_IFNAME]

OSError: the kernel does not say.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_GETADDR, NLM_F_REQUEST_DUMP = 16, 18, 20, 22, 0x301
IFLA_IFNAME, IFLA_LINKINFO, IFLA_PROMISCUITY, IFLA_NUM_RX_QUEUES, IFLA_XDP = 3, 18, 30, 32, 43
IFLA_INFO_KIND = 1
IFA_LOCAL, IFF_PROMISC = 2, 0x100
RTM_NEWROUTE, RTM_GETROUTE, RTM_NEWNEXTHOP, RTM_GETNEXTHOP = 24, 26, 104, 106
RTM_NEWQDISC, RTM_GETQDISC, TCA_KIND = 36, 38, 1
RTA_DST, RTA_OIF, RTA_MULTIPATH, RTA_TABLE, RTA_NH_ID, RT_TABLE_LOCAL = 1, 4, 9, 15, 30, 255
NHA_ID, NHA_GROUP, NHA_OIF = 1, 2, 5
NLMSG_ERROR, NLMSG_DONE = 2, 3
NETLINK_S = 2.0  # the kernel answers at once


def links() -> Iterator[tuple[int, dict[int, bytes]]]:
    """Number and attributes of each interface."""
    for body in _dumped(RTM_GETLINK, RTM_NEWLINK, socket.AF_UNSPEC):
        yield struct.unpack_from("=i", body, 4)[0], attributes(body[16:])


def veths() -> tuple[str, ...]:
    """The interfaces that are an end of a veth pair. () where the kernel does not tell."""
    try:
        there = [link for _, link in links()]
    except OSError:
        return ()
    kinds = (attributes(link.get(IFLA_LINKINFO, b"")).get(IFLA_INFO_KIND, b"") for link in there)
    return tuple(
        os.fsdecode(link[IFLA_IFNAME].rstrip(b"\0"))
        for link, kind in zip(there, kinds, strict=True)
        if kind.rstrip(b"\0") == b"veth"
    )


def addresses(interface: str) -> list[str]:
    """The interface's IPv4 addresses, found by its number: a label may be any name."""
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return []
    return [
        socket.inet_ntoa(found[IFA_LOCAL])
        for body in _dumped(RTM_GETADDR, RTM_NEWADDR, socket.AF_INET)
        if struct.unpack_from("=I", body, 4)[0] == index
        and IFA_LOCAL in (found := attributes(body[8:]))
    ]


def routes(interface: str) -> list[IPv4Network | IPv6Network]:
    """The networks that routes over this interface lead to, over any next hop, in each routing
    table but the host's own."""
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return []
    hops, found = _hops(index), []
    for family, size in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
        for body in _dumped(RTM_GETROUTE, RTM_NEWROUTE, family):
            route = attributes(body[12:])
            ways = {way for way, _ in _split(route.get(RTA_MULTIPATH, b""), "=Hxxi", 8, -1)}
            is_there = index in ways | {_number(route, RTA_OIF)}
            if not is_there and _number(route, RTA_NH_ID) not in hops:
                continue
            if _number(route, RTA_TABLE) != RT_TABLE_LOCAL:
                found.append(ip_network((route.get(RTA_DST, bytes(size)), body[1])))
    return found


def _hops(index: int) -> set[int]:
    """The next hops there, and the groups that have one, by their numbers: a route may name them
    alone (nexthop_compat_mode is 0)."""
    bodies = _dumped(RTM_GETNEXTHOP, RTM_NEWNEXTHOP, socket.AF_UNSPEC)
    hops = [attributes(body[8:]) for body in bodies]
    there = {_number(hop, NHA_ID) for hop in hops if _number(hop, NHA_OIF) == index}
    for hop in hops:
        members = {number for (number,) in struct.iter_unpack("=I4x", hop.get(NHA_GROUP, b""))}
        if members & there:
            there.add(_number(hop, NHA_ID))
    return there


def _number(found: dict[int, bytes], kind: int) -> int:
    """The attribute of this kind as a number; 0 where it is missing."""
    return struct.unpack("=I", found.get(kind, bytes(4)))[0]


def is_made_promiscuous(interface: str) -> bool:
    """Whether a program made it promiscuous; the switch of `ip link` is not counted."""
    wanted = os.fsencode(interface)
    for body in _dumped(RTM_GETLINK, RTM_NEWLINK, socket.AF_UNSPEC):
        link, flags = attributes(body[16:]), struct.unpack_from("=I", body, 8)[0]
        if link[IFLA_IFNAME].rstrip(b"\0") == wanted:
            return _number(link, IFLA_PROMISCUITY) > bool(flags & IFF_PROMISC)
    return False


def has_filters(interface: str) -> bool:
    """Whether tc has a place for filters there, of what comes in."""
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return False
    return any(
        attributes(body[20:]).get(TCA_KIND, b"").rstrip(b"\0") in (b"ingress", b"clsact")
        for body in _dumped(RTM_GETQDISC, RTM_NEWQDISC, socket.AF_UNSPEC)
        if struct.unpack_from("=i", body, 4)[0] == index
    )


def _dumped(question: int, kind: int, family: int) -> list[bytes]:
    """The bodies of all messages of that kind."""
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.settimeout(NETLINK_S)
        # Next hops take no byte too many, and tc none too few.
        size = {RTM_GETNEXTHOP: 24, RTM_GETQDISC: 36}.get(question, 32)
        head = struct.pack("=IHHIIB19x", size, question, NLM_F_REQUEST_DUMP, 1, 0, family)
        asked.send(head[:size])
        while True:
            messages = list(_split(asked.recv(1 << 16), "=IH", 16, -1))
            found += [body for each, body in messages if each == kind]
            for each, body in messages:
                if each in (NLMSG_ERROR, NLMSG_DONE):
                    _look_at_end(question, body)
            if not messages or any(each != kind for each, _ in messages):
                return found


def _look_at_end(question: int, body: bytes) -> None:
    """Raises the errno with which the last message begins, unless it is 0. Before Linux 5.3 there
    are no next hops, and without CONFIG_NET_SCHED no filters."""
    failed = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
    unknown = question in (RTM_GETNEXTHOP, RTM_GETQDISC) and failed == errno.EOPNOTSUPP
    if failed and not unknown:
        raise OSError(failed, os.strerror(failed))


def attributes(data: bytes) -> dict[int, bytes]:
    """Of a message or a nest, by their types."""
    return dict(_split(data, "=HH", 4, 0x3FFF))


def _split(data: bytes, head: str, header: int, mask: int) -> Iterator[tuple[int, bytes]]:
    """Netlink's messages and attributes: a length, a type, a body; each begins at a multiple of 4.
    mask: the bits of the type, -1 for all. A next hop has its interface in the type's place."""
    while len(data) >= header:
        size, kind = struct.unpack_from(head, data)
        if size < header:
            return
        yield kind & mask, data[header:size]
        data = data[(size + 3) & ~3 :]
