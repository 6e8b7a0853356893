"""The quick way of a writer stores what the slow way stores, and refuses what it refuses.

Two writers get the same calls, each on a server of its own in this thread. One is the product. The
other lays every step down by itself with Autoreset.rows and `append`, and creates what became ready
one call later, as its own anchors tell: no block of several steps, no fast path, and not the core's
rule for items. What the two tables hold afterwards has to be the same, key by key and byte by byte.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    LimiterBlocked,
    NStep,
    SamplesPerInsert,
    Server,
    Spec,
    SpecError,
    Table,
    Timeout,
)
from replay_server import writer as writer_module
from replay_server.writing.anchors import Anchors
from replay_server.writing.block import END, ROW, Block
from replay_server.writing.fast_path import DECLINED, ENDED, NO_END, FastPath

numbers = itertools.count()
FLAT = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
NESTED = Spec(
    (
        Column("observation/pixels", np.uint8, (2, 2)),
        Column("observation/place/0", np.float32),
        Column("observation/place/1", np.int16, (2,)),
        Column("action", np.float32, (2,)),
        Column("reward", np.float64),
        Column("terminated", np.bool_),
        Column("cost", np.float32),
    ),
    frozenset({"observation/place"}),
)
NUMBER = Spec((Column("observation", np.int64), *FLAT.columns[1:]))
SPECS = {"flat": FLAT, "nested": NESTED, "number": NUMBER}


class Slow:
    """A writer without a quick way: `append` of each step, `create` one call later."""

    def __init__(self, client, streams, mode):
        self.writer = client.writer("main", streams, autoreset=mode)
        self.anchors = Anchors(streams, client.table("main").ahead)
        self.ready = None

    def add_batch(self, life_lost=None, **step):
        extras = {name: step.pop(name) for name in ("cost",) if name in step}
        rows = self.writer._rows.rows(**step, life_lost=life_lost, extras=extras)
        self.finish()
        self.writer.append(rows)
        self.ready = self.anchors.advance(rows.streams, rows.ended_streams)
        return self.ready

    def create_items(self, ready, priorities):
        self.writer.create_items(ready, priorities)
        self.ready = None

    def finish(self):
        ready, self.ready = self.ready, None
        if ready is not None and len(ready):
            self.writer.create(ready.streams, ready.steps)


class Calls:
    """Random calls of add_batch: mostly what the fast path takes, and all that it must not."""

    def __init__(self, spec, streams, mode, seed):
        self.spec, self.streams, self.mode = spec, streams, mode
        self.rng = np.random.default_rng(seed)
        self.over = np.zeros(streams, np.bool_)  # of the step before: what a reset follows
        self.following = None  # what the step before returned; the next one is chosen from it

    def observation(self):
        """Of all environments; now and then with odd strides, or as lists."""
        shape = () if self.mode == "single" else (self.streams,)
        flat = {}
        for column in self.spec.group("observation"):
            values = self.rng.integers(0, 99, (*shape, *column.shape)).astype(column.dtype)
            flat[column.name] = self.disguised(values)
        return self.spec.unflatten("observation", flat)

    def disguised(self, values):
        kind = self.rng.integers(8)
        if kind > 4 and np.ndim(values) == 0 and values.dtype == np.int64:
            return int(values)  # as environments with a Discrete observation say it
        if kind == 0 and values.ndim:
            return np.repeat(values, 2, axis=-1)[..., ::2]
        if kind == 1 and values.ndim:
            return np.asfortranarray(values)
        if kind == 2:
            return values.tolist() if values.dtype.kind == "f" else values
        if kind == 3:
            return values.astype(values.dtype.newbyteorder(">"))
        return values

    def flags(self, share):
        flags = self.rng.random(self.streams) < share
        if self.mode == "next-step":
            flags &= ~self.over
        return bool(flags[0]) if self.mode == "single" else flags

    def step(self):
        rng, single = self.rng, self.mode == "single"
        lead = () if single else (self.streams,)
        action = self.spec["action"]
        given, following = self.observation(), self.observation()
        if self.following is not None:
            given = self.gone_on(given)
        self.following = following
        reward = rng.normal(size=lead)
        if self.mode == "next-step":
            reward[self.over] = 0.0  # nobody takes the step of a reset
        step = {
            "observation": given,
            "action": rng.integers(0, 9, (*lead, *action.shape)).astype(action.dtype),
            "reward": reward,
            "terminated": self.flags(0.08),
            "truncated": self.flags(0.08),
            "next_observation": following,
        }
        if rng.random() < 0.7:
            step["reward"] = np.asarray(step["reward"]).astype(self.spec["reward"].dtype)[()]
        if single and not action.shape and rng.random() < 0.5:
            step["action"] = int(step["action"])
        if "cost" in self.spec.names:
            step["cost"] = rng.random(lead).astype(np.float32)
        if rng.random() < 0.1:
            step["life_lost"] = self.flags(0.3)
        self.over = np.atleast_1d(step["terminated"] | step["truncated"])
        if self.mode == "same-step" and rng.random() < 0.5:
            step["infos"] = {"final_obs": self.finals(step)}
        elif self.mode == "same-step":
            step["final_observation"] = self.observation()  # of the episode that ended
        elif self.mode == "next-step":
            step["infos"] = {}
        return step

    def gone_on(self, reset):
        """What a step begins with: the next observation of the step before, or the reset's."""
        if self.mode in ("next-step", "same-step") or not self.over.any():
            return self.following
        if self.mode == "single":
            return reset
        flat = [self.spec.flatten("observation", each) for each in (reset, self.following)]
        leaves = {}
        for name, leaf in flat[0].items():
            over = self.over.reshape(-1, *[1] * (np.ndim(leaf) - 1))
            leaves[name] = np.where(over, leaf, flat[1][name])
        return self.spec.unflatten("observation", leaves)

    def finals(self, step):
        finals = np.full(self.streams, None, dtype=object)
        over = step["terminated"] | step["truncated"]
        flat = self.spec.flatten("observation", step["next_observation"])
        for i in np.flatnonzero(over):
            leaves = {name: np.asarray(leaf)[i] for name, leaf in flat.items()}
            finals[i] = self.spec.unflatten("observation", leaves)
        return finals

    def spoil(self, step):
        """The same with one thing wrong."""
        wrong = dict(step)
        name = str(self.rng.choice(["action", "reward", "terminated", "truncated", "action"]))
        value = np.asarray(step[name])
        wrong[name] = [
            value[None],
            value.astype(complex),
            np.zeros((self.streams + 7, *value.shape[1:]), value.dtype),
            np.full(value.shape, "x"),
        ][self.rng.integers(4)]
        return wrong


