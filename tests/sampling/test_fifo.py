"""A table of Fifo: items are drawn in the order of their steps, each once; both sides wait."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import plain, plain_rows

from replay_server import Client, ConfigError, Fifo, LimiterBlocked, OverBudget, Server

URLS = ("loopback://", "udp://127.0.0.1:0")
SIZE = 32


@pytest.fixture(params=URLS)
def url(request):
    return request.param


def test_items_come_in_order_and_each_once(url):
    """Given 20 rows in a queue. Expect draws to go through them in order, weights of 1, and then
    a draw that waits, and says for how many."""
    rows = plain_rows(20)
    with Server([plain(sampler=Fifo(SIZE))], url) as server, Client(server.address) as client:
        keys = client.extend("main", rows)
        for begin, count in ((0, 7), (7, 1), (8, 10)):
            batch = client.sample("main", count)
            assert np.array_equal(batch.keys, keys[begin : begin + count])
            assert np.array_equal(batch.data["x"][:, 0], rows["x"][begin : begin + count])
            assert batch.valid.all() and (batch.weights == 1.0).all()
        assert client.can_sample("main", 2) and not client.can_sample("main", 3)
        with pytest.raises(LimiterBlocked) as error:
            client.sample("main", 5, timeout=0)
        assert error.value.need == 3 and len(client.table("main")) == 2


def test_writers_wait_while_the_queue_is_full(url):
    """Given more rows than the queue holds. Expect those in front alone to be drawable until some
    are drawn, and then the others."""
    rows = plain_rows(3 * SIZE)
    with Server([plain(sampler=Fifo(SIZE))], url) as server, Client(server.address) as client:
        with pytest.raises(LimiterBlocked):
            client.extend("main", rows, timeout=0.2)
        seen = []
        while len(seen) < len(rows["x"]):
            assert len(client.table("main")) <= SIZE
            seen.extend(client.sample("main", 4).data["x"][:, 0])
        assert np.array_equal(seen, rows["x"])


def test_what_cannot_be_is_refused_at_once(url):
    """Given a queue. Expect one sentence for what it can never do."""
    with Server([plain(sampler=Fifo(SIZE))], url) as server, Client(server.address) as client:
        keys = client.extend("main", plain_rows(4))
        assert "Fifo(32)" in repr(client.table("main"))
        for wait in (True, False):
            with pytest.raises(ConfigError, match="no priorities to update"):
                client.update_priorities("main", keys, np.ones(4), wait=wait)
        for how in ({"stratified": True}, {"uniform": 0.5}):
            with pytest.raises(ConfigError, match="drawn in order"):
                client.sample("main", 2, **how)
        for asks in (client.sample, client.can_sample, client.batches, client.landing):
            with pytest.raises(OverBudget, match=r"at most 32 at once.*Fifo\(33\)"):
                asks("main", SIZE + 1)
        assert len(client.sample("main", 4).keys) == 4
