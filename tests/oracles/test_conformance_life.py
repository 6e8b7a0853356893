"""The suite of conformance.py, second half: waiting, batches, weights, tables, life, wrong input.

As in test_conformance.py, each test runs on every transport.
"""

from __future__ import annotations

import functools
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conformance import (
    FRAMES,
    OUTLIVES_ITS_SERVER,
    ROWS,
    SMALL,
    TRANSPORTS,
    Episodes,
    Place,
    plain,
    plain_rows,
    table,
)

from replay_server import (
    Client,
    ClosedError,
    Column,
    ConfigError,
    ForkedError,
    LimiterBlocked,
    MinSize,
    NoRoom,
    NothingDrawable,
    NStep,
    OverBudget,
    ReplayError,
    Row,
    SamplesPerInsert,
    ServerRestarted,
    Spec,
    SpecError,
    SpecMismatch,
    Table,
    Timeout,
    UnknownPlan,
    UnknownTable,
)


@pytest.fixture(params=TRANSPORTS)
def place(request):
    return Place(request.param)


# -- waiting -------------------------------------------------------------------------------------


def test_the_minimum_size_holds_back_and_says_how_many_are_missing(place):
    """Given 7 of 10 items. Expect LimiterBlocked(3, inserts) in time; a batch after three more."""
    with place.pair(plain(limiter=MinSize(10))) as (server, client):
        client.extend("main", plain_rows(7))
        assert not client.can_sample("main", 4)
        for timeout in (0.0, 0.05):
            with pytest.raises(LimiterBlocked) as blocked:
                client.sample("main", 4, timeout=timeout)
            assert (blocked.value.need, blocked.value.by) == (3, "inserts")
        with Client(server.address) as other, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.sample, "main", 4, timeout=20.0)
            other.extend("main", plain_rows(3))
            assert len(waiting.result()) == 4
        assert client.can_sample("main", 4)
        assert server.counters()["samples_blocked"] >= 2


def test_the_limiter_holds_inserts_back_until_something_is_drawn(place):
    """Given two draws an insert and a small buffer. Expect both sides to wait for each other."""
    limiter = SamplesPerInsert(2.0, min_size=4, error_buffer=8.0)
    with place.pair(plain(limiter=limiter)) as (_, client):
        client.extend("main", plain_rows(8))
        with pytest.raises(LimiterBlocked) as blocked:
            client.extend("main", plain_rows(2), timeout=0.1)
        assert blocked.value.by == "samples" and blocked.value.need > 0
        assert client.can_sample("main", 16)
        with pytest.raises(OverBudget, match="at most 16 at once"):
            client.can_sample("main", 17)
        client.sample("main", 16)
        with pytest.raises(LimiterBlocked) as blocked:
            client.sample("main", 16, timeout=0.0)
        assert blocked.value.by == "inserts"
        with pytest.raises(OverBudget):
            client.sample("main", 500, timeout=0.1)


