"""Whether each step goes on where the one before it ended: a reset that nobody announced is found.

Rows of a stream lie one after the other, and what follows a row is taken to be what its action led
to. A caller who resets an environment and says so nowhere (no `truncated`, no `writer.restart`)
would join two episodes. But where each step's next observation is given, the step after it begins
with that one; where it does not, the episode is cut at that next observation, as truncated. So the
transition that is stored is the one that the caller told of, and a warning tells of the first time.

A cut that is wrong would shorten windows. So nothing is cut in a stream unless its newest look
found that the step went on: the next observation of some callers is never what the next step begins
with (scaled by numbers that change meanwhile, rows in any order). After ODD_MAX such looks in a
row they get one warning, and what is stored of their steps is what it was without any looks. CLOSE
is what may be lost by rounding. Nothing is done where a next observation lies in memory that was
written since (copy=False), for what it was is not known.

The same object needs no look: so most callers go on. Of copies, all are looked at where
observations have one column of SMALL_BYTES at most and are arrays that are equal bit for bit, as
copies are: the writer does it, without a call. Of others (larger ones, dicts, lists, another dtype)
the first LOOKS_MAX are looked at, then one in PAUSE_S, until a cut was needed: from then on all of
them. Until then, a reset of those may pass unseen.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from .anchors import Anchors
from .autoreset import Autoreset
from .errors import warn

CLOSE = 1e-3  # of the largest number of an observation
ODD_MAX = 8
LOOKS_MAX, PAUSE_S = 1000, 0.001
SMALL_BYTES = 4096
ODD = "a step does not begin where the one before it ended (its observation is not the "
ODD += "next_observation of that one)"
LEAVE_OUT = "where next_observation only is computed otherwise, leave it out of steps that end none"


class Following:
    """One writer's. `pause`: seconds until the next look is worth it. `small`: observations are so
    small that arrays are compared at every step; where they are equal, `odd` becomes `zeros`."""

    def __init__(self, autoreset: Autoreset) -> None:
        self._autoreset = autoreset
        # [B], replaced and never changed: looks in a row that found a stream's step beginning
        # elsewhere; what was not looked at yet counts as one
        self.odd = np.ones(autoreset.count, np.int64)
        self.zeros = np.zeros(autoreset.count, np.int64)
        columns = autoreset.spec.group("observation")
        self.small = len(columns) == 1 and columns[0].size * autoreset.count <= SMALL_BYTES
        self._seen: tuple = (None, None)  # the newest look's: `last`, the step's own
        self._looks, self._cut, self._told, self.pause = 0, False, False, 0.0

    def cuts(
        self, observation: Any, last: Any, next_observation: Any, anchors: Anchors
    ) -> np.ndarray | None:
        """Bool [B]: whose open episode this step, not added yet, does not go on; None: all do.

        `last`: the next observation of the step before, another object than `observation`.
        """
        every, self.pause = self.pause == 0, PAUSE_S  # every: no step was passed over unseen
        if next_observation is None or next_observation is last:
            return None
        seen, self._seen = self._seen, (last, next_observation)
        self._looks += 1
        if self._cut or self._looks < LOOKS_MAX:
            self.pause = 0.0
        if last is None:
            self.pause = 0.0
            return None
        if (
            type(last) is type(observation) is np.ndarray
            and last.tobytes() == observation.tobytes()
        ):
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
        differs = self._autoreset.apart(opened, observation, last, next_observation, CLOSE)
        cut = differs & (self.odd == 0)
        self.odd = np.where(opened & ~cut, (self.odd + 1) * differs, self.odd)
        if cut.any():
            self._cut, self.pause = True, 0.0
            self._tell(
                f"stream {np.argmax(cut)}: {ODD}, as if the environment was reset and nobody said "
                "so: the episode was cut there, as truncated, and will be each time; say "
                "truncated=True in its last step, or writer.restart(mask, final_observation); "
                + LEAVE_OUT
            )
            return cut
        if self.odd.min() >= ODD_MAX:
            self.pause = inf
        if self.odd.max() >= ODD_MAX:
            self._tell(
                f"stream {np.argmax(self.odd)}: time and again {ODD}: what is stored as the next "
                "observation of a step is the observation of the step that was added after it; "
                "add the steps of each environment in their order, in a stream of its own, and "
                "say truncated=True where the next one is of another episode; " + LEAVE_OUT
            )
        return None

    def _tell(self, what: str) -> None:
        if not self._told:
            self._told = True
            warn(what, UserWarning)
