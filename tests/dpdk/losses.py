"""Frames lost on an interface, at random: a small XDP program, gone with the file it is held by.

The usual tool, tc's netem, is a module that many kernels lack.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from namespaces import inside

from replay_server.bench.namespaces import End

BPF = {"x86_64": 321, "aarch64": 280}  # the system call
PROG_LOAD, LINK_CREATE, PROG_TYPE_XDP, ATTACH_XDP = 5, 28, 6, 37
XDP_DROP, XDP_PASS, RANDOM = 1, 2, 7
RTM_SETLINK, REQUEST_ACK, IFLA_XDP, IFLA_XDP_FD, NLA_F_NESTED = 19, 5, 43, 1, 0x8000
_libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    """A file, or an OSError."""
    number = BPF[platform.machine()]
    result = _libc.syscall(number, command, ctypes.create_string_buffer(attributes, 128), 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _program(of_256: int) -> bytes:
    """r0 = random & 255; r0 < of_256 ? XDP_DROP : XDP_PASS."""
    steps = (
        (0x85, 0, RANDOM),
        (0x57, 0, 255),
        (0xA5, 2, of_256),
        (0xB7, 0, XDP_PASS),
        (0x95, 0, 0),
        (0xB7, 0, XDP_DROP),
        (0x95, 0, 0),
    )
    return b"".join(struct.pack("<BBhi", code, 0, jump, value) for code, jump, value in steps)


@contextmanager
def _loaded(of_256: int, name: bytes) -> Iterator[int]:
    program, license_text = _program(of_256), b"GPL\0"
    held = ctypes.create_string_buffer(program, len(program))
    word = ctypes.create_string_buffer(license_text)
    load = struct.pack(
        "<IIQQIIQII16sII",
        PROG_TYPE_XDP,
        len(program) // 8,
        ctypes.addressof(held),
        ctypes.addressof(word),
        0,
        0,
        0,
        0,
        0,
        name,
        0,
        ATTACH_XDP,
    )
    file = bpf(PROG_LOAD, load)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def losing(end: End, interface: str, of_256: int) -> Iterator[None]:
    """Of 256 frames that come in there, so many are lost."""
    with _loaded(of_256, b"losses") as loaded:
        with inside(end):
            index = socket.if_nametoindex(interface)
            link = bpf(LINK_CREATE, struct.pack("<IIII", loaded, index, ATTACH_XDP, 0))
        try:
            yield
        finally:
            os.close(link)


def attach(end: End, interface: str, name: str) -> None:
    """Somebody's program of that name, which passes all frames, as `ip link set xdp` attaches one:
    it stays there until somebody takes it off."""
    with _loaded(0, name.encode()) as loaded, inside(end):
        nest = struct.pack("=HHi", 8, IFLA_XDP_FD, loaded)
        body = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex(interface), 0, 0)
        body += struct.pack("=HH", 4 + len(nest), IFLA_XDP | NLA_F_NESTED) + nest
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
            asked.send(struct.pack("=IHHII", 16 + len(body), RTM_SETLINK, REQUEST_ACK, 1, 0) + body)
            assert struct.unpack_from("=i", asked.recv(4096), 16)[0] == 0
