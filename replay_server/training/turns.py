"""Collecting and learning in turns, across processes: for runs that repeat, step by step.

    actors    `done(stored)` after each step of their environments: how many rows it stored, all of
              them acknowledged; returns when the learner has learned what was due. `leave()` at
              the end: the turns go on without it
    learner   `collected()` gives the rows of that step once every actor that is there has sent its
              own; then it learns, and `go()` lets all of them on

`Due` says how many updates that is, in one process too.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Collection

from ..errors import Timeout
from .asking import Answerer, Asker, Question
from .presets import Preset

DONE, GONE = b"dg"
LEAVE_S = 2.0
STORED = struct.Struct("<Q")
STORED_MOST = 1 << 20  # rows of a turn: more than any vector of environments has
STEPS_PER_UPDATE = 16.0  # where no limiter says


class Due:
    """How many updates are due for the environment steps that were stored, once there is enough of
    them: as `ready` says."""

    def __init__(self, steps_per_update: float | None, ready: Callable[[], bool]) -> None:
        self.each, self.owed = steps_per_update or STEPS_PER_UPDATE, 0.0
        self.ready = ready

    def add(self, stored: int) -> None:
        """So many more steps."""
        if self.ready():
            self.owed += stored / self.each

    def take(self) -> bool:
        """Whether one is due, which is not any more then."""
        due = self.owed >= 1.0
        self.owed -= float(due)
        return due


class DueAtOnce(Due):
    """As many as there are batches: of what is learned from once."""

    def take(self) -> bool:
        """Whether one is there."""
        return self.ready()


def due_of(settings: Preset, ready: Callable[[], bool]) -> Due:
    """How an algorithm's updates are due. ready: whether its replay has a batch."""
    kind = DueAtOnce if settings.on_policy else Due
    return kind(settings.steps_per_update, ready)


class Taking:
    """An actor's end. stopped: ends each wait; patience: seconds that one may last."""

    def __init__(self, url: str, number: int, patience: float, stopped: Callable[[], bool]) -> None:
        self.patience, self.stopped = patience, stopped
        self.line = Asker(url, stopped, name_of(number))

    def done(self, stored: int) -> None:
        """This actor's part of the turn is over; returns as the next one begins, or once stopped.
        Timeout where it does not begin."""
        self.line.ask(DONE, STORED.pack(stored))
        try:
            self.line.answer(time.monotonic() + self.patience)
        except Timeout as error:
            if not self.stopped():
                url = self.line.url
                sentence = f"the learner of the turns at {url} is silent: is it running?"
                raise Timeout(sentence) from error

    def leave(self) -> None:
        """This actor takes no more turns: nobody waits for it. LEAVE_S at most, and whatever else
        it was told."""
        self.line.stopped = lambda: False
        self.line.ask(GONE)
        with contextlib.suppress(Timeout):
            self.line.answer(time.monotonic() + LEAVE_S)

    def close(self) -> None:
        """Gives the connection up."""
        self.line.close()


def name_of(number: int) -> bytes:
    """How the learner knows an actor: one that is started again takes its own place."""
    return f"actor-{number}".encode()


class Giving:
    """The learner's end, for `actors` of them, of which those numbered `gone` have left before.
    Serves at `url`."""

    def __init__(
        self, url: str, actors: int, gone: Collection[int] = (), *, insecure: bool = False
    ) -> None:
        self.known = {name_of(number) for number in range(actors)}
        # all but those that left; who is done again is back
        self.awaited = self.known - {name_of(number) for number in gone}
        self.there: dict[bytes, tuple[Question, int]] = {}  # of each actor that is done: its rows
        self.line = Answerer(url, "--turns", insecure=insecure)
        self.address = self.line.address

    def collected(self, seconds: float) -> int | None:
        """The rows of a turn, once all actors have theirs; None where that takes longer."""
        until = time.monotonic() + seconds
        while not self.there or self.there.keys() != self.awaited:
            left = until - time.monotonic()
            if left <= 0:
                return None
            question = self.line.question(left)
            if question is not None and question.who in self.known:
                self.take(question)
        return sum(stored for _, stored in self.there.values())

    def take(self, question: Question) -> None:
        """An actor's end of a turn, or its last word."""
        who = question.who
        if question.again:
            self.line.answer(question, question.verb)  # its answer was lost
        elif question.verb == GONE:
            self.awaited.discard(who)
            self.there.pop(who, None)
            self.line.answer(question, GONE)
        elif question.verb == DONE and len(question.body) == STORED.size:
            stored = STORED.unpack(question.body)[0]
            if stored <= STORED_MOST:
                self.awaited.add(who)
                self.there[who] = question, stored

    def go(self) -> None:
        """The next turn begins."""
        for question, _ in self.there.values():
            self.line.answer(question, DONE)
        self.there = {}

    def close(self) -> None:
        """Serves no more."""
        self.line.close()
