"""client.rows of a server that came back with another plan: its rows, by its own offsets."""

from __future__ import annotations

import contextlib

import numpy as np

from replay_server import Client, Column, Offsets, Server, Spec, Table
from replay_server.writing.autoreset import Rows

SPEC = Spec((Column("x", np.int64), Column("y", np.int64)))
WIDE = Offsets({"x": (-1, 0, 1), "y": (0,)})
NARROW = Offsets({"x": (0,), "y": (0, 1)})


def served(plan, url):
    return Server([Table("m", SPEC, plan, 1024)], url)


def stored(client):
    """Keys of five rows of one episode, in x and y 1 to 5 and 10 to 50."""
    none = np.zeros(0, np.int64)
    with client.writer("m") as writer:
        for number in range(1, 6):
            columns = {"x": np.array([number]), "y": np.array([10 * number])}
            every = np.zeros(1, np.int64)
            open_ = np.zeros(1, np.uint8)
            writer.append(Rows(every, columns, open_, none, {}, np.zeros(1, bool)))
        writer.flush()
        return np.sort(writer.ledger()["key"])


def test_rows_lie_where_the_plan_of_the_server_that_answers_puts_them(monkeypatch):
    """Given a server that is another, with another plan, from one step of the call on to the next.
    Expect the rows of the one that answers, by its plan's offsets, and not by those of before."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(served(WIDE, "udp://127.0.0.1:0"))
        client = stack.enter_context(Client(first.address, timeout=3.0))
        client.table("m")
        get, keys = client.get, []

        def restarted(*args, **named):
            first.close()
            stack.enter_context(served(NARROW, client.address))
            with Client(client.address) as other:
                keys.extend(stored(other).tolist())
            return get(args[0], np.array(keys, np.uint64), **named)

        monkeypatch.setattr(client, "get", restarted)
        rows, valid = client.rows("m", np.ones(5, np.uint64))
        assert valid.all() and rows["x"].tolist() == [1, 2, 3, 4, 5]
        assert rows["y"].tolist() == [10, 20, 30, 40, 50]
