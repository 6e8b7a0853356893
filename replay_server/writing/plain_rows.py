"""`extend`: rows that are items at once, for tables whose plans look at the row itself only.

The rows of one call leave in as few datagrams as possible, each with its priority in its header.
The call returns when all are acknowledged, with their keys from the session's ledger. It uses, for
each table, one writer place of the client's own session, which ends with the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from .. import _native
from .._native import Deadline, Link, ffi, lib
from ..batch import Keys, keys_of
from ..errors import (
    ConfigError,
    EngineError,
    OverBudget,
    ReplayError,
    ServerRestarted,
    SessionExpired,
    TableEmptied,
    Timeout,
)
from ..requests.priorities import warn_of_large
from ..requests.remote import RemoteTable, info_of
from ..spec import ALWAYS_FINITE, STEP, Spec, SpecError, array_of, require_finite
from ..support.owning import refuse_within
from ..support.values import one_of
from .writers import push_state, warn_of_dropped

ROWS_AT_ONCE = 1024
LEDGER_ROWS = 4096
LEDGER_DTYPE = np.dtype(
    [("step", np.uint64), ("key", np.uint64), ("stream", np.uint32), ("table", np.uint32)]
)


def take_ledger(link: Link) -> np.ndarray:
    """The acknowledged rows nobody took yet: structured [N] of step, key, stream, table."""
    parts: list[np.ndarray] = []
    while not parts or len(parts[-1]) == LEDGER_ROWS:
        rows = np.empty(LEDGER_ROWS, LEDGER_DTYPE)
        raw = ffi.from_buffer("struct rp_push_key[]", rows, require_writable=True)
        taken = lib.rp_link_ledger(link.raw, raw, LEDGER_ROWS)
        parts.append(rows[: _native.check(taken, "taking keys")])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def ask_for_place(link: Link, table: RemoteTable, streams: int, timeout: float) -> int:
    """A writer place of the session on `table`; its window. NoRoom: all are taken."""
    granted = ffi.new("struct rp_writer_granted *")
    what, ask = f"asking for a writer place on table {table.name!r}", (table.raw, streams, granted)
    status = link.outcome(lib.rp_link_writer, *ask, what=what, timeout=timeout)
    if status == -_native.NUMBERS["BAD_PIECE"]:
        raise OverBudget(
            f"a step of table {table.name!r} has {table.raw.step_bytes} bytes: at an mtu of "
            f"{lib.rp_link_mtu(link.raw)} that is more datagrams than the table or this client's "
            "queue takes; connect with a larger mtu (?mtu=8960 within one host)"
        )
    _native.check(status, what)
    if granted.streams < streams:
        raise OverBudget(
            f"a writer of {streams} streams: table {table.name!r} grants {granted.streams} at "
            "most; use several writers, or give the table more `streams`"
        )
    return int(granted.window)


def writer_error(link: Link, table: RemoteTable, status: int, waiting: int = 0) -> ReplayError:
    """The error that ended a writer, with what it lost; `waiting` rows never reached the link."""
    counts = ffi.new("uint64_t[3]")
    lib.rp_link_loss(link.raw, table.number, counts, counts + 1, counts + 2)
    what, name = f"writing to table {table.name!r}", _native.STATUSES[-status]
    stored, in_doubt, lost = ffi.unpack(counts, 3)
    loss = (stored, in_doubt, lost + waiting)
    if status == _native.CLOSED:
        unsent = f"{in_doubt} sent and not answered, {lost + waiting} never sent"
        what += f" ({stored} rows acknowledged, {unsent})"
        return link.ended(what, "open a new writer when it is back")
    if name != "STALE_EPOCH":
        return _native.error(name, what, loss=loss)
    error = TableEmptied(what, *loss)
    error.status = name
    return error


def packed(
    table: RemoteTable, columns: Mapping[str, Any], finite_observations: bool = True
) -> np.ndarray:
    """Columns of [N, *shape] as records; refuses tables whose items are more than one row, and
    rewards and actions (with `finite_observations` both observations too) that are not finite."""
    if table.ahead or table.layout.behind:
        how = "offline data too: a loop of writer.add(..., next_observation=...)"
        if not (table.spec.group("observation") and table.spec.group("action")):
            how = "and writer.append(Rows(...)), as not each step has an observation and an action"
        raise ConfigError(
            f"table {table.name!r} has items of several steps (plans {list(table.plans)}): "
            f"write episodes to it with client.writer(...), {how}"
        )
    shown = ", ".join(f"{name!r}: [...]" for name in table.spec.names)
    one_of("columns", columns, (Mapping,), f"{{{shown}}}")
    for name in columns:
        if name in STEP and not table.spec.group(name):
            raise SpecError(
                f"table {table.name!r} has no column {name!r}, and its rows are items by "
                f"themselves, of {', '.join(table.spec.names)}: leave it out, declare it with "
                "spec_from(env, extras=[Column(...)]), or write transitions to a table of NStep(n) "
                "with client.writer(...)"
            )
    columns = {name: _rows_of(table.spec, name, value) for name, value in columns.items()}
    counts = [np.shape(value)[0] if np.ndim(value) else 1 for value in columns.values()]
    records = table.spec.pack(columns, max(counts, default=0))
    laid = table.spec.unpack(records)
    flags = laid.get("terminated", records)
    if flags is not records and not ((flags == 0) | (flags == 1)).all():
        wrong = flags[(flags != 0) & (flags != 1)][0]
        raise SpecError(f"column 'terminated': expected truth values (or 0 and 1), got {wrong}")
    seen = ("observation", "next_observation") if finite_observations else ()
    for name in ALWAYS_FINITE + seen:
        for column in table.spec.group(name):
            require_finite(column.name, laid[column.name])
    return records


def _rows_of(spec: Spec, name: str, value: Any) -> np.ndarray:
    """`value` as an array; an empty list is no rows of its column."""
    if isinstance(value, list) and not value and name in spec.names:
        return np.zeros((0, *spec[name].shape), spec[name].dtype)
    return array_of(name, value)


class Part(NamedTuple):
    """Rows in a row, uint8 [N, record_size], and their priorities, or None: the maximum."""

    records: np.ndarray
    priorities: np.ndarray | None

    def rows(self, first: int, end: int) -> Part:
        """The rows from `first` to before `end`."""
        given = None if self.priorities is None else self.priorities[first:end]
        return Part(self.records[first:end], given)

    def copy(self) -> Part:
        return Part(*(None if rows is None else rows.copy() for rows in self))


Parts = tuple[Part, ...]


def count_rows(parts: Parts) -> int:
    return sum(len(part.records) for part in parts)


def split(parts: Parts, count: int) -> tuple[Parts, Parts]:
    """The first `count` rows of all, and the others."""
    first: list[Part] = []
    rest: list[Part] = []
    for part in parts:
        size = len(part.records)
        here = min(max(count, 0), size)
        first += [part.rows(0, here)] if here else []
        rest += [part.rows(here, size)] if here < size else []
        count -= here
    return tuple(first), tuple(rest)


def newest(parts: Parts, count: int) -> Parts:
    """The last `count` rows of all."""
    return split(parts, count_rows(parts) - count)[1]


class Call(NamedTuple):
    """Rows of an extend that are being posted, or were when it was cut off."""

    part: Part
    keys: np.ndarray  # uint64 [N]; 0: not acknowledged yet
    first: int  # the step that its first row is

    def stored(self) -> int:
        """How many of the rows are known to be stored, counted from the first."""
        return int(np.argmin(self.keys != 0)) if (self.keys == 0).any() else len(self.keys)


class Behind(NamedTuple):
    """Rows that earlier calls left behind. Replaced as a whole: a signal may come between any two
    statements, and each row is in one place at any time."""

    left: Parts = ()  # posted; the last of them may not be stored
    again: Parts = ()  # to be posted once more, before those of the next call
    posted: int = 0  # steps of this place, when `again` was as it is
    call: Call | None = None


class Turn(_native.Lock):
    """The extends of one client, one after the other on whatever table: the ledger that holds
    their keys is the link's."""

    def __init__(self) -> None:
        super().__init__()
        self.within: int | None = None  # the thread that is in one


