"""When rows leave a writer that is not called: with its client's calls, when it is given up, when
its session may have been given up. Real sockets; waits are for what is counted, each with a bound.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import time
import warnings

import numpy as np
import pytest
from silent import Silent
from until import until

from replay_server import (
    Client,
    Column,
    NStep,
    SamplesPerInsert,
    Server,
    Spec,
    Table,
    Timeout,
    _native,
)
from replay_server import writer as writer_module
from replay_server._native import lib
from replay_server.errors import (
    ClosedError,
    LimiterBlocked,
    RowsDropped,
    ServerRestarted,
    SessionExpired,
)
from replay_server.writing.autoreset import FRESH_CALLS, Autoreset

SPEC = Spec(
    (
        Column("observation", np.float32, (2,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
BOUND_S = 20.0


@pytest.fixture
def served():
    """A server over UDP, and two clients: the writer's, for which nobody speaks but its calls,
    and one that looks."""
    with (
        Server([Table("main", SPEC, NStep(1), 4096)], "udp://127.0.0.1:0", idle_ms=600) as server,
        Silent(server.address) as client,
        Client(server.address) as other,
    ):
        yield server, client, other


def add(writer, count, first=0):
    for number in range(first, first + count):
        seen = np.full(2, number, np.float32)
        ready = writer.add(
            observation=seen,
            action=number,
            reward=0.0,
            terminated=False,
            truncated=False,
            next_observation=seen + 1,
        )
    return ready


CALLS = {
    "pull_weights": lambda client, keys: client.pull_weights(),
    "weights_version": lambda client, keys: client.weights_version,
    "ping": lambda client, keys: client.ping(),
    "size": lambda client, keys: client.size("main"),
    "can_sample": lambda client, keys: client.can_sample("main", 1),
    "table": lambda client, keys: client.table("main"),
    "stats": lambda client, keys: client.stats(),
    "update": lambda client, keys: client.update_priorities("main", keys, [1.0]),
    "queue": lambda client, keys: client.update_priorities("main", keys, [1.0], wait=False),
    "flush": lambda client, keys: client.flush(),
    "publish_weights": lambda client, keys: client.publish_weights(b"x"),
}


@pytest.mark.parametrize("name", CALLS)
def test_rows_leave_with_any_call_of_the_client(served, name):
    """Given steps far fewer than a datagram holds, and an actor that then only polls. Expect all of
    their items at the server."""
    _, client, other = served
    with client.writer("main") as writer:
        add(writer, 5)
        keys = np.array([other.table("main").head], np.uint64)
        until(lambda: other.size("main") == 4, "4 items", act=lambda: CALLS[name](client, keys))


def test_items_left_to_the_caller_are_not_made_by_a_poll(served, monkeypatch):
    """Given a poll between add and create_items. Expect the caller's priorities to count."""
    monkeypatch.setattr(writer_module, "KEPT_S", 1e9)
    server, client, other = served
    with client.writer("main") as writer:
        add(writer, 4)
        ready = add(writer, 1, 4)
        until(lambda: other.size("main") == 3, "3 items", act=client.ping)
        writer.create_items(ready, [7.0])
        writer.flush()
        counters = server.counters()
    assert (counters["items_created"], counters["items_existed"]) == (4, 0)


def test_a_dropped_writer_hands_over_what_it_can(served):
    """Given a writer that nobody closes and nobody holds. Expect its rows at the server."""
    _, client, other = served
    writer = client.writer("main")
    add(writer, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RowsDropped)  # that they arrive was not known yet
        del writer
        gc.collect()
    until(lambda: other.size("main") == 59, "59 items")


@pytest.mark.parametrize("end", ["drop", "close"])
def test_rows_that_are_lost_with_their_writer_are_told(end):
    """Given rows taken after the server went. Expect one warning with their number."""
    server = Server([Table("main", SPEC, NStep(1), 4096)], "udp://127.0.0.1:0")
    client = Client(server.address)
    writer = client.writer("main")
    server.close()
    add(writer, 60)
    with pytest.warns(RowsDropped, match="with 60 of its rows not known to be stored"):
        if end == "drop":
            del writer
            gc.collect()
        else:
            client.close(0.2)
    client.close(0.0)


@pytest.mark.parametrize("end", ["drop", "close"])
def test_rows_that_an_error_told_of_are_not_told_again(end):
    """Given a server that comes back empty, and the writer's error that counts its rows. Expect no
    warning of the same rows when the writer is given up."""
    described = [Table("main", SPEC, NStep(1), 4096)]
    with Server(described, "udp://127.0.0.1:0") as server:
        address = server.address
        client = Client(address)
        writer = client.writer("main")
        add(writer, 60)
    with Server(described, address), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        starts = itertools.count(60, 60)
        with pytest.raises(ServerRestarted, match=r"\d+ rows that it had acknowledged"):
            until(lambda: False, "the error", act=lambda: add(writer, 60, next(starts)))
        assert writer.state().unacknowledged > 0
        if end == "drop":
            del writer
            gc.collect()
        else:
            client.close()
    client.close(0.0)
    assert [str(each.message) for each in warned] == []


