"""Around writers: the state of one, how its client finds its mode and lets it go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _native
from .._native import Deadline, Link, ffi, lib
from ..errors import ClosedError, ConfigError, ItemsFailed, ReplayError, RowsDropped, Timeout, warn
from ..spec import Spec, SpecError, spec_from
from ..support.owning import expect_free
from ..support.values import seconds, whole
from ..table import require_steps
from .autoreset import GYMNASIUM_MODES, MODES, is_vector, mode_of

if TYPE_CHECKING:
    from ..requests.remote import RemoteTable
    from ..writer import Writer
    from .block import Block


OPEN = (
    "closing (the writer stays open and keeps its {left} rows that are not stored: close it again, "
    "or give them up with close(0))"
)
ADDED = (
    "which has added steps and not flushed them: steps that two threads add in turns are no "
    "episodes; give each thread a writer of its own, or let that one call flush() first"
)
NOT_TAKEN = "(nothing of this call was taken: call it again)"
GIVEN_UP = "closing at the end of `with` ({left} of its rows are not known to be stored: given up)"


@dataclass(frozen=True)
class WriterState:
    """What a writer has done so far, in rows (closing rows included) and items.

    steps_posted, steps_stored    rows handed to the link, and acknowledged
    items_posted, items_created   items asked for, and made: what create_items says exists already
                                  is asked for once; items_failed: refused for good
    steps_resent                  rows that lost their place and were sent again
    messages_open                 datagrams that no answer has finished
    need                          items to be drawn before the limiter lets more in; 0: it does not
                                  hold this writer back
    unacknowledged                rows that calls took and the server has not acknowledged
    unacknowledged_max            how many of them there may be; then a call waits
    """

    steps_posted: int
    steps_stored: int
    items_posted: int
    items_created: int
    items_failed: int
    steps_resent: int
    messages_open: int
    need: int
    unacknowledged: int
    unacknowledged_max: int


def note_taken(error: BaseException, taken: bool) -> None:
    """Adds a note to the error that cut a call of `add` off: whether the step was taken."""
    if hasattr(error, "add_note"):
        outcome = "taken: go on with the next one" if taken else "not taken: add it again"
        error.add_note(f"replay-server: the step of this call was {outcome}")


def state_of(raw: Any, block: Block) -> WriterState:
    """The state of a writer: what the link counts, and the rows that wait in its block."""
    counts = {name: getattr(raw, name) for name in WriterState.__annotations__}
    counts["unacknowledged"] += block.left
    counts["unacknowledged_max"] += block.rows_max
    return WriterState(**counts)


def mode_for(streams: int | None, autoreset: Any) -> tuple[int, str, bool, Any]:
    """(streams, mode, whether it is one Env, the environment if it said the mode), from the
    arguments of `Client.writer`; ConfigError where they contradict each other."""
    name = getattr(autoreset, "value", autoreset)
    autoreset = GYMNASIUM_MODES.get(name, autoreset) if isinstance(name, str) else autoreset
    own = not (autoreset is None or isinstance(autoreset, str))
    if streams is not None:
        if hasattr(streams, "step"):
            raise ConfigError("streams is an environment: hand it over as autoreset=env")
        streams = whole("streams", streams, 1, lib.RP_STREAMS_MAX)
    if not own:
        streams = 1 if streams is None else streams
        if autoreset is None and streams != 1:
            raise ConfigError(
                f"a writer of {streams} streams needs to know how their episodes follow each "
                "other: hand the environment over (autoreset=envs), or name the mode, "
                f"one of {', '.join(MODES)}"
            )
        mode, single = autoreset or "single", autoreset is None
    else:
        mode, single = mode_of(autoreset), not is_vector(autoreset)
        count = 1 if single else int(autoreset.num_envs)
        if streams not in (None, count):
            raise ConfigError(
                f"streams is {streams} and the environment handed over as autoreset has {count}: "
                f"leave streams away, or say {count}"
            )
        streams = count
    if mode not in MODES:
        near = get_close_matches(mode, MODES, n=1)
        raise ConfigError(
            f"autoreset {mode!r}; expected one of {MODES}, or the environment itself, not its name"
            + (f"; the nearest is {near[0]!r}" if near else "")
        )
    streams = whole("streams", streams, 1, lib.RP_STREAMS_MAX)
    if mode == "single" and streams != 1:
        raise ConfigError(f"autoreset='single' is for one environment, not for {streams} streams")
    return streams, mode, single or mode == "single", autoreset if own else None


def expect(remote: RemoteTable, spec: Spec | None, streams: int, autoreset: Any) -> None:
    """Compares what a writer is asked for with its table: SpecMismatch, ConfigError (also for
    columns that no step can fill). Warns where the environment handed over has other columns:
    `add` would refuse its steps."""
    require_steps(f"a writer of table {remote.name!r}: ", remote.spec)
    if spec is not None:
        remote.expect(spec)
    remote.expect_room(streams)
    with suppress(SpecError):  # of spaces that cannot be stored as they are
        mine = spec_from(autoreset) if hasattr(autoreset, "step") else remote.spec
        for name in ("observation", "action"):
            shapes, theirs = [
                {column.name: column.shape for column in each.group(name)}
                for each in (mine, remote.spec)
            ]
            if shapes != theirs:
                warn(
                    f"table {remote.name!r} stores {theirs}, and a step of the environment handed "
                    f"over is {shapes}: serve a table of its own, step=spec_from(env); where you "
                    "convert what it returns, ignore this",
                    UserWarning,
                )
                return


def let_go_on(writers: Iterable[Writer]) -> None:
    """For a sample that waits: sends the rows of these writers, which it may be waiting for."""
    for writer in writers:
        with suppress(ClosedError):
            writer._go_on()


def versions_of(writers: Iterable[Writer]) -> list[int]:
    """The newest weights version that each of these writers heard of; another thread may close
    one meanwhile."""
    found = []
    for writer in writers:
        with suppress(ClosedError):
            found.append(writer.weights_version)
    return found


def look_after(writers: Iterable[Writer]) -> None:
    """For a call of the client: sends rows that its writers have held for long enough."""
    for writer in [each for each in writers if not each.closed]:
        with suppress(ReplayError):
            writer._look_after()


def alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """For methods that use a writer's block: only the thread that owns it calls them, one after the
    other (owning.py). A signal handler's calls of the client leave this writer alone meanwhile."""

    @wraps(method)
    def call(writer: Writer, *arguments: Any, **named: Any) -> Any:
        me = get_ident()
        if writer._owner != me:
            take_over(writer, me)
        try:
            writer._owner = -me
            return method(writer, *arguments, **named)
        finally:
            writer._owner = writer._owner and me  # None: flushed, the next thread's that adds

    return call


