"""`extend` that the limiter cuts off: the same call made again goes on where it was."""

from __future__ import annotations

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    LimiterBlocked,
    Row,
    RowsDropped,
    SamplesPerInsert,
    Server,
    Spec,
    Table,
)

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


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://"])
@pytest.mark.parametrize("priorities", [False, True])
def test_the_same_call_again_stores_each_row_once(url, priorities):
    """Given rows of which the limiter takes a part at each call. Expect them stored once each, in
    order, by as many calls as it takes, and their keys to name them."""
    count, width = 1000, 100
    given = np.linspace(1, 2, count) if priorities else None
    with (
        Server([table_of(width)], url) as server,
        Client(server.address, timeout=0.05) as actor,
        Client(server.address, timeout=5) as learner,
    ):
        calls, keys = 0, None
        while keys is None and calls < 200:
            calls += 1
            try:
                keys = actor.extend("o", {"x": np.arange(count)}, given)
            except LimiterBlocked as error:
                assert "the same call made again" in str(error)
            drain(learner, width)
        assert calls > 2 and keys is not None
        batch = learner.get("o", keys)
        assert batch.valid.all() and batch["x"][:, 0].tolist() == list(range(count))
        assert server.counters()["items_created"] == count
        again = actor.extend("o", {"x": np.arange(50)})  # it was over: another call
        assert set(again).isdisjoint(keys)


def test_other_rows_are_another_call():
    """Given a call that was cut off, and other rows than its. Expect those stored, and told by
    their keys; and the rest of the first, which was handed over, ahead of them."""
    with (
        Server([table_of(100)], "loopback://") as server,
        Client(server.address, timeout=0.05) as actor,
        Client(server.address, timeout=5) as learner,
    ):
        with pytest.raises(LimiterBlocked):
            actor.extend("o", {"x": np.arange(300)})
        keys = None
        while keys is None:
            drain(learner, 100)
            try:
                keys = actor.extend("o", {"x": [-1, -2]})
            except LimiterBlocked:
                continue
        assert learner.get("o", keys)["x"][:, 0].tolist() == [-1, -2]
        assert server.counters()["items_created"] == 302


def test_a_client_that_closes_tells_what_an_extend_left():
    with Server([table_of(100)], "loopback://") as server:
        actor = Client(server.address, timeout=0.05)
        with pytest.raises(LimiterBlocked):
            actor.extend("o", {"x": np.arange(1000)})
        stored = server.counters()["items_created"]
        with pytest.warns(RowsDropped, match=f"with {1000 - stored} of its rows"):
            actor.close()


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
