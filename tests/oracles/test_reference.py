"""The reference itself: published vectors, exact arithmetic, and a walk through small cases.

Also the tabular proof against the in-process replay: the formulas and the rows are right, whatever
the server does. test_tabular.py runs the same through the server.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import reference
from environments import ChainEnv
from gymnasium.vector import AutoresetMode
from reference import Random, Recorded, Replay, mass_of, power_constants, solve
from tabular import GAMMA, TOLERANCE, chain, play, train, writable

from replay_server.plans import NStep
from replay_server.spec import spec_from

CONSTANTS = power_constants(Path(__file__).parents[2] / "native/base/power_tables.h")


def test_the_generator_gives_the_published_outputs():
    """Given states whose outputs are published. Expect these from the generator, and from its
    seeding."""
    random = Random(0)
    random.state = [1, 2, 3, 4]
    assert [random.next() for _ in range(4)] == [
        41943041,
        58720359,
        3588806011781223,
        3591011842654386,
    ]
    assert Random(1234567).state[:3] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_bounded_draws_reject_what_would_favour_some_values():
    """Given a bound of 3 * 2^62, where one output in four is thrown away. Expect just that."""
    bound = 3 << 62
    random, plain = Random(5), Random(5)
    for _ in range(200):
        value = random.below(bound)
        while True:
            product = plain.next() * bound
            if product % reference.WORD >= reference.WORD % bound:
                break
        assert value == product >> 64 and value < bound
    assert random.state == plain.state


def test_the_power_is_as_close_as_it_says():
    """Given 2000 priorities and alphas, then 1, 0 and the least double. Expect masses within the
    stated error, exact at 1 and 0, and never 0 for a priority above it."""
    rng = np.random.default_rng(6)
    for _ in range(2000):
        priority = float(np.exp(rng.uniform(-12, 12)))
        alpha = float(rng.choice([0.0, 0.3, 0.6, 1.0, 2.5]))
        exact = priority**alpha * reference.ONE
        mass = mass_of(priority, alpha, CONSTANTS)
        assert abs(mass - exact) <= exact * ((1.2 * alpha + 1) * 1e-10 + 1e-12) + 0.5 or mass == 1
    for alpha in (0.0, 0.6, 8.0):
        assert mass_of(1.0, alpha, CONSTANTS) == reference.ONE
        assert mass_of(0.0, alpha, CONSTANTS) == 0
    assert mass_of(5e-324, 8.0, CONSTANTS) == 1
    assert mass_of(5e-324, 0.01, CONSTANTS) > mass_of(5e-324, 0.02, CONSTANTS) > 1


def filled(lengths, capacity=64, n=2, stack=2):
    """One stream of episodes; each row's observation is its number in the stream, from 1."""
    frames = tuple(range(1 - stack, n + 1))
    offsets = {"observation": frames, "reward": tuple(range(n))}
    replay = Replay(capacity, offsets, {"observation": "zero"}, 1.0, 3, CONSTANTS)
    number = 0
    for length in lengths:
        first = number
        for step in range(length + 1):
            row = {"observation": np.int64(number + 1), "reward": np.float32(number)}
            replay.append(0, row, end=step == length)
            number += 1
        for step in range(first, first + length):
            if replay.streams[0][step] in replay.steps:
                replay.create(0, step)
    return replay


def test_edges_are_padded_behind_and_repeated_ahead():
    """Given an episode of three steps and windows of one row behind and two ahead. Expect padding
    before its start, the last row repeated behind its end, and the counts of real rows."""
    replay = filled([3])
    replay.sample(64)
    windows = {
        k - 64: s.window["observation"].tolist() for k, s in replay.steps.items() if s.window
    }
    assert windows == {0: [0, 1, 2, 3], 1: [1, 2, 3, 4], 2: [2, 3, 4, 4]}
    around = {k - 64: (s.behind, s.ahead) for k, s in replay.steps.items() if s.is_item}
    assert around == {0: (0, 2), 1: (1, 2), 2: (1, 1)}


def test_overwriting_a_step_takes_every_item_that_holds_it():
    """Given a ring that is just full. Expect one more step to take two items with it."""
    replay = filled([3, 3], capacity=8)
    assert len(replay) == 6
    replay.append(0, {"observation": np.int64(9), "reward": np.float32(0)})
    alive = [k - 8 for k, s in replay.steps.items() if s.is_item and not s.removed]
    assert alive == [2, 4, 5, 6] and len(replay) == 4
    keys = replay.sample(50).keys
    assert set(keys.tolist()) <= {10, 12, 13, 14}


