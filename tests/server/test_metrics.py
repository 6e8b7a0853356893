"""The metrics endpoint: what it tells agrees with the server, is bounded, and is opened with care.

Scrapes go over real sockets and are read by prometheus-client's own strict parser.
"""

from __future__ import annotations

import errno
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conformance import plain, plain_rows
from dashboards import DEPLOY, alert_queries, dashboard_queries, metric_names
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from protocol_client import PING, Session
from until import until

from replay_server import (
    Client,
    ConfigError,
    Insecure,
    MinSize,
    SamplesPerInsert,
    Server,
    TransportError,
)
from replay_server.__main__ import EXIT_USAGE, main
from replay_server._native import COUNTER_SENTENCES, PINS
from replay_server.errors import ClosedError
from replay_server.observe import scrapes
from replay_server.observe.measures import SESSIONS_METERED
from replay_server.observe.metrics import Endpoint, MetricsOptions
from replay_server.observe.snapshot import source_of
from replay_server.observe.watch import view

ROOT = Path(__file__).resolve().parents[2]
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
CONFIG = """
[server]
url = "udp://127.0.0.1:0"
weights_max = 1_000_000

[metrics]
address = "127.0.0.1:0"

[[table]]
name = "main"
capacity = 4096
columns = [{ name = "x", dtype = "float32", shape = [4] }]
"""


def scrape(url: str) -> dict:
    """{family's name: family} of one scrape."""
    asked = urllib.request.Request(url, headers=OPENMETRICS)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return {f.name: f for f in text_string_to_metric_families(answer.read().decode())}


def values(families: dict, name: str, **labels: str) -> dict[str, float]:
    """{sample's name: value} of a family, where the labels are these (le excepted)."""
    return {
        sample.name: sample.value
        for sample in families[name].samples
        if {k: v for k, v in sample.labels.items() if k != "le"} == labels
    }


@contextmanager
def watched(*tables, url="udp://127.0.0.1:0", **options):
    """(server, url of its metrics)."""
    options = {"weights_max": 1 << 20, **options}
    with (
        Endpoint(MetricsOptions("127.0.0.1:0")) as endpoint,
        Server(tables or [plain()], url, **options) as server,
    ):
        endpoint.show(server)
        yield server, endpoint.url


def test_counters_are_the_servers_own():
    """Given traffic. Expect every counter, its sentence, sizes and drops as the server has them."""
    with watched() as (server, url), Client(server.address) as client:
        keys = client.extend("main", plain_rows(300))
        client.sample("main", 64)
        client.update_priorities("main", keys, np.ones(300))
        client.publish_weights(b"weights")
        told = client.stats().counters
        families, counted = scrape(url), server.counters()
    for name, sentence in COUNTER_SENTENCES.items():
        family = families["replay_" + name]
        assert family.type == "counter" and family.documentation == sentence
        assert values(families, "replay_" + name)[f"replay_{name}_total"] == counted[name], name
    assert told["steps_committed"] == counted["steps_committed"] == 300
    assert counted["priorities_applied"] == 300 and counted["items_sampled"] == 64
    assert values(families, "replay_weights_version")["replay_weights_version"] == 1
    assert values(families, "replay_sessions_open")["replay_sessions_open"] == counted["sessions"]
    items = values(families, "replay_table_items", table="main")
    assert items == {"replay_table_items": 300}
    ratio = values(families, "replay_table_samples_per_insert", table="main")
    assert ratio["replay_table_samples_per_insert"] == pytest.approx(64 / 300)
    assert families["replay_server"].samples[0].labels["address"].startswith("udp://127.0.0.1:")


def test_drops_of_the_transport_are_told_by_reason_everywhere(capsys):
    """Given three empty datagrams. Expect 3 under their reason at the server, at a client, at the
    endpoint, in `stats` at both and in the view; no other drop; and their sentence."""
    with watched() as (server, url), Client(server.address) as client:
        host, port = server.address.removeprefix("udp://").split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(3):
                sender.sendto(b"", (host, int(port)))
        until(lambda: server.counters()["dropped_in"] == 3, "all are dropped")
        here, there, families = server.stats(), client.stats(), scrape(url)
        views = [view(source_of(at, 5.0).look(), None) for at in (server.address, url)]
        for address in (server.address, url):
            assert main(["stats", address]) == 0
            assert re.search(r"^dropped_in_unusable +3", capsys.readouterr().out, re.MULTILINE)
        client.ping()
        own = client.facts()
    assert here.facts == there.facts and not any(fact.value for fact in own)
    assert {fact.full_name: fact.value for fact in here.facts if fact.value} == {
        "dropped_in_unusable": 3
    }
    family = families["replay_transport_dropped"]
    counted = {("in", "socket"): 0} if PINS else {}  # in the POSIX build nobody counts those
    assert {tuple(sample.labels.values()): sample.value for sample in family.samples} == counted | {
        ("in", "unusable"): 3,
        ("out", "not_taken"): 0,
    }
    (sentence,) = [fact.sentence for fact in here.facts if fact.value]
    assert f"unusable: {sentence}" in family.documentation and "empty" in sentence
    for lines in views:
        assert any(line.startswith("  dropped_in_unusable 3 (0/s)") for line in lines)


