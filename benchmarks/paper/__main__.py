"""The paper's three claims as experiments: JSON lines, Markdown tables and a picture each.

    make bench-paper                                 as root for all transports
    python -m benchmarks.paper --grid quick --claims T2a --transports loopback

What cannot be measured here is printed with its reason. Nothing outside of this host's loopback
device and of namespaces made for this is talked to. Ctrl-C ends every program first; what was
measured whole, a claim over a transport, is written all the same.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.paper import grids, plots, t1, t2a, t2b, tables
from benchmarks.paper.cores import cores_of
from benchmarks.paper.places import TRANSPORTS
from replay_server.bench.ladder import EXIT_STOPPED
from replay_server.bench.stoppable import stoppable

CLAIMS = ("T1", "T2a", "T2b")
OVER = ("udp", "af_packet", "af_xdp", "memif")  # and loopback, where there are no namespaces
JSON = "paper.jsonl"


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


def versions() -> dict[str, str]:
    """Of what is beside the packages in the header: Redis, DPDK, matplotlib."""
    asked = {
        "redis": ["redis-server", "--version"],
        "dpdk": ["pkg-config", "--modversion", "libdpdk"],
    }
    found = {}
    for name, command in asked.items():
        found[name] = "none"
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found[name] = done.stdout.strip()[:40] or "none"
    with suppress(importlib.metadata.PackageNotFoundError):
        found["matplotlib"] = importlib.metadata.version("matplotlib")
    return found


def speed() -> str:
    """What the system says of its processors' clock."""
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    with suppress(OSError):
        return f"governor {governor.read_text().strip()}"
    return "no clock control here (a virtual machine): spin_ns tells a slow state"


def head_of(args: argparse.Namespace, cores: tuple[int, ...]) -> dict[str, Any]:
    """What stands above all figures."""
    a, b = cores[0], cores[min(1, len(cores) - 1)]
    pinning = {
        "T1": f"server on core {b}, client on core {a}",
        "T2a": f"actors on core {a}, learner on core {b}, the engine as each reading says",
        "T2b": f"server on core {b}, learner and actors on core {a}",
    }
    head = harness.header(args.seed, cores, grid=args.grid, pinning=pinning, speed=speed())
    head["versions"] |= versions()
    head["date"] = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    head["root"] = os.geteuid() == 0
    return head


def where(head: dict[str, Any]) -> str:
    """The header as a line of a picture."""
    load = ", ".join(map(str, head["load"]))
    revision = f"; revision {head['revision']}" if "revision" in head else ""
    return (
        f"{head['machine']}; load average before, earlier runs included: {load}; {head['date']}; "
        f"grid {head['grid']}{revision}"
    )


def measure(args: argparse.Namespace, cores: tuple[int, ...]) -> Iterator[list[dict[str, Any]]]:
    """The rows of the claims that are wanted, a transport's of a claim at a time."""
    grid = grids.grid(args.grid)
    wanted = args.transports.split(",") if args.transports else transports(args.grid)
    if "T1" in args.claims:
        yield t1.measured(grid, args.seed, lambda line: say(f"T1: {line}"), args.cases)
    pairs: dict[str, Callable[..., list[dict[str, Any]]]] = {
        "T2a": t2a.measured,
        "T2b": t2b.measured,
    }
    for claim, measured in pairs.items():
        if claim in args.claims:
            yield from tables.measure_all(claim, measured, wanted, grid, cores, args.seed)


def transports(grid: str) -> list[str]:
    """Three hosts where there can be, loopback beside them where not; quick: kernel UDP, memif."""
    over = ("udp", "memif") if grid == "quick" else OVER
    return list(over) if TRANSPORTS["udp"].missing() is None else ["loopback", *over]


def write(rows: list[dict[str, Any]], head: dict[str, Any], out: Path) -> None:
    """Files of all that was measured, and its tables on the terminal."""
    harness.write_lines(out / JSON, [head, *rows])
    say(f"wrote {len(rows)} rows to {out / JSON}")
    without = plots.missing()
    if without:
        say(without)
    for claim in CLAIMS:
        if any(claim in (row.get("claim"), row.get("missing")) for row in rows):
            text = "\n".join(tables.markdown(rows, claim))
            (out / f"{claim.lower()}.md").write_text(f"{where(head)}\n{text}\n")
            say(f"\n{plots.TITLES[claim]}\n{text}")
            picture = out / f"{claim.lower()}.png"
            if not without and plots.draw(rows, claim, picture, where(head)):
                say(f"drew {picture}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--grid", default="default", choices=("quick", "default", "full"))
    parser.add_argument("--claims", default=",".join(CLAIMS), help="such as T2a,T2b")
    parser.add_argument("--transports", default="", help=f"of {', '.join(TRANSPORTS)}; T2a, T2b")
    parser.add_argument("--cases", default="", help="of the transport benchmark; T1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench-paper"))
    args = parser.parse_args(argv)
    args.claims = args.claims.split(",")
    for word, known in ((args.claims, CLAIMS), (args.transports.split(","), ("", *TRANSPORTS))):
        if wrong := [name for name in word if name not in known]:
            parser.error(f"there is no {wrong[0]!r}; there are {', '.join(filter(None, known))}")
    return args


def main(argv: list[str] | None = None) -> int:
    """The command; 0 when every claim that was wanted has a figure, 1 when one has none."""
    args = parse(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    cores = cores_of()
    head = head_of(args, cores)
    for name, value in head.items():
        say(f"{name:10} {value}")
    begin, rows = time.monotonic(), list[dict[str, Any]]()
    try:
        with stoppable():
            for found in measure(args, cores):
                rows += found
    except KeyboardInterrupt:
        say(tables.STOPPED)
        head["stopped"] = True
    head["load_after"] = [round(load, 2) for load in os.getloadavg()]
    head["spin_ns_after"] = round(harness.spin_ns(), 2)
    head["seconds"] = round(time.monotonic() - begin)
    if rows:
        write(rows, head, args.out)
    if "stopped" in head:
        return EXIT_STOPPED
    return 0 if all(tables.of_claim(rows, claim) for claim in args.claims) else 1


if __name__ == "__main__":
    sys.exit(main())
