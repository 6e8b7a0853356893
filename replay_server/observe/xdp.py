"""XDP programs on this network namespace's interfaces, and whose they are.

    with_xdp()    # (("eth1", LEFT), ("eth2", "firewall")); root's eyes see more than others'

A program of AF_XDP's own outlives a process that was killed; it is left over where nobody has a
queue of its interface. Everything is asked of the kernel: sysfs says none of it. A card's driver
that takes AF_XDP without copying would begin again with a queue that is asked for: so a card's
queues are not, and its program counts as MAYBE.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import socket
import struct

from .netlink import (
    IFLA_IFNAME,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    IFLA_NUM_RX_QUEUES,
    IFLA_XDP,
    attributes,
    links,
)

LEFT, USED, MAYBE, UNKNOWN = "left", "used", "maybe used", ""  # else the name of its program
OWN = "xsk_def_prog"  # libxdp's, as in native/dpdk/dpdk_xdp.c
IFLA_XDP_ATTACHED, IFLA_XDP_PROG_ID = 2, 4
AF_XDP, SOL_XDP = 44, 283
XDP_RX_RING, XDP_UMEM_REG, XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING = 2, 4, 5, 6
XDP_ZEROCOPY = 4
CHUNK, QUEUES_MAX = 4096, 1024
BPF = {"x86_64": 321, "aarch64": 280}  # the system call
BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD, NAME_AT, NAME_BYTES = 13, 15, 64, 16
_libc = ctypes.CDLL(None, use_errno=True)


def with_xdp() -> tuple[tuple[str, str], ...]:
    """Each interface with a program: its name, and LEFT, USED, MAYBE (one of the two), UNKNOWN or
    the program's name. () where the kernel cannot be asked."""
    try:
        there = list(links())
    except OSError:
        return ()
    return tuple(
        (os.fsdecode(link[IFLA_IFNAME].rstrip(b"\0")), _whose(index, link, program))
        for index, link in there
        if (program := _program(link)) is not None
    )


def has_program(interface: str) -> bool:
    """Whether an XDP program is on it; OSError where the kernel cannot be asked."""
    wanted = os.fsencode(interface)
    return any(
        link[IFLA_IFNAME].rstrip(b"\0") == wanted and _program(link) is not None
        for _, link in links()
    )


def _whose(index: int, link: dict[int, bytes], program: int) -> str:
    name = _name(program)
    if name != OWN:
        return name
    if IFLA_INFO_KIND not in attributes(link.get(IFLA_LINKINFO, b"")):
        return MAYBE  # no kind such as veth: it is a card's
    count = struct.unpack("=I", link.get(IFLA_NUM_RX_QUEUES, b"\1\0\0\0"))[0]
    return USED if any(_is_taken(index, queue) for queue in range(min(count, QUEUES_MAX))) else LEFT


def _program(link: dict[int, bytes]) -> int | None:
    """The number of its program, 0 where it has several; None: there is none."""
    found = attributes(link.get(IFLA_XDP, b""))
    if not found.get(IFLA_XDP_ATTACHED, b"\0")[0]:
        return None
    return int(struct.unpack("=I", found.get(IFLA_XDP_PROG_ID, bytes(4)))[0])


def _bpf(command: int, attributes: bytes) -> int:
    """The system call; -1 where it fails."""
    number = BPF.get(platform.machine())
    asked = ctypes.create_string_buffer(attributes, 128)
    return -1 if number is None else int(_libc.syscall(number, command, asked, 128))


def _name(program: int) -> str:
    """The program's name; UNKNOWN where this user may not see it."""
    file = _bpf(BPF_PROG_GET_FD_BY_ID, struct.pack("=III", program, 0, 0)) if program else -1
    if file < 0:
        return UNKNOWN
    raw = ctypes.create_string_buffer(NAME_AT + NAME_BYTES)
    failed = _bpf(
        BPF_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", file, len(raw), ctypes.addressof(raw))
    )
    os.close(file)
    name = raw.raw[NAME_AT:].split(b"\0")[0].decode(errors="replace")
    return UNKNOWN if failed else name or "one without a name"


def _is_taken(index: int, queue: int) -> bool:
    """Whether a socket has the queue, as dpdk_xdp.c asks: in a way that a driver which copies
    always refuses, but after it looked; so nobody has to wait for the queue behind this. What
    cannot be asked for counts as taken."""
    with mmap.mmap(-1, 2 * CHUNK) as memory:
        held = ctypes.c_char.from_buffer(memory)
        umem = struct.pack("=QQIII4x", ctypes.addressof(held), 2 * CHUNK, CHUNK, 0, 0)
        place = struct.pack("=HHIII", AF_XDP, XDP_ZEROCOPY, index, queue, 0)
        try:
            with socket.socket(AF_XDP, socket.SOCK_RAW) as asked:
                asked.setsockopt(SOL_XDP, XDP_UMEM_REG, umem)
                for ring in (XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING):
                    asked.setsockopt(SOL_XDP, ring, 2)
                failed = _libc.bind(asked.fileno(), place, len(place))
                return bool(failed) and ctypes.get_errno() == errno.EBUSY
        except OSError:
            return True
        finally:
            del held
