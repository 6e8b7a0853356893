"""One consistent look at a server: every counter, histogram, table and session at one moment.

The core fills one struct under its lock (server/meter.h says what each number is); here it becomes
plain Python. Times are in seconds, ages in steps, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .. import _native
from .._native import NS, Fact, ffi, lib

BOUNDS = tuple(lib.rp_histogram_bound(bucket) for bucket in range(lib.RP_BUCKETS))
OPERATIONS = {
    number: _native.text(lib.rp_operation_name(number))
    for number in range(lib.RP_OPERATIONS)
    if lib.rp_operation_name(number)
}
SESSIONS_METERED = lib.RP_SESSIONS_METERED
OTHER = "other"


@dataclass(frozen=True)
class Histogram:
    """counts[b] values lie in (BOUNDS[b - 1], BOUNDS[b]], in the core's unit: ns, or steps."""

    sum: int
    counts: tuple[int, ...]

    @property
    def count(self) -> int:
        return sum(self.counts)

    def below(self, first: int, last: int) -> list[tuple[int, int]]:
        """(bound, how many values are at most that) for buckets first .. last."""
        total = sum(self.counts[:first])
        pairs = []
        for bucket in range(first, last + 1):
            total += self.counts[bucket]
            pairs.append((BOUNDS[bucket], total))
        return pairs


@dataclass(frozen=True)
class SessionMeter:
    """What the sessions of one place did since the server was opened."""

    requests: int
    answers: int
    bytes_in: int
    bytes_out: int
    steps: int
    items: int
    refused: int
    dropped: int


@dataclass(frozen=True)
class TableMeasures:
    """One table now. ages: of every fourth item drawn; inserted, sampled: as the limiter counts."""

    name: str
    ages: Histogram
    capacity: int
    count: int
    inserted: int
    sampled: int
    min_size: int
    samples_per_insert: float
    error_min: float
    error_max: float
    samples_waiting: int
    pushes_waiting: int
    holds_samples: int
    holds_inserts: int
    fifo: int

    @property
    def error(self) -> float:
        """What the limiter keeps between error_min and error_max."""
        if self.fifo:
            return float(self.count)
        return self.inserted * self.samples_per_insert - self.sampled


@dataclass(frozen=True)
class Measures:
    """One look at a server. meters: by place, the last one is all places beyond; silences: seconds,
    of open sessions by place; facts: what the transport counts, every drop under its reason."""

    counters: dict[str, int]
    incarnation: int
    weights_version: int
    sessions: int
    dropped_in: int
    dropped_out: int
    operations: dict[str, Histogram]
    samples_waited: Histogram
    pushes_waited: Histogram
    meters: dict[str, SessionMeter]
    silences: dict[str, float]
    tables: tuple[TableMeasures, ...]
    facts: tuple[Fact, ...]


def measures_of(service: Any) -> Measures:
    """A look at a `_native.Service`; ClosedError where it is closed."""
    raw = ffi.new("struct rp_measures *")
    _native.check(lib.rp_service_measure(service.raw, raw), "measuring the server")
    counters = ffi.unpack(raw.counters, len(_native.COUNTERS))
    places = range(SESSIONS_METERED)
    open_places = [place for place in places if raw.states[place].open]
    return Measures(
        counters=dict(zip(_native.COUNTERS, counters, strict=True)),
        incarnation=raw.incarnation,
        weights_version=raw.weights_version,
        sessions=raw.sessions,
        dropped_in=raw.dropped_in,
        dropped_out=raw.dropped_out,
        operations={name: _histogram(raw.operations[i]) for i, name in OPERATIONS.items()},
        samples_waited=_histogram(raw.samples_waited),
        pushes_waited=_histogram(raw.pushes_waited),
        meters={str(place): _meter(raw.meters[place]) for place in places}
        | {OTHER: _meter(raw.meters[SESSIONS_METERED])},
        silences={str(place): raw.states[place].silence_ns / NS for place in open_places},
        tables=tuple(_table(raw.tables[i]) for i in range(raw.table_count)),
        facts=_native.facts_of(raw.facts, raw.fact_count),
    )


def _histogram(raw: Any) -> Histogram:
    return Histogram(raw.sum, tuple(ffi.unpack(raw.counts, lib.RP_BUCKETS)))


def _meter(raw: Any) -> SessionMeter:
    return SessionMeter(*(getattr(raw, field.name) for field in fields(SessionMeter)))


def _table(raw: Any) -> TableMeasures:
    values = {"name": _native.name_of(raw.info.name), "ages": _histogram(raw.ages)}
    for field in fields(TableMeasures):
        if field.name not in values:
            source = raw.info if hasattr(raw.info, field.name) else raw
            values[field.name] = getattr(source, field.name)
    return TableMeasures(**values)
