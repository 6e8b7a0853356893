"""New priorities for drawn items: cut into requests, waited for or queued, and what became of them.

Requests of one session are applied in the order they were posted, each once; of keys that appear
twice in one call the last wins. Queued requests are the core's: it adds their results up, and takes
no more of them than it has room for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._native import PENDING, Deadline, Link, ffi, lib, nanoseconds
from .batch import Keys
from .errors import ConfigError, ReplayError, warn
from .remote import RemoteTable
from .values import numbers_of

DOUBLE = np.dtype(np.float64)
SETTING, KEYS, DOUBLES = map(ffi.typeof, ("struct rp_setting *", "uint64_t[]", "double[]"))


@dataclass(frozen=True, init=False)
class UpdateResult:
    """What became of priorities: set; their item was gone (normal life); no item of this server.

    Keys of another table count as stale or unknown, as their numbers have it: nothing is set, and
    no error tells. So all stale, again and again, is no normal life: look which table is named.
    A key that stands several times in one call counts once: its last priority is the one set.
    """

    applied: int = 0
    stale: int = 0
    unknown: int = 0

    def __init__(self, applied: int = 0, stale: int = 0, unknown: int = 0) -> None:
        parts = self.__dict__  # past what keeps others from changing it
        parts["applied"], parts["stale"], parts["unknown"] = applied, stale, unknown

    def __add__(self, other: UpdateResult) -> UpdateResult:
        return UpdateResult(
            self.applied + other.applied, self.stale + other.stale, self.unknown + other.unknown
        )

    def __sub__(self, other: UpdateResult) -> UpdateResult:
        return UpdateResult(
            self.applied - other.applied, self.stale - other.stale, self.unknown - other.unknown
        )


class Updates:
    """The updates of one client."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = _native.Lock()
        self._flushed = UpdateResult()
        self._told: set[str] = set()  # tables whose bound somebody was warned of

    def update(
        self, table: RemoteTable, timeout: float, asked: tuple[Keys, np.ndarray]
    ) -> UpdateResult:
        """Sets float64 [N] priorities of [N] keys, `asked`. StaleEpoch: the server is another, look
        again; keys of another epoch are no error."""
        keys, priorities = asked
        setting: Any = ffi.new(SETTING)
        arguments = (
            table.incarnation,
            table.number,
            keys.epoch or table.epoch,
            ffi.from_buffer(KEYS, keys),
            ffi.from_buffer(DOUBLES, priorities),
            len(keys),
            setting,
        )
        status = self._link.whole(lib.rp_link_set, arguments, table.updating, timeout)
        if status:
            checked_priorities(priorities, len(keys))
            _native.check(status, table.updating)
        if setting.largest > table.priority_max:
            tell_of_large(table, arguments[4], len(keys), self._told)
        return UpdateResult(setting.applied, setting.stale, setting.unknown)

    def flush(self, timeout: float) -> UpdateResult:
        """Waits for all that is queued; the sum since the last flush, or the first error."""
        until, what = Deadline(timeout), "waiting for queued priorities"
        while (status := lib.rp_link_update_settle(self._link.raw, until.left())) == PENDING:
            if not until.left():
                raise _native.error("TIMEOUT", what)
        _native.check(status, what)
        state = ffi.new("struct rp_update_state *")
        with self._lock:
            _native.check(lib.rp_link_update_state(self._link.raw, state), what)
            total = UpdateResult(state.applied, state.stale, state.unknown)
            done, self._flushed = total - self._flushed, total
        _native.check(state.status, what)
        return done

    def leave(self, until: Deadline) -> None:
        """For a client that closes: waits for what is queued, in that time; warns of what is not
        set then."""
        state: Any = ffi.new("struct rp_update_state *")
        with suppress(ReplayError):
            while lib.rp_link_update_settle(self._link.raw, until.left()) == PENDING:
                if not until.left():
                    break
            _native.check(lib.rp_link_update_state(self._link.raw, state), "closing")
        if state.posted > state.finished:
            warn(
                f"a client was closed with {state.posted - state.finished} queued priorities not "
                "known to be set: call flush(), or use `with`, while the server answers",
                RuntimeWarning,
            )

    def queue(self, table: RemoteTable, keys: Keys, priorities: np.ndarray, timeout: float) -> None:
        """Queues all of them, waiting for room where there is none; else Full."""
        checked_priorities(priorities, len(keys))
        tell_of_large(table, ffi.from_buffer(DOUBLES, priorities), len(keys), self._told)
        begin, until, what = 0, Deadline(timeout), table.updating
        patience = nanoseconds(timeout)
        while begin < len(keys):
            taken = lib.rp_link_update_queue(
                self._link.raw,
                table.number,
                keys.epoch or table.epoch,
                ffi.from_buffer(KEYS, keys[begin:]),
                ffi.from_buffer(DOUBLES, priorities[begin:]),
                len(keys) - begin,
                patience,
                min(until.left(), lib.RP_SLICE_NS),
            )
            if taken == 0 and not until.left():
                raise _native.error("FULL", what)
            begin += _native.check(taken, what)


def tell_of_large(table: RemoteTable, raw: Any, count: int, told: set[str]) -> None:
    """Warns once of priorities so large that they are all drawn alike; `told`: the tables of which
    it was."""
    if table.name in told:
        return
    first = lib.rp_priorities_above(raw, count, table.priority_max)
    if first == count:
        return
    told.add(table.name)
    warn(
        f"priorities[{first}] is {raw[first]:g}; table {table.name!r} of {table.capacity} steps "
        f"draws all above {table.priority_max:.4g} alike, as if they were that: divide priorities "
        "by a constant (only their ratios count), or take a smaller alpha or capacity",
        RuntimeWarning,
    )


def float64_of(priorities: Any, count: int) -> np.ndarray:
    """float64 [count], C-contiguous; ConfigError where it cannot be."""
    if (
        type(priorities) is np.ndarray
        and priorities.dtype is DOUBLE
        and priorities.shape == (count,)
        and priorities.strides == (8,)
    ):
        return priorities
    try:
        array = np.ascontiguousarray(numbers_of("priorities", priorities), dtype=np.float64)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"priorities: expected {count} numbers ({error})") from error
    given = np.shape(priorities)
    if given != (count,):
        got = f"shape {given}" if given else repr(priorities)
        raise ConfigError(f"priorities: expected shape ({count},), got {got}")
    return array


def checked_priorities(priorities: Any, count: int) -> np.ndarray:
    """The same, finite and at least 0; else ConfigError says which is not."""
    array = float64_of(priorities, count)
    first = lib.rp_priorities_usable(ffi.from_buffer(DOUBLES, array), count)
    if first < count:
        raise ConfigError(
            f"priorities[{first}] is {array[first]}; expected finite numbers of at least 0"
        )
    return array
