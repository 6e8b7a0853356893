"""T2a: replay in the network beside replay in the learner's process, actors going through it.

    python -m benchmarks.paper.t2a --transport loopback --grid quick --json t2a.jsonl

The claim is about the actor: one transition pushed, until it is acknowledged as stored, while the
learner fetches 32 items, trains a stated step, and sends priorities back. Each actor pushes 250
times a second, at drawn moments. Printed beside it: what the learner's fetch and step took.

Equal on both sides: programs, engine, tables, transport and the actors' way there, cores, what
actors and learner do. What differs is the process that the engine's thread is in. Cores: actors
have core A. Readings by where the engine's thread runs:

    learner          in the learner's process, on the learner's core B: the baseline
    network          in a process of its own, on core B too: equal cores to the last detail
    beside actors    in a process of its own, on core A: the same two cores, divided otherwise
    own core         in a process of its own, on a third core, where there is one: a core more
    polling          the same, and it never sleeps, as a server whose core is its own may

`network` shows what the placement alone does; the others what it makes possible: an engine on a
learner's core cannot poll, as it would take what the learner trains with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.paper import grids, tables
from benchmarks.paper.cores import cores_of, split
from benchmarks.paper.grids import T2aCell
from benchmarks.paper.places import ACTORS, LEARNER, POLLER, SERVER, TRANSPORTS, Place
from benchmarks.programs import command, start
from replay_server.bench.ladder import End

CLAIM, BASE, POLLING = "T2a", "learner", "polling"
PROGRAMS = "benchmarks.paper.t2a_programs"
WINDOW_S = 0.35
LEARNS_BEFORE_S = 0.03


class Side:
    """One placement: the engine's program, the learner's, and those of the actors. cores: the
    actors' and the learner's."""

    def __init__(
        self, place: Place, kind: str, cells: Sequence[T2aCell], cores: tuple[int, int]
    ) -> None:
        here = kind == BASE
        self.kind, self.open = kind, ExitStack()
        sizes = sorted({cell.size for cell in cells})
        host = {BASE: LEARNER, POLLING: POLLER}.get(kind, SERVER)
        hosting = {"replay": "here"} if here else {"busy_poll": kind == POLLING}
        role = "learner" if here else "server"
        described = {"role": role, "sizes": sizes, "url": place.served(host), **hosting}
        commands = {"engine": place.inside(host, command(PROGRAMS, described))}
        if not here:
            apart = command(PROGRAMS, {"role": "learner", "replay": "there", "sizes": sizes})
            commands["learner"] = place.inside(LEARNER, apart)
        try:
            begun = start(commands, self._folder(place), self.open)
            self.engine: End = begun["engine"]
            self.learner: End = begun.get("learner", self.engine)
            url = place.reached(host, self.engine.facts["address"])
            for program in dict.fromkeys((self.engine, self.learner)):
                program.ask("go", core=cores[1])  # threads that are begun from now on stay there
            self.learner.ask("connect", url=url)
            self.actors = self._actors(place, url, sizes, cells, cores[0])
            self.actors[0].ask("fill")
            self.engine.ask("halt")
        except BaseException:
            self.open.close()
            raise

    def _folder(self, place: Place) -> Path:
        folder = place.folder / self.kind
        folder.mkdir(exist_ok=True)
        return folder

    def _actors(
        self, place: Place, url: str, sizes: list[int], cells: Sequence[T2aCell], core: int
    ) -> list[End]:
        """Programs with the sessions that the largest cell takes."""
        counts = split(max(cell.sessions for cell in cells))
        asked = {"role": "actors", "replay": url, "sizes": sizes, "core": core}
        commands = {
            f"actors-{i}": place.inside(ACTORS, command(PROGRAMS, {**asked, "sessions": count}))
            for i, count in enumerate(counts)
        }
        return list(start(commands, self._folder(place), self.open).values())

    def measure(self, cell: T2aCell, cores: tuple[int, int], products: int) -> harness.Samples:
        """cores: the engine's and the learner's. {"push", "fetch", "step"}: seconds of each."""
        engine_core, learner_core = cores
        if self.learner is not self.engine:
            self.learner.ask("go", core=learner_core)
        self.engine.ask("go", core=engine_core)
        try:
            learns = WINDOW_S + LEARNS_BEFORE_S
            self.learner.post("learn", size=cell.size, products=products, seconds=learns)
            counts = split(cell.sessions)
            for actors, count in zip(self.actors, counts, strict=False):
                actors.post("play", size=cell.size, sessions=count, seconds=WINDOW_S)
            pushed = [a.answer() for a, _ in zip(self.actors, counts, strict=False)]
            learned = self.learner.answer()
        finally:
            self.engine.ask("halt")
        push_ns = np.concatenate([np.asarray(of["push_ns"], np.float64) for of in pushed])
        return {
            "push": push_ns / 1e9,
            "fetch": np.asarray(learned["fetch_s"]),
            "step": np.asarray(learned["step_s"]),
            "repeats": np.asarray([sum(of["repeats"] for of in pushed)]),
        }

    def close(self) -> None:
        """Ends its programs."""
        self.open.close()


def readings(cores: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    """{reading: (core of the engine's thread, core of the learner)}; actors are on cores[0]."""
    a, b = cores[0], cores[min(1, len(cores) - 1)]
    found = {BASE: (b, b), "network": (b, b), "beside actors": (a, b)}
    more = {"own core": (cores[2], b), POLLING: (cores[2], b)} if len(cores) > 2 else {}
    return found | more


def kind_of(reading: str) -> str:
    """Its side: one that is apart moves between cores, but does not begin to poll."""
    return reading if reading in (BASE, POLLING) else "apart"


def measured(
    transport: str, grid: grids.Grid, cores: tuple[int, ...], seed: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of one transport. Raises ReplayError or OSError where it cannot be used."""
    cells = grids.within(grid.t2a, TRANSPORTS[transport].sessions_max)
    with Place(TRANSPORTS[transport]) as place, ExitStack() as stack:
        sides, learner_core = {}, cores[min(1, len(cores) - 1)]
        variants = readings(cores)
        for kind in dict.fromkeys(map(kind_of, reversed(variants))):
            sides[kind] = Side(place, kind, cells, (cores[0], learner_core))
            stack.callback(sides[kind].close)
            say(f"stands: {kind}")
        learner = sides[BASE].learner
        learner.ask("go", core=learner_core)
        product_s = learner.ask("calibrate")["product_s"]
        learner.ask("halt")
        sizes = sorted({cell.size for cell in cells})
        floor_s = {size: np.median(learner.ask("floor", size=size)["fetch_s"]) for size in sizes}

        def measure(cell: T2aCell, variant: str) -> harness.Samples:
            products = max(1, round(cell.step_ms / 1e3 / product_s))
            return sides[kind_of(variant)].measure(cell, variants[variant], products)

        taken = harness.rounds(cells, list(variants), measure, grid.rounds, seed, say)
    return rows_of(taken, cells, list(variants), transport, floor_s, seed)


def rows_of(
    taken: harness.Taken,
    cells: Sequence[T2aCell],
    variants: Sequence[str],
    transport: str,
    floor_s: dict[int, float],
    seed: int,
) -> list[dict[str, Any]]:
    """A row each cell, and one of the best cell for each reading."""
    rows: list[dict[str, Any]] = []
    shares: dict[str, dict[T2aCell, list[float]]]
    shares = {variant: {} for variant in variants if variant != BASE}
    for cell in cells:
        row: dict[str, Any] = {"claim": CLAIM, "transport": transport, **cell._asdict()}
        row["floor_fetch_us"] = floor_s[cell.size] * 1e6
        for variant in variants:
            row[variant] = tables.summary(taken, cell, variant, ("push", "fetch", "step"), seed)
            row[variant]["repeats"] = int(taken.samples[cell, variant, "repeats"][-1][0])
            if variant != BASE:
                found = tables.lower(taken, cell, (BASE, variant), "push", seed)
                row[variant]["push_lower"], shares[variant][cell] = found
                late = (taken.rounds(cell, v, "push", 0.99) for v in (BASE, variant))
                figure = harness.share_figure(harness.shares_lower(*late), seed)
                row[variant]["push_p99_lower"] = tables.interval(figure)
        rows.append(row)
    return rows + [
        tables.best_row(CLAIM, transport, variant, BASE, harness.best(of, seed))
        for variant, of in shares.items()
    ]


def main(argv: list[str] | None = None) -> int:
    """The command; 0 when all was measured."""
    return tables.command(CLAIM, __doc__, measured, cores_of(), argv)


if __name__ == "__main__":
    sys.exit(main())
