"""The only importer of the extension: the rest of the package speaks to the core through it.

`check` is the one translator from a status of the core to an error of errors.py. `Link` wraps a
`struct rp_link` and `Service` a `struct rp_service`: they add lifetimes (closed once, by the
process that opened it), waiting in slices so that Ctrl-C works, and memory that outlives what the
core still writes. Neither knows tables, columns or batches.

Closing while other threads are inside a call is fine: the core ends those calls as closed. A handle
that a thread still holds stays valid, since its memory is freed with the last reference to it.

Ownership: memory handed to a request (landings, results, blobs) must stay alive and unmoved until
the request's ticket has ended or was taken. `Link.outcome` and `Link.whole` take the ticket when
they end by an exception.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._engine import ffi, lib
from .errors import (
    STATUS_NAMES,
    ClosedError,
    ConfigError,
    ForkedError,
    LimiterBlocked,
    ReplayError,
    Timeout,
    error_for,
)

BY_INSERTS, BY_SAMPLES = "inserts", "samples"
NS, TIMEOUT_MAX = 1_000_000_000, 1e9
SLICE_NS, MEANWHILE_NS = int(lib.RP_SLICE_NS), 2_000_000


def text(pointer: Any) -> str:
    """A C string, or "" for null."""
    return ffi.string(pointer).decode() if pointer else ""


VERSION = text(lib.rp_version())
STATUSES = tuple(text(lib.rp_status_name(i)) for i in range(lib.rp_status_count()))
COUNTERS = tuple(text(lib.rp_counter_name(i)) for i in range(lib.rp_counter_count()))
COUNTER_SENTENCES = {name: text(lib.rp_counter_sentence(i)) for i, name in enumerate(COUNTERS)}
NUMBERS = {name: i for i, name in enumerate(STATUSES)}
PENDING, FULL, CLOSED = NUMBERS["PENDING"], -NUMBERS["FULL"], -NUMBERS["CLOSED"]
TIMEOUT = -NUMBERS["TIMEOUT"]
if unmapped := set(STATUSES) - STATUS_NAMES - {"OK"}:
    raise ImportError(f"errors.py has no error for {', '.join(sorted(unmapped))}")


def check(status: int, what: str, **details: Any) -> int:
    """`status` where it is 0 or more; else its error, which says that `what` was being done."""
    if status >= 0:
        return status
    name = STATUSES[-status] if -status < len(STATUSES) else "BAD_OP"
    raise error_for(name, text(lib.rp_status_sentence(status)), what, **details)


def error(name: str, what: str, **details: Any) -> ReplayError:
    """The error of a status given by name."""
    return error_for(name, text(lib.rp_status_sentence(NUMBERS[name])), what, **details)


def held_back(link: Link, need: int, table: Any, what: str) -> ReplayError:
    """The error of a writer that got no further: blocked for `need` draws, or just unanswered."""
    what = f"table {table.name!r}: {what}"
    if need:
        limiter = table.now(link).limiter()
        return error("BLOCKED", what, blocked=(need, BY_SAMPLES, limiter, table.fifo))
    return error("TIMEOUT", what)


def opened(status: int, sentence: Any, what: str) -> None:
    """As `check`, for calls that write why they failed to `sentence`, a char[RP_ERROR_BYTES]."""
    if status < 0:
        name = STATUSES[-status] if -status < len(STATUSES) else "BAD_OP"
        happened = text(sentence) or text(lib.rp_status_sentence(status))
        address = what.rpartition(" ")[2]  # `happened` may begin with it: once is enough
        raise error_for(name, happened.removeprefix(f"{address}: "), what)


def error_text() -> Any:
    """Room for a sentence of the core."""
    return ffi.new("char[]", lib.RP_ERROR_BYTES)


def name_of(field: Any) -> str:
    """A zero-padded name field."""
    return bytes(ffi.buffer(field)).split(b"\0", 1)[0].decode("utf-8", "replace")


def pointer(kind: str, array: np.ndarray) -> Any:
    """`array`'s memory as `kind`, for the core to write: C-contiguous, writable, dtype checked."""
    wanted = ffi.sizeof(ffi.typeof(kind).item)
    if array.dtype.itemsize != wanted and kind != "uint8_t[]":
        raise TypeError(f"expected elements of {wanted} bytes for {kind}, got {array.dtype}")
    return ffi.from_buffer(kind, array, require_writable=True)


def counters_of(fill: Any) -> dict[str, int]:
    """{name: value}; `fill` writes the numbers into the array it is given."""
    numbers = ffi.new("uint64_t[]", len(COUNTERS))
    fill(numbers)
    return dict(zip(COUNTERS, ffi.unpack(numbers, len(COUNTERS)), strict=True))


