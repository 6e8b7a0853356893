"""The client: one session with a server, and every call that a learner or an actor makes.

Several threads may use a client. The core locks each post and turn; what is kept here is behind one
lock, which is never held while waiting. While nobody calls, a thread of the core keeps the session
and sends what is due (not over loopback).

Where a server restarts or a table is reset, old keys become stale. Sampling looks the table up
again and goes on. Writers raise `ServerRestarted` or `StaleEpoch`: what they had stored is gone.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from . import _native
from ._native import Fact, Link, ffi, lib
from .batch import BATCH_MAX, BETA_MAX, Batch, Keys, Landing, checked_beta, checked_count, keys_of
from .batches import Batches
from .errors import ConfigError, ServerRestarted, SessionExpired, StaleEpoch, Timeout, UnknownTable
from .observe.stats import Stats, stats_of
from .requests.draws import BATCH_DEFAULT, POLL_NS, REFUSED, expect_drawn, limits_of, stored_at
from .requests.priorities import UpdateResult, Updates, checked_priorities, float64_of
from .requests.remote import LOOK_UP_S, RemoteTable, Tables, document_of, info_of, infos_of, missing
from .requests.weights import Weights
from .serving import zmq_transport
from .spec import Spec
from .support.values import flag, one_of, seconds, whole
from .table import layout_of
from .writer import Writer
from .writing.block import shares_of
from .writing.plain_rows import PlainRows, Turn, leave_rows, packed
from .writing.writers import expect, give_back, leave, let_go_on, look_after, mode_for, versions_of


class Client:
    """One session with the server at `address`, such as "udp://127.0.0.1:7400".

    Each call ends within its time-out, with a value or a typed error. Several threads may use one
    client. A forked child may not (ForkedError): it opens its own. A pickled client is its address
    and options: a worker process that unpickles it gets a session of its own.

    timeout    seconds that a call waits where it is given no other time-out. The first call on a
               table looks the table up first, which may take as long again, or 1 s if that is more
    connect_timeout  seconds to connect; 0: 1 s; None: `timeout`
    mtu        bytes of the largest datagram; 0: as the url says (?mtu=N), or the transport
    busy_poll  waits never sleep: lower latency, for one whole core
    specs      {table: Spec}: the constructor compares each with what the server stores
    batch_max  items of the largest batch to be asked for; 0: 4096. The server has its own bound
    curve_server_key, curve_secret_key  zmq+tcp: key files, the server's public key and this
               client's secret key; None: REPLAY_CURVE_SERVER_KEY, REPLAY_CURVE_SECRET_KEY

    Raises Timeout where nobody answers, SpecMismatch where columns differ from `specs`.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 5.0,
        connect_timeout: float | None = None,
        mtu: int = 0,
        busy_poll: bool = False,
        specs: Mapping[str, Spec] | None = None,
        batch_max: int = 0,
        curve_server_key: str | None = None,
        curve_secret_key: str | None = None,
    ) -> None:
        if hasattr(address, "address"):
            raise ConfigError(f"{address!r} is no address: hand over its .address")
        self.address = str(address)
        self.timeout = seconds("timeout", timeout)
        one_of("specs", specs or {}, (Mapping,), '{"replay": spec_from(env)}')
        self._specs = dict(specs or {})
        self._options = {
            "mtu": whole("mtu", mtu, 0, 0xFFFF),
            "busy_poll": flag("busy_poll", busy_poll),
            "batch_max": whole("batch_max", batch_max, 0, BATCH_MAX) or BATCH_DEFAULT,
        }
        self._keys = {"curve_server_key": curve_server_key, "curve_secret_key": curve_secret_key}
        first = self.timeout if connect_timeout is None else connect_timeout
        self._connect_timeout = seconds("connect_timeout", first)
        self._lock = _native.Lock()
        self._tables: dict[str, RemoteTable] = {}
        self._plain: dict[str, PlainRows] = {}
        self._extending = Turn()
        self._writers: weakref.WeakSet[Writer] = weakref.WeakSet()
        # what a sample does while it waits: this client's writers go on, if there ever were any
        self.others: Callable[[], None] | None = None
        self._link = self._open_link()
        try:
            self._weights = Weights(self._link)
            self._updates = Updates(self._link)
            for name, spec in self._specs.items():
                self.table(name).expect(spec)
        except BaseException:
            self._link.close(0.0)
            raise

    def _open_link(self, **more: int) -> Link:
        options = {name: int(value) for name, value in self._options.items()} | more
        if zmq_transport.is_url(self.address):
            return zmq_transport.open_link(
                self.address, self._connect_timeout, *self._keys.values(), **options
            )
        if any(self._keys.values()):
            raise ConfigError(f"CURVE keys are for zmq+tcp:// addresses, not {self.address}")
        return Link(self.address, self._connect_timeout, **options)

    # -- tables ----------------------------------------------------------------------------------

    def table(
        self, name: str, *, spec: Spec | None = None, timeout: float | None = None
    ) -> RemoteTable:
        """The table of this name as it is now: columns, plans, size, limiter.

        Raises UnknownTable, or SpecMismatch where `spec` is given and differs.
        """
        table = self._look_up(name, timeout)
        if spec is not None:
            table.expect(spec)
        return table

    def tables(self, timeout: float | None = None) -> dict[str, RemoteTable]:
        """All tables as they are now, by name, in the server's order."""
        return Tables((name, self._look_up(name, timeout)) for name in self._names(timeout))

    def _names(self, timeout: float | None) -> list[str]:
        return [_native.name_of(raw.name) for raw in self._infos(lib.RP_TABLES_MAX, timeout)]

    def _known(self, name: str, timeout: float) -> RemoteTable:
        """The table as it was last looked up; looked up anew where the server restarted."""
        table = self._tables.get(name) if name.__hash__ else None  # [] has none, and no table
        if table is None or table.incarnation != lib.rp_link_incarnation(self._link.raw):
            table = self._look_up(name, timeout)
        return table

    def _forget(self, name: str, epoch: int) -> None:
        """`_known` asks for the table anew, where what it knows is of this epoch."""
        table = self._tables.get(name)
        if table is not None and table.epoch == epoch:
            self._tables.pop(name, None)

    def _look_up(self, name: str, timeout: float | None = None) -> RemoteTable:
        """The table, asked for anew; its document is fetched where it is not known yet."""
        timeout = self.timeout if timeout is None else timeout
        raw = self._info(name, timeout)
        incarnation = lib.rp_link_incarnation(self._link.raw)
        before = self._tables.get(name)
        layout = before.layout if before is not None and before.same(raw, incarnation) else None
        layout = layout or layout_of(document_of(self._link, raw, timeout))
        self._tables[name] = table = RemoteTable(raw, layout, incarnation)
        return table

    def _info(self, name: str, timeout: float) -> Any:
        try:
            return info_of(self._link, name, timeout)
        except UnknownTable as error:
            if not error.status:
                raise
            there = ", ".join(map(repr, self._names(timeout)))
            error.args = (f"no table {name!r} at {self.address}; there are {there}",)
            raise

    def _infos(self, most: int, timeout: float | None = None) -> list[Any]:
        """The server's first `most` tables: a list of struct rp_table_info, by number."""
        return infos_of(self._link, most, self.timeout if timeout is None else timeout)

    def _on(self, name: str, timeout: float, act: Callable[..., Any], asked: Any) -> Any:
        """act(table, seconds left, asked); once more where the table was another, looked up again.
        To look up takes nothing of `timeout`; it may last as long again, at least LOOK_UP_S."""
        begin = time.monotonic()
        try:
            table = self._tables.get(name) if name.__hash__ else None
            if table is None:
                _native.nanoseconds(timeout)  # what is no time asks for no table
                table = self._look_up(name, max(timeout, LOOK_UP_S))
                begin = time.monotonic()
            return act(table, timeout, asked)
        except (StaleEpoch, UnknownTable):
            left = max(timeout - (time.monotonic() - begin), 0.05)
            return act(self._look_up(name, max(timeout, LOOK_UP_S)), left, asked)

    def size(self, table: str) -> int:
        """How many items of the table can be drawn now."""
        return self._info(table, self.timeout).count

    def can_sample(self, table: str, count: int) -> bool:
        """Whether `count` items are there to be drawn, and nothing but draws that wait longer holds
        them back. OverBudget where they never are: above batch_max, or the limiter's bounds."""
        count, remote = checked_count(count), self._look_up(table)
        expect_drawn(self.limits, remote, count)
        return not missing(count, remote.raw, remote.fifo)

    def reset(self, table: str, timeout: float | None = None) -> None:
        """Empties the table. Its keys become stale, and its writers end: open new ones. Rows that
        an old writer adds from then on are lost. Once they are handed over, some dozens of rows
        later, that writer raises StaleEpoch, which says how many."""
        timeout = self.timeout if timeout is None else timeout

        def act(remote: RemoteTable, left: float, _: None) -> None:
            epoch = ffi.new("uint64_t *")
            ask, what = (remote.number, remote.epoch, epoch), f"resetting table {table!r}"
            self._link.request(lib.rp_link_reset, *ask, what=what, timeout=left)

        self._look_up(table, timeout)  # of an older epoch the server empties nothing
        self._on(table, timeout, act, None)
        self._look_up(table, timeout)

    # -- writing ---------------------------------------------------------------------------------

    def writer(
        self,
        table: str,
        streams: int | None = None,
        *,
        autoreset: Any = None,
        unacknowledged_max: int | None = None,
        finite_observations: bool = True,
        spec: Spec | None = None,
        timeout: float | None = None,
    ) -> Writer:
        """A writer of `streams` environments, with a session of its own.

        streams    episodes open at once; None: as many as `autoreset` has environments, else one
        autoreset  how one episode follows another: the environment itself (Env or VectorEnv), or
                   the name of its mode: "next-step", "same-step", "disabled", "single". None means
                   "single", for one stream; several streams need it, since a wrong mode joins
                   episodes silently
        unacknowledged_max  rows that may be taken and not yet acknowledged; then calls wait. None:
                   twice the window that the server grants, and the rows that are being gathered.
                   On a table of SamplesPerInsert it is (error_max - error_min) / ratio, at most
                   capacity / 16 / writers and 8192, and at least eight rows for each stream
        finite_observations  True: NaN and infinities are refused in observations too, and not only
                   in rewards and actions
        spec       a Spec that the table's columns have to be equal to

        Raises ConfigError where these contradict each other, or the table is too small for whole
        items of so many streams; SpecMismatch where the columns differ; NoRoom where none is free.
        """
        timeout = self.timeout if timeout is None else timeout
        streams, mode, single, own = mode_for(streams, autoreset)
        remote = self._look_up(table, timeout)
        expect(remote, spec, streams, autoreset)
        if unacknowledged_max is None:
            unacknowledged_max = remote.unacknowledged_max(streams)
        rows_max, share = shares_of(remote.spec, streams, unacknowledged_max)
        asked: dict[str, Any] = {"single": single, "own": own}
        asked["finite_observations"] = flag("finite_observations", finite_observations)
        give_back(self._writers, remote, timeout)
        link = self._open_link(unacknowledged_max=share)
        try:
            writer = Writer(link, remote, streams, mode, timeout, rows_max=rows_max, **asked)
        except BaseException:
            link.close(0.0)
            raise
        with self._lock:  # a set that other threads read is replaced, not changed
            self._writers = weakref.WeakSet((*self._writers, writer))
            self.others = partial(let_go_on, self._writers)
            self._link.before = partial(look_after, self._writers)
        return writer

    def extend(
        self,
        table: str,
        columns: Mapping[str, Any],
        priorities: Any = None,
        *,
        finite_observations: bool = True,
        timeout: float | None = None,
    ) -> Keys:
        """Stores plain rows, {column: [N, *shape]}, each an item; returns their keys, uint64 [N].

        For tables whose plans take the row itself only. Returns when all rows are stored.
        priorities: float64 [N]; None: the largest priority so far.

        Raises SpecError where columns do not fit, or "reward", "action" or (unless
        finite_observations=False) "observation" or "next_observation" is not finite. LimiterBlocked
        and Timeout: not all rows were acknowledged in time. The first `error.taken` rows are
        stored, or will be without another call: go on behind them. SessionExpired: the same, but
        rows behind them may be stored too. Rows of earlier calls that waited as the session ended
        are sent again, and may be stored twice. Where the table is reset during the call, all rows
        of the call are stored anew; rows of earlier calls that still waited are lost.
        """
        timeout = self.timeout if timeout is None else timeout
        look_after(self._writers)
        try:
            return self._extend(table, columns, priorities, finite_observations, timeout)
        except StaleEpoch:
            return self._extend(table, columns, priorities, finite_observations, timeout)

    def _extend(
        self, table: str, columns: Mapping[str, Any], priorities: Any, finite: bool, timeout: float
    ) -> Keys:
        remote = (self._known if str(table) in self._plain else self._look_up)(table, timeout)
        records = packed(remote, columns, flag("finite_observations", finite))
        checked = None if priorities is None else checked_priorities(priorities, len(records))
        with self._lock:
            rows, place = self._plain.get(table), (remote.epoch, remote.number)
            if rows is None or (rows.table.epoch, rows.table.number) != place:
                rows = self._plain[table] = PlainRows(self._link, remote, self._extending)
        try:
            return rows.extend(records, checked, timeout)
        except (ServerRestarted, StaleEpoch) as error:
            with self._lock:  # the next call looks the table up and asks for a place anew
                if not isinstance(error, SessionExpired):
                    self._plain.pop(table, None)
                self._tables.pop(table, None)
            raise

    # -- sampling --------------------------------------------------------------------------------

    def landing(self, table: str, batch: int, plan: int | str = 0, *, pin: bool = False) -> Landing:
        """Memory for batches of `batch` items of a plan, which `sample` takes as `out`, again and
        again. pin: page-locked memory, which needs torch and a GPU."""
        remote = self._look_up(table)
        draw = remote.draw(checked_count(batch), plan)
        expect_drawn(self.limits, remote, batch)
        return Landing(draw.shape, flag("pin", pin))

    def sample(
        self,
        table: str,
        batch: int,
        *,
        beta: float = 0.4,
        plan: int | str = 0,
        stratified: bool = False,
        uniform: float = 0.0,
        timeout: float | None = None,
        out: Landing | None = None,
    ) -> Batch:
        """Draws `batch` items, each with probability (1-u) mass/total + u/N; u is `uniform`.

        beta        exponent of the importance weights, 0 to 8: 0 corrects nothing, 1 all
        plan        number or name of one of the table's plans
        stratified  one draw out of each of `batch` equal shares of the mass; needs uniform = 0
        timeout     seconds; a table that was not used before is looked up first, in as much time
                    again, at least 1 s
        out         a `landing` of this table, batch and plan. The batch lies in that memory, and is
                    valid until the memory is used again

        Raises after `timeout` LimiterBlocked (`need`: how many items are missing), Timeout, or Full
        (this client's other batches take all `records` of the server); NothingDrawable; ShortBatch
        (`batch`: the items that arrived). A draw that was given up may have been made, and counts;
        of a queue none is, where the server answers within a second more. So poll with
        batches(...).get(0), or with timeout=0 here.
        """
        timeout = self.timeout if timeout is None else timeout
        if type(batch) is not int or not 0 < batch <= BATCH_MAX:
            batch = checked_count(batch)
        if type(beta) is not float or not 0.0 <= beta <= BETA_MAX:
            beta = checked_beta(beta)
        kind = (batch, plan, stratified, uniform, type(plan))
        return self._on(table, timeout, self._sample, (kind, beta, out))

    def _sample(
        self, remote: RemoteTable, left: float, asked: tuple[tuple, float, Landing | None]
    ) -> Batch:
        kind, beta, out = asked
        try:
            draw = remote.draws[kind]
        except (KeyError, TypeError):  # not made yet, or no argument for a draw
            draw = remote.draw(*kind[:-1])
        landing = Landing(draw.shape) if out is None else draw.checked(out)
        arguments = (draw.raw, ffi.NULL, beta, landing.raw)
        if remote.samples_per_insert > 0.0 and _native.nanoseconds(left) < POLL_NS:
            left = 0.0  # the core's: an answer, and no limiter, is waited for
        status = self._link.whole(lib.rp_link_draw, arguments, draw.what, left, self.others)
        if status in REFUSED:
            expect_drawn(self.limits, remote, landing.count)  # says what would do
        batch = landing.batch(draw.table, draw.epoch, out is None)
        return draw.landed(self._link, status, batch, landing.raw.blocked.need) if status else batch

    def get(
        self, table: str, keys: Any, *, plan: int | str = 0, timeout: float | None = None
    ) -> Batch:
        """The items at `keys`, as a Batch in that order; the limiter does not count them.

        `valid` is False where an item is gone. An item comes with the rows that `plan` takes. A
        stored row that is no item yet, or no item any more, comes alone, with `ahead` 0.
        """
        timeout = self.timeout if timeout is None else timeout
        return self._on(table, timeout, self._get, (keys_of(keys, None, table), plan))

    def _get(self, remote: RemoteTable, left: float, asked: tuple[Keys, int | str]) -> Batch:
        wanted, plan = asked
        remote = self._known(remote.name, left)  # keys of another epoch are gone, and no error
        return stored_at(self._link, remote, wanted, plan, left)

    def rows(
        self, table: str, keys: Any, *, timeout: float | None = None
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The stored rows at `keys` alone: ({column: [N, *shape]}, valid bool [N]).

        A column that the table's first plan does not take at the anchor itself is missing.
        """
        timeout = self.timeout if timeout is None else timeout
        batch = self.get(table, keys, plan=0, timeout=timeout)
        offsets = batch.layout.resolved.offsets  # of the server that answered: it may be another
        rows = {
            name: array[:, offsets[name].index(0)]
            for name, array in batch.data.items()
            if 0 in offsets[name]
        }
        return rows, batch.valid

    def batches(
        self,
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
    ) -> Batches:
        """An iterator of batches that are fetched ahead while Python computes.

        beta       exponent of the importance weights: a number, or a function without arguments
                   that is called for each batch
        plan, stratified, uniform  as in `sample`
        prefetch   requests under way, below Server(records=); so many may be of before a `reset`.
                   On a table of Fifo it is one, so that batches come in order
        keep       returned batches that the caller still uses; beyond that, memory is made anew
        copy       hand out copies of what has landed
        device     None: numpy arrays; else torch tensors there ("cpu": views of the landing)
        pin        land in page-locked memory, which is copied to a GPU without waiting
        timeout    seconds that each next() waits at most; None: the client's
        pump       a thread of the core takes what arrives; False: only calls do

        Raises ConfigError where these contradict each other.
        """
        asked: dict[str, Any] = {"beta": beta, "plan": plan, "stratified": stratified}
        asked |= {"uniform": uniform, "prefetch": prefetch, "keep": keep, "copy": copy}
        asked |= {"device": device, "pin": pin, "timeout": timeout, "pump": pump}
        return Batches(self, self._link, table, batch, **asked)

    # -- priorities ------------------------------------------------------------------------------

    def update_priorities(
        self,
        table: str,
        keys: Any,
        priorities: Any,
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> UpdateResult:
        """Sets priorities, float64 [N], of keys (or of a whole Batch); of duplicates the last wins.

        Keys whose item is gone count as stale, which is normal. A table that draws uniformly only
        asks whether a priority is above 0. wait=False queues the update and returns zeros; `flush`
        then returns the sum of the results, or raises the first error. Where the queue is full the
        call waits for room, at most `timeout`, then raises Full.
        """
        timeout = self.timeout if timeout is None else timeout
        wanted = keys_of(keys, None, table)
        given = float64_of(priorities, len(wanted))
        if wait is True or flag("wait", wait):
            try:
                return self._on(table, timeout, self._updates.update, (wanted, given))
            except SessionExpired:
                raise
            except ServerRestarted:  # the keys went with the server that gave them
                return UpdateResult(stale=len(np.unique(wanted)))
        look_after(self._writers)
        self._updates.queue(self._known(table, self.timeout), wanted, given, timeout)
        return UpdateResult()

    def flush(self, timeout: float | None = None) -> UpdateResult:
        """Waits for queued updates; the sum of their results since the last flush."""
        look_after(self._writers)
        return self._updates.flush(self.timeout if timeout is None else timeout)

    # -- weights ---------------------------------------------------------------------------------

    @property
    def weights_version(self) -> int:
        """The newest weights version that an answer to this client or its writers named; or 0."""
        look_after(self._writers)
        return max([lib.rp_link_weights_version(self._link.raw), *versions_of(self._writers)])

    def publish_weights(self, weights: Any, timeout: float | None = None) -> int:
        """Makes `weights` the newest version for everyone; returns the number of that version.

        weights: bytes, or any buffer; an array travels as its bytes in C order. Numbers rise; an
        empty server begins at 1. SessionExpired: nothing tells whether it was made; publish anew.
        """
        return self._weights.publish(weights, self.timeout if timeout is None else timeout)

    def pull_weights(
        self, newer_than: int = 0, timeout: float | None = None
    ) -> tuple[int, bytes] | None:
        """(version, bytes) of the newest weights; None where the newest are version `newer_than`.

        A server that came back empty numbers from 1: what it has is newer than all before.
        """
        timeout = self.timeout if timeout is None else timeout
        newer_than = whole("newer_than", newer_than, 0)
        if self.weights_version <= newer_than:
            self.ping(timeout)  # from here on this session knows what the server has
            if self._weights.none_newer(newer_than):
                return None
        return self._weights.pull(newer_than, timeout)

    # -- the server ------------------------------------------------------------------------------

    def stats(self, timeout: float | None = None) -> Stats:
        """The server's counters and sessions, and what its transport counts."""
        timeout = self.timeout if timeout is None else timeout
        return stats_of(self._link, timeout)

    def counters(self) -> dict[str, int]:
        """This session's own counters by name: retransmissions, time-outs, redraws, drops."""
        return self._link.counters()

    def facts(self) -> tuple[Fact, ...]:
        """What this client's own transport counts; each drop under its reason."""
        return self._link.facts()

    def ping(self, timeout: float | None = None) -> None:
        """One round trip; keeps the session alive."""
        timeout = self.timeout if timeout is None else timeout
        self._link.request(lib.rp_link_ping, what=f"pinging {self.address}", timeout=timeout)

    @property
    def incarnation(self) -> int:
        """The number of the server's life; another number means that it came back empty."""
        return lib.rp_link_incarnation(self._link.raw)

    @property
    def limits(self) -> dict[str, int]:
        """What the server granted this session: mtu, batch_max, records, weights_max and so on."""
        return limits_of(self._link, self._options["batch_max"])

    # -- life ------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether this client is closed."""
        return self._link.closed

    def close(self, timeout: float | None = None) -> None:
        """Closes its writers, then the session, within `timeout` in all. Twice is fine.

        Warns of rows that are not stored by then (RowsDropped), and of queued priorities that are
        not set. A writer that another thread adds to stays open: it has a session of its own. In a
        forked child this does nothing.
        """
        self._close(self.timeout if timeout is None else timeout)

    def _close(self, timeout: float, after: BaseException | None = None) -> None:
        until = _native.Deadline(timeout)
        if not self._link.inherited:
            for writer in self._writers:
                leave(writer, until)
            self._updates.leave(until)
            leave_rows(self._plain, until)
        self._link.close(until.seconds(), after)

    def __enter__(self) -> Client:
        _ = self._link.raw
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        timeout = self.timeout
        try:
            if kind is None and not self.closed:
                self.flush()
        except Timeout:
            timeout = 0.0  # so long nobody answered: nobody is waited for once more
            raise
        finally:
            self._close(timeout, error)

    def __reduce__(self) -> tuple:
        more = {"connect_timeout": self._connect_timeout, "specs": self._specs}
        options = {**self._options, **self._keys, **more}
        return _reopened, (self.address, self.timeout, options)

    def __repr__(self) -> str:
        return f"Client({self.address!r}{', closed' if self.closed else ''})"


def _reopened(address: str, timeout: float, options: Mapping[str, Any]) -> Client:
    return Client(address, timeout=timeout, **options)
