"""Closing clients, servers and endpoints while other threads are inside their calls; forks.

What goes wrong here takes the process along, so that each storm runs in a process of its own, whose
exit code tells. A storm that fails names its seed.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from conformance import ROWS, plain, plain_rows

from replay_server import Client, SamplesPerInsert, Server, Table, _native
from replay_server._native import Deadline
from replay_server.errors import ClosedError, ForkedError, NoRoom, OverBudget, ServerRestarted
from replay_server.writing.plain_rows import PlainRows

STORM = """
import random, sys, threading, time
import numpy as np
from conformance import plain, plain_rows
from replay_server import Client, Server
from replay_server.errors import ClosedError, Full, Timeout

url, first_seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.setswitchinterval(1e-5)
wrong = []

def until_closed(name, act, choice, begun):
    def body():
        try:
            begun.release()
            while True:
                try:
                    act()
                except (Timeout, Full):
                    pass
                if choice.random() < 0.3:
                    time.sleep(0)
        except ClosedError:
            pass
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
    return threading.Thread(target=body, daemon=True)

def play(seed):
    choice, begun = random.Random(seed), threading.Semaphore(0)
    server = Server([plain()], url)
    clients = [Client(server.address, timeout=2.0) for _ in range(2)]
    rows = plain_rows(8)
    keys = clients[0].extend("main", rows)
    acts = {
        "sample": lambda: clients[0].sample("main", 4),
        "stats": clients[0].stats,
        "counters": clients[0].counters,
        "extend": lambda: clients[0].extend("main", rows),
        "update": lambda: clients[1].update_priorities("main", keys, np.ones(8)),
        "size": lambda: clients[1].size("main"),
        "publish": lambda: clients[1].publish_weights(b"x" * 3000),
        "server": server.counters,
        "measure": server._measure,
        "look": lambda: (server.lost, server.memory, server.address),
    }
    threads = [until_closed(name, act, choice, begun) for name, act in acts.items()]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    time.sleep(choice.random() * 0.01)
    ends = [clients[0].close, clients[1].close, server.close] * 2
    choice.shuffle(ends)
    closers = [threading.Thread(target=end, daemon=True) for end in ends]
    for closer in closers:
        closer.start()
    for thread in closers + threads:
        thread.join(60)
        assert not thread.is_alive(), f"seed {seed}: a thread is still inside"
    assert not wrong, f"seed {seed}: {wrong}"

for seed in range(first_seed, first_seed + rounds):
    play(seed)
print("all closed")
"""

FORKED_SERVER = """
import os, signal, sys
from conformance import plain
from replay_server import Server

server = Server([plain()], sys.argv[1], region=sys.argv[2] or None)
inner, outer = os.pipe()
if os.fork() == 0:
    os.write(outer, b"x")
    sys.stdin.read()  # until the test lets go
    os._exit(0)
