"""What a learner waits for: the limiter, which is by design, or the replay, which is not."""

from __future__ import annotations

import time

from conformance import plain, plain_rows

from replay_server import Client, MinSize, Server

PREFETCH, BOUND_S = 2, 30.0


def test_a_limiter_that_holds_back_is_not_the_replay_being_late():
    """Given 7 of the 10 items that a draw needs. Expect every moment to count as limited once the
    server has said so; and once it is free, none, after the batches that were held back."""
    with (
        Server([plain(limiter=MinSize(10))], "udp://127.0.0.1:0") as server,
        Client(server.address) as client,
    ):
        client.extend("main", plain_rows(7))
        with client.batches("main", 4, prefetch=PREFETCH) as batches:
            until = time.monotonic() + BOUND_S
            while batches.limited == 0.0 and time.monotonic() < until:
                assert batches.get(0.05) is None
            waited, limited = batches.waited, batches.limited
            assert batches.get(0.2) is None
            assert batches.waited == waited and batches.limited > limited > 0.0

            client.extend("main", plain_rows(3))
            for _ in range(PREFETCH):
                assert batches.get(BOUND_S) is not None
            waited, limited = batches.waited, batches.limited
            for _ in range(20):
                assert batches.get(BOUND_S) is not None
            assert batches.limited == limited and batches.waited > waited
