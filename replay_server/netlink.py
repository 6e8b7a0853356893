"""Interfaces and their addresses, as the kernel's netlink tells of them, in this network namespace.

for index, link in links(): ...    # link[IFLA_IFNAME]; nothing where the kernel cannot be asked
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_GETADDR, NLM_F_REQUEST_DUMP = 16, 18, 20, 22, 0x301
IFLA_IFNAME, IFLA_PROMISCUITY, IFLA_NUM_RX_QUEUES, IFLA_XDP = 3, 30, 32, 43
IFA_LOCAL, IFF_PROMISC = 2, 0x100
NETLINK_S = 2.0  # the kernel answers at once


def links() -> Iterator[tuple[int, dict[int, bytes]]]:
    """Number and attributes of each interface."""
    for body in _dumped(RTM_GETLINK, RTM_NEWLINK, socket.AF_UNSPEC):
        yield struct.unpack_from("=i", body, 4)[0], attributes(body[16:])


def addresses(interface: str) -> list[str]:
    """Those of IPv4, by the interface's number: a label may be any name."""
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return []
    return [
        socket.inet_ntoa(told[IFA_LOCAL])
        for body in _dumped(RTM_GETADDR, RTM_NEWADDR, socket.AF_INET)
        if struct.unpack_from("=I", body, 4)[0] == index
        and IFA_LOCAL in (told := attributes(body[8:]))
    ]


def is_made_promiscuous(interface: str) -> bool:
    """By somebody, beside the switch of `ip link`, which counts as one."""
    wanted = interface.encode()
    for body in _dumped(RTM_GETLINK, RTM_NEWLINK, socket.AF_UNSPEC):
        link, flags = attributes(body[16:]), struct.unpack_from("=I", body, 8)[0]
        if link[IFLA_IFNAME].rstrip(b"\0") == wanted:
            count = struct.unpack("=I", link.get(IFLA_PROMISCUITY, bytes(4)))[0]
            return bool(count > bool(flags & IFF_PROMISC))
    return False


def _dumped(question: int, kind: int, family: int) -> list[bytes]:
    """The bodies of all messages of that kind; none where the kernel cannot be asked."""
    found = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
            asked.settimeout(NETLINK_S)
            asked.send(struct.pack("=IHHIIB15x", 32, question, NLM_F_REQUEST_DUMP, 1, 0, family))
            while True:
                messages = list(_split(asked.recv(1 << 16), "=IH", 16, 0))
                found += [body for told, body in messages if told == kind]
                if not messages or any(told != kind for told, _ in messages):
                    return found
    except OSError:
        return []


def attributes(data: bytes) -> dict[int, bytes]:
    """Of a message or a nest, by their types."""
    return dict(_split(data, "=HH", 4, 0x3FFF))


def _split(data: bytes, head: str, header: int, mask: int) -> Iterator[tuple[int, bytes]]:
    """Netlink's messages and attributes: a length, a type, a body; each begins at a multiple of 4.
    mask: the bits of the type, 0 for all."""
    while len(data) >= header:
        size, kind = struct.unpack_from(head, data)
        if size < header:
            return
        yield kind & (mask or 0xFFFF), data[header:size]
        data = data[(size + 3) & ~3 :]
