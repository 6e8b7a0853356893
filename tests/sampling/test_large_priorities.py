"""Priorities above the bound are drawn alike: said once; and a call's time begins with a table."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from replay_server import Client, Column, Prioritized, Row, Server, Spec, Table, Timeout

CAPACITY = 1 << 16
SPEC = Spec(
    (
        Column("observation", np.float32, (1,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
ROW = {"observation": np.zeros(1, np.float32), "action": 0, "reward": 1.0}
ROW |= {"terminated": False, "truncated": False, "next_observation": ROW["observation"]}


def table(name: str, alpha: float) -> Table:
    return Table(name, SPEC, plan=Row(), sampler=Prioritized(alpha), capacity=CAPACITY)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_a_priority_above_the_bound_is_a_warning_once(alpha):
    """Given priorities below, at and above what a table tells apart. Expect a warning that names
    value and bound, from the first above it on, once for each client; and the mass to agree."""
    bound = (2.0**37 / CAPACITY) ** (1 / alpha)
    with Server([table("main", alpha)], "loopback://") as server, Client(server.address) as client:
        with client.writer("main") as writer:
            for _ in range(8):
                writer.add(**ROW)
        keys = client.sample("main", 8).keys[:1]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for priority in (0.0, 1.0, bound / 2, bound):
                client.update_priorities("main", keys, [priority])
        assert server.stats().counters["masses_saturated"] == 0
        for wait in (True, False):
            with Client(server.address) as other:
                with pytest.warns(RuntimeWarning, match=r"above .* alike") as told:
                    other.update_priorities("main", keys, [2 * bound], wait=wait)
                    other.update_priorities("main", keys, [3 * bound], wait=wait)
                    other.flush()
                assert len(told) == 1
                assert f"{2 * bound:g}" in str(told[0].message)
                assert f"{bound:.4g}" in str(told[0].message)
                assert told[0].filename == __file__
        assert server.stats().counters["masses_saturated"] == 4


def test_a_create_above_the_bound_is_a_warning_once():
    """Given items created with such priorities, by either call. Expect the same warning."""
    with Server([table("main", 1.0)], "loopback://") as server, Client(server.address) as client:
        writer = client.writer("main")
        for _ in range(4):
            writer.add(**ROW)
            writer.create([], [])
        with pytest.warns(RuntimeWarning, match="divide priorities") as told:
            writer.create([0], [0], [1e12])
            writer.create([0], [1], [1e12])
        writer.flush()
        assert len(told) == 1 and told[0].filename == __file__
        with client.writer("main") as other:
            ready = other.add(**ROW)
            with pytest.warns(RuntimeWarning, match="divide priorities") as told:
                other.create_items(ready, [1e12] * len(ready.steps))
            assert len(told) == 1 and told[0].filename == __file__


def test_plain_rows_above_the_bound_are_a_warning_once():
    """Given rows stored with such priorities. Expect the same warning, at the call that stores."""
    rows = {c.name: np.asarray(ROW[c.name])[None].repeat(4, 0) for c in SPEC}
    with Server([table("main", 1.0)], "loopback://") as server, Client(server.address) as client:
        with pytest.warns(RuntimeWarning, match=r"priorities\[2\] is 1e\+12.*divide") as told:
            client.extend("main", rows, [1.0, 2.0, 1e12, 1e12])
            client.extend("main", rows, [1e12] * 4)
        assert len(told) == 1 and told[0].filename == __file__


def test_looking_a_table_up_takes_nothing_of_a_calls_time():
    """Given a client that never used a table, and calls that may take no time. Expect what is asked
    to be the only thing that has none."""
    with Server([table("main", 1.0)], "udp://127.0.0.1:0") as server:
        with Client(server.address) as client, client.writer("main") as writer:
            writer.add(**ROW)
        for _ in range(20):
            with Client(server.address) as client:
                try:
                    client.sample("main", 1, timeout=0)
                except Timeout as error:
                    assert "looking up" not in str(error)


@pytest.mark.parametrize(("given", "looked"), [(0, 1.0), (0.05, 1.0), (1.5, 1.5)])
def test_looking_a_table_up_ends_with_the_calls_time_where_nobody_answers(
    monkeypatch, given, looked
):
    """Given a server that is gone, a client of much patience, and a call of little. Expect Timeout,
    and the look-up to have had the call's own time or a second, not the client's."""
    times: list[float] = []
    with Server([table("main", 1.0)], "udp://127.0.0.1:0") as server:
        client = Client(server.address, timeout=4.0)
        look_up = client._look_up

        def noted(name, timeout=None):
            times.append(timeout)
            return look_up(name, timeout)

        monkeypatch.setattr(client, "_look_up", noted)
    with pytest.raises(Timeout):
        client.sample("main", 1, timeout=given)
    assert times == [looked]
    client.close(timeout=0)
