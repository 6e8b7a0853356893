"""Landings and batches: aligned columns, weights by the formula, keys that remember their epoch;
what a draw and an update call."""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
import weakref

import numpy as np
import pytest
from conformance import plain, plain_rows

from replay_server import (
    Client,
    Column,
    ConfigError,
    NStep,
    Server,
    Spec,
    Table,
    UnknownPlan,
    UpdateResult,
    priority_from_td,
)
from replay_server._native import lib
from replay_server.batch import ALIGNMENT, LARGE, Landing, LandingShape, keys_of
from replay_server.table import layout_for, layout_of

SPEC = Spec(
    (
        Column("observation", np.uint8, (5, 3), "first"),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
LAYOUT = layout_for(SPEC, {"steps": NStep(3, stack=2), "one": NStep(1)})


def landing_of(plan, count):
    """A landing of so many items."""
    return Landing(LandingShape(LAYOUT.plans[plan], SPEC, count))


def weighed(landing, beta, uniform=0.0):
    """The batch of what was written there by hand."""
    lib.rp_place_weigh(landing.raw, uniform, beta)
    return landing.batch("t", 9, lasting=False)


@pytest.mark.parametrize("count", [7, 9001])
def test_columns_are_aligned_and_apart(count):
    """Given an odd batch, small or large. Expect every column C-contiguous, on 64 bytes,
    overlapping nothing, and zero."""
    landing = landing_of(0, count)
    assert (landing.shape.size >= LARGE) == (count == 9001)
    ranges = []
    for name, array in landing.data.items():
        assert array.flags.c_contiguous and array.flags.writeable
        assert array.ctypes.data % ALIGNMENT == 0, name
        assert array.dtype == SPEC[name].dtype and not array.any()
        ranges.append((array.ctypes.data, array.ctypes.data + array.nbytes))
    assert {name: array.shape for name, array in landing.data.items()} == {
        "observation": (count, 5, 5, 3),
        "action": (count, 1),
        "reward": (count, 3),
        "terminated": (count, 3),
    }
    ranges.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))


def test_the_core_is_told_the_same_memory():
    """Given a landing. Expect target, stride, offset and size of each column as laid out."""
    landing = landing_of(0, 4)
    raw = landing.raw.landing
    assert (raw.column_count, raw.item_bytes) == (4, 75 + 8 + 12 + 3 + 6)
    end = 0
    for i, name in enumerate(SPEC.names):
        column = raw.columns[i]
        bytes_an_item = landing.data[name].nbytes // 4
        assert int(column.stride) == int(column.size) == bytes_an_item
        assert column.item_offset == end
        column.target[0] = 201
        assert landing.data[name].view(np.uint8).ravel()[0] == 201
        end += bytes_an_item


def test_layouts_travel_as_documents():
    """Given a layout. Expect the same one from its document, and names or numbers to find plans."""
    again = layout_of(LAYOUT.document())
    assert again == LAYOUT
    assert again.document() == LAYOUT.document()
    assert (again.behind, again.ahead) == (1, 3)
    assert [again.index(plan) for plan in (0, 1, "steps", "one")] == [0, 1, 0, 1]
    for plan in (2, -1, "none", True, None):
        with pytest.raises(UnknownPlan, match="steps, one"):
            again.index(plan)


def test_weights_follow_the_formula():
    """Given probabilities. Expect (N P)^-beta over the largest, float32; 1 where beta is 0."""
    landing = landing_of(1, 4)
    landing.masses[:] = (4, 2, 1, 0)
    landing.totals[:] = 8
    landing.drawables[:] = 10
    landing.valid[:] = (1, 1, 1, 0)
    for beta in (0.0, 0.4, 1.0):
        raw = (10 * np.array([0.5, 0.25, 0.125])) ** -beta
        expected = np.append(raw / raw.max(), 0.0).astype(np.float32)
        weights = weighed(landing, beta).weights
        assert weights.dtype == np.float32
        assert np.array_equal(weights, expected)


def test_weights_of_a_uniform_mix():
    """Given masses and a uniform part. Expect P = (1-u) mass/total + u/N in the batch."""
    landing = landing_of(1, 3)
    landing.masses[:] = (1, 2, 5)
    landing.totals[:] = 8
    landing.drawables[:] = 4
    landing.valid[:] = 1
    batch = weighed(landing, 1.0, 0.5)
    expected = 0.5 * np.array([1, 2, 5]) / 8 + 0.5 / 4
    assert np.allclose(batch.probabilities, expected, rtol=1e-15)
    assert np.allclose(batch.weights, expected.min() / expected, rtol=1e-7)
    assert batch.epoch == 9 and len(batch) == 3


