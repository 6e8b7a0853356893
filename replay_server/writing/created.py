"""Which items exist already, as far as their writer remembers: one stretch of anchors a stream.

Anchors that the caller does not take become items with the largest priority so far, and the caller
is not asked (writer.py). A caller that comes later with priorities for them is warned, and they are
not created twice. Only the newest stretch is kept in which every anchor was made: so the cost does
not grow while the writer lives. Of older anchors the server decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import warn
from .anchors import Anchors, Ready

if TYPE_CHECKING:
    from .block import Block


class Made:
    """Stretches [begin, end) of B streams; from `free` on, anchors that nobody takes are made."""

    def __init__(self, streams: int) -> None:
        self.begin = self.end = self.free = np.zeros(streams, np.int64)
        self.ready: Ready | None = None  # of the last add, until the caller took it
        self.asked = False  # whether the caller ever created items: then no other call makes them

    def take(
        self, anchors: Anchors, block: Block, streams: np.ndarray, steps: np.ndarray, table: str
    ) -> np.ndarray:
        """The caller names these anchors; bool [K]: those whose items do not exist yet.

        What the last `add` returned is the caller's then. Warns where some items exist already, or
        where the caller wants none of items that were made meanwhile.
        """
        ready, pending = self.ready, block.pending
        self.claim(anchors, ready if pending else None)
        if pending:
            block.items[block.steps - 1] = 0
            block.pending = False
        known = (steps >= self.begin[streams]) & (steps < self.end[streams])
        late = not len(steps) and not pending and ready is not None and len(ready)
        if late or known.any():
            warn_of_made(table)
        return ~known

    def claim(self, anchors: Anchors, taken: Ready | None) -> None:
        """Anchors that are ready now: those in `taken` are the caller's, the others are made."""
        free = end = anchors.next_step - np.minimum(anchors.length, anchors.reach)
        if taken is not None and len(taken):
            end = free.copy()
            np.minimum.at(end, taken.streams, taken.steps)
        begin, end = self._with(self.free, end)
        self.begin, self.end, self.free, self.ready = begin, end, free, None

    def more(self, streams: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`begin` and `end` once the caller created these; none of them is known to exist."""
        begin, end = np.full_like(self.end, np.iinfo(np.int64).max), np.zeros_like(self.end)
        np.minimum.at(begin, streams, steps)
        np.maximum.at(end, streams, steps + 1)
        once = np.unique(np.stack([streams, steps]), axis=1)[0]  # an anchor may be named twice
        whole = end - begin == np.bincount(once, minlength=len(end))
        begin = np.where(whole, begin, end - 1)
        return self._with(np.where(end > self.end, begin, end), end)

    def _with(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`begin` and `end` with one more stretch of each stream, empty where there is none."""
        more = end > begin
        begin = np.where(more & (begin != self.end), begin, self.begin)
        return begin, np.where(more, end, self.end)


def warn_of_made(table: str) -> None:
    """Warns of a create_items that comes after its items. An error would end an actor whose first
    step took long, over items that are stored and lack their priority only."""
    warn(
        f"table {table!r}: create_items for items that exist already: an earlier create_items made "
        "them, or another call came before it and made them with the largest priority so far; "
        "they stay as they are; call create_items right after add, once for each anchor, or set "
        "their priorities with client.update_priorities",
        RuntimeWarning,
    )
