"""The server's measures as OpenMetrics over HTTP: for Prometheus, and for `stats http://...`.

    replay-server serve FILE --metrics 127.0.0.1:9464      or in server.toml:

    [metrics]
    address = "127.0.0.1:9464"     port 0 takes any free one
    insecure = false               true: addresses that other machines reach are served too

Without `insecure` only addresses of this machine are served: the endpoint has no password, and it
shows anybody who reaches it what a run does. It is a flag of its own: to let others read the
numbers is not to let them read the tables. scrapes.py bounds what whoever connects can cost.

How many series there are is bounded, whatever clients do: operations, counters and tables are
fixed when the server opens, and a session's label is the place it took, recycled by the session
that takes that place next. The first 64 places have labels; all beyond share "other".
Several servers (`serve --shards`) are shown at one endpoint, each series with a label `shard`.
Every look is one struct filled under the server's lock, so the numbers of one scrape agree.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .. import _native
from ..errors import ClosedError, ConfigError, Insecure, TransportError
from .measures import BOUNDS, Histogram, Measures, SessionMeter
from .scrapes import ScrapeServer

PREFIX = "replay_"
REFUSED_HELP = "Connections to this endpoint closed at once, as too many were open"
# Buckets that are shown: 383 ns to 2.1 s for a turn, 1.5 us to 18 minutes for a wait.
TURN_BUCKETS, WAIT_BUCKETS = (16, 61), (20, 79)
SESSION_HELP = {
    "requests": "Requests accepted from the session at this place",
    "answers": "Datagrams sent to the session at this place",
    "bytes_in": "Bytes of its requests, headers included",
    "bytes_out": "Bytes of its answers, headers included",
    "steps": "Steps it stored",
    "items": "Items drawn for it, or read by keys",
    "refused": "Its requests that were answered with a refusal",
    "dropped": "Its requests that were not answered: seen before, no room, beyond its share, or "
    "too far ahead",
}
TABLE_HELP = {
    "count": ("items", "Drawable items"),
    "capacity": ("capacity_steps", "Steps the table has room for"),
    "samples_per_insert": ("samples_per_insert_target", "Draws of each item asked for; 0: any"),
    "min_size": ("min_items", "Items before the first draw"),
}
LIMITER_HELP = {  # of tables that have one
    "error": "inserted * target - sampled, or a queue's items: what the limiter bounds",
    "error_min": "Below this draws are held back",
    "error_max": "Above this inserts are held back",
}


@dataclass(frozen=True)
class MetricsOptions:
    """Where the endpoint is, HOST:PORT; insecure: also where other machines reach it."""

    address: str = ""
    insecure: bool = False


class Endpoint:
    """An HTTP server of metrics: bound when made; it has metrics once `show` was given a server.

    Raises ConfigError where prometheus-client is missing or the address cannot be had, and
    Insecure where other machines would reach it and nobody said so.
    """

    def __init__(self, options: MetricsOptions) -> None:
        try:
            from prometheus_client import (
                CollectorRegistry,
                Counter,
                ProcessCollector,
                make_wsgi_app,
            )
        except ImportError as error:
            raise ConfigError(
                "metrics need the package prometheus-client; "
                "install it with: pip install 'replay-server[metrics]'"
            ) from error
        host, port = split_address(options.address)
        if not options.insecure and not only_here(host):
            raise Insecure(
                f"metrics on {options.address} could be read by other machines; say an address of "
                f"this one, such as 127.0.0.1:{port}, or --metrics-insecure"
            )
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        refused = Counter(PREFIX + "endpoint_refused", REFUSED_HELP, registry=self._registry)
        try:
            self._http = ScrapeServer(host, port, make_wsgi_app(self._registry), refused.inc)
        except OSError as error:
            busy = TransportError(f"metrics on {options.address}: {error.strerror or error}")
            busy.status = "SYSTEM"
            raise busy from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._http.server_port}/metrics"

    def show(self, *servers: Any) -> None:
        """Tells of these `Server`s from now on, and nothing any more of one that has closed."""
        self._registry.register(ServerCollector(servers))

    def close(self) -> None:
        """Stops answering, and lets the answers under way come to their end for two seconds: a peer
        that connects and asks nothing holds no server up longer. Twice is fine."""
        self._http.close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def split_address(address: str, what: str = "metrics") -> tuple[str, int]:
    """("127.0.0.1", 9464) of "127.0.0.1:9464"; ConfigError where it is no HOST:PORT. what: whose
    address it is, for the sentence."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{what} address {address!r} is no HOST:PORT, such as 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


