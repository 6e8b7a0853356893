"""Batches fetched ahead, and what happens around them: another thread, or a signal's handler,
closes them, the table is reset, and beta is a function."""

from __future__ import annotations

import signal
import sys
import threading

import numpy as np
import pytest
import torch
from conformance import plain, plain_rows
from test_interrupts import interrupted, places_left

from replay_server import Client, Column, MinSize, Server, Spec, Table
from replay_server.errors import ClosedError, ConfigError
from replay_server.returns import tensor_of

BEYOND = np.full(900, 2**63, np.uint64)
URLS = ["udp://127.0.0.1:0", "loopback://"]


@pytest.fixture(params=URLS)
def served(request):
    """A server whose table holds 200 rows, and a client of it."""
    with Server([plain()], request.param) as server, Client(server.address) as client:
        client.extend("main", plain_rows(200))
        yield server, client


def test_a_copy_of_tensors_stays_as_it_was(served):
    """Given copied() of a batch with a device. Expect tensors, equal, in memory of their own."""
    _, client = served
    with client.batches("main", 8, device="cpu") as batches:
        batch = next(batches)
        kept = batch.copied()
        pairs = [(batch.weights, kept.weights), *((batch[name], kept[name]) for name in batch.data)]
        for one, other in pairs:
            assert isinstance(other, torch.Tensor) and torch.equal(one, other)
            assert one.data_ptr() != other.data_ptr()
        assert (kept.keys == batch.keys).all() and kept.epoch == batch.epoch


