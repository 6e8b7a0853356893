"""New priorities for drawn items: cut into requests, waited for or queued, and what became of them.

Requests of one session are applied in the order they were posted, each once; of keys that appear
twice in one call the last wins. A queued request owns the memory its result lands in until it is
reaped: by a later update, or by `flush`. The queue holds QUEUED_MAX requests; a further one waits
for the oldest.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _native
from ._native import Deadline, Link, ffi, lib
from .batch import Keys
from .errors import ConfigError
from .remote import RemoteTable

QUEUED_MAX = 256
GONE = ("STALE_EPOCH", "UNKNOWN_TABLE")


@dataclass(frozen=True)
class UpdateResult:
    """What became of priorities: set; their item was gone (normal life); never an item at all."""

    applied: int = 0
    stale: int = 0
    unknown: int = 0

    def __add__(self, other: UpdateResult) -> UpdateResult:
        return UpdateResult(
            self.applied + other.applied, self.stale + other.stale, self.unknown + other.unknown
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
        self._lock = threading.Lock()
        self._queued: deque[_Posted] = deque()
        self._reaped = UpdateResult()

    def update(
        self, table: RemoteTable, keys: Keys, priorities: np.ndarray, wait: bool, timeout: float
    ) -> UpdateResult:
        """Sets checked float64 [N] priorities of [N] keys; zeros where the update was queued."""
        posted = self._post(table, keys, priorities, timeout)
        if wait:
            return sum((self._ended(request, timeout) for request in posted), UpdateResult())
        with self._lock:
            self._queued.extend(posted)
        self._reap(timeout)
        return UpdateResult()

    def flush(self, timeout: float) -> UpdateResult:
        """Waits for all that is queued; the sum since the last flush, or the first error."""
        with self._lock:
            waiting, self._queued = self._queued, deque()
            done, self._reaped = self._reaped, UpdateResult()
        while waiting:
            done += self._ended(waiting.popleft(), timeout)
        return done

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

    def _reap(self, timeout: float) -> None:
        """Takes the queued requests that have ended, and the oldest where there are too many."""
        while True:
            with self._lock:
                if not self._queued:
                    return
                ticket = self._queued[0].ticket
                pending = ticket > 0 and (
                    lib.rp_link_poll(self._link.raw, ticket) == _native.PENDING
                )
                if pending and len(self._queued) <= QUEUED_MAX:
                    return
                oldest = self._queued.popleft()
            result = self._ended(oldest, timeout)
            with self._lock:
                self._reaped += result


def checked_priorities(priorities: Any, count: int) -> np.ndarray:
    """float64 [count], finite and at least 0; else ConfigError says which is not."""
    if hasattr(priorities, "detach"):
        priorities = priorities.detach().cpu().numpy()
    array = np.ascontiguousarray(priorities, dtype=np.float64)
    if array.shape != (count,):
        raise ConfigError(f"priorities: expected shape ({count},), got {array.shape}")
    wrong = ~((array >= 0.0) & np.isfinite(array))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise ConfigError(
            f"priorities[{first}] is {array[first]}; expected finite numbers of at least 0"
        )
    return array