def test_each_request_is_in_one_bucket():
    """Given requests of known number. Expect as many in each operation's histogram; in all of them
    as many as datagrams came in; times that add up to less than the test took; no bucket below
    the one before."""
    with watched() as (server, url), Client(server.address) as client:
        for i in range(50):
            client.extend("main", plain_rows(4, seed=i))
        for _ in range(30):
            client.sample("main", 8)
        families, counted = scrape(url), server.counters()
    sums = {
        sample.labels["operation"]: sample.value
        for sample in families["replay_operation_seconds"].samples
        if sample.name.endswith("_count")
    }
    assert sums["push"] == counted["pushes"] + counted["pushes_blocked"] >= 50
    assert sums["sample"] == counted["samples"] + counted["samples_repeated"] >= 30
    assert sum(sums.values()) == counted["datagrams_in"]
    for name in ("replay_operation_seconds", "replay_wait_seconds", "replay_sample_age_steps"):
        before = {}
        for sample in families[name].samples:
            if sample.name.endswith("_bucket"):
                kind = tuple(v for k, v in sample.labels.items() if k != "le")
                assert sample.value >= before.get(kind, 0.0)
                before[kind] = sample.value
    ages = values(families, "replay_sample_age_steps", table="main")
    assert ages["replay_sample_age_steps_count"] == 30 * 2  # the first and fifth of eight
    assert 0 <= ages["replay_sample_age_steps_sum"] <= 60 * 199


def test_who_is_held_back_shows():
    """Given a request that waits for the minimum size. Expect it waiting; then one wait told."""
    with watched(plain(limiter=MinSize(10))) as (server, url), Client(server.address) as client:
        client.extend("main", plain_rows(5))
        pending = iter(client.batches("main", 4, prefetch=1))
        for _ in range(2000):
            if server.counters()["samples_blocked"]:
                break
            threading.Event().wait(0.005)
        families = scrape(url)
        sides = {"table": "main", "operation": "sample"}
        assert values(families, "replay_table_waiting", **sides)["replay_table_waiting"] == 1
        holds = values(families, "replay_table_limiter_holds", **sides)
        assert holds["replay_table_limiter_holds"] == 1
        client.extend("main", plain_rows(10, seed=1))
        next(pending)
        waited = values(scrape(url), "replay_wait_seconds", operation="sample")
        assert waited["replay_wait_seconds_count"] == 1 and waited["replay_wait_seconds_sum"] > 0


def test_a_thousand_sessions_are_no_more_series_than_a_hundred():
    """Given 100 sessions, then 1000, then others in their places. Expect the same label values:
    the places with numbers of their own, and "other", which has what the rest did."""

    def meet(count, leave=False):
        for _ in range(count):
            session = Session("127.0.0.1", port)
            session.ask(PING, 1, b"")
            if leave:
                session.close()
            session.socket.close()  # without a word: the server keeps it until its time has passed

    def labels(families):
        samples = families["replay_session_requests"].samples
        return {sample.labels["session"] for sample in samples}

    few_options = {"batch_max": 16, "records": 1, "idle_ms": 600_000}
    with watched(sessions=1000, receive_budget=4096, **few_options) as (server, url):
        port = int(server.address.rsplit(":", 1)[1])
        meet(100)
        few = scrape(url)
        meet(700)
        meet(200, leave=True)
        many = scrape(url)
        meet(200)
        recycled, counted = scrape(url), server.counters()
    assert counted["sessions"] == 1000 and counted["sessions_opened"] == 1200
    expected = {str(place) for place in range(SESSIONS_METERED)} | {"other"}
    assert labels(many) == labels(recycled) == expected == labels(few)
    sizes = [sum(len(f.samples) for f in look.values()) for look in (few, many, recycled)]
    assert sizes[0] == sizes[1] == sizes[2] < 2500
    requests = {
        sample.labels["session"]: sample.value
        for sample in recycled["replay_session_requests"].samples
    }
    assert sum(requests.values()) == 1400 and requests["other"] >= 1000 - SESSIONS_METERED


