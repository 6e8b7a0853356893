"""A server from Python: tables become one region of memory, a port, and a thread of the core.

`Server([table], url)` serves when the constructor returns; `close` or the end of `with` stops it
cleanly. `loopback://NAME` servers have no thread: a client that waits for one runs its turn, in
the same process. With `virtual_clock=True` their time is counted in turns, so that a run can be
repeated bit by bit, where each writer is flushed before a draw: else its rows leave by the clock.

Without a key only addresses of this machine are served. With `insecure=True` others are too: then
anybody who reaches the port may read and write the tables.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from . import _native
from ._native import Service, ffi, lib
from .errors import ConfigError
from .observe.measures import Measures, measures_of
from .observe.stats import Stats
from .serving import zmq_transport
from .spec import nearest
from .support.values import flag, one_of, whole
from .table import Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

TABLES_MAX = 16
_names = itertools.count(1)


COUNTS = ("mtu", "batch_max", "records", "idle_ms", "lapse_ms", "receive_budget")


@dataclass(frozen=True)
class ServerOptions:
    """The options of a server; its tables are apart. An mtu or receive_budget of 0 is the url's.

    url           loopback://NAME, udp://HOST:PORT[?mtu=N], zmq+tcp://HOST:PORT[?mtu=N] or
                  dpdk://IP:PORT?vdev=...[,mtu=N]; port 0: any free port. Over udp:// name the
                  address that clients use: a server at 0.0.0.0 answers from the address of the
                  route, and a client at another address of that host gets no answer
    seed          seed of the draws; None: one from the operating system, `Server.seed` has it
    insecure      serve other machines too, without a key
    mtu           bytes of the largest datagram
    curve_secret_key  zmq+tcp only: file with the server's secret key
    curve_clients     zmq+tcp only: folder with the public keys of the clients that are let in
    busy_poll     the server's thread never sleeps
    core          core that its thread is pinned to; None: not pinned
    virtual_clock  loopback only: time is counted in turns, and keys begin at the capacity
    region        folder for the memory; one that exists is taken over. None: memory that ends with
                  the server
    verify        take a region over only if the checksum of each stored step is right. That reads
                  all of it: some seconds where it is large and in memory, longer from a disk
    sessions      clients at once; each writer counts as one
    sessions_per_address  sessions at once from one other machine, or over one memif link; 0: three
                  quarters of `sessions`. This machine may have all over any other transport
    batch_max     items in one batch
    records       batches of one client under way at once, and so the largest `prefetch`
    idle_ms       milliseconds of silence after which a session is given up
    lapse_ms      milliseconds that granted credit lasts
    weights_max   bytes of the largest weights; 0: no weights are kept
    receive_budget  datagrams that may be in flight towards the server; 0: half of what the port
                  holds, since a repeated datagram may lie there beside the first one. One for
                  each session is the least, also where the port holds fewer

    Raises ConfigError where an option is not valid, or two exclude each other.
    """

    url: str = "loopback://"
    seed: int | None = None
    insecure: bool = False
    mtu: int = 0
    curve_secret_key: str = ""
    curve_clients: str = ""
    busy_poll: bool = False
    core: int | None = None
    virtual_clock: bool = False
    region: str | None = None
    verify: bool = False
    sessions: int = 64
    sessions_per_address: int = 0
    batch_max: int = 2048
    records: int = 8
    idle_ms: int = 30_000
    lapse_ms: int = 100
    weights_max: int = 64 << 20
    receive_budget: int = 0

    def __post_init__(self) -> None:
        whole_of = {name: (0, 2**31 - 1) for name in COUNTS} | {
            "sessions": (1, lib.RP_SESSIONS_MAX),
            "weights_max": (0, lib.RP_BLOB_BYTES_MAX),
        }
        for name, (least, most) in whole_of.items():
            whole(name, getattr(self, name), least, most)
        what = "sessions_per_address (0 for three quarters of `sessions`)"
        whole(what, self.sessions_per_address, 0, self.sessions)
        for name in ("insecure", "busy_poll", "virtual_clock", "verify"):
            flag(name, getattr(self, name))
        one_of("url", self.url, (str,), '"udp://0.0.0.0:7400"')
        if self.seed is not None:
            object.__setattr__(self, "seed", whole("seed", self.seed, 0, 2**64 - 1))
        if self.core is not None:
            whole("core", self.core, 0, 2**31 - 1)
        if self.region == "":
            raise ConfigError(
                "region is ''; expected a folder, or none for memory that ends with the server"
            )
        if self.virtual_clock and not self.url.startswith("loopback:"):
            raise ConfigError(f"virtual_clock=True is for loopback:// servers, not {self.url}")
        if self.curve_secret_key or self.curve_clients:
            if not zmq_transport.is_url(self.url):
                raise ConfigError(f"CURVE keys are for zmq+tcp:// addresses, not {self.url}")
            zmq_transport.server_keys(self.curve_secret_key, self.curve_clients)


class Named(TypedDict, total=False):
    """The fields of ServerOptions but url: for editors and type checkers, of Server(...)."""

    seed: int | None
    insecure: bool
    mtu: int
    curve_secret_key: str
    curve_clients: str
    busy_poll: bool
    core: int | None
    virtual_clock: bool
    region: str | None
    verify: bool
    sessions: int
    sessions_per_address: int
    batch_max: int
    records: int
    idle_ms: int
    lapse_ms: int
    weights_max: int
    receive_budget: int


class Server:
    """A server of `tables` in this process: memory, a port, and a thread of the core.

    tables    one Table, or up to 16 of them
    url       where it serves, as in `ServerOptions`; its `address` has the port that was taken
    options   a `ServerOptions`; or give its fields by name, not both

    It serves when the constructor returns, and stops at `close` or the end of `with`. A server at
    loopback:// has no thread: a client that waits for it runs its turns. Without a key only
    addresses of this machine are served (Insecure), unless insecure=True: then anybody who reaches
    the port may read and write the tables. Raises ConfigError where tables or options are not
    valid, TransportError where the address is not to be had.
    """

    def __init__(
        self,
        tables: Iterable[Table] | Table,
        url: str | None = None,
        *,
        options: ServerOptions | None = None,
        **named: Unpack[Named],
    ) -> None:
        names = [field.name for field in fields(ServerOptions)]
        for name in named:
            if name not in names:
                raise ConfigError(
                    f"no option {name!r}{nearest(name, names)}; there are {', '.join(names)}"
                )
        if options is None:
            options = ServerOptions(**({"url": url} if url is not None else {}), **named)
        elif named or url is not None:
            raise ConfigError("give either `options` or single options by name, not both")
        self.tables = (tables,) if isinstance(tables, Table) else listed(tables)
        self.options = options
        self.seed = secrets.randbits(63) if options.seed is None else options.seed
        config = Config(self.tables, options, self.seed)
        url = with_name(options.url)
        self._service = self._opened(config, url)
        try:
            self._address = self.address
            self.seed = lib.rp_service_seed(self._service.raw)  # a region keeps its own
            if not url.startswith("loopback:"):
                self._start(options.core)
        except BaseException:
            self._service.close()
            raise

    def _start(self, core: int | None) -> None:
        """Starts the server's thread; ConfigError where there is no such core to pin it to."""
        started = lib.rp_service_start(self._service.raw)
        if core is not None and started == -_native.NUMBERS["BAD_ARGUMENT"]:
            if not _native.PINS:
                raise ConfigError(f"core is {core}, and no thread is pinned here: leave it out")
            cores = _native.cores()
            whole_range = len(cores) > 2 and cores == list(range(cores[0], cores[-1] + 1))
            there = f"{cores[0]} to {cores[-1]}" if whole_range else ", ".join(map(str, cores))
            raise ConfigError(f"core is {core}; the cores this process may use are {there}")
        _native.check(started, "starting the server's thread")

    def _opened(self, config: Config, url: str) -> Service:
        """The service, with a socket of Python's where it is a zmq+tcp server with keys; all others
        are opened by the core."""
        options, carrier, more = self.options, zmq_transport.Carrier(url), {}
        keys = zmq_transport.server_keys(options.curve_secret_key, options.curve_clients)
        region = ffi.new("char[]", os.fsencode(options.region)) if options.region else ffi.NULL
        try:
            if keys and zmq_transport.is_url(url):
                zmq_transport.bind(carrier, keys)
                more = {"zmq": carrier.raw, "spin_us": zmq_transport.SPIN_US}
            return Service(
                config.raw,
                url,
                carrier,
                **more,
                region_path=config.keep(region),
                verify=int(options.verify),
                insecure=int(options.insecure),
                busy_poll=int(options.busy_poll),
                core=0 if options.core is None else 1 + options.core,
                virtual_clock=int(options.virtual_clock),
            )
        except BaseException:
            carrier.close()
            raise

    @property
    def address(self) -> str:
        """The URL that clients connect to, with the port that was taken; also in a forked child."""
        if self._service.inherited:
            return self._address
        return _native.text(lib.rp_service_address(self._service.raw))

    @property
    def memory(self) -> int:
        """Bytes of the server's region; pages that were never written take no memory yet."""
        return lib.rp_service_memory(self._service.raw)

    @property
    def attached(self) -> bool:
        """Whether the region was taken over from a server that died."""
        return bool(lib.rp_service_attached(self._service.raw))

    @property
    def changes(self) -> str:
        """Options that differ from those of a region that was taken over, such as
        "idle_ms 30000 -> 1000"; "" if none do."""
        return _native.text(lib.rp_service_changes(self._service.raw))

    @property
    def incarnation(self) -> int:
        """The number of the server's life; another number means that it came back empty."""
        return lib.rp_service_incarnation(self._service.raw)

    @property
    def weights_version(self) -> int:
        """The version of the newest complete weights; 0 before the first."""
        return lib.rp_service_weights_version(self._service.raw)

    def counters(self) -> dict[str, int]:
        """{name: value}: the engine's counters, and three more:

        sessions    sessions that are open now
        dropped     datagrams that the network did not take
        dropped_in  datagrams that were dropped before they reached the engine, so many at least:
                    the kernel counts a train of up to 64 datagrams that finds no room as one
        """
        raw = self._service.raw
        counters = _native.counters_of(lambda numbers: lib.rp_service_counters(raw, numbers))
        sessions, dropped = lib.rp_service_sessions(raw), lib.rp_service_dropped(raw)
        dropped_in = lib.rp_service_dropped_in(raw)
        return counters | {"sessions": sessions, "dropped": dropped, "dropped_in": dropped_in}

    def stats(self) -> Stats:
        """Counters, sessions that are open, and what the transport counts; as `Client.stats`."""
        look = self._measure()
        return Stats(
            look.counters, look.sessions, look.incarnation, look.weights_version, look.facts
        )

    def _measure(self) -> Measures:
        """Counters, times, ages, tables and sessions, all at the same moment."""
        return measures_of(self._service)

    @property
    def lost(self) -> str:
        """Why no client can reach this server again (its network card is gone); "" if they can."""
        return _native.text(lib.rp_service_lost(self._service.raw))

    @property
    def remark(self) -> str:
        """A warning for the operator of this host, or "": another host has the server's address,
        its interface got another MAC address, or the socket holds fewer datagrams than there are
        sessions."""
        return _native.text(lib.rp_service_remark(self._service.raw))

    def turn(self) -> int:
        """Runs one turn of a loopback server; returns how many datagrams it found."""
        return _native.check(lib.rp_service_turn(self._service.raw), "turning the server")

    @property
    def closed(self) -> bool:
        """Whether this server is closed."""
        return self._service.closed

    def close(self) -> None:
        """Stops serving and frees the memory. Twice is fine."""
        self._service.close()

    def __enter__(self) -> Server:
        _ = self._service.raw
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Server({'closed' if self.closed else self.address})"