def test_a_column_is_of_one_dtype_however_it_comes():
    """Given columns of each whole number. Expect of a batch with a device what transitions() makes
    of one without, in the landing's memory where torch counts with the dtype as it is; and
    ConfigError for numbers beyond int64."""
    kinds = ("uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
    table = Table("t", step=Spec(Column(kind, kind) for kind in kinds), capacity=1024)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        client.extend("t", {kind: np.arange(100, dtype=kind) for kind in kinds})
        arrays = client.sample("t", 8)
        with client.batches("t", 8, device="cpu", copy=False) as batches:
            batch = next(batches)
            landed = batches._ring[-1].landing.data
            for kind in kinds:
                assert batch[kind].dtype == tensor_of(arrays[kind]).dtype, kind
                shared = batch[kind].data_ptr() == landed[kind].__array_interface__["data"][0]
                assert shared == (kind[0] == "i" or kind == "uint8"), kind
        client.extend("t", {kind: np.full(900, 100, kind) for kind in kinds} | {"uint64": BEYOND})
        batches = client.batches("t", 512, device="cpu")
        with batches, pytest.raises(ConfigError, match="beyond int64"):
            next(batches)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("how", ["next", "get"])
def test_close_ends_what_another_thread_waits_for(url, how):
    """Given a thread that waits for a batch that the limiter holds back for long, and another that
    closes. Expect the iteration to end, get() to say it is closed, and nothing to be drawn."""
    with Server([plain(limiter=MinSize(50))], url) as server, Client(server.address) as client:
        free = places_left(client)
        batches = client.batches("main", 8, prefetch=2, timeout=600.0)
        act = {"next": lambda: next(batches, "ended"), "get": lambda: batches.get(600.0)}[how]
        ended = []

        def body():
            try:
                ended.append(act())
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        while not batches._ring[0].landing.raw.blocked.need:
            continue  # it has not looked yet, or the server has not told
        batches.close()
        thread.join(60)
        assert not thread.is_alive()
        assert ended == ["ended"] if how == "next" else isinstance(ended[0], ClosedError), ended
        assert places_left(client) == free
        client.extend("main", plain_rows(64))
        assert client.table("main").sampled == 0
        assert not client._link.rings and not client._link._pumping


def test_batches_that_other_threads_close_at_any_time(served):
    """Given a thread that takes, and two that close while it does. Expect the iteration to end,
    whole batches until then, no error in any thread, and no request under way behind it."""
    _, client = served
    free, rng, wrong = places_left(client), np.random.default_rng(3), []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for round_ in range(60):
            batches, begun = client.batches("main", 8, prefetch=4), threading.Event()
            begin = int(rng.integers(1, 5))

            def take(batches=batches, begun=begun, begin=begin):
                try:
                    for batch in batches:
                        assert batch.valid.all() and len(batch) == 8
                        if batches.taken >= begin:
                            begun.set()
                except BaseException as error:
                    wrong.append(error)

            def close(batches=batches, begun=begun):
                begun.wait(60)
                try:
                    batches.close()
                except BaseException as error:
                    wrong.append(error)

            threads = [threading.Thread(target=act, daemon=True) for act in (take, close, close)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive(), round_
            assert not wrong, (round_, wrong)
            assert all(flight.landing.raw.ticket <= 0 for flight in batches._ring)
            assert next(batches, None) is None
            assert places_left(client) == free, round_
        assert not client._link.rings and not client._link._pumping
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_handler_may_close_the_batches_that_its_thread_waits_for(served, prefetch):
    """Given a signal's handler that closes, behind each call of next(batches). Expect a whole batch
    or the end, then the end, and as many places as before."""
    _, client = served
    free, at, where = places_left(client), 0, ""
    while where is not None:
        at, got = at + 1, []
        batches = client.batches("main", 16, prefetch=prefetch)

        def take(got=got, batches=batches):
            got.append(next(batches, None))

        where = interrupted(at, take, batches.close)
        assert got[0] is None or (len(got[0]) == 16 and got[0].valid.all()), where
        if where is not None:
            assert next(batches, None) is None, where
            assert places_left(client) == free, where
        batches.close()
    assert at > 30


@pytest.mark.parametrize("timeout", [0.0, 1e-6])
def test_a_get_that_does_not_wait_goes_on_behind_a_reset(timeout):
    """Given get() with no time to wait, and a table that another client empties and fills again.
    Expect None until the new rows come, and no error."""
    with (
        Server([plain()], "loopback://") as server,
        Client(server.address) as client,
        Client(server.address) as other,
    ):
        other.extend("main", plain_rows(200))
        with client.batches("main", 8, prefetch=3) as batches:
            while batches.get(timeout) is None:
                continue
            other.reset("main")
            keys = other.extend("main", plain_rows(200, seed=1))
            got = [batches.get(timeout) for _ in range(40)]
            new = [batch for batch in got if batch is not None and batch.keys.epoch == keys.epoch]
            assert len(new) > 20 and got[-1] is new[-1]
            assert np.isin(new[-1].keys, keys).all()


def test_beta_is_asked_once_for_each_batch_that_landed():
    """Given get()s that bring nothing, for want of rows, then batches. Expect one call a batch, its
    answer in the weights."""
    asked = []

    def beta():
        asked.append(0.25)
        return asked[-1]

    table = plain(limiter=MinSize(50))
    with Server([table], "loopback://") as server, Client(server.address) as client:
        keys = client.extend("main", plain_rows(8))
        client.update_priorities("main", keys, np.arange(1.0, 9.0))
        with client.batches("main", 8, beta=beta, prefetch=2) as batches:
            assert [batches.get(0.0) for _ in range(5)] == [None] * 5
            assert asked == []
            client.extend("main", plain_rows(64))
            for count in range(1, 4):
                batch = next(batches)
                assert len(asked) == count
                raw = (batch.drawables * batch.probabilities) ** -0.25
                assert np.allclose(batch.weights, raw / raw.max(), rtol=1e-6)


class Stop(Exception):
    """Raised by a signal's handler."""


def stop(*_):
    raise Stop


def close_while_it_waits(client):
    batches = client.batches("main", 8, prefetch=2, timeout=600.0)
    while not batches._ring[0].landing.raw.blocked.need:  # the server has told that it waits
        assert batches.get(0.01) is None
    batches.close()


def interrupt_while_it_waits(client):
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Stop):
            client.sample("main", 8, timeout=600.0)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("leave", [close_while_it_waits, interrupt_while_it_waits])
def test_who_leaves_is_drawn_nothing(url, leave):
    """Given a learner that leaves while the limiter holds its batch back, another client's rows
    right behind, and a learner that goes on. Expect the one who left to have no batch drawn, and
    the one who stays not to wait behind it."""
    with (
        Server([plain(limiter=MinSize(50))], url) as server,
        Client(server.address) as feeder,
        Client(server.address) as client,
    ):
        leave(client)
        feeder.extend("main", plain_rows(64))
        assert feeder.table("main").sampled == 0
        assert feeder.sample("main", 4).valid.all()
        assert feeder.table("main").sampled == 4


@pytest.mark.parametrize("records", [1, 3])
def test_as_many_batches_are_fetched_ahead_as_the_server_keeps(records):
    """Given a server of few records. Expect as many batches under way, each whole, and one more
    refused."""
    says = rf"keeps {records} batches .* for {records} at most, .*Server\(records={records + 1}\)"
    url = f"loopback://as-many-{records}"
    with Server([plain()], url, records=records) as server, Client(server.address) as client:
        client.extend("main", plain_rows(64))
        with client.batches("main", 4, prefetch=records) as batches:
            assert all(next(batches).valid.all() for _ in range(50))
        assert client.counters()["samples_forgotten"] == 0
        with pytest.raises(ConfigError, match=says):
            client.batches("main", 4, prefetch=records + 1)


def test_a_batch_stands_for_its_keys(served):
    """Given a batch in the place of keys. Expect the same items, and their rows."""
    _, client = served
    batch = client.sample("main", 16)
    for name, column in client.get("main", batch).data.items():
        np.testing.assert_array_equal(column, batch.data[name])
    rows, valid = client.rows("main", batch)
    assert valid.all() and all(len(column) == 16 for column in rows.values())
