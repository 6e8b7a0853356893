"""The model of ranks, by hand; what it is made from, by real programs."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from benchmarks.scale import ranks
from benchmarks.scale.rank_model import Actors, Learners


def test_actors_end_where_a_core_or_the_server_does():
    """Given a step of 1 ms, and 0.1 ms of the server's. Expect 1000 a second of one, twice as many
    of two that have a core each, 10,000 at most; and on two cores for all what two cores have."""
    model = Actors(1e-3, 1e-4)
    assert model.rate(1) == pytest.approx(1000) and model.rate(2) == pytest.approx(2000)
    assert model.rate(64) == pytest.approx(10_000)
    assert model.rate(64, 2) == pytest.approx(2 / 1.1e-3) and model.rate(1, 2) == model.rate(1)


def test_learners_pay_for_meeting():
    """Given 8 ms of gradients that halve with each doubling, 1 ms of the optimizer, a round of
    0.1 ms, and 1 MB that takes 1 ms. Expect one to meet nobody; two 4 + 1 + 0.4 + 1 ms; on one core
    the shares one after the other; a server that sends a batch in 10 ms the bound."""
    shares = {1: 8e-3, 2: 4e-3}
    model = Learners(100, shares, 1e-3, 1_000_000, 1e-4, 1e9, 1e-6)
    assert model.rate(1) == pytest.approx(1 / 9e-3)
    assert model.rate(2) == pytest.approx(1 / 6.4e-3)
    assert model.rate(2, 1) == pytest.approx(1 / 10.4e-3)
    assert Learners(100, shares, 1e-3, 1_000_000, 1e-4, 1e9, 1e-4).rate(2) == pytest.approx(100)


def test_real_programs(tmp_path):
    """Given CartPole. Expect rates of two actors and of two learners that meet, what the server
    spent on them, and gradients of each share."""
    with ExitStack() as stack:
        host = ranks.Host(ranks.SMALL_WORK, tmp_path, stack)
        for rate, server_s in (host.acted(2), host.learned(2)):
            assert rate > 0 and 0 < server_s < 1e-2
        shares, apply_s, size = ranks.learner_alone(host.work, host.url)
    assert set(shares) == set(ranks.RANKS) and min(shares.values()) > 0 and apply_s > 0
    inner, outer = 4 * 128 + 128, 128 * 128 + 128
    assert size > 4 * (inner + outer)
    latency, width = ranks.all_reduce()
    assert latency > 0 and width > 0
