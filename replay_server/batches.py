"""Batches fetched ahead: while Python computes on one, the link's own thread fetches the next.

`Batches` keeps `prefetch` requests under way, each with a landing of its own, and some landings
more for the batches the caller still looks at, all in one ring:

    under way   | prefetch landings, in the order in which they will be returned
    taken       | keep + 1 landings: the newest `keep` batches that were returned, and the one that
                | the caller's variable still names while it asks for the next

A batch stays as it is for as long as anything of it is referred to: the batch, an array or tensor,
a view of one. Only a landing that nothing refers to is used again; else another one is made in its
place. So `keep` is how many batches a loop may hold before memory is made anew for each. copy=True
hands out copies. Batches come in the order of the requests: with one learner and one seed it can be
repeated.

A request that the limiter holds back, or that no answer came to, is posted again as long as the
caller waits: `timeout` counts from the call of next(), not from the prefetch. A batch that was
overwritten on its way is counted in `short` and asked for again; only SHORT_IN_A_ROW of them in a
row are an error. The iteration ends when it is closed, by any thread: the core shuts its landings,
so that nothing is asked for after that. It goes on after a restart, and after Ctrl-C: what was
interrupted is asked for again. Where the server came back with other columns or another plan, every
call raises SpecMismatch: a request names its table's epoch, and none is posted for an epoch whose
items do not fit the landings.

The thread that takes the first batch is the only one that takes, as long as it lives.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from operator import attrgetter
from sys import getrefcount
from threading import get_ident
from typing import Any

import numpy as np

from . import _native
from ._native import Deadline, ffi, lib
from .batch import BATCH_PARTS, Batch, Landing, LandingShape, checked_beta, checked_count
from .errors import (
    ClosedError,
    ConfigError,
    ForkedError,
    ReplayError,
    ShortBatch,
    SpecMismatch,
    StaleEpoch,
    Timeout,
    UnknownPlan,
    UnknownTable,
)
from .requests.draws import Draw, expect_drawn
from .requests.remote import LOOK_UP_S
from .returns import check_device, tensor_of
from .support.owning import expect_free
from .support.values import flag, whole

SHORT_IN_A_ROW = 10
KEEP_MAX = 1024  # landings whose memory is there from the beginning
PLACE = attrgetter("landing.raw")  # of a flight
GRACE_NS = 250_000_000  # for a request to end by itself and say why
LANDED = (0, -_native.NUMBERS["SHORT_BATCH"])
TAKES = (
    "which takes them: one thread would get memory that another's batch lies in; call "
    "client.batches in each"
)
LOST = ("TIMEOUT", "BLOCKED", "NOTHING_DRAWABLE", "FULL")
MOVED = ("STALE_EPOCH", "UNKNOWN_TABLE", "UNKNOWN_PLAN")


def look_up_seconds(deadline: Deadline) -> float:
    """Seconds to look the table up in; the caller may have given less for a batch."""
    return max(deadline.seconds(), LOOK_UP_S)


class _Lent(Landing):
    """A landing that knows whether anything outside refers to its arrays or its memory."""

    def __init__(self, shape: LandingShape, pin: bool) -> None:
        super().__init__(shape, pin)
        self.shown: list[np.ndarray] = []  # each is kept by its name, too
        self._own_references = getrefcount(self.memory)

    def _array(self, shape: tuple[int, ...], dtype: np.dtype, offset: int) -> np.ndarray:
        array = super()._array(shape, dtype, offset)
        self.shown.append(array)
        return array

    def seen(self) -> bool:
        """An array, or a view: of numpy's, a view refers to the array or straight to the memory."""
        shown = self.shown
        if getrefcount(self.memory) > self._own_references + len(shown):
            return True
        return sum(map(getrefcount, shown)) > (LISTED + 1) * len(shown)


class _Named:
    def __init__(self) -> None:
        self.it = object()


# As this interpreter counts references: of what only an attribute, or only a list, refers to.
_PROBE = _Named()
NAMED, LISTED = getrefcount(_PROBE.it), sum(map(getrefcount, [object()]))