class Goodbyes:
    """The core's library, and how long each goodbye may wait for its answer, in nanoseconds."""

    def __init__(self):
        self.waits = []

    def __getattr__(self, name):
        return getattr(lib, name)

    def rp_link_end(self, link, timeout_ns):
        self.waits.append(timeout_ns)
        lib.rp_link_end(link, timeout_ns)


@pytest.mark.parametrize("what", ["rows", "priorities", "nothing"])
def test_who_was_silent_is_not_waited_for_again(monkeypatch, what):
    """Given a server that went, and rows or priorities that it never answered. Expect the with
    blocks of writer and client to wait for it once, and not once more for each goodbye."""
    server = Server([Table("main", SPEC, NStep(1), 4096)], "udp://127.0.0.1:0")
    with Client(server.address) as client, client.writer("main") as writer:
        add(writer, 60)
        writer.flush()
        keys = client.get("main", writer.ledger()["key"]).keys
    goodbyes = Goodbyes()
    monkeypatch.setattr(_native, "lib", goodbyes)
    with (
        contextlib.suppress(Timeout) if what == "nothing" else pytest.raises(Timeout),
        Client(server.address, timeout=0.3, connect_timeout=30.0) as client,
        client.writer("main") as writer,
    ):
        if what != "nothing":
            server.close()
        if what == "rows":
            add(writer, 60)
        if what == "priorities":
            client.update_priorities("main", keys[:1], [1.0], wait=False)
    expected = {"rows": [0, 0], "priorities": [int(0.3e9), 0]}.get(what, [int(0.3e9)] * 2)
    assert [round(wait, -8) for wait in goodbyes.waits] == expected
    server.close()


