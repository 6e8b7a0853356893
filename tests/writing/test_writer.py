"""What a writer does without a server: which anchors are ready, and how rows are laid out.

The oracle of `Anchors` keeps whole episodes and looks at every row after every step.
"""

from __future__ import annotations

import numpy as np
import pytest

from replay_server import Column, ConfigError, Spec, SpecError
from replay_server.requests.priorities import checked_priorities
from replay_server.writing.anchors import Anchors
from replay_server.writing.autoreset import Autoreset
from replay_server.writing.block import END, ROW, Block

SPEC = Spec(
    (
        Column("observation", np.float32, (2,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)


class Oracle:
    """Every episode of every stream as a list of row numbers, and who was told ready before."""

    def __init__(self, streams: int, reach: int) -> None:
        self.reach, self.next = reach, [0] * streams
        self.episodes: list[list[tuple[list[int], bool]]] = [[([], False)] for _ in range(streams)]
        self.told: set[tuple[int, int]] = set()

    def advance(self, streams, ended):
        for s in streams:
            self.episodes[s][-1][0].append(self.next[s])
            self.next[s] += 1
        for s in ended:
            rows, _ = self.episodes[s][-1]
            rows.append(self.next[s])
            self.next[s] += 1
            self.episodes[s][-1] = (rows, True)
            self.episodes[s].append(([], False))
        ready = []
        for s, episodes in enumerate(self.episodes):
            for rows, closed in episodes:
                for i, step in enumerate(rows[:-1] if closed else rows):
                    ahead = min(self.reach, len(rows) - 1 - i)
                    if (s, step) not in self.told and (ahead == self.reach or closed):
                        self.told.add((s, step))
                        ready.append((s, step, ahead))
        return sorted(ready)


@pytest.mark.parametrize("reach", [0, 1, 3, 7])
def test_anchors_are_ready_when_their_window_is_complete(reach):
    """Given random steps and ends of five streams. Expect what whole episodes say, each once."""
    seed = 20 + reach
    print("seed", seed)
    rng = np.random.default_rng(seed)
    anchors, oracle = Anchors(5, reach), Oracle(5, reach)
    for _ in range(300):
        streams = np.flatnonzero(rng.random(5) < 0.8)
        ended = streams[rng.random(len(streams)) < 0.25]
        ready = anchors.advance(streams, ended)
        assert len(ready) == len(ready.steps)
        told = np.stack([ready.streams, ready.steps, ready.ahead], 1)
        assert [tuple(row) for row in told.tolist()] == oracle.advance(
            streams.tolist(), ended.tolist()
        )
        assert anchors.next_step.tolist() == oracle.next


def test_rows_are_laid_out_as_they_are_sent():
    """Given a step in which one of two episodes ends. Expect records, marks and closing rows."""
    autoreset, room = Autoreset(SPEC, "disabled", 2), Block(SPEC, 2, 0)
    room.closings[:] = 255
    rows = autoreset.rows(
        observation=np.array([[1, 2], [3, 4]], np.float32),
        action=np.array([5, 6]),
        reward=np.array([0.5, 1.5], np.float32),
        terminated=np.array([False, True]),
        truncated=np.array([False, False]),
        next_observation=np.array([[7, 8], [9, 10]], np.float32),
    )
    room.lay(rows)
    assert (room.steps, room.closing, room.left) == (1, 1, 3)
    assert room.marks[0].tolist() == [ROW, ROW | END]
    stored = SPEC.unpack(room.records[0])
    assert stored["observation"].tolist() == [[1, 2], [3, 4]]
    assert stored["action"].tolist() == [5, 6]
    assert stored["reward"].tolist() == [0.5, 1.5]
    assert stored["terminated"].tolist() == [False, True]
    closing = SPEC.unpack(room.closings[:1])
    assert closing["observation"].tolist() == [[9, 10]]
    assert [closing[name].tolist() for name in SPEC.names[1:]] == [[0], [0.0], [False]]


def test_rows_of_another_spec_are_refused():
    """Given rows with one column more. Expect SpecError that names it, and an empty room."""
    rows = Autoreset(SPEC, "single").rows(
        observation=np.zeros(2, np.float32),
        action=np.int64(0),
        reward=np.float32(0),
        terminated=False,
        truncated=False,
        next_observation=np.zeros(2, np.float32),
    )
    room = Block(Spec(SPEC.columns[:3]), 1, 0)
    with pytest.raises(SpecError, match="has 'terminated', and holds observation, action"):
        room.fitting(rows, ())
    assert room.steps == 0


def test_priorities_are_checked_before_anything_is_sent():
    """Given wrong priorities. Expect ConfigError naming the first; float64 where they are right."""
    assert checked_priorities([1, 2.5, 0], 3).tolist() == [1.0, 2.5, 0.0]
    for wrong in (np.nan, np.inf, -1.0):
        with pytest.raises(ConfigError, match=r"priorities\[1\]"):
            checked_priorities([1.0, wrong], 2)
    with pytest.raises(ConfigError, match=r"expected shape \(3,\), got shape \(2,\)"):
        checked_priorities([1.0, 2.0], 3)