@pytest.mark.parametrize(("bounds", "batches"), [((-10.0, 50.0), 12), ((85.0, 101.0), 3)])
def test_rows_that_pass_the_minimum_size_do_not_stand_still(place, bounds, batches):
    """Given a reader that waits for the minimum size, bounds that may lie below it, and rows in
    numbers that do not end at it. Expect the reader to be let on, and the writer behind it."""
    limiter = SamplesPerInsert(1.0, min_size=100, error_buffer=bounds)
    with (
        place.pair(plain(limiter=limiter)) as (server, client),
        Client(server.address) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        wait = functools.partial(reader.sample, "main", 8, timeout=10.0)
        reading = pool.submit(lambda: [wait() for _ in range(batches)])
        for _ in range(4):
            client.extend("main", plain_rows(30), timeout=10.0)
        assert sum(map(len, reading.result())) == 8 * batches
        assert client.table("main").inserted == 120


@pytest.mark.parametrize("transport", OUTLIVES_ITS_SERVER)
def test_a_blocked_writer_learns_that_the_server_is_gone(transport, tmp_path):
    """Given a writer held back by a server that stops without a word, since its region stays.
    Expect Timeout, no limiter any more."""
    place = Place(transport)
    limiter = SamplesPerInsert(2.0, min_size=4, error_buffer=8.0)
    region = str(tmp_path / "region")
    with place.pair(plain(limiter=limiter), region=region) as (server, client):
        client.extend("main", plain_rows(8))
        with pytest.raises(LimiterBlocked):
            client.extend("main", plain_rows(2), timeout=0.1)
        server.close()
        ends = []
        while len(ends) < 40 and (not ends or ends[-1] is LimiterBlocked):
            with pytest.raises(ReplayError) as held:
                client.extend("main", plain_rows(2), timeout=0.25)
            ends.append(type(held.value))
        assert ends[-1] is Timeout
        client.close(0.0)


def test_a_blocked_writer_is_released_by_a_reader(place):
    """Given a writer that is held back. Expect it to go on once a batch is drawn, nothing lost."""
    limiter = SamplesPerInsert(1.0, min_size=4, error_buffer=8.0)
    described = table(plan=NStep(1), limiter=limiter)
    with place.pair(described) as (server, client), Client(server.address) as reader:
        episodes = Episodes(SMALL, 1, 8, end=0.0)

        def write():
            with client.writer("main", 1, autoreset="disabled", timeout=20.0) as writer:
                for _ in range(60):
                    writer.add_batch(**episodes.step())
                return writer.flush().steps_stored

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            drawn = 0
            while not writing.done():
                try:
                    drawn += len(reader.sample("main", 4, timeout=0.2))
                except LimiterBlocked as blocked:
                    assert blocked.by == "inserts"
            assert writing.result() == 60
        assert 59 - 12 <= drawn <= 59 + 4


def test_nothing_drawable_is_said_and_not_guessed(place):
    """Given rows of priority 0 only. Expect NothingDrawable or a blocked minimum, at once."""
    with place.pair(plain()) as (_, client):
        client.extend("main", plain_rows(5), np.zeros(5))
        with pytest.raises((NothingDrawable, LimiterBlocked)):
            client.sample("main", 1, timeout=0.0)


def test_every_wait_ends(place):
    """Given an empty table. Expect sample, batches and get to end within their time-outs."""
    with place.pair(plain()) as (_, client):
        with pytest.raises(Timeout):
            client.sample("main", 2, timeout=0.05)
        with client.batches("main", 2, prefetch=2) as batches:
            assert batches.get(timeout=0.05) is None
        assert not client.get("main", [4096 + 3]).valid.any()


# -- batches -------------------------------------------------------------------------------------


def test_batches_are_the_draws_of_sample_in_order(place):
    """Given the same seed. Expect the iterator to give what sample gives, one after the other."""
    rows, priorities = plain_rows(300), np.exp(np.random.default_rng(9).uniform(-3, 3, 300))
    with place.pair(plain()) as (_, client):
        begin = client.extend("main", rows, priorities)[0]
        expected = [client.sample("main", 40, beta=0.5) for _ in range(12)]
    with place.pair(plain()) as (_, client):
        now = client.extend("main", rows, priorities)[0]
        with client.batches("main", 40, beta=lambda: 0.5, prefetch=3) as batches:
            for want in expected:
                batch = next(batches)
                assert (batch.keys - now).tolist() == (want.keys - begin).tolist()
                assert np.array_equal(batch.weights, want.weights)
                for name in rows:
                    assert np.array_equal(batch.data[name], want.data[name])
            assert batches.taken == 12
        with pytest.raises(StopIteration):
            next(batches)
        assert len(client.sample("main", 3)) == 3


def test_batches_stay_valid_as_long_as_stated(place):
    """Given keep=2, and copies. Expect the newest two to stay as they were; copies for ever."""
    with place.pair(plain()) as (_, client):
        client.extend("main", plain_rows(200))
        with client.batches("main", 16, prefetch=2, keep=2) as batches:
            newest = []
            for _ in range(10):
                batch = next(batches)
                newest = [*newest[-1:], (batch, batch["x"].copy())]
                assert all(np.array_equal(kept["x"], copy) for kept, copy in newest)
        with client.batches("main", 16, prefetch=2, copy=True) as batches:
            every = [next(batches) for _ in range(10)]
        for batch in every:
            rows, valid = client.rows("main", batch.keys)
            assert valid.all() and np.array_equal(rows["x"], batch["x"][:, 0])


def test_batches_as_tensors(place):
    """Given device="cpu". Expect torch tensors of the landing, weights too."""
    import torch

    with place.pair(plain()) as (_, client):
        client.extend("main", plain_rows(50))
        with client.batches("main", 8, device="cpu") as batches:
            batch = next(batches)
            assert isinstance(batch["x"], torch.Tensor) and batch["x"].shape == (8, 1, 4)
            assert batch.weights.dtype == torch.float32


def test_updates_go_on_beside_batches(place):
    """Given queued updates between prefetched batches. Expect all of them applied."""
    with place.pair(plain()) as (_, client):
        client.extend("main", plain_rows(256))
        with client.batches("main", 32) as batches:
            for _, batch in zip(range(20), batches, strict=False):
                client.update_priorities("main", batch, np.full(32, 2.0), wait=False)
            result = client.flush()
        assert result.stale == result.unknown == 0
        assert result.applied > 0


def test_a_batch_of_many_trains(place):
    """Given a batch far larger than one train. Expect all of it, in memory given again."""
    wide = Spec((Column("x", np.uint8, (512,)), Column("n", np.uint64)))
    described = plain(step=wide)
    numbers = np.arange(900, dtype=np.uint64)
    x = np.repeat((numbers % 251).astype(np.uint8)[:, None], 512, 1)
    with place.pair(described) as (_, client):
        client.extend("main", {"x": x, "n": numbers})
        landing = client.landing("main", 1500)
        for _ in range(3):
            batch = client.sample("main", 1500, out=landing)
            assert batch["x"].base is not None and len(np.unique(batch.keys)) > 600
            assert np.array_equal(batch["x"][:, 0, 0], batch["n"][:, 0] % 251)
            assert (batch["x"] == batch["x"][:, :, :1]).all()
        with pytest.raises(OverBudget):
            client.sample("main", client.limits["batch_max"] + 1)


def test_threads_extend_two_tables_at_once(place):
    """Given two threads of one client that extend a table each. Expect every call's own keys, in
    order, and behind each key the row that was given."""
    names = ("left", "right")
    with place.pair(*(Table(name, ROWS, capacity=4096) for name in names)) as (_, client):

        def extend(name: str) -> None:
            for turn in range(30):
                rows = plain_rows(60, seed=turn)
                keys = client.extend(name, rows)
                held = client.get(name, keys)
                assert len(np.unique(keys)) == 60 and np.array_equal(held["x"][:, 0], rows["x"])

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(extend, name) for name in names]:
                done.result(60)


