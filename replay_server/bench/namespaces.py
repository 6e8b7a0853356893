"""Hosts on one machine: network namespaces with veth pairs between them, gone at the end.

    with Pair(mtu=9000) as pair:
        subprocess.Popen(pair.server.inside([...]))   # sees one interface, 198.18.0.1
        subprocess.Popen(pair.client.inside([...]))   # sees the other, 198.18.0.2

`Switch` does so for more hosts: each has a cable to a bridge in a namespace of its own.

Nothing of this machine's own network is touched: cables are made inside the namespaces. It needs
root and iproute2. The ends send whole frames with checksums in them, as a wire carries them: left
alone, veth passes on what a card would have cut and summed up, and a server past the kernel sees
that.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import shutil
import socket
import struct
import subprocess
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError

INTERFACE, CARD = "replay0", "replay1"
SIOCETHTOOL = 0x8946
OFFLOADS = {"checksums": 0x17, "segments": 0x1F, "generic segments": 0x24}  # ETHTOOL_S...
COMMAND_S = 20
CLONE_NEWNET = 0x40000000
NAMESPACES = Path("/run/netns")
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count(1)


def missing() -> str | None:
    """Why there can be none here, in a sentence; None where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root: run it as root, in a container if you like"
    if shutil.which("ip") is None:
        return "there is no `ip` to make network namespaces with: apt-get install iproute2"
    return None


@dataclass(frozen=True)
class End:
    """One namespace, and the address of its interface there."""

    namespace: str
    address: str
    interface: str = INTERFACE

    def inside(self, command: Sequence[str]) -> list[str]:
        """`command`, run there; the process is the command's own."""
        return ["ip", "netns", "exec", self.namespace, *command]


class Pair:
    """Two namespaces, `server` and `client`; closed by `with` or `close`, twice is fine.

    mtu: of the interfaces, in bytes of an IP packet. What killed processes left behind goes first.
    """

    def __init__(self, mtu: int = 1500) -> None:
        sweep()
        name = f"replay-{os.getpid()}-{next(_numbers)}"
        self.server = End(f"{name}-s", "198.18.0.1")
        self.client = End(f"{name}-c", "198.18.0.2")
        try:
            for end in self.ends:
                _run("ip", "netns", "add", end.namespace)
            veth = f"link add {INTERFACE} mtu {mtu} type veth peer name {INTERFACE} mtu {mtu} netns"
            _run("ip", "-n", self.server.namespace, *veth.split(), self.client.namespace)
            for end in self.ends:
                _inside(
                    end.namespace,
                    f"addr add {end.address}/24 dev {INTERFACE}",
                    f"link set {INTERFACE} up",
                    "link set lo up",
                )
                command = [sys.executable, "-m", "replay_server.bench.namespaces", INTERFACE]
                _run(*end.inside(command))
        except BaseException:
            self.close()
            raise

    @property
    def ends(self) -> tuple[End, End]:
        return self.server, self.client

    def close(self) -> None:
        """Removes both, and with them the interfaces."""
        for end in self.ends:
            _delete(end.namespace)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Switch:
    """Hosts at one switch, {name: End} in `hosts`; closed by `with` or `close`, twice is fine.

    names: of the hosts, a letter each. cards: those that have a second interface, CARD, without an
    address, for a device that takes it from the kernel. mtu: as for Pair.
    """

    def __init__(self, names: str, cards: str = "", mtu: int = 1500) -> None:
        sweep()
        name = f"replay-{os.getpid()}-{next(_numbers)}"
        self.bridge = f"{name}-w"
        self.hosts = {
            host: End(f"{name}-{host}", f"198.18.0.{i + 1}") for i, host in enumerate(names)
        }
        try:
            _run("ip", "netns", "add", self.bridge)
            _inside(self.bridge, "link add switch type bridge", "link set switch up")
            for host, end in self.hosts.items():
                _run("ip", "netns", "add", end.namespace)
                _inside(end.namespace, "link set lo up")
                self._plug(end, INTERFACE, f"{host}0", mtu)
                _inside(end.namespace, f"addr add {end.address}/24 dev {INTERFACE}")
                if host in cards:
                    self._plug(end, CARD, f"{host}1", mtu)
        except BaseException:
            self.close()
            raise

    def _plug(self, end: End, interface: str, port: str, mtu: int) -> None:
        """A cable from a host's interface to a port of the bridge."""
        _inside(
            end.namespace,
            f"link add {interface} mtu {mtu} type veth peer name {port} mtu {mtu} "
            f"netns {self.bridge}",
            f"link set {interface} up",
        )
        _inside(self.bridge, f"link set {port} master switch up")
        command = [sys.executable, "-m", "replay_server.bench.namespaces", interface]
        _run(*end.inside(command))

    def close(self) -> None:
        """Removes all, and with them the interfaces."""
        for namespace in (*(end.namespace for end in self.hosts.values()), self.bridge):
            _delete(namespace)

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def enter(end: End) -> None:
    """The calling thread, and those it starts, are in that namespace from now on."""
    there = os.open(NAMESPACES / end.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(there)
    finally:
        os.close(there)


@contextmanager
def entered(end: End) -> Iterator[None]:
    """The calling thread is in that namespace: a socket opened there stays there."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(end)
        try:
            yield
        finally:
            _set(here)
    finally:
        os.close(here)


def _set(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def sweep() -> None:
    """Removes the namespaces of processes that ended without doing so."""
    for path in NAMESPACES.glob("replay-*-*-?"):
        process = path.name.split("-")[1]
        if process.isdecimal() and not Path("/proc", process).exists():
            _delete(path.name)


def _delete(namespace: str) -> None:
    command = ["ip", "netns", "del", namespace]
    subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False)


def _inside(namespace: str, *words: str) -> None:
    """`ip` commands in a namespace."""
    for line in words:
        _run("ip", "-n", namespace, *line.split())


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise ConfigError(f"{' '.join(command)} failed: {words[-1] if words else 'in silence'}")


def send_whole_frames(interface: str) -> None:
    """Turns off what leaves checksums and segments to a card; OSError where that cannot be."""
    for command in OFFLOADS.values():
        try:
            _ethtool(interface, command)
        except OSError:  # a veth whose other end has an XDP program: fixed, and off already
            if _ethtool(interface, command - 1):  # ETHTOOL_G...
                raise


def _ethtool(interface: str, command: int, value: int = 0) -> int:
    """Sets or gets one setting of the interface."""
    told = array("I", [command, value])  # struct ethtool_value
    asking = struct.pack("16sP16x", interface.encode(), told.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, SIOCETHTOOL, asking)
    return told[1]


if __name__ == "__main__":
    send_whole_frames(sys.argv[1])
