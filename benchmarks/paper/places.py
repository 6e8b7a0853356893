"""Where the programs of T2a and T2b stand, and the addresses they reach each other at.

The hosts are ACTORS, SERVER, POLLER and LEARNER. Replay is served at SERVER (in the network), at
POLLER (the same by a server that never sleeps; a port or a card has one owner, so it has its own
host) or at LEARNER (in the learner's process). Over every transport the way from ACTORS to each is
the same: one cable, the switch, one cable; or the same kind of shared memory. So only the placement
differs.

    loopback    kernel UDP on this host's loopback device: no namespaces, no root
    udp         kernel UDP between network namespaces, one a host, at one switch
    af_packet   the same, the server's end a DPDK device over raw sockets; clients are the kernel's
    af_xdp      the same over AF_XDP
    memif       memory that processes share: kernel bypass without a NIC; no namespaces, no root
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay_server.bench import namespaces
from replay_server.bench.ladder_cases import HEADERS

ACTORS, SERVER, LEARNER, POLLER = "a", "s", "l", "p"
MTU = 1400
# past the kernel: on no interface of its
DEVICES = {SERVER: "198.18.0.11", LEARNER: "198.18.0.12", POLLER: "198.18.0.13"}
MEMIF = "dpdk://198.18.0.{}:7400?vdev=net_memif,role={},socket={}{}&mtu={}"
LINKS = 16


@dataclass(frozen=True)
class Transport:
    """device: the part of a URL that names a DPDK device on an interface; "" where there is none.
    switch: whether the hosts are namespaces. sessions_max: of actors; memif has a link for each
    session, and one of the server's is the learner's."""

    key: str
    title: str
    switch: bool = False
    device: str = ""
    sessions_max: int = 64

    def missing(self) -> str | None:
        """Why it cannot be used here, in a sentence; None where it can, as far as is known."""
        if self.switch and (why := namespaces.missing()):
            return why
        built = (Path(namespaces.__file__).parents[1] / "_dpdk.so").exists()
        return None if built or not (self.device or self.key == "memif") else "make dpdk builds it"


TRANSPORTS = {
    transport.key: transport
    for transport in (
        Transport("loopback", "kernel UDP, loopback"),
        Transport("udp", "kernel UDP, hosts at a switch", True),
        Transport("af_packet", "DPDK af_packet server", True, "net_af_packet,iface={}"),
        Transport("af_xdp", "DPDK af_xdp server", True, "net_af_xdp,iface={},take=on"),
        Transport("memif", "memif: kernel bypass without a NIC", sessions_max=LINKS - 1),
    )
}


class Place:
    """The hosts of one transport; closed by `with`."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._open = ExitStack()
        prefix = "replay-paper-"
        self.folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        self.switch: namespaces.Switch | None = None
        if transport.switch:
            cards = "".join(DEVICES) if transport.device else ""
            try:
                names = ACTORS + SERVER + LEARNER + POLLER
                self.switch = namespaces.Switch(names, cards, MTU + HEADERS)
            except BaseException:
                self._open.close()
                raise
            self._open.callback(self.switch.close)

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """The command, run at this host."""
        return list(command) if self.switch is None else self.switch.hosts[host].inside(command)

    def served(self, host: str) -> str:
        """The URL that a server at this host listens on."""
        device = self.transport.device
        if device:
            name = device.format(namespaces.CARD)
            return f"dpdk://{DEVICES[host]}:7400?vdev={name}&mtu={MTU}"
        if self.switch is not None:
            return f"udp://{self.switch.hosts[host].address}:7400?mtu={MTU}"
        if self.transport.key == "memif":
            return self._memif(host, "server", f",links={LINKS}")
        return f"udp://127.0.0.1:0?mtu={MTU}"

    def reached(self, host: str, address: str) -> str:
        """The URL at which clients reach a server at this host that says it serves at `address`."""
        if self.transport.device:
            return f"udp://{DEVICES[host]}:7400?mtu={MTU}"
        return self._memif(host, "client") if self.transport.key == "memif" else address

    def _memif(self, host: str, role: str, more: str = "") -> str:
        number = DEVICES[host].rsplit(".", 1)[-1]
        return MEMIF.format(number, role, self.folder / host, more, MTU)

    def close(self) -> None:
        """Removes all that was made; after the programs have ended."""
        self._open.close()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
