"""The buffer that learning through the server is compared with: item by item, the server's own."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning.buffer import Buffer
from benchmarks.learning.run import difference, on_grid
from replay_server import Client, Column, MinSize, NStep, Server, Spec, Table
from replay_server.writing.autoreset import Rows

STREAMS, CALLS = 3, 120


def spec_of(shape):
    """A step of this observation."""
    return Spec(
        (
            Column("observation", np.uint8, shape),
            Column("action", np.int64),
            Column("reward", np.float32),
            Column("terminated", np.bool_),
        )
    )


def rows_of(rng, spec):
    """One row in some streams, of which some end."""
    streams = np.flatnonzero(rng.random(STREAMS) < 0.8)
    ends = rng.random(len(streams)) < 0.25
    terminated = ends & (rng.random(len(streams)) < 0.5)
    shape = spec["observation"].shape
    columns = {
        "observation": rng.integers(1, 255, (len(streams), *shape)).astype(np.uint8),
        "action": rng.integers(0, 9, len(streams)),
        "reward": rng.standard_normal(len(streams)).astype(np.float32),
        "terminated": terminated,
    }
    closing = {"observation": rng.integers(1, 255, (ends.sum(), *shape)).astype(np.uint8)}
    ending = np.where(terminated, 1, np.where(ends, 2, 0)).astype(np.uint8)
    started = np.zeros(STREAMS, np.bool_)
    return Rows(streams, columns, ending, streams[ends], closing, started)


@pytest.mark.parametrize(("n", "stack"), [(1, 1), (3, 1), (3, 4), (1, 2)])
def test_each_item_is_the_servers(n, stack):
    """Given the same rows in the server's table and in the buffer. Expect every item to hold the
    same bytes in both: windows cut at the end, stacks with nothing before the start."""
    rng, spec, plan = np.random.default_rng(n * 10 + stack), spec_of((2, 2)), NStep(n, stack=stack)
    buffer = Buffer(spec, plan, STREAMS, 1000, batch=4, alpha=0.6, beta=lambda: 0.4, rng=rng)
    table = Table("main", spec, plan, 10_000, limiter=MinSize(1), streams=STREAMS)
    with (
        Server([table], "loopback://") as server,
        Client(server.address) as client,
        client.writer("main", STREAMS, autoreset="disabled") as writer,
    ):
        for _ in range(CALLS):
            rows = rows_of(rng, spec)
            ready = buffer.append(rows)
            theirs = writer.append(rows)
            assert np.array_equal(ready.steps, theirs.steps)
            if len(ready):
                priorities = rng.uniform(0.1, 2.0, len(ready))
                buffer.create(ready.streams, ready.steps, priorities)
                writer.create(ready.streams, ready.steps, priorities)
        writer.flush()
        ledger = {(s, t): key for t, key, s, _ in writer.ledger().tolist()}
        drawn = np.arange(buffer.items)
        places = zip(buffer.stream[drawn].tolist(), buffer.step[drawn].tolist(), strict=True)
        found = client.get("main", np.array([ledger[place] for place in places], np.uint64))
        assert buffer.items == client.table("main").count > 100 and found.valid.all()
        ahead = buffer._ahead(drawn)
        assert np.array_equal(np.minimum(found.ahead, n), ahead)
        for name in spec.names:
            assert np.array_equal(buffer._gather(name, drawn, ahead), found.data[name]), name


def test_draws_and_weights_are_those_of_the_formula():
    """Given priorities, and new ones for some. Expect frequencies of priority^alpha (chi-square),
    and weights of (N P)^-beta by the largest of the batch."""
    rng, spec = np.random.default_rng(4), spec_of(())
    buffer = Buffer(spec, NStep(1), 1, 100, batch=200, alpha=0.5, beta=lambda: 0.7, rng=rng)
    buffer.items = 8
    buffer.end[0, :9], buffer.step[:8] = 8, np.arange(8)
    buffer.mass[:8] = 1.0
    batch = buffer.sample()
    priorities = np.arange(1.0, 201.0)
    buffer.update(batch, priorities)
    odds = buffer.mass[:8] / buffer.mass[:8].sum()
    last = {int(key): p for key, p in zip(batch.keys, priorities, strict=True)}
    assert np.allclose(buffer.mass[:8], [np.sqrt(last[i]) for i in range(8)])
    counts = np.zeros(8)
    for _ in range(100):
        batch = buffer.sample()
        counts += np.bincount(np.asarray(batch.keys, np.int64), minlength=8)
    expected = 20_000 * odds
    assert ((counts - expected) ** 2 / expected).sum() < 24.32  # p = 0.001, 7 degrees
    weights = (8 * odds[np.asarray(batch.keys, np.int64)]) ** -0.7
    assert np.allclose(batch.weights, weights / weights.max(), rtol=1e-5)


def test_the_difference_is_of_the_seeds_means():
    """Given curves of which one side has nine tenths of the other in each seed. Expect -10 %, in an
    interval of no width; and of seeds that differ, one that holds it."""
    rng = np.random.default_rng(1)
    other = rng.uniform(50, 60, (10, 5))
    middle, low, high = difference({"server": 0.9 * other, "process": other})
    assert (middle, low, high) == pytest.approx((-0.1, -0.1, -0.1))
    noisy = 0.9 * other + rng.normal(0, 10, other.shape)
    middle, low, high = difference({"server": noisy, "process": other})
    assert low < middle < high and low < -0.1 < high
    assert on_grid([(0, 1.0), (10, 3.0)], np.array([5.0, 20.0])).tolist() == [2.0, 3.0]
