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
    with pytest.raises(ConfigError, match=r"(?s)ahead is .*expected whole numbers of at least 1"):
        n_step_targets(kind(REWARD), kind(NONE), kind(ahead), 0.9)


@pytest.mark.parametrize("ahead", [v for k, v in WRONG.items() if k != "zero"])
def test_stacks_of_an_ahead_that_is_none_are_refused(ahead):
    frames = np.zeros((4, 5, 2), np.uint8)
    with pytest.raises(SpecError, match=r"(?s)ahead is .*expected whole numbers of at least 0"):
        stacks_from_frames(frames, np.asarray(ahead), 3, 2)


@pytest.mark.parametrize("gamma", [99, -0.1, float("nan"), "0.9", None])
def test_a_gamma_that_is_none_is_refused(gamma):
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
