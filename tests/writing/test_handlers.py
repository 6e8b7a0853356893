"""A signal's handler that returns, at any point of a call that adds: what it does with the same
client or writer, as a status line or a stop does, changes nothing of what is stored."""

from __future__ import annotations

import numpy as np
import pytest
from test_interrupts import SPEC, interrupted

from replay_server import Client, Column, ConfigError, NStep, Row, Server, Spec, Table

COUNT, EACH = 12, 5

HANDLERS = {
    "size": lambda client, writer: client.size("main"),
    "sample": lambda client, writer: client.sample("main", 2, timeout=0.0),
    "flush": lambda client, writer: writer.flush(),
    "send": lambda client, writer: writer.send(),
}


@pytest.fixture
def hasty(monkeypatch):
    """Rows that wait leave with the next call of the client, however soon that comes."""
    monkeypatch.setattr("replay_server.writer.HOLD_S", 0.0)
    monkeypatch.setattr("replay_server.writer.KEPT_S", 0.0)


def steps_of(number, ends):
    """Step `number` of two environments, which lead to the next number; the first ends there."""
    seen = np.array([[0, number], [1, number]], np.float32)
    last = seen + np.array([0, 1], np.float32)
    over = np.array([ends, False])
    none = np.zeros(2, bool)
    step = {"action": [number, number], "reward": np.ones(2), "terminated": none}
    return {"observation": seen, "next_observation": last, "truncated": over, **step}


def expect_once(client, writer, keys, where):
    """Every step is stored once, in order, and leads to the next number; but for the last, which
    leads nowhere yet. `where` {number: what happened then}."""
    writer.flush()
    batch = client.get("main", [*keys, *writer.ledger()["key"]])
    steps = batch.valid & (batch.ahead > 0)
    seen, acted = batch["observation"][steps], batch["action"][steps][:, 0]
    assert len(seen) > 10
    for stream in range(2):
        mine = seen[:, 0, 0] == stream
        numbers = seen[mine, 0, 1].astype(int)
        wrong = np.flatnonzero(numbers != np.arange(len(numbers)))
        assert not len(wrong), (wrong[0], where.get(wrong[0] // EACH))
        assert (seen[mine, 1, 1] == numbers + 1).all() and (acted[mine] == numbers).all()
    return len(numbers)


CALLS = {
    "add": lambda writer, at: writer.add_batch(**steps_of(at, False)),
    "add an end": lambda writer, at: writer.add_batch(**steps_of(at, True)),
    "send": lambda writer, at: (writer.add_batch(**steps_of(at, False)), writer.send()),
    "flush": lambda writer, at: (writer.add_batch(**steps_of(at, False)), writer.flush()),
    "create": lambda writer, at: writer.create_items(writer.add_batch(**steps_of(at, False))),
    "restart": lambda writer, at: (
        writer.add_batch(**steps_of(at, False)),
        writer.restart([True, False], steps_of(at + 1, False)["observation"]),
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.filterwarnings("ignore")  # of resets that look silent, and of items that exist
def test_a_handler_that_returns_changes_nothing(hasty, call, handler):
    """Given a handler behind each call that `call` makes. Expect what it does to work, or to be
    refused in a sentence; and every step stored once, in order."""
    table = Table("main", SPEC, NStep(1), 1 << 14)
    done, refused, at, where, keys = 0, 0, 0, {}, []
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:
        writer = client.writer("main", 2, autoreset="disabled")

        def handle():
            nonlocal done, refused
            try:
                HANDLERS[handler](client, writer)
                done += 1
            except ConfigError as error:
                assert "set a flag in the handler" in str(error)
                refused += 1

        while not at or where[at - 1] is not None:
            first, at = EACH * at, at + 1
            for number in range(first, first + EACH):
                if number != first + 2:
                    writer.add_batch(**steps_of(number, False))
                    continue
                where[at - 1] = interrupted(at, lambda n=number: call(writer, n), handle)
                if call is CALLS["add an end"]:
                    writer.restart([True, False])  # and it starts where it ended
            keys += writer.ledger()["key"].tolist()
        assert expect_once(client, writer, keys, where) == EACH * at - 1
        writer.close()
    assert at > 20 and done
    assert (refused > 5) == (handler in ("flush", "send"))


def test_a_handler_does_not_add_within_an_add():
    """Given a handler that adds, behind each call that add makes. Expect it refused there, and the
    step that was under way stored."""
    table, refused = Table("main", SPEC, NStep(1), 1 << 12), []
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:
        writer = client.writer("main", 2, autoreset="disabled")
        writer.add_batch(**steps_of(0, False))

        def handle():
            with pytest.raises(ConfigError, match="set a flag in the handler") as told:
                writer.add_batch(**steps_of(900, False))
            refused.append(told)

        for number in range(1, COUNT + 1):  # the first is at its RESUME: not begun
            assert interrupted(
                6 + number, lambda at=number: writer.add_batch(**steps_of(at, False)), handle
            )
        assert expect_once(client, writer, [], {}) == COUNT
        assert len(refused) == COUNT
        writer.close()


def test_a_handler_does_not_extend_within_an_extend():
    """Given a signal's handler that extends, run at each place of an extend in turn. Expect
    ConfigError inside the handler, and the outer rows stored whole."""
    table, count = Table("rows", Spec((Column("x", np.int64),)), Row(), 1 << 12), 0
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:

        def handle():
            nonlocal count
            try:
                client.extend("rows", {"x": [7]})
            except ConfigError as error:
                assert "client.extend is within a call" in str(error)
                count += 1

        at, where = 0, ""
        while where is not None:
            at += 1
            keys = []

            def store(keys=keys, x=(at, -at)):
                keys.extend(client.extend("rows", {"x": x}))

            where = interrupted(at, store, handle)
            assert client.get("rows", keys)["x"][:, 0].tolist() == [at, -at], where
        assert count > 5


def test_a_handler_takes_no_batch_within_next():
    """Given a handler that takes a batch, behind each call that next makes. Expect it refused there
    or a batch of its own; and no batch that is held to change."""
    table, done, refused = Table("main", SPEC, NStep(1), 1 << 12), 0, 0
    with Server([table], "loopback://") as server, Client(server.address, timeout=5) as client:
        with client.writer("main", 2, autoreset="disabled") as writer:
            for number in range(50):
                writer.add_batch(**steps_of(number, False))
        with client.batches("main", 8, prefetch=2, keep=2) as batches:

            def handle():
                nonlocal done, refused
                try:
                    held.append(next(batches))
                    done += 1
                except ConfigError as error:
                    assert "set a flag in the handler" in str(error)
                    refused += 1

            def take():
                held.append(next(batches))

            at, where, held = 0, "", []
            while where is not None:
                at += 1
                where = interrupted(at, take, handle)
                seen = [(batch, batch["observation"].copy()) for batch in held]
                held += [next(batches), next(batches)]
                for batch, copy in seen:
                    assert np.array_equal(batch["observation"], copy), where
                assert len({id(batch.keys) for batch in held}) == len(held), where
                held.clear()
            assert done and refused > 5
