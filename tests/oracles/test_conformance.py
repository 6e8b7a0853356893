"""One suite for every transport: the same calls have the same results, and the same errors.

What is drawn is compared with `reference.Replay`, which computes along in this process: keys,
masses, windows and weights, exactly.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conformance import (
    FRAMES,
    SMALL,
    TRANSPORTS,
    Episodes,
    Place,
    Twin,
    assert_equal_batches,
    plain,
    plain_rows,
    table,
)

from replay_server import (
    Client,
    Column,
    NStep,
    Prioritized,
    Sequence,
    Spec,
    Table,
    Uniform,
)
from replay_server.writing.autoreset import Autoreset


@pytest.fixture(params=TRANSPORTS)
def place(request):
    return Place(request.param)


def played(client, described, twin, steps, *, streams=3, seed=1, priorities=False):
    """Plays `steps` steps into table and twin alike; a closed writer's worth of rows."""
    episodes, rng = Episodes(described.step, streams, seed), np.random.default_rng(seed)
    autoreset = Autoreset(described.step, "disabled", streams)
    with client.writer("main", streams, autoreset="disabled") as writer:
        for _ in range(steps):
            step = episodes.step()
            ready = writer.add_batch(**step)
            twin.append(autoreset.rows(**step))
            given = rng.random(len(ready)) * 3 if priorities else None
            writer.create_items(ready, given)
            twin.create(ready.streams, ready.steps, given)
        state = writer.flush()
        assert state.steps_posted == state.steps_stored == twin.replay.head - twin.first
        assert state.items_posted == state.items_created
        assert (state.items_failed, state.messages_open) == (0, 0)


# -- plain rows ----------------------------------------------------------------------------------


def test_plain_rows_come_back_as_they_went_in(place):
    """Given 500 rows. Expect each under its key, and keys in the order of the rows."""
    rows = plain_rows(500)
    with place.pair(plain()) as (_, client):
        keys = client.extend("main", rows)
        assert (np.diff(keys.astype(np.int64)) == 1).all() and keys.epoch
        batch = client.get("main", keys)
        assert batch.valid.all()
        for name, column in rows.items():
            assert np.array_equal(batch.data[name][:, 0], column)
        again, valid = client.rows("main", keys[::-7])
        assert valid.all() and np.array_equal(again["x"], rows["x"][::-7])
        assert client.size("main") == len(client.table("main")) == 500


def test_draws_are_those_of_the_reference(place):
    """Given rows with priorities, some zero. Expect keys, masses, weights of independent code."""
    rng = np.random.default_rng(3)
    priorities = np.where(rng.random(300) < 0.1, 0.0, np.exp(rng.uniform(-6, 6, 300)))
    described = plain(sampler=Prioritized(0.7))
    rows = plain_rows(300)
    with place.pair(described) as (_, client):
        twin = Twin(described, client)
        for i in range(300):
            twin.replay.append(0, {name: column[i] for name, column in rows.items()})
            twin.replay.create(0, i, float(priorities[i]))
        client.extend("main", rows, priorities)
        for how in (
            {},
            {"stratified": True},
            {"uniform": 0.25},
            {"uniform": 1.0},
            {"stratified": True},
        ):
            batch = client.sample("main", 64, beta=0.6, **how)
            share = how.get("uniform", 0.0)
            units = min(int(share * 2**32), 0xFFFFFFFF)
            expected = twin.replay.sample(
                64, beta=0.6, stratified=how.get("stratified", False), uniform=units
            )
            assert_equal_batches(batch, expected)


def test_updates_are_those_of_the_reference(place):
    """Given updates with duplicates, stale and unknown keys. Expect counts, then equal draws."""
    rng = np.random.default_rng(4)
    described = plain(capacity=256, writers=1, sampler=Prioritized(0.6))
    rows = plain_rows(400)
    with place.pair(described) as (_, client):
        twin = Twin(described, client)
        for i in range(400):
            twin.replay.append(0, {name: column[i] for name, column in rows.items()})
            twin.replay.create(0, i, 1.0)
        client.extend("main", rows, np.ones(400))
        for _ in range(5):
            batch = client.sample("main", 32)
            assert_equal_batches(batch, twin.replay.sample(32, beta=0.4))
            others = np.array([twin.first + 3, twin.first + 4, twin.first + 400, 5], np.uint64)
            keys = np.concatenate([batch.keys, others])
            priorities = np.exp(rng.uniform(-3, 3, len(keys)))
            result = client.update_priorities("main", keys, priorities)
            expected = twin.replay.update(keys, priorities)
            assert (result.applied, result.stale, result.unknown) == expected
            assert result.stale == 2 and result.unknown == 2


