"""Every error as a type; its sentence says what happened, why, and what to do.

All but `SpecError`, a `ValueError`, derive from `ReplayError`. Those with an obvious built-in
meaning derive from that too (`Timeout` is a `TimeoutError`). Values that callers act on (how many
items are missing, what was stored before a restart) are attributes, not text to be parsed.
`error_for` is the one place where a status of the engine becomes an error.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from .spec import SpecError

_ANEW = "open a new writer: its episodes start anew (a row is a step of one environment, or what "
_ANEW += "closes an episode)"


class ReplayError(Exception):
    """Base of every error of this package but SpecError.

    status    the name of the engine's reason, or ""
    happened  the sentence without its advice; "": the sentence has none
    taken     rows of an `extend`, counted from its first, that need not be given again
    """

    status = ""
    happened = ""
    taken = 0

    def __reduce__(self) -> tuple:
        return _rebuilt, (type(self), self.args, self.__dict__)


class Timeout(ReplayError, TimeoutError):
    """No answer came within the time allowed.

    taken     rows of an `extend` that was cut off, counted from its first, that are stored or
              will be
    """


class LimiterBlocked(Timeout):
    """The table's minimum size or its limiter held the call back until its time was over.

    need      how many items are missing
    by        what would release the call: "inserts" or "samples"
    held      the sentence without its advice; it has the limiter's numbers, where they are known
    """

    def __init__(
        self, what: str, need: int, by: str, limiter: str = "", queue: bool = False
    ) -> None:
        self.need, self.by = need, by
        verb = "created by writers"
        remedy = "adds, add first, and let min_size be below the steps after which it draws (its "
        remedy += "learning_starts)"
        if by == "samples":
            verb = "sampled by learners"
            remedy = "draws, draw first, and as many for each item as samples_per_insert says, or "
            remedy += "let min_size be the size at which it starts to"
        if queue:
            remedy = "adds, add first"
            if by == "samples":
                remedy = "draws, draw first, or serve more room"
        if (need, by) == (1, "inserts"):
            held = "nothing to draw until 1 more item is created by writers: the table is empty, "
            held += (
                "held back by its limiter, or owes what it has to draws that were asked for before"
            )
        else:
            held = f"held back by the table's limiter until {need} more item{'s' * (need != 1)} "
            held += f"{'are' if need != 1 else 'is'} {verb}"
        held += f" ({limiter})" if limiter else ""
        self.held = self.happened = f"{what}: {held}"
        super().__init__(
            f"{self.held}; if it is this thread that {remedy}; otherwise wait longer, or see in "
            "`stats --watch` who stopped"
        )


class NothingDrawable(ReplayError):
    """No item of the table has a positive priority."""


class ShortBatch(ReplayError):
    """Items of the batch were overwritten before they arrived, and drawing again did not help: of
    a queue nothing is drawn in their place.

    batch     the items that arrived, where `Client.sample` or a queue's `batches` raised this
    missing   how many items did not arrive
    """

    def __init__(self, what: str, missing: int, once: bool = False) -> None:
        """once: of a queue."""
        self.missing = missing
        again = "" if once else ", twice in a row"
        super().__init__(
            f"{what}: {missing} items were overwritten before they arrived{again}; "
            "the table is too small for how fast it is written, or this reader is too slow"
        )


class SpecMismatch(ReplayError, SpecError):
    """The given columns and those that the table stores differ; names the first that does."""


class ServerRestarted(ReplayError):
    """The server came back empty, or it stopped and what it held is gone.

    The counts are of a writer's rows: a step of one environment is a row, and each end of an
    episode is one more.

    stored_through  rows that the old server acknowledged; they are gone with it
    in_doubt        rows that were sent and not answered
    lost            rows that were never sent
    taken           rows of an `extend`, counted from its first, that are known to be stored; 0
                    where the server came back empty
    """

    def __init__(self, what: str, stored_through: int, in_doubt: int, lost: int) -> None:
        self.stored_through, self.in_doubt, self.lost = stored_through, in_doubt, lost
        self.happened = (
            f"{what}: the server stopped or restarted, empty: {stored_through} rows that it had "
            f"acknowledged are gone, {in_doubt} were sent and not answered, {lost} were never sent"
        )
        super().__init__(f"{self.happened}; {_ANEW}")


_GIVEN_UP = (
    "the server gave this session up after too long a silence (longer than its idle_ms: "
    "Server(idle_ms=...), `serve --idle-ms`), or came back with a limiter that lets less in at once"
)


class SessionExpired(ServerRestarted):
    """The server ended the session; its acknowledged rows are still stored.

    It does so after too long a silence (idle_ms), or where it came back with a limiter that lets
    less in at once. `stored_through`, `in_doubt` and `lost` count rows as in `ServerRestarted`.
    """

    def __init__(self, what: str, stored_through: int, in_doubt: int, lost: int) -> None:
        super().__init__(what, stored_through, in_doubt, lost)
        self._say(
            f"{what}: {_GIVEN_UP}: {stored_through} rows are stored, {in_doubt} were sent and not "
            f"answered, {lost} were never sent",
            _ANEW,
        )

    @classmethod
    def publishing(cls, what: str) -> SessionExpired:
        """Where it ended in the midst of a publication."""
        error = cls(what, 0, 0, 0)
        sentence = f"{what}: {_GIVEN_UP}: they were published, or were not"
        error._say(sentence, "publish what is newest now")
        error.status = "SESSION_EXPIRED"
        return error

    def _say(self, happened: str, remedy: str) -> None:
        self.happened, self.args = happened, (f"{happened}; {remedy}",)


class NotAuthorised(ReplayError, PermissionError):
    """The server does not let this client do that."""


class Insecure(NotAuthorised):
    """Other machines could reach the address, and neither a key nor insecure=True was given."""


class OverBudget(ReplayError):
    """A request exceeds a limit that was fixed when the server or the client was opened."""


class Full(OverBudget):
    """A bounded queue is full: wait for answers, or ask for less at once."""


class UnknownTable(ReplayError, KeyError):
    """The server has no table of this name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownPlan(UnknownTable):
    """The table has no plan of this name."""


