"""The one place where frames become stacks. Actor and learner both build them here.

A stack of k at step t is frames t-k+1 .. t, oldest first, padded behind the episode's start with
zeros or with its first frame (`Column.pad`). The actor keeps the running stacks of its environments
in a `FrameStack`; the learner cuts stacks out of sampled frames with `stacks_from_frames`. The two
agree byte for byte, which is what the edge tests assert.

A sampled item of NStep(n, stack=k) holds frames at offsets -(k-1) .. n, k + n of them:

    index     0 ... k-1 ... k-1+m ... k-1+n          m = min(n, ahead)
    offset  -(k-1)  0        m         n
    obs      [0, k)                                  frames t-k+1 .. t
    next_obs         [m, m+k)                        frames t+m-k+1 .. t+m

The server repeats an episode's last row ahead of its end, so the fixed window [n, n+k) is right
only where ahead >= n. For shorter items it would be m..m+k with repeats in it: those are gathered
again from [m, m+k), which is always inside the block. With stack=1 only offsets {0, n} are sampled;
there the repeated last row is the observation t+m itself.

Works on numpy arrays and, by plain indexing, on torch tensors. Stacks always have the axis k, also
for k = 1: [batch, k, *shape].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .spec import Column, SpecError, fitted, flags_of
from .support.values import whole


def stacks_from_frames(frames: Any, ahead: Any, n: int, stack: int) -> tuple[Any, Any]:
    """(obs, next_obs), each [B, k, *shape], of one sampled observation column; k is `stack`.

    frames    [B, k + n, *shape]; for stack=1 [B, 2, *shape]; an array or a tensor
    ahead     integers [B], at least 0: rows after t in the episode, as batch.ahead has them. On the
              host, so that no GPU is waited for
    n         steps of the plan NStep(n, stack)

    obs is a view of frames. next_obs is a view where every item has ahead >= n, else a copy. Raises
    SpecError where frames has another number of steps, or `ahead` is not as said.
    """
    n, stack = whole("n", n, 1, error=SpecError), whole("stack", stack, 1, error=SpecError)
    if len(getattr(frames, "shape", ())) < 2:
        raise SpecError(
            f"frames is of {type(frames).__name__}: expected an array or tensor [B, steps, *shape]"
        )
    steps = 2 if stack == 1 else stack + n
    if frames.shape[1] != steps:
        raise SpecError(
            f"frames of n={n}, stack={stack} have {steps} steps, got shape {tuple(frames.shape)}"
        )
    ahead = _rows_ahead(ahead, len(frames))
    if stack == 1:
        return frames[:, :1], frames[:, 1:]
    obs = frames[:, :stack]
    m = np.minimum(ahead, n).astype(np.int64)
    if not len(m) or m.min() == n:
        return obs, frames[:, n:]
    rows, steps = np.arange(len(m))[:, None], m[:, None] + np.arange(stack)
    if not isinstance(frames, np.ndarray):
        import torch

        rows, steps = (torch.from_numpy(index).to(frames.device) for index in (rows, steps))
    return obs, frames[rows, steps]


def _rows_ahead(ahead: Any, count: int) -> np.ndarray:
    """`ahead` as integers [count] on the host."""
    try:
        numbers = np.asarray(ahead)
    except (TypeError, ValueError, RuntimeError):  # ragged; a tensor elsewhere, or of a graph
        numbers = np.zeros((), np.object_)
    whole_numbers = numbers.dtype.kind in "iu" or numbers.size == count == 0
    if numbers.shape != (count,) or not whole_numbers or (numbers < 0).any():
        raise SpecError(
            f"ahead is {ahead!r}: expected whole numbers of at least 0 on the host, one an item "
            f"([{count}]), as batch.ahead has them"
        )
    return numbers


class FrameStack:
    """The running stacks of `count` = B environments for one observation column, k frames each.

    array     [B, k, *shape] of the column's dtype, oldest frame first

    `array` is always the same buffer, and each call changes it: copy what has to last longer.
    Raises SpecError where frames do not fit the column.
    """

    def __init__(self, column: Column, stack: int, count: int) -> None:
        self.column = column
        self.stack = whole("FrameStack(stack)", stack, 1, error=SpecError)
        count = whole("FrameStack(count)", count, 1, error=SpecError)
        self.array = np.zeros((count, self.stack, *column.shape), column.dtype)

    def reset(self, frames: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Starts episodes with `frames` [B, *shape] where `mask`, bool [B], is true; None: all.

        The frames before the first are zeros, or copies of it, as `column.pad` says. Returns
        `array`.
        """
        count = len(self.array)
        mask = np.ones(count, np.bool_) if mask is None else flags_of(mask, count)
        first = fitted(self.column, frames, count)[mask]
        if self.column.pad == "first":
            self.array[mask] = first[:, None]
        else:
            self.array[mask] = 0
            self.array[mask, -1] = first
        return self.array

    def following(self, frames: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The stacks that `push` would make of the environments in `mask`: a copy [E, k, *shape].

        mask: bool [B]. For final observations of episodes, which are used once and not acted on.
        """
        mask = flags_of(mask, len(self.array))
        frames = fitted(self.column, frames, len(self.array))
        return np.concatenate([self.array[mask, 1:], frames[mask][:, None]], axis=1)

    def push(self, frames: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Appends `frames` [B, *shape] where `mask`, bool [B], is true (None: all); `array`."""
        frames = fitted(self.column, frames, len(self.array))
        if mask is None:
            self.array[:, :-1] = self.array[:, 1:].copy()
            self.array[:, -1] = frames
        else:
            mask = flags_of(mask, len(self.array))
            self.array[mask, :-1] = self.array[mask, 1:]
            self.array[mask, -1] = frames[mask]
        return self.array
