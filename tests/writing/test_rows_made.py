"""Rows that a caller made and hands to `Writer.append`: what is not of the writer's spec and
streams is refused, with nothing taken."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from replay_server import Client, Column, NStep, Server, Spec, SpecError, Table
from replay_server.writing.autoreset import Rows

numbers = itertools.count(1)
SPEC = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)


@pytest.fixture
def served():
    """A client of a table of such steps."""
    table = Table("main", step=SPEC, plan=NStep(2), capacity=1 << 12)
    url = f"loopback://made-{next(numbers)}"
    with Server([table], url) as server, Client(server.address) as client:
        yield client


def made(streams, ended=(), closing=None, **changed):
    """Rows that no Autoreset made."""
    count, ended = len(streams), np.array(ended, np.int64)
    columns = {
        "observation": np.ones((count, 3), np.float32),
        "action": np.zeros(count, np.int64),
        "reward": np.ones(count, np.float32),
        "terminated": np.zeros(count, np.bool_),
    }
    columns = {name: given for name, given in (columns | changed).items() if given is not None}
    if closing is None:
        closing = {"observation": np.ones((len(ended), 3), np.float32)}
    ending = np.isin(streams, ended).astype(np.uint8)
    return Rows(np.array(streams), columns, ending, ended, closing, np.zeros(2, np.bool_))


TWO, REWARDS = np.ones((2, 3), np.float32), np.ones(2, np.float32)
MADE_WRONG = {
    "falling": (made([1, 0]), "streams: expected numbers from 0 to 1, rising"),
    "twice": (made([0, 0]), "streams: expected numbers from 0 to 1, rising"),
    "none such": (made([0, 2]), "streams: expected numbers from 0 to 1, rising"),
    "negative": (made([-1]), "streams: expected numbers from 0 to 1, rising"),
    "fractions": (made([0.0, 1.0]), "streams: expected numbers from 0 to 1, rising"),
    "ended twice": (made([0, 1], [0, 0]), "ended_streams: expected numbers"),
    "ended falling": (made([0, 1], [1, 0]), "ended_streams: expected numbers"),
    "ended without a step": (made([0], [1]), r"ended_streams \[1\]: only \[0\] took a step"),
    "not whole": (made([0, 1], action=np.array([0.7, 1.9])), "'action': expected dtype int64"),
    "too large": (made([0, 1], reward=np.array([1e300, 1])), "'reward': float32 holds numbers up"),
    "for all": (made([0, 1], reward=np.float32(3)), r"'reward': expected shape \(2,\), got \(\)"),
    "too few": (made([0, 1], observation=TWO[:1]), r"'observation': expected shape \(2, 3\)"),
    "none": (made([0, 1], action=None), "rows.columns has no column 'action'"),
    "more": (made([0, 1], cost=REWARDS), "rows.columns has 'cost', and holds observation"),
    "no closing": (made([0, 1], [0, 1], {}), "rows.closing has no column 'observation'"),
    "closing short": (made([0, 1], [0, 1], {"observation": TWO[:1]}), r"expected shape \(2, 3\)"),
    "closing nan": (made([0], [0], {"observation": TWO[:1] * np.nan}), "expected finite numbers"),
    "closing of no end": (made([0], [], {"observation": TWO}), r"expected shape \(0, 3\)"),
    "closing more": (
        made([0, 1], [0, 1], {"observation": TWO, "reward": REWARDS}),
        "rows.closing has 'reward', and holds observation alone",
    ),
    "an end that is not listed": (
        replace(made([0, 1]), ending=np.uint8([2, 0])),
        "ended_streams names the streams whose ending is not 0",
    ),
    "an end that is none": (
        replace(made([0, 1], [1]), ending=np.zeros(2, np.uint8)),
        "ended_streams names the streams whose ending is not 0",
    ),
    "an end of another kind": (replace(made([0, 1]), ending=np.uint8([3, 0])), "one of 0, 1, 2"),
    "ends of others": (replace(made([0, 1]), ending=np.zeros(3, np.uint8)), "one of 0, 1, 2"),
    "a dict": ({"observation": TWO}, "expected Rows, as Autoreset.rows makes, got dict"),
}


def test_a_nan_in_rows_made_elsewhere_is_refused(served):
    """Given `append` of rows that hold a NaN. Expect SpecError."""
    writer = served.writer("main", 2, autoreset="disabled")
    rows = made([0, 1], reward=np.array([1.0, np.nan], np.float32))
    with pytest.raises(SpecError, match=r"'reward': expected finite numbers, got nan at \[1\]"):
        writer.append(rows)
    writer.close()


@pytest.mark.parametrize(("rows", "words"), MADE_WRONG.values(), ids=MADE_WRONG)
def test_rows_made_elsewhere_that_are_none_are_refused_with_nothing_taken(served, rows, words):
    """Given rows to `append` that are not of the writer's columns or streams. Expect SpecError, and
    the right ones before and after it stored, their items made, and nothing else."""
    writer = served.writer("main", 2, autoreset="disabled")
    writer.append(made([0, 1]))
    with pytest.raises(SpecError, match=words):
        writer.append(rows)
    writer.create_items(writer.append(made(np.int32([0, 1]), [0, 1], reward=[1.0, 1.0])))
    state = writer.flush()
    assert (state.steps_stored, state.items_posted) == (6, 4)
    assert served.sample("main", 16).data["action"].max() == 0
    writer.close()
