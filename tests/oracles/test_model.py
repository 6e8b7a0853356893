"""Random programs of client calls beside a small model; a failure is shrunk to the shortest one.

Hypothesis makes the programs: clients open and close, store rows, draw, set priorities, ask for
keys, reset a table, play episodes; several at once in threads; over UDP the server is killed
(SIGKILL) and comes back on its region, also in the middle of calls. The model is the promise: an
acknowledged row stands under its key with its priority until a row `capacity` further on pushes it
out, is drawn with probability mass / total, and survives the server.

A bounded profile runs with the suite, always the same programs; `make model` runs more, by seed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="pip install -e '.[test]'")
import model_server as served
from hypothesis import HealthCheck, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from replay_server import Client, LimiterBlocked, NothingDrawable, Timeout

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
SEED = int(os.environ.get("MODEL_SEED", "1"))
CLIENTS_MAX = 3
MASS_ONE = 2.0**26
PATIENCE = 20.0  # a call that has not ended then never will
PRIORITIES = st.sampled_from([0.0, 0.25, 1.0, 3.0, 1000.0])
_numbers = itertools.count(1)
nursery: list[served.Nursery] = []


@pytest.fixture(scope="module", autouse=True)
def _nursery():
    nursery.append(served.Nursery())
    yield
    nursery.pop().close()


class Rows:
    """The model of table "rows": what was acknowledged, by key."""

    def __init__(self) -> None:
        self.value: dict[int, int] = {}
        self.priority: dict[int, float] = {}
        self.doubtful: dict[int, set[float]] = {}  # priorities of updates that nobody answered
        self.maybe: set[int] = set()  # values that may be stored under a key nobody was told
        self.created = 0
        self.maximum = 1.0

    def stored(self, keys: Any, values: list[int], priorities: list[float] | None) -> None:
        for i, (key, value) in enumerate(zip(map(int, keys), values, strict=True)):
            assert key not in self.value, f"key {key} was given twice"
            self.value[key] = value
            if priorities is None:
                self.priority[key] = float("nan")  # the largest priority so far of its moment
            else:
                self.priority[key] = priorities[i]
        self.created += len(values)

    def alive(self, head: int) -> set[int]:
        return {key for key in self.value if key >= head - served.CAPACITY}


class Model(RuleBasedStateMachine):
    """Programs on any transport; what a subclass adds is where its server runs."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = Rows()
        self.dead: list[int] = []  # keys of before a reset
        self.clients: list[Client] = []
        self.values = itertools.count(1)
        self.frames = itertools.count(1)
        self.pool = ThreadPoolExecutor(4)

    # -- where the server runs -------------------------------------------------------------------

    def start(self) -> None:
        self.server = served.serve(None, f"loopback://model-{next(_numbers)}")
        self.address = self.server.address

    def stop(self) -> None:
        self.server.close()

    @initialize()
    def begin(self) -> None:
        self.start()
        self.clients.append(self.connect())

    def connect(self) -> Client:
        return Client(self.address, timeout=PATIENCE)

    def teardown(self) -> None:
        self.pool.shutdown()
        for client in self.clients:
            client.close(0.2)
        self.stop()

    def client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    # -- one call at a time ----------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule()
    def open_client(self) -> None:
        self.clients.append(self.connect())

    @precondition(lambda self: len(self.clients) > 1)
    @rule(number=st.integers(0, 2))
    def close_client(self, number: int) -> None:
        client = self.clients.pop(number % len(self.clients))
        client.close()
        assert client.closed

    def extend(self, client: Client, count: int, priority: float | None) -> None:
        values = [next(self.values) for _ in range(count)]
        priorities = None if priority is None else [priority * (1 + i % 2) for i in range(count)]
        keys = client.extend("rows", {"x": np.array(values)}, priorities)
        assert len(keys) == count and (np.diff(keys.astype(np.int64)) > 0).all()
        self.rows.stored(keys, values, priorities)

    @rule(
        number=st.integers(0, 2),
        count=st.integers(1, 40) | st.just(served.CAPACITY - 60),  # so that programs lap the table
        priority=st.none() | PRIORITIES,
    )
    def store(self, number: int, count: int, priority: float | None) -> None:
        self.extend(self.client(number), count, priority)

    @rule(number=st.integers(0, 2), count=st.integers(1, 60), stratified=st.booleans())
    def draw(self, number: int, count: int, stratified: bool) -> None:
        self.sample(self.client(number), count, stratified, timeout=0.0)

    def sample(self, client: Client, count: int, stratified: bool, timeout: float) -> None:
        client.table("rows")
        try:
            batch = client.sample("rows", count, stratified=stratified, timeout=timeout)
        except LimiterBlocked as blocked:
            assert self.rows.created < served.MIN_SIZE and blocked.by == "inserts"
            assert blocked.need == served.MIN_SIZE - self.rows.created or self.rows.maybe
            return
        except NothingDrawable:
            assert not any(p > 0 or p != p for p in self.rows.priority.values())
            return
        assert self.rows.created >= served.MIN_SIZE or self.rows.maybe
        self.known(batch)
        total = batch.totals.astype(float)
        assert np.allclose(batch.probabilities, batch.masses / total, rtol=1e-9)
        assert (batch.masses > 0).all()

    def known(self, batch: Any) -> None:
        """Every item is what was stored under its key, of the mass it was given last."""
        keys, values = batch.keys.tolist(), batch.data["x"].reshape(-1).tolist()
        for key, value, mass in zip(keys, values, batch.masses.tolist(), strict=True):
            if key not in self.rows.value and value in self.rows.maybe:
                self.rows.maybe.discard(value)
                self.rows.value[key], self.rows.priority[key] = value, float("nan")
            assert self.rows.value.get(key) == value, f"key {key} holds {value}"
            self.weigh(key, mass)

    def weigh(self, key: int, mass: int) -> None:
        said = self.rows.priority[key]
        allowed = {said} | self.rows.doubtful.get(key, set())
        if any(p != p for p in allowed):
            self.rows.priority[key] = mass / MASS_ONE  # told now; it has to stay from here on
        else:
            seen = mass / MASS_ONE
            assert any(abs(seen - p) <= 1e-6 * p for p in allowed), f"{key}: {seen}, not {allowed}"
            self.rows.priority[key] = seen
        self.rows.doubtful.pop(key, None)

    def chosen(self, picks: list[int]) -> list[int]:
        keys = [*self.rows.value, *self.dead]
        return [keys[-1 - pick % len(keys)] for pick in picks] if keys else []

    @rule(
        number=st.integers(0, 2),
        picks=st.lists(st.integers(0, 400), min_size=1, max_size=30, unique=True),
        priority=PRIORITIES,
    )
    def weigh_anew(self, number: int, picks: list[int], priority: float) -> None:
        keys = list(dict.fromkeys(self.chosen(picks)))
        if keys:
            self.update(self.client(number), keys, priority)

    def update(self, client: Client, keys: list[int], priority: float) -> None:
        priorities = [priority * (1 + i % 3) for i in range(len(keys))]
        done = client.update_priorities("rows", np.array(keys, np.uint64), priorities)
        assert done.applied + done.stale + done.unknown == len(keys)
        alive = self.alive(client)
        assert done.applied == len(alive & set(keys)), f"{done} of {len(alive & set(keys))} alive"
        for key, new in zip(keys, priorities, strict=True):
            if key in alive:
                self.rows.priority[key] = new
                self.rows.doubtful.pop(key, None)

    def alive(self, client: Client) -> set[int]:
        return self.rows.alive(client.table("rows").head)

    @rule(
        number=st.integers(0, 2),
        picks=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    )
    def ask(self, number: int, picks: list[int]) -> None:
        client, keys = self.client(number), self.chosen(picks)
        if not keys:
            return
        batch, alive = client.get("rows", np.array(keys, np.uint64)), self.alive(client)
        assert batch.valid.tolist() == [key in alive for key in keys]
        assert (batch.probabilities[~batch.valid] == 0.0).all()
        for key, value in zip(keys, batch.data["x"].reshape(-1).tolist(), strict=True):
            assert value == (self.rows.value[key] if key in alive else 0)

    @rule(number=st.integers(0, 2))
    def reset(self, number: int) -> None:
        self.client(number).reset("rows")
        self.dead += list(self.rows.value)[-20:]
        self.rows = Rows()

    @rule(number=st.integers(0, 2), lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4))
    def play(self, number: int, lengths: list[int]) -> None:
        self.episodes(self.client(number), lengths)

    def episodes(self, client: Client, lengths: list[int]) -> None:
        """Episodes whose observations count up: an item's last is its first plus its steps."""
        with client.writer("walk") as writer:
            for length in lengths:
                frame = float(next(self.frames) * 1000)
                for i in range(length):
                    writer.add(
                        observation=frame + i,
                        action=i,
                        reward=1.0,
                        terminated=i == length - 1,
                        truncated=False,
                        next_observation=frame + i + 1,
                    )
            state = writer.flush()
            assert state.items_created == sum(lengths) and state.items_failed == 0
            assert state.steps_stored == sum(lengths) + len(lengths)
        batch = client.sample("walk", 8)
        first, last = batch.data["observation"].reshape(8, -1)[:, [0, -1]].T
        assert (first // 1000 == (last - batch.ahead) // 1000).all()
        assert ((batch.ahead < served.N_STEP) | (last - first == served.N_STEP)).all()

    # -- several at once -------------------------------------------------------------------------

    def together(self, calls: list[Callable[[], None]]) -> None:
        for future in [self.pool.submit(call) for call in calls]:
            future.result(4 * PATIENCE)

    @rule(
        counts=st.lists(st.integers(1, 30), min_size=2, max_size=4),
        draws=st.integers(0, 3),
    )
    def store_and_draw_at_once(self, counts: list[int], draws: int) -> None:
        """Every thread has rows and values of its own; draws see rows of before or of now."""
        parts: list[tuple] = []

        def storing(client: Client, values: list[int]) -> None:
            keys = client.extend("rows", {"x": np.array(values)}, [1.0] * len(values))
            parts.append((keys, values))

        def drawing(client: Client) -> None:
            client.table("rows")  # with no time at all, looking it up again may be too late
            with contextlib.suppress(LimiterBlocked, NothingDrawable):
                seen.append(client.sample("rows", 8, timeout=0.0))

        seen: list = []
        calls = []
        for i, count in enumerate(counts):
            values = [next(self.values) for _ in range(count)]
            calls.append(partial(storing, self.client(i), values))
        calls += [partial(drawing, self.client(i)) for i in range(draws)]
        self.together(calls)
        for keys, values in parts:
            self.rows.stored(keys, values, [1.0] * len(values))
        for batch in seen:
            self.known(batch)

    # -- after every call ------------------------------------------------------------------------

    @invariant()
    def sizes_agree(self) -> None:
        if not self.clients or self.rows.maybe or self.rows.doubtful:
            return
        alive = self.alive(self.clients[0])
        priorities = [self.rows.priority[key] for key in alive]
        if any(p != p for p in priorities):
            return
        drawable = sum(p > 0 for p in priorities)
        assert self.clients[0].size("rows") == drawable


class KilledModel(Model):
    """The same over UDP, with a server that may be killed at any moment."""

    def start(self) -> None:
        self.region = tempfile.mkdtemp(prefix="model-")
        self.pid, self.address = nursery[0].start(self.region)

    def stop(self) -> None:
        nursery[0].kill(self.pid)
        shutil.rmtree(self.region)

    def come_back(self) -> None:
        port = int(self.address.rpartition(":")[2])
        self.pid, address = nursery[0].start(self.region, port)
        assert address == self.address

    @rule()
    def kill(self) -> None:
        nursery[0].kill(self.pid)
        self.come_back()

    @rule(number=st.integers(0, 2), count=st.integers(1, 40), late=st.booleans())
    def kill_while_storing(self, number: int, count: int, late: bool) -> None:
        """A call that the kill meets ends well once the server is back."""
        call = self.pool.submit(self.extend, self.client(number), count, 1.0)
        if late:
            self.client(number + 1).ping()
        nursery[0].kill(self.pid)
        self.come_back()
        call.result(2 * PATIENCE)

    @rule(number=st.integers(0, 2), picks=st.lists(st.integers(0, 99), min_size=1, max_size=9))
    def give_up_while_it_is_away(self, number: int, picks: list[int]) -> None:
        """Calls without a server end in time; what they meant may have happened or not."""
        client, keys = self.client(number), list(dict.fromkeys(self.chosen(picks)))
        nursery[0].kill(self.pid)
        with pytest.raises(Timeout):
            client.ping(timeout=0.05)
        if keys:
            with pytest.raises(Timeout):
                client.update_priorities(
                    "rows", np.array(keys, np.uint64), [2.0] * len(keys), timeout=0.05
                )
            for key in keys:
                if key in self.rows.value:
                    self.rows.doubtful.setdefault(key, set()).add(2.0)
        self.come_back()


def run(machine: type[Model], examples: int, steps: int) -> None:
    """The bounded profile, or MODEL_EXAMPLES programs by MODEL_SEED."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=steps if not EXAMPLES else 40,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        verbosity=Verbosity.normal,
        suppress_health_check=quiet,
    )
    if EXAMPLES:
        print(f"seed {SEED}")
        machine = seed(SEED)(machine)
    run_state_machine_as_test(machine, settings=chosen)


def test_programs_on_loopback():
    """Given random programs of several clients and threads. Expect what the model says."""
    run(Model, 12, 15)


def test_programs_over_udp_with_a_server_that_is_killed():
    """Given the same, and a server killed at any moment. Expect every acknowledged row there."""
    run(KilledModel, 10, 12)