class ClosedError(ReplayError):
    """The client, writer or server was closed before."""


class ForkedError(ReplayError):
    """The client or server was opened in another process: this one is a forked child of it."""


class StaleEpoch(ReplayError):
    """The table was emptied or made anew; keys and writers from before are no longer valid."""


class TableEmptied(StaleEpoch):
    """The table was emptied (reset) while a writer was open on it; open a new writer.

    stored_through  rows of the writer that the table had stored; they are gone
    in_doubt        rows that were sent and not answered
    lost            rows that were never sent
    """

    def __init__(self, what: str, stored_through: int, in_doubt: int, lost: int) -> None:
        self.stored_through, self.in_doubt, self.lost = stored_through, in_doubt, lost
        self.happened = (
            f"{what}: the table was emptied (reset) since: {stored_through} rows that it had "
            f"stored are gone, {in_doubt} were sent and not answered, {lost} were never sent"
        )
        super().__init__(f"{self.happened}; {_ANEW}")


class NoRoom(ReplayError):
    """All places of a kind are taken: the server has a fixed number of sessions and writers.

    A running program keeps its places, even where it sends nothing for long. Those of a program
    that was killed, or cannot be reached, are free after the server's idle_ms.
    """


class WeightsGone(ReplayError):
    """The server does not keep this version of the weights any more, or has none yet."""


class TransportError(ReplayError, OSError):
    """The address is wrong, or the socket or the operating system refused."""


class ConfigError(ReplayError, ValueError):
    """An argument or option is not valid; the sentence says what is expected."""


class EngineError(ReplayError):
    """The server refused a message that this library should not have sent; please report it."""


class ItemsFailed(RuntimeWarning):
    """Items that a writer created can never be drawn; its `flush` and `close` warn of them."""


class RowsDropped(RuntimeWarning):
    """Rows that a writer took were not stored when the writer or its client was given up."""


