"""What one thread does by itself: it adds, samples, and asks; what it added counts for it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from replay_server import Client, Column, ConfigError, MinSize, NStep, Server, Spec, Table

STEPS = Spec(
    (
        Column("observation", np.float32, (2,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
PLAIN = Spec((Column("x", np.int64),))


@pytest.mark.parametrize("url", ["loopback://", "udp://127.0.0.1:0"])
def test_a_sample_that_waits_makes_items_of_what_its_thread_added(url):
    """Given exactly as many ready anchors as the minimum. Expect a batch: the newest one is held
    back for the caller, who is waiting for it."""
    table = Table("m", step=STEPS, plan=NStep(1), capacity=256, limiter=MinSize(20))
    with Server([table], url) as server, Client(server.address, timeout=2) as client:
        writer, ready = client.writer("m"), 0
        while ready < 20:
            step = {"action": 0, "reward": 1.0, "terminated": False, "truncated": False}
            ready += len(writer.add(observation=np.full(2, ready, np.float32), **step))
        assert len(client.sample("m", 8)) == 8
        assert writer.flush().items_created == 20
        writer.close()


def test_can_sample_says_what_sample_does_once_the_minimum_was_reached():
    table = Table("m", step=PLAIN, capacity=256, limiter=MinSize(100))
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        keys = client.extend("m", {"x": np.arange(99)})
        assert not client.can_sample("m", 8)
        client.extend("m", {"x": np.arange(1)})
        client.update_priorities("m", keys[:50], np.zeros(50))
        assert client.size("m") == 50 and client.can_sample("m", 8)
        assert len(client.sample("m", 8)) == 8
        client.reset("m")
        assert not client.can_sample("m", 8)


def test_weights_of_any_buffer_travel_whole():
    buffers = [
        np.arange(1, 5, dtype=np.float64),
        memoryview(np.arange(1, 5, dtype=np.float32)),
        bytearray(b"abc"),
        np.ones((2, 3), np.uint8),
        np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2],
    ]
    table = Table("m", step=PLAIN)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        for buffer in buffers:
            client.publish_weights(buffer)
            assert client.pull_weights()[1] == memoryview(buffer).tobytes()
        for nothing in (b"", np.zeros((0, 3)), "text", 5):
            with pytest.raises(ConfigError, match="weights"):
                client.publish_weights(nothing)


def test_two_threads_do_not_take_from_one_batches():
    """Given batches that this thread takes. Expect the sentence in another; this one goes on."""
    told = []
    with Server([Table("m", step=PLAIN)], "udp://127.0.0.1:0") as server:
        client = Client(server.address)
        client.extend("m", {"x": np.arange(64)})

        def take(batches):
            with pytest.raises(ConfigError, match="belong to thread") as refused:
                next(batches)
            told.append(refused.value)

        with client, client.batches("m", 8) as batches:
            next(batches)
            thread = threading.Thread(target=take, args=(batches,))
            thread.start()
            thread.join()
            assert len(told) == 1 and len(next(batches)) == 8
