"""Lanes: each one's environments are stepped by a process of its own, and those that are ready are
answered first.

    lane 0   act | step step step      | act | step step step
    lane 1         step   | act | step step step step    | act | ...

A pass of the network is over the lanes whose step has come, `least` of them or more. So stepping
goes on beside it, and no lane waits for a slower one (asynchronous batching: Auturi, Jeong 2023;
EnvPool, Weng et al. 2022). The training loop (loop.py, `collect`) runs as it is: what its
`environments.step` answers is the outcome of other lanes than those that it was given actions for,
and `LaneCollector` knows of which.

Each lane has a collector of its own, whose streams follow those of the lanes before it; epsilons
are those of all environments in this order. Which lanes come first is the machine's, so that a run
is not repeated to the letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from actor.collector import RETURNS_KEPT, Collector
from actor.exploration import Policy
from replay_server import Ready
from replay_server.training.loop import Actions, Observations, Outcome, Priorities, Values
from replay_server.writing.anchors import joined, moved
from replay_server.writing.autoreset import Rows


class Lane(NamedTuple):
    """A part of an actor's streams, [first, first + count), and what remembers their steps."""

    first: int
    count: int
    collector: Collector


Outcomes = list[tuple[int, Outcome]]  # (number of a lane, what its step came to), rising


def joined_rows(lanes: Sequence[Lane], parts: list[tuple[int, Rows]]) -> Rows:
    """One Rows of all, by the streams of the actor."""
    firsts = [lanes[number].first for number, _ in parts]
    rows = [part for _, part in parts]

    def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]

    def streams(name: str) -> np.ndarray:
        return joined(
            [getattr(part, name) + first for part, first in zip(rows, firsts, strict=True)]
        )

    return Rows(
        streams=streams("streams"),
        columns={name: joined([part.columns[name] for part in rows]) for name in rows[0].columns},
        ending=joined([part.ending for part in rows]),
        ended_streams=streams("ended_streams"),
        closing={name: joined([part.closing[name] for part in rows]) for name in rows[0].closing},
        started=joined([part.started for part in rows]),
    )


class LaneCollector:
    """Collectors as one: what `collect` calls an actor. `lanes`: in the order of their streams."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = list(lanes)
        self.ready = list(range(len(lanes)))  # whose observations are to be acted on
        self.parts: list[tuple[int, Rows]] = []  # the newest rows, by lane
        self.closing_rows: list[int] = []  # of `finals`, by part
        self.returns: deque[float] = deque(maxlen=RETURNS_KEPT)
        self.lengths: deque[int] = deque(maxlen=RETURNS_KEPT)
        for lane in self.lanes:  # what an episode came to, in the order in which they end
            lane.collector.returns, lane.collector.lengths = self.returns, self.lengths

    def restart(self, observations: Sequence[Any]) -> None:
        """New episodes begin with these, one batch for each lane."""
        for lane, observation in zip(self.lanes, observations, strict=True):
            lane.collector.restart(observation)
        self.ready = list(range(len(self.lanes)))

    def _ready(self) -> list[Lane]:
        return [self.lanes[number] for number in self.ready]

    def observations(self) -> Observations:
        """The stacks of the lanes that are ready."""
        return _joined([lane.collector.observations() for lane in self._ready()])

    def choose(self, values: Values) -> Actions:
        """One for each environment of these lanes."""
        lanes = self._ready()
        parts = _split(values, [lane.count for lane in lanes])
        chosen = [lane.collector.choose(part) for lane, part in zip(lanes, parts, strict=True)]
        return np.concatenate(chosen)

    def rows(self, outcomes: Outcomes) -> Rows:
        """What is stored of the steps that led there; their lanes are ready from then on."""
        self.ready = [number for number, _ in outcomes]
        self.parts = [
            (number, self.lanes[number].collector.rows(outcome)) for number, outcome in outcomes
        ]
        return joined_rows(self.lanes, self.parts)

    def finals(self, rows: Rows) -> Observations:
        """The stacks that end with final observations, lane by lane."""
        found = [self.lanes[number].collector.finals(part) for number, part in self.parts]
        self.closing_rows = [len(next(iter(each.values()))) if each else 0 for each in found]
        return _joined([each for each in found if each])

    def items(self, ready: Ready) -> Ready:
        """Of what became ready, what becomes an item."""
        kept = [
            moved(self.lanes[number].collector.items(part), self.lanes[number].first)
            for (number, _), part in zip(self.parts, self._of_lanes(ready), strict=True)
        ]
        return joined(kept)

    def priorities(self, items: Ready, closing: Values) -> Priorities:
        """Of these items, in their order."""
        found = [
            self.lanes[number].collector.priorities(part, final)
            for (number, _), part, final in zip(
                self.parts, self._of_lanes(items), _split(closing, self.closing_rows), strict=True
            )
        ]
        return None if any(part is None for part in found) else np.concatenate(found)

    def _of_lanes(self, ready: Ready) -> list[Ready]:
        """Each part's own, by its own streams. `ready` is sorted by stream."""
        found = []
        for number, _ in self.parts:
            lane = self.lanes[number]
            mine = (ready.streams >= lane.first) & (ready.streams < lane.first + lane.count)
            found.append(moved(ready.where(mine), -lane.first))
        return found

    def advance(self, rows: Rows, outcomes: Outcomes) -> int:
        """The steps are stored."""
        return sum(
            self.lanes[number].collector.advance(part, outcome)
            for (number, part), (_, outcome) in zip(self.parts, outcomes, strict=True)
        )

    def held(self) -> Observations:
        """The stacks of all rows whose items are not created yet."""
        return _joined([each for lane in self.lanes if (each := lane.collector.held())])

    def renew(self, values: Values) -> None:
        """The values of `held` by new weights."""
        if values is None:
            return
        holding = [lane.collector for lane in self.lanes if lane.collector.held()]
        counts = [len(next(iter(collector.held().values()))) for collector in holding]
        for collector, part in zip(holding, _split(values, counts), strict=True):
            collector.renew(part)

    @property
    def env_steps(self) -> int:
        """Of all lanes."""
        return sum(lane.collector.env_steps for lane in self.lanes)

    @property
    def episodes(self) -> int:
        """That ended, of all lanes."""
        return sum(lane.collector.episodes for lane in self.lanes)

    @property
    def policy(self) -> LanePolicy:
        """What is logged of them."""
        return LanePolicy([lane.collector.policy for lane in self.lanes])

    def mean_return(self) -> float | None:
        """Of the newest RETURNS_KEPT episodes that ended; None before the first."""
        return float(np.mean(self.returns)) if self.returns else None

    def mean_length(self) -> float | None:
        """Of the same episodes, in steps."""
        return float(np.mean(self.lengths)) if self.lengths else None


class LanePolicy(NamedTuple):
    """The policies of lanes."""

    policies: list[Policy]

    def scalars(self) -> dict[str, float]:
        """The means of what each logs."""
        each = [policy.scalars() for policy in self.policies]
        return {name: float(np.mean([said[name] for said in each])) for name in each[0]}


def _joined(parts: Sequence[Observations]) -> Observations:
    """Batches as one, along their first axis; nothing of none."""
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _split(values: Values, counts: Sequence[int]) -> list[Values]:
    """The inverse, by so many rows each; None of none."""
    if values is None:
        return [None] * len(counts)
    ends = np.cumsum(counts)
    return [
        values[end - count : end] if count else None
        for count, end in zip(counts, ends, strict=True)
    ]
