"""T2b: sampling placed at the server, beside two samplers placed at the client.

    python -m benchmarks.paper.t2b --transport loopback --grid quick --json t2b.jsonl

The learner's time from asking for a batch to having its items and weights, with and without the
priority update that follows, one request at a time. Server, learner and actors are processes of
their own: the server on core B, the others on core A. Before each batch every actor session stores
4 items, outside the time that is measured, so that a client's tree has something to catch up with.
The three samplers are those of samplers.py: same server, same transport, same engine, same cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.paper import grids, tables
from benchmarks.paper.cores import cores_of, split
from benchmarks.paper.grids import T2bCell
from benchmarks.paper.places import ACTORS, LEARNER, SERVER, TRANSPORTS, Place
from benchmarks.paper.samplers import SAMPLERS
from benchmarks.programs import command, start

CLAIM, OURS = "T2b", "server"
PROGRAMS = "benchmarks.paper.t2b_programs"
WARM, CALLS, CALLS_MIN, VISIT_S = 3, 20, 3, 0.6


class Served:
    """The three kinds of programs, standing; the tables are half full."""

    def __init__(
        self, place: Place, cells: Sequence[T2bCell], cores: tuple[int, ...], stack: ExitStack
    ) -> None:
        sizes = sorted({cell.size for cell in cells})
        first, last = cores[0], cores[min(1, len(cores) - 1)]

        described = {"role": "server", "sizes": sizes, "url": place.served(SERVER), "core": last}
        commands = {"server": place.inside(SERVER, command(PROGRAMS, described))}
        (server,) = start(commands, place.folder, stack).values()
        url = place.reached(SERVER, server.facts["address"])
        asked = {"sizes": sizes, "url": url, "core": first}
        learner = command(PROGRAMS, {"role": "learner", **asked})
        counts = split(max(cell.sessions for cell in cells))
        commands = {"learner": place.inside(LEARNER, learner)}
        for i, count in enumerate(counts):
            actors = command(PROGRAMS, {"role": "actors", "sessions": count, **asked})
            commands[f"actors-{i}"] = place.inside(ACTORS, actors)
        self.learner, *self.actors = start(commands, place.folder, stack).values()
        self.actors[0].ask("fill")
        self.learner.ask("prepare")

    def measure(self, cell: T2bCell, name: str) -> harness.Samples:
        """{"sample": seconds of each of CALLS calls, of fewer where that takes VISIT_S}."""
        times: list[float] = []
        end = time.monotonic() + VISIT_S
        counts = split(cell.sessions)
        asked = {"size": cell.size, "name": name, "batch": cell.batch, "update": cell.update}
        for call in range(-WARM, CALLS):
            for actors, count in zip(self.actors, counts, strict=False):
                actors.ask("insert", size=cell.size, sessions=count)
            seconds = self.learner.ask("draw", **asked)["seconds"]
            if call >= 0:
                times.append(seconds)
            if len(times) >= CALLS_MIN and time.monotonic() > end:
                break
        return {"sample": np.asarray(times)}


def measured(
    transport: str, grid: grids.Grid, cores: tuple[int, ...], seed: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of one transport. Raises ReplayError or OSError where it cannot be used."""
    cells = grids.within(grid.t2b, TRANSPORTS[transport].sessions_max)
    with Place(TRANSPORTS[transport]) as place, ExitStack() as stack:
        served = Served(place, cells, cores, stack)
        say("programs stand, tables are filled")
        taken = harness.rounds(cells, list(SAMPLERS), served.measure, grid.rounds, seed, say)
    return rows_of(taken, cells, transport, seed)


def rows_of(
    taken: harness.Taken, cells: Sequence[T2bCell], transport: str, seed: int
) -> list[dict[str, Any]]:
    """A row each cell, and one of the best cell beside each sampler at the client."""
    others = [name for name in SAMPLERS if name != OURS]
    rows, shares = [], {name: dict[T2bCell, list[float]]() for name in others}
    for cell in cells:
        row: dict[str, Any] = {"claim": CLAIM, "transport": transport, **cell._asdict()}
        for name in SAMPLERS:
            row[name] = tables.summary(taken, cell, name, ("sample",), seed)
        for name in others:
            found = tables.lower(taken, cell, (name, OURS), "sample", seed)
            row[OURS][f"lower_than_{name}"], shares[name][cell] = found
        rows.append(row)
    return rows + [
        tables.best_row(CLAIM, transport, OURS, name, harness.best(of, seed))
        for name, of in shares.items()
    ]


def main(argv: list[str] | None = None) -> int:
    """The command; 0 when all was measured."""
    return tables.command(CLAIM, __doc__, measured, cores_of(), argv)


if __name__ == "__main__":
    sys.exit(main())
