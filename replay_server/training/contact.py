"""Signals, and servers that go away, in a long-running program: all waits are bounded.

`Stop` turns SIGINT and SIGTERM into a flag that loops check, so that a program ends between two
steps and not inside one; a second signal ends it at once. `connect` tries for a bounded time, then
raises NoServer, which no reconnect mends; or Stopped, where a signal ended the wait. `writer_of`
waits as long as the server keeps the place of a writer that was killed.
`lost_contact` says whether a reconnect mends an error. `describe` gives the sentence of an error
for the person who watches a program.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from ..client import Client
from ..errors import (
    ClosedError,
    LimiterBlocked,
    NoRoom,
    ReplayError,
    ServerRestarted,
    SessionExpired,
    TableEmptied,
    Timeout,
)
from ..requests.draws import BATCH_DEFAULT
from ..support.stopping import StopFlag
from ..writer import KEPT, NOT_TAKEN, Writer

TRY_S = 2.0
PLACE_TRY_S = 0.5
PLACE_MARGIN_S = 5.0  # beyond idle_ms: a server is late to notice where it has much to do


class NoServer(ReplayError):
    """Nobody answered for as long as the program may wait (--patience)."""


class Stopped(NoServer):
    """A signal ended the wait: nothing is wrong."""


class Stop:
    """Whether the program was asked to stop. A context: its end puts the old handlers back."""

    def __init__(self) -> None:
        self.event = StopFlag()
        self.signalled = False  # the flag may have been set by the program itself
        self.before: dict[int, object] = {}

    @property
    def asked(self) -> bool:
        """True once a signal came."""
        return self.event.is_set()

    def wait(self, seconds: float) -> bool:
        """Waits, at most that long; True if a signal came."""
        return self.event.wait(seconds)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signalled:
            raise KeyboardInterrupt
        self.signalled = True
        self.event.set()

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def lost_contact(error: ReplayError) -> bool:
    """Would a new session mend this? Not where the limiter held a call back."""
    mended = (Timeout, ServerRestarted, SessionExpired, TableEmptied, ClosedError)
    return isinstance(error, mended) and not isinstance(error, LimiterBlocked)


def describe(error: ReplayError) -> str:
    """The sentence of an error without the advice that is for the author of a program."""
    sentence = error.happened or str(error)
    for advice in (KEPT, NOT_TAKEN):
        sentence = sentence.replace(f" {advice}", "")
    return sentence


def met(client: Client, table: Any) -> str:
    """Whom a program has met, for the person watching: so that another's server is noticed."""
    others = client.stats().sessions - 1
    return (
        f"joined {client.address}: {table.count:,} items in table {table.name!r}, "
        f"{others} other session{'s' * (others != 1)}"
    )


def connect(
    address: str,
    wait_max_s: float,
    stop: Stop,
    say: Callable[[str], None] = print,
    *,
    batch: int = 1,
) -> Client:
    """A client of the server at `address`, for batches of `batch` items, tried for `wait_max_s`;
    NoServer after that."""
    begin = time.monotonic()
    until = begin + wait_max_s
    said = False
    while True:
        try:
            most = max(batch, BATCH_DEFAULT)
            return Client(address, connect_timeout=TRY_S, batch_max=most)
        except ReplayError as error:
            if not lost_contact(error):
                raise
            if stop.asked:
                waited = time.monotonic() - begin
                raise Stopped(
                    f"stopped after {waited:.0f} s; no server had answered at {address}"
                ) from error
            if time.monotonic() >= until:
                raise NoServer(
                    f"no server answered at {address} within {wait_max_s:g} s: start one there, "
                    "or wait longer (--patience)"
                ) from error
        if not said:
            say(f"no server answers at {address}; waiting up to {wait_max_s:.0f} s")
            said = True


def writer_of(
    client: Client,
    table: str,
    wait_max_s: float,
    stop: Stop,
    say: Callable[[str], None] = print,
    **options: Any,
) -> Writer:
    """`client.writer(table, **options)`; where all places are taken, tried again until that of a
    program that was killed is free (never longer than `wait_max_s`), and NoRoom after that."""
    begin, most = time.monotonic(), 0.0
    while True:
        try:
            return client.writer(table, **options)
        except NoRoom as error:
            if error.status != "NO_WRITER_FREE":
                raise
            full, waited = error, time.monotonic() - begin
        if not most:
            places, idle_s = client.table(table).writers_max, client.limits["idle_ms"] / 1000.0
            whose = f"all {places} writer places" if places > 1 else "the only writer place"
            taken = f"{whose} of table {table!r} {'are' if places > 1 else 'is'} taken"
            most = min(idle_s + PLACE_MARGIN_S, wait_max_s)
            if most:
                say(
                    f"{taken}; waiting up to {most:g} s for one: that of a program that was "
                    f"killed is free after {idle_s:g} s (idle_ms)"
                )
        if stop.asked:
            raise Stopped(f"stopped after {waited:.0f} s; {taken}") from full
        if waited >= most:
            why = f"that of a killed program is free after {idle_s:g} s: wait longer (--patience)"
            if most > idle_s:
                why = "living programs keep theirs: stop an actor"
            left = NoRoom(
                f"{taken}, and none was free within {most:g} s; {why}, or give the table more "
                "`writers`"
            )
            left.status = full.status
            raise left from full
        stop.wait(PLACE_TRY_S)
