"""What FrameStack refuses: indices for flags, or frames of another form, would mix episodes."""

from __future__ import annotations

import numpy as np
import pytest

from replay_server import Column, FrameStack, SpecError

COUNT = 4
FRAMES = np.arange(8, dtype=np.uint8).reshape(COUNT, 2)
MASK = np.array([False, True, True, False])
CALLS = ["reset", "following", "push"]
FRAMES_WRONG = {
    "one for all": (np.full(2, 5, np.uint8), "expected shape"),
    "too few": (FRAMES[:3], "expected shape"),
    "too many": (np.zeros((5, 2), np.uint8), "expected shape"),
    "none": (None, "missing"),
    "fractions": (np.full((COUNT, 2), 0.7), "expected dtype uint8"),
    "too large": (np.full((COUNT, 2), 300), "uint8 holds 0 to 255"),
}


def stack_of(count: int = COUNT) -> FrameStack:
    return FrameStack(Column("observation", np.uint8, (2,)), 3, count)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "mask", [np.flatnonzero(MASK), np.array([0, 1, 1, 0]), [1, 2], MASK[:3], MASK[:, None], True]
)
def test_what_is_no_mask_is_refused_and_changes_nothing(call, mask):
    """Given indices, numbers, a list or a wrong shape for a mask. Expect SpecError that says what
    is expected, and the stack as it was."""
    stack = stack_of()
    before = stack.reset(FRAMES).copy()
    with pytest.raises(SpecError, match=r"mask: expected bool \(4,\), one flag an environment"):
        getattr(stack, call)(FRAMES, mask)
    assert np.array_equal(stack.array, before)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("frames, told", FRAMES_WRONG.values(), ids=FRAMES_WRONG)
@pytest.mark.parametrize("mask", [None, MASK])
def test_frames_that_do_not_fit_are_refused_and_change_nothing(call, frames, told, mask):
    """Given frames of a wrong shape or dtype. Expect SpecError, and the stack as it was."""
    stack = stack_of()
    before = stack.reset(FRAMES).copy()
    with pytest.raises(SpecError, match=told):
        getattr(stack, call)(frames, MASK if call == "following" else mask)
    assert np.array_equal(stack.array, before)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "2", None])
def test_sizes_that_are_none_are_refused(wrong):
    """Given a stack or a count that is no whole number of at least 1. Expect SpecError that names
    it."""
    column = Column("observation", np.uint8, (2,))
    for name, given in (("stack", (wrong, 1)), ("count", (1, wrong))):
        with pytest.raises(SpecError, match=rf"FrameStack\({name}\) is .*expected a whole number"):
            FrameStack(column, *given)


def test_whole_numbers_that_the_column_holds_are_taken():
    """Given int64 frames and a list of flags. Expect the stacks that uint8 and an array give."""
    one, other = stack_of(), stack_of()
    one.reset(FRAMES), other.reset(FRAMES.astype(np.int64))
    one.push(FRAMES + 1, MASK), other.push((FRAMES + 1).tolist(), MASK.tolist())
    assert np.array_equal(one.array, other.array)