# -- weights -------------------------------------------------------------------------------------


def test_weights_go_around_and_versions_rise(place):
    """Given several publications by two clients. Expect the newest, numbered by the server."""
    rng = np.random.default_rng(10)
    blobs = [rng.bytes(size) for size in (1, 8, 5000, 300_000, 1 << 20)]
    with place.pair(plain()) as (server, client), Client(server.address) as other:
        assert client.weights_version == 0 and client.pull_weights() is None
        for version, blob in enumerate(blobs, 1):
            publisher, puller = (client, other) if version % 2 else (other, client)
            assert publisher.publish_weights(blob) == version
            assert puller.pull_weights(newer_than=version - 1) == (version, blob)
            assert puller.pull_weights(newer_than=version) is None
            assert puller.weights_version == version == server.weights_version
        with pytest.raises(OverBudget):
            client.publish_weights(bytes((1 << 20) + 1))
        assert client.pull_weights() == (5, blobs[-1])


# -- tables --------------------------------------------------------------------------------------


def test_tables_tell_what_they_are(place):
    """Given two tables. Expect names, columns, plans; errors that name what is wrong."""
    other = table(FRAMES, {"near": NStep(1), "far": NStep(5)}, capacity=512)
    object.__setattr__(other, "name", "frames")
    with place.pair(plain(), other) as (_, client):
        told = client.table("frames", spec=FRAMES)
        assert told.plans == {"near": NStep(1), "far": NStep(5)}
        assert (told.spec, told.capacity, told.count, told.ahead) == (FRAMES, 512, 0, 5)
        assert client.table("main").plans == {"default": Row()}
        with pytest.raises(UnknownTable, match="nothing"):
            client.table("nothing")
        with pytest.raises(SpecMismatch, match="observation: mine float32"):
            client.table("frames", spec=SMALL)
        with pytest.raises(SpecMismatch):
            Client(client.address, specs={"frames": SMALL})
        with pytest.raises(UnknownPlan, match="near, far"):
            client.sample("frames", 1, plan="middle", timeout=0.0)


def test_plans_are_sampled_by_name_or_number(place):
    """Given two plans. Expect the columns of the one asked for; items reach for the larger."""
    described = table(plan={"near": NStep(1), "far": NStep(4)})
    with place.pair(described) as (_, client):
        episodes = Episodes(SMALL, 2, 11, end=0.05)
        with client.writer("main", 2, autoreset="disabled") as writer:
            for _ in range(30):
                writer.add_batch(**episodes.step())
        assert client.sample("main", 4, plan="near")["reward"].shape == (4, 1)
        assert client.sample("main", 4, plan=1)["reward"].shape == (4, 4)
        assert client.sample("main", 64, plan=0).ahead.max() == 4


