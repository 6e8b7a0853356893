"""A learner that was silent for longer than the server waits: its priorities are set all the same.

Real sockets; that a session was given up is read off the server's counter, with a bound.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from silent import Silent
from until import until

from replay_server import Client, Column, Prioritized, Row, Server, Spec, Table
from replay_server.errors import SessionExpired

SPEC = Spec((Column("observation", np.float32, (2,)),))
COUNT = 40


@pytest.fixture
def served():
    """A server with little patience, and (a learner, the keys of all items); nobody else is in."""
    table = Table("main", SPEC, Row(), 4096, sampler=Prioritized(1.0))
    with Server([table], "udp://127.0.0.1:0", idle_ms=300) as server:
        with Client(server.address) as client:
            keys = client.extend("main", {"observation": np.zeros((COUNT, 2), np.float32)})
        with Silent(server.address) as learner:
            learner.sample("main", 4)
            yield server, learner, keys


def given_up(server):
    """Waits, and says nothing to the server, until it has given the learner's session up."""
    before = server.counters()["sessions_expired"]
    until(lambda: server.counters()["sessions_expired"] > before, "the session is given up")


def priorities(learner, keys):
    """Of these items, by the mass of each drawn of a thousand."""
    batch = learner.sample("main", 1000, uniform=1.0)
    assert set(batch.keys) <= set(keys)
    return set((batch.masses / 2.0**26).tolist())


@pytest.mark.parametrize("wait", [True, False])
def test_priorities_of_a_learner_that_was_silent_are_set(served, wait):
    """Given a session that the server gave up between a sample and its priorities, waited for or
    queued, twice. Expect all of them set, each time, and no word."""
    server, learner, keys = served
    for priority in (5.0, 7.0):
        given_up(server)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = (
                learner.update_priorities("main", keys, np.full(COUNT, priority), wait=wait)
                + learner.flush()
            )
        assert (result.applied, result.stale, result.unknown) == (COUNT, 0, 0)
        assert priorities(learner, keys) == {priority}
    counters = server.counters()
    assert counters["sessions_expired"] >= 2 and counters["priorities_applied"] == 2 * COUNT


@pytest.mark.parametrize("end", ["flush", "close"])
def test_queued_priorities_that_went_with_the_session_are_counted(served, end):
    """Given priorities queued in a session that has gone unnoticed. Expect how many in the error of
    flush, or in the warning of close, no word of writers, and the same call to set them then."""
    server, learner, keys = served
    given_up(server)
    learner._updates._doubtful = math.inf
    learner.update_priorities("main", keys, np.full(COUNT, 5.0), wait=False)
    if end == "close":
        with pytest.warns(RuntimeWarning, match=f"closed with {COUNT} queued priorities"):
            learner.close()
        return
    with pytest.raises(SessionExpired, match=f"{COUNT} queued priorities may not be set") as told:
        learner.flush()
    assert "writer" not in str(told.value) and "update_priorities again" in str(told.value)
    learner.update_priorities("main", keys, np.full(COUNT, 5.0), wait=False)
    assert learner.flush().applied == COUNT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.close()