@dataclass(frozen=True)
class Fact:
    """A number that a transport counts of itself. kind: `in`, `out` (drops, by reason), `count` or
    `level` (what there is now)."""

    name: str
    kind: str
    value: int
    sentence: str

    @property
    def is_drop(self) -> bool:
        return self.kind in ("in", "out")

    @property
    def full_name(self) -> str:
        """Its name in a list with the counters."""
        return (f"dropped_{self.kind}_" if self.is_drop else "transport_") + self.name


FACT_KINDS = {
    lib.RP_FACT_IN: "in",
    lib.RP_FACT_OUT: "out",
    lib.RP_FACT_COUNT: "count",
    lib.RP_FACT_LEVEL: "level",
}


def facts_of(raw: Any, count: int) -> tuple[Fact, ...]:
    """The first `count` of a struct rp_fact[]; a kind not known here is left out."""

    def words(field: Any) -> str:
        return "".join(c if c.isprintable() else "?" for c in name_of(field))

    return tuple(
        Fact(words(fact.name), FACT_KINDS[fact.kind], fact.value, words(fact.sentence))
        for fact in raw[0:count]
        if fact.kind in FACT_KINDS
    )


def nanoseconds(seconds: float) -> int:
    """A time-out as the core takes it; ConfigError where it is none from 0 on."""
    try:
        if 0.0 <= seconds < TIMEOUT_MAX:
            return int(seconds * NS)
    except (TypeError, ValueError):  # an array has no truth value
        pass
    raise ConfigError(f"timeout is {seconds!r}; expected seconds, finite and at least 0")


