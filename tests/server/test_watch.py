"""`stats --watch`: what it computes between two looks, where it writes, how it ends and goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from conformance import plain, plain_rows

from replay_server import Client, LimiterBlocked, SamplesPerInsert, Server, Timeout
from replay_server.__main__ import EXIT_USAGE, main
from replay_server._native import COUNTER_SENTENCES
from replay_server.observe.measures import BOUNDS, Histogram
from replay_server.observe.metrics import Endpoint, MetricsOptions
from replay_server.observe.snapshot import Look, TableLook, source_of
from replay_server.observe.watch import Between, line, minus, quantile, view, watch

ROOT = Path(__file__).resolve().parents[2]
COUNTED = dict.fromkeys(COUNTER_SENTENCES, 0)


def buckets_of(values) -> tuple:
    """The buckets of these values, found by the bounds alone."""
    counts = np.bincount(np.searchsorted(BOUNDS[:60], values), minlength=60)
    return tuple(Histogram(0, tuple(counts.tolist())).below(0, 59))


def test_quantiles_lie_within_their_bucket():
    """Given values of several shapes. Expect p50 and p99 off by half of the true one at most, and
    of two looks' difference what came in between."""
    rng = np.random.default_rng(5)
    for values in (
        rng.integers(0, 10, 500),
        rng.integers(0, 1 << 30, 999),
        rng.geometric(1e-5, 99),
    ):
        for share in (0.1, 0.5, 0.99):
            true = np.quantile(values, share, method="inverted_cdf")
            assert abs(quantile(buckets_of(values), share) - true) <= true / 2 + 1
        both = buckets_of(np.concatenate([values, [7] * 50]))
        assert minus(both, buckets_of(values)) == buckets_of(np.array([7] * 50))
    assert quantile((), 0.5) is None and quantile(buckets_of(np.array([], int)), 0.5) is None
    assert quantile(((1.0, 0.0), (2.0, 0.0), (float("inf"), 3.0)), 0.5) == 2.0


def look_at(at: float, steps: int, **changes) -> Look:
    counters = {"steps_committed": steps, "bytes_in": 100 * steps}
    return Look(at, "udp://here", "1", counters, 1, 0, (), **changes)


def test_rates_are_of_the_interval_and_start_anew_with_a_server():
    """Given looks 2 s apart, a server that is another, one that counts from 0 again. Expect the
    increase per second; nothing where there is nothing to compare with."""
    first, second = look_at(10.0, 100), look_at(12.0, 400)
    assert Between(second, first).rate("steps_committed") == 150.0
    assert Between(second, None).rate("steps_committed") == 0.0
    another = Look(12.0, "udp://here", "2", second.counters, 1, 0, ())
    assert Between(another, first).rate("steps_committed") == 0.0
    assert Between(look_at(12.0, 50), first).rate("steps_committed") == 0.0


def test_both_sources_tell_the_same_and_the_endpoint_more():
    """Given one quiet server, asked itself and at its endpoint. Expect equal tables, counters that
    only the asking moved, and times, ages and sessions from the endpoint."""
    table = plain(limiter=SamplesPerInsert(4.0, 10, 2000.0))
    with (
        Endpoint(MetricsOptions("127.0.0.1:0")) as endpoint,
        Server([table], "udp://127.0.0.1:0") as server,
        Client(server.address) as client,
    ):
        endpoint.show(server)
        client.extend("main", plain_rows(200))
        for _ in range(4):
            keys = client.sample("main", 50).keys
        client.update_priorities("main", keys, np.ones(50))
        asked, scraped = source_of(server.address, 5.0), source_of(endpoint.url, 5.0)
        itself, there = asked.look(), scraped.look()
        asked.close()
    for name in ("steps_committed", "items_sampled", "priorities_applied", "samples"):
        assert itself.counters[name] == there.counters[name] > 0
    for mine, theirs in zip(itself.tables, there.tables, strict=True):
        assert (mine.name, mine.items, mine.sampled) == (theirs.name, theirs.items, theirs.sampled)
        assert mine.target == theirs.target == 4.0
    shown = "\n".join(view(there, None))
    assert "ratio 1.00, 1.00 in all, target 4" in shown
    assert re.search(r"^sample +- +[\d.]+ \w+ +[\d.]+ \w+$", shown, re.MULTILINE)
    assert "age when drawn: p50 " in shown and re.search(r"^0 .* [num]?s$", shown, re.MULTILINE)
    assert there.sessions["0"]["steps"] == 200 and not itself.detailed
    assert "--metrics" in "\n".join(view(itself, None))


