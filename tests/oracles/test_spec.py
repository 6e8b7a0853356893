"""Specs and plans: flattening, the record layout, documents, and what each refusal says."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from replay_server import Client, ConfigError, Server, Table
from replay_server.plans import NStep, Offsets, Row, Sequence, plan_from_json
from replay_server.spec import SAID, Column, Spec, SpecError, spec_from
from replay_server.table import layout_for


class Env:
    """Only what `spec_from` looks at."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action


class VectorEnv:
    def __init__(self, observation, action, count):
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = spaces.Box(0, 1, (count, 99))
        self.action_space = spaces.MultiDiscrete([9] * count)


NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 4), np.uint8),
        "arm": spaces.Tuple((spaces.Box(-1, 1, (3,), np.float64), spaces.MultiBinary(5))),
        "mode": spaces.Dict({"gear": spaces.Discrete(6)}),
    }
)


def test_flat_and_vector_environments_give_the_same_spec():
    """Given one environment, and eight as a vector. Expect the same columns, dtypes, offsets and
    padding."""
    box = spaces.Box(-1, 1, (4,), np.float32)
    single = spec_from(Env(box, spaces.Discrete(2)))
    vector = spec_from(VectorEnv(box, spaces.Discrete(2), 8))
    assert single == vector
    assert single.names == ("observation", "action", "reward", "terminated")
    assert [c.dtype.name for c in single] == ["float32", "int64", "float32", "bool"]
    assert single.offsets == {"observation": 0, "action": 16, "reward": 24, "terminated": 28}
    assert single.record_size == 32 and single.padding == 3


def test_nested_spaces_flatten_to_paths_and_back():
    """Given a nested observation. Expect one column a leaf, named by its path, and the value back
    as it was."""
    spec = spec_from(Env(NESTED, spaces.MultiDiscrete([3, 4])), pad={"observation/camera": "first"})
    assert set(spec.names) == {
        "observation/camera",
        "observation/arm/0",
        "observation/arm/1",
        "observation/mode/gear",
        "action",
        "reward",
        "terminated",
    }
    assert spec["observation/camera"].pad == "first" and spec["observation/arm/0"].pad == "zero"
    value = NESTED.sample()
    back = spec.unflatten("observation", spec.flatten("observation", value))
    assert isinstance(back["arm"], tuple)
    assert np.array_equal(back["arm"][1], value["arm"][1])
    assert np.array_equal(back["camera"], value["camera"])
    assert back["mode"]["gear"] == value["mode"]["gear"]


def test_records_hold_every_column_aligned_and_gaps_are_zero():
    """Given random specs. Expect offsets aligned, no overlap, and pack/unpack to be inverse."""
    rng = np.random.default_rng(3)
    names = ["bool", "uint8", "int16", "float16", "uint32", "float32", "int64", "float64"]
    for _ in range(200):
        columns = tuple(
            Column(
                f"c{i}",
                np.dtype(str(rng.choice(names))),
                tuple(rng.integers(1, 4, rng.integers(0, 3))),
            )
            for i in range(rng.integers(1, 7))
        )
        spec = Spec(columns)
        assert spec.record_size % 8 == 0
        owner = np.zeros(spec.record_size, np.int64)
        for c in spec:
            assert spec.offsets[c.name] % min(8, c.dtype.itemsize) == 0
            owner[spec.offsets[c.name] : spec.offsets[c.name] + c.size] += 1
        assert owner.max() == 1 and spec.padding == int((owner == 0).sum())
        values = {c.name: rng.integers(0, 2, (3, *c.shape)).astype(c.dtype) for c in spec}
        records = spec.pack(values, 3)
        assert records.shape == (3, spec.record_size) and not records[:, owner == 0].any()
        for name, value in spec.unpack(records).items():
            assert np.array_equal(value, values[name]), (name, spec)