def test_reset_empties_and_makes_keys_stale(place):
    """Given a reset by another client. Expect old keys stale, new rows in, and a reset by who knows
    the old table only to empty the new one."""
    with place.pair(plain()) as (server, client), Client(server.address) as other:
        keys = client.extend("main", plain_rows(20))
        other.reset("main")
        assert other.size("main") == client.size("main") == 0
        assert client.update_priorities("main", keys, np.ones(20)).stale == 20
        fresh = client.extend("main", plain_rows(5))
        assert fresh.epoch != keys.epoch
        assert len(client.sample("main", 4)) == client.size("main") - 1 == 4
        assert not client.get("main", keys).valid.any()
        other.reset("main")
        other.extend("main", plain_rows(3))
        client.reset("main")
        assert other.size("main") == client.size("main") == 0


def test_sampling_goes_on_after_a_reset(place):
    """Given a reset while a client knows the old table. Expect it to look again by itself."""
    with place.pair(plain()) as (server, client), Client(server.address) as other:
        client.extend("main", plain_rows(20))
        client.sample("main", 4)
        other.reset("main")
        other.extend("main", plain_rows(7))
        batch = client.sample("main", 4)
        assert batch.keys.epoch == other.table("main").epoch


def test_counters_move(place):
    """Given one of each. Expect the server's counters, at the server and by stats."""
    with place.pair(plain()) as (server, client):
        keys = client.extend("main", plain_rows(10))
        client.sample("main", 4)
        client.update_priorities("main", keys, np.ones(10))
        client.publish_weights(b"x" * 5000)
        told = client.stats()
        expected = {
            "steps_committed": 10,
            "items_created": 10,
            "samples": 1,
            "items_sampled": 4,
            "priorities_applied": 10,
            "weights_published": 1,
            "sessions_opened": 1,
        }
        assert {name: told.counters[name] for name in expected} == expected
        assert {name: server.counters()[name] for name in expected} == expected
        assert told.sessions == 1 and told.weights_version == 1
        assert client.counters()["datagrams_out"] > 0


# -- life ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", OUTLIVES_ITS_SERVER)
def test_a_restarted_server_is_told_as_such(transport):
    """Given a server that comes back empty. Expect ServerRestarted for writers, readers go on."""
    described, place = table(plan=NStep(1)), Place(transport)
    with place.served(described) as server:
        address = server.address
        client = Client(address, timeout=20.0)
        writer = client.writer("main", 2, autoreset="disabled")
        episodes = Episodes(SMALL, 2, 12)
        for _ in range(20):
            writer.add_batch(**episodes.step())
        stored = writer.flush().steps_stored
        keys, incarnation = client.sample("main", 4).keys, client.incarnation
    with place.served(described, url=address):
        with pytest.raises(ServerRestarted) as told:
            for _ in range(100):
                writer.add_batch(**episodes.step())
                writer.flush()
        assert told.value.stored_through == stored
        writer.close()  # which does not say it again
        with client.writer("main", 2, autoreset="disabled") as again:
            for _ in range(10):
                again.add_batch(**episodes.step())
        assert client.update_priorities("main", keys, np.ones(4)).stale == 4
        assert len(client.sample("main", 4)) == 4
        assert client.incarnation != incarnation
        client.close()


def test_writer_places_and_sessions_are_counted(place):
    """Given one place, two sessions. Expect NoRoom for one more, room again after a close."""
    with place.pair(table(writers=1), sessions=2) as (server, client):
        writer = client.writer("main")
        with pytest.raises(NoRoom):
            Client(server.address)
        writer.close()
        with Client(server.address) as other:
            assert other.table("main").capacity == 4096
    with place.pair(table(writers=1)) as (_, client):
        writer = client.writer("main")
        with pytest.raises(NoRoom, match="writer"):
            client.writer("main")
        writer.close()
        client.writer("main").close()


def test_a_client_pickles_as_its_address(place):
    """Given a pickled client. Expect a session of its own at the same server."""
    with place.pair(plain()) as (server, client):
        client.extend("main", plain_rows(3))
        with pickle.loads(pickle.dumps(client)) as again:
            assert again.address == client.address and again.size("main") == 3
            assert server.counters()["sessions"] == 2


def test_a_forked_child_is_refused_with_the_remedy(place):
    """Given a fork. Expect ForkedError in the child, and the parent's client unharmed."""
    with place.pair(plain()) as (_, client):
        client.extend("main", plain_rows(3))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.size("main")
            except ForkedError as error:
                code = 0 if "Client(client.address)" in str(error) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert client.size("main") == 3


