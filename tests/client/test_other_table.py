"""Another server comes up at the same address, and its table has other columns or another plan:
what was made for the old one tells so, and shows nothing of the new one in the old layout."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    ConfigError,
    NStep,
    Row,
    Server,
    Spec,
    SpecMismatch,
    Table,
)

PREFETCH, COUNT = 3, 4
REST = (Column("reward", np.float32), Column("terminated", np.bool_))
SEEN, ACTION = Column("observation", np.int64), Column("action", np.int64)
SPEC = Spec((SEEN, ACTION, *REST))
OTHERS = {  # what comes up next, and what the errors name
    "dtype": (Spec((Column("observation", np.float64), ACTION, *REST)), "observation: mine int64"),
    "order": (Spec((ACTION, SEEN, *REST)), "order: mine observation, action"),
    "size": (Spec((Column("observation", np.int64, (3,)), ACTION, *REST)), "theirs int64.3."),
}
PLANS = {  # the same beside a new one, another, and gone
    "same": (0, {"steps": NStep(1)}, {"steps": NStep(1), "rows": Row()}, None),
    "another": ("steps", {"steps": NStep(1)}, {"steps": NStep(2)}, "plan: mine 'steps', NStep.n=1"),
    "gone": ("steps", {"steps": NStep(1)}, {"rows": Row()}, "no plan 'steps'; the table has rows"),
}


@contextmanager
def served(spec, plan, address="udp://127.0.0.1:0"):
    """A server of such a table, with an episode in it: action 1000 more than what was seen."""
    with Server([Table("main", spec, plan, 1024)], address) as server:
        with Client(server.address) as client, client.writer("main") as writer:
            column = spec["observation"]
            for i in range(50):
                seen = np.full(column.shape, i, column.dtype)
                after = np.full(column.shape, i + 1, column.dtype)
                writer.add_step(seen, 1000 + i, after, 1.0, False, i == 49)
        yield server


def expect_whole(batch):
    """As it was written."""
    seen, action = np.asarray(batch["observation"]), np.asarray(batch["action"])
    assert np.array_equal(seen[:, 0].reshape(COUNT, -1)[:, 0] + 1000, action[:, 0])


def expect_told(batches, told):
    """SpecMismatch, after what was drawn before at most, and whenever it is asked again."""
    with pytest.raises(SpecMismatch, match=told):
        for _ in range(PREFETCH + 1):
            expect_whole(next(batches))
    for _ in range(PREFETCH + 1):
        with pytest.raises(SpecMismatch, match=r"call client\.batches anew"):
            next(batches)
        with pytest.raises(SpecMismatch, match=told):
            batches.get(0.0)
    batches.close()
    assert list(batches) == []


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("other", OTHERS)
def test_batches_of_other_columns_are_refused(other, device):
    """Given a live iterator, and another server at its address whose columns are of another dtype,
    in another order, of another size. Expect SpecMismatch that names the first, until it is closed,
    and a new one to go on."""
    spec, told = OTHERS[other]
    with served(SPEC, NStep(1)) as server:
        client = Client(server.address, timeout=20.0)
        batches = client.batches("main", COUNT, prefetch=PREFETCH, device=device)
        expect_whole(next(batches))
    with served(spec, NStep(1), client.address), client:
        expect_told(batches, told)
        with client.batches("main", COUNT, device=device) as anew:
            expect_whole(next(anew))


@pytest.mark.parametrize("case", PLANS)
def test_batches_of_another_plan_are_refused(case):
    """Given the same columns, and a plan that is another, gone, or the same beside a new one.
    Expect SpecMismatch, and batches as before where it is the same."""
    plan, before, after, told = PLANS[case]
    with served(SPEC, before) as server:
        client = Client(server.address, timeout=20.0)
        batches = client.batches("main", COUNT, plan=plan, prefetch=PREFETCH)
        expect_whole(next(batches))
    with served(SPEC, after, client.address), client, batches:
        if told:
            expect_told(batches, told)
        else:
            for _ in range(3 * PREFETCH):
                expect_whole(next(batches))


@pytest.mark.parametrize("other", OTHERS)
def test_a_landing_of_other_columns_is_refused(other):
    """Given a landing made for the table of the server before. Expect it to be refused with the
    first column that differs, and nothing to be drawn into it; one made anew to be taken."""
    spec, told = OTHERS[other]
    with served(SPEC, NStep(1)) as server:
        client = Client(server.address, timeout=20.0)
        landing = client.landing("main", COUNT)
        expect_whole(client.sample("main", COUNT, out=landing))
        was = {name: array.copy() for name, array in landing.data.items()}
    with served(spec, NStep(1), client.address), client:
        for _ in range(2):
            with pytest.raises(ConfigError, match=told):
                client.sample("main", COUNT, out=landing)
        assert all(np.array_equal(landing.data[name], was[name]) for name in was)
        expect_whole(client.sample("main", COUNT, out=client.landing("main", COUNT)))


def test_a_landing_of_the_same_columns_goes_on():
    """Given the same table at the server that comes up next. Expect the landing to be taken."""
    with served(SPEC, NStep(1)) as server:
        client = Client(server.address, timeout=20.0)
        landing = client.landing("main", COUNT)
        expect_whole(client.sample("main", COUNT, out=landing))
    with served(SPEC, NStep(1), client.address), client:
        expect_whole(client.sample("main", COUNT, out=landing))
