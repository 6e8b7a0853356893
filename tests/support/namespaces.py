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
from pathlib import Path

import replay_server
from replay_server.bench.namespaces import INTERFACE, Pair, enter, missing
from replay_server.bench.namespaces import entered as inside

__all__ = ["INTERFACE", "SERVER", "inside", "leaked_mbufs", "on", "the_pair"]

SERVER = "198.18.0.7"  # of the server past the kernel; the kernel beside it has 198.18.0.1


def on(kind: str, interface: str = INTERFACE) -> str:
    """The words of a URL for a device there: its kernel has an address, which AF_XDP is told."""
    return f"vdev=net_{kind},iface={interface}" + (",take=on" if kind == "af_xdp" else "")


def leaked_mbufs() -> int:
    """Mbufs that were in use when their pool was to be freed, since this process began."""

    class Object(ctypes.Structure):  # struct rp_dpdk_object of native/transport/transport_dpdk.h
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
    enter(pair.client)
    return pair