def test_a_client_that_closes_closes_its_writers(served):
    """Given a writer that holds rows when its client is closed. Expect them stored, and no word."""
    _, client, other = served
    writer = client.writer("main")
    add(writer, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.close()
    assert writer.closed and other.size("main") == 59


def test_the_first_add_after_the_session_has_gone_says_so(served):
    """Given a pause that the server did not wait out. Expect SessionExpired before a step is
    taken."""
    server, client, other = served
    writer = client.writer("main")
    add(writer, 40)
    writer.flush()
    before = server.counters()["sessions_expired"]
    until(
        lambda: server.counters()["sessions_expired"] > before + 1,
        "both sessions are given up",
        act=other.ping,
    )
    with pytest.raises(SessionExpired) as told:
        add(writer, 1)
    assert (told.value.stored_through, told.value.in_doubt, told.value.lost) == (40, 0, 0)


def expired(served):
    """A writer of 40 stored steps whose session the server gave up; nobody has told it."""
    server, client, other = served
    writer = client.writer("main")
    add(writer, 40)
    writer.flush()
    before = server.counters()["sessions_expired"]
    until(
        lambda: server.counters()["sessions_expired"] > before + 1,
        "both sessions are given up",
        act=other.ping,
    )
    return writer


def test_a_writer_whose_loss_was_told_closes_quietly(served):
    """Given a session that was given up, told by `add`, and a new writer. Expect the step taken
    there, and the end of the old writer's `with` to say nothing more."""
    _, client, other = served
    with expired(served) as writer:
        with pytest.raises(SessionExpired, match=r"Server\(idle_ms=...\).* 40 rows are stored"):
            add(writer, 1)
        with client.writer("main") as new:
            add(new, 10)
    assert writer.closed and other.size("main") == 39 + 9


def gathered(writer, number=40):
    """One more step, which the writer takes without a look at its session and hands to nobody."""
    writer._doubtful = writer._due = float("inf")
    add(writer, 1, number)


def test_a_loss_that_only_calls_of_the_client_met_is_told_by_close(served):
    """Given two steps for a session that was given up, which calls of the client sent. Expect
    nothing of it there, and SessionExpired as the writer closes."""
    _, _, other = served
    writer = expired(served)
    gathered(writer)

    def look():
        writer._due, writer._visited = 0.0, float("-inf")
        other.ping()
        writer._look_after()

    until(lambda: writer._raw_state().status < 0, "the writer has failed", act=look)
    gathered(writer, 41)
    look()  # hands the second one over, and meets the error
    with pytest.raises(SessionExpired) as told:
        writer.close()
    assert told.value.in_doubt + told.value.lost == 2 and writer.closed


def test_steps_taken_after_the_loss_was_told_are_told_too(served):
    """Given a session whose loss was told, and a step that was gathered all the same. Expect the
    end of the writer to say so."""
    writer = expired(served)
    with pytest.raises(SessionExpired):
        add(writer, 1)
    gathered(writer)
    writer._look_after()
    with pytest.raises(SessionExpired) as told:
        writer.close()
    assert told.value.lost == 1 and writer.closed


@pytest.mark.parametrize(("kind", "called"), [(Silent, True), (Client, False)])
def test_a_long_pause_costs_no_session(served, kind, called):
    """Given a pause as long, in which the client is called or speaks for itself: a slow reset, an
    evaluation. Expect its writer to go on."""
    server, silent, other = served
    silent.close()
    with kind(server.address) as client, client.writer("main") as writer:
        add(writer, 40)
        writer.flush()
        caller = client if called else other
        with Silent(server.address):  # it is given up
            until(
                lambda: server.counters()["sessions_expired"] > 0,
                "the session is given up",
                act=caller.ping,
            )
        add(writer, 20, 40)
        writer.flush()
    assert other.size("main") == 59


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_observations_are_looked_at_once_a_step(served, monkeypatch, kind):
    """Given observations that are laid down as they are, and such as have to be converted. Expect
    each step's compared with the next one's once, in the first FRESH_CALLS steps."""
    looked, look = [], Autoreset._require_apart

    def counted(self, observation, next_observation):
        looked.append(int(observation[0]))
        look(self, observation, next_observation)

    monkeypatch.setattr(Autoreset, "_require_apart", counted)
    _, client, _ = served
    with client.writer("main") as writer:
        for number in range(FRESH_CALLS + 4):
            seen = np.full(2, number, kind)
            flags = {"terminated": False, "truncated": False}
            after = seen + 1
            writer.add(observation=seen, action=0, reward=0.0, next_observation=after, **flags)
    assert looked == list(range(FRESH_CALLS))


def held(server, client):
    """A writer that the limiter of its table holds back, and how many rows it took."""
    writer, taken = client.writer("main"), 0
    with pytest.raises(LimiterBlocked):
        for number in range(1000):
            add(writer, 1, number)
            taken += 1
    return writer, taken


@pytest.fixture(params=["udp://127.0.0.1:0", "loopback://", "zmq+tcp://127.0.0.1:0"])
def limited(request):
    """A server whose limiter lets in a hundred rows before somebody draws, and a client."""
    if request.param.startswith("zmq"):
        pytest.importorskip("zmq")
    described = Table("main", SPEC, NStep(1), 4096, limiter=SamplesPerInsert(8, 50))
    waits = {"timeout": 0.3, "connect_timeout": 30.0}
    with Server([described], request.param) as server, Client(server.address, **waits) as both:
        yield server, both


def drawn_while(act, client):
    """Draws until `act` has not raised LimiterBlocked."""
    end = time.monotonic() + BOUND_S
    while True:
        try:
            return act()
        except LimiterBlocked:
            assert time.monotonic() < end
        with contextlib.suppress(Timeout):
            for _ in range(100):
                client.sample("main", 8, timeout=0.2)


@pytest.mark.parametrize("cut", [False, True], ids=["late", "interrupted"])
def test_a_close_that_is_held_back_keeps_the_rows(limited, monkeypatch, cut):
    """Given rows that the limiter holds back, and a close that comes too late, or Ctrl-C in it.
    Expect the writer open, a sentence with their number, and all rows stored by a later close."""
    server, client = limited
    writer, taken = held(server, client)
    left = writer._left()
    with monkeypatch.context() as patch:
        if cut:
            patch.setattr(writer, "_drain", interrupt)
        with pytest.raises(KeyboardInterrupt if cut else LimiterBlocked) as told:
            writer.close()
    said = str(told.value) + "".join(getattr(told.value, "__notes__", ()))
    if not cut or sys.version_info >= (3, 11):
        assert f"stays open and keeps its {left} rows" in said and left > 0
    assert not writer.closed
    drawn_while(writer.close, client)
    assert writer.closed and client.size("main") == taken - 1
    writer.close()


def interrupt(*_):
    raise KeyboardInterrupt


def test_closing_at_once_gives_up_what_is_held_back(limited):
    """Given rows that the limiter holds back. Expect close(0) to warn of their number and close."""
    writer, taken = held(*limited)
    stored, told = taken - writer._left(), f"with {writer._left()} of its rows"
    with pytest.warns(RowsDropped, match=told):
        writer.close(0)
    assert writer.closed and limited[1].size("main") <= stored < taken


@pytest.mark.parametrize("cut", [False, True], ids=["late", "interrupted"])
def test_the_end_of_with_tells_what_it_gives_up(limited, monkeypatch, cut):
    """Given rows that the limiter holds back as `with` ends, or Ctrl-C then. Expect the writer
    closed, and the number of the rows in the error, or in a warning."""
    writer, _ = held(*limited)
    left = writer._left()
    if cut:
        monkeypatch.setattr(writer, "_drain", interrupt)
    with (
        pytest.warns(RowsDropped, match=f"{left} of its rows") if cut else contextlib.nullcontext(),
        pytest.raises(
            KeyboardInterrupt if cut else LimiterBlocked,
            match=None if cut else rf"end of `with` \({left} of its rows .* given up\)",
        ),
        writer,
    ):
        pass
    assert writer.closed and left > 0


def test_a_server_that_stops_in_this_process_leaves_numbers():
    """Given rows for a server of this process that has stopped. Expect close to count them."""
    with Server([Table("main", SPEC, NStep(1), 4096)], "loopback://") as server:
        client = Client(server.address)
        writer = client.writer("main")
        add(writer, 40)
        writer.flush()
        gathered(writer)
    with pytest.raises(ClosedError, match="40 rows acknowledged, 1 sent and not answered, 0 never"):
        writer.close()
    assert writer.closed
    client.close(0.0)
