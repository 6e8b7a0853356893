"""ReplayDataset: batches for PyTorch's DataLoader, in this process and in workers."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from conformance import ROWS, plain_rows
from torch.utils.data import DataLoader

from replay_server import Client, Column, Row, Server, Spec, Table
from replay_server.errors import ConfigError
from replay_server.integrations.torch import ReplayDataset

PLAIN = Spec(
    (
        Column("observation", np.uint16, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("next_observation", np.uint16, (3,)),
        Column("terminated", np.bool_),
    )
)
COUNT = 50


@pytest.fixture
def served():
    """The url of a server with 50 rows, whose action is the row's number, and the rows."""
    rng = np.random.default_rng(2)
    rows = {
        "observation": rng.integers(0, 60_000, (COUNT, 3)).astype(np.uint16),
        "action": np.arange(COUNT),
        "reward": rng.standard_normal(COUNT).astype(np.float32),
        "next_observation": rng.integers(0, 60_000, (COUNT, 3)).astype(np.uint16),
        "terminated": rng.random(COUNT) < 0.3,
    }
    tables = [Table("main", PLAIN, Row(), 100), Table("rows", ROWS, capacity=100)]
    with Server(tables, "udp://127.0.0.1:0") as server, Client(server.address) as client:
        keys = client.extend("main", rows)
        client.extend("rows", plain_rows(COUNT))
        yield server, rows, keys


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_transitions_of_the_rows(served, workers):
    """Given a DataLoader in this process, and one of two workers. Expect each item to be a row, its
    key to be that row's, and a batch to stay as it is while others come."""
    server, rows, keys = served
    dataset = ReplayDataset(server.address, "main", 16, gamma=0.9, reward_clip=1.0)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    batches = list(islice(iter(loader), 12))
    for batch in batches:
        at = batch["actions"]
        assert batch["observations"].shape == (16, 3)
        assert batch["observations"].dtype == torch.int64
        assert np.array_equal(batch["observations"], rows["observation"][at])
        assert np.array_equal(batch["next_observations"], rows["next_observation"][at])
        assert np.array_equal(batch["rewards"], rows["reward"][at].clip(-1, 1))
        ends = rows["terminated"][at]
        assert batch["discounts"].numpy() == pytest.approx(np.where(ends, 0.0, 0.9))
        assert np.array_equal(batch["keys"], keys.astype(np.int64)[at])
        assert batch["weights"].max() == 1.0
    assert len({tuple(batch["keys"].tolist()) for batch in batches}) == 12
    del loader
    with Client(server.address) as client:
        told = client.update_priorities("main", batches[0]["keys"].numpy(), np.ones(16))
        assert told.applied == len(set(batches[0]["keys"].tolist()))


def test_without_gamma_a_batch_is_its_columns(served):
    """Given no gamma. Expect the columns without an axis of steps, weights and keys."""
    server, _, _ = served
    batch = next(iter(ReplayDataset(server.address, "rows", 8)))
    assert {*batch} == {*ROWS.names, "weights", "keys"}
    assert all(len(batch[name]) == 8 for name in batch)
    rows = plain_rows(COUNT)
    with Client(server.address) as client:
        given = client.get("rows", batch["keys"].numpy().astype(np.uint64)).as_dict()
    for column in ROWS:
        assert batch[column.name].shape == (8, *column.shape)
        assert np.array_equal(batch[column.name], given[column.name])
        known = rows[column.name].tolist()
        assert all(row in known for row in given[column.name].tolist())


def test_a_session_ends_with_its_iterator(served):
    """Given an iterator that is left. Expect the server to have no session of it."""
    server, _, _ = served
    before = server.counters()["sessions"]
    iterator = iter(ReplayDataset(server.address, "main", 4, gamma=0.9))
    next(iterator)
    assert server.counters()["sessions"] == before + 1
    iterator.close()
    assert server.counters()["sessions"] == before


def test_what_cannot_be_is_refused_where_it_is_said():
    """Given a discount that is none. Expect ConfigError before anything is opened."""
    with pytest.raises(ConfigError, match=r"gamma is 1\.5; expected a number from 0 to 1"):
        ReplayDataset("udp://127.0.0.1:1", "main", 4, gamma=1.5)


def test_a_beta_that_moves_is_refused_in_a_worker(served):
    """Given a function for beta. Expect batches here, and a sentence from a worker, which would see
    its start for ever."""
    dataset = ReplayDataset(served[0].address, "main", 4, beta=lambda: 0.5)
    assert len(next(iter(DataLoader(dataset, batch_size=None)))["keys"]) == 4
    with pytest.raises(ConfigError, match="a worker has its own copy"):
        next(iter(DataLoader(dataset, batch_size=None, num_workers=1)))


def test_a_column_of_a_name_that_batches_have_is_refused():
    """Given a column named weights. Expect a sentence, and no column in its place."""
    spec = Spec((Column("weights", np.float32),))
    with (
        Server([Table("t", spec)], "udp://127.0.0.1:0") as server,
        Client(server.address) as client,
    ):
        client.extend("t", {"weights": np.full(8, 777.0, np.float32)})
        with pytest.raises(ConfigError, match="has a column 'weights'"):
            next(iter(ReplayDataset(server.address, "t", 4)))