def test_queued_updates_are_told_by_flush(place):
    """Given wait=False. Expect zeros at once, the sum at flush, and zeros at the next flush."""
    with place.pair(plain()) as (_, client):
        keys = client.extend("main", plain_rows(100))
        for part in np.array_split(keys, 10):
            result = client.update_priorities("main", part, np.full(len(part), 2.0), wait=False)
            assert result.applied == 0
        assert client.flush().applied == 100
        assert client.flush().applied == 0
        batch = client.sample("main", 10)
        assert set(batch.masses.tolist()) == {int(batch.totals[0]) // 100}


def test_small_queued_updates_never_stall(place):
    """Given a thousand queued updates of 8 keys. Expect all taken, with batches in between."""
    with place.pair(plain()) as (server, client):
        keys = client.extend("main", plain_rows(64))
        for round_ in range(1000):
            part = keys[8 * (round_ % 8) :][:8]
            client.update_priorities("main", part, np.full(8, 2.0), wait=False)
            if round_ % 100 == 99:
                assert len(client.sample("main", 8)) == 8
        assert client.flush().applied == 8000
        assert server.counters()["priorities_applied"] == 8000
        client.update_priorities("main", keys, np.ones(64), wait=False)
        assert client.flush().applied == 64


def test_leaving_the_client_flushes_its_updates(place):
    """Given queued updates at the end of `with`. Expect the server to have them."""
    with place.served(plain()) as server:
        with Client(server.address) as client:
            keys = client.extend("main", plain_rows(64))
            client.update_priorities("main", keys, np.full(64, 3.0), wait=False)
        assert server.counters()["priorities_applied"] == 64


def test_uniform_sampling_ignores_priorities(place):
    """Given a uniform sampler. Expect equal masses and weights of one."""
    with place.pair(plain(sampler=Uniform())) as (_, client):
        client.extend("main", plain_rows(50), np.linspace(0.1, 9, 50))
        batch = client.sample("main", 40, beta=1.0)
        assert len(set(batch.masses.tolist())) == 1
        assert (batch.weights == 1.0).all()


# -- episodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "described",
    [
        table(),
        table(plan=NStep(1)),
        table(plan=NStep(3, stack=4)),
        table(plan=Sequence(5, 2, ("action",))),
        table(FRAMES, NStep(3, stack=4), capacity=1024),
    ],
    ids=["n3", "n1", "n3-k4", "sequence", "frames"],
)
def test_windows_are_those_of_the_reference(place, described):
    """Given episodes of three streams. Expect every window, edge and weight as computed apart."""
    with place.pair(described) as (_, client):
        twin = Twin(described, client)
        played(client, described, twin, 60, priorities=True)
        assert client.size("main") == len(twin.replay)
        for _ in range(4):
            batch = client.sample("main", 48, beta=0.5)
            assert_equal_batches(batch, twin.replay.sample(48, beta=0.5))


def test_the_ring_overwrites_the_oldest(place):
    """Given three times the capacity. Expect what lives, its items and draws as computed apart."""
    described = table(plan=NStep(2, stack=3), capacity=256, writers=1)
    with place.pair(described) as (_, client):
        twin = Twin(described, client)
        played(client, described, twin, 220)
        assert client.table("main").head == twin.replay.head
        assert client.size("main") == len(twin.replay)
        for _ in range(3):
            assert_equal_batches(client.sample("main", 32), twin.replay.sample(32, beta=0.4))


def test_frames_in_pieces_come_back_whole(place):
    """Given frames larger than a datagram. Expect each row, by the key in the ledger."""
    described = table(FRAMES, NStep(1), capacity=512)
    with place.pair(described) as (_, client):
        episodes, stored = Episodes(FRAMES, 2, 5), {}
        with client.writer("main", 2, autoreset="disabled") as writer:
            numbers = [0, 0]
            for _ in range(20):
                step = episodes.step()
                writer.add_batch(**step)
                for s in range(2):
                    stored[s, numbers[s]] = step["observation"][s]
                    ended = step["terminated"][s] or step["truncated"][s]
                    numbers[s] += 1 + bool(ended)
            writer.flush()
            ledger = writer.ledger()
        assert len(ledger) == sum(numbers)
        rows, valid = client.rows("main", ledger["key"])
        assert valid.all()
        for entry, row in zip(ledger, rows["observation"], strict=True):
            known = stored.get((int(entry["stream"]), int(entry["step"])))
            assert known is None or np.array_equal(row, known)
        assert len(stored) == 40


