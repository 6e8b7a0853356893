"""New priorities for drawn items: cut into requests, waited for or queued, and what became of them.

Requests of one session are applied in the order they were posted, each once; of keys that appear
twice in one call the last wins. Queued requests are the core's: it adds their results up, and takes
no more of them than it has room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._native import PENDING, Deadline, Link, ffi, lib, nanoseconds
from .batch import Keys
from .errors import ConfigError
from .remote import RemoteTable

GONE = ("STALE_EPOCH", "UNKNOWN_TABLE")


@dataclass(frozen=True)
class UpdateResult:
    """What became of priorities: set; their item was gone (normal life); never an item at all.

    A key that stands several times in one call counts once: its last priority is the one set.
    """

    applied: int = 0
    stale: int = 0
    unknown: int = 0

    def __add__(self, other: UpdateResult) -> UpdateResult:
        return UpdateResult(
            self.applied + other.applied, self.stale + other.stale, self.unknown + other.unknown
        )

    def __sub__(self, other: UpdateResult) -> UpdateResult:
        return UpdateResult(
            self.applied - other.applied, self.stale - other.stale, self.unknown - other.unknown
        )


@dataclass
class _Posted:
    """A request under way: memory for its result, and how many keys it has."""

    table: str
    count: int
    result: Any
    ticket: int


class Updates:
    """The updates of one client."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = _native.Lock()
        self._flushed = UpdateResult()

    def update(
        self, table: RemoteTable, keys: Keys, priorities: np.ndarray, wait: bool, timeout: float
    ) -> UpdateResult:
        """Sets checked float64 [N] priorities of [N] keys; zeros where the update was queued."""
        if not wait:
            self._queue(table, keys, priorities, timeout)
            return UpdateResult()
        posted = self._post(table, keys, priorities, timeout)
        return sum((self._ended(request, timeout) for request in posted), UpdateResult())

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

    def _queue(
        self, table: RemoteTable, keys: Keys, priorities: np.ndarray, timeout: float
    ) -> None:
        """All of them, waiting for room where there is none; else Full."""
        begin, until, what = 0, Deadline(timeout), f"updating priorities of table {table.name!r}"
        patience = nanoseconds(timeout)
        while begin < len(keys):
            taken = lib.rp_link_update_queue(
                self._link.raw,
                table.number,
                keys.epoch or table.epoch,
                ffi.from_buffer("uint64_t[]", keys[begin:]),
                ffi.from_buffer("double[]", priorities[begin:]),
                len(keys) - begin,
                patience,
                min(until.left(), lib.RP_SLICE_NS),
            )
            if taken == 0 and not until.left():
                raise _native.error("FULL", what)
            begin += _native.check(taken, what)

    def _post(
        self, table: RemoteTable, keys: Keys, priorities: np.ndarray, timeout: float
    ) -> list[_Posted]:
        posted, begin, until = [], 0, Deadline(timeout)
        while begin < len(keys):
            room = int(lib.rp_link_update_room(self._link.raw))
            if room == 0:
                if not until.left():
                    raise _native.error("FULL", f"updating priorities of table {table.name!r}")
                lib.rp_link_drive(self._link.raw, min(until.left(), _native.NS // 1000))
                continue
            end = min(len(keys), begin + room)
            request = _Posted(table.name, end - begin, ffi.new("struct rp_updated *"), 0)
            request.ticket = self._link.post(
                lib.rp_link_update,
                table.number,
                keys.epoch or table.epoch,
                ffi.from_buffer("uint64_t[]", keys[begin:end]),
                ffi.from_buffer("double[]", priorities[begin:end]),
                end - begin,
                request.result,
                timeout=timeout,
            )
            posted.append(request)
            begin = end
        return posted

    def _ended(self, request: _Posted, timeout: float) -> UpdateResult:
        """Waits for a request; keys of another epoch are stale, all of them."""
        what = f"updating priorities of table {request.table!r}"
        status, _, _ = self._link.outcome(request.ticket, what, timeout)
        if status < 0 and _native.STATUSES[-status] in GONE:
            return UpdateResult(stale=request.count)
        _native.check(status, what)
        result = request.result
        return UpdateResult(result.applied, result.stale, result.unknown)


def checked_priorities(priorities: Any, count: int) -> np.ndarray:
    """float64 [count], finite and at least 0; else ConfigError says which is not."""
    if hasattr(priorities, "detach"):
        priorities = priorities.detach().cpu().numpy()
    try:
        array = np.ascontiguousarray(priorities, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"priorities: expected {count} numbers ({error})") from error
    if array.shape != (count,):
        raise ConfigError(f"priorities: expected shape ({count},), got {array.shape}")
    wrong = ~((array >= 0.0) & np.isfinite(array))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise ConfigError(
            f"priorities[{first}] is {array[first]}; expected finite numbers of at least 0"
        )
    return array