def test_looking_moves_no_counter_of_refusals():
    """Given a server of two tables, looked at twice. Expect both, and nothing refused by that."""
    tables = [plain(), dataclasses.replace(plain(), name="other")]
    with Server(tables, "udp://127.0.0.1:0") as server:
        source = source_of(server.address, 5.0)
        looks = [source.look() for _ in range(2)]
        source.close()
    assert [table.name for table in looks[1].tables] == ["main", "other"]
    assert looks[1].counters["refused_table"] == 0


def test_what_is_read_by_keys_is_not_drawn():
    """Given looks 2 s apart, between them 20 items drawn and 480 read by keys; then the table
    emptied. Expect 10 drawn per second, in a line and in the view, then none."""
    tables = [TableLook("main", 100, 1000, 100, drawn, 0.0) for drawn in (40, 60, 0)]
    looks = [
        dataclasses.replace(
            look_at(10.0 + 2 * i, 100),
            counters=COUNTED | {"items_sampled": 500 * i},
            tables=(table,),
        )
        for i, table in enumerate(tables)
    ]
    assert "drawn/s - " in line(looks[0], None)
    assert "drawn/s 10 " in line(looks[1], looks[0])
    assert re.search(r"drawn/s +10$", "\n".join(view(looks[1], looks[0])), re.MULTILINE)
    assert "drawn/s 0 " in line(looks[2], looks[1])


def test_a_first_line_tells_no_rates():
    """Given one look, then another. Expect no rate of the first: there is nothing to compare."""
    first, second = look_at(10.0, 100), look_at(12.0, 400)
    assert "steps/s - drawn/s - updates/s - " in line(first, None)
    assert "steps/s 150 drawn/s 0 updates/s 0 " in line(second, first)


def test_who_is_held_back_is_told_and_by_whom():
    """Given a limiter that holds a writer back and no learner; then one that samples. Expect both
    told, in the view and in the line; then that the other side is there again."""
    limiter = SamplesPerInsert(1.0, 4, (-8.0, 10.0))
    table = plain(limiter=limiter)
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        source = source_of(server.address, 5.0)

        def looked(wanted, *meanwhile):
            before = source.look()
            for _ in range(400):
                for act in meanwhile:
                    act()
                look = source.look()
                shown = line(look, before), "\n".join(view(look, before))
                if all(re.search(wanted, text, re.MULTILINE) for text in shown):
                    return
                before = look
            raise AssertionError(f"never told {wanted!r}: {shown}")

        def add():
            with contextlib.suppress(LimiterBlocked, Timeout):
                client.extend("main", plain_rows(4), timeout=0.02)

        def draw():
            with contextlib.suppress(LimiterBlocked, Timeout):
                client.sample("main", 1, timeout=0.02)

        looked("writers are held back by the limiter: nobody samples", add)
        looked("writers are held back by the limiter: learners are slower", add, add, add, draw)
        looked("learners are held back by the limiter: nobody adds", draw)
        source.close()


def test_it_goes_on_when_the_server_comes_back():
    """Given a server that stops and comes back at its address while watched. Expect a line that it
    is gone, once, then looks again; Ctrl-C ends it."""
    output, done = io.StringIO(), threading.Event()

    class Source:
        """The real one; ends the watch as Ctrl-C would."""

        def __init__(self, address):
            self.real = source_of(address, 0.2)
            self.close = self.real.close

        def look(self):
            if done.is_set():
                raise KeyboardInterrupt
            return self.real.look()

    def wait_for(pattern):
        for _ in range(4000):
            if re.search(pattern, output.getvalue(), re.DOTALL):
                return
            threading.Event().wait(0.005)
        raise AssertionError(f"never saw {pattern!r} in {output.getvalue()!r}")

    with Server([plain()], "udp://127.0.0.1:0") as server:
        address = server.address

        def run():
            with pytest.raises(KeyboardInterrupt):
                watch(Source(address), 0.02, output)

        thread = threading.Thread(target=run)
        thread.start()
        wait_for("steps/s")
    wait_for("looking for it again")
    gone = len(output.getvalue())
    with Server([plain()], address):
        wait_for(rf"(?s)^.{{{gone}}}.*steps/s")
        done.set()
        thread.join(30.0)
    assert not thread.is_alive() and output.getvalue().count("looking for it again") == 1