def test_updates_are_applied_stale_or_unknown():
    """Given a ring that has wrapped, and updates of keys in it, overwritten, or never items. Expect
    each counted as what it is, and the last of two for one key to stay."""
    replay = filled([3, 3], capacity=8)
    replay.append(0, {"observation": np.int64(9), "reward": np.float32(0)})
    assert replay.update([10, 12, 10], [2.0, 3.0, 5.0]) == (2, 0, 0)
    assert replay.leaf[2] == 5 * reference.ONE and replay.leaf[4] == 3 * reference.ONE
    assert replay.update([8, 9], [1.0, 1.0]) == (0, 2, 0), "overwritten, taken along"
    assert replay.update([11, 7, 17, 16], [1.0] * 4) == (0, 0, 4), "closing, never, not yet, open"
    assert replay.running_maximum == 5 * reference.ONE


def test_draws_follow_mass_share_and_strata():
    """Given four items, one of mass 0. Expect draws by mass, one of each stratum, alike where
    uniform, and the weights and ages that go with them."""
    replay = filled([4])
    for number, priority in enumerate([1.0, 2.0, 0.0, 5.0]):
        replay.update([64 + number], [priority])
    keys = replay.sample(4000).keys - 64
    share = np.bincount(keys.astype(np.int64), minlength=4) / 4000
    assert share == pytest.approx([1 / 8, 2 / 8, 0, 5 / 8], abs=0.03)
    assert np.bincount(replay.sample(8, stratified=True).keys - 64).tolist() == [1, 2, 0, 5]
    even = replay.sample(3000, uniform=0xFFFFFFFF)
    assert np.bincount(even.keys - 64) / 3000 == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3], abs=0.03)
    assert set(even.probabilities) == {1 / 3} and set(even.weights) == {1.0}
    batch = replay.sample(100, beta=1.0)
    assert batch.count == 3 and batch.total == 8 * reference.ONE
    scale = {64: 1.0, 65: 0.5, 67: 0.2}
    assert batch.weights == pytest.approx([scale[int(k)] for k in batch.keys])
    assert (batch.ages == 68 - batch.keys.astype(np.int64)).all()


def test_values_are_solved_at_every_edge_by_hand():
    """Given one episode of each kind. Expect what a page of arithmetic gives, for n = 3."""
    half = Fraction(1, 2)
    cut_inside = Recorded((1, 2, 3, 1), (0, 0, 0), (1.0, 2.0, 4.0), (False, True, False))
    q, visits = solve([cut_inside], 4, 1, 0.5, 3)
    q1 = Fraction(1) + half * 2
    q3 = Fraction(4) + half * q1
    assert q[:, 0] == pytest.approx([0, float(q1), 2.0, float(q3)])
    assert visits[:, 0].tolist() == [0, 1, 1, 1]
    ended = Recorded((1, 2, 0), (0, 0), (1.0, 2.0), (False, True))
    assert solve([ended], 3, 1, 0.5, 3)[0][:, 0] == pytest.approx([0, 2.0, 2.0])
    still_open = Recorded((1, 2, 1, 2), (0, 0, 0, 0), (1.0, 0.0, 0.0, 0.0), (False,) * 4)
    q, visits = solve([still_open], 3, 1, 0.5, 3)
    assert visits[:, 0].tolist() == [0, 1, 0] and q[1, 0] == pytest.approx(1.0)


class Creating:
    """Writes rows into the reference and creates every item the moment its window is complete."""

    def __init__(self, replay, n):
        self.replay, self.n = replay, n
        self.next_step, self.next_item = {}, {}

    def add(self, rows):
        for stream, row, end in writable(rows):
            self.replay.append(stream, row, end)
            step = self.next_step.get(stream, 0)
            self.next_step[stream] = step + 1
            item = self.next_item.get(stream, 0)
            complete = step if end else step - self.n + 1
            for number in range(item, complete):
                self.replay.create(stream, number)
            self.next_item[stream] = step + 1 if end else max(item, complete)


@pytest.mark.parametrize(("actions", "n"), [(2, 1), (1, 3)], ids=["q-n1", "process-n3"])
def test_a_linear_net_reaches_the_solved_values(actions, n):
    """Given chains whose values are solved exactly, stored as the actor stores them. Expect every
    recorded step to be an item, and training on the draws to reach those values."""
    envs = chain(actions, 4, AutoresetMode.NEXT_STEP)
    offsets = NStep(n)._resolve(spec_from(envs)).offsets
    replay = Replay(4096, offsets, {}, 0.6, 7, CONSTANTS)
    episodes = play(envs, 500, seed=3, store=Creating(replay, n))
    expected, visits = solve(episodes, ChainEnv.STATES, actions, GAMMA, n)
    assert int(visits.sum()) == len(replay), "every recorded step is an item, and no other"
    assert (visits[1:-1] > 100).all()
    got = train(replay, actions, n, updates=1600)
    error = np.abs(got - expected)[visits > 0].max()
    assert error < TOLERANCE, f"tabular error {error:.4f}, expected\n{expected}\ngot\n{got}"
