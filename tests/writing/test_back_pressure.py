"""Back-pressure reaches whoever steps the environment: what a writer takes beyond what the server
acknowledged is bounded, an actor says how far ahead it is, and ends where a bound is passed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from environments import ChainEnv
from test_waiting_writer import push

from actor.bounds import Ahead, ahead_of
from actor.waiting_writer import WaitingWriter
from replay_server import (
    Client,
    ConfigError,
    LimiterBlocked,
    MinSize,
    NStep,
    OverBudget,
    ReplayError,
    SamplesPerInsert,
    Server,
    Table,
    Timeout,
    spec_from,
)


def table(limiter=None, **other):
    described = {"capacity": 100_000, "streams": 8, **other}
    if limiter:
        described["limiter"] = limiter
    return Table("main", step=spec_from(ChainEnv()), plan=NStep(1), **described)


def calm(streams):
    """One step of `streams` environments."""
    none = np.zeros(streams, np.bool_)
    return {
        "observation": np.ones(streams, np.int64),
        "action": np.zeros(streams, np.int64),
        "reward": np.ones(streams, np.float32),
        "terminated": none,
        "truncated": none,
    }


@pytest.mark.parametrize(("streams", "chosen"), [(8, None), (1, None), (8, 64), (1, 200)])
@pytest.mark.parametrize("url", ["loopback://", "udp://127.0.0.1:0"])
def test_a_limiter_that_blocks_blocks_who_adds(url, streams, chosen):
    """Given a limiter that lets 2 000 items in, no learner, and a loop that adds for ever. Expect
    it to stop within the bound, by default what the limiter's bounds lie apart, and no further."""
    limiter = SamplesPerInsert(8.0, 1000, 8000.0)
    with Server([table(limiter)], url) as server, Client(server.address) as client:
        writer = client.writer(
            "main", streams, autoreset="disabled", unacknowledged_max=chosen, timeout=10.0
        )
        writer.timeout, added, blocked = 0.2, 0, None
        while blocked is None and added < 30_000:
            try:
                writer.add_batch(**calm(streams))
            except LimiterBlocked as error:
                blocked = error
            except Timeout:
                continue  # an answer that took its time: nothing was taken
            else:
                added += streams
                if added % (50 * streams) == 0 or chosen:
                    state = writer.state()
                    assert state.unacknowledged <= state.unacknowledged_max
        state = writer.state()
        look = ahead_of(state, client.table("main"))
        look.check()
        assert "nothing of this call was taken" in str(blocked)
        share = 100_000 // 16 // 4  # less than the 2 000 that the bounds lie apart
        assert state.unacknowledged_max == (share if chosen is None else chosen)
        assert added <= 2_000 + 2 * streams + state.unacknowledged_max
        assert added >= 2_000 and look.steps <= look.steps_max
        writer.link.close(0.0)


@pytest.mark.parametrize(
    ("limiter", "streams", "most"),
    [
        (SamplesPerInsert(8.0, 1000, 400.0), 1, 100),
        (SamplesPerInsert(8.0, 1000, 100.0), 8, 64),
        (SamplesPerInsert(0.3, 10, 2.0), 1, 14),
        (SamplesPerInsert(1e-6, 10, 1e6), 1, 100_000 // 16 // 4),
        (MinSize(1), 1, None),
    ],
)
def test_how_far_ahead_a_writer_is_by_default(limiter, streams, most):
    """Given limiters. Expect as many rows as their bounds lie apart, eight a stream at least,
    its share of the table at most, and what the window allows where nothing limits."""
    with (
        Server([table(limiter)]) as server,
        Client(server.address) as client,
        client.writer("main", streams, autoreset="disabled") as writer,
    ):
        expected = 2 * writer.window + writer._block.rows_max if most is None else most
        assert writer.state().unacknowledged_max == expected


@pytest.mark.parametrize(
    ("capacity", "writers", "streams", "limiter", "most"),
    [
        (64, 2, 1, SamplesPerInsert(1, 1, 8), 8),
        (256, 4, 1, SamplesPerInsert(1, 8, 8), 8),
        (1024, 4, 1, SamplesPerInsert(1, 50, 40), 16),
        (1000, 1, 8, SamplesPerInsert(1, 100, 64), 64),
        (4096, 4, 1, SamplesPerInsert(1, 100, 64), 64),
    ],
)
def test_on_a_small_table_nobody_runs_further_ahead(capacity, writers, streams, limiter, most):
    """Given a table whose window is less than its limiter's bounds lie apart, no learner, and a
    loop that adds for ever. Expect it to stop with no more rows unstored than
    docs/concepts.md says."""
    small = table(limiter, capacity=capacity, writers=writers, streams=streams)
    with Server([small], "loopback://") as server, Client(server.address) as client:
        writer = client.writer("main", streams, autoreset="disabled")
        writer.timeout, added, blocked = 0.2, 0, False
        while not blocked and added < 2000:
            try:
                writer.add_batch(**calm(streams))
                added += streams
            except LimiterBlocked:
                blocked = True
        state = writer.state()
        assert blocked and state.unacknowledged_max == most
        assert 0 < added - state.steps_stored <= most
        writer.link.close(0.0)


@pytest.mark.parametrize("wrong", [0, 15, 1 << 40])
def test_a_bound_that_cannot_be_is_refused(wrong):
    """Given a bound that holds not even a few steps of two environments. Expect ConfigError."""
    with (
        Server([table()]) as server,
        Client(server.address) as client,
        pytest.raises(ConfigError, match="from 16 to"),
    ):
        client.writer("main", 2, autoreset="disabled", unacknowledged_max=wrong)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 8.0])
