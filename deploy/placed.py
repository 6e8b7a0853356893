"""What runs on a node of a Ray cluster: the look at it, and one program as the child of an actor.

Ray brings this module to the node by value (ray_engine.py), so it has the standard library alone.
A program ends with its actor: it asks the kernel for SIGKILL at its parent's end (Linux). The
parent, for the kernel, is the thread that started it, so one thread starts it and waits for it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

SIOCGIFADDR = 0x8915
CHUNK = 1 << 16
# Before the program: it dies with its parent, and hears signals as programs do, not as Ray's do.
GUARD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def looked(ip: str, token: str) -> dict[str, object]:
    """Of this node: a free port and the interface of its address; what the file `token` says here;
    whether the programs are installed."""
    with socket.socket() as probe:
        probe.bind((ip, 0))
        port = probe.getsockname()[1]
    path = Path(token)
    return {
        "port": port,
        "interface": interface_of(ip),
        "token": path.read_text() if path.exists() else "",
        "installed": find_spec("replay_server") is not None,
    }


def interface_of(ip: str) -> str:
    """The name of the network interface with this address; that of loopback where none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                found = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)[20:24]
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(found) == ip:
                return name
    return "lo"


class Placed:
    """One program. Methods are called from several threads of the actor."""

    def __init__(
        self, name: str, command: Sequence[str], log: str, variables: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, log
        # a node has a Python of its own
        self.command = [sys.executable, "-c", GUARD, sys.executable, *command[1:]]
        self.variables = {**os.environ, **variables}
        self.child: subprocess.Popen[bytes] | None = None
        self.started, self.told = threading.Event(), False
        self.code = 1
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def __repr__(self) -> str:
        return self.name  # Ray's dashboard and logs show it

    def _run(self) -> None:
        try:
            self.child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self.variables,
                start_new_session=True,
            )
        finally:
            self.started.set()
        with open(self.log, "ab", buffering=0) as log:
            while said := os.read(self.child.stdout.fileno(), CHUNK):
                log.write(said)
                print(said.decode(errors="replace"), end="", flush=True)  # Ray keeps it too
        self.code = self.child.wait()

    def wait(self) -> int:
        """The program's exit code, once it ended."""
        self.thread.join()
        return self.code

    def tell(self) -> None:
        """SIGTERM, if it still runs."""
        self.started.wait()
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
