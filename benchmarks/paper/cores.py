"""Which cores an experiment has, and how many sessions a process has."""

from __future__ import annotations

import os

from replay_server.bench.ladder import siblings_of, two_cores

PER_PROCESS = 16  # so many links of one process share a memif device


def split(sessions: int) -> list[int]:
    """Sessions of each process: 40 as 16, 16 and 8."""
    whole, rest = divmod(sessions, PER_PROCESS)
    return [PER_PROCESS] * whole + ([rest] if rest else [])


def cores_of() -> tuple[int, ...]:
    """Cores A, B, and a third one where there is one; one or two where there are no more."""
    there = sorted(os.sched_getaffinity(0))
    first = tuple(reversed(two_cores(there, siblings_of)))
    return first + tuple(core for core in there if core not in first)[:1]
