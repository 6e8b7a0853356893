"""A table of Fifo: items are drawn in the order of their steps, each once; both sides wait."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conformance import (
    OUTLIVES_ITS_SERVER,
    TRANSPORTS,
    Episodes,
    Place,
    Twin,
    assert_equal_batches,
    plain,
    plain_rows,
    table,
)
from until import until

from replay_server import (
    Batch,
    Client,
    ClosedError,
    Column,
    ConfigError,
    Fifo,
    LimiterBlocked,
    MinSize,
    NStep,
    OverBudget,
    ReplayError,
    Row,
    SamplesPerInsert,
    Server,
    ShortBatch,
    Spec,
    SpecError,
    Table,
    Uniform,
)
from replay_server._native import NUMBERS
from replay_server.requests.draws import Draw
from replay_server.table import layout_of
from replay_server.writing.autoreset import Autoreset

SIZE = 32
NUMBERED, ROWS = Spec([Column("x", np.int64, ())]), {"x": np.arange(16)}


@pytest.fixture(params=TRANSPORTS)
def place(request):
    return Place(request.param)


def test_items_come_in_order_and_each_once(place):
    """Given 20 rows in a queue. Expect draws to go through them in order, weights of 1, and then
    a draw that waits, and says for how many."""
    rows = plain_rows(20)
    with place.pair(plain(sampler=Fifo(SIZE))) as (_, client):
        keys = client.extend("main", rows)
        for begin, count in ((0, 7), (7, 1), (8, 10)):
            batch = client.sample("main", count)
            assert np.array_equal(batch.keys, keys[begin : begin + count])
            assert np.array_equal(batch.data["x"][:, 0], rows["x"][begin : begin + count])
            assert batch.valid.all() and (batch.weights == 1.0).all()
        assert client.can_sample("main", 2) and not client.can_sample("main", 3)
        with pytest.raises(LimiterBlocked) as error:
            client.sample("main", 5, timeout=0)
        assert "if it is this thread that adds, add first; otherwise" in str(error.value)
        assert error.value.need == 3 and len(client.table("main")) == 2
        assert client.get("main", keys).valid.all()  # what was drawn can be read


def test_draws_are_those_of_the_reference(place):
    """Given windows of three streams in a ring that laps, some created with priority 0. Expect
    every fact of the batches of independent code."""
    described = table(plan=NStep(3), capacity=512, sampler=Fifo(100), writers=1)
    rng, drawn = np.random.default_rng(5), 0
    with place.pair(described) as (_, client):
        twin, episodes = Twin(described, client), Episodes(described.step, 3, 6)
        autoreset = Autoreset(described.step, "disabled", 3)
        with client.writer("main", 3, autoreset="disabled") as writer:
            for _ in range(20):
                for _ in range(10):
                    step = episodes.step()
                    ready = writer.add_batch(**step)
                    twin.append(autoreset.rows(**step))
                    given = np.where(rng.random(len(ready)) < 0.2, 0.0, 2.0)
                    writer.create_items(ready, given)
                    twin.create(ready.streams, ready.steps, given)
                writer.flush()
                while (there := client.size("main")) > rng.integers(20):
                    count = int(rng.integers(1, there + 1))
                    assert_equal_batches(client.sample("main", count), twin.replay.pop(count))
                    drawn += count
                assert client.size("main") == len(twin.replay)
        assert twin.replay.head > twin.first + 512 and drawn > 300


def test_writers_wait_while_the_queue_is_full(place):
    """Given more rows than the queue holds. Expect those in front alone to be drawable until some
    are drawn, and then the others."""
    rows = plain_rows(3 * SIZE)
    with place.pair(plain(sampler=Fifo(SIZE))) as (_, client):
        with pytest.raises(LimiterBlocked, match=r"Fifo\(32\).*draws, draw first, or serve"):
            client.extend("main", rows, timeout=0.2)
        seen: list = []
        while len(seen) < len(rows["x"]):
            assert len(client.table("main")) <= SIZE
            seen.extend(client.sample("main", 4).data["x"][:, 0])
        assert np.array_equal(seen, rows["x"])


def test_two_learners_share_what_two_writers_write(place):
    """Given two writers and two learners, in threads of their own, through a small queue. Expect
    each row in one batch of one learner, and the keys that a learner gets to rise."""
    batches, each = 30, 8
    with place.pair(plain(sampler=Fifo(SIZE))) as (server, _), ThreadPoolExecutor(4) as pool:

        def write(seed: int) -> np.ndarray:
            with Client(server.address) as client:
                rows = plain_rows(batches * each, seed)
                client.extend("main", rows, timeout=60.0)
                return rows["x"]

        def learn() -> tuple[np.ndarray, np.ndarray]:
            with Client(server.address) as client:
                drawn = [client.sample("main", each, timeout=60.0) for _ in range(batches)]
                assert all(batch.valid.all() for batch in drawn)
                keys = np.concatenate([batch.keys for batch in drawn])
                return keys, np.concatenate([batch.data["x"][:, 0] for batch in drawn])

        writing = [pool.submit(write, seed) for seed in (1, 2)]
        learning = [pool.submit(learn) for _ in range(2)]
        (mine, rows), (theirs, other_rows) = (one.result() for one in learning)
        for keys in (mine, theirs):
            assert (np.diff(keys.astype(np.int64)) > 0).all()
        assert len(np.unique(np.concatenate([mine, theirs]))) == 2 * batches * each
        written = np.concatenate([one.result() for one in writing])
        drawn = np.concatenate([rows, other_rows])
        assert np.array_equal(np.sort(drawn, axis=0), np.sort(written, axis=0))


def test_what_was_overwritten_undrawn_holds_nobody_up(place):
    """Given a full queue whose ring is written over by rows of priority 0. Expect writers to go on,
    and draws to begin behind what is gone."""
    with place.pair(plain(256, sampler=Fifo(SIZE))) as (_, client):
        client.extend("main", plain_rows(SIZE))
        never = plain_rows(8)
        with ThreadPoolExecutor(1) as pool:
            full = pool.submit(client.extend, "main", never, np.zeros(8), timeout=60.0)
            assert len(client.sample("main", 16)) == 16
            full.result()
        for _ in range(32):  # all of the ring
            client.extend("main", never, np.zeros(8))
        assert client.size("main") == 0
        rows = plain_rows(SIZE, seed=3)
        client.extend("main", rows)
        assert np.array_equal(client.sample("main", SIZE).data["x"][:, 0], rows["x"])


@pytest.mark.parametrize("plan", [NStep(1), NStep(3), NStep(1, stack=4), NStep(2, stack=2)])
def test_what_was_lost_undrawn_is_counted_once(plan):
    """Given windows of three streams that lap a ring, drawn now and then. Expect each item that was
    created to be drawn, to wait, or to be counted as lost."""
    described = table(plan=plan, capacity=512, sampler=Fifo(480), writers=1)
    with Place("loopback").pair(described) as (server, client):
        episodes = Episodes(described.step, 3, 6)
        with client.writer("main", 3, autoreset="disabled", timeout=20.0) as writer:
            for turn in range(800):
                writer.add_batch(**episodes.step())
                if turn % 50 == 49:
                    writer.flush()
                    client.sample("main", 7)
        counters, info = server.counters(), client.table("main")
        lost = counters["items_undrawn"]
        assert lost > 200 and counters["items_sampled"] == 7 * 16
        assert lost + info.count + counters["items_sampled"] == counters["items_created"]
        measured = server.measures().tables[0] if hasattr(server, "measures") else None
        assert measured is None or measured.error == info.count


@pytest.mark.parametrize("transport", OUTLIVES_ITS_SERVER)
def test_a_restarted_server_goes_on_where_it_was(transport, tmp_path):
    """Given a server that stops between two draws, and another one with its region. Expect the same
    client to draw on, and a table of another order to be refused."""
    place, region = Place(transport), str(tmp_path / "region")
    rows, described = plain_rows(20), plain(sampler=Fifo(SIZE))
    with place.pair(described, region=region) as (server, client):
        client.extend("main", rows)
        first = client.sample("main", 6)
        address = server.address
        server.close()
        with pytest.raises(ReplayError, match=r"made with fifo 1 of table main.*says 0"):
            place.served(plain(sampler=Uniform()), region=region).__enter__()
        with place.served(described, url=address, region=region):
            second = client.sample("main", 14)
            drawn = np.concatenate([first.data["x"], second.data["x"]])
            assert np.array_equal(drawn[:, 0], rows["x"])
            assert client.table("main").sampled == 20
            client.close()


@pytest.mark.parametrize("prefetch", [1, 3])
def test_batches_are_fetched_ahead(place, prefetch):
    """Given an iterator of batches. Expect each item once, in order, whatever its prefetch: of
    several requests that wait, any may be first, so there is one."""
    rows = plain_rows(120)
    with place.pair(plain(sampler=Fifo(SIZE))) as (server, client), ThreadPoolExecutor(1) as pool:
        with Client(server.address) as writer:
            writing = pool.submit(writer.extend, "main", rows, timeout=60.0)
            with client.batches("main", 6, prefetch=prefetch, copy=True) as batches:
                drawn = [next(batches) for _ in range(20)]
            keys = writing.result()
        assert np.array_equal(np.concatenate([batch.keys for batch in drawn]), keys)
        assert np.array_equal(np.concatenate([batch.data["x"][:, 0] for batch in drawn]), rows["x"])


@pytest.mark.parametrize("status", ["FORGOTTEN", "SESSION_EXPIRED"])
def test_a_draw_that_ends_with_its_record_says_that_its_items_are_lost(monkeypatch, status):
    """Given a draw whose record or session is gone. Expect the error of a queue to say that what
    was drawn is lost, and that of another table not to: there it is drawn again."""
    with Place("loopback").pair(plain(sampler=Fifo(SIZE))) as (_, client):
        client.extend("main", plain_rows(4))
        draw = client.table("main").draw(2)
        with pytest.raises(
            ReplayError, match=r"sampling 2 items .*what was drawn for it may be lost"
        ):
            draw.landed(client._link, -NUMBERS[status], None, 0)
    with Place("loopback").pair(plain()) as (_, client), pytest.raises(ReplayError) as error:
        client.table("main").draw(2).landed(client._link, -NUMBERS[status], None, 0)
    assert "be lost" not in str(error.value)


@pytest.mark.parametrize("timeout", [0.0, 0.002])
def test_learners_that_poll_get_every_item(place, timeout):
    """Given two learners that ask again and again, without waiting or for a moment, while a writer
    adds steps four at a time. Expect each item at one of them, and none lost between them."""
    done, got = threading.Event(), ([], [])

    def poll(address, keys):
        with Client(address) as client:
            while True:
                over = done.is_set()
                try:
                    keys.extend(client.sample("main", 4, timeout=timeout).keys.tolist())
                except LimiterBlocked:
                    if over:
                        return

    with place.pair(plain(sampler=Fifo(256))) as (server, client), ThreadPoolExecutor(2) as pool:
        learners = [pool.submit(poll, server.address, keys) for keys in got]
        wrote = np.concatenate([client.extend("main", plain_rows(4)) for _ in range(300)])
        done.set()
        for learner in learners:
            learner.result(timeout=60.0)
        assert sorted([*got[0], *got[1]]) == wrote.tolist()
        assert client.size("main") == 0 and client.table("main").sampled == len(wrote)


@pytest.mark.parametrize(
    "held",
    [
        {"sampler": Fifo(32)},
        {"limiter": SamplesPerInsert(1.0, min_size=1, error_buffer=32.0), "capacity": 4096},
    ],
    ids=["queue", "limiter"],
)
def test_who_polls_and_who_waits_let_each_other_on(place, held):
    """Given batches of 30 where at most 32 items may wait, polled without waiting, and a writer of
    seven at a time, which is held back while 26 are there. Expect both to go on."""
    done = threading.Event()

    def write(client):
        while not done.is_set():
            client.extend("main", plain_rows(7), timeout=60.0)

    with (
        place.pair(plain(**held)) as (server, client),
        Client(server.address) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        writer, drawn, end = pool.submit(write, other), 0, time.monotonic() + 60.0
        while drawn < 20:
            assert time.monotonic() < end and not writer.done()
            try:
                client.sample("main", 30, timeout=0)
                drawn += 1
            except LimiterBlocked:
                time.sleep(0.001)
        done.set()
        while not writer.done():
            try:
                client.sample("main", 1, timeout=0)
            except LimiterBlocked:
                time.sleep(0.001)
        writer.result()


@pytest.mark.parametrize("transport", ["udp", "loopback"])
def test_who_waits_at_many_queues_holds_up_nothing(transport):
    """Given a server with two records, and five empty queues at which draws of a client wait.
    Expect draws of a plain table to go on beside them, and each queue's batch once it is there."""
    queues = [
        Table(f"q{i}", step=NUMBERED, plan=Row(), capacity=1024, sampler=Fifo(16)) for i in range(5)
    ]
    plain = Table("plain", step=NUMBERED, plan=Row(), capacity=1024)
    url = "udp://127.0.0.1:0" if transport == "udp" else "loopback://many-queues"
    with Server([plain, *queues], url, records=2) as server, Client(server.address) as client:
        client.extend("plain", ROWS)
        waiting = [client.batches(queue.name, 4, prefetch=1) for queue in queues]
        assert [each.get(0) for each in waiting] == [None] * 5
        assert all(len(client.sample("plain", 4)) == 4 for _ in range(100))
        for queue in queues:
            client.extend(queue.name, ROWS)
        assert all(len(each.get(10.0)) == 4 for each in waiting)
        for each in waiting:
            each.close()


