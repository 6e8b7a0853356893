"""The samplers of benchmarks/paper draw the same items, each in proportion to its mass.

What they are compared by is where the draw is; so what they draw has to be alike.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper.samplers import ALPHA, ITEMS, SAMPLERS, insert, tables
from replay_server import Client, Server

COUNT, CAPACITY, DRAWS, BATCH = 200, 256, 120, 256


@pytest.fixture
def client():
    with Server(tables(16, CAPACITY), seed=5) as server, Client(server.address) as client:
        yield client


def fill(client, first, priorities):
    """Items whose bytes are their number, with these priorities."""
    numbers = np.arange(first, first + len(priorities), dtype=np.uint64)
    insert(client, np.repeat(numbers[:, None], 2, 1).view(np.uint8), priorities)


def numbers(items):
    """The items' numbers, int64 [B]; both halves of an item's bytes have to agree."""
    halves = np.ascontiguousarray(items["item"][:, 0]).view(np.uint64)
    assert (halves[:, 0] == halves[:, 1]).all() and items.valid.all()
    return halves[:, 0].astype(np.int64)


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_follow_the_masses(client, name):
    """Given priorities, new ones for some, and a ring that has gone round. Expect draws in
    proportion (chi-square within 7 standard deviations) and no item that was overwritten."""
    rng = np.random.default_rng(2)
    fill(client, 0, rng.random(COUNT) + 0.1)
    sampler = SAMPLERS[name](client)
    items, _ = sampler.sample(64, 0.4)
    sampler.update_priorities(items, np.full(64, 3.0))
    fill(client, COUNT, rng.random(COUNT) + 0.1)  # the first ones are gone by now
    table = client.table(ITEMS)
    kept = np.arange(2 * COUNT - CAPACITY, 2 * COUNT)
    drawn = np.zeros(2 * COUNT)
    for _ in range(DRAWS):
        items, weights = sampler.sample(BATCH, 1.0)
        np.add.at(drawn, numbers(items), 1)
        assert weights.max() == 1.0 and weights.min() > 0.0
    assert table.count == CAPACITY and drawn[: kept[0]].sum() == 0
    seen = kept[drawn[kept] > 0]
    assert len(seen) > 0.95 * CAPACITY
    masses = mass_of(client, sampler, seen)
    expected = masses / masses.sum() * drawn[seen].sum()
    chi = ((drawn[seen] - expected) ** 2 / expected).sum()
    assert chi < len(seen) + 7 * np.sqrt(2 * len(seen))
    sampler.close()


def mass_of(client, sampler, which):
    """What the server holds of these numbers now: of ITEMS, or of INDEX where the draw is there."""
    table = ITEMS if type(sampler).__name__ == "ServerSampler" else "index"
    head = client.table(table).head
    keys = np.arange(head - CAPACITY, head, dtype=np.uint64)
    masses = np.asarray(client.get(table, keys).masses, np.float64)
    return masses[which - (2 * COUNT - CAPACITY)]


def test_the_index_has_the_items_priorities(client):
    """Given an insert. Expect both tables to hold priority^alpha of each item."""
    priorities = np.linspace(0.5, 2.0, 8)
    fill(client, 0, priorities)
    for table in (ITEMS, "index"):
        head = client.table(table).head
        masses = client.get(table, np.arange(head - 8, head, dtype=np.uint64)).masses
        assert np.asarray(masses) / 2.0**26 == pytest.approx(priorities**ALPHA, rel=1e-6)


@pytest.mark.parametrize("count", [1, 31, 64, CAPACITY, CAPACITY + 1, 3 * CAPACITY])
def test_a_clients_tree_keeps_up(client, count):
    """Given so many inserts between two draws, more than the table holds among them. Expect the
    tree to have what the table has, and nothing that was overwritten."""
    fill(client, 0, np.ones(100))
    sampler = SAMPLERS["client"](client)
    assert sampler.upkeep_rows == 100 and sampler.refresh() == 0
    for first in range(100, 100 + count, 200):
        fill(client, first, np.ones(min(200, 100 + count - first)))
    assert sampler.refresh() == count
    drawn = np.concatenate([numbers(sampler.sample(BATCH, 0.0)[0]) for _ in range(20)])
    kept = min(100 + count, CAPACITY)
    assert drawn.min() >= 100 + count - kept and drawn.max() < 100 + count
    assert len(np.unique(drawn)) > 0.99 * kept
    sampler.close()
