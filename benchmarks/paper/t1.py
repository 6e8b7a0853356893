"""T1: access latency past the kernel, beside tuned UDP: the transport benchmark as it is.

    python -m benchmarks.paper.t1 --grid quick --json t1.jsonl

`replay-server bench --ladder` measures; its latencies become rows here, with the intervals and the
best points of the other claims. Redis is measured before and after it, half of its rounds each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.paper import grids, redis_row, tables
from replay_server import ReplayError, _native
from replay_server.bench import ladder, ladder_cases
from replay_server.bench.ladder_figures import Figures

CLAIM = "T1"
REDIS, UDP = "redis", "udp"
WHAT = "access"


class T1Cell(NamedTuple):
    """put or get, bytes of a step, bytes of the largest frame."""

    work: str
    size: int
    mtu: int


def measured(
    grid: grids.Grid, seed: int, say: Callable[[str], None], names: str = ""
) -> list[dict[str, Any]]:
    """The rows of T1. names: of the transport benchmark's cases, "udp,memif"; "": those
    of the grid."""
    cores = ladder.two_cores(_native.cores(), ladder.siblings_of)
    course = ladder.Course(
        ladder_cases.chosen(names or grid.ladder_cases),
        sizes=grid.ladder_sizes,
        rate_sizes=tuple(size for size in ladder.RATE_SIZES if size in grid.ladder_sizes),
        mtus=grid.ladder_mtus,
        seconds=grid.ladder_s,
        seed=seed,
        cores=cores,
    )
    rows: list[dict[str, Any]] = []
    taken = harness.Taken()
    half = max(1, grid.rounds // 2)
    redis(taken, course, grid.redis_calls, half, rows, say)
    figures = ladder.Rounds(course, say).run()
    redis(taken, course, grid.redis_calls, grid.rounds - half, rows, say)
    add(taken, figures)
    for (mtu, key), why in figures.reasons.items():
        rows.append({"missing": CLAIM, "transport": f"{key}, frames of {mtu} B", "why": why})
    return rows + rows_of(taken, figures, seed)


def redis(
    taken: harness.Taken,
    course: ladder.Course,
    calls: int,
    count: int,
    rows: list[dict[str, Any]],
    say: Callable[[str], None],
) -> None:
    """Some rounds of Redis into `taken`, under mtu 0: TCP's segments are its own."""
    if not count or any(row["transport"] == REDIS for row in rows):
        return
    say(f"Redis, {count} rounds")
    try:
        with tempfile.TemporaryDirectory(prefix="replay-redis-") as folder:
            found = redis_row.rounds(course.sizes, calls, count, course.cores, Path(folder))
    except ReplayError as error:
        say(f"Redis is not measured: {error}")
        rows.append({"missing": CLAIM, "transport": REDIS, "why": str(error)})
        return
    for (work, size), parts in found.items():
        for part in parts:
            taken.add(T1Cell(work, size, 0), REDIS, {WHAT: part})


def add(taken: harness.Taken, figures: Figures) -> None:
    """The transport benchmark's rounds, in seconds."""
    for (key, (mtu, work, size)), parts in figures.times_ns.items():
        for part in parts:
            taken.add(T1Cell(work, size, mtu), key, {WHAT: part.astype(np.float64) / 1e9})


def rows_of(taken: harness.Taken, figures: Figures, seed: int) -> list[dict[str, Any]]:
    """A row each case and cell; and for each DPDK case the best cell beside its kernel one's."""
    rows, shares = [], dict[tuple[str, str], dict[T1Cell, list[float]]]()
    redis_us = {
        (cell.work, cell.size): tables.summary(taken, cell, key, (WHAT,), seed)["access_us"]
        for cell, key, _ in taken.samples
        if key == REDIS
    }
    against = {case.key: case.against for case in figures.cases}
    for cell, key, _ in sorted(taken.samples, key=lambda of: (of[1], of[0])):
        row: dict[str, Any] = {"claim": CLAIM, "transport": key, **cell._asdict()}
        row |= tables.summary(taken, cell, key, (WHAT,), seed)
        base = row["against"] = against.get(key, "")
        if base != key and (cell, base, WHAT) in taken.samples:
            row["lower"], found = tables.lower(taken, cell, (base, key), WHAT, seed)
            if any(case.key == key and case.server.startswith("dpdk:") for case in figures.cases):
                shares.setdefault((key, base), {})[cell] = found
        if key != REDIS and (cell.work, cell.size) in redis_us:
            row["lower_than_redis"] = 1 - row["access_us"] / redis_us[cell.work, cell.size]
        rows.append(row)
    return rows + [
        tables.best_row(CLAIM, key, "past the kernel", base, harness.best(of, seed))
        for (key, base), of in shares.items()
        if all(len(found) > 1 for found in of.values())
    ]


def main(argv: list[str] | None = None) -> int:
    """The command; 0 when something was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", default="quick", choices=("quick", "default", "full"))
    parser.add_argument("--cases", default="", help="such as udp,memif; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="JSON lines of all figures")
    args = parser.parse_args(argv)
    head = harness.header(args.seed, _native.cores(), grid=args.grid)
    print(head, flush=True)

    def say(line: str) -> None:
        print(f"{CLAIM}: {line}", flush=True)

    rows = measured(grids.grid(args.grid), args.seed, say, args.cases)
    print("\n".join(tables.markdown(rows, CLAIM)))
    if args.json:
        harness.write_lines(args.json, [head, *rows])
    return 0 if tables.of_claim(rows, CLAIM) else 1


if __name__ == "__main__":
    sys.exit(main())