def test_what_is_closed_says_so(place):
    """Given closed clients, writers and servers. Expect ClosedError, and close twice is fine."""
    with place.served(plain(), table_named("episodes")) as server:
        client = Client(server.address)
        writer = client.writer("episodes")
        writer.close()
        writer.close()
        with pytest.raises(ClosedError):
            writer.flush()
        client.close()
        client.close()
        for call in (
            lambda: client.sample("main", 1),
            lambda: client.extend("main", plain_rows(1)),
            lambda: client.stats(),
            lambda: client.__enter__(),
        ):
            with pytest.raises(ClosedError):
                call()
    with pytest.raises(ClosedError):
        server.counters()


def table_named(name):
    described = table()
    object.__setattr__(described, "name", name)
    return described


def test_nobody_there_is_a_timeout(place):
    """Given an address without a server. Expect an error in bounded time."""
    with place.served(plain()) as server:
        address = server.address
    with pytest.raises(ReplayError):
        Client(address, timeout=0.2)


def test_a_client_is_used_by_several_threads(place):
    """Given eight threads on one client. Expect every call to end well."""
    with place.pair(plain(capacity=65536)) as (_, client):
        client.extend("main", plain_rows(200))
        barrier = threading.Barrier(8)

        def work(number):
            barrier.wait()
            for i in range(15):
                batch = client.sample("main", 16, timeout=20.0)
                client.update_priorities("main", batch, np.ones(16), timeout=20.0)
                if number % 4 == 0:
                    client.extend("main", plain_rows(5, i), timeout=20.0)
            return True

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))
        assert client.size("main") == 200 + 2 * 15 * 5


# -- wrong input ---------------------------------------------------------------------------------


def test_wrong_columns_are_named(place):
    """Given wrong shapes, dtypes, names and priorities. Expect column, expected and got, no row."""
    good = plain_rows(4)
    with place.pair(plain()) as (_, client):
        for wrong, said in (
            ({**good, "x": good["x"][:, :3]}, r"'x': expected shape \(4, 4\), got \(4, 3\)"),
            ({**good, "x": good["x"].astype(np.complex64)}, "'x': expected dtype float64"),
            ({**good, "label": np.full(4, 1 << 40)}, "'label': int32 holds"),
            ({**good, "flag": np.ones(4)}, "'flag': expected dtype bool"),
            ({**good, "y": good["x"]}, "no column 'y'; there are x, label, flag"),
            ({"x": good["x"], "flag": good["flag"]}, "column 'label' is missing"),
        ):
            with pytest.raises(SpecError, match=said):
                client.extend("main", wrong)
        for priorities in ([1, 2, 3], [1, 2, 3, np.nan], [-1, 0, 0, 0]):
            with pytest.raises(ConfigError, match="priorities"):
                client.extend("main", good, priorities)
        with pytest.raises(ConfigError, match="from 1 to"):
            client.sample("main", 0)
        with pytest.raises(ConfigError, match="uniform"):
            client.sample("main", 1, uniform=1.5)
        with pytest.raises(ConfigError, match="stratified"):
            client.sample("main", 1, uniform=0.5, stratified=True)
        with pytest.raises(ValueError, match="timeout"):
            client.sample("main", 1, timeout=-1)
        assert client.size("main") == 0


def test_wrong_items_are_refused(place):
    """Given items at foreign streams, steps never added, a table of windows for extend, a writer of
    too many streams. Expect ConfigError, and OverBudget for the last."""
    with place.pair(table(plan=NStep(2))) as (_, client):
        with pytest.raises(ConfigError, match=r"client\.writer"):
            client.extend("main", plain_rows(1))
        with client.writer("main", 2, autoreset="disabled") as writer:
            episodes = Episodes(SMALL, 2, 13, end=0.0)
            for _ in range(3):
                writer.add_batch(**episodes.step())
            for streams, steps in (
                ([2], [0]),
                ([-1], [0]),
                ([0], [1]),
                ([0], [3]),
                ([0], [-1]),
                ([0, 1], [0]),
            ):
                with pytest.raises(ConfigError):
                    writer.create(streams, steps)
            with pytest.raises(ConfigError, match="priorities"):
                writer.create([0], [0], [np.inf])
            with pytest.raises(ConfigError, match="add_batch"):
                writer.add(observation=np.zeros(3, np.float32))
        with pytest.raises(OverBudget):
            client.writer("main", 65, autoreset="disabled")
