"""Several servers beside each other, at ports that follow: one thread, one memory, nothing shared.

On a network card of DPDK's (dpdk://) they are the queues of that card: the first opens it and the
others join. A client speaks to one of them. Where the card hands its datagrams to another,
that one answers where they belong.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..errors import ConfigError
from ..server import ServerOptions
from ..support.values import SHARDS_MAX

PORTS = re.compile(r"(?P<host>[\w+]+://(?:\[[^\]]*\]|[^:/?\[]+)):(?P<port>\d+)(?P<options>\?.*)?")
QUEUES = re.compile(r"[?&,]queues=(\d+)")
ON_A_NETWORK = re.compile(r"[?&,](?:port=|vdev=net_(?:af_packet|af_xdp|tap))")
MEMIF = re.compile(r"[?&,]vdev=net_memif\d*(?:[&,]|$)")


def shard_options(options: ServerOptions, count: int) -> tuple[ServerOptions, ...]:
    """The options of each of `count` servers; those of one are as they were.

    Shard i has port PORT + i, and where they are said seed + i, core + i and region FOLDER.i.
    """
    if not 1 <= count <= SHARDS_MAX:
        raise ConfigError(f"shards is {count}; expected 1 to {SHARDS_MAX}")
    queues = QUEUES.search(options.url)
    if queues and ON_A_NETWORK.search(options.url) and int(queues[1]) != count:
        raise ConfigError(
            f"queues={queues[1]} with shards = {count}: each queue of a device is read by a shard "
            "of its own, and clients at the others would get no answer; leave queues= out, or say "
            f"--shards {queues[1]}"
        )
    if count == 1:
        return (options,)
    found = PORTS.fullmatch(options.url)
    port = int(found["port"]) if found else 0
    if not found or not 0 < port <= 65536 - count:
        raise ConfigError(
            f"{count} shards at {options.url}: each has a port of its own, so give the url a port "
            f"from 1 to {65536 - count}; the shards take that one and the next ones"
        )
    text = found["options"] or ""
    if MEMIF.search(text):
        raise ConfigError(
            f"{count} shards at {options.url}: a memif socket has one server; serve one, or "
            "several programs at sockets of their own"
        )
    if ON_A_NETWORK.search(text) and not queues:
        text += f"&queues={count}"
    return tuple(
        replace(
            options,
            url=f"{found['host']}:{port + i}{text}",
            seed=None if options.seed is None else options.seed + i,
            core=None if options.core is None else options.core + i,
            region=f"{options.region}.{i}" if options.region else None,
        )
        for i in range(count)
    )
