"""What T1, T2a and T2b have in common behind the measuring: rows, and the tables made of rows.

All tables are made of JSON rows alone, so they can be made again from a file. A reduction is
(low, value, high), as shares: 0.25 where the median is a quarter lower.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.paper import grids
from benchmarks.paper.places import TRANSPORTS
from replay_server import ReplayError
from replay_server.bench.ladder import EXIT_STOPPED
from replay_server.bench.ladder_figures import size_text
from replay_server.bench.stoppable import stoppable

STOPPED = "stopped before the end: nothing is left running"
PAPER = {"T1": (0.327, 0.589), "T2a": (0.117, 0.281), "T2b": (0.219, 0.291)}
Row = dict[str, Any]

# ---- rows ----


def summary(
    taken: harness.Taken, cell: Any, variant: str, what: Sequence[str], seed: int
) -> dict[str, Any]:
    """{"push_us": ..., "push_p99_us", "push_us_interval", "push_spread", "push_calls"} of each."""
    found: dict[str, Any] = {}
    for name in what:
        figure = harness.figure(taken.rounds(cell, variant, name), seed)
        found[f"{name}_us"] = figure.value * 1e6
        found[f"{name}_us_interval"] = [figure.low * 1e6, figure.high * 1e6]
        found[f"{name}_p99_us"] = taken.quantile(cell, variant, name, 0.99) * 1e6
        found[f"{name}_spread"] = figure.spread
        found[f"{name}_calls"] = sum(map(len, taken.samples[cell, variant, name]))
    return found


def lower(
    taken: harness.Taken, cell: Any, pair: tuple[str, str], what: str, seed: int
) -> tuple[list[float], list[float]]:
    """By which share the second of `pair` is below the first: the interval, and each round's."""
    first, second = (taken.rounds(cell, variant, what) for variant in pair)
    count = min(len(first), len(second))
    shares = harness.shares_lower(first[:count], second[:count])
    return interval(harness.share_figure(shares, seed)), shares


def interval(figure: harness.Figure) -> list[float]:
    """(low, value, high)."""
    return [figure.low, figure.value, figure.high]


def best_row(claim: str, transport: str, variant: str, base: str, best: harness.Best) -> Row:
    """The best point, chosen on one half of the rounds, its figure of the other half."""
    cell = best.cell._asdict()
    row = {"claim": claim, "best": variant, "against": base, "transport": transport, **cell}
    return row | {"chosen": best.chosen, "lower": interval(best.share)}


# ---- tables ----


def micro(value: float, spread: float = 1.0) -> str:
    """Microseconds, marked where rounds disagree."""
    text = f"{value:.1f}" if value < 100 else f"{value:,.0f}"
    return text + (harness.MARK if spread >= harness.DISAGREE else "")


def share(low_value_high: Sequence[float]) -> str:
    """12.3 % (10.1 to 14.0): lower; a minus is higher, "3.1 × as long" much higher."""
    low, value, high = low_value_high
    interval = "" if value < -1 else f" ({100 * low:.1f} to {100 * high:.1f})"
    return percent(value) + interval


def of_claim(rows: Sequence[Row], claim: str, best: bool = False) -> list[Row]:
    """Its rows."""
    return [row for row in rows if row.get("claim") == claim and ("best" in row) == best]


def variants_of(row: Row) -> list[str]:
    """What was compared in it."""
    return [name for name, value in row.items() if isinstance(value, dict)]


def push_table(rows: Sequence[Row]) -> Iterator[str]:
    """T2a: the actor's push, and by how much each reading is below the baseline."""
    rows = of_claim(rows, "T2a")
    names = list(dict.fromkeys(name for row in rows for name in variants_of(row)))
    head = ["transport", "transition", "sessions", "step ms"]
    head += [f"{name}, p50 / p99 µs" for name in names]
    head += [f"{name}: {which} lower by" for name in names[1:] for which in ("p50", "p99")]
    shown = []
    for row in rows:
        line = [row["transport"], size_text(row["size"]), str(row["sessions"]), str(row["step_ms"])]
        for name in names:
            of = row[name]
            line.append(f"{micro(of['push_us'], of['push_spread'])} / {micro(of['push_p99_us'])}")
        for name in names[1:]:
            line += [share(row[name][f"push_{which}lower"]) for which in ("", "p99_")]
        shown.append(line)
    yield from harness.grid(head, shown)


