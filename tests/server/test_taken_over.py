"""A server that takes a region over with another limiter, and the clients that were there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    LimiterBlocked,
    MinSize,
    OverBudget,
    Row,
    RowsDropped,
    SamplesPerInsert,
    Server,
    SessionExpired,
    Spec,
    Table,
)

SPEC = Spec((Column("x", np.int64),))
FEW = SamplesPerInsert(8, min_size=100, error_buffer=64)


def served(limiter, url, region):
    table = Table("m", SPEC, Row(), 1 << 16, limiter=limiter)
    return Server([table], url, region=region)


def rows(count):
    return {"x": np.arange(count)}


@contextmanager
def drawing(learner):
    """Somebody draws all the while; what it was told in vain is its own error."""
    stop = Event()

    def draw():
        while not stop.is_set():
            with suppress(LimiterBlocked):
                learner.sample("m", 64, timeout=0.1)

    with ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(draw)
        try:
            yield
        finally:
            stop.set()
        drawn.result()


@pytest.mark.parametrize("heard", [False, True])
def test_a_limiter_that_lets_less_in_gives_writers_new_sessions(tmp_path, heard):
    """Given a client that stores rows, and a server that comes back with a limiter that lets only
    16 in at once. Expect SessionExpired where rows were on their way, then every row in, and
    nothing for a learner's client."""
    with served(MinSize(1), "udp://127.0.0.1:0", tmp_path / "r") as first:
        client, learner = (Client(first.address, timeout=5.0) for _ in range(2))
        client.extend("m", rows(300))
        learner.sample("m", 4)
        url = first.address
    with served(FEW, url, tmp_path / "r") as second, client, learner, drawing(learner):
        assert second.changes.startswith("samples_per_insert of table m 0 -> 8")
        if heard:  # of the session's end, before the call
            client.ping()
        else:
            with pytest.raises(SessionExpired, match="a limiter that lets less in at once"):
                client.extend("m", rows(400))
        assert len(client.extend("m", rows(400))) == 400
        assert second.stats().counters["refused_never_fits"] == 0


def test_a_limiter_that_lets_more_through_is_looked_up(tmp_path):
    """Given a client that was told of 128 items at most, and a server that comes back without a
    limiter. Expect batches and landings of more, which were refused before."""
    with served(FEW, "udp://127.0.0.1:0", tmp_path / "r") as first:
        client = Client(first.address, timeout=5.0)
        client.extend("m", rows(100))
        with pytest.raises(OverBudget):
            client.landing("m", 256)
        with pytest.raises(OverBudget):
            client.batches("m", 256)
        url = first.address
    with served(MinSize(1), url, tmp_path / "r"), client:
        assert client.sample("m", 256, out=client.landing("m", 256)).keys.shape == (256,)
        with client.batches("m", 256, prefetch=1) as batches:
            assert next(iter(batches)).keys.shape == (256,)


def test_who_is_held_back_is_told_the_limiter_as_it_is_now(tmp_path):
    """Given a client that stores rows and a writer, and a server that comes back with a wider
    limiter. Expect both to name its numbers where it holds them back."""
    wide = SamplesPerInsert(8, min_size=100, error_buffer=800)
    with served(FEW, "udp://127.0.0.1:0", tmp_path / "r") as first:
        client = Client(first.address, timeout=5.0)
        client.extend("m", rows(50))
        url = first.address
    with served(wide, url, tmp_path / "r"), client:
        with pytest.raises(LimiterBlocked, match="bounds 0 to 1600") as told:
            client.extend("m", rows(1000), timeout=0.3)
        assert told.value.taken > 0
        with pytest.warns(RowsDropped):
            client.close(0.0)


@pytest.mark.parametrize("before", [MinSize(100), SamplesPerInsert(1, 100, error_buffer=4000)])
def test_another_limiter_counts_from_its_beginning(tmp_path, before):
    """Given a table that 3000 items went into and as many were drawn from, and a server that comes
    back with a limiter of another ratio. Expect an actor and a learner that go on at once, as
    behind the minimum of a new table, the same as ever by the same limiter, and the ratio kept."""
    with served(before, "udp://127.0.0.1:0", tmp_path / "r") as first:
        client = Client(first.address, timeout=5.0)
        for _ in range(30):
            client.extend("m", rows(100))
            client.sample("m", 100)
        url = first.address
    for _ in range(2):
        with served(FEW, url, tmp_path / "r"), Client(url, timeout=5.0) as client:
            inserted, sampled = client.table("m").inserted, client.table("m").sampled
            assert 800 - 64 <= inserted * 8 - sampled <= 800 + 64
            for _ in range(20):
                client.extend("m", rows(4), timeout=1.0)
                client.sample("m", 32, timeout=1.0)
            assert client.table("m").inserted == inserted + 80
            assert client.table("m").sampled == sampled + 640


def test_a_minimum_that_was_reached_stays_so_whoever_served_in_between(tmp_path):
    """Given a table above one limiter's minimum, and servers with other limiters in turn. Expect a
    learner to draw from each at once, with nobody who adds."""
    pair = SamplesPerInsert(2, min_size=10, error_buffer=(500, 900))  # above 2 * 10
    limiters = [MinSize(1000), MinSize(1), MinSize(1000), FEW, MinSize(1000), pair, FEW]
    for number, limiter in enumerate(limiters):
        with (
            served(limiter, "udp://127.0.0.1:0", tmp_path / "r") as server,
            Client(server.address) as client,
        ):
            if number == 0:
                client.extend("m", rows(5000))
            assert len(client.sample("m", 32, timeout=1.0)) == 32
            assert client.table("m").inserted == 5000
