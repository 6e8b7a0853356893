"""Counters as text: what moved, and in words what each one counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import _native
from .._native import Fact, Link, ffi, lib


@dataclass(frozen=True)
class Stats:
    """A server at one moment: its counters by name, and who is there. facts: what its transport
    counts, every drop under its reason."""

    counters: dict[str, int]
    sessions: int
    incarnation: int
    weights_version: int
    facts: tuple[Fact, ...] = ()


def stats_of(link: Link, timeout: float) -> Stats:
    """Asks the server at the other end, waiting up to `timeout` seconds for each answer."""
    count, sessions = len(_native.COUNTERS), ffi.new("uint32_t *")
    numbers = ffi.new("uint64_t[]", count)
    what = "asking for the server's counters"
    link.request(lib.rp_link_stats, numbers, sessions, what=what, timeout=timeout)
    facts, fact_count = ffi.new("struct rp_fact[]", lib.RP_FACTS_MAX), ffi.new("uint32_t *")
    what = "asking for what the server's transport counts"
    link.request(lib.rp_link_facts, facts, fact_count, what=what, timeout=timeout)
    return Stats(
        counters=dict(zip(_native.COUNTERS, ffi.unpack(numbers, count), strict=True)),
        sessions=sessions[0],
        incarnation=lib.rp_link_incarnation(link.raw),
        weights_version=lib.rp_link_weights_version(link.raw),
        facts=_native.facts_of(facts, fact_count[0]),
    )


def lines(counters: Mapping[str, float], facts: Iterable[Fact] = ()) -> list[str]:
    """One line for each number that is not zero."""
    rows = [(name, n, _native.COUNTER_SENTENCES.get(name, "")) for name, n in counters.items()]
    rows += [(fact.full_name, fact.value, fact.sentence) for fact in facts]
    width = max((len(name) for name, _, _ in rows), default=0)
    return [
        f"{name:<{width}} {value:>20,.0f}  {sentence}".rstrip()
        for name, value, sentence in rows
        if value
    ]