@pytest.mark.parametrize("transport", ["udp", "zmq"])
def test_all_draws_that_wait_hear_that_the_server_closes(transport):
    """Given three draws of one client that wait, of which the server knows one. Expect all to end
    as closed as it closes, long before their time is over."""
    described = plain(sampler=Fifo(400))
    with Place(transport).pair(described) as (server, client), ThreadPoolExecutor(3) as pool:
        draws = []
        for n in (5, 10, 400):
            held = client.counters()["samples_blocked"]
            draws.append(pool.submit(client.sample, "main", n, timeout=60.0))
            until(lambda h=held: client.counters()["samples_blocked"] > h, "it was told to wait")
        client.ping()
        server.close()
        for draw in draws:
            with pytest.raises(ClosedError):
                draw.result(timeout=20.0)
        client.close(timeout=0.2)  # nobody answers


def test_a_batch_that_came_short_is_raised_with_what_arrived(monkeypatch):
    """Given an iterator whose second batch lost an item on its way. Expect what arrived of it in
    the error, since nobody draws it again, and the third batch behind it."""
    landed = Draw.landed

    def short(draw: Draw, link: Any, status: int, batch: Batch, need: int) -> Batch:
        whole = landed(draw, link, status, batch, need)
        if whole.keys[0] % 10 == 5:
            whole.valid[0] = False
            status = -NUMBERS["SHORT_BATCH"]
        return landed(draw, link, status, whole, need)

    monkeypatch.setattr(Draw, "landed", short)
    with Place("loopback").pair(plain(sampler=Fifo(SIZE), capacity=5120)) as (_, client):
        keys = client.extend("main", plain_rows(15))
        with client.batches("main", 5, prefetch=1) as batches:
            assert np.array_equal(next(batches).keys, keys[:5])
            with pytest.raises(ShortBatch) as error:
                next(batches)
            assert np.array_equal(error.value.batch.keys, keys[6:10]) and batches.short == 1
            assert np.array_equal(next(batches).keys, keys[10:])


