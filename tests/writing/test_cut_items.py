"""An episode that is cut behind a step makes the items that are left, each once, and no other.

The core creates items at the end of a block by a rule of its own (native/drive/link_block.c). What
a caller left out, and what was made a step before, is not made by the cut.
"""

from __future__ import annotations

import numpy as np
import pytest

from replay_server import Client, Column, NStep, Server, Spec, Table

SPEC = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)


@pytest.fixture(params=[1, 2, 3])
def served(request):
    table = Table("main", step=SPEC, plan=NStep(request.param), capacity=4000)
    with Server([table]) as server, Client(server.address) as client:
        yield server, client, request.param


def seen(number):
    return np.full(3, number, np.float32)


def add(writer, number, truncated=False):
    return writer.add(
        observation=seen(number),
        action=number,
        reward=1.0,
        terminated=False,
        truncated=truncated,
        next_observation=seen(number + 1),
    )


ENDS = {
    "truncated": lambda writer, length: None,  # its last step said so
    "restart": lambda writer, length: writer.restart(final_observation=seen(length)),
    "unannounced": lambda writer, length: add(writer, 100),
}


@pytest.mark.filterwarnings("ignore:stream 0. a step does not begin where")
@pytest.mark.parametrize("end", ENDS)
def test_what_the_caller_left_out_stays_out(served, end):
    """Given a caller who wants the first item alone, and an episode of 8. Expect no item that was
    ready before the end, and those that the end made ready unless the caller was asked for them."""
    _, client, reach = served
    with client.writer("main") as writer:
        for number in range(8):
            ready = add(writer, number, end == "truncated" and number == 7)
            first = ready.steps < 1
            writer.create(ready.streams[first], ready.steps[first], np.full(first.sum(), 5.0))
        ENDS[end](writer, 8)
        writer.create([], [])
        writer.flush()
        drawn = client.sample("main", 500, uniform=1.0)["action"]
    left = set() if end == "truncated" else set(range(8 - reach, 8))
    assert set(drawn[:, 0].tolist()) == {0} | left


@pytest.mark.parametrize("length", [1, 2, 3, 4, 8])
def test_each_item_is_made_once(served, length):
    """Given three streams, cut two at a time. Expect an item a step, and none asked for twice."""
    server, client, _ = served
    with client.writer("main", streams=3, autoreset="disabled") as writer:
        at = np.zeros((3, 3), np.float32)
        for episode in range(10):
            for _ in range(length):
                writer.add_batch(
                    observation=at,
                    action=np.zeros(3, np.int64),
                    reward=np.ones(3),
                    terminated=np.zeros(3, np.bool_),
                    truncated=np.zeros(3, np.bool_),
                    next_observation=at + 1,
                )
                at = at + 1
            mask = np.array([True, episode % 2 == 0, False])
            writer.restart(mask, at)
            at[mask] = -1000 * episode
        writer.restart(np.ones(3, np.bool_), at)
        state = writer.flush()
    counters = server.counters()
    assert counters["items_existed"] == 0
    assert state.items_created == client.size("main") == 3 * 10 * length
