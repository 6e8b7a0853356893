"""The cases of the ladder: one client, one server, and what lies between them.

`against` is the case a case is compared with: the one that differs in what it is to show and in
nothing else.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from . import namespaces

LOCAL, VETH = "host", "veth"
HEADERS = 28  # IPv4 and UDP
FREE, OWN = "198.18.0.11", "198.18.0.12"  # a DPDK server's and client's: on no kernel's interface
NIC = (
    "nic         DPDK on a network card: unmeasured: there is none here that DPDK drives, and all "
    "devices above are virtual"
)


@dataclass(frozen=True)
class Case:
    """`server`, `client`: URLs with the fields of `urls`; a client's may be "", then it is what the
    server reports. busy: both ends poll. wire: within this host, or a veth pair.
    proves, leaves: what its figures show, and what they do not."""

    key: str
    title: str
    server: str
    client: str
    busy: bool
    wire: str
    against: str
    proves: str
    leaves: str


CASES = (
    Case(
        key="zmq",
        title="ZeroMQ",
        server="zmq+tcp://127.0.0.1:0?mtu={mtu}",
        client="",
        busy=False,
        wire=LOCAL,
        against="udp",
        proves="what this server costs behind the usual socket library: libzmq's threads and TCP",
        leaves="sizes of frames are TCP's own (loopback's 64 KiB); pickle and Python are not in it",
    ),
    Case(
        key="udp-sleep",
        title="UDP, sleeping",
        server="udp://127.0.0.1:0?mtu={mtu}",
        client="",
        busy=False,
        wire=LOCAL,
        against="udp",
        proves="kernel UDP as programs use it: both ends sleep until something comes",
        leaves="how long a processor takes to wake up is this machine's",
    ),
    Case(
        key="udp",
        title="UDP, busy polling",
        server="udp://127.0.0.1:0?mtu={mtu}",
        client="",
        busy=True,
        wire=LOCAL,
        against="udp",
        proves="tuned kernel UDP, trains and polling: what the others are compared with",
        leaves="loopback has no card and no wire",
    ),
    Case(
        key="veth-udp",
        title="UDP over veth",
        server="udp://{server}:7400?mtu={mtu}",
        client="udp://{server}:7400?mtu={mtu}",
        busy=True,
        wire=VETH,
        against="udp",
        proves="tuned kernel UDP at both ends of a veth pair: what af_packet and af_xdp are "
        "compared with",
        leaves="segments and checksums are made by the kernel, where a card would",
    ),
    Case(
        key="af_packet",
        title="DPDK af_packet",
        server="dpdk://{free}:7400?vdev=net_af_packet,iface={interface}&mtu={mtu}",
        client="udp://{free}:7400?mtu={mtu}",
        busy=True,
        wire=VETH,
        against="veth-udp",
        proves="DPDK at the server's end of the same veth pair, through raw sockets",
        leaves="the kernel still carries each frame, and the client is a kernel one: no bypass",
    ),
    Case(
        key="af_xdp",
        title="DPDK af_xdp",
        server="dpdk://{free}:7400?vdev=net_af_xdp,iface={interface},take=on&mtu={mtu}",
        client="udp://{free}:7400?mtu={mtu}",
        busy=True,
        wire=VETH,
        against="veth-udp",
        proves="DPDK at the server's end of the same veth pair, through AF_XDP: half a bypass",
        leaves="the client is a kernel one; veth copies, a card's driver may not have to",
    ),
    Case(
        key="af_packet2",
        title="DPDK af_packet, both",
        server="dpdk://{free}:7400?vdev=net_af_packet,iface={interface}&mtu={mtu}",
        client="dpdk://{free}:7400?vdev=net_af_packet,iface={interface},ip={own}&mtu={mtu}",
        busy=True,
        wire=VETH,
        against="veth-udp",
        proves="DPDK at both ends of the same veth pair, through raw sockets",
        leaves="the kernel still carries each frame, through no protocol of its own",
    ),
    Case(
        key="af_xdp2",
        title="DPDK af_xdp, both",
        server="dpdk://{free}:7400?vdev=net_af_xdp,iface={interface},take=on&mtu={mtu}",
        client="dpdk://{free}:7400?vdev=net_af_xdp,iface={interface},take=on,ip={own}&mtu={mtu}",
        busy=True,
        wire=VETH,
        against="veth-udp",
        proves="DPDK at both ends of the same veth pair, through AF_XDP",
        leaves="veth copies, a card's driver may not have to",
    ),
    Case(
        key="memif",
        title="DPDK memif",
        server="dpdk://198.18.0.1:7400?vdev=net_memif,role=server,socket={socket}&mtu={mtu}",
        client="dpdk://198.18.0.1:7400?vdev=net_memif,role=client,socket={socket}&mtu={mtu}",
        busy=True,
        wire=LOCAL,
        against="udp",
        proves="kernel bypass without a card: both ends poll frames in shared memory",
        leaves="what a card, its driver and a wire add",
    ),
    Case(
        key="memif-sleep",
        title="DPDK memif, sleeping",
        server="dpdk://198.18.0.1:7400?vdev=net_memif,role=server,socket={socket}&mtu={mtu}",
        client="dpdk://198.18.0.1:7400?vdev=net_memif,role=client,socket={socket}&mtu={mtu}",
        busy=False,
        wire=LOCAL,
        against="udp-sleep",
        proves="the same, both ends asleep until the other one wakes them",
        leaves="how long a processor takes to wake up is this machine's",
    ),
)
KEYS = tuple(case.key for case in CASES)


def chosen(names: str) -> tuple[Case, ...]:
    """The cases of a list such as "udp,memif", in the ladder's order; all for ""."""
    wanted = [name for name in names.split(",") if name] or list(KEYS)
    wrong = [name for name in wanted if name not in KEYS]
    if wrong:
        raise ConfigError(f"there is no case {wrong[0]!r}; the cases are {', '.join(KEYS)}")
    return tuple(case for case in CASES if case.key in wanted)


def missing(case: Case, cores: int) -> str | None:
    """Why it cannot be measured here, as far as that is known before it is tried."""
    if case.busy and cores < 2:
        return "it polls at both ends, and there is one core"
    if case.key == "zmq" and importlib.util.find_spec("zmq") is None:
        return "pyzmq is not installed: pip install 'replay-server[zmq]'"
    return namespaces.missing() if case.wire == VETH else None


def urls(case: Case, mtu: int, socket: str, place: Any) -> tuple[str, str]:
    """(server's, client's or ""). place: the namespaces.End of a veth pair's server, or None; the
    interface has the same name at both ends."""
    fields = {"mtu": mtu, "socket": socket, "free": FREE, "own": OWN}
    if place is not None:
        fields |= {"server": place.address, "interface": place.interface}
    return case.server.format(**fields), case.client.format(**fields)