def test_addresses_are_opened_with_care():
    """Given an address others reach, a busy one, ones that are none. Expect one sentence each."""
    for address in ("0.0.0.0:0", "[::]:0"):
        with pytest.raises(Insecure, match="--metrics-insecure"):
            Endpoint(MetricsOptions(address))
    with Endpoint(MetricsOptions("0.0.0.0:0", insecure=True)) as endpoint:
        assert endpoint.url.startswith("http://0.0.0.0:")
        port = endpoint.url.split(":")[2].split("/")[0]
        with pytest.raises(TransportError, match=port):
            Endpoint(MetricsOptions(f"127.0.0.1:{port}"))
    for address in ("9464", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "no.host.invalid:1"):
        with pytest.raises(ConfigError) as told:
            Endpoint(MetricsOptions(address))
        assert "\n" not in str(told.value) and address.split(":")[0] in str(told.value)


def test_without_the_package_nothing_starts(tmp_path, monkeypatch, capsys):
    """Given no prometheus-client. Expect one sentence with the remedy, and no region made."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    (tmp_path / "server.toml").write_text(CONFIG)
    region = tmp_path / "region"
    arguments = ["serve", str(tmp_path / "server.toml"), "--region", str(region)]
    assert main(arguments) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "pip install 'replay-server[metrics]'" in said and len(said.splitlines()) == 1
    assert not region.exists()


def test_serve_has_the_endpoint_and_stops(tmp_path):
    """Given [metrics] in the file. Expect its url in a line, an answer there, a clean end."""
    (tmp_path / "server.toml").write_text(CONFIG)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "replay_server", "serve", str(tmp_path / "server.toml")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = next(line for line in process.stdout if line.startswith("metrics at "))
        families = scrape(line.split()[2])
        assert "replay_steps_committed" in families and "process_resident_memory_bytes" in families
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0


class Held:
    """A server whose look lasts until it is let go, and which has closed then."""

    def __init__(self):
        self.entered, self.let_go = threading.Event(), threading.Event()

    def _measure(self):
        self.entered.set()
        assert self.let_go.wait(60)
        raise ClosedError("the server has closed")


@contextmanager
def closing(endpoint):
    """An event that is set once the endpoint has closed, from when it takes no more peers."""
    closed = threading.Event()
    closer = threading.Thread(target=lambda: (endpoint.close(), closed.set()), daemon=True)
    closer.start()
    until(lambda: endpoint._http.socket.fileno() == -1, "its socket is closed")
    yield closed
    closer.join(60)
    assert closed.is_set(), "the endpoint does not close"


def test_an_endpoint_closes_after_the_answers_under_way(monkeypatch):
    """Given a scrape that is being answered as the endpoint closes. Expect it to come whole, and
    the end only then: a program that ended before would cut it off."""
    monkeypatch.setattr(scrapes, "ANSWER_S", 60.0)
    held, scraped = Held(), []
    endpoint = Endpoint(MetricsOptions("127.0.0.1:0"))
    endpoint.show(held)
    scraper = threading.Thread(target=lambda: scraped.append(scrape(endpoint.url)), daemon=True)
    scraper.start()
    assert held.entered.wait(60)
    with closing(endpoint) as closed:
        early = closed.wait(0.2)
        held.let_go.set()
    scraper.join(60)
    assert not early and "process_resident_memory_bytes" in scraped[0]


def connected(endpoint) -> socket.socket:
    """A peer of the endpoint that has asked nothing yet."""
    return socket.create_connection(("127.0.0.1", endpoint._http.server_port), timeout=60)


def test_an_endpoint_closes_though_a_peer_asks_nothing(monkeypatch):
    """Given a peer that connects and says nothing. Expect the end after the bound, for it too."""
    monkeypatch.setattr(scrapes, "ANSWER_S", 0.1)
    monkeypatch.setattr(scrapes, "CONNECTION_S", 600.0)
    endpoint = Endpoint(MetricsOptions("127.0.0.1:0"))
    with connected(endpoint) as peer:
        until(lambda: endpoint._http.open, "the scraper is let in")
        with closing(endpoint):
            pass
        assert peer.recv(1) == b""
        monkeypatch.setattr(scrapes, "ANSWER_S", 600.0)
        with closing(endpoint):  # again, as a `with` does: nobody is waited for twice
            pass


def test_a_connection_has_its_time_and_ends(monkeypatch, capfd):
    """Given a peer that asks nothing, one that asks half, one that does not take its answer. Expect
    each ended, its thread too, without a word on standard error; and the next scrape answered."""
    monkeypatch.setattr(scrapes, "CONNECTION_S", 0.1)
    large = CollectorRegistry()
    many = Gauge("many", "More than the socket's buffers hold", ["text"], registry=large)
    for i in range(64):
        many.labels(f"{i}" * 100_000).set(1)
    with Endpoint(MetricsOptions("127.0.0.1:0")) as endpoint:
        endpoint._registry.register(large)
        with connected(endpoint) as mute, connected(endpoint) as half, connected(endpoint) as slow:
            half.sendall(b"GET /met")
            slow.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert mute.recv(1) == b"" and half.recv(1) == b""
            until(
                lambda: not any(each.thread.is_alive() for each in endpoint._http.open),
                "their threads end",
            )
        endpoint._registry.unregister(large)
        monkeypatch.setattr(scrapes, "CONNECTION_S", 600.0)
        assert "process_resident_memory_bytes" in scrape(endpoint.url)
    assert capfd.readouterr().err == ""


def test_connections_are_bounded_and_those_beyond_counted(monkeypatch):
    """Given as many peers as may be open, and three more. Expect those three closed at once, the
    others kept, and three counted once there is room for a scrape."""
    monkeypatch.setattr(scrapes, "CONNECTION_S", 600.0)
    with ExitStack() as stack:
        endpoint = stack.enter_context(Endpoint(MetricsOptions("127.0.0.1:0")))
        peers = []
        for count in range(1, scrapes.CONNECTIONS_MAX + 1):
            peers.append(stack.enter_context(connected(endpoint)))
            until(lambda count=count: len(endpoint._http.open) == count, "it is let in")
        for _ in range(3):
            with connected(endpoint) as beyond:
                assert beyond.recv(1) == b""
        assert all(each.thread.is_alive() for each in endpoint._http.open)
        peers.pop().close()
        until(
            lambda: not all(each.thread.is_alive() for each in endpoint._http.open),
            "one of their threads ends",
        )
        told = values(scrape(endpoint.url), "replay_endpoint_refused")
        assert told["replay_endpoint_refused_total"] == 3
        for peer in peers:
            peer.close()


def test_the_endpoint_pauses_where_no_connection_can_be_taken(monkeypatch):
    """Given a system that has no file for a new connection. Expect a pause after each try, and an
    answer once there is one again."""
    tries, pauses = [], []

    def accept(server):
        tries.append(len(pauses))
        if len(tries) < 4:
            raise OSError(errno.EMFILE, "Too many open files")
        return server.socket.accept()

    monkeypatch.setattr(scrapes.WSGIServer, "get_request", accept)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr(scrapes, "time", clock)
    with Endpoint(MetricsOptions("127.0.0.1:0")) as endpoint:
        assert "process_resident_memory_bytes" in scrape(endpoint.url)
    assert tries == [0, 1, 2, 3] and pauses == [scrapes.BACK_OFF_S] * 3


def test_a_typo_in_the_section_is_told(tmp_path, capsys):
    """Given [metrics] with an unknown field, one of another kind. Expect it to be named."""
    for wrong, said in (("adress = 'x'", "adress"), ("insecure = 'no'", "insecure")):
        path = tmp_path / "server.toml"
        path.write_text(CONFIG.replace('address = "127.0.0.1:0"', wrong))
        assert main(["serve", str(path)]) == EXIT_USAGE
        assert said in capsys.readouterr().err


def test_the_dashboard_and_the_alerts_ask_for_what_is_told():
    """Given every query of deploy/. Expect only metrics and labels that the endpoint has, and each
    alert told in the rules' own test."""
    table = plain(limiter=SamplesPerInsert(4.0, 10, 2000.0))
    with watched(table) as (server, url), Client(server.address) as client:
        client.extend("main", plain_rows(20))
        families = scrape(url)
    labels: dict[str, set[str]] = {}
    for family in families.values():
        for sample in family.samples:
            labels.setdefault(sample.name, {"instance"}).update(sample.labels)
    assert len(dashboard_queries()) > 50 and len(alert_queries()) == 8
    for panel, query, legend in dashboard_queries():
        names = metric_names(query)
        assert names and names <= labels.keys(), f"{panel}: {sorted(names - labels.keys())}"
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            assert all(label in labels[name] for name in names), f"{panel}: {label} of {query}"
    told = (DEPLOY / "prometheus_alerts_test.yml").read_text()
    for alert, query in alert_queries():
        names = metric_names(query)
        assert names <= labels.keys() and (names or query.startswith("up{")), alert
        assert told.count(alert) == 2


def test_the_dashboard_says_what_a_counter_counts():
    """Given the counters of datagrams dropped that the dashboard shows. Expect each legend to be
    what the counter's sentence says of them, so that a new reason stands there too."""
    legends = {query: legend for _, query, legend in dashboard_queries()}
    shown = {}
    for name, sentence in COUNTER_SENTENCES.items():
        for query in (q for q in legends if sentence.startswith("dropped: ")):
            if query.startswith(f"rate(replay_{name}_total{{"):
                shown[name] = (legends[query], sentence.removeprefix("dropped: "))
    assert {"drop_checksum", "drop_no_room", "drop_replayed"} <= shown.keys()
    assert [name for name, (legend, said) in shown.items() if legend != said] == []
