"""A kind of batch: the core's request for it and where its batches land, computed once.

A `Draw` belongs to one `RemoteTable`, so to one epoch: a table that was looked up again has draws
of its own. One call of the core posts the request, waits, and takes it (native/drive/link_whole.c).
"""

from __future__ import annotations

from typing import Any

from .. import _native
from .._native import Link, ffi, lib
from ..batch import BATCH_MAX, Batch, Keys, Landing, LandingShape
from ..errors import ConfigError, OverBudget, ShortBatch
from ..support.values import flag, one_of, real, whole

MODES = {False: "RP_SAMPLE_INDEPENDENT", True: "RP_SAMPLE_STRATIFIED"}
BATCH_DEFAULT = 4096  # items of the largest batch that a client is opened for
LOST = {
    _native.NUMBERS[name] for name in ("FORGOTTEN", "SESSION_EXPIRED", "TIMEOUT", "CLOSED")
}  # with a queue's batch
POLL_NS = 1_000_000  # a draw that is given up sooner is on its way
LIMITS = ("mtu", "idle_ms", "batch_max", "records", "table_count", "weights_max")
REFUSED = tuple(-_native.NUMBERS[name] for name in ("BATCH_TOO_LARGE", "NEVER_FITS"))


def limits_of(link: Link, batch_max: int) -> dict[str, int]:
    """The limits that the server granted the session; batch_max is also at most the client's."""
    raw = ffi.new("struct rp_opened *")
    _native.check(lib.rp_link_limits(link.raw, raw), "asking for limits")
    limits = {name: getattr(raw, name) for name in LIMITS}
    return {**limits, "batch_max": min(batch_max, raw.batch_max)}


def expect_drawn(limits: dict[str, int], table: Any, count: int) -> None:
    """OverBudget, with the number that would do, where batches of `count` are never drawn."""
    if count > limits["batch_max"]:
        raise OverBudget(
            f"batches of {count} items of table {table.name!r}: server and client allow at most "
            f"{limits['batch_max']} in one batch; ask for fewer, or give both a larger batch_max: "
            f"serve with batch_max = {count}, and open the client with it"
        )
    table.expect_admitted(count)


class Draw:
    """Batches of `count` items of one plan. ConfigError where the arguments exclude each other.

    `raw` is what the core reads; its `uniform` is the uniform part as the server draws it.
    """

    def __init__(
        self,
        table: Any,
        count: int,
        plan: int | str = 0,
        stratified: bool = False,
        uniform: float = 0.0,
    ) -> None:
        uniform = real("uniform", uniform, 0.0, 1.0)
        stratified = flag("stratified", stratified)
        if stratified and uniform > 0.0:
            raise ConfigError("stratified draws have no uniform part: give uniform=0")
        if table.fifo and (stratified or uniform > 0.0):
            raise ConfigError(
                f"table {table.name!r} is Fifo({table.error_max:g}), whose items are drawn in "
                "order: give neither stratified nor uniform"
            )
        self.table, self.epoch, self.fifo = table.name, table.epoch, table.fifo
        index = table.layout.index(plan)
        self.layout = table.layout.plans[index]
        self.shape = LandingShape(self.layout, table.spec, count, table.name)
        self.shape.raw.consumes = self.fifo
        self.raw: Any = ffi.new("struct rp_draw *")
        self.raw.shape, self.raw.table = self.shape.raw, table.number
        self.raw.incarnation = table.incarnation
        request = self.raw.request
        request.epoch, request.count, request.plan = self.epoch, count, index
        request.uniform = min(int(uniform * 2.0**32), 0xFFFFFFFF)
        request.mode = getattr(lib, MODES[stratified])
        self.raw.uniform = 1.0 if uniform == 1.0 else request.uniform / 2.0**32
        self.what = f"sampling {count} items of table {self.table!r}"

    def checked(self, out: Landing) -> Landing:
        """`out`, where it is a landing of these batches."""
        one_of("out", out, (Landing,), "client.landing(table, batch)")
        if out.shape is self.shape:
            return out
        other = out.shape.difference(self.shape)
        if out.count != self.shape.count or other:
            raise ConfigError(
                f"out holds {out.count} items of plan {out.layout.name!r} of table "
                f"{out.shape.table!r}; {self.shape.count} of {self.layout.name!r} of table "
                f"{self.table!r} are asked for{other and f' ({other})'}: make it with "
                "client.landing(table, batch, plan)"
            )
        return out

    def landed(self, link: Link, status: int, batch: Batch, need: int) -> Batch:
        """The batch of a request that ended with `status`; raises what it ended with."""
        if status == -_native.NUMBERS["SHORT_BATCH"]:
            short = ShortBatch(self.what, int((~batch.valid).sum()), self.fifo)
            short.status, short.batch = "SHORT_BATCH", batch.arrived()
            raise short
        blocked = (need, _native.BY_INSERTS, "", self.fifo)
        lost = self.fifo and -status in LOST
        what = self.what + " (what was drawn for it may be lost)" * lost
        link.check(status, what, blocked=blocked)
        return batch


def stored_at(link: Link, table: Any, wanted: Keys, plan: int | str, timeout: float) -> Batch:
    """The items or rows at the keys `wanted` of `table`, in that order, as a Batch."""
    count = whole("the number of keys", len(wanted), 0, BATCH_MAX)
    draw = Draw(table, max(count, 1), plan)  # its own, since its request is changed
    draw.epoch = wanted.epoch or table.epoch
    draw.raw.request.mode, draw.raw.request.epoch = lib.RP_SAMPLE_KEYS, draw.epoch
    draw.what = f"getting {len(wanted)} items of table {draw.table!r}"
    landing = Landing(draw.shape)
    if not count:  # nothing is asked for
        return landing.batch(draw.table, draw.epoch, True).arrived()
    arguments = (draw.raw, ffi.from_buffer("uint64_t[]", wanted), 0.0, landing.raw)
    status = link.whole(lib.rp_link_draw, arguments, draw.what, timeout)
    if status == -_native.NUMBERS["STALE_EPOCH"] and wanted.epoch not in (None, 0):
        landing.valid[:] = False
    elif status != -_native.NUMBERS["SHORT_BATCH"]:
        blocked = (landing.raw.blocked.need, _native.BY_INSERTS)
        link.check(status, draw.what, blocked=blocked)
    landing.keys[:] = wanted
    lib.rp_place_weigh(landing.raw, 0.0, 0.0)  # as valid as they are now
    return landing.batch(draw.table, draw.epoch, True)