def started(*arguments, **streams):
    command = [sys.executable, "-u", "-m", "replay_server", "stats", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, **streams)


def test_piped_it_appends_lines_and_ends_with_a_signal():
    """Given a pipe. Expect plain lines, one a look, no escape codes; SIGINT: code 0, no words."""
    with Server([plain()], "udp://127.0.0.1:0") as server:
        process = started(
            server.address, "--watch", "--interval", "0.1", stdout=subprocess.PIPE, text=True
        )
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=30)
    assert process.returncode == 0 and said == ""
    for told in [*lines, *rest.splitlines()]:
        assert re.match(r"\d\d:\d\d:\d\d steps/s .* sessions 1 .* \| main 0/4,096 ", told), told
    assert "\x1b" not in "".join(lines) + rest


def test_on_a_terminal_it_redraws_in_place_and_leaves_it_as_it_was():
    """Given a terminal. Expect its other screen taken, home before each look, and given back."""
    with Server([plain()], "udp://127.0.0.1:0") as server:
        ours, theirs = pty.openpty()
        process = started(server.address, "--watch", "--interval", "0.1", stdout=theirs)
        os.close(theirs)
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 65536):
                seen += more
        except OSError:  # a terminal whose other side is closed
            pass
        _, said = process.communicate(timeout=30)
        os.close(ours)
    assert process.returncode == 0 and said == b""
    assert seen.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H") and b"main [....." in seen
    after = seen[seen.index(b"\x1b[?25h\x1b[?1049l") :]
    assert b"main [" in after and after.count(b"\x1b") == 2


def test_mistakes_are_told(capsys):
    """Given nobody there, something else there, an interval of nothing. Expect one sentence, 2."""
    for arguments, said in (
        (("http://127.0.0.1:9/metrics", "--watch"), "127.0.0.1:9"),
        (("udp://127.0.0.1:9", "--watch", "--timeout", "0.2"), "127.0.0.1:9"),
        (("udp://127.0.0.1:9", "--watch", "--interval", "0"), "0.1 to 3600"),
        (("http://127.0.0.1:9/metrics", "--timeout", "0"), "--timeout is 0"),
        (("http://127.0.0.1:9/metrics", "--timeout", "-1"), "--timeout is -1"),
        (("here", "--watch"), "here"),
        (("http://127.0.0.1:x/metrics",), "nonnumeric port"),
        (("http://[::1", "--watch"), "Invalid IPv6 URL"),
    ):
        assert main(["stats", *arguments]) == EXIT_USAGE
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1, error


@pytest.mark.parametrize("watch", [(), ("--watch",)])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-server\r\n", "BadStatusLine('SSH-2.0-server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nhalf", "IncompleteRead(4 bytes read"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, "LineTooLong"),
    ],
)
def test_an_endpoint_that_speaks_no_http_is_told(answer, said, watch, capsys):
    """Given something else at the port, and an answer that is cut off. Expect one sentence, 2."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        assert main(["stats", url, *watch]) == EXIT_USAGE
        thread.join(30)
    error = capsys.readouterr().err
    assert said in error and url in error and len(error.splitlines()) == 1, error


STARTS = {"body": b"HTTP/1.0 200 OK\r\n\r\n", "headers": b"HTTP/1.0 200 OK\r\nX: ", "status": b""}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_an_answer_that_drips_is_given_up(capsys, start):
    """Given an endpoint that sends a byte now and then, without end, of its answer, its headers or
    its status line. Expect --timeout to hold for the whole answer."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            peer, _ = server.accept()
            with peer, suppress(OSError):
                peer.recv(65536)
                peer.sendall(start)
                while not over.wait(0.01):
                    peer.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        assert main(["stats", url, "--timeout", "0.3"]) == EXIT_USAGE
        over.set()
        thread.join(30)
    assert "no whole answer within 0.3 s" in capsys.readouterr().err
