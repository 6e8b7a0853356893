"""In turn, the server is a function of the seed: the same one as a replay of a few plain lists.

tests/support/reference.py has a prioritized replay that imports nothing of the project. It is told
every row, item and priority that goes to the server, draws by the same seed, and has to give the
same batches: keys, masses, windows, importance weights, bit by bit. A second learner learns from
its batches; the losses of the two have to stay equal for as long as they run.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from given import batch_from
from reference import Replay, power_constants

from deploy.sync import InTurn
from deploy.table import server_toml
from learner.learner import Learner
from replay_server import Client, Column, NStep, Prioritized, Server, Spec, Table
from replay_server.training.actions import actions_of
from replay_server.training.presets import CARTPOLE, changed
from replay_server.writing.autoreset import Rows

CONSTANTS = power_constants(Path(__file__).parents[2] / "native/base/power_tables.h")
SETTINGS = changed(
    CARTPOLE,
    hidden=(32, 32),
    envs=4,
    capacity=2048,
    min_size=200,
    batch=32,
    steps_per_update=8.0,
    beta_start=0.4,
    beta_end=1.0,
    beta_steps=500,
    target_every=50,
    pull_every=200,
    publish_every=20,
    env_steps=4000,
)
names = itertools.count()


class Both:
    """A writer whose rows and items also go to the reference."""

    def __init__(self, writer, replay):
        self.writer, self.replay = writer, replay

    def append(self, rows):
        for stream, row, end in in_order(rows):
            self.replay.append(stream, row, end)
        return self.writer.append(rows)

    def create(self, streams, steps, priorities=None):
        for i in range(len(streams)):
            given = None if priorities is None else float(priorities[i])
            self.replay.create(int(streams[i]), int(steps[i]), given)
        self.writer.create(streams, steps, priorities)

    def flush(self):
        self.writer.flush()


def in_order(rows):
    """(stream, row, end) as they are written: the steps, then the closing rows."""
    for i, stream in enumerate(rows.streams.tolist()):
        yield stream, {name: column[i].copy() for name, column in rows.columns.items()}, False
    for i, stream in enumerate(rows.ended_streams.tolist()):
        row = {name: np.zeros_like(column[0]) for name, column in rows.columns.items()}
        yield stream, row | {name: column[i].copy() for name, column in rows.closing.items()}, True


def equal_batches(batch, expected, which):
    """Bit by bit: what was drawn, what it weighs, what it holds."""
    assert batch.keys.tolist() == expected.keys.tolist(), f"keys of {which}"
    assert batch.masses.tolist() == expected.masses.tolist(), f"masses of {which}"
    assert batch.weights.tobytes() == expected.weights.tobytes(), f"weights of {which}"
    for name in ("probabilities", "behind", "ahead"):
        got, want = getattr(batch, name), getattr(expected, name)
        assert got.tolist() == want.tolist(), f"{name} of {which}"
    assert batch.ages.tolist() == expected.ages.tolist(), f"ages of {which}"
    assert set(batch.totals.tolist()) == {expected.total}
    assert set(batch.drawables.tolist()) == {expected.count}
    for name, data in expected.data.items():
        assert batch.data[name].tobytes() == data.tobytes(), f"column {name} of {which}"


def test_batches_and_losses_are_those_of_a_replay_in_this_process():
    """Given the same seed, a ring that goes around and a beta that rises. Expect each batch and
    each loss to be equal, and the two nets at the end."""
    with InTurn(SETTINGS, seed=11) as parts:
        spec = parts.actor.collector.spec
        replay = Replay(
            SETTINGS.capacity, NStep(SETTINGS.n)._resolve(spec).offsets, {}, SETTINGS.alpha, 11,
            CONSTANTS,
        )  # fmt: skip
        parts.actor.writer = Both(parts.actor.writer, replay)
        other = Learner(spec=spec, actions=actions_of(parts.envs, "dqn"), preset=SETTINGS, seed=11)
        for turn in parts.turns():
            expected = replay.sample(SETTINGS.batch, beta=other.beta())
            given = batch_from(expected.data, expected.ahead, expected.weights)
            update, priorities = other.learn(given)
            equal_batches(turn.batch, expected, f"update {other.step}")
            assert turn.update.loss == update.loss, f"loss of update {other.step}"
            assert turn.priorities.tobytes() == priorities.tobytes()
            replay.update(expected.keys, priorities)
        assert other.step > 400 and replay.head > 2 * SETTINGS.capacity + SETTINGS.capacity // 2
        for name, tensor in parts.learner.acting.state_dict().items():
            assert torch.equal(tensor, other.acting.state_dict()[name]), name


def weights_after(seed, updates):
    """SHA-256 of the online net after so many updates in turn."""
    with InTurn(SETTINGS, seed=seed) as parts:
        for turn in parts.turns():
            if parts.learner.step == updates:
                assert len(turn.batch) == SETTINGS.batch
                return hashlib.sha256(parts.learner.weights()).hexdigest()
    raise AssertionError("the run ended before that")


def test_a_run_in_turn_repeats_bit_for_bit():
    """Given the same seed twice, and another. Expect equal weights, and others."""
    first = weights_after(3, updates=120)
    assert weights_after(3, updates=120) == first
    assert weights_after(4, updates=120) != first


# -- priorities that come late -------------------------------------------------------------------

SPEC = Spec(
    (
        Column("observation", np.dtype(np.float32), (2,)),
        Column("action", np.dtype(np.int64)),
        Column("reward", np.dtype(np.float32)),
        Column("terminated", np.dtype(np.bool_)),
    )
)
STREAMS = 2


def random_rows(rng, number):
    """One row of each stream, some of them the last of their episode."""
    ended = np.flatnonzero(rng.random(STREAMS) < 0.15)
    columns = {
        "observation": rng.random((STREAMS, 2), np.float32),
        "action": np.full(STREAMS, number),
        "reward": rng.random(STREAMS, np.float32),
        "terminated": rng.random(STREAMS) < 0.2,
    }
    ending = np.zeros(STREAMS, np.uint8)
    ending[ended] = 1
    return Rows(
        streams=np.arange(STREAMS),
        columns=columns,
        ending=ending,
        ended_streams=ended,
        closing={"observation": rng.random((len(ended), 2), np.float32)},
        started=np.zeros(STREAMS, np.bool_),
    )


class Late:
    """A server with a small ring beside the reference, and old batches that wait for priorities."""

    def __init__(self, seed, n, stack):
        plan = NStep(n, stack=stack)
        table = Table(
            "main", step=SPEC, plan=plan, capacity=96, sampler=Prioritized(0.7), writers=1,
            streams=STREAMS,
        )  # fmt: skip
        address = f"loopback://late-{next(names)}"
        self.server = Server([table], address, seed=seed, virtual_clock=True)
        self.client = Client(self.server.address)
        self.replay = Replay(96, plan._resolve(SPEC).offsets, {}, 0.7, seed, CONSTANTS)
        self.writer = self.client.writer("main", streams=STREAMS, autoreset="next-step")
        self.both = Both(self.writer, self.replay)
        self.rng = np.random.default_rng(seed)
        self.waiting, self.results, self.number = [], np.zeros(3, int), 0

    def write(self):
        """Rows; every anchor that is ready becomes an item, one in four by the largest priority."""
        ready = self.both.append(random_rows(self.rng, self.number))
        self.number += 1
        for stream, step in zip(ready.streams, ready.steps, strict=True):
            given = None if self.rng.random() < 0.25 else [self.rng.exponential()]
            self.both.create(np.array([stream]), np.array([step]), given)
        self.writer.flush()

    def draw(self):
        """One batch of any kind; its keys wait for their priorities."""
        kind = [{}, {"stratified": True}, {"uniform": 0.25}, {"uniform": 1.0}][self.number % 4]
        batch = self.client.sample("main", 24, beta=0.6, **kind)
        reference_kind = dict(kind)
        if "uniform" in kind:
            reference_kind["uniform"] = min(int(kind["uniform"] * 2**32), 0xFFFFFFFF)
        expected = self.replay.sample(24, beta=0.6, **reference_kind)
        equal_batches(batch, expected, f"draw {self.number} {kind}")
        self.waiting.append(batch.keys)

    def update(self):
        """Priorities of a batch drawn some while ago; some of its slots hold other steps now."""
        keys = self.waiting.pop(0)
        priorities = self.rng.exponential(size=len(keys)) * (self.rng.random(len(keys)) > 0.1)
        result = self.client.update_priorities("main", keys, priorities)
        expected = self.replay.update(keys, priorities)
        got = (result.applied, result.stale, result.unknown)
        assert got == expected, f"update of keys from before row {self.number}"
        self.results += got


@pytest.mark.parametrize(("n", "stack"), [(1, 1), (3, 2)])
def test_a_late_priority_never_reaches_a_recycled_slot(n, stack):
    """Given priorities for batches drawn long ago, in a ring of 96 steps. Expect applied, stale
    and unknown as the reference says, and draws of every kind that show no other change."""
    late = Late(seed=8, n=n, stack=stack)
    with late.server, late.client, late.writer:
        for _ in range(20):
            late.write()
        for _ in range(250):
            for _ in range(int(late.rng.integers(0, 4))):
                late.write()
            late.draw()
            if len(late.waiting) > 12:
                late.update()
    applied, stale, unknown = late.results
    assert applied > 300 and stale > 1000 and unknown == 0, late.results


def test_a_batch_above_the_servers_default_is_learned_from():
    """Given a run in turn whose batch is larger than servers and clients allow by default. Expect
    an update of the whole batch, and the same bound in the file that the demo serves."""
    wide = changed(SETTINGS, batch=5000, capacity=8192, steps_per_update=1000.0)
    assert "batch_max = 5000" in server_toml(wide, url="udp://[::1]:0", seed=1).splitlines()
    with InTurn(wide, seed=1) as parts:
        turn = next(parts.turns())
        assert len(turn.batch) == 5000 and turn.update.td.shape == (5000,)
        assert parts.client.limits["batch_max"] == 5000
