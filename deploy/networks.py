"""The networks of a demo: where its server serves, and how each program reaches it.

udp, zmq     this machine's loopback
dpdk         a pair of network namespaces with a cable between them (veth), every program on a DPDK
             device of its own: the server at one end, the others at the other; as root
dpdk-memif   memory that the programs share, each by a DPDK device of its own: no root, no card
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from replay_server import ConfigError
from replay_server.bench import namespaces

SERVED = {"udp": "udp://127.0.0.1:{port}", "zmq": "zmq+tcp://127.0.0.1:{port}"}
MEMIF = "dpdk://10.0.0.1:7400?vdev=net_memif,role=server,links=8,socket="
SERVER, CLIENTS = "198.18.0.7", "198.18.0.{}"  # past the kernels, which have .1 and .2
DEVICE = f"vdev=net_af_packet,iface={namespaces.INTERFACE}"
FIRST = 11  # of the clients' addresses


class Network:
    """This machine's loopback, and the base of the other networks."""

    summary_name = ""  # in the run's summary; "": the name of the transport

    def __init__(self, transport: str, port: int = 0) -> None:
        self.url = SERVED.get(transport, "").format(port=port)

    def at(self, host: str) -> str:
        """Where a server on this host serves."""
        return self.url.replace("127.0.0.1", host)

    def served(self, command: Sequence[str]) -> list[str]:
        """The server's command."""
        return list(command)

    def reached(self, command: Sequence[str]) -> list[str]:
        """A client's command."""
        return list(command)

    def address(self, served_at: str) -> str:
        """The URL for the next client, of a server that says it serves at `served_at`."""
        return served_at

    @contextmanager
    def own(self) -> Iterator[None]:
        """A context in which the calling thread can reach the server at the address it gives."""
        yield

    def close(self) -> None:
        """Removes everything that was made for it; call it after the programs have ended."""


class Memory(Network):
    """memif: a socket in a folder of its own, since a socket's path is short."""

    summary_name = "dpdk (memif)"

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="demo-")
        self.url = f"{MEMIF}{self.folder.name}/memif"

    def close(self) -> None:
        self.folder.cleanup()


class Cable(Network):
    """A veth pair. Programs on one interface have an address each."""

    summary_name = "dpdk (af_packet over veth)"

    def __init__(self) -> None:
        if why := namespaces.missing():
            raise ConfigError(f"--transport dpdk: {why}; dpdk-memif needs no namespaces")
        self.pair = namespaces.Pair()
        self.url = f"dpdk://{SERVER}:7400?{DEVICE}"
        self.count = 0

    def served(self, command: Sequence[str]) -> list[str]:
        return self.pair.server.inside([*command, "--insecure"])  # nobody else reaches it

    def reached(self, command: Sequence[str]) -> list[str]:
        return self.pair.client.inside(command)

    def address(self, served_at: str) -> str:
        self.count += 1
        return f"{self.url},ip={CLIENTS.format(FIRST + self.count - 1)}"

    @contextmanager
    def own(self) -> Iterator[None]:
        with namespaces.entered(self.pair.client):
            yield

    def close(self) -> None:
        self.pair.close()


def network(transport: str, port: int = 0) -> Network:
    """The one a transport is named for. port: of its server; 0: any free one."""
    other = {"dpdk": Cable, "dpdk-memif": Memory}.get(transport)
    return other() if other else Network(transport, port)
