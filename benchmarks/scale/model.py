"""What a core, eight cores and a rack should serve at 40 and 100 GbE: on paper, with its error.

    make bench-model

Inputs are counts, which do not depend on how busy the machine is: instructions of the server's
turns by callgrind, over net_ring, and bytes and datagrams that passed (benchmarks/dpdk_cost.py).
A request costs a core

    ns = instructions / speed + bytes / width
    requests/s = min(cores / ns, line / bits on the wire)

as bytes that are copied take time in which few instructions end. `speed` and `width` are fitted to
the timed turns of half of the workloads (least squares of the relative error), and the other half
says how wrong the model is: that error is printed beside what it says.

Eight cores are eight servers, each with a core, a queue and a table of its own: nothing is shared
between them. A rack is RACK hosts of that kind, each with its card.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import dpdk_cost as cost
from benchmarks.harness import grid, header

RACK = 32
TIMED = 5  # runs; the fastest counts: what others take of the machine only adds
LINES = (40e9, 100e9)
PAPER_SPEED = cost.PAPER_HZ * cost.PAPER_IPC / 1e9  # instructions a nanosecond


@dataclass(frozen=True)
class Core:
    """speed: instructions a nanosecond; width: bytes a nanosecond; infinite: they cost nothing."""

    speed: float
    width: float

    def ns(self, request: Request) -> float:
        """Of one such request."""
        return request.instructions / self.speed + request.wire_bits / 8 / self.width


@dataclass(frozen=True)
class Request:
    """One kind of request, each figure of one such request.

    instructions  of the server's turn
    wire_bits     of the fuller direction, Ethernet's own included
    items         steps pushed or items sampled; 0: a ping
    ns            the same turn without callgrind, on this machine
    """

    name: str
    mtu: int
    instructions: float
    wire_bits: float
    items: float
    ns: float


def counted(build: str, workload: str, mtu: int) -> Request:
    """Counts and times one kind of request."""
    load, requests = cost.Load(workload, mtu), cost.LONG - cost.SHORT
    spent, passed = cost.instructions(build, load)
    timed = min(cost.run(build, load, 4 * cost.LONG)[0].ns for _ in range(TIMED))
    size = passed.bytes_out if passed.outward else passed.bytes_in
    beside = passed.datagrams * (cost.HEADERS + cost.ON_WIRE)
    return Request(
        workload,
        mtu,
        spent / requests,
        8 * (size + beside) / requests,
        passed.items / requests,
        timed / (4 * cost.LONG),
    )


def fitted(requests: Sequence[Request]) -> tuple[Core, list[float]]:
    """The core, by every second workload; and for the others the share by which the model's time is
    off the measured one: 0.2 where it says a fifth too much."""
    some = requests[::2]
    parts = np.array([[each.instructions, each.wire_bits / 8] for each in some])
    parts /= np.array([[each.ns] for each in some])
    a_instruction, a_byte = np.linalg.lstsq(parts, np.ones(len(some)), rcond=None)[0]
    if a_byte <= 0:  # noise: bytes are not cheaper than nothing
        a_byte, a_instruction = 0.0, 1 / np.median(1 / parts[:, 0])
    core = Core(1 / a_instruction, 1 / a_byte if a_byte else float("inf"))
    return core, [core.ns(each) / each.ns - 1 for each in requests[1::2]]


def served(request: Request, core: Core, cores: int, line: float) -> tuple[float, str]:
    """Requests a second, and what bounds them: "core" or "line". One card for all cores."""
    by_core, by_line = cores * 1e9 / core.ns(request), line / request.wire_bits
    return min(by_core, by_line), "core" if by_core < by_line else "line"


def report(requests: Sequence[Request], own: Core) -> None:
    """Prints items (pings: requests) a second of a paper core, for every machine and line."""
    paper, rows = Core(PAPER_SPEED, own.width), []
    for request in requests:
        row = [request.name, f"{request.mtu}", f"{request.instructions:,.0f}"]
        for line in LINES:
            for cores in (1, 8):
                rate, bound = served(request, paper, cores, line)
                row.append(f"{rate * (request.items or 1) / 1e6:,.1f} ({bound})")
            row.append(f"{RACK * rate * (request.items or 1) / 1e9:,.2f}")
        rows.append(row)
    head = ["request", "mtu", "instructions"]
    for line in LINES:
        at = f"{line / 1e9:.0f} GbE"
        head += [f"{at}: 1 core, M items/s", "8 cores", f"{RACK} hosts, G items/s"]
    print("\n".join(grid(head, rows)))
    print(
        f"instructions a nanosecond: {PAPER_SPEED:g} on paper, {own.speed:.2f} here; "
        f"bytes: {own.width:.1f} a nanosecond, both"
    )


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.model", description=__doc__)
    parser.add_argument("build", help="build/bench_dpdk")
    parser.add_argument("--json", type=Path, help="JSON lines of all counts")
    args = parser.parse_args(argv)
    os.environ.setdefault("REPLAY_DPDK", str(Path("replay_server/_dpdk.so").resolve()))
    requests = []
    for workload, mtu in cost.WORKLOADS:
        print(f"counting: {workload}, mtu {mtu}", flush=True)
        requests.append(counted(args.build, workload, mtu))
    own, errors = fitted(requests)
    report(requests, own)
    for request, error in zip(requests[1::2], errors, strict=True):
        name = f"{request.name}, mtu {request.mtu}"
        print(f"checked: {name}: {request.ns:,.0f} ns, model {error:+.0%}")
    worst = max(map(abs, errors))
    print(f"error of the model on the workloads it was not fitted to: at most {worst:.0%}")
    if args.json:
        head = {**header(0, []), **asdict(own), "errors": errors}
        lines = [head, *(asdict(request) for request in requests)]
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
