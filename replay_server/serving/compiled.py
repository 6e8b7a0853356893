"""A server's tables as a file for replay-serve, which serves without Python.

    compile_tables(tables, options) -> bytes

native/appliance/compiled.h describes the file and reads it back. Here plans and columns are
resolved, and the core is asked whether it would serve them, so no file is written that is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from .. import _native
from .._native import ffi, lib
from ..server import Config, ServerOptions, with_name
from ..table import Table

MAGIC, VERSION, SEEDED = b"RPTABLES", 2, 1
HEAD = struct.Struct("<8sIII")  # magic, version, bytes of the file, CRC-32C of what follows
LIMITS = struct.Struct("<11I2Q")
TABLE = struct.Struct("<32s10IdQ3d")
COLUMN = struct.Struct("<3I")
PLAN = struct.Struct("<32s2I")
PICK = struct.Struct("<Hh")


def compile_tables(tables: Iterable[Table], options: ServerOptions) -> bytes:
    """The file's bytes; ConfigError where no server could have these tables.

    options: what is of the server itself goes in (sessions, batch_max, seed, ...); where it
    serves, its threads and its region are replay-serve's own options.
    """
    config = Config(tuple(tables), options, options.seed or 0)
    raw = config.raw
    _native.service_bytes(raw, with_name("loopback://"))
    limits = LIMITS.pack(
        0 if options.seed is None else SEEDED,
        *(raw.table_count, raw.sessions_max, raw.batch_max, raw.records, raw.mtu),
        *(raw.receive_budget, raw.idle_ms, raw.lapse_ms, raw.sessions_per_address, 0),
        *(raw.weights_max, raw.seed),
    )
    body = limits + b"".join(_table(raw.tables[i]) for i in range(raw.table_count))
    crc = lib.rp_crc32c(0, ffi.from_buffer(body), len(body))
    return HEAD.pack(MAGIC, VERSION, HEAD.size + len(body), crc) + body


def _table(raw: Any) -> bytes:
    """One table, its columns, plans and spec behind it."""
    head = TABLE.pack(
        ffi.string(raw.name),
        *(raw.capacity, raw.step_bytes, raw.column_count, raw.plan_count, raw.writers_max),
        *(raw.streams_max, raw.window, raw.pieces_max, raw.spec_bytes, raw.fifo),
        *(raw.alpha, raw.min_size, raw.samples_per_insert, raw.error_min, raw.error_max),
    )
    columns = (raw.columns[i] for i in range(raw.column_count))
    parts = [COLUMN.pack(column.offset, column.size, column.pad_first) for column in columns]
    for plan in (raw.plans[i] for i in range(raw.plan_count)):
        parts.append(PLAN.pack(ffi.string(plan.name), plan.pick_count, 0))
        picks = (plan.picks[i] for i in range(plan.pick_count))
        parts.extend(PICK.pack(pick.column, pick.offset) for pick in picks)
    spec = bytes(ffi.buffer(raw.spec, raw.spec_bytes))
    return head + b"".join(parts) + spec + bytes(-len(spec) % 4)