class Config:
    """A struct rp_server_config and everything it points to, alive as long as this object."""

    def __init__(self, tables: tuple[Table, ...], options: ServerOptions, seed: int) -> None:
        if not 0 < len(tables) <= TABLES_MAX:
            raise ConfigError(f"{len(tables)} tables; expected 1 to {TABLES_MAX}")
        names = [table.name for table in tables]
        if len(set(names)) < len(names):
            raise ConfigError(f"two tables have the same name: {', '.join(names)}")
        self._kept: list[Any] = []
        self._tables = ffi.new("struct rp_table_config[]", len(tables))
        for raw, table in zip(self._tables, tables, strict=True):
            self._fill(raw, table)
        self.raw = ffi.new("struct rp_server_config *")
        self.raw.tables, self.raw.table_count = self._tables, len(tables)
        self.raw.sessions_max, self.raw.batch_max = options.sessions, options.batch_max
        share = options.sessions_per_address or options.sessions - options.sessions // 4
        self.raw.sessions_per_address = share
        self.raw.records, self.raw.mtu = options.records, options.mtu
        self.raw.receive_budget = options.receive_budget
        self.raw.idle_ms, self.raw.lapse_ms = options.idle_ms, options.lapse_ms
        self.raw.weights_max, self.raw.seed = options.weights_max, seed % 2**64
        self.raw.seed_drawn = options.seed is None
        # Keys of a server before this one name nothing here; a run that is repeated has the same.
        self.raw.first_lap = 0 if options.virtual_clock else 1 + secrets.randbelow(2**32 - 1)

    def keep(self, value: Any) -> Any:
        """`value`, held for as long as this config."""
        self._kept.append(value)
        return value

    def _fill(self, raw: Any, table: Table) -> None:
        spec, layout = table.step, table.layout
        raw.name = table.name.encode()
        raw.capacity, raw.step_bytes = table.capacity, spec.record_size
        raw.columns = columns = self.keep(ffi.new("struct rp_column[]", len(spec.columns)))
        raw.column_count = len(spec.columns)
        for column, given in zip(columns, spec, strict=True):
            column.offset, column.size = spec.offsets[given.name], given.size
            column.pad_first = given.pad == "first"
        raw.plans = plans = self.keep(ffi.new("struct rp_plan[]", len(layout.plans)))
        raw.plan_count = len(layout.plans)
        for plan, given in zip(plans, layout.plans, strict=True):
            pairs = [
                (number, offset)
                for number, name in enumerate(spec.names)
                for offset in given.resolved.offsets[name]
            ]
            plan.name, plan.pick_count = given.name.encode(), len(pairs)
            plan.picks = self.keep(ffi.new("struct rp_pick[]", pairs))
        bounds = table._bounds()
        raw.min_size, raw.samples_per_insert, raw.error_min, raw.error_max = bounds
        raw.alpha, raw.fifo = table.sampler.alpha, layout.fifo
        raw.writers_max, raw.streams_max = table.writers, table.streams
        raw.window, raw.pieces_max = table._resolved_window(), table._pieces_max()
        document = layout.document()
        raw.spec, raw.spec_bytes = self.keep(ffi.from_buffer(document)), len(document)


def listed(tables: Any) -> tuple[Table, ...]:
    """The tables of a server; ConfigError where one is something else."""
    try:
        given = tuple(tables)
    except TypeError:  # an array of no dimension too
        one_of("tables", tables, (list,), '[Table("replay", ...)]')
        raise
    for table in given:
        one_of("a table", table, (Table,), 'Table("replay", ...)')
    return given


def with_name(url: str) -> str:
    """The url; "loopback://" without a name gets one that nobody in this process has."""
    return f"loopback://server-{next(_names)}" if url == "loopback://" else url


def memory_of(tables: Iterable[Table], options: ServerOptions) -> int:
    """Bytes a server would take; ConfigError where it cannot be."""
    config = Config(tuple(tables), options, 0)  # owns what config.raw points to
    return _native.service_bytes(config.raw, with_name(options.url))
