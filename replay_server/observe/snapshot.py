"""A server at one moment, as seen from outside: from the server itself, or its metrics endpoint.

    udp://..., zmq+tcp://...   the server: counters, tables, sessions open
    http://HOST:PORT/metrics   its endpoint (`serve --metrics`): also times, waits, ages, and what
                               each session does

A `Look` holds totals; what happened between two looks is the difference of the two.
"""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from typing import Any

from .. import _native
from .._native import Fact
from ..errors import ConfigError, ReplayError

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ANSWER_READS_MAX = 1 << 10  # of 64 KiB at most each
LARGEST = ("replay_table_samples_per_insert_target", "replay_weights_version")
Buckets = tuple[tuple[float, float], ...]  # (bound, how many values are at most that), rising


@dataclass(frozen=True)
class TableLook:
    """One table. target: draws of each item asked for, 0: any. ages: buckets, in steps."""

    name: str
    items: float
    capacity: float
    inserted: float
    sampled: float
    target: float
    waiting: float | None = None
    ages: Buckets = ()


@dataclass(frozen=True)
class Look:
    """Totals since the server was opened. at: seconds of this machine's monotonic clock; times and
    waits: buckets by operation, in seconds; sessions: numbers by place. Empty where not known."""

    at: float
    server: str
    incarnation: str
    counters: Mapping[str, float]
    sessions_open: int
    weights_version: int
    tables: tuple[TableLook, ...]
    facts: tuple[Fact, ...] = ()
    times: Mapping[str, Buckets] = field(default_factory=dict)
    waits: Mapping[str, Buckets] = field(default_factory=dict)
    sessions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    silences: Mapping[str, float] = field(default_factory=dict)

    @property
    def detailed(self) -> bool:
        """Whether times, ages and sessions are in it."""
        return bool(self.times)


class ServerSource:
    """Looks at a server through a session of its own, opened anew after each failure."""

    def __init__(self, address: str, timeout: float) -> None:
        self.address, self._timeout, self._client = address, timeout, None

    def look(self) -> Look:
        """ReplayError where the server does not answer: the next look tries again."""
        from ..client import Client

        try:
            if self._client is None:
                self._client = Client(self.address, timeout=self._timeout)
            stats = self._client.stats()
            count = self._client.limits["table_count"]
            tables = tuple(_table(info) for info in self._client._infos(count))
        except ReplayError:
            self.close()
            raise
        return Look(
            at=time.monotonic(),
            server=self.address,
            incarnation=f"{stats.incarnation:016x}",
            counters=stats.counters,
            sessions_open=stats.sessions,
            weights_version=stats.weights_version,
            tables=tables,
            facts=stats.facts,
        )

    def close(self) -> None:
        """Ends the session, without waiting for an answer."""
        client, self._client = self._client, None
        if client is not None:
            client.close(0.0)


def _table(info: Any) -> TableLook:
    return TableLook(
        name=_native.name_of(info.name),
        items=info.count,
        capacity=info.capacity,
        inserted=info.inserted,
        sampled=info.sampled,
        target=info.samples_per_insert,
    )


class Cut:
    """Ends the connections of a request once its time is over. A socket's own time-out bounds each
    wait: a peer that sends a byte of its status line now and then never lets it come."""

    def __init__(self, seconds: float) -> None:
        self.over, self._sockets = False, []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Cut:
        self._timer.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.over = True
        for each in list(self._sockets):
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # of TLS too: no goodbye is said

    def open(self, request: Any, timeout: float) -> Any:
        """As urllib.request.urlopen."""
        cut = self

        def watched(kind: Any) -> Any:
            class Watched(kind):
                def connect(self) -> None:
                    super().connect()
                    cut._sockets.append(self.sock)
                    if cut.over:
                        cut._end()

            return Watched

        class Http(urllib.request.HTTPHandler):
            def http_open(self, asked: Any) -> Any:
                return self.do_open(watched(HTTPConnection), asked)

        class Https(urllib.request.HTTPSHandler):
            def https_open(self, asked: Any) -> Any:
                return self.do_open(watched(HTTPSConnection), asked)

        return urllib.request.build_opener(Http, Https).open(request, timeout=timeout)


