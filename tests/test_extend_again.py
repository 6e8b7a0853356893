"""`extend` that the limiter cuts off: the same call made again goes on where it was."""

from __future__ import annotations

import numpy as np
import pytest
from test_interrupts import interrupted

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
                assert "the same call goes on there" in str(error)
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


def cut_off(actor, count=300):
    with pytest.raises(LimiterBlocked):
        actor.extend("o", {"x": np.arange(count)})


def until_taken(call, between, most=100):
    for _ in range(most):
        try:
            return call()
        except LimiterBlocked:
            between()
    raise AssertionError("never taken")


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://"])
@pytest.mark.parametrize("let_in", [False, True], ids=["held", "let in"])
def test_a_table_that_was_reset_gets_all_anew(url, let_in):
    """Given a reset behind a call that was cut off, its rest let in before or not. Expect the same
    call to store all of its rows in the table as it is now."""
    with (
        Server([table_of(100)], url) as server,
        Client(server.address, timeout=0.05) as actor,
        Client(server.address, timeout=5) as learner,
    ):
        cut_off(actor)
        while let_in and server.counters()["items_created"] < 300:
            drain(learner, 100)
            actor.ping()
        learner.reset("o")
        call = lambda: actor.extend("o", {"x": np.arange(300)})  # noqa: E731
        keys = until_taken(call, lambda: drain(learner, 100))
        batch = learner.get("o", keys)
        assert batch.valid.all() and batch["x"][:, 0].tolist() == list(range(300))


@pytest.mark.filterwarnings("ignore::replay_server.RowsDropped")
def test_another_table_in_between_costs_no_keys():
    """Given a call that was cut off, one to another table, and the first again. Expect the keys of
    each to name its rows."""
    other = Table("p", SPEC, Row(), 1 << 14)
    with (
        Server([table_of(100), other], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=0.05) as actor,
        Client(server.address, timeout=5) as learner,
    ):
        cut_off(actor)
        assert len(actor.extend("p", {"x": np.arange(10)})) == 10
        call = lambda: actor.extend("o", {"x": np.arange(300)})  # noqa: E731
        keys = until_taken(call, lambda: drain(learner, 100))
        assert learner.get("o", keys)["x"][:, 0].tolist() == list(range(300))


def test_priorities_of_a_call_that_was_cut_off_are_its_own():
    """Given one buffer of priorities that is filled anew for the next call, of equal rows. Expect
    that to be another call."""
    given = np.ones(300)
    with (
        Server([table_of(100)], "loopback://") as server,
        Client(server.address, timeout=0.05) as actor,
        Client(server.address, timeout=5) as learner,
    ):
        with pytest.raises(LimiterBlocked):
            actor.extend("o", {"x": np.zeros(300, np.int64)}, given)
        taken = actor._extending.cut.left
        given[:] = 2.0
        call = lambda: actor.extend("o", {"x": np.zeros(300, np.int64)}, given)  # noqa: E731
        until_taken(call, lambda: drain(learner, 100))
        assert server.counters()["items_created"] == 600 - taken


def test_an_interrupt_of_extend_leaves_the_next_one_whole():
    """Given an interrupt behind each call that extend makes, and the same call made again. Expect
    its keys, for its rows."""
    table = Table("o", SPEC, Row(), 1 << 14)
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:
        at, where = 0, ""
        while where is not None:
            at += 1
            rows = {"x": np.arange(3) + 10 * at}
            where = interrupted(at, lambda x=rows: client.extend("o", x))
            keys = client.extend("o", rows)
            assert client.get("o", keys)["x"][:, 0].tolist() == rows["x"].tolist(), where
        assert at > 20
