"""A prioritized buffer in the learner's own process: what there would be without a server.

Plain NumPy arrays that only grow, one cumulative sum for each batch. It stands where an actor's
writer and a learner's replay stand (replay_server/training/loop.py), and has their rules: an item
at every step, n-step windows cut at an episode's end, stacks with nothing before its start,
importance weights divided by the largest of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from replay_server import Batch, NStep, Spec
from replay_server.batch import keys_of
from replay_server.training.loop import Priorities
from replay_server.writing.anchors import Anchors, Ready
from replay_server.writing.autoreset import Rows

NEVER = np.iinfo(np.int64).max


class Buffer:
    """For `steps` steps of `streams` environments, all of which it keeps."""

    def __init__(
        self,
        spec: Spec,
        plan: NStep,
        streams: int,
        steps: int,
        *,
        batch: int,
        alpha: float,
        beta: Callable[[], float],
        rng: np.random.Generator,
    ) -> None:
        length = 2 * (-(-steps // streams) + plan.n) + 64  # each row may close an episode of one
        self.columns = {c.name: np.zeros((streams, length, *c.shape), c.dtype) for c in spec}
        self.offsets = plan._resolve(spec).offsets
        self.n, self.count, self.alpha, self.beta, self.rng = plan.n, batch, alpha, beta, rng
        self.anchors = Anchors(streams, plan.n)
        self.next_step = np.zeros(streams, np.int64)
        self.begin = np.zeros((streams, length), np.int64)  # of the episode that a row is of
        self.end = np.full((streams, length), NEVER)  # its closing row, once there is one
        self.first = np.zeros(streams, np.int64)  # of the open episode
        self.stream, self.step = (np.zeros(2 * steps + 64, np.int64) for _ in range(2))
        self.mass, self.items = np.zeros(2 * steps + 64), 0

    # ---- as a writer ----

    def append(self, rows: Rows) -> Ready:
        """One row in each of rows.streams, a closing row in each of rows.ended_streams."""
        self._store(rows.streams, rows.columns)
        ended = rows.ended_streams
        for stream in ended.tolist():
            begin, end = self.first[stream], self.next_step[stream]
            self.end[stream, begin : end + 1] = end
        self._store(ended, rows.closing)
        self.first[ended] = self.next_step[ended]
        return self.anchors.advance(rows.streams, ended)

    def _store(self, streams: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        at = self.next_step[streams]
        for name, part in columns.items():
            self.columns[name][streams, at] = part
        self.begin[streams, at] = self.first[streams]
        self.next_step[streams] += 1

    def create(self, streams: Any, steps: Any, priorities: Priorities = None) -> None:
        """Items at these steps; without priorities they get the largest so far."""
        new = slice(self.items, self.items + len(streams))
        self.stream[new], self.step[new] = streams, steps
        largest = self.mass[: self.items].max(initial=0.0) or 1.0
        self.mass[new] = largest if priorities is None else np.asarray(priorities) ** self.alpha
        self.items = new.stop

    def flush(self) -> None:
        """Everything is there already."""

    # ---- as a replay ----

    def sample(self) -> Batch:
        """A batch, in proportion to the masses."""
        through = self.mass[: self.items].cumsum()
        drawn = np.searchsorted(through, self.rng.random(self.count) * through[-1], "right")
        drawn = drawn.clip(max=self.items - 1)
        odds = self.mass[drawn] / through[-1]
        weights = (self.items * odds) ** -self.beta()
        ahead = self._ahead(drawn)
        unknown = np.zeros(self.count, np.uint64)
        return Batch(
            data={name: self._gather(name, drawn, ahead) for name in self.columns},
            weights=(weights / weights.max()).astype(np.float32),
            keys=keys_of(drawn.astype(np.uint64)),
            probabilities=odds,
            masses=unknown,
            totals=unknown,
            drawables=unknown,
            ages=unknown,
            behind=unknown,
            ahead=ahead,
            valid=np.ones(self.count, np.bool_),
            table="in process",
            plan="default",
        )

    def _ahead(self, drawn: np.ndarray) -> np.ndarray:
        stream, step = self.stream[drawn], self.step[drawn]
        return np.minimum(self.end[stream, step] - step, self.n)

    def _gather(self, name: str, drawn: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """A column at its plan's offsets, [B, steps, *shape]."""
        stream, step = self.stream[drawn, None], self.step[drawn, None]
        offsets = np.asarray(self.offsets[name])
        at = step + np.minimum(offsets, ahead[:, None])  # behind an end: its last observation
        before = at < self.begin[stream, step]
        found = self.columns[name][stream, np.maximum(at, 0)]
        found[before] = 0
        if not name.startswith("observation"):
            found[offsets >= ahead[:, None]] = 0
        return found

    def update(self, batch: Batch, priorities: Priorities) -> None:
        """New priorities of a batch's items."""
        if priorities is not None:
            self.mass[np.asarray(batch.keys, np.int64)] = np.asarray(priorities) ** self.alpha
