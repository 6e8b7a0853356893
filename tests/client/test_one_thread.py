"""What one thread does by itself: it adds, samples, and asks; what it added counts for it."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest
import torch

from replay_server import (
    Client,
    Column,
    ConfigError,
    LimiterBlocked,
    MinSize,
    NStep,
    OverBudget,
    SamplesPerInsert,
    Server,
    Spec,
    Table,
)

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
    """Given a table one row short of its minimum, then at it, half of its items of priority 0, then
    reset. Expect can_sample to say no, yes and no, and sample to draw where it says yes."""
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


def test_can_sample_refuses_what_no_sample_gets():
    """Given a limiter that admits 16 at once, and a server of batches of 64. Expect OverBudget in
    the words of `sample`, from the first call on, and an answer for what may be."""
    narrow = Table("narrow", PLAIN, capacity=256, limiter=SamplesPerInsert(1.0, 10, 8.0))
    plain = Table("plain", PLAIN, capacity=256)
    with Server([narrow, plain], batch_max=64) as server, Client(server.address) as client:
        for table, least, most in (("narrow", 17, "16 at once"), ("plain", 65, "64 in one batch")):
            for ask in (client.can_sample, client.sample):
                with pytest.raises(OverBudget, match=most):
                    ask(table, least)
            assert not client.can_sample(table, least - 1)
        client.extend("plain", {"x": np.arange(100)})
        assert client.can_sample("plain", 64)


def test_a_poll_refuses_what_no_wait_would_get():
    """Given a poll for more than the limiter admits at once, while rows come in. Expect OverBudget,
    as with a time-out, and for fewer what they wait for."""
    table = Table("m", PLAIN, capacity=1000, limiter=SamplesPerInsert(2.0, 10, 15.0))
    with Server([table]) as server, Client(server.address) as client:
        with pytest.raises(LimiterBlocked):
            client.sample("m", 30, timeout=0)
        client.extend("m", {"x": np.arange(12)})
        for timeout in (0, 0.5):
            with pytest.raises(OverBudget, match="at most 30 at once"):
                client.sample("m", 32, timeout=timeout)


class Interrupted(Exception):
    """What a signal's handler raises."""


def test_an_interrupted_draw_leaves_its_memory_alone():
    """Given a signal while the limiter holds a draw back. Expect its error, and a landing that the
    next draw fills: the request that was under way writes nothing there any more."""

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    table = Table("m", step=PLAIN, capacity=256, limiter=MinSize(8))
    try:
        with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
            landing = client.landing("m", 8)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                client.sample("m", 8, out=landing, timeout=60.0)
            assert landing.raw.ticket == 0
            client.extend("m", {"x": np.full(8, 7)})
            client.ping()  # an answer to the first draw would have come before this one
            assert not landing.keys.any() and not landing.data["x"].any()
            assert (client.sample("m", 8, out=landing)["x"] == 7).all()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_more_priorities_than_a_client_has_room_for_are_set_in_parts():
    """Given more keys than the client's ring of them holds, one of them twice. Expect each counted
    once a part, the last priority kept; and none of them set where one is wrong."""
    count, repeats = 1000, 40
    table = Table("m", step=PLAIN, capacity=4096)
    server = Server([table], "udp://127.0.0.1:0")
    with server, Client(server.address, batch_max=count) as client:
        keys = client.extend("m", {"x": np.arange(count)})
        many = np.tile(np.asarray(keys), repeats)
        told = client.update_priorities("m", many, np.zeros(len(many)))
        assert told.applied >= count and (told.stale, told.unknown) == (0, 0)
        wrong = np.ones(len(many))
        wrong[-1] = np.nan
        with pytest.raises(ConfigError, match=rf"priorities\[{len(many) - 1}\] is nan"):
            client.update_priorities("m", many, wrong)
        assert client.size("m") == 0
        given = np.zeros(len(many))
        given[-1] = 1.0
        client.update_priorities("m", many, given)
        assert client.size("m") == 1 and (client.sample("m", 8).keys == keys[-1]).all()


def test_weights_of_any_buffer_travel_whole():
    """Given arrays of several kinds, one with gaps, and what holds no bytes. Expect each buffer's
    bytes to come back, and the rest refused, a network with what to publish instead."""
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
        net = torch.nn.Linear(4, 2)
        for wrong in (net, net.state_dict(), net.weight, net.weight.detach()):
            with pytest.raises(ConfigError, match=r"torch.save\(net.state_dict.*file.getvalue"):
                client.publish_weights(wrong)


def test_two_threads_do_not_take_from_one_batches():
    """Given batches that this thread takes. Expect the sentence in another; this one goes on."""
    told = []
    with Server([Table("m", step=PLAIN)], "udp://127.0.0.1:0") as server:
        client = Client(server.address)
        client.extend("m", {"x": np.arange(64)})

        def take(batches):
            with pytest.raises(ConfigError, match="belongs to thread") as refused:
                next(batches)
            told.append(refused.value)

        with client, client.batches("m", 8) as batches:
            next(batches)
            thread = threading.Thread(target=take, args=(batches,))
            thread.start()
            thread.join()
            assert len(told) == 1 and len(next(batches)) == 8