def stored(client, server, writer):
    """What the table holds: (stream, step, key after the first) of every row, and every item."""
    ledger = writer.ledger()
    columns = ledger["stream"], ledger["step"], ledger["key"] - ledger["key"].min()
    rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
    batch = client.get("main", ledger["key"])
    facts = {name: getattr(batch, name).tobytes() for name in ("valid", "behind", "ahead")}
    data = {name: part.tobytes() for name, part in batch.data.items()}
    state, counters = writer.state(), server.counters()
    counts = [counters[n] for n in ("steps_committed", "items_created")]
    counts += [state.steps_posted, state.items_posted, state.items_created]
    return rows, facts, data, counts, client.size("main")


def refusal(call):
    """What a call that has to be refused says."""
    with pytest.raises(SpecError) as refused:
        call()
    return str(refused.value)


def both(spec, streams, mode, seed, calls):
    """Plays random calls to the two writers; what each table holds then."""
    random = Calls(spec, streams, mode, seed)
    rng = random.rng
    table = [Table("main", step=spec, plan=NStep(int(rng.integers(1, 4))), capacity=1 << 13)]
    urls = [f"loopback://block-{next(numbers)}" for _ in range(2)]
    with (
        Server(table, urls[0]) as quick_server,
        Server(table, urls[1]) as slow_server,
        Client(quick_server.address) as client,
        Client(slow_server.address) as other,
    ):
        quick, slow = client.writer("main", streams, autoreset=mode), Slow(other, streams, mode)
        for _ in range(calls):
            step = random.step()
            if rng.random() < 0.15:
                wrong = random.spoil(step)
                said = refusal(lambda wrong=wrong: slow.add_batch(**wrong))
                assert refusal(lambda wrong=wrong: quick.add_batch(**wrong)) == said
            ready, expected = quick.add_batch(**step), slow.add_batch(**step)
            if rng.random() < 0.3:
                for name in ("streams", "steps", "ahead"):
                    assert getattr(ready, name).tolist() == getattr(expected, name).tolist()
            if rng.random() < 0.1:
                priorities = rng.random(len(expected)) + 0.5
                quick.create_items(ready, priorities)
                slow.create_items(expected, priorities)
        slow.finish()
        quick.flush()
        slow.writer.flush()
        held = stored(client, quick_server, quick), stored(other, slow_server, slow.writer)
        quick.close()
        slow.writer.close()
    return held