class Deadline:
    """A point in time, and how many nanoseconds are left until it."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic_ns() + nanoseconds(seconds)

    def left(self) -> int:
        return max(0, self.at - time.monotonic_ns())

    def seconds(self) -> float:
        """The seconds that are left."""
        return self.left() / NS


PINS = bool(lib.rp_pins())  # whether a thread can be pinned to a core here


def cores() -> list[int]:
    """The cores that this process may use, as far as the system says."""
    return sorted(os.sched_getaffinity(0)) if PINS else list(range(os.cpu_count() or 1))


_forks = 0  # that lie behind this process; asking the system each time would cost a call of it


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Lock:
    """A mutex for the threads of one process. In a forked child, where its holder does not exist,
    nobody waits for it: ForkedError is raised."""

    def __init__(self) -> None:
        self._lock, self._forks = threading.RLock(), _forks

    def acquire(self, timeout: float = -1) -> bool:
        if self._forks != _forks:
            raise forked("client", None)
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()

    def held(self) -> bool:
        """Whether this very thread holds it."""
        return self._lock._is_owned()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


def forked(kind: str, process: int | None) -> ForkedError:
    """The error of something that a forked child inherited."""
    where = "another process" if process is None else f"process {process}"
    remedy = "open one here: Client(client.address)"
    if kind == "server":
        remedy = "its clients work here: Client(address), with an address noted before the fork"
    return ForkedError(
        f"this {kind} was opened in {where} and does not work in a forked child; {remedy}"
    )


class Owned:
    """A C object that one process opened and that is closed once, from any thread.

    carrier: a socket made in Python (zmq_transport.Carrier) that the C object uses; closed after
    it, and where it could not be opened.
    """

    kind = ""
    _pointer: Any = None  # while it is closed

    def __init__(self, carrier: Any = None) -> None:
        self._process, self._forks = os.getpid(), _forks
        self._carrier = carrier

    def _open(self, call: Any, free: Any, made: Any, *arguments: Any, what: str) -> None:
        """Opens it by call(made, *arguments, sentence), which writes the handle to `made`.

        A signal's handler may raise after any call. So `map` gives the handle its owner, in one
        step of the interpreter, and the first call of the `except` below ends a handle that has
        none yet: a caller that catches the error may open another one at once.
        """
        handle: list[Any] = []
        sentence = error_text()
        try:
            opened(call(made, *arguments, sentence), sentence, what)
            handle[:] = map(ffi.gc, (made[0],), (free,))
            self._pointer = handle[0]
        except BaseException:
            if handle:
                self._pointer = None
                handle.clear()
            elif made[0]:
                free(made[0])
            self.drop_carrier()
            raise

    @property
    def closed(self) -> bool:
        return self._pointer is None

    @property
    def inherited(self) -> bool:
        """Whether this process is a forked child of the one that opened it."""
        return self._forks != _forks

    def __reduce__(self) -> tuple:
        raise TypeError(
            f"an open {self.kind} cannot be pickled or copied: pass the address, and open "
            "one of its own there: Client(address)"
        )

    @property
    def raw(self) -> Any:
        """The C handle; ClosedError or ForkedError where there is none to use. A thread that holds
        it may call with it: closed meanwhile, it answers CLOSED."""
        pointer = self._pointer
        if pointer is None:
            raise ClosedError(f"this {self.kind} is closed; open another one")
        if self._forks != _forks:
            raise forked(self.kind, self._process)
        return pointer

    def release(self, end: Any, *arguments: Any) -> None:
        """Ends it by end(handle, *arguments), then its carrier, for one caller only: the others
        find it closed, and so does a forked child, which has nothing to end.

        A signal's handler may raise after any call. So `map` takes the handle, in one step of the
        interpreter; one that was taken and not ended is freed ahead of the carrier.
        """
        if self._forks != _forks:
            self._pointer = None
            return
        taken: list[Any] = []
        try:
            taken[:] = map(self.__dict__.pop, ("_pointer",), (None,))
            if taken[0] is not None:
                end(taken[0], *arguments)
                self.drop_carrier()
        except BaseException:
            if taken and taken[0] is not None:
                taken.clear()
                self.drop_carrier()
            raise

    def drop_carrier(self) -> None:
        """Closes the carrier; call it once the C object is freed, or could not be opened."""
        if self._carrier is not None:
            self._carrier.close()


class Link(Owned):
    """A session of a client: requests go out, answers land; the caller or a pump drives it."""

    kind = "client"

    def __init__(self, url: str, timeout: float, carrier: Any = None, **options: Any) -> None:
        super().__init__(carrier)
        chosen = ffi.new("struct rp_link_options *", options)
        chosen.connect_timeout_ns = nanoseconds(timeout)
        self._pumping: set[int] = set()  # who wants the pump
        self._pump_lock = Lock()
        # what goes first at each request: a client's writers hand over what they gathered
        self.before: Callable[[], None] | None = None
        self.rings: dict[int, Any] = {}  # of its batches: memory that the core may write to
        self.url = url
        made, what = ffi.new("struct rp_link **"), f"connecting to {url}"
        try:
            self._open(
                lib.rp_link_open, lib.rp_link_free, made, os.fsencode(url), chosen, what=what
            )
            self._connect(timeout)
        except BaseException:
            self.close(0.0)
            raise

    def _connect(self, timeout: float) -> None:
        deadline = Deadline(timeout + 1.0)
        status = PENDING
        while status == PENDING and deadline.left():
            status = lib.rp_link_connect(self.raw, min(deadline.left(), lib.RP_SLICE_NS))
        check(-NUMBERS["TIMEOUT"] if status == PENDING else status, f"connecting to {self.url}")

    def check(self, status: int, what: str, **details: Any) -> int:
        """As the function `check`; the error of CLOSED says which end was closed."""
        if status == CLOSED:
            raise self.ended(what)
        return check(status, what, **details)

    def ended(self, what: str, remedy: str = "call again when it is back") -> ClosedError:
        """The error of a call that ended as closed: this client was closed, or its server stopped.
        `remedy` is for a server that may come back; one in this process never does."""
        if self.closed:
            happened, remedy = f"{what}: this client was closed meanwhile", "open another one"
        else:
            happened = f"{what}: the server stopped"
            if self.url.startswith("loopback:") or "vdev=net_ring" in self.url:
                remedy = "open a client of the one that is started next"
        error = ClosedError(f"{happened}; {remedy}")
        error.status, error.happened = "CLOSED", happened
        return error

    def silence(self) -> float:
        """Seconds of silence after which the session is spoken for: a quarter of what ends it."""
        raw = ffi.new("struct rp_opened *")
        check(lib.rp_link_limits(self.raw, raw), "asking for limits")
        return raw.idle_ms / 4000.0

    def request(self, call: Any, *arguments: Any, what: str, timeout: float) -> None:
        """Posts a request and waits for its end; raises its error. Its own time-out ends it."""
        self.check(self.outcome(call, *arguments, what=what, timeout=timeout), what)

    def outcome(self, call: Any, *arguments: Any, what: str, timeout: float) -> int:
        """As `request`, but returns the status, and no error. Waits where the queue is full.

        A signal's handler may raise after any call. So `map` puts the ticket in its list, in one
        step of the interpreter, and the first call of the `except` below takes it back: then the
        interrupted request is no request any more, and writes to no memory that is gone.
        """
        if self.before:
            self.before()
        until, overtime = Deadline(timeout), Deadline(timeout + 5.0)  # of a broken driver
        each = [(argument,) for argument in (self.raw, *arguments)]
        ticket: list[int] = []
        try:
            ticket[:] = map(call, *each, (nanoseconds(timeout),))
            while ticket[0] == FULL and until.left():
                lib.rp_link_drive(self.raw, min(until.left(), 1_000_000))
                ticket[:] = map(call, *each, (until.left(),))
            status = PENDING if ticket[0] > 0 else ticket[0]
            while status == PENDING:
                if not overtime.left():
                    raise error("TIMEOUT", what)
                status = lib.rp_link_wait(self.raw, ticket[0], SLICE_NS, ffi.NULL)
            return status
        except BaseException:
            if ticket and (pointer := self._pointer) is not None:
                lib.rp_link_take(pointer, ticket[0])
            raise

    def whole(
        self,
        call: Any,
        arguments: tuple,
        what: str,
        timeout: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> int:
        """The status of a request that `call` posts, waits for and takes, all in one.

        The last of `arguments` is its memory, with the ticket while it is under way. The request
        ends itself; the time-out of a broken driver comes 5 seconds later.
        """
        slice_ns, memory = MEANWHILE_NS if meanwhile else SLICE_NS, arguments[-1]
        usual = type(timeout) is float and 0.0 <= timeout < TIMEOUT_MAX  # needs no call to say so
        timeout_ns = int(timeout * NS) if usual else nanoseconds(timeout)
        raw = self._pointer if self._forks == _forks else None
        if self.before:
            self.before()
        try:
            status = call(raw or self.raw, *arguments, timeout_ns, slice_ns)
            if status != PENDING:
                return status
            until, late = Deadline(timeout), Deadline(timeout + 5.0)
            heard = None if memory.ticket else self.heard()  # there is no room: does anybody answer
            while status == PENDING:
                if not memory.ticket and not until.left():
                    return FULL if self.heard() != heard else TIMEOUT
                if not late.left():
                    raise error("TIMEOUT", what)
                if meanwhile:
                    meanwhile()
                status = call(self.raw, *arguments, until.left(), slice_ns)
            return status
        except BaseException:
            if memory.ticket and (pointer := self._pointer) is not None:
                lib.rp_link_take(pointer, memory.ticket)
            memory.ticket = 0
            raise

    def start_pump(self, who: int) -> None:
        """Starts a thread of the core that drives this link until each `who` has stopped it."""
        with self._pump_lock:
            self._pumping.add(who)
            check(lib.rp_link_start_pump(self.raw), "starting the link's thread")

    def stop_pump(self, who: int) -> None:
        """Stops it for `who`. Twice is fine, and so is one that never started it."""
        with self._pump_lock:
            self._pumping.discard(who)
            if not self._pumping:
                check(lib.rp_link_stop_pump(self.raw), "stopping the link's thread")

    def heard(self) -> int:
        """How many datagrams came: where none does, what finds no room waits for a server."""
        return self.counters()["datagrams_in"]

    def counters(self) -> dict[str, int]:
        """The client's own counters by name."""
        return counters_of(lambda numbers: lib.rp_link_counters(self.raw, numbers))

    def facts(self) -> tuple[Fact, ...]:
        """The numbers that this end's transport counts."""
        facts = ffi.new("struct rp_fact[]", lib.RP_FACTS_MAX)
        return facts_of(facts, lib.rp_link_own_facts(self.raw, facts))

    def close(self, timeout: float, after: BaseException | None = None) -> None:
        """Ends the session; calls of other threads that are under way end as closed. Twice is fine,
        and in a forked child it does nothing. `after`: the error that led here; after a Timeout
        the goodbye is sent, and its answer is not waited for."""
        silent = isinstance(after, Timeout) and not isinstance(after, LimiterBlocked)
        self._end(0 if silent else nanoseconds(timeout))

    def _end(self, timeout_ns: int) -> None:
        self.release(lib.rp_link_end, timeout_ns)

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None and lib is not None:
            self._end(0)  # at the interpreter's end the names of this module may be gone


class Service(Owned):
    """A server: its memory, its port, and the thread that turns it."""

    kind = "server"

    def __init__(self, config: Any, url: str, carrier: Any = None, **options: Any) -> None:
        super().__init__(carrier)
        self._closing = Lock()
        made, what = ffi.new("struct rp_service **"), f"serving on {url}"
        asked = (config, os.fsencode(url), ffi.new("struct rp_service_options *", options))
        try:
            self._open(lib.rp_service_open, lib.rp_service_free, made, *asked, what=what)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stops the thread, closes the port, frees the memory; calls of other threads that are
        under way end first, as closed. Twice is fine; a thread that comes second waits for the
        first."""
        if self.inherited:
            self._pointer = None
            return
        with self._closing:
            self.release(lib.rp_service_end)

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()


def service_bytes(config: Any, url: str) -> int:
    """Memory a server of this config takes, in bytes; raises where the config is impossible."""
    sentence = error_text()
    size = lib.rp_service_bytes(config, os.fsencode(url), sentence)
    if size == 0:
        opened(-NUMBERS["BAD_ARGUMENT"], sentence, f"serving on {url}")
    return size