def test_what_was_overwritten_weighs_nothing_and_can_be_left_out():
    """Given a landing with one item that never came. Expect weight 0, and `arrived` without it."""
    landing = landing_of(1, 3)
    landing.masses[:], landing.totals[:], landing.drawables[:] = 1, 8, 4
    landing.keys[:] = (7, 8, 9)
    landing.valid[:] = (1, 0, 1)
    batch = weighed(landing, 1.0)
    assert batch.weights.tolist() == [1.0, 0.0, 1.0]
    rest = batch.arrived()
    assert rest.keys.tolist() == [7, 9] and rest.data["reward"].shape == (2, 1)
    assert rest.keys.epoch == 9


def test_weights_stay_finite_whatever_the_odds_are():
    """Given a mass so small that its odds to the power are infinite. Expect weights of 0 to 1."""
    landing = landing_of(1, 3)
    landing.masses[:], landing.totals[:], landing.drawables[:] = (1, 1 << 62, 1 << 62), 1 << 63, 4
    landing.valid[:] = 1
    for beta in (8.0, 0.0):
        assert weighed(landing, beta).weights.tolist() == [1.0, beta == 0.0, beta == 0.0]
    landing.masses[:] = 0
    assert weighed(landing, 8.0).weights.tolist() == [0.0, 0.0, 0.0]


def test_a_batch_travels_and_outlives_its_landing():
    """Given a batch that nobody looked at. Expect a pickle, a copy and its keys to stay what they
    were when the landing is used again."""
    landing = landing_of(1, 2)
    landing.keys[:], landing.valid[:], landing.data["reward"][:] = (3, 4), 1, 5.0
    batch = weighed(landing, 1.0)
    again, copied = pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)
    keys = batch.keys
    landing.keys[:], landing.data["reward"][:] = 0, 0.0
    for each in (again, copied):
        assert each.keys.tolist() == keys.tolist() == [3, 4] and each.epoch == batch.epoch == 9
        assert each["reward"].tolist() == [[5.0], [5.0]] and each.valid.all() and len(each) == 2
    assert batch["reward"].tolist() == [[0.0], [0.0]]
    with pytest.raises(AttributeError, match="no 'rewards'"):
        _ = batch.rewards


def test_keys_remember_their_epoch():
    """Given keys of an epoch. Expect slices, copies and pickles to keep it; plain arrays none."""
    keys = keys_of([5, 6, 7], 42)
    assert keys.dtype == np.uint64
    assert keys[1:].epoch == keys.copy().epoch == pickle.loads(pickle.dumps(keys)).epoch == 42
    assert keys_of(keys[::2]).epoch == 42 and keys_of(keys[::2]).flags.c_contiguous
    assert keys_of(np.array([1, 2])).epoch is None
    for wrong in ([-1], [0.5]):
        with pytest.raises(ConfigError, match="whole numbers from 0"):
            keys_of(wrong)


def test_priorities_from_td():
    """Given TD errors, an array or a tensor. Expect |td| + epsilon, and no power."""
    import torch

    assert priority_from_td([-2.0, 0.0, 3.0], epsilon=0.5).tolist() == [2.5, 0.5, 3.5]
    tensor = torch.tensor([-2.0, 4.0], requires_grad=True)
    assert priority_from_td(tensor, 0.0).tolist() == [2.0, 4.0]


def test_torch_takes_every_column_as_it_is():
    """Given a landing. Expect torch to share its memory."""
    import torch

    landing = landing_of(0, 2)
    for array in landing.data.values():
        assert torch.from_numpy(array).data_ptr() == array.ctypes.data


def calls_of(act):
    """Names of the functions, Python's and C's, that act() calls."""
    names, before = [], sys.getprofile()

    def note(frame, event, function):
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call":
            names.append(function.__name__)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return names[:-1]  # the last call puts the profile back


def test_a_draw_and_an_update_are_few_calls():
    """Given a table and a batch size that were used before. Expect a draw and an update of 32 items
    in 32 calls at most: where many clients share a core each call costs its share of the caches."""
    rows = Spec((Column("x", np.float32, (12,)),))
    with (
        Server([Table("main", step=rows, capacity=4096)], "loopback://") as server,
        Client(server.address) as client,
    ):
        client.extend("main", {"x": np.arange(1200, dtype=np.float32).reshape(100, 12)})
        ones, kept = np.ones(32), client.sample("main", 32)
        data = kept.data["x"].copy()
        assert client.update_priorities("main", kept.keys, ones).applied > 0

        def pair():
            batch = client.sample("main", 32)
            client.update_priorities("main", batch.keys, ones)

        names = min((calls_of(pair) for _ in range(5)), key=len)  # one may have had to wait
        assert len(names) <= 32, names
        assert (kept.data["x"] == data).all(), "a batch is its own memory"