@pytest.mark.parametrize("hold", [0.0, 1e9], ids=["handed over at once", "in blocks"])
@pytest.mark.parametrize(
    ("name", "mode", "streams"),
    [
        ("flat", "next-step", 5),
        ("flat", "same-step", 3),
        ("flat", "disabled", 4),
        ("flat", "disabled", 1),
        ("flat", "single", 1),
        ("number", "same-step", 3),
        ("number", "single", 1),
        ("nested", "next-step", 3),
        ("nested", "same-step", 2),
        ("nested", "single", 1),
    ],
)
def test_a_block_stores_what_steps_one_by_one_store(monkeypatch, name, mode, streams, hold):
    """Given random calls, right and wrong. Expect the same tables, anchors and sentences."""
    monkeypatch.setattr(writer_module, "HOLD_S", hold)
    seed = 1000 + streams + 7 * len(mode) + 31 * len(name)
    print("seed", seed)
    quick, slow = both(SPECS[name], streams, mode, seed, 160)
    assert len(quick[0]) > 100 and quick[3][1] > 100, "rows and items there are to compare"
    for part, (mine, theirs) in enumerate(zip(quick, slow, strict=True)):
        assert mine == theirs, f"part {part} of what the tables hold"


def calm(single=False):
    """One step of two environments, or of one, as the columns want it."""
    lead = () if single else (2,)
    step = {
        "observation": np.ones((*lead, 3), np.float32),
        "action": np.int64(3) if single else np.array([3, 4]),
        "reward": 1.5 if single else np.array([1.5, 2.5], np.float32),
        "terminated": False if single else np.zeros(2, np.bool_),
        "truncated": False if single else np.zeros(2, np.bool_),
    }
    return step


@pytest.mark.filterwarnings("ignore:overflow")
def test_the_quick_way_is_for_what_fits_as_it_is():
    """Given calm steps and each near miss. Expect NO_END and ENDED, and DECLINED for the others."""
    block = Block(FLAT, 2, 1)
    fast_path = FastPath(block, False, ["reward", "observation"])
    assert fast_path.batch(**calm()) == NO_END and block.steps == 0
    assert FLAT.unpack(block.records[0])["action"].tolist() == [3, 4]
    assert fast_path.batch(**calm() | {"reward": np.ones(2)}) == NO_END
    assert fast_path.batch(**calm() | {"truncated": np.array([False, True])}) == ENDED
    for near in (
        {"observation": np.ones((1, 2, 3), np.float32)},
        {"observation": np.ones(3, np.float32)},
        {"observation": np.ones((2, 3))},
        {"observation": [[1.0, 1.0, 1.0]] * 2},
        {"observation": np.ones((2, 3), np.float32).view(np.recarray)},
        {"action": np.array([3, 4], np.int32)},
        {"action": np.array([3])},
        {"reward": np.ones(2, np.int64)},
        {"reward": np.array([1.0, np.nan])},
        {"reward": np.array([1.0, 1e300])},
        {"observation": np.full((2, 3), np.inf, np.float32)},
        {"terminated": np.zeros(2, np.uint8)},
        {"truncated": np.zeros((2, 1), np.bool_)},
        {"truncated": False},
    ):
        assert fast_path.batch(**calm() | near) == DECLINED, near


@pytest.mark.filterwarnings("ignore:overflow")
def test_the_quick_way_of_one_environment():
    """Given Python's and numpy's numbers. Expect NO_END where nothing is lost, else DECLINED."""
    block = Block(FLAT, 1, 1)
    fast_path = FastPath(block, True, ["reward", "observation"])
    for fits in ({}, {"action": np.array(3)}, {"action": 3}, {"truncated": np.False_}):
        assert fast_path.single(**calm(True) | fits) == NO_END, fits
    stored_row = FLAT.unpack(block.records[0])
    assert stored_row["reward"].tolist() == [1.5] and stored_row["action"].tolist() == [3]
    for near in (
        {"action": 1 << 63},
        {"action": True},
        {"action": 3.0},
        {"reward": 1},
        {"reward": None},
        {"reward": 1e39},
        {"reward": np.nan},
        {"observation": np.array([1.0, 1.0, np.nan], np.float32)},
        {"terminated": True},
        {"truncated": np.True_},
        {"terminated": np.zeros(2, np.bool_)},
        {"truncated": 0},
        {"observation": np.ones((1, 3), np.float32)},
    ):
        assert fast_path.single(**calm(True) | near) == DECLINED, near


@pytest.mark.filterwarnings("ignore:overflow")
def test_the_quick_way_of_an_observation_that_is_a_number():
    """Given observations that are one number, of the column's kind and of kinds near it. Expect the
    quick way to store the first and to decline the others."""
    block = Block(NUMBER, 1, 1)
    fast_path = FastPath(block, True, ["reward", "observation"])
    step = calm(True)
    for fits in (5, np.int64(5), np.array(5)):
        assert fast_path.single(**step | {"observation": fits}) == NO_END, fits
        assert NUMBER.unpack(block.records[0])["observation"].tolist() == [5]
    for near in (1 << 63, 5.0, np.float64(5), True, np.int32(5), np.array([5]), None, "5"):
        assert fast_path.single(**step | {"observation": near}) == DECLINED, near


