"""One end of a case, in a process of its own: the server, or the client that measures it.

    python -m replay_server.bench.ladder_end '{"role": "server", "url": ..., ...}'

Each line of its input is an order, each line it prints the answer to one, both JSON objects; its
end is the end of its input. Orders to a server: "go" starts its thread, "halt" ends that, since a
server that polls while another one is measured would take its core. To a client: "latency" and
"rate" run the loop of drive/link_probe.c, "counters" says what had to be repeated. What goes
wrong is answered as {"error": sentence} and ends the process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import numpy as np

from .. import _native
from .._native import Link, Service, ffi, lib
from ..errors import ReplayError
from ..server import Config, ServerOptions
from ..serving import zmq_transport
from ..spec import Column, Spec
from ..table import Table

CONNECT_S = 20.0
PROBE_TIMEOUT_S = 10.0
TABLE_BYTES = 4 << 20
STEPS_MIN, WINDOW_MAX = 512, 8192
BATCH_BYTES = 1 << 16
FILL_STEPS, FILL_BYTES, FILL_NS = 64, 8192, 10_000_000
DRAWS_UNDER_WAY = 8
SLEEPING_SPIN_US = 1


def table_of(size: int) -> Table:
    """Plain steps of `size` bytes, a writer's window as large as it may be."""
    capacity = max(STEPS_MIN, TABLE_BYTES // size)
    spec = Spec((Column("x", np.uint8, (size,)),))
    window = min(WINDOW_MAX, capacity // 16)
    return Table(f"s{size}", step=spec, capacity=capacity, writers=1, streams=1, window=window)


def at_once(work: str, size: int) -> int:
    """Steps of one push, or items of one sample, where a rate is measured."""
    return max(1, min(BATCH_BYTES // size, 64 if work == "put" else 512))


def waiting(busy: bool) -> dict[str, int]:
    """Options of a link or a service: polling, or asleep as soon as there is nothing to do."""
    return {"busy_poll": 1} if busy else {"busy_poll": 0, "spin_us": SLEEPING_SPIN_US}


def pin(core: int) -> None:
    """This process to that core, where the system can."""
    if _native.PINS:
        os.sched_setaffinity(0, {core})


# ---- the server ----


class Serving:
    """A service whose thread is started and stopped, on `core`. The thread that does so runs on
    `aside`: on the same core it would wait for one that never sleeps."""

    def __init__(self, url: str, sizes: list[int], busy: bool, core: int, aside: int) -> None:
        options = ServerOptions(url, insecure=True, sessions=4, batch_max=1024, weights_max=0)
        config = Config(tuple(map(table_of, sizes)), options, seed=1)
        # the address is this host's own, or in a namespace made for this
        self.service = Service(
            config.raw, url, insecure=1, core=1 + core if _native.PINS else 0, **waiting(busy)
        )
        pin(aside)

    def facts(self) -> dict[str, Any]:
        return {"address": _native.text(lib.rp_service_address(self.service.raw))}

    def go(self) -> dict[str, Any]:
        _native.check(lib.rp_service_start(self.service.raw), "starting the server's thread")
        return {}

    def halt(self) -> dict[str, Any]:
        _native.check(lib.rp_service_stop(self.service.raw), "stopping the server's thread")
        return {}

    def close(self) -> None:
        self.service.close()


# ---- the client ----


class Asking:
    """A link with a writer to each table, and memory for what goes and comes."""

    def __init__(self, url: str, sizes: list[int], busy: bool, mtu: int) -> None:
        if zmq_transport.is_url(url):
            self.link = zmq_transport.open_link(url, CONNECT_S, None, None, mtu=mtu)
        else:
            self.link = Link(url, CONNECT_S, mtu=mtu, **waiting(busy))
        self.memory = np.zeros(DRAWS_UNDER_WAY * max(BATCH_BYTES, *sizes), np.uint8)
        self.times_ns = np.zeros(1 << 16, np.uint32)
        self.probes = {size: self._open(size) for size in sizes}

    def _open(self, size: int) -> Any:
        """The table of this size, its writer opened, its ring filled once."""
        name, what = f"s{size}", f"opening the table of {size} bytes"
        info = ffi.new("struct rp_table_info *")
        granted = ffi.new("struct rp_writer_granted *")
        ask, raw = lib.rp_link_table, self.link.raw
        for post, arguments in (
            (ask, (name.encode(), info)),
            (lib.rp_link_writer, (info, 1, granted)),
        ):
            self.link.request(post, *arguments, what=what, timeout=CONNECT_S)
        probe = ffi.new("struct rp_probe *")
        probe.bytes, probe.table = size, info.number
        probe.patience_ns = _native.nanoseconds(PROBE_TIMEOUT_S)
        probe.memory = _native.pointer("uint8_t[]", self.memory)
        self._set(probe, "put", max(1, min(FILL_STEPS, FILL_BYTES // size)))
        raw_times, count = _native.pointer("uint32_t[]", self.times_ns), len(self.times_ns)
        while probe.next < info.capacity:  # one push after the other: no flood before its time
            made = lib.rp_link_probe_latency(raw, probe, raw_times, count, FILL_NS)
            _native.check(made, what)
        return probe

    def _set(self, probe: Any, work: str, batch: int) -> None:
        probe.work = {"put": lib.RP_PROBE_PUT, "get": lib.RP_PROBE_GET}[work]
        probe.batch, probe.depth = batch, DRAWS_UNDER_WAY

    def facts(self) -> dict[str, Any]:
        return {"mtu": lib.rp_link_mtu(self.link.raw)}

    def _checked(self, status: int, probe: Any, what: str) -> int:
        _native.check(status, what)
        if probe.wrong:
            raise ReplayError(f"{what}: {probe.wrong} items were not what had been put")
        return status

    def latency(self, work: str, size: int, calls: int, warm: int, limit: float) -> dict[str, Any]:
        """Nanoseconds of each of `calls` calls, after `warm` ones that are not counted."""
        probe = self.probes[size]
        self._set(probe, work, 1)
        what, count = f"{work} of {size} bytes", min(warm + calls, len(self.times_ns))
        raw_times = _native.pointer("uint32_t[]", self.times_ns)
        limit_ns = _native.nanoseconds(limit)
        made = lib.rp_link_probe_latency(self.link.raw, probe, raw_times, count, limit_ns)
        made = self._checked(made, probe, what)
        return {"ns": self.times_ns[min(warm, made // 2) : made].tolist()}

    def rate(self, work: str, size: int, limit: float) -> dict[str, Any]:
        """How many calls were done, and in how many nanoseconds."""
        probe = self.probes[size]
        self._set(probe, work, at_once(work, size))
        status = lib.rp_link_probe_rate(self.link.raw, probe, _native.nanoseconds(limit))
        self._checked(status, probe, f"{work} of {size} bytes as fast as it goes")
        return {"done": probe.done, "ns": probe.spent_ns}

    def counters(self) -> dict[str, Any]:
        counters = self.link.counters()
        return {name: counters[name] for name in ("retransmissions", "redraws")}

    def close(self) -> None:
        self.link.close(1.0)


# ---- orders ----


def answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main(described: str) -> int:
    """Serves or asks until the input ends; 1 where it could not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this ends its input
    given = json.loads(described)
    role, core = given.pop("role"), given.pop("core")
    pin(core)
    end: Serving | Asking | None = None
    try:
        end = Serving(core=core, **given) if role == "server" else Asking(**given)
        answer(**end.facts())
        for line in sys.stdin:
            order = json.loads(line)
            answer(**getattr(end, order.pop("do"))(**order))
    except ReplayError as error:
        answer(error=str(error))
        return 1
    finally:
        if end is not None:
            end.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