def creating(method: Callable[..., Any]) -> Callable[..., Any]:
    """As `alone`; where Ctrl-C cuts the call off, a note says whether the items were taken."""
    owned = alone(method)

    @wraps(method)
    def call(writer: Writer, *arguments: Any, **named: Any) -> Any:
        before = writer._creates
        try:
            return owned(writer, *arguments, **named)
        except BaseException as error:
            if not isinstance(error, Exception) and hasattr(error, "add_note"):
                taken = writer._creates is not before
                outcome = "taken: go on" if taken else "not taken: create them again"
                error.add_note(f"replay-server: the items of this call were {outcome}")
            raise

    return call


def take_over(writer: Writer, me: int) -> None:
    """Makes this thread the writer's owner. ConfigError where another thread is, or where this
    thread is within a call of the writer."""
    with writer._owning:
        expect_free(writer._owner, me, "this writer", ADDED)
        _ = writer.link.raw  # a closed writer takes nothing
        writer._owner = me


@alone
def offer(writer: Writer) -> None:
    """For a call of the client: an error is raised by the writer's own next call instead."""
    lost = writer._lost
    with suppress(ReplayError):
        writer._hand_over(0)
    writer._lost = lost


def push_state(link: Link, table: int) -> Any:
    """The core's state of the writer on table number `table`: a struct rp_push_state."""
    raw = ffi.new("struct rp_push_state *")
    _native.check(lib.rp_link_push_state(link.raw, table, raw), "asking the writer")
    return raw


