"""`make bench-model`: counts what requests cost, fits the model to it, prints what that says.

    python -m benchmarks.scale.counting build/bench_dpdk --json model.jsonl

Instructions of the server's turns are callgrind's, over net_ring; with them stand the bytes and
datagrams that passed (benchmarks/dpdk_cost.py), and the time of the same turns without callgrind.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import dpdk_cost as cost
from benchmarks.harness import header, write_lines
from benchmarks.scale import tables
from benchmarks.scale.model import Request, fitted

TIMED = 5  # runs; the fastest counts: what others take of the machine only adds


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


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.counting", description=__doc__
    )
    parser.add_argument("build", help="build/bench_dpdk")
    parser.add_argument("--json", type=Path, help="JSON lines of all counts")
    args = parser.parse_args(argv)
    os.environ.setdefault("REPLAY_DPDK", str(Path("replay_server/_dpdk.so").resolve()))
    requests = []
    for workload, mtu in cost.WORKLOADS:
        print(f"counting: {workload}, mtu {mtu}", flush=True)
        requests.append(counted(args.build, workload, mtu))
    own, errors = fitted(requests)
    print("\n".join(tables.of_model(requests, own)), tables.core_said(own), sep="\n\n")
    print("\nThe requests that the core was not fitted to:\n")
    print("\n".join(tables.of_errors(requests, errors)))
    if args.json:
        write_lines(args.json, [header(0, []), *(asdict(request) for request in requests)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
