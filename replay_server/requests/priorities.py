"""New priorities for drawn items: cut into requests, waited for or queued, and what became of them.

Requests of one session are applied in the order in which they were posted, each once. Of a key that
appears twice in one call the last priority wins. Queued requests are the core's: it adds their
results up, and takes no more of them than it has room for. After a long silence the server may have
given the session up, so it is asked before anything is queued: what is under way when a session
ends is lost, and `flush` says how much.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from .. import _native
from .._native import NUMBERS, PENDING, STATUSES, Deadline, Link, ffi, lib, nanoseconds
from ..batch import Keys
from ..errors import ConfigError, ReplayError, warn
from ..support.values import numbers_of
from .remote import RemoteTable

EXPIRED = -NUMBERS["SESSION_EXPIRED"]
DOUBLE = np.dtype(np.float64)
SETTING, KEYS, DOUBLES = map(ffi.typeof, ("struct rp_setting *", "uint64_t[]", "double[]"))


@dataclass(frozen=True, init=False)
class UpdateResult:
    """What happened to the priorities of an update, as counts of keys; results can be added.

    applied   priorities that were set
    stale     keys whose item is gone, which is normal
    unknown   keys that name no item of this server

    A key that stands several times in one call counts once (in one of more than 4 batch_max keys:
    once in each so many), and its last priority is set. A table that draws uniformly only
    distinguishes priority 0. Keys of another table count as stale or unknown, and no error is
    raised. So where all keys are stale again and again, check the table's name.
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
    """The priority updates of one client, waited for or queued."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = _native.Lock()
        self._flushed = UpdateResult()
        self._failed = 0  # keys of updates that failed, as far as reported
        self._silent_s = link.silence()
        self._doubtful = monotonic() + self._silent_s  # from then on the session may be gone
        self._warned: set[str] = set()  # tables whose largest priority was warned of

    def update(
        self, table: RemoteTable, timeout: float, asked: tuple[Keys, np.ndarray]
    ) -> UpdateResult:
        """Sets priorities, float64 [N], of keys [N]: `asked` is the pair. StaleEpoch: the server
        restarted, so look the table up again; keys of another epoch are no error."""
        table.expect_priorities()
        keys, priorities = asked
        setting: Any = ffi.new(SETTING)
        arguments: tuple = (
            table.incarnation,
            table.number,
            keys.epoch or table.epoch,
            ffi.from_buffer(KEYS, keys),
            ffi.from_buffer(DOUBLES, priorities),
            len(keys),
            setting,
        )
        status = self._link.whole(lib.rp_link_set, arguments, table.updating, timeout)
        if status == EXPIRED:  # the link opened another session, and the keys stay valid
            setting = ffi.new(SETTING)
            arguments = (*arguments[:-1], setting)
            status = self._link.whole(lib.rp_link_set, arguments, table.updating, timeout)
        if status:
            checked_priorities(priorities, len(keys))
            _native.check(status, table.updating)
        if setting.largest > table.priority_max:
            warn_of_large(table, arguments[4], len(keys), self._warned)
        return UpdateResult(setting.applied, setting.stale, setting.unknown)

    def flush(self, timeout: float) -> UpdateResult:
        """Waits for all that is queued; the sum since the last flush, or the first error. What is
        not known to be set is counted in the error."""
        until, what = Deadline(timeout), "waiting for queued priorities"
        while (status := lib.rp_link_update_settle(self._link.raw, until.left())) == PENDING:
            if not until.left():
                error = _native.error("TIMEOUT", what)
                error.args = (f"{error}; they stay queued: call flush again",)
                raise error
        _native.check(status, what)
        state = ffi.new("struct rp_update_state *")
        with self._lock:
            _native.check(lib.rp_link_update_state(self._link.raw, state), what)
            total = UpdateResult(state.applied, state.stale, state.unknown)
            done, self._flushed = total - self._flushed, total
            failed, self._failed = state.failed - self._failed, state.failed
        if state.status:
            raise in_doubt(state.status, failed, what)
        return done

    def leave(self, until: Deadline) -> None:
        """For a client that closes: waits for queued priorities, in that time, and warns of those
        that are not set then."""
        state: Any = ffi.new("struct rp_update_state *")
        with suppress(ReplayError):
            while lib.rp_link_update_settle(self._link.raw, until.left()) == PENDING:
                if not until.left():
                    break
            _native.check(lib.rp_link_update_state(self._link.raw, state), "closing")
        if left := state.posted - state.finished + max(state.failed - self._failed, 0):
            warn(
                f"a client was closed with {left} queued priorities not known to be set: call "
                "flush(), or use `with`, while the server answers",
                RuntimeWarning,
            )

    def _wake(self, timeout: float) -> None:
        """After a silence, opens another session where the server gave this one up. Where nobody
        answers in time, queued priorities go on waiting."""
        now = monotonic()
        if now >= self._doubtful:
            what = "asking for the client's session"
            self._link.outcome(lib.rp_link_ping, what=what, timeout=timeout)
        self._doubtful = now + self._silent_s

    def queue(self, table: RemoteTable, keys: Keys, priorities: np.ndarray, timeout: float) -> None:
        """Queues all of them, waiting for room where there is none; else Full."""
        table.expect_priorities()
        checked_priorities(priorities, len(keys))
        warn_of_large(table, ffi.from_buffer(DOUBLES, priorities), len(keys), self._warned)
        self._wake(timeout)
        begin, until, what, heard = 0, Deadline(timeout), table.updating, -1
        timeout_ns = nanoseconds(timeout)
        while begin < len(keys):
            taken = lib.rp_link_update_queue(
                self._link.raw,
                table.number,
                keys.epoch or table.epoch,
                ffi.from_buffer(KEYS, keys[begin:]),
                ffi.from_buffer(DOUBLES, priorities[begin:]),
                len(keys) - begin,
                timeout_ns,
                min(until.left(), lib.RP_SLICE_NS),
            )
            if taken == 0 and heard < 0:
                heard = self._link.heard()
            if taken == 0 and not until.left():
                raise _native.error("FULL" if self._link.heard() != heard else "TIMEOUT", what)
            begin += _native.check(taken, what)


def in_doubt(status: int, failed: int, what: str) -> ReplayError:
    """The error of `failed` queued priorities that ended with `status`: the server may have set
    some, so that what it answers later does not count them."""
    error = _native.error(STATUSES[-status], what)
    again = "once the server answers"
    if status == EXPIRED:
        error.happened = (
            f"{what}: the server gave this client's session up after too long a silence"
        )
        again = "since another is open, and the keys stay valid"
    some = f"{failed} queued {'priority' if failed == 1 else 'priorities'} may not be set"
    error.args = (f"{error.happened or error}; {some}: call update_priorities again, {again}",)
    return error


def warn_of_large(table: RemoteTable, raw: Any, count: int, warned: set[str]) -> None:
    """Warns once a table of priorities so large that they are all drawn alike; `warned`: the tables
    that were warned of before."""
    if table.name in warned:
        return
    first = lib.rp_priorities_above(raw, count, table.priority_max)
    if first == count:
        return
    warned.add(table.name)
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
        given = np.asarray(numbers_of("priorities", priorities))
        if given.dtype.kind in "SUmM":  # numpy would read a number out of them
            raise ConfigError(f"priorities: expected {count} numbers, got {given.dtype}")
        array = np.ascontiguousarray(given, dtype=np.float64)
    except ConfigError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"priorities: expected {count} numbers ({error})") from error
    given = np.shape(priorities)
    if given != (count,):
        got = f"shape {given}" if given else repr(priorities)
        raise ConfigError(f"priorities: expected shape ({count},), got {got}")
    for i in np.flatnonzero(np.isnan(array)) if isinstance(priorities, list | tuple) else ():
        if priorities[i] is None:  # numpy makes it NaN
            raise ConfigError(f"priorities[{i}] is None; expected finite numbers of at least 0")
    return array


def checked_priorities(priorities: Any, count: int) -> np.ndarray:
    """float64 [count], finite and at least 0; ConfigError names the first that is not."""
    array = float64_of(priorities, count)
    first = lib.rp_priorities_usable(ffi.from_buffer(DOUBLES, array), count)
    if first < count:
        raise ConfigError(
            f"priorities[{first}] is {array[first]}; expected finite numbers of at least 0"
        )
    return array
