"""`Batch.transitions`: what it takes and gives beside n-step windows of floats on the CPU."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from given import batch_from

from replay_server import Client, Column, NStep, Row, Server, Spec, Table
from replay_server.errors import ConfigError
from replay_server.returns import n_step_targets

PLAIN = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("next_observation", np.float32, (3,)),
        Column("terminated", np.bool_),
    )
)


def windows(n, stack=1, count=40, seed=0):
    """Data of made-up windows of NStep(n, stack), and rows ahead."""
    rng = np.random.default_rng([n, stack, seed])
    steps = 2 if stack == 1 else stack + n
    data = {
        "observation": rng.integers(0, 60_000, (count, steps, 2)).astype(np.uint16),
        "action": rng.integers(0, 5, (count, 1)),
        "reward": (3 * rng.standard_normal((count, n))).astype(np.float32),
        "terminated": rng.random((count, n)) < 0.2,
    }
    return data, rng.integers(1, n + 2, count).astype(np.uint16)


def test_plain_rows_are_transitions():
    """Given rows (s, a, r, s', d). Expect each draw to be its row, with the return it leads to."""
    rng = np.random.default_rng(1)
    rows = {
        "observation": rng.standard_normal((50, 3)).astype(np.float32),
        "action": np.arange(50),
        "reward": rng.standard_normal(50).astype(np.float32),
        "next_observation": rng.standard_normal((50, 3)).astype(np.float32),
        "terminated": rng.random(50) < 0.3,
    }
    with (
        Server([Table("main", PLAIN, Row(), 100)], "loopback://") as server,
        Client(server.address) as client,
    ):
        client.extend("main", rows)
        for found in (
            client.sample("main", 64).transitions(0.9),
            client.sample("main", 64).transitions(0.9, "cpu"),
        ):
            at = np.asarray(found.actions)
            assert np.array_equal(found.observations, rows["observation"][at])
            assert np.array_equal(found.next_observations, rows["next_observation"][at])
            assert np.array_equal(found.rewards, rows["reward"][at])
            ends = rows["terminated"][at]
            assert np.asarray(found.discounts) == pytest.approx(np.where(ends, 0.0, 0.9))


def test_rows_without_next_observation_are_told_what_is_missing():
    """Given rows that do not say what they lead to. Expect both ways out."""
    data = {name: np.zeros((4, 1)) for name in ("observation", "action", "reward", "terminated")}
    with pytest.raises(ConfigError, match=r"plan=NStep\(n\), or rows that have next_observation"):
        batch_from(data, np.zeros(4, np.int64), np.ones(4)).transitions(0.9)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("clip", [0.0, 0.5, 1.0])
def test_rewards_are_clipped_before_they_are_summed(device, clip):
    """Given rewards of up to 9. Expect the loop over the window's clipped rewards."""
    data, ahead = windows(3)
    found = batch_from(data, ahead, np.ones(40)).transitions(0.9, device, clip)
    for i in range(40):
        total = 0.0
        for j in range(min(3, int(ahead[i]))):
            total += 0.9**j * min(max(float(data["reward"][i, j]), -clip), clip)
            if data["terminated"][i, j]:
                break
        assert float(found.rewards[i]) == pytest.approx(total, abs=1e-5), f"item {i}"
    if device is None:
        assert np.abs(data["reward"]).max() > 3.0, "what was drawn stays as it was"


@pytest.mark.parametrize("clip", [-1.0, float("nan"), "1", True])
def test_a_clip_that_is_none_is_refused(clip):
    """Given a bound that is no number of at least 0. Expect ConfigError that names it."""
    data, ahead = windows(1)
    with pytest.raises(ConfigError, match="reward_clip is"):
        batch_from(data, ahead, np.ones(40)).transitions(0.9, None, clip)


@pytest.mark.parametrize("stack", [1, 3])
def test_wide_unsigned_integers_become_tensors_that_torch_can_count_with(stack):
    """Given uint16 observations, up to 60 000. Expect int64 tensors of the same numbers."""
    data, ahead = windows(2, stack)
    batch = batch_from(data, ahead, np.ones(40))
    arrays, tensors = batch.transitions(0.9), batch.transitions(0.9, "cpu")
    assert arrays.observations.dtype == np.uint16
    for name in ("observations", "next_observations"):
        tensor = getattr(tensors, name)
        assert tensor.dtype == torch.int64
        assert np.array_equal(tensor, getattr(arrays, name)), name


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_flags_may_be_numbers(dtype):
    """Given `terminated` as zeros and ones. Expect the same targets as of truth values."""
    data, ahead = windows(3)
    expected = n_step_targets(data["reward"], data["terminated"], ahead, 0.9)
    data["terminated"] = data["terminated"].astype(dtype)
    found = batch_from(data, ahead, np.ones(40)).transitions(0.9)
    assert np.array_equal(found.rewards, expected[0])
    assert np.array_equal(found.discounts, expected[1])


@pytest.mark.parametrize(("n", "stack"), [(1, 1), (3, 1), (3, 4)])
def test_what_an_item_has_ahead_stays_on_the_host(n, stack):
    """Given a device whose tensors nobody can read, as a GPU's cannot be without waiting for it.
    Expect transitions there, of the right shapes: nothing was read back."""
    data, ahead = windows(n, stack)
    data["observation"] = data["observation"].astype(np.float32)
    found = batch_from(data, ahead, np.ones(40)).transitions(0.9, "meta", 1.0)
    shape = (40, 2) if stack == 1 else (40, stack, 2)
    assert found.observations.shape == found.next_observations.shape == shape
    assert found.rewards.shape == found.discounts.shape == found.weights.shape == (40,)
    assert {each.device.type for each in (found.rewards, found.observations)} == {"meta"}


def test_windows_of_a_server_are_clipped_too():
    """Given NStep(2) drawn from a server. Expect `reward_clip` to reach `learn`'s targets."""
    columns = (PLAIN["observation"], PLAIN["action"], PLAIN["reward"], PLAIN["terminated"])
    table = Table("main", Spec(columns), NStep(2), 100)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        writer = client.writer("main")
        for step in range(12):
            writer.add(
                observation=np.full(3, step),
                action=0,
                reward=5.0,
                terminated=False,
                truncated=step == 11,
                next_observation=np.full(3, step + 1),
            )
        writer.flush()
        found = client.sample("main", 32).transitions(1.0, None, 2.0)
        assert set(found.rewards.tolist()) <= {2.0, 4.0} and 4.0 in found.rewards
        writer.close()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_without_torch(monkeypatch, device):
    """Given a program without torch. Expect a sentence with the command that installs it."""
    data, ahead = windows(1)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=f"device '{device}' needs torch.*pip install"):
        batch_from(data, ahead, np.ones(40)).transitions(0.9, device)


