"""Which rows have a complete window: counts, no rows.

An anchor is ready once `reach` rows follow it in its episode, or the episode has ended. What became
ready by a step is a `Ready`. It is computed when it is first used, since most callers never do:
the core creates the items by the same rule (native/drive/link_block.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..support.values import whole_numbers


class Ready:
    """K anchors whose window is complete, sorted by (stream, step): what became ready by a step."""

    __slots__ = ("_arrays", "_counts", "_more")

    def __init__(self, counts: tuple, more: int = 0) -> None:
        """`counts`: (real, ended, next_step, length, reach) as `_anchors` has them; `more` rows
        came in every stream since then."""
        self._counts, self._more, self._arrays = counts, more, None

    def _computed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._arrays is None:
            real, ended, next_step, length, reach = self._counts
            more = self._more
            self._arrays = _anchors(real, ended, next_step + more, length + more, reach)
            self._counts = None
        return self._arrays

    @property
    def streams(self) -> np.ndarray:
        """int64 [K]: the stream of each anchor."""
        return self._computed()[0]

    @property
    def steps(self) -> np.ndarray:
        """int64 [K]: the number of each anchor's row in its stream."""
        return self._computed()[1]

    @property
    def ahead(self) -> np.ndarray:
        """int64 [K]: rows that follow each anchor in its episode, at most the table's reach."""
        return self._computed()[2]

    def where(self, chosen: np.ndarray) -> Ready:
        """Those of them for which `chosen`, bool [K], holds."""
        found = Ready(())
        found._arrays = tuple(part[chosen] for part in self._computed())
        return found

    def __len__(self) -> int:
        return len(self.streams)

    def __repr__(self) -> str:
        return f"Ready(streams={self.streams}, steps={self.steps}, ahead={self.ahead})"


def moved(ready: Ready, by: int) -> Ready:
    """The same anchors, of streams whose numbers are so much larger."""
    found = Ready(())
    found._arrays = (ready.streams + by, ready.steps, ready.ahead)
    return found


def joined(parts: Sequence[Ready]) -> Ready:
    """All of them, one behind the other: by rising streams."""
    each, found = [part._computed() for part in parts], Ready(())
    found._arrays = tuple(map(np.concatenate, zip(*each, strict=True)))
    return found


def anchors_in(ready: Any) -> tuple[Any, Any]:
    """(streams, steps) of `ready`; ConfigError where it has none."""
    if not hasattr(ready, "streams"):
        raise ConfigError(f"ready is {ready!r}; expected what `add` or `append` returned")
    return ready.streams, ready.steps


class Anchors:
    """Rows counted along each of B streams."""

    def __init__(self, streams: int, reach: int) -> None:
        self.reach = reach
        self._every, self._none = np.ones(streams, np.bool_), np.zeros(streams, np.bool_)
        self._more = 0  # rows of every stream since these two, which are replaced, never changed
        self._next_step = np.zeros(streams, np.int64)
        self._length = np.zeros(streams, np.int64)
        self._counts = self._as_counts()

    def _as_counts(self) -> tuple:
        return self._every, self._none, self._next_step, self._length, self.reach

    @property
    def next_step(self) -> np.ndarray:
        """int64 [B], closing rows included."""
        return self._next_step + self._more

    @property
    def length(self) -> np.ndarray:
        """int64 [B]: rows of the open episode."""
        return self._length + self._more

    def checked(self, streams: Any, steps: Any) -> tuple[np.ndarray, np.ndarray]:
        """(streams, steps) as arrays [K]; ConfigError where a window of these is not complete."""
        streams, steps = whole_numbers("streams", streams), whole_numbers("steps", steps)
        count, most = steps.size, len(self._length)
        if streams.shape != (count,) or steps.shape != (count,):
            raise ConfigError(f"streams {streams.shape} and steps {steps.shape} must be [K] alike")
        if count and (streams.min() < 0 or streams.max() >= most):
            raise ConfigError(f"stream {streams.max()}: this writer has {most}")
        if count and (steps.min() < 0 or (self.missing(streams, steps) > 0).any()):
            self.refuse(streams, steps)
        return streams, steps

    def missing(self, streams: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Rows that still have to follow these, for their windows to be complete, unless their
        episode has ended; above `reach` where the row itself is not there."""
        return steps + (self.reach + 1) - self.next_step[streams]

    def refuse(self, streams: np.ndarray, steps: np.ndarray) -> None:
        """ConfigError for the first of these that cannot be an item yet; none may be wrong."""
        missing = self.missing(streams, steps)
        if steps.min() < 0 or (missing > self.reach).any():
            raise ConfigError("an item can only be created at a step this writer has added")
        begin = (self.next_step - self.length)[streams]  # of the open episode
        wrong = (missing > 0) & (steps >= begin)
        if wrong.any():
            first = int(np.argmax(wrong))
            more = int(missing[first])
            raise ConfigError(
                f"step {int(steps[first])} of stream {int(streams[first])} needs {more} more "
                f"row{'s' * (more != 1)}, or its episode's end: create items at anchors that "
                "`add` returned"
            )

    def recount(self, next_step: np.ndarray, length: np.ndarray) -> None:
        """Sets `next_step` and `length` of all streams, as the writer's block knows them."""
        self._next_step, self._length, self._more = next_step, length, 0
        self._counts = self._as_counts()

    def advance_all(self) -> Ready:
        """One more row in every stream."""
        self._more += 1
        return Ready(self._counts, self._more)

    def advance(self, streams: np.ndarray, ended: np.ndarray) -> Ready:
        """One more row in each of `streams`, then a closing row in each of `ended`."""
        masks = np.zeros((2, len(self._length)), np.bool_)
        masks[0, streams] = masks[1, ended] = True
        return self.advance_some(*masks)

    def advance_some(self, real: np.ndarray, ended: np.ndarray) -> Ready:
        """As `advance`, with bool [B] each in place of stream numbers. The arrays are kept: do not
        change them."""
        next_step, length = self._next_step + self._more, self._length + self._more
        next_step += real
        length += real
        ready = Ready((real, ended, next_step, length, self.reach))
        self._next_step, self._length, self._more = next_step + ended, length * ~ended, 0
        self._counts = self._as_counts()
        return ready


def _anchors(
    real: np.ndarray, ended: np.ndarray, next_step: np.ndarray, length: np.ndarray, reach: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(streams, steps, ahead) of what the streams in `real` made ready by a row, counts behind it,
    and those in `ended` by their end; bool [B] each."""
    streams, ended = np.flatnonzero(real), np.flatnonzero(ended)
    full = streams[length[streams] > reach]
    steps = next_step[full] - 1 - reach
    if not len(ended):
        return full, steps, np.full(len(full), reach)
    held = np.minimum(length[ended], reach)
    ended_streams = np.repeat(ended, held)
    ahead = np.concatenate([np.arange(n, 0, -1) for n in held]) if held.sum() else held[:0]
    ended_steps = next_step[ended_streams] - ahead
    every = np.concatenate([full, ended_streams])
    steps = np.concatenate([steps, ended_steps])
    ahead = np.concatenate([np.full(len(full), reach), ahead])
    order = np.lexsort((steps, every))
    return every[order], steps[order], ahead[order]
