"""How rates change as one thing grows: `make bench-scale`.

    python -m benchmarks.scale.run --rounds 5 --json scale.jsonl --plot scale.png

Tables from 10^4 items to what memory allows, sessions from 1 to 1,024, batches, items and server
processes; each axis from the same base point. Servers and clients have a core each where there are
two; every point is measured once in a round, in an order drawn from the seed. Beside each rate
stands what the server's process spent on an item, in nanoseconds, its kernel's work included.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.scale.axes import AXES, BASE, QUICK, SMALL, Point, fitting, operations_of
from benchmarks.scale.axes import points as points_of
from benchmarks.scale.plot import draw
from benchmarks.scale.serving import Serving
from benchmarks.scale.tables import of_axis

MEMORY_SHARE = 0.4  # of what is free: for all tables of an axis, which stand together


def free_memory() -> int:
    """Bytes that this machine has free."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def say(line: str) -> None:
    print(line, flush=True)


def chosen(quick: bool) -> dict[str, list[Point]]:
    """The points of this run, without those that do not fit."""
    found = points_of(QUICK if quick else AXES, SMALL if quick else BASE)
    for line in fitting(found, int(MEMORY_SHARE * free_memory())):
        say(line)
    return found


@contextmanager
def standing(points: list[Point], url: str, core: int | None) -> Iterator[dict[Point, Serving]]:
    """Every point's servers and clients, filled; ended whatever happens."""
    with ExitStack() as stack:
        servings: dict[Point, Serving] = {}
        for number, point in enumerate(points):
            say(f"filling {number + 1} of {len(points)}: {point}")
            servings[point] = Serving(point, url, core)
            stack.callback(servings[point].close)
        yield servings


def measured(
    axis: str, points: list[Point], args: argparse.Namespace, core: int | None
) -> list[dict[str, Any]]:
    """One axis, in rounds; prints its table. The rows for JSON."""
    with standing(points, args.url, core) as servings:

        def measure(point: Point, operation: str) -> harness.Samples:
            rates, server_ns = servings[point].measured(operation)
            return {"rate": rates, "server_ns": np.array([server_ns])}

        taken = harness.rounds(
            points,
            operations_of(axis),
            measure,
            args.rounds,
            args.seed,
            lambda of: say(f"{axis}: {of}"),
        )
    rows = list(rows_of(axis, points, taken, args.seed))
    say("\n" + "\n".join(of_axis(axis, rows)) + "\n")
    return rows


def rows_of(
    axis: str, points: list[Point], taken: harness.Taken, seed: int
) -> Iterator[dict[str, Any]]:
    """A row for each point and operation, as JSON has it."""
    for point in points:
        for operation in operations_of(axis):
            rate = harness.figure(taken.rounds(point, operation, "rate"), seed)
            server_ns = taken.quantile(point, operation, "server_ns", 0.5)
            yield (
                {"axis": axis, **vars(point), "operation": operation, "unit": "items/s"}
                | {"value": rate.value, "low": rate.low, "high": rate.high}
                | {"spread": rate.spread, "server_ns": server_ns}
            )


def main(argv: list[str] | None = None) -> int:
    """The command; 0 when all was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.run", description=__doc__)
    parser.add_argument("--url", default="udp://127.0.0.1:0", help="what servers listen on")
    parser.add_argument("--rounds", type=int, default=5, help="5 at least for an interval")
    parser.add_argument("--quick", action="store_true", help="small tables, few points")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="JSON lines of all figures")
    parser.add_argument("--plot", type=Path, help="a PNG, an SVG or a PDF")
    args = parser.parse_args(argv)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    cores = sorted(os.sched_getaffinity(0))
    core = cores[-1] if len(cores) > 1 else None
    if core is not None:
        os.sched_setaffinity(0, {cores[0]})
    head = harness.header(args.seed, cores[:2], url=args.url, rounds=args.rounds, quick=args.quick)
    say(str(head))
    rows = []
    try:
        for axis, points in chosen(args.quick).items():
            rows += measured(axis, points, args, core)
    finally:  # what was measured stays, whatever ended the rest
        if args.json:
            harness.write_lines(args.json, [head, *rows])
    if args.plot:
        draw(rows, args.plot, str(head["machine"]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nbench-scale: stopped; the axes that were done are written")
        sys.exit(130)
