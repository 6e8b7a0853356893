"""Two hosts for tests in this process: a pair of network namespaces, entered by one thread.

`the_pair()` makes them once in a process, moves the calling thread to the client's, and threads it
starts then are there too. A server is opened `with inside(pair.server)`: DPDK's own thread, in
which devices of the kernel's are opened and closed, stays where DPDK was started.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import replay_server
from replay_server.namespaces import INTERFACE, End, Pair, missing

__all__ = ["INTERFACE", "SERVER", "inside", "leaked_mbufs", "the_pair"]

CLONE_NEWNET = 0x40000000
NAMESPACES = Path("/run/netns")
SERVER = "198.18.0.7"  # of the server past the kernel; the kernel beside it has 198.18.0.1
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def inside(end: End) -> Iterator[None]:
    """The calling thread, in that namespace."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(NAMESPACES / end.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(there)
        try:
            yield
        finally:
            _enter(here)
    finally:
        os.close(here)
        os.close(there)


def leaked_mbufs() -> int:
    """Mbufs that were in use when their pool was to be freed, since this process began."""

    class Object(ctypes.Structure):  # struct rp_dpdk_object of native/transport_dpdk.h
        _fields_ = (
            *((name, ctypes.c_uint32) for name in ("layout", "reserved")),
            *((name, ctypes.c_void_p) for name in ("open", "dropped", "in_use")),
            ("leaked", ctypes.CFUNCTYPE(ctypes.c_uint64)),
        )

    path = os.environ.get("REPLAY_DPDK") or Path(replay_server.__file__).with_name("_dpdk.so")
    return Object.in_dll(ctypes.CDLL(os.fspath(path)), "rp_dpdk_object").leaked()


@functools.cache
def the_pair() -> Pair:
    """This process's pair; the calling thread is in the client's namespace from now on."""
    if why := missing():
        raise RuntimeError(why)
    pair = Pair()
    atexit.register(pair.close)
    there = os.open(NAMESPACES / pair.client.namespace, os.O_RDONLY | os.O_CLOEXEC)
    _enter(there)
    os.close(there)
    return pair
