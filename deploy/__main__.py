"""`replay-server demo`: server, actor and learner as three programs here, until solved.

Shows live progress and ends with a line `summary: PATH`. Exit codes: 0 the run is over, solved or
not; 1 not solved, with --require-solved; 2 an error; 130 interrupted. With
--transport loopback all three take turns in one process and the run repeats bit for bit; over a
network it does not, since no seed decides the order in which programs meet.
"""

from __future__ import annotations

import sys
from functools import partial

from replay_server.support.interrupts import import_quietly, run

import_quietly(__name__)

from deploy import demo

PROGRAMS = {"demo": demo.main, "run": partial(demo.main, command="run")}


def main(argv: list[str] | None = None) -> int:
    """One of the programs above."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] not in PROGRAMS:
        print(__doc__)
        return 0 if argv[:1] in (["-h"], ["--help"]) else 2
    return PROGRAMS[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(run(main))
