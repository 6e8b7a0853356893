"""Which rows of a sequence are steps: by batch.ahead, beside a plain record of what was played.

Random episodes of several streams, with a seed; every action is 1 or more, so that the zeros of a
closing row are no action. The record is a list an episode, kept by this file alone.
"""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    ConfigError,
    Offsets,
    ReplayError,
    Sequence,
    Server,
    Spec,
    SpecError,
    Table,
)
from replay_server.plans import plan_from_json
from replay_server.serving import config
from replay_server.table import layout_of

SPEC = Spec(
    (
        Column("observation", np.int64),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
        Column("h", np.float32, (2,)),
    )
)
STREAMS, EPISODE = 3, 1000  # an observation is its episode's number times EPISODE and its step
REMEDY = (
    r"Sequence\(n\) is 0 \(n_step in a file\); expected at least 1, .*; "
    r"{} copies as many rows; a region made with n=0 is another plan's: name a new one"
)
names = itertools.count()


def play(writer, rng, calls):
    """{episode: its steps, (action, reward, terminated) each}; the last ones are left open."""
    played, numbers = {}, itertools.count(1)
    at = [next(numbers) for _ in range(STREAMS)]
    for _ in range(calls):
        steps = [len(played.setdefault(number, [])) for number in at]
        seen = np.array([number * EPISODE + step for number, step in zip(at, steps, strict=True)])
        action, reward = rng.integers(1, 100, STREAMS), rng.integers(1, 100, STREAMS)
        ends = rng.random((2, STREAMS)) < 0.07
        writer.add_batch(
            observation=seen,
            action=action,
            reward=reward.astype(np.float32),
            terminated=ends[0],
            truncated=ends[1],
            next_observation=seen + 1,
            h=np.stack([seen, -seen], 1).astype(np.float32),
        )
        for i, number in enumerate(at):
            played[number].append((int(action[i]), float(reward[i]), bool(ends[0, i])))
            at[i] = next(numbers) if ends[:, i].any() else number
    return played


def expect_told(batch, played, rows):
    """Each of an item's first `rows` rows is the step that was played where i < ahead, and the
    closing row where not; how many were not."""
    closing = 0
    for j in range(len(batch)):
        number, first = divmod(int(batch["observation"][j, 0]), EPISODE)
        steps = played[number]
        for i in range(rows):
            given = tuple(batch[name][j, i].item() for name in ("action", "reward", "terminated"))
            step, seen = first + i, int(batch["observation"][j, i])
            assert (i < batch.ahead[j]) == (step < len(steps)), (j, i)
            if step < len(steps):
                assert (given, seen) == (steps[step], number * EPISODE + step)
            else:
                assert (given, seen) == ((0, 0.0, False), number * EPISODE + len(steps))
                closing += 1
    return closing


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (Sequence(1), 1),
        (Sequence(2), 2),
        (Sequence(4), 4),
        (Sequence(9, state=("h",)), 9),
        (Sequence(4, 3), 6),
        (Sequence(20, 2, ("h",)), 21),
    ],
    ids=repr,
)
def test_rows_below_ahead_are_steps_and_no_others(plan, rows):
    """Given episodes shorter and longer than the plan. Expect of all rows but the last that those
    below batch.ahead are steps that happened, with their action and reward, and the others not."""
    rng = np.random.default_rng([plan.length, plan.n])
    server = Server([Table("m", SPEC, plan, 8192)], f"loopback://sequence-{next(names)}", seed=7)
    with server, Client(server.address) as client:
        with client.writer("m", STREAMS, autoreset="disabled") as writer:
            played = play(writer, rng, 400)
        batch = client.sample("m", 512)
        assert batch["action"].shape == (512, rows + 1)
        assert (expect_told(batch, played, rows) > 0) == (rows > 1)
        assert batch["h"].shape[1] == (1 if plan.state else rows + 1)


@pytest.mark.parametrize(
    ("length", "instead"), [(1, "Row()"), (2, "Sequence(1)"), (80, "Sequence(79)")]
)
def test_a_sequence_that_tells_nothing_of_its_last_row_is_refused(length, instead):
    """Given n=0, by name, from TOML and in the document of a table. Expect SpecError that says what
    copies as many rows, and of what a region holds."""
    words = REMEDY.format(instead.replace("(", r"\(").replace(")", r"\)"))
    with pytest.raises(SpecError, match=words):
        Sequence(length, 0)
    columns = [{"name": "x", "dtype": "int8"}]
    table = {"name": "t", "columns": columns, "plan": {"sequence": length, "n_step": 0}}
    with pytest.raises(ConfigError, match=rf"\[\[table\]\] 't': {words}"):
        config.from_document({"table": [table]})
    plan = {"kind": "Sequence", "length": length, "n": 0, "state": []}
    with pytest.raises(SpecError, match=f"^{words}"):
        plan_from_json(json.dumps(plan))
    document = {"spec": json.loads(SPEC.to_json()), "plans": [["default", plan]]}
    with pytest.raises(SpecError, match=f"^{words}"):
        layout_of(json.dumps(document).encode())


def test_a_region_that_stores_such_a_sequence_is_refused(tmp_path):
    """Given a region made with n=0, as earlier versions took it. Expect the server to name it, and
    a client of a server that still serves it the sentence of the plan."""
    told_nothing = Sequence(4)
    object.__setattr__(told_nothing, "n", 0)
    stored = Table("m", SPEC, told_nothing, 8192)
    server = Server([stored], "udp://127.0.0.1:0", region=str(tmp_path / "region"))
    with server, Client(server.address) as client, pytest.raises(SpecError) as refused:
        client.sample("m", 4)
    assert re.match(REMEDY.format(r"Sequence\(3\)"), str(refused.value))
    for plan, words in ((Sequence(3), '"length":4,"n":0,'), (Sequence(4), "picks 20 of table m")):
        with pytest.raises(ReplayError, match=f"the region was made .*{words}.* name another reg"):
            Server([Table("m", SPEC, plan, 8192)], region=str(tmp_path / "region"))


def test_what_is_no_number_of_rows_is_refused():
    """Given a fraction and less than nothing. Expect the sentence of any whole number."""
    for n in (-1, 2.5):
        with pytest.raises(SpecError, match=rf"Sequence\(n\) is {n}; expected a whole number"):
            Sequence(4, n)


def test_one_column_that_reaches_further_tells_of_written_offsets():
    """Given Offsets whose observation reaches one row beyond the actions, as its docstring says.
    Expect batch.ahead to tell of every action."""
    plan = Offsets({"observation": range(4), "h": 0} | dict.fromkeys(SPEC.names[1:4], range(3)))
    rng = np.random.default_rng(11)
    server = Server([Table("m", SPEC, plan, 8192)], f"loopback://sequence-{next(names)}", seed=7)
    with server, Client(server.address) as client:
        with client.writer("m", STREAMS, autoreset="disabled") as writer:
            played = play(writer, rng, 300)
        assert expect_told(client.sample("m", 256), played, 3) > 0