def fetch_table(rows: Sequence[Row]) -> Iterator[str]:
    """T2a: the learner's fetch and step, where replay in the network loses most first."""
    rows = sorted(
        of_claim(rows, "T2a"),
        key=lambda row: row["learner"]["fetch_us"] / row["network"]["fetch_us"],
    )
    names = list(dict.fromkeys(name for row in rows for name in variants_of(row)))
    head = ["transport", "transition", "sessions", "step ms", "nothing between, µs"]
    head += [f"{name}: fetch p50 / p99 µs, step ms" for name in names] + ["network : learner"]
    shown = []
    for row in rows:
        line = [row["transport"], size_text(row["size"]), str(row["sessions"]), str(row["step_ms"])]
        line.append(micro(row["floor_fetch_us"]))
        for name in names:
            of = row[name]
            fetch = f"{micro(of['fetch_us'], of['fetch_spread'])} / {micro(of['fetch_p99_us'])}"
            line.append(f"{fetch}, {of['step_us'] / 1e3:.1f}")
        ratio = row["network"]["fetch_us"] / row["learner"]["fetch_us"]
        shown.append([*line, f"{ratio:.2f} ×"])
    yield from harness.grid(head, shown)


def sample_table(rows: Sequence[Row]) -> Iterator[str]:
    """T2b: a batch, with and without the priorities that follow, by where it is drawn."""
    rows = of_claim(rows, "T2b")
    names = ["server", "keys", "client"]
    head = ["transport", "item", "sessions", "batch", "priorities follow"]
    head += [f"{name}, p50 / p99 µs" for name in names]
    head += [f"lower than {name}" for name in names[1:]]
    shown = []
    for row in rows:
        line = [row["transport"], size_text(row["size"]), str(row["sessions"]), str(row["batch"])]
        line.append("yes" if row["update"] else "no")
        for name in names:
            of = row[name]
            late = micro(of["sample_p99_us"])
            line.append(f"{micro(of['sample_us'], of['sample_spread'])} / {late}")
        lowers = (row["server"][f"lower_than_{name}"] for name in names[1:])
        shown.append([*line, *map(share, lowers)])
    yield from harness.grid(head, shown)


def access_table(rows: Sequence[Row]) -> Iterator[str]:
    """T1: puts and gets over each transport, and Redis: latencies, then reductions."""
    rows = of_claim(rows, "T1")
    for work, mtu in sorted({(row["work"], row["mtu"]) for row in rows if row["mtu"]}):
        these = [row for row in rows if row["work"] == work and row["mtu"] in (0, mtu)]
        sizes = sorted({row["size"] for row in these})
        keys = list(dict.fromkeys(row["transport"] for row in these))
        of = {(row["transport"], row["size"]): row for row in these}
        head = [f"{work}, frames of {mtu} B, p50 / p99 µs", *map(size_text, sizes)]
        yield from harness.grid(
            head, [[k, *(_access(of.get((k, s))) for s in sizes)] for k in keys]
        )
        yield ""
        head = [f"{work}: lower by", *map(size_text, sizes)]
        shown = []
        for key in keys:
            base = next((row["against"] for row in these if row["transport"] == key), "")
            cells = [of.get((key, size), {}) for size in sizes]
            if any("lower" in cell for cell in cells):
                lowers = [share(cell["lower"]) if "lower" in cell else "-" for cell in cells]
                shown.append([f"{key} than {base}", *lowers])
            if any("lower_than_redis" in cell for cell in cells):
                found = [cell.get("lower_than_redis") for cell in cells]
                shown.append(
                    [f"{key} than redis", *("-" if f is None else percent(f) for f in found)]
                )
        yield from (*harness.grid(head, shown), "")