@pytest.mark.parametrize("bounds", [None, (-10.0, 50.0), (40.0, 110.0)])
def test_what_the_limiter_lets_in_is_within_the_bound(ratio, bounds):
    """Given a table at its fullest: to its bound, or to the minimum size and past it by the largest
    message that a client sends. Expect the actor not to be blamed for it, but for more."""
    least, _, low, high = SamplesPerInsert(ratio, 100, bounds)._bounds()
    message = max(1, int((high - low) / (2 * ratio)))
    most = max(int(high / ratio), least - 1 + message)
    state = SimpleNamespace(unacknowledged=64, unacknowledged_max=64)
    full = SimpleNamespace(
        samples_per_insert=ratio,
        min_size=least,
        error_min=low,
        error_max=high,
        sampled=0,
        fifo=False,
    )
    full.inserted = most
    ahead_of(state, full).check()
    full.inserted = most + 3
    with pytest.raises(ReplayError, match="back-pressure failed"):
        ahead_of(state, full).check()


def test_a_queue_is_no_ratio():
    """Given a queue with more in it than it may take now, since its server came back with a smaller
    one. Expect the actor to be held to its unacknowledged rows alone."""
    queue = SimpleNamespace(samples_per_insert=1.0, error_max=64.0, count=500, fifo=True)
    look = ahead_of(SimpleNamespace(unacknowledged=64, unacknowledged_max=64), queue)
    assert look.steps is None and look.steps_max is None
    look.check()
    with pytest.raises(ReplayError, match="rows are not acknowledged"):
        ahead_of(SimpleNamespace(unacknowledged=65, unacknowledged_max=64), queue).check()


def test_a_bound_past_is_a_sentence():
    """Given numbers past each bound. Expect an error that names them."""
    Ahead(64, 64, 10.0, 10.0).check()
    Ahead(64, 64, None, None).check()
    with pytest.raises(ReplayError, match="65 rows are not acknowledged and 64 may be"):
        Ahead(65, 64, None, None).check()
    with pytest.raises(ReplayError, match="11 steps ahead of the limiter and may be 10"):
        Ahead(64, 64, 11.0, 10.0).check()


def test_a_server_that_is_gone_is_noticed_while_rows_are_still_taken(monkeypatch):
    """Given a server that stops, and a writer with room for a hundred thousand rows. Expect a
    sentence and Timeout where acknowledgements stop, not where the room does."""
    monkeypatch.setattr("actor.waiting_writer.QUIET_S", 0.1)
    monkeypatch.setattr("actor.waiting_writer.SILENCE_S", 0.3)
    said, number = [], 0
    server = Server([table()], "udp://127.0.0.1:0")
    client = Client(server.address)
    writer = client.writer("main", 1, unacknowledged_max=100_000)
    patient = WaitingWriter(writer, 60.0, stopped=lambda: False, say=said.append)
    for number in range(100):
        push(patient, number)
    patient.flush()
    server._service.close()  # as if killed: it says goodbye to nobody
    with pytest.raises(Timeout, match=r"rows are not acknowledged, none for .* is the server"):
        for number in range(100, 100_000):
            push(patient, number)
            if number % 10 == 0:
                patient.send()
    state = writer.state()
    assert state.unacknowledged < state.unacknowledged_max // 2
    assert any("the server is silent" in sentence for sentence in said)
    writer.link.close(0.0)
    client.close(0.0)


def test_a_batch_that_no_limiter_would_admit_is_refused_at_once():
    """Given a limiter whose bounds lie 50 draws apart, and batches of 50 and 51. Expect the larger
    ones refused when they are asked for, with what would do."""
    limiter = SamplesPerInsert(0.25, 1000, 25.0)
    with Server([table(limiter)]) as server, Client(server.address) as client:
        client.batches("main", 50).close()
        with pytest.raises(OverBudget, match=r"51 .* at most 50 .* error_buffer of 26 at least"):
            client.batches("main", 51)
        with pytest.raises(OverBudget, match="at most 50"):
            client.landing("main", 51)
        with pytest.raises(OverBudget, match=r"51 .* at most 50 .* error_buffer of 26 at least"):
            client.sample("main", 51)
    wider = SamplesPerInsert(0.25, 1000, 26.0)
    with Server([table(wider)]) as server, Client(server.address) as client:
        client.batches("main", 51).close()