class PlainRows:
    """The writer place of one client on one table; asked for by the first rows.

    A call that is cut off leaves rows behind that it took, and that go in by themselves. Where the
    session is given up before they have, they are given again, before any of the next call.
    """

    def __init__(self, link: Link, table: RemoteTable, turn: Turn) -> None:
        self.link, self.table, self.turn = link, table, turn
        self.placed = False
        self.warned: set[str] = set()  # the table's name, once its priorities were too large
        self.behind = Behind()
        self.silent_s = link.silence()
        self.doubtful = monotonic() + self.silent_s  # from then on the session may be gone

    def extend(self, records: np.ndarray, priorities: np.ndarray | None, timeout: float) -> Keys:
        """Stores uint8 [N, record_size]; returns their keys when all are acknowledged."""
        until = Deadline(timeout)
        call = Call(Part(records, priorities), np.zeros(len(records), np.uint64), 0)
        self._state()  # refuses in a forked child: its copy of the turn may be taken for ever
        if priorities is not None:
            given = ffi.from_buffer("double[]", priorities)
            warn_of_large(self.table, given, len(priorities), self.warned)
        if self.turn.within == get_ident():
            raise refuse_within("client.extend")
        if not self._in_turn(until.seconds(), lambda: self._extend(call, until)):
            raise Timeout(
                f"table {self.table.name!r}: another thread of this client was still storing "
                f"rows after {timeout:g} s, and none of these was taken; give each thread a "
                "client of its own, or more time"
            )
        return keys_of(call.keys, self.table.epoch)

    def _in_turn(self, seconds: float, work: Callable[[], None]) -> bool:
        """Whether it was this thread's turn within that time: `work` is done then."""
        me, turn = get_ident(), self.turn
        try:
            if not turn.acquire(timeout=seconds):
                return False
            turn.within = me
            work()
            return True
        finally:
            if turn.within == me:
                turn.within = None
            while turn.held():  # also what a signal that came right here left the last time
                with suppress(RuntimeError):  # its handler made an extend of its own meanwhile
                    turn.release()

    def _extend(self, call: Call, until: Deadline) -> None:
        """Stores the rows of a call, and fills in their keys."""
        count, cut, blocked = len(call.keys), None, None
        self._look_behind()
        try:
            self._wake(until)
            if not self._give_again(until):
                sentence = (
                    f"0 of {count} rows were taken: those of earlier calls go before rows[0:]"
                )
                raise self._held_back(sentence)
            take_ledger(self.link)  # of calls that were cut off: nobody asks for these any more
            call = call._replace(first=self._state().steps_posted)
            self.behind = self.behind._replace(call=call)
            if not self._store(call, until):
                cut = self._taken(call)
                blocked = self._held_back(cut[1])
                blocked.taken = cut[0]
                self._leave_behind()
        except ReplayError as error:
            if isinstance(error, ServerRestarted):
                self._describe_loss(error, call)
            else:
                error.taken = self._taken_at_an_end(call)
            raise
        except BaseException as error:  # Ctrl-C, or what another signal's handler raised
            self._note_taken(error, call, cut)
            self._leave_behind()
            raise
        if blocked is not None:
            raise blocked
        self.behind = Behind()
        if unknown := np.count_nonzero(call.keys == 0):
            raise EngineError(f"{count} rows were stored, the keys of {unknown} did not come")

    def _held_back(self, sentence: str) -> ReplayError:
        what, need = f"storing rows ({sentence})", self._state().need
        return _native.held_back(self.link, need, self.table, what)

    def _look_behind(self) -> Behind:
        """The rows that are left behind now, after what was posted meanwhile."""
        (left, again, before, call), state = self.behind, self._state()
        posted = state.steps_posted
        if call is not None:
            left += (call.part.rows(0, posted - call.first).copy(),)
        else:
            given, again = split(again, posted - before)
            left += given
        if not state.status:
            left = newest(left, state.unacknowledged)
        self.behind = Behind(left, again, posted)
        return self.behind

    def _leave_behind(self) -> None:
        """Rows that were taken may still be on their way; their arrays are the caller's again."""
        with suppress(ReplayError):  # the client was closed meanwhile
            self._look_behind()

    def _give_again(self, until: Deadline) -> bool:
        """Posts the rows that a session took with it; False where time is up before all are."""
        while again := self._look_behind().again:
            if not self._push(again[0], 0, until) and not until.left():
                return False
        return True

    def _store(self, call: Call, until: Deadline) -> bool:
        """Fills in the keys that come; True where all rows are acknowledged in time."""
        done, count = 0, len(call.keys)
        while done < count:
            done += self._push(call.part, done, until)
            self._take_keys(call)
            if done < count and not until.left():
                return False
        settled = self._settle(until)
        self._take_keys(call)
        return settled

    def _posted(self, call: Call) -> int:
        return self._state().steps_posted - call.first if self.behind.call else 0

    def _taken(self, call: Call) -> tuple[int, str]:
        """Of a call that was cut off: the rows not to be given once more, and a sentence."""
        taken, count = self._posted(call), len(call.keys)
        if not count:
            return 0, "none was given, and those of earlier calls are still on their way"
        if not taken:
            return 0, f"0 of {count} rows were taken: give all of them again, rows[0:]"
        return taken, (
            f"{taken} of {count} rows were taken, {np.count_nonzero(call.keys)} of them are stored "
            f"and the others go in by themselves: go on with rows[{taken}:]"
        )

    def _note_taken(
        self, error: BaseException, call: Call, cut: tuple[int, str] | None = None
    ) -> None:
        """`cut`: what _taken said, where the call's rows may be left behind already."""
        with suppress(ReplayError):  # the handler may have closed the client
            if self.behind.call is not None:
                self._take_keys(call)
            taken, sentence = cut or self._taken(call)
            if hasattr(error, "add_note") and (taken or not isinstance(error, Exception)):
                error.add_note(f"replay-server: {sentence}")

    def _wake(self, until: Deadline) -> None:
        """A session that was given up before this call costs it nothing: the place is asked for
        anew, and what went with it is to be given again. Where nobody answers, the rows wait as
        they would otherwise."""
        if not self.placed:
            ask_for_place(self.link, self.table, 1, until.seconds())
            self.placed = True
        if monotonic() >= self.doubtful:
            what = f"table {self.table.name!r}: asking for the session"
            self.link.outcome(lib.rp_link_ping, what=what, timeout=until.seconds())
        try:
            self._checked(self._state().status)
        except SessionExpired as error:  # the server may have come back with another limiter
            raw = info_of(self.link, self.table.name, until.seconds())
            self.table = RemoteTable(raw, self.table.layout, self.table.incarnation)
            left, again, posted, _ = self.behind
            again = newest(left, error.in_doubt + error.lost) + again
            self.behind = Behind(again=again, posted=posted)
            ask_for_place(self.link, self.table, 1, until.seconds())
        self.doubtful = monotonic() + self.silent_s

    def _describe_loss(self, error: ServerRestarted, call: Call) -> None:
        """Gives the error of a session that ended within a call the numbers of that call."""
        if self.behind.call is not None:
            self._take_keys(call)
        count, what = len(call.keys), f"storing rows to table {self.table.name!r}"
        if not isinstance(error, SessionExpired):
            happened = f"{what}: the server stopped or restarted, empty"
            advice = f"none of these {count} rows is there, nor what earlier calls had stored: "
            advice += "give all of them again"
        else:
            stored, posted = np.count_nonzero(call.keys), self._posted(call)
            error.taken = call.stored()
            doubt = max(posted - error.taken - error.lost, 0)
            happened = (
                f"{what}: the server gave this session up after too long a silence (longer than "
                f"its idle_ms), or came back with a limiter that lets less in at once: "
                f"{error.taken} of these {count} rows are stored, {doubt} are in doubt"
            )
            advice = f"go on with rows[{error.taken}:]"
            advice += "; those in doubt may be stored twice then" if doubt else ""
            self._keep_earlier(error.in_doubt + error.lost - (posted - stored))
        error.happened = happened
        error.args = (f"{happened}; {advice}",)

    def _keep_earlier(self, count: int) -> None:
        """The session is gone: the newest `count` rows of earlier calls are to be given again, and
        those of this one are its caller's."""
        if self.behind.call is None:
            self._look_behind()
        left, again, posted, _ = self.behind
        if count > 0:
            left, again = (), newest(left, count) + again
        self.behind = Behind(left, again, posted)

    def leave(self, until: Deadline) -> None:
        """Waits for what calls that were cut off left behind, and warns of what is not stored."""
        with suppress(ReplayError):
            call, is_within = self.behind.call, self.turn.within == get_ident()
            if is_within or not self._in_turn(0.0, lambda: self._bring_left(until)):
                self._finish(call, until)
        with suppress(ReplayError):
            state, (left, again, *_) = self._state(), self.behind
            under_way = 0 if state.status else state.unacknowledged
            count = under_way + count_rows(left + again if state.status else again)
            warn_of_dropped(self.table.name, count, "a client was closed")

    def _finish(self, call: Call | None, until: Deadline) -> None:
        """An extend is under way, in another thread or below a signal's handler, and learns nothing
        from now on."""
        if call is not None:
            self._settle(until)
            self._take_keys(call)

    def _bring_left(self, until: Deadline) -> None:
        behind = self._look_behind()
        if behind.left or behind.again:
            self._wake(until)
            self._give_again(until)
            self._settle(until)

    def _taken_at_an_end(self, call: Call) -> int:
        """The rows taken where an error ends the call; those known to be stored if the place is
        gone."""
        with suppress(ReplayError):  # the client was closed meanwhile
            if self.behind.call is not None:
                self._take_keys(call)
            if not self._state().status:
                return self._posted(call)
        return call.stored()

    def _take_keys(self, call: Call) -> None:
        """Fills in the keys that have come."""
        keys, number = ffi.from_buffer("uint64_t[]", call.keys), self.table.number
        taken = lib.rp_link_keys(self.link.raw, number, call.first, keys, len(keys))
        _native.check(taken, "taking keys")

    def _push(self, part: Part, done: int, until: Deadline) -> int:
        """Posts some of the rows from `done` on; how many were taken."""
        rows = part.records[done : done + ROWS_AT_ONCE]
        flags, given = lib.RP_RUN_ITEM, ffi.NULL
        if part.priorities is not None:
            flags |= lib.RP_RUN_PRIORITY
            given = ffi.from_buffer("double[]", part.priorities[done : done + len(rows)])
        return self._checked(
            lib.rp_link_push(
                self.link.raw,
                self.table.number,
                0,
                ffi.from_buffer("uint8_t[]", rows),
                len(rows),
                flags,
                given,
                min(until.left(), lib.RP_SLICE_NS),
            )
        )

    def _settle(self, until: Deadline) -> bool:
        """Whether all that was posted is acknowledged in time."""
        while True:
            wait = min(until.left(), lib.RP_SLICE_NS)
            status = lib.rp_link_settle(self.link.raw, self.table.number, wait)
            if self._checked(status) != _native.PENDING:
                return True
            if not until.left():
                return False

    def _state(self) -> Any:
        return push_state(self.link, self.table.number)

    def _checked(self, status: int) -> int:
        if status < 0:
            raise writer_error(self.link, self.table, status)
        return status


def leave_rows(places: dict[str, PlainRows], until: Deadline) -> None:
    """For a client that closes: RowsDropped warns of rows that are not stored in that time."""
    for rows in list(places.values()):
        rows.leave(until)
