"""Items created in bulk, long after their steps, in a table whose limiter counts them first."""

from __future__ import annotations

import numpy as np
import pytest

from replay_server import Client, Column, NStep, SamplesPerInsert, Server, Spec, Table

STEPS, CREATES = 20000, 8000
SPEC = Spec(
    (
        Column("observation", np.float32, (1,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)


@pytest.mark.parametrize("url", ["zmq+tcp://127.0.0.1:0", "udp://127.0.0.1:0?mtu=65504"])
def test_creates_in_bulk_are_made_under_a_limiter(url):
    """Given 20000 steps of one episode without items. Expect 8000 items at rows that jump."""
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1e6)
    table = Table("main", step=SPEC, plan=NStep(3), capacity=32768, writers=1, limiter=limiter)
    steps = np.random.default_rng(1).permutation(STEPS - 10)[:CREATES]
    row = {"observation": np.zeros(1, np.float32), "action": 0, "reward": 1.0}
    row |= {"terminated": False, "truncated": False, "next_observation": row["observation"]}
    with Server([table], url) as server, Client(server.address) as client:
        writer = client.writer("main")
        for _ in range(STEPS):
            writer.add(**row)
            writer.create([], [])  # the caller's, and made below
        writer.create(np.zeros(CREATES, int), steps)
        writer.flush(timeout=60)
        assert writer.state().items_created == CREATES
        assert writer.state().items_failed == 0
