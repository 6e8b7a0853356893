"""What the public functions of targets refuse: a wrong `ahead` or gamma would be a wrong return."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from replay_server import ConfigError, SpecError, n_step_targets, stacks_from_frames

REWARD = np.arange(12, dtype=np.float32).reshape(4, 3)
NONE = np.zeros((4, 3), np.bool_)
WRONG = {
    "a column": [[1], [2], [3], [3]],
    "one for all": [3],
    "a number": 3,
    "too many": [1, 2, 3, 3, 3],
    "zero": [0, 1, 2, 3],
    "negative": [-1, 1, 2, 3],
    "fractions": [1.9, 1.0, 2.0, 3.0],
    "truth values": [True, True, True, True],
}


@pytest.mark.parametrize("ahead", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_an_ahead_that_is_none_is_refused(ahead, kind):
    """Given an ahead of a wrong shape, range or kind, as an array and as a tensor. Expect
    ConfigError that says what is expected."""
    with pytest.raises(ConfigError, match=r"(?s)ahead is .*expected whole numbers of at least 1"):
        n_step_targets(kind(REWARD), kind(NONE), kind(ahead), 0.9)


@pytest.mark.parametrize("ahead", [v for k, v in WRONG.items() if k != "zero"])
def test_stacks_of_an_ahead_that_is_none_are_refused(ahead):
    """Given the same, but for the 0 that stacks may have, with and without frames behind. Expect
    SpecError that says what is expected."""
    frames = np.zeros((4, 5, 2), np.uint8)
    with pytest.raises(SpecError, match=r"(?s)ahead is .*expected whole numbers of at least 0"):
        stacks_from_frames(frames, np.asarray(ahead), 3, 2)
    with pytest.raises(SpecError, match=r"(?s)ahead is .*expected whole numbers of at least 0"):
        stacks_from_frames(frames[:, :2], np.asarray(ahead), 3, 1)


@pytest.mark.parametrize(
    "ahead",
    [
        [[1], [2, 3], [3], [3]],
        torch.tensor([1.0, 2.0, 3.0, 3.0], requires_grad=True),
        torch.empty(4, dtype=torch.int64, device="meta"),
    ],
)
def test_stacks_of_what_is_no_array_of_the_host_are_refused(ahead):
    """Given an ahead that is ragged, needs gradients, or lies on no device. Expect SpecError that
    says what is expected."""
    with pytest.raises(SpecError, match=r"(?s)ahead is .*expected whole numbers of at least 0"):
        stacks_from_frames(np.zeros((4, 5, 2), np.uint8), ahead, 3, 2)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_targets_of_no_steps_are_refused_and_those_of_no_items_are_none(kind):
    """Given rewards of no steps, and of no items. Expect ConfigError for the first, and empty
    results for the second."""
    rewards, flags = np.ones((4, 3), np.float32), np.zeros((4, 3), bool)
    with pytest.raises(ConfigError, match="n of at least 1"):
        n_step_targets(kind(rewards[:, :0]), kind(flags[:, :0]), [1, 1, 1, 1], 0.9)
    returns, discounts, m = n_step_targets(kind(rewards[:0]), kind(flags[:0]), [], 0.9)
    assert len(returns) == len(discounts) == len(m) == 0
    obs, after = stacks_from_frames(np.zeros((0, 5, 2), np.uint8), [], 3, 2)
    assert obs.shape == after.shape == (0, 2, 2)


@pytest.mark.parametrize("gamma", [99, -0.1, float("nan"), "0.9", None])
def test_a_gamma_that_is_none_is_refused(gamma):
    """Given a gamma outside 0 to 1, or no number. Expect ConfigError."""
    with pytest.raises(ConfigError, match="gamma is"):
        n_step_targets(REWARD, NONE, np.full(4, 3), gamma)


@pytest.mark.parametrize("dtype", [np.uint16, np.int64])
def test_an_ahead_as_a_batch_has_it_goes_with_tensors(dtype):
    """Given `ahead` on the host beside tensors, as batches(device=...) hand both out. Expect what
    arrays give."""
    ahead = np.array([1, 2, 3, 7], dtype)
    expected = n_step_targets(REWARD, NONE, ahead, 0.9)
    for given in (ahead, torch.as_tensor(ahead)):
        returned = n_step_targets(torch.as_tensor(REWARD), torch.as_tensor(NONE), given, 0.9)
        for mine, theirs in zip(returned, expected, strict=True):
            assert np.allclose(mine.numpy(), theirs, rtol=1e-6)


TENSOR, FLAGS = torch.as_tensor(REWARD), torch.as_tensor(NONE)
MIXED = {
    "lists": (REWARD.tolist(), NONE),
    "a list of flags": (REWARD, NONE.tolist()),
    "a tensor beside an array": (TENSOR, NONE),
    "an array beside a tensor": (REWARD, FLAGS),
    "no rewards": (None, NONE),
    "no flags": (REWARD, None),
    "a word": ("reward", NONE),
    "a number": (1.0, FLAGS),
}


@pytest.mark.parametrize("reward, terminated", MIXED.values(), ids=MIXED)
def test_what_is_not_two_arrays_or_two_tensors_is_refused(reward, terminated):
    """Given rewards and flags of two kinds, or of none. Expect ConfigError that says which pairs
    there are."""
    with pytest.raises(ConfigError, match="expected NumPy arrays both, or torch tensors both"):
        n_step_targets(reward, terminated, np.full(4, 3), 0.9)


@pytest.mark.parametrize("dtype", [np.complex64, np.bool_, np.str_, np.object_])
def test_rewards_that_are_no_real_numbers_are_refused(dtype):
    """Given complex rewards, flags, words or objects. Expect ConfigError."""
    kinds = [(REWARD.astype(dtype), NONE)]
    if dtype in (np.complex64, np.bool_):
        kinds.append((torch.as_tensor(kinds[0][0]), FLAGS))
    for reward, terminated in kinds:
        with pytest.raises(ConfigError, match=r"reward is .*expected real numbers"):
            n_step_targets(reward, terminated, np.full(4, 3), 0.9)


@pytest.mark.parametrize("ahead", [None, "3", ["1", "2", "3", "3"], [[1], [2, 3], 3, 3], [1j] * 4])
@pytest.mark.parametrize("pair", [(REWARD, NONE), (TENSOR, FLAGS)], ids=["arrays", "tensors"])
def test_an_ahead_of_no_numbers_is_refused(ahead, pair):
    """Given an ahead of words, ragged lists or complex numbers. Expect ConfigError that says what
    is expected."""
    with pytest.raises(ConfigError, match=r"(?s)ahead is .*expected whole numbers of at least 1"):
        n_step_targets(*pair, ahead, 0.9)


@pytest.mark.parametrize("pair", [(REWARD, NONE), (TENSOR, FLAGS)], ids=["arrays", "tensors"])
def test_an_ahead_beyond_int64_is_n(pair):
    """Given an ahead larger than int64 holds. Expect it to count as n, like any above n."""
    large = np.array([1, 2, 3, 2**64 - 1], np.uint64)
    for ahead in (large, torch.as_tensor(large)):
        m = n_step_targets(*pair, ahead, 0.9)[2]
        assert m.tolist() == [1, 2, 3, 3]


@pytest.mark.parametrize("wrong", [0, -1, 2.5])
def test_stacks_of_no_size_are_refused(wrong):
    """Given an n or a stack that is 0, negative or a fraction. Expect SpecError that names it."""
    for name, sizes in (("n", (wrong, 2)), ("stack", (3, wrong))):
        with pytest.raises(SpecError, match=rf"^{name} is .*expected a whole number"):
            stacks_from_frames(np.zeros((4, 5, 2)), np.full(4, 3), *sizes)


@pytest.mark.parametrize("frames", [[[1, 2]], np.zeros(4), None])
def test_frames_without_steps_are_refused(frames):
    """Given frames without an axis of steps. Expect SpecError with the shape that is expected."""
    with pytest.raises(SpecError, match=r"expected an array or tensor \[B, steps"):
        stacks_from_frames(frames, np.full(4, 3), 3, 2)


def test_masked_rewards_are_refused():
    """Given rewards of which some are hidden. Expect a sentence, and not their sum."""
    rewards = np.ma.masked_array(np.full((1, 3), 2.0, np.float32), mask=[[0, 1, 1]])
    with pytest.raises(ConfigError, match="masked array"):
        n_step_targets(rewards, np.zeros((1, 3), bool), [3], 0.5)
