"""Whether each step goes on where the one before it ended: finds a reset that nobody reported.

Rows of a stream lie one after the other: the row after a step is taken to be what its action led
to. A caller that resets an environment and does not say so (no `truncated`, no `writer.restart`)
would join two episodes. But where each step's next observation is given, the step after it has to
begin with that one. Where it does not, the episode is cut at that next observation, as truncated.
So the stored transition is the one that the caller handed in. The first time, a warning says
so.

A wrong cut would shorten windows. The next observation of some callers is never what the next step
begins with (scaled by numbers that change meanwhile, rows in any order). So a stream is cut only
where a look found before that a step of it went on, and at most ODD_MAX times since that look.
After ODD_MAX more looks in a row that found no such step, the caller gets a warning, and the steps
are stored as if nobody had looked, until one in PAUSE_S finds a step that goes on. So a reset
behind a stream's first step, or its first episodes of one step, is not found.

Compared is what would be stored, number by number and exactly. Only floats that were given in two
dtypes may differ, as far as computing in float32 or float64 makes them (CLOSE). A next observation
that is not finite is not stored: once the step after it is refused for it, or begins elsewhere, its
episode ends one step earlier, without the items that lead there. Nothing is done where a next
observation lies in memory that was written since (copy=False): what it was is not known.

Most callers pass on the same object, which needs no look. Copies are all compared where
observations have one column of at most SMALL_BYTES and are arrays of one dtype, or numbers: the
writer sees without a call that they are equal bit for bit. Of others (larger ones, dicts, lists,
two dtypes) the first LOOKS_MAX are compared, then one in PAUSE_S; after the first cut all of them.
Until then a reset may go unseen there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import Once
from ..spec import Column, SpecError, array_of
from ..support.values import same_memory
from .anchors import Anchors
from .autoreset import Autoreset

CLOSE = 1e-6  # of a number, of 1 where it is smaller
ODD_MAX = 8
LOOKS_MAX, PAUSE_S = 1000, 0.001
SMALL_BYTES = 4096
NUMBERS = frozenset((int, float, *np.sctypeDict.values()))
ODD = "a step does not begin where the one before it ended (its observation is not the "
ODD += "next_observation of that one)"
LEAVE_OUT = "where next_observation only is computed otherwise, leave it out of steps that end none"


class Following:
    """The looks of one writer. `pause`: seconds until the next look. `small`: observations are so
    small that arrays are compared at every step; where they are equal, `odd` becomes `zeros`."""

    def __init__(self, autoreset: Autoreset) -> None:
        self._autoreset = autoreset
        # [B], replaced and never changed: looks in a row that found a stream's step beginning
        # elsewhere, without a cut; negative: with one. What was not looked at yet counts as one
        self.odd = np.ones(autoreset.count, np.int64)
        self.zeros = np.zeros(autoreset.count, np.int64)
        columns = autoreset.spec.group("observation")
        self.small = len(columns) == 1 and columns[0].size * autoreset.count <= SMALL_BYTES
        self._seen: tuple = (None, None)  # the newest look's: `last`, the step's own
        self._looks, self._cut, self.pause = 0, False, 0.0
        self._say_cut, self._say_odd = Once(), Once()

    def cuts(
        self, observation: Any, last: Any, next_observation: Any, anchors: Anchors
    ) -> np.ndarray | None:
        """Bool [B]: open episodes that this step, not added yet, does not continue; None: none.

        `last`: the next observation of the step before, another object than `observation`.
        """
        every, self.pause = self.pause == 0, PAUSE_S  # every: no step was passed over unseen
        if next_observation is None or next_observation is last:
            return None
        seen, self._seen = self._seen, (last, next_observation)
        self._looks += 1
        alike = type(last) is type(observation)
        arrays = alike and type(last) is np.ndarray
        if self._cut or self._looks < LOOKS_MAX:
            self.pause = 0.0
        elif self.small and alike:
            cheap = last.dtype == observation.dtype if arrays else type(last) in NUMBERS
            self.pause = 0.0 if cheap else self.pause
        if last is None:
            self.pause = 0.0
            return None
        if arrays and last.tobytes() == observation.tobytes():
            self.odd = self.zeros
            return None
        if every and last is not seen[0] and last is not seen[1]:
            # neither the same step again, nor the one after it: those between began
            # with the same objects
            self.odd = self.zeros
        opened = anchors.length > 0
        if not opened.all():  # who begins an episode is elsewhere by right: the next look is due
            self.pause = 0.0
            if not opened.any():
                return None
        differs = self._apart(opened, observation, last, next_observation)
        cut = differs & (self.odd <= 0) & (self.odd > -ODD_MAX)
        self.odd = np.where(opened & ~cut, (np.maximum(self.odd, 0) + 1) * differs, self.odd)
        if cut.any():
            self._cut, self.pause = True, 0.0
            self._say_cut(
                f"stream {np.argmax(cut)}: {ODD}, as if the environment was reset and nobody said "
                f"so: the episode was cut there, as truncated, and will be up to {ODD_MAX} times "
                "in a row; say truncated=True in its last step, or writer.restart(mask, "
                "final_observation); " + LEAVE_OUT
            )
            return cut
        if self.odd.min() >= ODD_MAX:
            self.pause = PAUSE_S
        if self.odd.max() >= ODD_MAX:
            self._say_odd(
                f"stream {np.argmax(self.odd)}: time and again {ODD}: what is stored as the next "
                "observation of a step is the observation of the step that was added after it; "
                "add the steps of each environment in their order, in a stream of its own, and "
                "say truncated=True where the next one is of another episode; " + LEAVE_OUT
            )
        return None

    def spoilt(self, observation: Any) -> np.ndarray:
        """Bool [B]: environments whose observation holds a NaN or an infinity, where these are
        refused; all False where it is no observation."""
        autoreset = self._autoreset
        wrong = np.zeros(autoreset.count, np.bool_)
        if observation is None or not autoreset.finite_observations:
            return wrong
        try:
            flat = autoreset.spec.flatten("observation", observation)
            for column in autoreset.observations:
                rows = autoreset._batched(array_of(column.name, flat[column.name]))
                finite = np.isfinite(autoreset._fitted(column, rows))
                wrong |= ~finite.reshape(autoreset.count, -1).all(1)
        except SpecError:
            return np.zeros(autoreset.count, np.bool_)
        return wrong

    def _apart(self, mask: np.ndarray, observation: Any, before: Any, newer: Any) -> np.ndarray:
        """Bool [B]: environments of `mask` in which `observation` differs from `before`, as stored.

        All False where they cannot be compared. Columns that lie in the memory of `newer` are left
        out: that memory was written since.
        """
        autoreset = self._autoreset
        differs = np.zeros(autoreset.count, np.bool_)
        try:
            given = [autoreset.spec.flatten("observation", o) for o in (observation, before, newer)]
            for column in autoreset.observations:
                here, was, written = (flat[column.name] for flat in given)
                if not same_memory(was, written):
                    differs |= self._unlike(column, here, was)
        except SpecError:
            return np.zeros(autoreset.count, np.bool_)
        return differs & mask

    def _unlike(self, column: Column, one: Any, other: Any) -> np.ndarray:
        """Bool [B]: environments whose values of a column differ. Floats in two dtypes differ where
        they do by more than CLOSE, or than the precision of the narrowest dtype."""
        given = [self._autoreset._batched(array_of(column.name, each)) for each in (one, other)]
        here, there = (self._autoreset._fitted(column, each) for each in given)
        unlike = here != there
        if column.dtype.kind == "f" and unlike.any():
            unlike &= ~(np.isnan(here) & np.isnan(there))
            if given[0].dtype != given[1].dtype:
                kinds = [column.dtype, *(each.dtype for each in given if each.dtype.kind == "f")]
                close = max(CLOSE, *(float(np.finfo(kind).eps) for kind in kinds))
                with np.errstate(all="ignore"):  # what is not finite is not close
                    largest = np.maximum(np.maximum(abs(here), abs(there)), 1.0)
                    unlike &= ~(abs(here - there) <= close * largest)
        return unlike.reshape(len(unlike), -1).any(1)