def test_results_add_up_and_stay():
    """Given results of updates. Expect sums and differences, equality, and none to be changed."""
    one, two = UpdateResult(3, stale=2), UpdateResult(applied=1, unknown=4)
    assert one + two == UpdateResult(4, 2, 4) and one + two - two == one != two
    assert UpdateResult() == UpdateResult(0, 0, 0) and hash(one) == hash(UpdateResult(3, 2, 0))
    assert repr(two) == "UpdateResult(applied=1, stale=0, unknown=4)"
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
    with pytest.raises(AttributeError):
        one.applied = 5


KEPT = {
    "batch": lambda batch: batch,
    "array": lambda batch: batch["x"],
    "view": lambda batch: batch["x"][:, 0][1:],
    "weights": lambda batch: batch.weights,
}


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("count", [16, 65_536])
@pytest.mark.parametrize("kept", KEPT)
def test_batches_stay_as_they_were(kept, count, device):
    """Given batches, small and large, of which a batch, an array, or a view of one is kept past the
    next ones. Expect each to stay as it was."""
    with (
        Server([plain()], "loopback://", batch_max=65_536) as server,
        Client(server.address, batch_max=65_536) as client,
    ):
        client.extend("main", plain_rows(1000), np.arange(1.0, 1001.0))
        with client.batches("main", count, prefetch=2, device=device, timeout=20.0) as batches:
            held = []
            for _ in range(6):
                batch = next(batches)
                seen = {"x": batch["x"], "weights": batch.weights}
                was = {name: np.asarray(part).copy() for name, part in seen.items()}
                del seen
                held.append((KEPT[kept](batch), was))
                del batch
        for part, was in held:
            if kept == "batch":
                assert np.array_equal(part["x"], was["x"])
                part = part.weights
            whole = {"array": was["x"], "view": was["x"][:, 0][1:]}.get(kept, was["weights"])
            assert np.array_equal(part, whole)


@pytest.mark.parametrize("keep", [1, 3])
def test_a_loop_uses_the_same_memory_again(keep):
    """Given a loop that keeps the newest `keep` batches. Expect no landing beyond those it began
    with, and copies to stay for ever."""
    with Server([plain()], "loopback://") as server, Client(server.address) as client:
        client.extend("main", plain_rows(200))
        with client.batches("main", 16, prefetch=2, keep=keep) as batches:
            newest, landings = [], set()
            for _ in range(30):
                newest = [*newest[1 - keep :], next(batches)] if keep > 1 else [next(batches)]
                landings.add(weakref.ref(newest[-1].landing))
            assert len(landings) == 2 + keep + 1 and all(landing() for landing in landings)
        with client.batches("main", 16, prefetch=2, copy=True) as batches:
            every = [next(batches) for _ in range(10)]
        for batch in every:
            rows, valid = client.rows("main", batch.keys)
            assert valid.all() and np.array_equal(rows["x"], batch["x"][:, 0])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32])
def test_returns_are_float32_whatever_the_column_is(kind):
    """Given rewards of another dtype. Expect returns as documented, of arrays and of tensors."""
    columns = [Column("reward", kind) if c.name == "reward" else c for c in SPEC.columns]
    table = Table("main", Spec(tuple(columns)), NStep(1), 1024)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        with client.writer("main") as writer:
            for i in range(9):
                seen = np.full((5, 3), i, np.uint8)
                writer.add_step(seen, 0, seen + 1, kind(i), False, False)
        batch = client.sample("main", 8)
        assert batch.transitions(0.5).rewards.dtype == np.float32
        assert str(batch.transitions(0.5, device="cpu").rewards.dtype) == "torch.float32"


@pytest.mark.parametrize("wrong", ["raises", "nan"])
def test_a_beta_that_goes_wrong_costs_no_batch(wrong):
    """Given a beta that raises, or is NaN, every other time. Expect the batches of one that never
    does, in their order, and none drawn beyond them."""

    def steady():
        return 0.5

    def odd():
        odd.calls += 1
        if odd.calls % 2 and wrong == "raises":
            raise KeyError("mine")
        return np.nan if odd.calls % 2 else 0.5

    taken, drawn, odd.calls = [], [], 0
    for beta in (steady, odd):
        with Server([plain()], "loopback://", seed=4) as server, Client(server.address) as client:
            first = int(client.extend("main", plain_rows(200))[0])
            keys, failed = [], 0
            with client.batches("main", 16, beta=beta, prefetch=2) as batches:
                while len(keys) < 6:
                    try:
                        keys.append([int(key) - first for key in next(batches).keys])
                    except (KeyError, ConfigError):
                        failed += 1
            assert failed == (6 if beta is odd else 0)
            taken.append(keys)
            drawn.append(client.table("main").sampled)
    assert taken[0] == taken[1] and drawn[0] == drawn[1]