def only_here(host: str, what: str = "metrics") -> bool:
    """Whether every address of the host is this machine's own; ConfigError where it has none. what:
    as of `split_address`."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{what} address {host}: {error.strerror or error}") from error
    return all(ipaddress.ip_address(at[0].split("%")[0]).is_loopback for *_, at in found)


class ServerCollector:
    """What prometheus-client asks for each scrape. Of several servers every series has a label
    `shard` with the number of the server it is of; a sum over it is the sum of them all."""

    def __init__(self, servers: Sequence[Any]) -> None:
        self._servers = tuple(servers)

    def collect(self) -> Iterator[Any]:
        """Every family of metrics, all of one look at each server."""
        if len(self._servers) == 1:
            return families_of(self._servers[0])
        merged: dict[str, Any] = {}
        for number, server in enumerate(self._servers):
            for family in families_of(server):
                family.samples = [
                    sample._replace(labels={"shard": str(number), **sample.labels})
                    for sample in family.samples
                ]
                if family.name in merged:
                    merged[family.name].samples += family.samples
                else:
                    merged[family.name] = family
        return iter(merged.values())


def families_of(server: Any) -> Iterator[Any]:
    """All families of one look at one server; none of one that has closed."""
    try:
        look, address, memory = server._measure(), server.address, server.memory
    except ClosedError:
        return
    yield from _counters(look)
    yield from _server(look, address, memory)
    yield from _times(look)
    yield from _tables(look)
    yield from _sessions(look)


def _counters(look: Measures) -> Iterator[Any]:
    for name, value in look.counters.items():
        yield _counter(name, _native.COUNTER_SENTENCES[name], [((), value)])


def _server(look: Measures, address: str, memory: int) -> Iterator[Any]:
    from prometheus_client.core import InfoMetricFamily

    facts = {
        "version": _native.VERSION,
        "address": address,
        "incarnation": f"{look.incarnation:016x}",
    }
    yield InfoMetricFamily(PREFIX + "server", "Who answers", value=facts)
    yield from _transport(look)
    yield _gauge("sessions_open", "Sessions open now", [((), look.sessions)])
    yield _gauge("weights_version", "The newest complete weights", [((), look.weights_version)])
    yield _gauge("region_bytes", "Memory of the tables and all else", [((), memory)])


def _transport(look: Measures) -> Iterator[Any]:
    drops = [fact for fact in look.facts if fact.is_drop]
    reasons = "; ".join(f"{fact.name}: {fact.sentence}" for fact in drops)
    sentence = f"Lost by the network or dropped below the server, by reason: {reasons}"
    values = [((fact.kind, fact.name), fact.value) for fact in drops]
    yield _counter("transport_dropped", sentence, values, ("direction", "reason"))
    for fact in look.facts:
        if not fact.is_drop:
            family = _counter if fact.kind == "count" else _gauge
            yield family("transport_" + fact.name, fact.sentence, [((), fact.value)])


def _times(look: Measures) -> Iterator[Any]:
    sentence = (
        "From a request's receipt to the end of the turn that answered it; "
        "time in the socket's queue and held-back time excluded"
    )
    served = [((name,), histogram) for name, histogram in look.operations.items()]
    yield _histogram("operation_seconds", sentence, served, ("operation",), TURN_BUCKETS, 1e9)
    sentence = "How long requests were held back by limiter or minimum size, or given up"
    waited = [(("sample",), look.samples_waited), (("push",), look.pushes_waited)]
    yield _histogram("wait_seconds", sentence, waited, ("operation",), WAIT_BUCKETS, 1e9)


def _tables(look: Measures) -> Iterator[Any]:
    tables, label = look.tables, ("table",)
    for field, (name, sentence) in TABLE_HELP.items():
        values = [((table.name,), getattr(table, field)) for table in tables]
        yield _gauge("table_" + name, sentence, values, label)
    for field, sentence in LIMITER_HELP.items():
        values = [((t.name,), getattr(t, field)) for t in tables if t.samples_per_insert]
        yield _gauge("table_limiter_" + field, sentence, values, label)
    inserted = [((table.name,), table.inserted) for table in tables]
    sampled = [((table.name,), table.sampled) for table in tables]
    yield _counter("table_inserted", "Items created, as the limiter counts", inserted, label)
    yield _counter("table_sampled", "Items drawn, as the limiter counts", sampled, label)
    ratio = [((t.name,), t.sampled / t.inserted if t.inserted else 0.0) for t in tables]
    yield _gauge("table_samples_per_insert", "Draws of each item so far", ratio, label)
    sides = ("table", "operation")
    waiting = [((t.name, "sample"), t.samples_waiting) for t in tables]
    waiting += [((t.name, "push"), t.pushes_waiting) for t in tables]
    yield _gauge("table_waiting", "Requests held back now", waiting, sides)
    holds = [((t.name, "sample"), t.holds_samples) for t in tables]
    holds += [((t.name, "push"), t.holds_inserts) for t in tables]
    yield _gauge("table_limiter_holds", "1: one more item would be held back now", holds, sides)
    largest = max(table.capacity for table in tables)
    last = next(b for b, bound in enumerate(BOUNDS) if bound >= largest)
    sentence = "Steps stored between an item's anchor and its draw, of every fourth item drawn"
    ages = [((table.name,), table.ages) for table in tables]
    yield _histogram("sample_age_steps", sentence, ages, label, (0, last), 1)


def _sessions(look: Measures) -> Iterator[Any]:
    busy = {place: meter for place, meter in look.meters.items() if meter.requests}
    for field in fields(SessionMeter):
        values = [((place,), getattr(meter, field.name)) for place, meter in busy.items()]
        yield _counter("session_" + field.name, SESSION_HELP[field.name], values, ("session",))
    sentence = "Seconds since the open session at this place was heard"
    silences = [((place,), seconds) for place, seconds in look.silences.items()]
    yield _gauge("session_silence_seconds", sentence, silences, ("session",))


# ---- families ----

Values = list[tuple[tuple[str, ...], Any]]


def _counter(name: str, sentence: str, values: Values, labels: tuple[str, ...] = ()) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(PREFIX + name, sentence, labels=labels), values)


def _gauge(name: str, sentence: str, values: Values, labels: tuple[str, ...] = ()) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(PREFIX + name, sentence, labels=labels), values)


def _filled(family: Any, values: Values) -> Any:
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _histogram(
    name: str,
    sentence: str,
    histograms: list[tuple[tuple[str, ...], Histogram]],
    labels: tuple[str, ...],
    buckets: tuple[int, int],
    unit: float,
) -> Any:
    """Buckets first .. last of the core's, bounds divided by `unit`; all beyond is in +Inf."""
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(PREFIX + name, sentence, labels=labels)
    for values, histogram in histograms:
        pairs = [(str(bound / unit), below) for bound, below in histogram.below(*buckets)]
        family.add_metric(values, [*pairs, ("+Inf", histogram.count)], histogram.sum / unit)
    return family