def warn_of_failed(table: str, before: int, state: Any) -> int:
    """Warns of items that were refused for good, beyond the `before` that were warned of; how many
    there are in all."""
    failed = state.items_failed - before
    if failed > 0:
        warn(
            f"table {table!r}: {failed} items can never be drawn, of {state.items_posted} created: "
            "their steps were overwritten before their windows were complete, or they name the row "
            "that closes an episode; give the table more capacity, or fewer streams",
            ItemsFailed,
        )
    return state.items_failed


def end(writer: Writer, timeout: float, what: str = OPEN) -> None:
    """Flushes and closes the writer. It stays open where not all is stored in time, or Ctrl-C cuts
    the call off; with a timeout of 0 it is given up."""
    if seconds("timeout", timeout) <= 0:
        if writer._owner != get_ident():
            take_over(writer, get_ident())
        leave(writer, Deadline(0.0), "a writer was given up (close(0))")
        return
    try:
        if writer._lost is None or writer._left():
            writer._flush(timeout, what)
    except ReplayError as error:
        if not isinstance(error, Timeout) and writer._owner in (None, get_ident()):
            writer.link.close(timeout, error)
        raise
    except KeyboardInterrupt as error:
        if what == OPEN and hasattr(error, "add_note"):
            error.add_note(f"replay-server: {OPEN.format(left=writer._left())}")
        raise
    writer.link.close(timeout)


def give_back(writers: Iterable[Writer], table: RemoteTable, timeout: float) -> None:
    """Closes those of this thread that a reset of the table, or a server that came back empty, has
    ended: each holds a place of it that the next one may need."""
    for writer in writers:
        ended = writer._lost is not None or writer.table.epoch != table.epoch
        own = writer._owner in (None, get_ident()) and writer.table.name == table.name
        if ended and own and not writer.closed:
            if writer._lost is None:
                warn_of_dropped(table.name, writer._left(), "the table was emptied under a writer")
            with suppress(ReplayError):
                writer.link.close(timeout)


def end_for_good(writer: Writer) -> None:
    """Flushes and closes the writer at the end of `with`, where nobody calls again: it is closed
    whatever comes. A time-out says what was not stored; for other errors a warning does."""
    try:
        end(writer, writer.timeout, GIVEN_UP)
    except BaseException as error:
        if not writer.closed:
            if not isinstance(error, Timeout):
                warn_of_dropped(writer.table.name, writer._left(), "`with` of a writer was cut off")
            writer.link.close(writer.timeout, error)
        raise


def leave(writer: Writer, until: Deadline, why: str = "the client of a writer was closed") -> None:
    """Closes the writer within that time, for a client that closes; warns of lost rows."""
    if writer.closed or writer._owner not in (None, get_ident()):
        return
    lost = writer._lost
    try:
        with suppress(ReplayError):
            writer.flush(until.seconds())
        writer._lost = lost  # nobody has seen this flush's error
        warn_of_dropped(writer.table.name, writer._left(), why)
    finally:
        writer.link.close(until.seconds())


def warn_of_dropped(table: str, left: int, why: str) -> None:
    """Warns of rows that are lost with their writer."""
    if left:
        warn(
            f"table {table!r}: {why} with {left} of its rows not known to be stored: close the "
            "writer, or use `with`, while the server answers",
            RowsDropped,
        )


def with_axis(value: Any) -> Any:
    """A leading axis of one on every leaf."""
    if isinstance(value, Mapping):
        return {key: with_axis(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(with_axis(entry) for entry in value)
    if isinstance(value, list):  # numpy may not hold it: refused elsewhere, by the column's name
        return [value]
    if value is None:
        return None
    whole = hasattr(value, "detach") or isinstance(value, np.ma.MaskedArray)
    return value[None] if whole else np.asarray(value)[None]