class _Flight:
    """One landing, with the ticket of the request that is to fill it (0: none is under way).

    The core writes the ticket, in the same call that posts or ends the request: wherever a signal's
    handler raises, it says what is under way.
    """

    def __init__(self, landing: _Lent) -> None:
        self.landing = landing
        self.draw: Any = None
        self.landed: int | None = None  # how its request ended, until the beta for it is known
        self.copied: Any = None  # a device event: the landing is being read until it has happened


class Batches:
    """An iterator of batches that are fetched ahead; made by `Client.batches`, with its arguments.

    Iterate, or call next(). `close`, or the end of `with`, ends it. A batch stays valid as long as
    anything refers to it or to an array of it. next() raises Timeout or LimiterBlocked where no
    batch comes in time, and goes on after that; SpecMismatch where the server came back with other
    columns or plans. The thread that takes the first batch is the only one that may take.

    taken     batches that were returned
    short     batches that were overwritten on their way, and asked for again; on a table of Fifo
              next() raises the ShortBatch, whose `batch` has the items that arrived
    waited    seconds that callers waited for a batch that the server was free to send
    limited   seconds that callers waited for the limiter, or for the table's minimum size
    """

    def __init__(
        self,
        client: Any,
        link: Any,
        table: str,
        batch: int,
        *,
        beta: float | Callable[[], float] = 0.4,
        plan: int | str = 0,
        stratified: bool = False,
        uniform: float = 0.0,
        prefetch: int = 4,
        keep: int = 1,
        copy: bool = False,
        device: Any = None,
        pin: bool = False,
        timeout: float | None = None,
        pump: bool = True,
    ) -> None:
        limits, batch = client.limits, checked_count(batch)
        prefetch = whole("prefetch", prefetch, 1)
        if prefetch > (most := limits["records"]):
            raise ConfigError(
                f"prefetch is {prefetch}, and the server keeps {most} batches of a session: ask "
                f"for {most} at most, or serve with more, Server(records={prefetch})"
            )
        keep = whole("keep", keep, 0, KEEP_MAX)
        if keep == 0 and not copy:
            raise ConfigError(f"keep is {keep}; without copy=True it must be at least 1")
        self._client, self._link, self.name = client, link, table
        self._beta_of = beta if callable(beta) else None
        self._beta = 0.0 if callable(beta) else checked_beta(beta)
        self._draw = {"plan": plan, "stratified": stratified, "uniform": uniform}
        self._copy, self._device = flag("copy", copy), device
        self._pin = flag("pin", pin) or (device is not None and str(device).startswith("cuda"))
        self._timeout = client.timeout if timeout is None else timeout
        self._owner: int | None = None  # the thread that takes
        self._owning = _native.Lock()
        self.taken = self.short = 0
        self.waited = self.limited = 0.0
        self.closed = True  # until there is something to close
        self._flights: tuple[_Flight, ...] = ()
        check_device(device, self._pin)
        remote = client._look_up(table, self._timeout)
        shape = remote.draw(batch, **self._draw).shape  # refuses what excludes itself
        expect_drawn(limits, remote, batch)
        self._shape, self._other = shape, ""  # what was compared last, and how the table differs
        if remote.fifo:
            # Of several requests a later one may be drawn first: it would have the very items for
            # which the first one, whose batch is next, waits.
            prefetch = 1
        self._prefetch = prefetch
        pump = flag("pump", pump) and not link.url.startswith("loopback:")
        self._flights = tuple(_Flight(_Lent(shape, self._pin)) for _ in range(prefetch + keep + 1))
        self._ring = deque(self._flights)
        self.closed = False
        link.rings[id(self)] = self._flights  # were this one to end halfway, its memory stays
        if pump:
            link.start_pump(id(self))
        for flight in self._flights[:prefetch]:
            self._post(flight, self._timeout, self._timeout)

    def _post(self, flight: _Flight, timeout: float, look_up_s: float) -> None:
        """Asks for a batch into the flight's landing. Where a batch that was returned is still in
        use there, it is another landing. A refusal is raised when its turn comes. `look_up_s`:
        seconds to look the table up, where it is not known any more."""
        if flight.copied is not None:
            flight.copied.synchronize()
        if getrefcount(flight.landing) > NAMED or flight.landing.seen():
            flight.landing = _Lent(flight.landing.shape, self._pin)
        flight.draw = self._drawn(flight.landing, look_up_s)
        if self._link.before:
            self._link.before()
        if self.closed:  # perhaps before the landing was made, which is not shut then
            return
        raw, draw, place = self._link.raw, flight.draw.raw, flight.landing.raw
        lib.rp_link_draw_post(raw, draw, place, _native.nanoseconds(timeout))

    def _drawn(self, landing: Landing, timeout: float) -> Draw:
        """The Draw for the table as it is now; SpecMismatch where `landing` does not fit it."""
        remote = self._client._known(self.name, timeout)
        try:
            draw = remote.draw(landing.count, **self._draw)
        except UnknownPlan as error:  # it was none at first: the plan is gone
            self._other = str(error)
        else:
            if draw.shape is self._shape:
                return draw
            self._other = landing.shape.difference(draw.shape)
            self._shape = self._shape if self._other else draw.shape
        self._expect_same()
        return draw

    def _expect_same(self) -> None:
        if self._other:
            raise SpecMismatch(
                f"table {self.name!r} came back with other columns or plans (theirs) than these "
                f"batches were made for (mine): {self._other}; call client.batches anew"
            )

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        batch = None if self.closed else self._next(Deadline(self._timeout), ends=True)
        if batch is None:
            if self.closed:
                raise StopIteration
            raise _native.error("TIMEOUT", f"fetching a batch of table {self.name!r}")
        return batch

    def get(self, timeout: float) -> Batch | None:
        """The next batch, or None where none came within `timeout` seconds; it stays under way.

        get(0) waits for no batch. Where the table was reset or the server restarted, one call looks
        the table up. That takes a few round trips, or a second for each that nobody answers; then
        it returns None, and the next call asks again. ClosedError after `close`.
        """
        try:
            batch = None if self.closed else self._next(Deadline(timeout), ends=False)
        except Timeout:  # of a look-up; a batch that does not come raises nothing here
            batch = None
        if batch is None and self.closed:
            raise ClosedError("these batches are closed; call client.batches again")
        return batch

    def _next(self, deadline: Deadline, ends: bool) -> Batch | None:
        """The next batch; None where none came, or another thread closed this meanwhile.

        `ends`: requests posted now end with the deadline, so that their error says why.
        """
        self._expect_same()
        me = get_ident()
        if self._owner != me:
            self._take_over(me)
        try:  # see owning.py
            self._owner = -me
            for _ in range(SHORT_IN_A_ROW):
                try:
                    batch = self._land(self._ring[0], deadline, ends)
                except ShortBatch as error:
                    self.short, short = self.short + 1, error
                    if self._ring[0].draw.fifo:  # what arrived is drawn once: error.batch has it
                        raise
                    continue
                if batch is not None:
                    self._turn()
                return batch
            raise short
        except ReplayError:
            if not self.closed:
                raise
            return None
        finally:
            self._owner = me

    def _turn(self) -> None:
        """The first of the ring is taken; behind those under way, another is asked for."""
        self.taken += 1
        self._ring.rotate(-1)
        try:
            self._post(self._ring[self._prefetch - 1], self._timeout, LOOK_UP_S)
        except ReplayError:
            return  # raised when its turn comes: the batch that was taken is not lost for it

    def _take_over(self, me: int) -> None:
        """Makes this thread the one that takes batches; ConfigError where another living thread is,
        or where this thread is within a call."""
        with self._owning:
            expect_free(self._owner, me, "this iterator of batches", TAKES)
            self._owner = me

    def _land(self, flight: _Flight, deadline: Deadline, ends: bool) -> Batch | None:
        """Waits for the flight's batch. Posts its request again while there is time, and where that
        may help."""
        status = flight.landed
        while status is None:
            timeout = deadline.seconds() if ends else self._timeout
            if not flight.landing.raw.ticket:
                self._post(flight, timeout, timeout if ends else look_up_seconds(deadline))
            status = self._look(flight, timeout, deadline.left() + ends * GRACE_NS)
            if status == _native.PENDING or self.closed:
                return None
            if status not in LANDED:
                status = self._hoped(flight, status, deadline, ends)
                if status == _native.PENDING:
                    return None
        if self._beta_of is not None and status in LANDED:
            flight.landed = status  # where beta raises, the next call gets this batch
            beta = checked_beta(self._beta_of())
            lib.rp_place_weigh(flight.landing.raw, flight.draw.raw.uniform, beta)
            flight.landed = None
        batch = flight.landing.batch(self.name, flight.draw.epoch, False)
        batch = batch.copied() if self._copy else batch
        need = flight.landing.raw.blocked.need
        return self._placed(flight, flight.draw.landed(self._link, status, batch, need))

    def _hoped(self, flight: _Flight, status: int, deadline: Deadline, ends: bool) -> int | None:
        """What to do with a `status` that brought no batch. None: post again. PENDING: the next
        call posts again. Else `status` itself: it is final."""
        name = _native.STATUSES[-status]
        if name in LOST:
            if deadline.left():
                return None
            return status if ends else _native.PENDING
        if name in MOVED:
            if deadline.left():
                self._look_again(
                    deadline.seconds() if ends else look_up_seconds(deadline), deadline
                )
                return None
            if not ends:
                self._client._forget(self.name, flight.draw.epoch)
                return _native.PENDING
        return status

    def _look(self, flight: _Flight, timeout: float, wait_ns: int) -> int:
        """The status of the flight's request: PENDING where it has not ended in time."""
        draw, place, begin = flight.draw.raw, flight.landing.raw, time.perf_counter()
        until, left = time.monotonic_ns() + wait_ns, wait_ns
        timeout_ns, meanwhile = _native.nanoseconds(timeout), self._client.others
        slice_ns = _native.MEANWHILE_NS if meanwhile else _native.SLICE_NS
        while True:
            link, longest_ns = self._link.raw, min(left, slice_ns)
            status = lib.rp_link_draw(
                link, draw, ffi.NULL, self._beta, place, timeout_ns, longest_ns
            )
            left = until - time.monotonic_ns()
            if status != _native.PENDING or left <= 0:
                break
            if meanwhile:
                meanwhile()
        spent = time.perf_counter() - begin
        if place.blocked.need > 0:
            self.limited += spent
        else:
            self.waited += spent
        return _native.FULL if status == _native.PENDING and not place.ticket else status

    def _look_again(self, look_up_s: float, deadline: Deadline) -> None:
        try:
            self._client._look_up(self.name, look_up_s)
        except (StaleEpoch, UnknownTable):
            if not deadline.left():
                raise

    def _placed(self, flight: _Flight, batch: Batch) -> Batch:
        """The batch as torch tensors on the device, if one was named."""
        if self._device is None:
            return batch
        import torch

        device = torch.device(self._device)
        data = {name: tensor_of(array) for name, array in batch.data.items()}
        weights = tensor_of(batch.weights)
        if device.type != "cpu":
            data = {name: part.to(device, non_blocking=True) for name, part in data.items()}
            weights = weights.to(device)
            facts = {name: getattr(batch, name).copy() for name in BATCH_PARTS}
            batch = replace(batch, **facts)  # like the data, no memory of the landing's any more
            if device.type == "cuda":
                flight.copied = torch.cuda.Event()
                flight.copied.record(torch.cuda.current_stream(device))
        return replace(batch, data=data, weights=weights)

    def close(self) -> None:
        """Gives up requests under way and stops the thread. Returned batches stay valid.

        Any thread may call it. In a thread that waits, next() ends the iteration and get() raises
        ClosedError.
        """
        self.closed = True
        # the client was closed, perhaps by another thread, or is the parent's of a forked child
        with contextlib.suppress(ClosedError, ForkedError):
            # all of them in one step of the interpreter: no signal's handler gets in between
            raw, places = repeat(self._link.raw), map(PLACE, self._flights)
            deque(map(lib.rp_link_draw_shut, raw, places), maxlen=0)
            self._link.stop_pump(id(self))
        self._link.rings.pop(id(self), None)

    def __reduce__(self) -> tuple:  # a copy would take what this one waits for
        raise TypeError(
            "an iterator of batches cannot be pickled or copied: hand the client over, and call "
            "its `batches` there"
        )

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_flights", None):
            self.close()