def test_values_that_do_not_fit_are_refused_by_column():
    """Given values of a wrong shape, dtype or range, a column too few or too many. Expect SpecError
    that names the column, and rows that fit packed."""
    spec = spec_from(Env(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)))
    good = {
        "observation": np.zeros((2, 4), np.float32),
        "action": np.zeros(2, np.int64),
        "reward": np.zeros(2, np.float64),
        "terminated": np.zeros(2, np.bool_),
    }
    spec.pack(good, 2)
    for name, value, words in [
        ("observation", np.zeros((2, 5), np.float32), "expected shape (2, 4), got (2, 5)"),
        ("observation", np.zeros((2, 4), np.complex64), "expected dtype float32, got complex64"),
        ("action", np.zeros(2, np.float32), "expected dtype int64, got float32"),
        ("terminated", np.zeros(2, np.float32), "expected dtype bool, got float32"),
        ("reward", np.zeros(2, np.bool_), "expected dtype float32, got bool"),
    ]:
        with pytest.raises(SpecError) as refused:
            spec.pack({**good, name: value}, 2)
        assert f"column {name!r}" in str(refused.value) and words in str(refused.value)
    with pytest.raises(SpecError, match="'action' is missing"):
        spec.pack({k: v for k, v in good.items() if k != "action"}, 2)
    with pytest.raises(SpecError, match="no column 'rewards'"):
        spec.pack({**good, "rewards": 0}, 2)
    closing = spec.pack({"observation": np.ones((1, 4), np.float32)}, 1, partial=True)
    assert spec.unpack(closing)["action"] == 0
    small = Spec((Column("a", np.dtype(np.int8)),))
    assert small.unpack(small.pack({"a": np.array([-128, 127])}, 2))["a"].tolist() == [-128, 127]
    with pytest.raises(SpecError, match="int8 holds -128 to 127, got 0 to 128"):
        small.pack({"a": np.array([0, 128])}, 2)


def test_unsupported_spaces_are_named():
    """Given spaces that are no rows of numbers. Expect SpecError that names where and what."""
    for space, words in [
        (spaces.Text(5), "'observation' is a Text space"),
        (spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))}), "'observation/a' is a Sequence"),
        (spaces.Dict({"a/b": spaces.Discrete(2)}), "key 'a/b'"),
        (spaces.Dict({}), "empty Dict"),
    ]:
        with pytest.raises(SpecError, match=words):
            spec_from(Env(space, spaces.Discrete(2)))


def test_columns_that_make_no_sense_are_refused():
    """Given columns with a wrong name, dtype, shape or pad, twice or inside another one, or none.
    Expect SpecError that says which."""
    for arguments, words in [
        (("", "float32"), "empty"),
        (("a//b", "float32"), "empty part"),
        (("a", "complex64"), "complex64 is not supported"),
        (("a", "U3"), "not supported"),
        (("a", "float32", (3, 0)), "empty axis"),
        (("a", "float32", (), "mirror"), "pad 'mirror'"),
    ]:
        with pytest.raises(SpecError, match=words):
            Column(*arguments)
    a = Column("a", np.dtype(np.float32))
    with pytest.raises(SpecError, match="twice"):
        Spec((a, a))
    with pytest.raises(SpecError, match="'a/b' lies inside column 'a'"):
        Spec((a, Column("a/b", np.dtype(np.float32))))
    with pytest.raises(SpecError, match="at least one column"):
        Spec(())


def test_documents_are_canonical_and_differences_are_readable():
    """Given a spec through JSON and back, two that differ, and documents that are none. Expect the
    same text, each difference in words, and SpecError."""
    spec = spec_from(Env(NESTED, spaces.Discrete(4)), extras=(Column("cost", np.dtype("float32")),))
    assert Spec.from_json(spec.to_json()) == spec
    assert spec_from(Env(NESTED, spaces.Discrete(4)), extras=Column("cost", np.float32)) == spec
    assert Spec.from_json(spec.to_json()).to_json() == spec.to_json()
    assert spec._differences(Spec.from_json(spec.to_json())) == []
    a = Spec((Column("x", "float32", (4,)), Column("y", "int8")))
    b = Spec((Column("x", "float32", (5,)), Column("z", "int8")))
    assert a._differences(b) == [
        "x: mine float32[4] pad=zero, theirs float32[5] pad=zero",
        "y: mine int8[] pad=zero, theirs has no such column",
        "z: theirs int8[] pad=zero, mine has no such column",
    ]
    assert a._differences(Spec(a.columns[::-1])) == ["order: mine x, y; theirs y, x"]
    short = json.loads(a.to_json()) | {"record_size": 8}
    for text in [b"", "{}", "[]", '{"columns": 3}', b"\xff", json.dumps(short)]:
        with pytest.raises(SpecError):
            Spec.from_json(text)