class EndpointSource:
    """Looks at a server through its metrics endpoint."""

    def __init__(self, url: str, timeout: float) -> None:
        try:
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
        except ImportError as error:
            raise ConfigError(
                "looking at a metrics endpoint needs the package prometheus-client; "
                "install it with: pip install 'replay-server[metrics]'"
            ) from error
        self.address, self._timeout = url, timeout
        self._parse = text_string_to_metric_families

    def look(self) -> Look:
        """ReplayError where nobody answers, or something that is no replay server."""
        what, cut = f"asking {self.address}", Cut(self._timeout)
        try:
            asked = urllib.request.Request(self.address, headers={"Accept": OPENMETRICS})
            with cut, cut.open(asked, self._timeout) as answer:
                text = self._whole(answer).decode()
            families = {family.name: family for family in self._parse(text)}
        except (OSError, ValueError, HTTPException) as error:
            raise self._refused(error, cut.over) from error
        if "replay_server" not in families:
            raise ReplayError(
                f"{what}: this is no replay server's endpoint; serve --metrics has one"
            )
        try:
            return self._read(together(families))
        except (LookupError, ValueError) as error:  # a family, a sample, a label, a number
            raise ReplayError(
                f"{what}: not all that a replay server of this version reports is there ({error}); "
                "are both of one version?"
            ) from error

    def _refused(self, error: Exception, late: bool) -> ReplayError:
        """The error of a look; `late`: its time was over, whatever that ended."""
        what = f"asking {self.address}"
        if late:
            return ReplayError(f"{what}: no whole answer within {self._timeout:g} s")
        if isinstance(error, OSError | ValueError):  # HTTPError and URLError are OSErrors
            reason = getattr(error, "reason", None) or error
            said = getattr(reason, "strerror", None) or reason  # without its number
            return ReplayError(f"{what}: {said}")
        # of some the text is but what was read, line ends and all
        return ReplayError(f"{what}: no whole answer in HTTP ({error!r})")

    def close(self) -> None:
        """Nothing is kept open."""

    def _whole(self, answer: Any) -> bytes:
        """All of it, within the time and a size that no server's answer has."""
        end, parts = time.monotonic() + self._timeout, []
        while part := answer.read1(1 << 16):
            parts.append(part)
            if time.monotonic() > end or len(parts) > ANSWER_READS_MAX:
                raise TimeoutError(f"no whole answer within {self._timeout:g} s")
        if answer.length:  # it ended before what it had promised
            raise IncompleteRead(b"".join(parts), answer.length)
        return b"".join(parts)

    def _read(self, families: Mapping[str, Any]) -> Look:
        def one(name: str) -> float:
            return families[name].samples[0].value

        def by(name: str, label: str) -> dict[str, float]:
            return {s.labels[label]: s.value for s in families[name].samples}

        facts = families["replay_server"].samples[0].labels
        return Look(
            at=time.monotonic(),
            server=facts["address"],
            incarnation=facts["incarnation"],
            counters={name: one("replay_" + name) for name in _native.COUNTERS},
            sessions_open=int(one("replay_sessions_open")),
            weights_version=int(one("replay_weights_version")),
            tables=_tables(families),
            facts=_facts(families),
            times=_buckets(families["replay_operation_seconds"], "operation"),
            waits=_buckets(families["replay_wait_seconds"], "operation"),
            sessions=_sessions(families),
            silences=by("replay_session_silence_seconds", "session"),
        )


def together(families: Mapping[str, Any]) -> Mapping[str, Any]:
    """The shards of one endpoint as one server: totals, levels and buckets are added up, targets
    and versions are the largest, and a session is named SHARD/PLACE."""
    shards = {sample.labels.get("shard") for sample in families["replay_sessions_open"].samples}
    if len(shards) < 2:
        return families
    for name, family in families.items():
        added: dict[tuple, Any] = {}
        for sample in family.samples:
            labels = dict(sample.labels)
            shard = labels.pop("shard", "")
            if "session" in labels:
                labels["session"] = f"{shard}/{labels['session']}"
            kept = added.get(key := (sample.name, *sorted(labels.items())))
            value = sample.value
            if kept is not None:
                value = max(value, kept.value) if name in LARGEST else value + kept.value
            added[key] = sample._replace(labels=labels, value=value)
        family.samples = list(added.values())
    return families


def _facts(families: Mapping[str, Any]) -> tuple[Fact, ...]:
    """What the transport counts; all drops share one sentence there, so theirs is ""."""
    facts = []
    for sample in families["replay_transport_dropped"].samples:
        labels = sample.labels
        facts.append(Fact(labels["reason"], labels["direction"], int(sample.value), ""))
    for name, family in families.items():
        short = name.removeprefix("replay_transport_")
        if short not in (name, "dropped"):
            kind = "count" if family.type == "counter" else "level"
            value = int(family.samples[0].value)
            facts.append(Fact(short, kind, value, family.documentation))
    return tuple(facts)


def _tables(families: Mapping[str, Any]) -> tuple[TableLook, ...]:
    def by(name: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for sample in families["replay_table_" + name].samples:
            table = sample.labels["table"]
            sums[table] = sums.get(table, 0.0) + sample.value
        return sums

    fields = {
        "items": by("items"),
        "capacity": by("capacity_steps"),
        "inserted": by("inserted"),
        "sampled": by("sampled"),
        "target": by("samples_per_insert_target"),
        "waiting": by("waiting"),
        "ages": _buckets(families["replay_sample_age_steps"], "table"),
    }
    return tuple(
        TableLook(name, **{key: value[name] for key, value in fields.items()})
        for name in fields["items"]
    )


def _buckets(family: Any, label: str) -> dict[str, Buckets]:
    buckets: dict[str, list[tuple[float, float]]] = {}
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            pair = (float(sample.labels["le"]), sample.value)
            buckets.setdefault(sample.labels[label], []).append(pair)
    return {name: tuple(pairs) for name, pairs in buckets.items()}


def _sessions(families: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    sessions: dict[str, dict[str, float]] = {}
    for name, family in families.items():
        if name.startswith("replay_session_") and family.type == "counter":
            for sample in family.samples:
                field_name = name.removeprefix("replay_session_")
                sessions.setdefault(sample.labels["session"], {})[field_name] = sample.value
    return sessions


def source_of(address: str, timeout: float) -> ServerSource | EndpointSource:
    """The source for this address: the server itself, or its metrics endpoint."""
    if address.startswith(("http://", "https://")):
        return EndpointSource(address, timeout)
    return ServerSource(address, timeout)