def warn(what: str, kind: type[Warning]) -> None:
    """Warns, as from the line outside of this package whose call led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        frame, level = frame.f_back, level + 1
    warnings.warn(what, kind, stacklevel=level)


class Once:
    """Warns with the first sentence that it is called with, and never again."""

    def __init__(self) -> None:
        self.warned = False

    def __call__(self, what: str) -> None:
        if not self.warned:
            self.warned = True
            warn(what, UserWarning)


def _rebuilt(kind: type, arguments: tuple, attributes: dict) -> ReplayError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


_WAIT = (
    "wait: the place of a killed program is free after the server's idle_ms (30 s by default); a "
    "running program keeps its place"
)

# What each status becomes, and what to do about it. A status that is missing here cannot be
# imported: _native.py compares the two lists, and a test walks every one.
_KINDS: dict[str, tuple[type[ReplayError], str]] = {
    "BAD_MAGIC": (EngineError, "is the other end a replay server?"),
    "BAD_VERSION": (EngineError, "install the same release at both ends"),
    "BAD_SIZE": (EngineError, ""),
    "BAD_CHECKSUM": (EngineError, ""),
    "BAD_OP": (EngineError, "install the same release at both ends"),
    "BAD_RESERVED": (EngineError, "install the same release at both ends"),
    "BAD_COOKIE": (EngineError, "connect again"),
    "UNKNOWN_SESSION": (EngineError, "connect again"),
    "NO_SESSION_FREE": (NoRoom, f"close a client, serve with more sessions, or {_WAIT}"),
    "ADDRESS_CHANGED": (EngineError, "connect again"),
    "UNKNOWN_TABLE": (UnknownTable, "`replay-server stats ADDRESS --watch` shows them"),
    "UNKNOWN_PLAN": (UnknownPlan, "`client.table(name).plans` lists them"),
    "STALE_EPOCH": (StaleEpoch, "sample again, or open a new writer"),
    "NO_WRITER_FREE": (NoRoom, f"close a writer, give the table more `writers`, or {_WAIT}"),
    "NOT_A_WRITER": (StaleEpoch, "open a new writer"),
    "BAD_STREAM": (OverBudget, "open the writer with more streams"),
    "BAD_SEQUENCE": (EngineError, ""),
    "BAD_STEP": (EngineError, "open another client: this one's writer was refused for good"),
    "BAD_PIECE": (EngineError, ""),
    "BAD_PRIORITY": (ConfigError, "priorities are finite numbers of at least 0"),
    "BATCH_TOO_LARGE": (
        OverBudget,
        "ask for fewer, or give server and client a larger `batch_max`",
    ),
    "NOTHING_DRAWABLE": (NothingDrawable, "create items, or give some a positive priority"),
    "BLOCKED": (LimiterBlocked, ""),
    "NEVER_FITS": (OverBudget, "ask for fewer at once, or give the limiter a wider error buffer"),
    "FORGOTTEN": (EngineError, "do it again"),
    "EARLY": (EngineError, ""),
    "RETRY": (EngineError, ""),
    "GONE": (WeightsGone, "pull the newest"),
    "TOO_LARGE": (OverBudget, "serve with a larger `weights_max`"),
    "BUSY": (NoRoom, "publish again in two seconds"),
    "BAD_HASH": (EngineError, "publish again"),
    "NO_WEIGHTS": (WeightsGone, "publish some first"),
    "BAD_ARGUMENT": (ConfigError, ""),
    "NOT_YET": (EngineError, ""),
    "EXISTS": (EngineError, ""),
    "OVERWRITTEN": (EngineError, ""),
    "CLOSING_ROW": (ConfigError, "anchor items at steps that have an action"),
    "UNKNOWN_STEP": (ConfigError, "create items at steps this writer has added"),
    "TIMEOUT": (Timeout, "is the server running at this address?"),
    "CLOSED": (ClosedError, "open another one"),
    "FULL": (Full, "do less at once, or wait for answers in between"),
    "SERVER_RESTARTED": (ServerRestarted, ""),
    "SESSION_EXPIRED": (SessionExpired, ""),
    "NO_MEMORY": (OverBudget, "give the tables a smaller capacity"),
    "SYSTEM": (TransportError, ""),
    "BAD_REGION": (EngineError, ""),  # the core's sentence ends in what to do
    "PENDING": (EngineError, ""),
    "INSECURE": (Insecure, ""),
    "NO_TRANSPORT": (TransportError, ""),
    "FORKED": (ForkedError, "open a new client in this process: Client(client.address)"),
    "SHORT_BATCH": (ShortBatch, ""),
    "LOST_PLACE": (EngineError, ""),
    "BAD_FEATURE": (EngineError, "install the same release at both ends"),
    "TABLE_FULL": (NoRoom, ""),
    "NOT_AUTHORISED": (NotAuthorised, ""),
    "ADDRESS_FULL": (
        NoRoom,
        f"close a client, serve with more `sessions_per_address`, or {_WAIT}",
    ),
    "DISK_FULL": (OverBudget, "free room where its --region folder lies, then publish again"),
    "DEVICE_LOST": (TransportError, "bring it back, then open another client"),
    "WRONG_QUEUE": (TransportError, "serve with one queue, or let the client choose its port"),
}

STATUS_NAMES = frozenset(_KINDS)


def error_for(
    name: str,
    sentence: str,
    what: str,
    *,
    blocked: tuple[Any, ...] = (0, "inserts"),
    loss: tuple[int, int, int] = (0, 0, 0),
    missing: int = 0,
) -> ReplayError:
    """The error of a status: its `name` and `sentence`, and `what` was being done.

    blocked, loss and missing fill the attributes of the errors that have them.
    """
    kind, remedy = _KINDS[name]
    if kind is LimiterBlocked:
        error: ReplayError = LimiterBlocked(what, *blocked)
    elif issubclass(kind, ServerRestarted):
        error = kind(what, *loss)
    elif kind is ShortBatch:
        error = ShortBatch(what, missing)
    else:
        error = kind(f"{what}: {sentence}" + (f"; {remedy}" if remedy else ""))
        error.happened = f"{what}: {sentence}"
    error.status = name
    return error
