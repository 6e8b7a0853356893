"""Compiles native/ into one extension, `replay_server._engine`: stable ABI, libc only.

What Python may call is written once, in the public headers, between the marks
`/* [cffi] */` and `/* [/cffi] */`: the C compiler reads it there, and so does cffi, which checks
every size and offset against what the compiler found. No flag here depends on the machine that
builds: wide instructions are chosen at run time. Assertions stay on.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent
HEADERS = (
    *("protocol/wire.h", "protocol/config.h", "server/meter.h", "client/client.h"),
    *("transport/transport_zmq.h", "replay.h"),
)
APART = ("dpdk", "appliance")  # the data plane's object, and a program without Python
LINUX = sys.platform == "linux"
# REPLAY_POSIX=1 builds on Linux what other systems get (native/os/posix.h).
SYSTEM = (
    [("_GNU_SOURCE", None)]
    if LINUX and not os.environ.get("REPLAY_POSIX")
    else [("_DEFAULT_SOURCE", None), ("RP_POSIX", None)]
)
MARKED = re.compile(r"/\* \[cffi\] \*/(.*?)/\* \[/cffi\] \*/", re.DOTALL)


def cdef_text(native: Path = ROOT / "native") -> str:
    """The declarations between the marks of the public headers, in the order they need."""
    parts = []
    for header in HEADERS:
        marked = MARKED.findall((native / header).read_text())
        if not marked:
            raise SystemExit(f"{header} has nothing between [cffi] marks")
        parts += marked
    return "\n".join(parts)


def version(pyproject: Path = ROOT / "pyproject.toml") -> str:
    """The package's own; nothing that reads TOML is sure to be there while it is built."""
    return re.search(r'^version = "(.+)"$', pyproject.read_text(), re.MULTILINE).group(1)


def core(pattern: str) -> list[str]:
    """The core's files, from the project's root on."""
    every = [path.relative_to(ROOT) for path in (ROOT / "native").rglob(pattern)]
    return sorted(str(path) for path in every if path.parent.name not in APART)


def builder() -> FFI:
    """What setuptools compiles; paths are relative to the project's root, where it runs."""
    ffi = FFI()
    ffi.cdef(cdef_text())
    ffi.set_source(
        "replay_server._engine",
        '#include "replay.h"\n',
        sources=core("*.c"),
        depends=[*core("*.h"), "pyproject.toml"],
        include_dirs=["native"],
        define_macros=[*SYSTEM, ("RP_VERSION", version())],
        libraries=["m"],
        # Python's own flags define NDEBUG: assertions are part of what this code promises.
        extra_compile_args=["-O2", "-std=c11", "-UNDEBUG", "-pthread", "-fvisibility=hidden"],
        extra_link_args=["-pthread", *(["-Wl,-z,relro,-z,now,-z,noexecstack"] if LINUX else [])],
        py_limited_api=True,
    )
    return ffi


ffibuilder = builder()
