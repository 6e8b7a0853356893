"""Segments of episodes, one behind the other, in place of an item at every step.

    episode  | 0 .. T-1 | T .. 2T-1 | ... | what is left |

Each is an item whose anchor is its first row: so each step is learned from once. An episode's last
segment is as long as the episode has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actor.window import Alike
from replay_server import Ready
from replay_server.writing.autoreset import Rows


class Segments(Alike):
    """Of B environments; `length`: T. Rows are counted along a stream, closing rows included."""

    def __init__(self, count: int, length: int) -> None:
        self.length = length
        self.next_step = np.zeros(count, np.int64)
        self.begin = np.zeros(count, np.int64)  # the first row of the episode of the newest one
        self.ended = np.zeros(0, np.int64)  # streams whose episode the newest rows ended

    def push(self, rows: Rows, stacks: Any, values: Any) -> None:
        """The rows of one step of all environments."""
        self.begin[self.ended] = self.next_step[self.ended]
        self.ended = rows.ended_streams
        self.next_step[rows.streams] += 1
        self.next_step[self.ended] += 1  # the closing row

    def items(self, ready: Ready) -> Ready:
        """The first rows of segments, of what became ready by the newest rows."""
        place = ready.steps - self.begin[ready.streams]
        return ready.where(place % self.length == 0)