def _access(row: Row | None) -> str:
    if row is None:
        return "-"
    return f"{micro(row['access_us'], row['access_spread'])} / {micro(row['access_p99_us'])}"


def percent(value: float) -> str:
    """12.3 %; "3.1 × as long" for much higher."""
    return f"{1 - value:.1f} × as long" if value < -1 else f"{100 * value:.1f} %"


def best_table(rows: Sequence[Row], claim: str) -> Iterator[str]:
    """The best point of each transport and reading, beside the paper's range."""
    low, high = PAPER[claim]
    head = ["transport", "reading", "lower than", "best point", "chosen by", "lower by"]
    head.append("the paper's")
    shown = []
    for row in of_claim(rows, claim, best=True):
        cell = ", ".join(f"{key} {row[key]}" for key in CELL_KEYS if key in row)
        line = [row["transport"], row["best"], row["against"], cell]
        line += [f"{100 * row['chosen']:.1f} %", share(row["lower"])]
        shown.append([*line, f"{100 * low:.1f} to {100 * high:.1f} %"])
    yield from harness.grid(head, shown)


CELL_KEYS = ("work", "size", "mtu", "sessions", "step_ms", "batch", "update")
TABLES: dict[str, tuple[Callable[[Sequence[Row]], Iterator[str]], ...]] = {
    "T1": (access_table,),
    "T2a": (push_table, fetch_table),
    "T2b": (sample_table,),
}


def markdown(rows: Sequence[Row], claim: str) -> Iterator[str]:
    """All tables of a claim: the best points first. What could not be measured, with its reason."""
    for row in rows:
        if row.get("missing") == claim:
            yield f"- {row['transport']}: not measured: {row['why']}"
    yield ""
    if of_claim(rows, claim):
        if of_claim(rows, claim, best=True):
            yield from (*best_table(rows, claim), "")
        for table in TABLES[claim]:
            yield from (*table(rows), "")


# ---- a claim's own command ----


def command(
    claim: str,
    doc: str | None,
    measured: Callable[..., list[Row]],
    cores: tuple[int, ...],
    argv: Sequence[str] | None,
) -> int:
    """Measures one claim over one transport and prints it; `make bench-paper` does all."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--transport", default="loopback", choices=list(TRANSPORTS))
    parser.add_argument("--grid", default="quick", choices=("quick", "default", "full"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="JSON lines of all figures")
    args = parser.parse_args(argv)
    head = harness.header(args.seed, cores, transport=args.transport, grid=args.grid)
    print(head, flush=True)
    grid, rows = grids.grid(args.grid), list[Row]()
    try:
        with stoppable():
            for found in measure_all(claim, measured, [args.transport], grid, cores, args.seed):
                rows += found
    except KeyboardInterrupt:
        print(STOPPED, flush=True)
        return EXIT_STOPPED
    print("\n".join(markdown(rows, claim)))
    if args.json:
        harness.write_lines(args.json, [head, *rows])
    return 0 if of_claim(rows, claim) else 1


def measure_all(
    claim: str,
    measured: Callable[..., list[Row]],
    transports: Sequence[str],
    grid: grids.Grid,
    cores: tuple[int, ...],
    seed: int,
) -> Iterator[list[Row]]:
    """The rows of each transport, as it is done; one that cannot be used is a row that says why."""
    for key in transports:

        def say(line: str, of: str = key) -> None:
            print(f"{claim} over {of}: {line}", flush=True)

        try:
            if why := TRANSPORTS[key].missing():
                raise ReplayError(why)
            say("programs start")
            yield measured(key, grid, cores, seed, say)
        except (ReplayError, OSError) as error:
            say(f"not measured: {error}")
            yield [{"missing": claim, "transport": key, "why": str(error)}]
