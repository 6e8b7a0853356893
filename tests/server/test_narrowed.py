"""A server that comes back with a narrower limiter, and a client that knew the old one."""

from __future__ import annotations

import threading

import numpy as np

from replay_server import Client, Column, ReplayError, Row, SamplesPerInsert, Server, Spec, Table

SPEC = Spec((Column("x", np.float32, (2,)),))  # so small that a datagram holds many


def drawing(address, ended):
    """Draws as long as it may, so that the limiter lets more in."""
    with Client(address) as client:
        while not ended.is_set():
            try:
                client.sample("main", 20, timeout=0.1)
            except ReplayError:  # held back for a moment
                continue


def test_a_client_that_only_drew_may_write_after_the_limiter_was_narrowed(tmp_path):
    """Given a client with no writer's place, whose session outlives the server, which comes back
    with a limiter that admits less at once. Expect its first extend to go by the new one."""

    def table(most):
        limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=(0.0, most))
        return Table("main", SPEC, Row(), 100_000, limiter=limiter)

    region, ended = str(tmp_path / "region"), threading.Event()
    with Server([table(4000.0)], "udp://127.0.0.1:0", region=region) as server:
        address = server.address
        client = Client(address, timeout=20.0)
        with Client(address) as other:
            other.extend("main", {"x": np.ones((100, 2), np.float32)})
        assert len(client.sample("main", 10).keys) == 10
    with Server([table(50.0)], address, region=region) as server, client:
        assert server.attached
        thread = threading.Thread(target=drawing, args=(address, ended))
        thread.start()
        try:
            rows = {"x": np.ones((1000, 2), np.float32)}
            assert len(client.extend("main", rows)) == 1000
        finally:
            ended.set()
            thread.join()
