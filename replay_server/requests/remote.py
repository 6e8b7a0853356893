"""A table as a client sees it: what the server reported, and the layout rebuilt from it.

`RemoteTable` is a snapshot. The epoch in it is that of the moment: a table that was reset, or a
server that restarted, has another one, and the client looks again.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from .. import _native
from .._native import Link, ffi, lib
from ..errors import ConfigError, OverBudget, ReplayError, SpecMismatch, UnknownTable
from ..plans import NStep, Row, Sequence
from ..spec import Spec, utf8
from ..support.values import one_of
from ..table import RESERVED_SHARE, WINDOW_DEFAULT, Layout
from .draws import Draw

DRAWS_MAX = 64
SENTENCE_S = 0.2  # what an error may take to name the limiter's numbers as they are now
LOOK_UP_S = 1.0  # a table is looked up in the time of the call that needs it, in so much at least
FACTS = (
    *("number", "capacity", "alpha", "min_size", "samples_per_insert", "error_min", "error_max"),
    *("writers_max", "epoch", "count", "head", "total", "inserted", "sampled"),
)


def priority_max(alpha: float, capacity: int) -> float:
    """The priority above which all are drawn alike: its mass is the largest that a table holds."""
    try:
        return (2.0**37 / capacity) ** (1.0 / alpha) * (1.0 + 1e-9)  # beyond any rounding
    except (OverflowError, ZeroDivisionError):
        return float("inf")


def rows_ahead(streams: int, steps: float) -> int:
    """How many rows of `streams` may be unacknowledged for `steps`: eight for each at least."""
    return max(ceil(min(steps, 1 << 31)), 8 * streams)


def missing(count: int, raw: Any, fifo: bool) -> int:
    """Items to come in before a batch of `count` is drawn, by what `info_of` returned; 0: none."""
    if fifo:
        return max(0, count - raw.count)
    if raw.count == 0 or raw.inserted < raw.min_size:
        return max(1, raw.min_size - raw.inserted)
    if raw.samples_per_insert == 0.0:
        return 0
    room = raw.inserted * raw.samples_per_insert - (raw.sampled + count)
    return max(0, ceil((raw.error_min - room) / raw.samples_per_insert))


def info_of(link: Link, name: str, timeout: float) -> Any:
    """The table `name` as the server has it now: a struct rp_table_info."""
    longest = lib.RP_NAME_BYTES - 1
    if isinstance(named := getattr(name, "name", None), str):
        raise UnknownTable(f"expected a table's name, got the table itself: say {named!r}")
    if not 0 < len(utf8(name)) <= longest or "\0" in name:
        raise UnknownTable(f"table {name!r}: expected a name of 1 to {longest} bytes without zeros")
    raw = ffi.new("struct rp_table_info *")
    what = f"looking up table {name!r}"
    link.request(lib.rp_link_table, name.encode(), raw, what=what, timeout=timeout)
    return raw


def infos_of(link: Link, most: int, timeout: float) -> list[Any]:
    """A struct rp_table_info of each of the first `most` tables, by number."""
    infos: list[Any] = []
    while len(infos) < most:
        raw = ffi.new("struct rp_table_info *")
        ask, what = (lib.rp_link_table_number, len(infos), raw), "looking up the server's tables"
        try:
            link.request(*ask, what=what, timeout=timeout)
        except UnknownTable:
            break
        infos.append(raw)
    return infos


class RemoteTable:
    """One table of a server as it was when it was looked up; made by `Client.table`.

    Steady: name, number, capacity, spec, plans, alpha, min_size, samples_per_insert, error_min,
    error_max, writers_max, fifo. As of then: epoch, count (drawable items, also `len`), head (the
    key that the next step gets), total (mass), inserted and sampled (items, as the limiter counts).
    """

    def __init__(self, raw: Any, layout: Layout, incarnation: int) -> None:
        self.raw, self.layout, self.incarnation = raw, layout, incarnation
        self.name = _native.name_of(raw.name)
        self.updating = f"updating priorities of table {self.name!r}"  # for errors
        self.draws: dict[tuple, Draw] = {}
        self.fifo = layout.fifo  # a queue, a table of Fifo(size), whose size is `error_max`
        self.priority_max = priority_max(raw.alpha, raw.capacity)
        for name in FACTS:
            setattr(self, name, getattr(raw, name))
        sent = tuple(raw.item_bytes[i] for i in range(raw.plan_count))
        built = tuple(plan.item_bytes for plan in layout.plans)
        if sent != built or raw.step_bytes != self.spec.record_size:
            raise SpecMismatch(
                f"table {self.name!r}: the server sends items of {sent} bytes and steps of "
                f"{raw.step_bytes}, its own document means {built} and {self.spec.record_size}"
            )

    def __reduce__(self) -> tuple:
        raise TypeError(
            f"table {self.name!r} as it was looked up cannot be pickled or copied: hand its name "
            "over, and look it up there, client.table(name); its columns are table.spec"
        )

    def now(self, link: Link) -> RemoteTable:
        """The table looked up again, for an error; as it is here where nobody answers at once."""
        try:
            return RemoteTable(info_of(link, self.name, SENTENCE_S), self.layout, self.incarnation)
        except ReplayError:
            return self

    @property
    def spec(self) -> Spec:
        return self.layout.spec

    @property
    def plans(self) -> dict[str, Any]:
        """{name: plan}."""
        return {plan.name: plan.plan for plan in self.layout.plans}

    @property
    def ahead(self) -> int:
        """How far the table's plans look ahead of an anchor."""
        return self.layout.ahead

    def expect(self, spec: Spec) -> None:
        """SpecMismatch, naming the first column, where `spec` is not what the table stores."""
        one_of("spec", spec, (Spec,), "spec_from(env)")
        if lines := spec._differences(self.spec):
            more = f" (and {len(lines) - 1} more differ)" if len(lines) > 1 else ""
            raise SpecMismatch(
                f"table {self.name!r} stores other columns (theirs) than this spec (mine): "
                f"{lines[0]}{more}; make both from the same environment"
            )

    def expect_room(self, streams: int) -> None:
        """ConfigError where streams that take turns overwrite each item's window before it ends."""
        reach = self.raw.reach_behind + self.raw.reach_ahead
        if reach * streams + 1 > self.capacity:
            raise ConfigError(
                f"table {self.name!r} holds {self.capacity} steps; with {streams} streams in turn "
                f"an item's {reach + 1} rows lie over {reach * streams + 1}, so the first is "
                "overwritten before the last comes: serve a larger capacity, or write fewer streams"
            )

    def unacknowledged_max(self, streams: int) -> int | None:
        """A writer's default: the rows between the limiter's bounds, at most its share of the
        table. None: there is no such limiter, and the granted window decides.

        With more, an actor would run ahead of a limiter that already holds it back.
        """
        if self.samples_per_insert == 0.0:
            return None
        apart = (self.error_max - self.error_min) / self.samples_per_insert
        share = min(WINDOW_DEFAULT, self.capacity // (RESERVED_SHARE * self.writers_max))
        return rows_ahead(streams, min(apart, share))

    def limiter(self) -> str:
        """The limiter's numbers in one phrase, for errors."""
        if self.fifo:
            return f"Fifo({self.error_max:g}): {self.count:,} items wait to be drawn, each once"
        ratio, low, high = self.samples_per_insert, self.error_min, self.error_max
        first = max(self.min_size, floor(high / ratio)) if ratio > 0.0 else 0
        return (
            f"ratio {ratio:g}, min_size {self.min_size}, bounds {low:g} to {high:g}: about "
            f"{first} items go in while nothing is drawn, then {ratio:g} draws let one in"
        )

    def expect_admitted(self, count: int, raw: Any = None) -> None:
        """OverBudget where the limiter never admits a batch of `count`; `raw` is what `info_of`
        returned since this table was looked up."""
        facts = self if raw is None else raw
        most = min(facts.error_max, lib.RP_QUEUE_BATCH_MAX)
        if self.fifo and count > most:
            larger = f", or serve it with Fifo({count})" if most < lib.RP_QUEUE_BATCH_MAX else ""
            raise OverBudget(
                f"batches of {count} items of table {self.name!r}: it is Fifo({facts.error_max:g}),"
                f" which draws no item twice, at most {most:g} at once; ask for "
                f"fewer{larger}"
            )
        width = facts.error_max - facts.error_min
        if facts.samples_per_insert > 0.0 and count > width:
            raise OverBudget(
                f"batches of {count} items of table {self.name!r}: its limiter admits at most "
                f"{floor(width)} at once; ask for fewer, or give the limiter an error_buffer of "
                f"{count // 2 + 1} at least"
            )

    def no_priorities(self) -> ConfigError:
        """Of a queue: why its items have no priorities to set."""
        return ConfigError(
            f"table {self.name!r} is Fifo({self.error_max:g}): its items are drawn in order, each "
            "once, so there are no priorities to update"
        )

    def holds_transitions(self) -> bool:
        """Not where its first plan is a Sequence, or a Row of steps that do not say what they lead
        to."""
        plan = next(iter(self.plans.values()))
        alone = isinstance(plan, Row) and not self.spec.group("next_observation")
        return not (alone or isinstance(plan, Sequence))

    def expect_transitions(self, n: int, stack: int) -> None:
        """ConfigError where the first plan is an NStep of another n or stack, or gives none."""
        plan = next(iter(self.plans.values()))
        if not self.holds_transitions():
            raise ConfigError(
                f"table {self.name!r} holds {plan}, and this program learns from transitions: "
                f"serve it with plan = {{ n_step = {n}, stack = {stack} }}"
            )
        if isinstance(plan, NStep) and (plan.n, plan.stack) != (n, stack):
            raise ConfigError(
                f"table {self.name!r} stores windows of n = {plan.n}, stack = {plan.stack}; this "
                f"program was started with n = {n}, stack = {stack}: give both the same, here "
                "(--n, --stack) or in the server's table"
            )

    def expect_sequences(self, length: int, *extras: str) -> None:
        """ConfigError where the first plan is no Sequence(length, 1), the table no queue, or one of
        the columns `extras` is not there."""
        plan, without = next(iter(self.plans.values())), set(extras) - set(self.spec.names)
        if plan != Sequence(length, 1) or not self.fifo or without:
            columns = ", ".join(f"{name!r}" for name in extras)
            lacks = f", without column {min(without)!r}" if without else ""
            raise ConfigError(
                f"table {self.name!r} holds {plan}{lacks}, and this program learns from rollouts: "
                f"serve it with plan = {{ sequence = {length}, n_step = 1 }}, with fifo = SIZE and "
                f"a float32 column {columns}"
            )

    def expect_reach(self, n: int) -> None:
        """ConfigError where items of this table wait for more than n rows behind them."""
        if self.ahead > n:
            raise ConfigError(
                f"table {self.name!r} has plans {list(self.plans)} that look {self.ahead} rows "
                f"ahead; this program was started with n = {n} and computes priorities for items "
                "of that length: give the longer plan a table of its own"
            )

    def draw(
        self,
        count: int,
        plan: int | str = 0,
        stratified: bool = False,
        uniform: float = 0.0,
    ) -> Draw:
        """How batches of this kind are drawn; computed once, DRAWS_MAX are kept."""
        kind = (count, plan, stratified, uniform, type(plan))
        try:
            return self.draws[kind]
        except (KeyError, TypeError):  # what has no hash is no argument: the draw says so
            draw = Draw(self, count, plan, stratified, uniform)
        if len(self.draws) >= DRAWS_MAX:
            self.draws.clear()
        self.draws[kind] = draw
        return draw

    def same(self, raw: Any, incarnation: int) -> bool:
        """Whether a fresh info has the same columns and plans."""
        mine = (self.raw.spec_crc, self.raw.spec_bytes, self.incarnation)
        return mine == (raw.spec_crc, raw.spec_bytes, incarnation)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        columns = (f"{each.name} {each.dtype.name}{list(each.shape) or ''}" for each in self.spec)
        plans = ", ".join(f"{name!r}: {plan}" for name, plan in self.plans.items())
        limiter = self.limiter() if self.samples_per_insert else f"min_size {self.min_size}"
        return (
            f"table {self.name!r}: {self.count:,} items can be drawn, {self.capacity:,} steps fit\n"
            f"  columns  {', '.join(columns)}\n  plans    {plans}\n  limiter  {limiter}\n"
            f"  counts   {self.inserted:,} inserted, {self.sampled:,} sampled, alpha {self.alpha:g}"
        )


class Tables(dict[str, RemoteTable]):
    """{name: table}, shown as what each holds."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values()))

    def __missing__(self, name: str) -> RemoteTable:
        raise KeyError(f"no table {name!r}; there are {', '.join(self)}")


def document_of(link: Any, raw: Any, timeout: float) -> bytes:
    """The table's document, fetched and compared with the checksum in its info."""
    target = np.zeros(max(1, raw.spec_bytes), np.uint8)
    size, version = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    what = f"fetching the columns of table {_native.name_of(raw.name)!r}"
    memory = _native.pointer("uint8_t[]", target)
    ask = lib.rp_link_blob, lib.RP_BLOB_SPEC, raw.number, 0
    link.request(*ask, memory, len(target), size, version, what=what, timeout=timeout)
    document = target[: size[0]].tobytes()
    if lib.rp_crc32c(0, ffi.from_buffer(document), len(document)) != raw.spec_crc:
        raise SpecMismatch(f"{what}: the checksum does not match; look the table up again")
    return document