def test_what_the_limiter_holds_back_is_kept_and_goes_first():
    """Given a limiter that holds a writer back. Expect it to be told, then every row once."""
    limiter = SamplesPerInsert(1.0, min_size=4, error_buffer=20.0)
    table = [Table("main", step=FLAT, plan=NStep(2), capacity=1 << 13, limiter=limiter)]
    with (
        Server(table, f"loopback://block-{next(numbers)}") as server,
        Client(server.address) as client,
    ):
        client._options["messages_max"] = 8  # a queue that is full soon
        writer = client.writer("main", 2, autoreset="disabled", timeout=0.3)
        steps = 0
        with pytest.raises(Timeout):  # LimiterBlocked, once an answer has told it
            while steps < 2_000:
                step = calm() | {"action": np.array([steps, -steps])}
                writer.add_batch(**step)
                steps += 1  # the one that raises was not taken
        told = writer.state()
        assert told.steps_stored < 2 * steps and writer._block.left > 0
        for _ in range(steps):
            try:
                writer.flush(0.05)
                break
            except Timeout:
                with suppress(LimiterBlocked):
                    for _ in range(4):
                        client.sample("main", 4, timeout=0.05)
        ledger = writer.ledger()
        assert server.counters()["steps_committed"] == 2 * steps
        batch = client.get("main", ledger["key"][-64:])
        sign = 1 - 2 * ledger["stream"][-64:].astype(np.int64)
        assert (batch["action"][:, 0] == sign * ledger["step"][-64:].astype(np.int64)).all()
        writer.close(1.0)


def test_what_became_ready_stays_what_it_was():
    """Given episodes that end, a restart, more steps. Expect the anchors of that step, looked at
    late."""
    table = [Table("main", step=FLAT, plan=NStep(2), capacity=1 << 10)]
    ended = np.array([True, False])
    with (
        Server(table, f"loopback://block-{next(numbers)}") as server,
        Client(server.address) as client,
        client.writer("main", 2, autoreset="next-step") as writer,
    ):
        writer.add_batch(**calm())
        ready = writer.add_batch(
            **calm() | {"truncated": ended, "next_observation": np.ones((2, 3)), "infos": {}}
        )
        writer.restart(ended)
        for _ in range(5):
            writer.add_batch(**calm())
        assert [ready.streams.tolist(), ready.steps.tolist()] == [[0, 0], [0, 1]]
        assert ready.ahead.tolist() == [2, 1]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("kind", "shape"), [(np.bool_, (3,)), (np.float32, (3,)), (np.uint8, (2, 2)), (np.int64, ())]
)
def test_a_step_without_an_observation_is_refused(kind, shape, first, count):
    """Given a step whose observation is missing, the first one or behind a step whose next
    observation was left out; for each kind of column, NaN allowed. Expect SpecError that names it,
    and nothing taken."""
    spec = Spec((Column("observation", kind, shape), *FLAT.columns[1:]))
    table = [Table("main", step=spec, plan=NStep(1), capacity=1 << 10)]
    with (
        Server(table, f"loopback://block-{next(numbers)}") as server,
        Client(server.address) as client,
    ):
        mode = None if count == 1 else "disabled"
        writer = client.writer("main", count, autoreset=mode, finite_observations=False)
        add, lead = (writer.add, ()) if count == 1 else (writer.add_batch, (2,))
        flags = dict.fromkeys(("terminated", "truncated"), np.zeros(lead, np.bool_)[()])
        step = {"action": np.zeros(lead, np.int64)[()], "reward": np.ones(lead, np.float32)[()]}
        for _ in range(0 if first else 2):
            add(observation=np.zeros((*lead, *shape), kind), **step, **flags)
        with pytest.raises(SpecError, match="`observation` is missing"):
            add(observation=None, **step, **flags)
        state = writer.flush()
        assert state.steps_stored == (0 if first else 2 * count)


def test_rows_that_wait_are_counted():
    """Given marks of three steps and places reached in them. Expect `left` to count the rest."""
    block = Block(FLAT, 2, 1)
    block.marks[:3] = [[ROW, ROW], [ROW | END, 0], [ROW, ROW | END]]
    block.steps = 3
    for (step, phase, stream), left in {
        (0, 0, 0): 7,
        (0, 0, 1): 6,
        (0, 2, 0): 5,
        (1, 0, 1): 4,
        (1, 1, 0): 4,
        (1, 1, 1): 3,
        (2, 1, 1): 1,
        (2, 2, 0): 0,
        (3, 0, 0): 0,
    }.items():
        block.raw.step, block.raw.phase, block.raw.stream = step, phase, stream
        assert block.left == left, (step, phase, stream)
