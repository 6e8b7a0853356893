"""An actor's writer under a limiter: it waits for learners, says so once, and loses nothing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from environments import ChainEnv

from actor.waiting_writer import SILENCE_S, WaitingWriter
from replay_server import (
    Client,
    LimiterBlocked,
    NStep,
    SamplesPerInsert,
    Server,
    Table,
    Timeout,
    spec_from,
)
from replay_server.writing.autoreset import Rows

ROWS = 60


def rows_at(number):
    """One row of one stream in an episode that does not end."""
    columns = {
        "observation": np.array([number % 6]),
        "action": np.zeros(1, np.int64),
        "reward": np.full(1, number, np.float32),
        "terminated": np.zeros(1, np.bool_),
    }
    zero = np.zeros(0, np.int64)
    return Rows(np.zeros(1, np.int64), columns, np.zeros(1, np.uint8), zero, {}, np.zeros(1, bool))


def push(writer, number):
    """A row, and the item whose window it completes."""
    writer.append(rows_at(number))
    if number > 0:
        writer.create(np.array([0]), np.array([number - 1]), np.ones(1))


@pytest.fixture
def held(monkeypatch):
    """A table that admits some ten items more than were sampled, and a client of it."""
    monkeypatch.setattr("actor.waiting_writer.SLICE_S", 0.05)
    limiter = SamplesPerInsert(1.0, min_size=4, error_buffer=(-8.0, 10.0))
    spec = spec_from(ChainEnv())
    table = Table(
        "main", step=spec, plan=NStep(1), capacity=4096, limiter=limiter, streams=1, writers=1
    )
    with Server([table]) as server, Client(server.address) as client:
        yield client


def test_it_waits_for_a_learner_and_everything_arrives(held):
    """Given a learner that samples only when the writer waits. Expect every row and item stored."""
    said = []

    def learn():
        held.sample("main", 8, timeout=1.0)
        return False

    writer = held.writer("main")
    patient = WaitingWriter(writer, 60.0, stopped=learn, say=said.append)
    for number in range(ROWS):
        push(patient, number)
    patient.flush()
    state = writer.state()
    assert (state.steps_stored, state.items_created) == (ROWS, ROWS - 1)
    assert held.size("main") == ROWS - 1
    assert said and all("held back by the table's limiter" in sentence for sentence in said)
    assert not any("this thread" in sentence for sentence in said)  # no loop draws here
    writer.close()


@pytest.mark.parametrize(("patience", "stop"), [(0.0, False), (60.0, True)])
def test_it_gives_up_after_its_patience_or_at_a_signal(held, patience, stop):
    """Given no learner at all. Expect LimiterBlocked, and the rest to go on when there is one."""
    writer = held.writer("main", unacknowledged_max=1000)
    patient = WaitingWriter(writer, patience, stopped=lambda: stop, say=lambda _: None)
    with pytest.raises(LimiterBlocked):
        for number in range(ROWS):
            push(patient, number)
        patient.flush()
    for _ in range(ROWS // 8):
        held.sample("main", 8)
        with contextlib.suppress(LimiterBlocked):
            writer.flush(0.1)
    writer.flush()
    state = writer.state()
    assert state.steps_stored == state.steps_posted and state.items_created == state.items_posted
    writer.close()


def test_a_limiter_at_work_is_not_said_again_and_again(monkeypatch):
    """Given calls that wait, one after another, and time. Expect a sentence for the first, none for
    those within a minute of it, and one for the next."""
    now, blocked, said = [100.0], LimiterBlocked("x", 1, "samples"), []
    monkeypatch.setattr("actor.waiting_writer.time.monotonic", lambda: now[0])
    turns = iter([blocked, None, blocked, None, blocked, blocked, None])

    def call():
        if (turn := next(turns)) is not None:
            raise turn

    inner = SimpleNamespace(streams=1, timeout=None, send=call)
    writer = WaitingWriter(inner, 600.0, lambda: False, said.append)
    for at, count in ((100.0, 1), (159.0, 1), (160.0, 2)):
        now[0] = at
        writer._repeat(call)
        assert len(said) == count and said[-1].startswith("waiting: ")


def test_silence_is_counted_from_the_first_row_under_way(monkeypatch):
    """Given a minute's wait before the first row, as for the first weights. Expect no word of
    that; of a server that stopped, QUIET_S and SILENCE_S after the row."""
    now = [0.0]
    monkeypatch.setattr("actor.waiting_writer.time", SimpleNamespace(monotonic=lambda: now[0]))
    table = Table("main", step=spec_from(ChainEnv()), plan=NStep(1), capacity=4096)
    said: list[str] = []
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        patient = WaitingWriter(client.writer("main"), 60.0, stopped=lambda: False, say=said.append)
        now[0] += 60.0
        server.close()  # so that what is taken stays under way
        patient.append(rows_at(0))
        patient.send()
        now[0] += SILENCE_S - 0.1
        patient.send()
        assert len(said) == 1 and "silent" in said[0]
        now[0] += 0.1
        with pytest.raises(Timeout, match="none for 5"):
            patient.send()
        patient.writer.link.close(0.0)


def test_a_release_lets_one_message_ask_and_not_all(held):
    """Given many small messages that the limiter holds back. Expect each release to be followed
    by few refusals: what is admitted is one message's worth, not all of them."""
    writer = held.writer("main", unacknowledged_max=1000)
    writer.timeout = 0.01
    for number in range(200):
        with contextlib.suppress(LimiterBlocked):
            push(writer, number)
            writer.send()
    for _ in range(200):
        with contextlib.suppress(LimiterBlocked):
            held.sample("main", 8, timeout=0.01)
            writer.flush(0.05)
            break
    counters = held.stats().counters
    assert counters["releases"] > 10
    assert counters["pushes_blocked"] < 4 * counters["releases"], counters
    assert counters["items_created"] == 199
    writer.close()