def test_what_torch_cannot_count_is_refused():
    """Given a uint64 observation of 2**63. Expect ConfigError on the way to torch, and the number
    itself in an array; below it, the same number in both."""
    data, ahead = windows(1)
    data["observation"] = data["observation"].astype(np.uint64)
    for most in (2**63 - 1, 2**63):
        data["observation"][3, 0, 1] = most
        batch = batch_from(data, ahead, np.ones(40))
        assert batch.transitions(0.9).observations[3, 1] == most
        if most < 2**63:
            assert batch.transitions(0.9, "cpu").observations[3, 1] == most
        else:
            sentence = r"column 'observation': 9223372036854775808 is beyond int64"
            with pytest.raises(ConfigError, match=sentence):
                batch.transitions(0.9, "cpu")


def test_what_transitions_do_not_hold_stays_where_it_is():
    """Given an extra column that no tensor holds. Expect transitions on a device all the same."""
    data, ahead = windows(1)
    data["hash"] = np.full_like(data["action"], 2**63, np.uint64)
    batch = batch_from(data, ahead, np.ones(40))
    for device in (None, "cpu"):
        got = batch.transitions(0.9, device)
        assert np.array_equal(np.asarray(got.rewards), np.asarray(batch.transitions(0.9).rewards))


def test_the_default_dtype_of_torch_is_not_that_of_discounts():
    """Given float64 as torch's default. Expect rewards and discounts float32, as documented."""
    data, ahead = windows(3)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        found = batch_from(data, ahead, np.ones(40)).transitions(0.9, "cpu")
    finally:
        torch.set_default_dtype(before)
    assert found.rewards.dtype == found.discounts.dtype == torch.float32
