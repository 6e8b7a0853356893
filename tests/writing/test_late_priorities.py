"""create_items that comes late: what it names is made with its priorities, or it is told.

Real sockets. What is waited for is counted, with a bound; KEPT_S is shortened, never slept through.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    LimiterBlocked,
    MinSize,
    NStep,
    Prioritized,
    Server,
    Spec,
    Table,
)
from replay_server import writer as writer_module

SPEC = Spec(
    (
        Column("observation", np.float32, (2,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
BOUND_S = 20.0
MADE = "create_items for items that exist already: .* client.update_priorities"
NONE = np.zeros(0, np.int64)


@pytest.fixture
def served(request):
    """A prioritised table over UDP, and the client of its writer."""
    limiter = MinSize(getattr(request, "param", 1))
    table = Table("main", SPEC, NStep(1), 4096, sampler=Prioritized(1.0), limiter=limiter)
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        yield server, client


def add(writer, number, terminated=False):
    seen = np.full(2, number, np.float32)
    return writer.add(
        observation=seen,
        action=number,
        reward=0.0,
        terminated=terminated,
        truncated=False,
        next_observation=seen + 1,
    )


def poll(client):
    """Calls of the client until rows that waited so long must have left, whatever was asked."""
    until = time.monotonic() + 2 * writer_module.HOLD_S
    while time.monotonic() < until:
        assert client.weights_version == 0


def priorities(client):
    """{action: priority} of all items."""
    batch = client.sample("main", 400, uniform=1.0)
    masses = batch.masses / 2.0**26
    return dict(zip(batch["action"][:, 0].tolist(), masses.tolist(), strict=True))


CALLS = {
    "poll": lambda writer, client: poll(client),
    "send": lambda writer, client: (writer.send(), poll(client)),
    "size": lambda writer, client: (client.size("main"), poll(client)),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_the_caller_creates_waits_for_the_caller(served, monkeypatch, name):
    """Given a caller that has created items, and other calls between add and create_items for as
    long as they like. Expect each of its priorities, and no word."""
    monkeypatch.setattr(writer_module, "KEPT_S", 0.0)
    server, client = served
    with client.writer("main") as writer, warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.create([], [])
        for number in range(5):
            ready = add(writer, number, number == 4)
            CALLS[name](writer, client)
            writer.create_items(ready, np.full(len(ready), 5.0))
        assert writer.flush().items_created == 5
        assert priorities(client) == dict.fromkeys(range(5), 5.0)
        # but a datagram that is sent again asks for its items twice
        again = client.counters()["retransmissions"]
        assert server.counters()["items_existed"] <= 5 * again


@pytest.mark.parametrize("served", [3], indirect=True)
def test_a_sample_that_waits_leaves_the_callers_anchors_alone(served):
    """Given samples that are held back between add and create_items. Expect its priorities."""
    _, client = served
    with client.writer("main") as writer:
        writer.create([], [])
        for number in range(5):
            ready = add(writer, number, number == 4)
            try:
                client.sample("main", 1, timeout=0.05)
            except LimiterBlocked:
                assert number < 4
            writer.create_items(ready, np.full(len(ready), 5.0))
        writer.flush()
        assert priorities(client) == dict.fromkeys(range(5), 5.0)


def test_none_of_these_is_what_it_says(served, monkeypatch):
    """Given create_items of nothing, after polls. Expect no items, and later those asked for."""
    monkeypatch.setattr(writer_module, "KEPT_S", 0.0)
    _, client = served
    with client.writer("main") as writer, warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(6):
            add(writer, number, number == 5)
            if number:
                poll(client)
            writer.create(NONE, NONE)
        assert writer.flush().items_created == 0
        writer.create([0, 0], [1, 3], [7.0, 9.0])
        writer.create([0], [2], [8.0])  # left out before
        assert writer.flush().items_created == 3
        assert priorities(client) == {1: 7.0, 2: 8.0, 3: 9.0}


EARLIER = {
    "twice": lambda writer, ready: writer.create_items(ready, np.ones(len(ready))),
    "flush": lambda writer, ready: writer.flush(),
}


@pytest.mark.parametrize("name", EARLIER)
def test_items_that_exist_are_told_and_not_counted_again(served, name):
    """Given create_items after the items were made: by an earlier one, or by flush. Expect a
    warning each time, and as many items counted as there are."""
    server, client = served
    with client.writer("main") as writer:
        writer.create(NONE, NONE)
        for number in range(5):
            ready = add(writer, number, number == 4)
            EARLIER[name](writer, ready)
            if len(ready):
                with pytest.warns(RuntimeWarning, match=MADE) as told:
                    writer.create_items(ready, np.full(len(ready), 5.0))
                assert len(told) == 1 and told[0].filename == __file__
        state = writer.flush()
        assert (state.items_posted, state.items_created, state.items_failed) == (5, 5, 0)
        assert priorities(client) == dict.fromkeys(range(5), 1.0)
        assert server.counters()["items_existed"] == 0


def test_items_of_the_step_before_are_told_and_the_rest_is_made(served):
    """Given create_items of what the last two steps made ready. Expect the older one told, the
    newer made with its priority; and a word where none is wanted and all were made."""
    _, client = served
    with client.writer("main", 2, autoreset="disabled") as writer:
        for number in range(3):
            seen = np.full((2, 2), number, np.float32)
            kind = {"terminated": np.zeros(2, np.bool_), "truncated": np.zeros(2, np.bool_)}
            writer.add_batch(
                observation=seen,
                action=np.array([number, number + 10]),
                reward=np.zeros(2, np.float32),
                next_observation=seen + 1,
                **kind,
            )
        with pytest.warns(RuntimeWarning, match=MADE):
            writer.create([0, 1, 0, 1], [0, 0, 1, 1], [2.0, 3.0, 4.0, 5.0])
        assert writer.flush().items_created == 4
        assert priorities(client) == {0: 1.0, 10: 1.0, 1: 4.0, 11: 5.0}


@pytest.mark.parametrize("others", [False, True], ids=["left", "created"])
def test_anchors_that_a_create_does_not_name_are_the_callers(served, others):
    """Given a create of one of two anchors, and one of the other without a priority, or none.
    Expect no item there, or one with the largest priority, as docs/writing.md says."""
    _, client = served
    calm = {"terminated": np.zeros(2, np.bool_), "truncated": np.zeros(2, np.bool_)}
    with client.writer("main", 2, autoreset="disabled") as writer:
        for number in range(3):
            seen, actions = np.full((2, 2), number, np.float32), np.array([number, number + 10])
            ready = writer.add_batch(observation=seen, action=actions, reward=np.zeros(2), **calm)
        writer.create(ready.streams[:1], ready.steps[:1], [5.0])
        if others:
            writer.create(ready.streams[1:], ready.steps[1:])
        assert writer.flush().items_created == 3 + others
        assert priorities(client) == {0: 1.0, 10: 1.0, 1: 5.0} | ({11: 5.0} if others else {})


def test_an_anchor_that_a_create_names_twice_stands_for_no_other(served):
    """Given a create of anchors 1, 3 and 3 again, then one of 2. Expect the items of all three,
    and no word: 2 was not made before."""
    _, client = served
    with client.writer("main") as writer:
        for number in range(6):
            add(writer, number)
            writer.create(NONE, NONE)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            writer.create([0, 0, 0], [1, 3, 3], [2.0, 3.0, 3.0])
            writer.create([0], [2], [4.0])
        writer.flush()
        assert {1: 2.0, 2: 4.0, 3: 3.0}.items() <= priorities(client).items()


def test_none_of_these_too_late_is_told(served):
    """Given create_items of nothing after a flush made them. Expect a warning, once a step."""
    _, client = served
    with client.writer("main") as writer:
        add(writer, 0)
        add(writer, 1)
        writer.flush()
        with pytest.warns(RuntimeWarning, match=MADE):
            writer.create(NONE, NONE)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            writer.create(NONE, NONE)


def test_the_first_create_items_of_all_may_be_too_late_and_is_told(served, monkeypatch):
    """Given polls for KEPT_S before a caller creates items the first time. Expect the item made,
    the warning, and the next one with its priority."""
    monkeypatch.setattr(writer_module, "KEPT_S", 0.0)
    _, client = served
    with client.writer("main") as writer:
        add(writer, 0)
        ready, end = add(writer, 1), time.monotonic() + BOUND_S
        while client.size("main") < 1:
            assert time.monotonic() < end
        with pytest.warns(RuntimeWarning, match=MADE):
            writer.create_items(ready, [5.0])
        ready = add(writer, 2)
        poll(client)
        writer.create_items(ready, [6.0])
        assert writer.flush().items_created == 2
        assert priorities(client) == {0: 1.0, 1: 6.0}