@pytest.mark.parametrize("mtu", [512, 1400, 8960])
def test_large_images_are_stored_at_every_mtu(place, mtu):
    """Given pictures of 480 x 640 x 3, 2 300 datagrams each at the least mtu. Expect them back."""
    if not place.transport.startswith(("udp", "zmq", "loopback")):
        pytest.skip("the mtu of a network card is its own")
    picture = Spec((Column("observation", np.uint8, (480, 640, 3)),))
    described = Table("main", step=picture, capacity=64, writers=1, window=4)
    with place.served(described) as server:
        rng = np.random.default_rng(mtu)
        pictures = rng.integers(0, 255, (3, 480, 640, 3), dtype=np.uint8)
        with Client(server.address, mtu=mtu, timeout=30.0) as client:
            keys = client.extend("main", {"observation": pictures})
            rows, valid = client.rows("main", keys)
            assert valid.all() and np.array_equal(rows["observation"], pictures)


def test_items_nobody_creates_are_created(place):
    """Given add_batch and no more. Expect one item a step, at the largest priority so far."""
    with place.pair(table(plan=NStep(2))) as (_, client):
        episodes = Episodes(SMALL, 2, 6)
        with client.writer("main", 2, autoreset="disabled") as writer:
            for _ in range(30):
                writer.add_batch(**episodes.step())
            state = writer.flush()
            assert state.items_created == client.size("main") > 50
        assert len(set(client.sample("main", 32).masses.tolist())) == 1


def test_a_single_environment(place):
    """Given add for one Env. Expect its episode, and the closing row cut when the writer closes."""
    with place.pair(table(plan=NStep(2))) as (_, client):
        with client.writer("main") as writer:
            for t in range(5):
                ready = writer.add(
                    observation=np.full(3, t, np.float32),
                    action=np.int64(t),
                    reward=np.float32(t),
                    terminated=False,
                    truncated=False,
                    next_observation=np.full(3, t + 1, np.float32),
                )
                assert ready.steps.tolist() == ([t - 2] if t >= 2 else [])
        batch = client.get("main", client.sample("main", 8).keys)
        assert batch.valid.all() and client.size("main") == 3
        assert (batch.ahead == 2).all()
        assert np.array_equal(batch["observation"][:, 1], batch["observation"][:, 0] + 2)


def test_several_writers_and_readers(place):
    """Given three writers in threads, two readers. Expect all rows, no batch that mixes items."""
    described = table(plan=NStep(2), capacity=8192)

    def write(client, number):
        with client.writer("main", 2, autoreset="disabled") as writer:
            for t in range(60):
                same = np.full((2, 3), 1000 * number + t, np.float32)
                writer.add_batch(
                    observation=same,
                    action=np.full(2, 1000 * number + t),
                    reward=np.full(2, 1000 * number + t, np.float32),
                    terminated=np.zeros(2, np.bool_),
                    truncated=np.full(2, t % 20 == 19),
                    next_observation=same + 1,
                )
            return writer.flush().steps_stored

    def read(client):
        for _ in range(20):
            batch = client.sample("main", 32, timeout=20.0)
            anchors = batch["observation"][:, 0, 0]
            assert np.array_equal(batch["action"][:, 0], anchors.astype(np.int64))
            assert np.array_equal(batch["reward"][:, 0], anchors)
            client.update_priorities("main", batch, anchors.astype(np.float64) + 1)

    with place.pair(described) as (server, client), Client(server.address) as other:
        with ThreadPoolExecutor(5) as pool:
            writing = [pool.submit(write, client, number) for number in range(3)]
            reading = [pool.submit(read, reader) for reader in (client, other)]
            stored = sum(job.result() for job in writing)
            assert [job.result() for job in reading] == [None, None]
        assert stored == 3 * 2 * 63 == server.counters()["steps_committed"]
        assert client.size("main") == 3 * 2 * 60