def test_plans_resolve_to_offsets_and_reach():
    """Given each kind of plan over nested columns. Expect its offsets, reach and bytes of an item,
    and the same plan back from JSON."""
    spec = spec_from(
        Env(
            spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3)}), spaces.Discrete(4)
        ),
        extras=(Column("state", np.dtype(np.float32), (8,)),),
    )
    row = Row()._resolve(spec)
    assert set(row.offsets.values()) == {(0,)} and (row.behind, row.ahead) == (0, 0)
    n3 = NStep(3)._resolve(spec)
    assert n3.offsets == {
        "observation/a": (0, 3),
        "observation/b": (0, 3),
        "action": (0,),
        "reward": (0, 1, 2),
        "terminated": (0, 1, 2),
        "state": (0,),
    }
    assert (n3.behind, n3.ahead) == (0, 3)
    item_bytes = layout_for(spec, {"n3": NStep(3)}).plans[0].item_bytes
    assert item_bytes == 88  # 2 * 8 + 2 * 8 + 8 + 3 * 4 + 3 + 32 = 87, rounded up
    assert n3.picks[:4] == [(0, 0), (0, 3), (1, 0), (1, 3)] and len(n3.picks) == 12
    stacked = NStep(3, stack=4)._resolve(spec)
    assert stacked.offsets["observation/a"] == (-3, -2, -1, 0, 1, 2, 3)
    assert (stacked.behind, stacked.ahead) == (3, 3)
    r2d2 = Sequence(80, 5, state=("state",))._resolve(spec)
    assert r2d2.offsets["state"] == (0,) and r2d2.offsets["reward"] == tuple(range(85))
    assert (r2d2.behind, r2d2.ahead) == (0, 84)
    for plan in [Row(), NStep(3, stack=4), Sequence(80, 5, ("state",)), Offsets({"a": (-1, 2)})]:
        assert plan_from_json(plan.to_json()) == plan


def test_plans_that_do_not_fit_are_refused():
    """Given plans that lack a column, name one too many, reach too far or pick too much, and
    documents that are none. Expect SpecError that says which."""
    spec = Spec((Column("x", "float32"), Column("y", "float32")))
    for plan, words in [
        (Offsets({"x": (0,)}), "'y' has offsets"),
        (Offsets({"x": (1, 0), "y": (0,)}), "rising"),
        (Offsets({"x": (0,), "y": (0,), "z": (0,)}), "no column 'z'"),
        (Offsets({"x": (0,), "y": (5000,)}), "the limit is"),
        (Offsets({"x": range(-1024, 1025), "y": range(-1024, 1025)}), "at most 4096"),
        (Sequence(4, state=("h",)), "no state column 'h'"),
    ]:
        with pytest.raises(SpecError, match=words):
            plan._resolve(spec)
    with pytest.raises(SpecError, match="whole number from 1"):
        NStep(0)
    for text in ["", "{}", '{"kind": "Nothing"}', '{"kind": "NStep", "m": 3}', "[]"]:
        with pytest.raises(SpecError):
            plan_from_json(text)


@pytest.mark.parametrize("name", SAID)
def test_a_column_that_no_writer_can_fill_is_refused(name):
    """Given a column with the name of a word that a writer's step says and does not store. Expect a
    table whose items are cut out of episodes to refuse it at once, and a writer to a table of rows
    as it is asked for."""
    columns = ("observation", np.float32), ("action", np.int64), ("reward", np.float32)
    spec = Spec((*(Column(*column) for column in columns), Column("terminated", bool)))
    spec = Spec((*spec, Column(name, np.int8)))
    with pytest.raises(ConfigError, match=f"column '{name}': a writer takes this name"):
        Table("m", spec, NStep(1), 1000)
    with (
        Server([Table("m", spec, Row(), 1000)], "loopback://") as server,
        Client(server.address) as client,
    ):
        rows = {column.name: np.zeros(3, column.dtype) for column in spec}
        keys = client.extend("m", rows)
        assert len(keys) == 3
        with pytest.raises(ConfigError, match=f"column '{name}': a writer takes this name"):
            client.writer("m", autoreset="single")


@pytest.mark.parametrize("shape", [(1 << 29,), (1 << 40,), (1 << 62, 4)])
def test_a_step_too_large_names_its_column(shape):
    """Given a column of 2 GiB and more. Expect SpecError that names it, not NumPy's own words."""
    with pytest.raises(SpecError, match=r"a step of \d+ bytes, \d+ of them in column 'x' \["):
        Spec((Column("y", np.int8), Column("x", np.float32, shape)))