def test_what_cannot_be_is_refused_at_once(place):
    """Given a queue. Expect one sentence for what it can never do."""
    with place.pair(plain(sampler=Fifo(SIZE))) as (_, client):
        keys = client.extend("main", plain_rows(4))
        assert "Fifo(32)" in repr(client.table("main")) and client.table("main").fifo
        for wait in (True, False):
            with pytest.raises(ConfigError, match="no priorities to update"):
                client.update_priorities("main", keys, np.ones(4), wait=wait)
        for how in ({"stratified": True}, {"uniform": 0.5}):
            with pytest.raises(ConfigError, match="drawn in order"):
                client.sample("main", 2, **how)
            with pytest.raises(ConfigError, match="drawn in order"):
                client.batches("main", 2, **how)
        for asks in (client.sample, client.can_sample, client.batches, client.landing):
            with pytest.raises(OverBudget, match=r"at most 32 at once.*Fifo\(33\)"):
                asks("main", SIZE + 1)
        assert len(client.sample("main", 4).keys) == 4


# -- the description -----------------------------------------------------------------------------


def test_a_queue_is_described_by_its_size_alone():
    """Given descriptions of no queue. Expect a sentence for each."""
    assert plain(256, sampler=Fifo(192)).layout.fifo
    for options, words in (
        ({"limiter": MinSize(2)}, r"Fifo\(size=8\) says already .* leave limiter out"),
        ({"limiter": SamplesPerInsert(1.0)}, "leave limiter out"),
        ({"capacity": 128, "sampler": Fifo(125)}, "holds at most 120 items"),
    ):
        with pytest.raises(ConfigError, match=words):
            plain(**{"sampler": Fifo(8), **options})
    for size in (0, 2.5, None, 1 << 31):
        with pytest.raises(ConfigError, match=r"Fifo\(size\) is .*; expected a whole number"):
            Fifo(size)
    with pytest.raises(ConfigError, match="no option 'max_size', it is 'size'"):
        Fifo(max_size=8)


def test_its_order_travels_with_the_columns():
    """Given layouts of a queue and of another table. Expect `order` in the document of the first
    alone, its layout back, and a sentence for an order that is not known."""
    queue, other = (plain(sampler=each).layout for each in (Fifo(8), Uniform()))
    assert layout_of(queue.document()) == queue and layout_of(other.document()) == other
    said = json.loads(queue.document())
    assert said.pop("order") == "fifo" and said == json.loads(other.document())
    with pytest.raises(SpecError, match="whose order is 'lifo'"):
        layout_of(json.dumps(said | {"order": "lifo"}).encode())
