"""`extend` that is cut off says how many of its rows were taken: who goes on behind them stores
each row once. And draws that are given up."""

from __future__ import annotations

import re
import signal
import sys
import threading
import warnings

import numpy as np
import pytest
from silent import Silent
from test_interrupts import interrupted
from until import until

from replay_server import (
    Client,
    ClosedError,
    Column,
    LimiterBlocked,
    Row,
    RowsDropped,
    SamplesPerInsert,
    Server,
    ServerRestarted,
    SessionExpired,
    Spec,
    Table,
    Timeout,
    UnknownTable,
    _native,
)
from replay_server.writing.plain_rows import Behind, Part, PlainRows, packed

SPEC = Spec((Column("x", np.int64),))


def table_of(width):
    return Table("o", SPEC, Row(), 1 << 14, limiter=SamplesPerInsert(1, width))


def drain(learner, width):
    """Draws what the limiter lets go; how many."""
    drawn = 0
    while learner.can_sample("o", width // 2):
        learner.sample("o", width // 2)
        drawn += width // 2
    return drawn


def store(client, rows, between=lambda: None, table="o"):
    """All of `rows`, by as many calls as it takes; how many."""
    for calls in range(1, 400):
        try:
            client.extend(table, {"x": rows})
            return calls
        except LimiterBlocked as error:
            told = f"rows[{error.taken}:]" if len(rows) else "earlier calls are still on their way"
            assert 0 <= error.taken <= len(rows) and told in str(error)
            rows = rows[error.taken :]
            between()
    raise AssertionError(f"{len(rows)} rows were never taken")


def rows_of(client, count, table="o"):
    """The newest `count` rows of the table, in order."""
    head = client.table(table).head
    rows, valid = client.rows(table, np.arange(head - count, head, dtype=np.uint64))
    assert valid.all()
    return rows["x"].tolist()


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://"])
def test_going_on_behind_what_was_taken_stores_each_row_once(url):
    """Given rows of which the limiter takes a part at each call. Expect them stored once each, in
    order, by as many calls as it takes; another table in between costs nothing."""
    count, width = 1000, 100
    other = Table("p", SPEC, Row(), 1 << 14)
    with (
        Server([table_of(width), other], url) as server,
        Client(server.address, timeout=0.05, connect_timeout=5) as actor,
        Client(server.address, timeout=5) as learner,
    ):

        def between():
            keys = actor.extend("p", {"x": np.arange(3)})
            assert learner.get("p", keys)["x"][:, 0].tolist() == [0, 1, 2]
            drain(learner, width)

        assert store(actor, np.arange(count), between) > 2
        assert learner.size("o") == count
        assert rows_of(learner, count) == list(range(count))


def test_threads_of_one_client_go_on_behind_their_own_rows():
    """Given two threads that store through one client, both cut off at times. Expect each row of
    both once."""
    with (
        Server([table_of(100)], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=0.2, connect_timeout=5) as actor,
        Client(server.address, timeout=5) as learner,
    ):
        ended, threads = [], []

        def run(begin):
            rows = np.arange(600) + begin
            while len(rows):
                try:
                    actor.extend("o", {"x": rows})
                    break
                except Timeout as error:  # the limiter's, or another thread's turn
                    rows = rows[error.taken :]
            ended.append(begin)

        for begin in (0, 10_000):
            threads.append(threading.Thread(target=run, args=(begin,)))
            threads[-1].start()
        while len(ended) < 2:
            drain(learner, 100)
        for thread in threads:
            thread.join()
        actor.extend("o", {"x": np.arange(0)}, timeout=5)  # what was taken is stored then
        rows = rows_of(learner, learner.size("o"))
        assert sorted(rows) == [*range(600), *range(10_000, 10_600)]


def test_rows_go_on_in_a_table_that_was_reset():
    """Given a reset behind a call that was cut off. Expect the rows behind those taken to be stored
    in the table as it is now, and their keys to name them."""
    with (
        Server([table_of(100)], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=0.05, connect_timeout=5) as actor,
        Client(server.address, timeout=5) as learner,
    ):
        with pytest.raises(LimiterBlocked) as cut:
            actor.extend("o", {"x": np.arange(300)})
        learner.reset("o")
        rest = np.arange(300)[cut.value.taken :]
        rest = rest if len(rest) else np.arange(5)
        keys = actor.extend("o", {"x": rest[:150]})
        assert learner.get("o", keys)["x"][:, 0].tolist() == rest[:150].tolist()


def test_a_client_that_closes_tells_what_an_extend_left():
    """Given rows that were taken and not let in. Expect their number at close."""
    with Server([table_of(100)], "loopback://") as server:
        actor = Client(server.address, timeout=0.05)
        with pytest.raises(LimiterBlocked) as cut:
            actor.extend("o", {"x": np.arange(1000)})
        left = cut.value.taken - server.counters()["items_created"]
        assert left > 0
        with pytest.warns(RowsDropped, match=f"with {left} of its rows"):
            actor.close()


def test_an_interrupt_of_extend_says_what_was_taken():
    """Given an interrupt behind each call that extend makes. Expect its note to tell the rows that
    are stored; without one, all of them or none; and the next call whole."""
    table, told = Table("o", SPEC, Row(), 1 << 14), 0
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:
        at, where = 0, ""
        while where is not None:
            at, notes, before = at + 1, [], client.table("o").head
            rows = {"x": np.arange(3) + 10 * at}
            where = interrupted(at, lambda x=rows: client.extend("o", x), notes=notes)
            client.extend("o", {"x": np.arange(0)})
            stored = client.table("o").head - before
            said = [int(re.search(r"(\d) of 3 rows were taken", note)[1]) for note in notes]
            assert stored in (said or (0, 3)), where
            told += len(said)
            keys = client.extend("o", rows)
            assert client.get("o", keys)["x"][:, 0].tolist() == rows["x"].tolist(), where
        assert at > 20 and told > 5


def test_an_interrupt_of_an_extend_that_time_cut_off_says_what_was_taken():
    """Given an extend without time, for more rows than the limiter lets in, and an interrupt behind
    each of its calls. Expect its note to tell the rows that were taken, or the error that was on
    its way already, or none to have been."""
    at, where, told = 0, "", 0
    with Server([table_of(100)], "loopback://") as server:
        while where is not None:
            at, notes, on_its_way = at + 1, [], []
            client = Client(server.address, timeout=5)
            client.reset("o")
            client.extend("o", {"x": np.arange(0)})
            rows = client._plain["o"]

            def cut(it=client, on_its_way=on_its_way):
                try:
                    it.extend("o", {"x": np.arange(3000)}, timeout=0)
                except Timeout:  # the limiter's, if its answer came
                    pass
                except KeyboardInterrupt as error:
                    on_its_way.append(getattr(error.__context__, "taken", 0))
                    raise

            where = interrupted(at, cut, notes=notes)
            said = [int(re.search(r"(\d+) of 3000 rows were taken", it)[1]) for it in notes]
            taken = rows._state().steps_posted
            assert where is None or [taken] == (said or on_its_way), where
            told += len(said) and taken > 0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of rows that the limiter never let in
                client.close(0)
    assert at > 20 and told > 10


def test_an_interrupt_while_rows_are_given_again_stores_each_once():
    """Given rows that a session took with it, and an interrupt behind each call of the extend that
    gives them again. Expect them stored once, in order, before those of the next calls."""
    table = Table("o", SPEC, Row(), 1 << 14)
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:
        client.extend("o", {"x": [0]})
        rows, at, where = client._plain["o"], 0, ""
        while where is not None:
            at, head = at + 1, client.table("o").head
            lost = 100 * at + np.arange(5)
            parts = tuple(
                Part(packed(rows.table, {"x": part}), None) for part in (lost[:3], lost[3:])
            )
            rows.behind = Behind(again=parts, posted=rows._state().steps_posted)
            where = interrupted(at, lambda: client.extend("o", {"x": [-1]}))
            client.extend("o", {"x": [-2]})
            stored = rows_of(client, client.table("o").head - head)
            assert [x for x in stored if x != -1] == [*lost.tolist(), -2], where
        assert at > 20


def test_rows_of_earlier_calls_are_not_counted_as_taken():
    """Given a call whose rows were stored and whose keys nobody took, and rows to be given again
    that the limiter does not let in. Expect the next call to have taken none of its own."""
    with (
        Server([table_of(100)], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=0.1, connect_timeout=5) as actor,
    ):
        actor.extend("o", {"x": np.arange(0)})
        rows, until = actor._plain["o"], _native.Deadline(0.2)
        part = Part(packed(rows.table, {"x": np.arange(3000)}), None)
        posted = 0
        while until.left():
            posted += rows._push(part, posted, until)
        assert 200 <= posted < 3000 and actor.size("o") >= 100
        rows.behind = rows.behind._replace(again=(part,), posted=posted)
        with pytest.raises(LimiterBlocked, match="0 of 50 rows were taken") as held:
            actor.extend("o", {"x": np.arange(50)})
        assert held.value.taken == 0
        rows.behind = Behind()  # what it has no room for is not told once more
        with pytest.warns(RowsDropped):
            actor.close(0.0)


def test_a_close_below_an_extend_says_what_is_stored():
    """Given a signal's handler that closes the client while its extend waits for the limiter.
    Expect the rows that are stored to be counted with the error."""
    with (
        Server([table_of(100)], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=5) as learner,
    ):
        actor = Client(server.address, timeout=5)

        def close(*_):
            if learner.size("o") < 100:
                signal.setitimer(signal.ITIMER_REAL, 0.01)
            else:
                actor.close(0.1)

        before = signal.signal(signal.SIGALRM, close)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            with pytest.warns(RowsDropped), pytest.raises(ClosedError) as cut:
                actor.extend("o", {"x": np.arange(1000)})
        finally:
            signal.signal(signal.SIGALRM, before)
        assert 100 <= cut.value.taken <= learner.size("o")


class Alarm(Exception):
    """What a program's own signal handler raises."""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes")
def test_an_extend_that_a_handler_cut_off_says_what_was_taken():
    """Given a handler's own error behind each call that extend makes. Expect its note to tell the
    rows that are stored; without one, all of them or none."""
    table, told = Table("o", SPEC, Row(), 1 << 14), 0
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:

        def ring():
            raise Alarm

        def extend(at, notes):
            try:
                client.extend("o", {"x": np.arange(3) + 10 * at})
            except Alarm as error:
                notes += getattr(error, "__notes__", [])

        at, where = 0, ""
        while where is not None:
            at, notes, before = at + 1, [], client.table("o").head
            where = interrupted(at, lambda at=at, it=notes: extend(at, it), handler=ring)
            client.extend("o", {"x": np.arange(0)})
            said = [int(re.search(r"(\d) of 3 rows were taken", note)[1]) for note in notes]
            assert client.table("o").head - before in (said or (0, 3)), where
            told += len(said)
        assert at > 20 and told > 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes")
def test_a_note_counts_the_rows_that_are_stored_by_then(monkeypatch):
    """Given a handler's error right behind the call in which rows were stored, of which the limiter
    let some in. Expect the note to count those."""
    limiter = SamplesPerInsert(1.0, min_size=10, error_buffer=(-100.0, 40.0))
    table, push = Table("o", SPEC, Row(), 1 << 14, limiter=limiter), PlainRows._push

    def push_and_ring(rows, *arguments):
        push(rows, *arguments)
        while not rows._state().blocked:  # what is stored is acknowledged by then
            rows._settle(_native.Deadline(0.01))
        raise Alarm

    with Server([table], "loopback://") as server, Client(server.address) as client:
        monkeypatch.setattr(PlainRows, "_push", push_and_ring)
        with pytest.raises(Alarm) as cut:
            client.extend("o", {"x": np.arange(200)}, timeout=60)
        stored = client.size("o")
        (note,) = cut.value.__notes__
        taken = int(re.search(r"(\d+) of 200 rows were taken", note)[1])
        assert 0 < stored < taken
        assert f"{stored} of them are stored" in note, note
        while client.size("o") < taken:  # what is held goes in, and the close waits for nothing
            client.sample("o", 32)


@pytest.mark.parametrize("timeout", [0.0, 1e-5])
def test_a_draw_of_no_time_is_made_or_is_not_counted(timeout):
    """Given draws that give up at once. Expect as many items as the limiter counted."""
    with (
        Server([table_of(100)], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=5) as client,
    ):
        received, blocked = 0, 0
        for number in range(300):
            client.extend("o", {"x": [number]})
            try:
                received += len(client.sample("o", 8, timeout=timeout))
            except LimiterBlocked as error:
                assert error.need > 0
                blocked += 1
        assert received > 50 and blocked > 50
        client.ping()
        assert server.counters()["items_sampled"] == received


@pytest.fixture
def impatient():
    """A server with little patience, a client that is silent between calls, and a learner."""
    with (
        Server([table_of(100)], "udp://127.0.0.1:0", idle_ms=300) as server,
        Client(server.address, timeout=5) as learner,
        Silent(server.address, timeout=0.05) as actor,
    ):
        yield server, learner, actor


def given_up(server, before):
    """Waits until the server has given up one session more."""
    until(lambda: server.counters()["sessions_expired"] > before, "a session is given up")


def test_an_extend_whose_session_was_given_up_says_what_is_stored(impatient, monkeypatch):
    """Given a call of which the limiter let a part in, and a process that stands still in it for
    longer than the server waits. Expect the rows known to be stored in `taken`, and each row once
    for who goes on behind them."""
    (server, learner, actor), settle, ended = impatient, PlainRows._settle, []

    def stand_still(rows, until):
        if not ended and learner.size("o"):
            ended.append(learner.size("o"))
            given_up(server, server.counters()["sessions_expired"])
        return settle(rows, until)

    monkeypatch.setattr(PlainRows, "_settle", stand_still)
    rows = np.arange(300)
    with pytest.raises(SessionExpired) as cut:
        actor.extend("o", {"x": rows}, timeout=5)
    taken = cut.value.taken
    assert taken == ended[0] > 0
    assert f"{taken} of these 300 rows are stored, {300 - taken} are in doubt" in str(cut.value)
    assert f"rows[{taken}:]" in str(cut.value) and "stored twice" in str(cut.value)
    store(actor, rows[taken:], lambda: drain(learner, 100))
    assert learner.size("o") == 300 and rows_of(learner, 300) == rows.tolist()


def test_a_session_that_was_given_up_before_an_extend_costs_it_nothing(impatient):
    """Given a silence between two calls, twice. Expect the next one to store its rows, once."""
    server, learner, actor = impatient
    for number in range(3):
        before = server.counters()["sessions_expired"]
        keys = actor.extend("o", {"x": np.arange(10) + 10 * number}, timeout=5)
        assert learner.get("o", keys)["x"][:, 0].tolist() == [*range(10 * number, 10 * number + 10)]
        given_up(server, before)
    assert rows_of(learner, learner.size("o")) == list(range(30))


def test_an_extend_to_a_server_that_came_back_empty_says_what_to_do():
    """Given a server that is started anew between two calls. Expect the second one to be told to
    give its rows again, and to store them then."""
    with Server([table_of(100)], "udp://127.0.0.1:0") as server:
        address = server.address
        client = Client(address, timeout=5)
        client.extend("o", {"x": [1, 2]})
    with Server([table_of(100)], address), client:
        with pytest.raises(
            ServerRestarted, match=r"none of these 3 rows is there.*all of them"
        ) as cut:
            client.extend("o", {"x": [3, 4, 5]})
        assert cut.value.taken == 0
        client.extend("o", {"x": [3, 4, 5]})
        assert rows_of(client, client.size("o")) == [3, 4, 5]


def test_rows_that_a_given_up_session_still_had_are_given_again(impatient):
    """Given rows that calls took and the limiter held back, and a silence behind each, twice.
    Expect the next call to bring them too, each once and in order, with their priorities."""
    server, learner, actor = impatient
    rows, begin = np.arange(400), 0
    for count in (300, 50):
        before = server.counters()["sessions_expired"]
        part = rows[begin : begin + count]
        with pytest.raises(LimiterBlocked) as cut:
            actor.extend("o", {"x": part}, priorities=1.0 + part)
        begin += cut.value.taken
        given_up(server, before)
    assert begin > learner.size("o")
    stored = threading.Event()

    def draw():
        while not stored.is_set():
            drain(learner, 100)

    drawing = threading.Thread(target=draw)
    drawing.start()
    actor.extend("o", {"x": rows[begin:]}, priorities=1.0 + rows[begin:], timeout=10)
    stored.set()
    drawing.join()
    assert rows_of(learner, learner.size("o")) == rows.tolist()
    masses = (1.0 + rows) ** learner.table("o").alpha * 2**26
    assert learner.table("o").total == pytest.approx(masses.sum(), rel=1e-6)


@pytest.mark.parametrize("room", [True, False])
def test_rows_left_behind_by_a_call_wait_for_a_client_that_closes(impatient, recwarn, room):
    """Given rows of a session that was given up, and no further call. Expect the close to bring
    them where there is room for them, else to tell how many they are."""
    server, learner, actor = impatient
    before = server.counters()["sessions_expired"]
    with pytest.raises(LimiterBlocked) as cut:
        actor.extend("o", {"x": np.arange(300)})
    given_up(server, before)
    stored, taken = learner.size("o"), cut.value.taken
    if room:
        drain(learner, 100)
    actor.close(1.0)
    told = [str(warned.message) for warned in recwarn if warned.category is RowsDropped]
    assert learner.size("o") == (taken if room else stored) and len(told) == (not room)
    assert room or f"with {taken - stored} of its rows" in told[0]


def test_an_extend_does_not_wait_for_anothers_place(monkeypatch):
    """Given a server that goes as an extend has looked its table up and asks for its place for
    long, and one on another table in less time. Expect the second one to end in its own."""
    tables = [Table(name, SPEC, Row(), 1 << 10) for name in "ab"]
    server = Server(tables, "udp://127.0.0.1:0")
    with Client(server.address, timeout=5) as client:
        client.extend("b", {"x": np.arange(3)})
        client.table("a")
        monkeypatch.setattr(client, "_look_up", client._known)
        server.close()
        ended = []

        def run(name, timeout):
            with pytest.raises(Timeout):
                client.extend(name, {"x": np.arange(3)}, timeout=timeout)
            ended.append(name)

        long = threading.Thread(target=run, args=("a", 2.0))
        long.start()
        until(lambda: client._extending.within is not None, "the long one is under way")
        run("b", 0.2)
        assert ended == ["b"]
        long.join()


def test_an_extend_that_a_close_ends_says_what_is_stored(monkeypatch):
    """Given rows of which the limiter let a part in, and a client that another thread closes while
    the one that extends gets no processor. Expect their number with the error, and none with
    others."""
    with (
        Server([table_of(100)], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=5) as learner,
    ):
        actor, push = Client(server.address, timeout=5), PlainRows._push
        pushed, closed = threading.Event(), threading.Event()

        def push_and_stand_still(rows, part, done, until):
            taken = push(rows, part, done, until)
            pushed.set()
            assert closed.wait(20.0)
            return taken

        def close():
            assert pushed.wait(20.0)
            until(lambda: learner.size("o") >= 100, "the part is stored")
            actor.close(0.1)
            closed.set()

        monkeypatch.setattr(PlainRows, "_push", push_and_stand_still)
        closing = threading.Thread(target=close)
        closing.start()
        with pytest.warns(RowsDropped), pytest.raises(ClosedError) as cut:
            actor.extend("o", {"x": np.arange(1000)})
        closing.join()
        assert 100 <= cut.value.taken <= learner.size("o")
        with pytest.raises(UnknownTable) as wrong:
            learner.extend("p", {"x": np.arange(3)})
        assert wrong.value.taken == 0