os.read(inner, 1)
print(server.address, flush=True)
signal.pause()
"""


def run_script(script: str, *arguments: str, **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    command = [sys.executable, "-X", "faulthandler", "-c", script, *arguments]
    return subprocess.Popen(command, env=environment, text=True, **options)


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://", "zmq+tcp://127.0.0.1:0"])
def test_closing_under_calls_of_other_threads(url):
    """Given ten threads in calls of two clients and a server, closed at random moments, each twice.
    Expect every call to end as closed, and the process to live."""
    if url.startswith("zmq"):
        pytest.importorskip("zmq")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with run_script(STORM, url, "1", "12", **pipes) as storm:
        said, error = storm.communicate(timeout=240)
    assert (storm.returncode, said.strip()) == (0, "all closed"), error[-4000:]


def test_who_closes_a_server_second_finds_it_gone(tmp_path, monkeypatch):
    """Given a thread that has begun to close a server and gets no further, and another one that
    closes it too. Expect that one to come back when the region is free, and not before."""
    inside, go_on, back, core = threading.Event(), threading.Event(), [], _native.lib

    class Held:
        def __getattr__(self, name: str) -> object:
            return getattr(core, name)

        def rp_service_end(self, service: object) -> None:
            inside.set()
            assert go_on.wait(60)
            core.rp_service_end(service)

    def close_too() -> None:
        server.close()
        with Server([plain()], "udp://127.0.0.1:0", region=str(tmp_path / "region")) as next_one:
            back.append(next_one.attached)

    server = Server([plain()], "udp://127.0.0.1:0", region=str(tmp_path / "region"))
    monkeypatch.setattr(_native, "lib", Held())
    first = threading.Thread(target=server.close)
    first.start()
    assert inside.wait(60)
    second = threading.Thread(target=close_too)
    second.start()
    second.join(0.2)  # who does not wait is back by then
    go_on.set()
    first.join()
    second.join()
    assert back == [True]


def test_a_close_that_looked_at_the_extend_before_leaves_the_next_one_its_keys(monkeypatch):
    """Given a client's close that looks for keys of the extend it saw under way, while the next
    extend, of this table or another, is acknowledged. Expect that one to have all its keys."""
    push, seen = PlainRows._push, []

    def push_and_look(rows: PlainRows, *arguments: object) -> int:
        taken = push(rows, *arguments)
        assert rows._settle(Deadline(10.0))
        for other, call in seen:
            other._take_keys(call)
        seen.append((rows, rows.behind.call))
        return taken

    monkeypatch.setattr(PlainRows, "_push", push_and_look)
    tables = [Table(name, step=ROWS, capacity=4096) for name in ("one", "two")]
    with Server(tables, "loopback://") as server, Client(server.address) as client:
        for table in ("one", "one", "two", "one", "two", "two"):
            keys = client.extend(table, plain_rows(8))
            assert len(set(keys.tolist())) == 8 and 0 not in keys
        assert (client.size("one"), client.size("two")) == (24, 24)


HELD = SamplesPerInsert(1.0, min_size=1, error_buffer=8.0)


@contextmanager
def waiting(act: Callable[[], object], server: Server, counter: str, before: int = 0):
    """What `act` ends with, in a list, behind a block that begins when the server holds it back:
    `counter` is more than `before` then."""
    ended: list[object] = []

    def body() -> None:
        try:
            ended.append(act())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    while server.counters()[counter] <= before:
        continue
    yield ended
    thread.join(60)
    assert not thread.is_alive(), "the call is still inside"


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://", "zmq+tcp://127.0.0.1:0"])
@pytest.mark.parametrize("kind", ["sample", "push"])
def test_a_call_that_waits_ends_when_the_server_of_this_process_closes(url, kind):
    """Given a sample, or rows, that the limiter would hold back for long, and the server closes.
    Expect ClosedError; for the rows' writer what a restart is, with its counts, and one that is
    opened anew to go on with the server that comes in its place."""
    if url.startswith("zmq"):
        pytest.importorskip("zmq")
    server = Server([plain(limiter=HELD)], url)
    address = server.address
    client = Client(address)
    if kind == "push":
        client.extend("main", plain_rows(8))
    acts = {
        "sample": lambda: client.sample("main", 8, timeout=600.0),
        "push": lambda: client.extend("main", plain_rows(8), timeout=600.0),
    }
    counter = {"sample": "samples_blocked", "push": "pushes_blocked"}[kind]
    with waiting(acts[kind], server, counter) as ended:
        server.close()
    if kind == "push":
        assert type(ended[0]) is ServerRestarted, ended
        assert (ended[0].stored_through, ended[0].in_doubt, ended[0].lost) == (8, 8, 0), ended
        if not url.startswith("loopback"):  # whose client ends with its server
            with Server([plain(limiter=HELD)], address):
                assert len(client.extend("main", plain_rows(8))) == 8
    else:
        assert isinstance(ended[0], ClosedError), ended
    client.close(0.0)


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://", "zmq+tcp://127.0.0.1:0"])
@pytest.mark.parametrize("way", ["sample", "batches"])
def test_what_ends_as_closed_says_which_end_that_was(url, way):
    """Given a sample that waits, alone or of a loop, as its server stops, or its client is closed.
    Expect that told, with what to do; and that it works: the same call with the next server."""
    if url.startswith("zmq"):
        pytest.importorskip("zmq")
    server = Server([plain(limiter=HELD)], url)
    address = server.address
    client, other = Client(address), Client(address)

    def act(who):
        if way == "sample":
            return who.sample("main", 8, timeout=60.0)
        with who.batches("main", 8, prefetch=1, timeout=60.0) as batches:
            return next(batches)

    with waiting(partial(act, other), server, "samples_blocked") as ended:
        other.close()
    assert re.search("clos.*; (open|call)", str(ended[0])) and "server" not in str(ended[0]), ended
    before = server.counters()["samples_blocked"]
    with waiting(partial(act, client), server, "samples_blocked", before) as ended:
        server.close()
    loopback = url.startswith("loopback")
    remedy = "open a client of the one that is started next" if loopback else "call again when it"
    assert isinstance(ended[0], ClosedError) and f"the server stopped; {remedy}" in str(ended[0])
    with Server([plain(limiter=HELD)], address):
        client = Client(address) if loopback else client
        client.extend("main", plain_rows(8))
        assert len(act(client).keys) == 8
        client.close()


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "zmq+tcp://127.0.0.1:0"])
def test_rows_that_wait_go_on_with_who_takes_the_region_over(url, tmp_path):
    """Given rows that the limiter holds back, and a server that closes and leaves its region to the
    next one. Expect them to be stored there, once, when a sample has made room."""
    if url.startswith("zmq"):
        pytest.importorskip("zmq")
    region = str(tmp_path / "region")
    server = Server([plain(limiter=HELD)], url, region=region)
    address = server.address
    client, other = Client(server.address), Client(server.address)
    first = client.extend("main", plain_rows(8))
    push = partial(client.extend, "main", plain_rows(8), timeout=60.0)
    with waiting(push, server, "pushes_blocked") as ended:
        server.close()
        server = Server([plain(limiter=HELD)], address, region=region)
        other.sample("main", 8, timeout=60.0)
    assert len(ended[0]) == 8 and int(ended[0][0]) == int(first[-1]) + 1, ended
    assert client.size("main") == 16
    for each in (client, other, server):
        each.close()


def test_the_metrics_endpoint_is_looked_at_while_serve_ends():
    """Given scrapes without a pause while `serve --metrics` is told to stop. Expect a clean end,
    and no answer that was begun and cut off."""
    cut_off: list[str] = []
    for _ in range(3):
        command = [sys.executable, "-m", "replay_server", "serve", "--env", "CartPole-v1"]
        command += ["--url", "udp://127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as process:
            lines = iter(process.stdout.readline, "")
            url = next(re.search(r"http://\S+", line)[0] for line in lines if "metrics at" in line)
            looked, over = threading.Semaphore(0), threading.Event()

            def scrape(url=url, looked=looked, over=over) -> None:
                while not over.is_set():
                    try:
                        with urllib.request.urlopen(url, timeout=30) as answer:
                            answer.read()
                        looked.release()
                    except http.client.IncompleteRead:
                        cut_off.append(url)
                    except (OSError, urllib.error.URLError):
                        pass

            threads = [threading.Thread(target=scrape, daemon=True) for _ in range(3)]
            for thread in threads:
                thread.start()
            for _ in threads:
                assert looked.acquire(timeout=60)
            process.send_signal(signal.SIGTERM)
            _, error = process.communicate(timeout=60)
            over.set()
            for thread in threads:
                thread.join(60)
        assert process.returncode == 0 and "Traceback" not in error, error
    assert not cut_off, cut_off


@pytest.mark.parametrize("region", [False, True])
def test_a_forked_worker_does_not_keep_what_its_killed_server_held(tmp_path, region):
    """Given a worker forked by a server that was killed. Expect port and region to be free."""
    path = str(tmp_path / "region") if region else ""
    script = run_script(
        FORKED_SERVER, "udp://127.0.0.1:0", path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with script as process:
        try:
            address = process.stdout.readline().strip()
        finally:
            process.kill()
        process.wait(60)
        with Server([plain()], address, region=path or None) as server:
            assert server.attached == region
        process.stdin.close()


def test_a_forked_child_never_waits_for_a_lock_of_its_parents():
    """Given a client whose locks are held by another thread during a fork. Expect ForkedError."""
    with Server([plain()], "loopback://") as server, Client(server.address) as client:
        client.extend("main", plain_rows(3))
        keys = client.sample("main", 3).keys
        held, done = threading.Barrier(2), threading.Event()

        def hold() -> None:
            with client._lock, client._extending, client._updates._lock:
                held.wait()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            refused = 0
            for act in (
                lambda: client.table("main"),
                lambda: client.extend("main", plain_rows(1)),
                lambda: client.update_priorities("main", keys, [1.0] * 3, wait=False),
                client.flush,
                lambda: client._lock.acquire(),
            ):
                try:
                    act()
                except ForkedError as error:
                    refused += "Client(client.address)" in str(error)
            client.close()
            os._exit(refused)
        done.set()
        thread.join()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 5
        assert client.size("main") == 3


def test_a_forked_child_may_ask_its_parents_server_for_the_address_alone():
    """Given a server and a fork. Expect the address in the child, which opens a client with it, and
    ForkedError for all else."""
    with Server([plain()], "udp://127.0.0.1:0") as server:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Client(server.address) as client:
                    client.ping()
                server.counters()
            except ForkedError:
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert server.counters()["sessions_opened"] == 1


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://", "zmq+tcp://127.0.0.1:0"])
@pytest.mark.parametrize("way", ["refused", "refused here", "writer dropped", "dropped", "closed"])
def test_who_is_refused_or_dropped_keeps_no_place(url, way):
    """Given writers that are refused by the server or by the client's side of the grant, writers
    and clients that nobody holds, and clients closed in no time. Expect their sessions and places
    to be free at once, long before they were idle for the server's half minute."""
    if url.startswith("zmq"):
        pytest.importorskip("zmq")
    with Server([plain(writers=2)], url, sessions=8) as server, Client(server.address) as client:
        held = [client.writer("main") for _ in range(2)] if way == "refused" else []
        before = client.stats().sessions
        for _ in range(6):
            if way == "refused":
                with pytest.raises(NoRoom, match="every writer place"):
                    client.writer("main")
            elif way == "refused here":
                with pytest.raises(OverBudget, match="streams"):
                    client.writer("main", 1000, autoreset="disabled")
            elif way == "writer dropped":
                client.writer("main")
            elif way == "dropped":
                Client(server.address).writer("main")
            else:
                Client(server.address).close(0.0)
            for _ in range(10_000):  # each asks the server
                if client.stats().sessions == before:
                    break
            assert client.stats().sessions == before
        for writer in held or [client.writer("main"), client.writer("main")]:
            writer.close()


def test_a_writer_that_closes_meanwhile_is_not_asked_for_versions(monkeypatch):
    """Given a writer that another thread closes between two looks at it. Expect the newest version
    of those that are open, and no error of a writer that the caller has not."""
    with Server([plain()], "loopback://") as server, Client(server.address) as client:
        version = client.publish_weights(b"weights")
        other = client.writer("main")
        monkeypatch.setattr(type(other), "closed", property(lambda writer: False))
        other.link.close(1.0)
        assert client.weights_version == version
        assert client.pull_weights()[0] == version
        monkeypatch.undo()
