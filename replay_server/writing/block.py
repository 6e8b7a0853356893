"""Where a writer's rows wait for the core: some steps of all environments, as they are sent.

    records   uint8 [K, B, record_size]   step k of environment b; `columns` are views of it
    marks     uint8 [K, B]                ROW: it took the step; END: and its episode ended
    closings  uint8 [K * B, record_size]  the closing rows, in the order of the END marks
    items     uint8 [K]                   whether the step's ready anchors become items

`steps` is the index of the next step, at which the caller lays the rows down; `mark` counts it.
One call of the core takes everything (drive/link_block.c). The items of the newest step may be
held back (`pending`), because the caller may still want to create them itself; then that step's
marks move to the front and the block is empty otherwise.

A block holds ROWS_MAX rows or BYTES_MAX bytes at most, and one step at least: frames are handed
over at once, small rows some dozens at a time, so that one call costs little a row.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from .. import _native
from .._native import ffi, lib
from ..spec import Spec, SpecError, array_of, fitted, require_finite
from ..support.values import whole
from .autoreset import TRUNCATED, Rows

ROW, END = lib.RP_BLOCK_ROW, lib.RP_BLOCK_END
ROWS_MAX = 128
BYTES_MAX = 1 << 14


def steps_of(spec: Spec, streams: int, rows_max: int = ROWS_MAX) -> int:
    """How many steps a block has room for: one more than is sent, whose items are pending."""
    rows = min(rows_max, ROWS_MAX, BYTES_MAX // spec.record_size)
    return max(1, rows // streams) + 1


def shares_of(spec: Spec, streams: int, unacknowledged_max: int | None) -> tuple[int, int]:
    """(rows gathered here, rows in the link) of a bound on both; 0 in the link is its default."""
    if unacknowledged_max is None:
        return ROWS_MAX, 0
    what = f"unacknowledged_max (at least eight rows for each of {streams} streams)"
    unacknowledged_max = whole(what, unacknowledged_max, 8 * streams, (1 << 32) - 1)
    rows_max = max(1, unacknowledged_max // 8)
    return rows_max, unacknowledged_max - 2 * steps_of(spec, streams, rows_max) * streams


def rising(what: str, given: Any, below: int) -> np.ndarray:
    """`given` as int64 [K], rising from 0 and below `below`; SpecError where it is not."""
    array = array_of(what, given)
    wrong = array.ndim != 1 or (array.dtype.kind not in "iu" and array.size > 0)
    if not wrong and len(array):
        wrong = array[0] < 0 or array[-1] >= below or (array[1:] <= array[:-1]).any()
    if wrong:
        raise SpecError(f"{what}: expected numbers from 0 to {below - 1}, rising, got {given!r}")
    return array.astype(np.int64, copy=False)


def group_of(
    what: str, columns: Any, given: Any, count: int, finite: Container[str]
) -> dict[str, np.ndarray]:
    """Exactly these columns of `given`, as they are stored: {column: [count, *shape]}."""
    taken = {}
    for column in columns:
        name = column.name
        if name not in given:
            there = ", ".join(given) or "none"
            raise SpecError(f"rows.{what} has no column {name!r}; the columns there are: {there}")
        taken[name] = array = fitted(column, given[name], count)
        if name in finite:
            require_finite(name, array)
    if len(given) != len(taken):
        more = ", ".join(map(repr, set(given) - set(taken)))
        raise SpecError(f"rows.{what} has {more}, and holds {', '.join(taken)} alone")
    return taken


class Block:
    """Room for `steps_max` steps of `streams` environments; `reach`: that of the table's plans."""

    def __init__(self, spec: Spec, streams: int, reach: int, rows_max: int = ROWS_MAX) -> None:
        self.steps_max = steps_of(spec, streams, rows_max)
        self.spec, self.streams = spec, streams
        self.observations = spec.group("observation")
        self._every = np.arange(streams).tobytes()
        shape = (self.steps_max, streams)
        self.records = np.zeros((*shape, spec.record_size), np.uint8)
        self.columns = self._views(self.records)
        self.closings = np.zeros((self.steps_max * streams, spec.record_size), np.uint8)
        self.closing_columns = self._views(self.closings)
        self.marks = np.full(shape, ROW, np.uint8)
        self.items = np.ones(self.steps_max, np.uint8)
        self.next_steps = np.zeros(streams, np.uint64)
        self.lengths = np.zeros(streams, np.uint32)
        self.steps = self.closing = 0
        self.pending = False
        self._describe(reach)

    def _views(self, records: np.ndarray) -> dict[str, np.ndarray]:
        fields = records.view(self.spec.record_dtype())[..., 0]
        return {name: fields[name] for name in self.spec.names}

    def _describe(self, reach: int) -> None:
        """The core's description of the memory above; `held` keeps its pointers valid."""
        raw: Any = ffi.new("struct rp_block *")
        raw.streams, raw.step_bytes, raw.reach = self.streams, self.spec.record_size, reach
        arrays = {
            "rows": self.records.reshape(-1),
            "closings": self.closings.reshape(-1),
            "marks": self.marks.reshape(-1),
            "items": self.items,
            "next_steps": self.next_steps,
            "lengths": self.lengths,
        }
        self.held = []
        for name, array in arrays.items():
            memory = _native.pointer(f"uint{8 * array.itemsize}_t[]", array)
            self.held.append(memory)
            setattr(raw, name, memory)
        self.raw = raw

    def fitting(self, rows: Rows, finite: Container[str]) -> Rows:
        """Rows that no Autoreset of this writer made, as `lay` takes them; SpecError where they are
        not of its spec and streams. `finite`: the columns that hold finite numbers only."""
        if not isinstance(rows, Rows):
            raise SpecError(f"expected Rows, as Autoreset.rows makes, got {type(rows).__name__}")
        streams, ended, closing = rows.streams, rows.ended_streams, rows.closing
        every = type(streams) is np.ndarray and streams.dtype == np.int64
        if not every or streams.tobytes() != self._every:
            streams = rising("streams", streams, self.streams)
        columns = group_of("columns", self.spec.columns, rows.columns, len(streams), finite)
        if len(ended) or any(map(len, closing.values())):
            ended = rising("ended_streams", ended, self.streams)
            if not set(ended.tolist()) <= set(streams.tolist()):
                raise SpecError(f"ended_streams {ended}: only {streams} took a step")
            closing = group_of("closing", self.observations, closing, len(ended), finite)
        ending = array_of("ending", rows.ending)
        kind, shape = ending.dtype.kind, ending.shape
        if kind not in "iu" or shape != streams.shape or (ending > TRUNCATED).any():
            raise SpecError(f"ending {ending}: expected one of 0, 1, 2 for each of {streams}")
        if streams[ending.nonzero()].tolist() != ended.tolist():
            raise SpecError(
                f"ending {ending} and ended_streams {ended}: ended_streams names the streams whose "
                "ending is not 0"
            )
        return Rows(streams, columns, ending, ended, closing, rows.started)

    def lay(self, rows: Rows) -> None:
        """One more step; the block is not full."""
        at = self.steps
        whole = len(rows.streams) == self.streams
        for name, column in rows.columns.items():
            self.columns[name][at, slice(None) if whole else rows.streams] = column
        self.marks[at] = 0
        self.marks[at, rows.streams] = ROW
        end = self.closing + len(rows.ended_streams)
        if len(rows.ended_streams):
            self.marks[at, rows.ended_streams] |= END
            self.lay_closing(rows.closing, end)
        self.closing, self.steps = end, at + 1

    def mark(self, real: np.ndarray, ended: np.ndarray, closing: dict[str, np.ndarray]) -> None:
        """Counts the step whose columns were laid down; bool [B] each: took it, episode ended.

        closing {observation column: [E, *shape]}.
        """
        marks = self.marks[self.steps]
        marks[:] = real  # ROW is 1
        marks[ended] |= END
        end = self.closing + len(next(iter(closing.values())))
        self.lay_closing(closing, end)
        self.closing, self.steps = end, self.steps + 1

    def lay_closing(self, closing: dict[str, np.ndarray], end: int) -> None:
        """The closing rows up to number `end`: observation columns, everything else zero."""
        if end > self.closing:
            self.closings[self.closing : end] = 0
            for name, column in closing.items():
                self.closing_columns[name][self.closing : end] = column

    def floats(self, names: list[str]) -> Any:
        """What rp_floats_finite takes to look at one step: those of these columns that are floats;
        None where none is."""
        columns = [self.spec[name] for name in names if self.spec[name].dtype.kind == "f"]
        if not columns:
            return None
        raw: Any = ffi.new("struct rp_floats *")
        described = ffi.new("struct rp_float_column[]", len(columns))
        for at, column in enumerate(columns):
            described[at].offset = self.spec.offsets[column.name]
            described[at].count = column.size // column.dtype.itemsize
            described[at].width = column.dtype.itemsize
        raw.records, raw.columns, raw.column_count = self.raw.rows, described, len(columns)
        raw.record_bytes, raw.group = self.spec.record_size, self.streams
        self.held.append(described)
        return raw

    def push(self, link: Any, table: int, timeout_ns: int) -> int:
        """Hands over what is left: 0 all of it, PENDING: call again, or a status."""
        raw = self.raw
        raw.steps, raw.finished = self.steps, self.steps - self.pending
        status = lib.rp_link_push_block(link, table, raw, timeout_ns)
        if status == 0:
            self._restart()
        return status

    def _restart(self) -> None:
        """Empty again, but for the items that are held back."""
        raw, kept = self.raw, int(self.pending)
        if kept:
            self.marks[0], self.items[0] = self.marks[self.steps - 1], self.items[self.steps - 1]
        self.marks[kept : self.steps + 1] = ROW  # of a step cut off before it counted, too
        self.items[kept : self.steps + 1] = 1
        self.steps, self.closing = kept, 0
        raw.step = raw.closing = 0
        raw.phase = 2 if kept else 0

    def pushed(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a block that was handed over: the number of each stream's next row, and how many its
        open episode has."""
        ended = self.marks[0] & END if self.pending else 0
        return self.next_steps.astype(np.int64), np.where(ended, 0, self.lengths.astype(np.int64))

    @property
    def rows_max(self) -> int:
        """Rows that may lie here, closing rows included."""
        return 2 * self.steps_max * self.streams

    @property
    def left(self) -> int:
        """Rows that the core has not taken yet."""
        step, stream, phase = self.raw.step, self.raw.stream, self.raw.phase
        marks = self.marks[step : self.steps].copy()
        if len(marks) and phase:
            marks[0] &= END if phase == 1 else 0
        if len(marks):
            marks[0, :stream] &= END if phase == 0 else 0
        return int(np.count_nonzero(marks & ROW) + np.count_nonzero(marks & END))


class Creates:
    """Items still to be posted: [begin, end) of these arrays, which hold those given in `new`."""

    def __init__(
        self,
        streams: np.ndarray | None = None,
        steps: np.ndarray | None = None,
        priorities: np.ndarray | None = None,
        new: np.ndarray | None = None,
    ) -> None:
        none, new = np.zeros(0, np.int64), slice(None) if new is None else new
        self.streams = (none if streams is None else streams)[new].astype(np.uint16)
        self.steps = (none if steps is None else steps)[new].astype(np.uint64)
        self.priorities = None if priorities is None else priorities[new]
        self.end, self._posted = len(self.steps), [0]

    @property
    def begin(self) -> int:
        return sum(taken for taken in self._posted if taken > 0)

    def push(self, link: Any, table: int, timeout_ns: int) -> int:
        """Posts what is left; how many were taken, or a status.

        A signal's handler may raise behind any call: what was taken is counted by `map`, in the
        same step of the interpreter, so that no item is asked for twice.
        """
        begin, given, posted = self.begin, ffi.NULL, self._posted
        if self.priorities is not None:
            given = ffi.from_buffer("double[]", self.priorities[begin:])
        streams = ffi.from_buffer("uint16_t[]", self.streams[begin:])
        steps = ffi.from_buffer("uint64_t[]", self.steps[begin:])
        asked = (link, table, streams, steps, given, self.end - begin, timeout_ns)
        posts = map(lib.rp_link_create, *((each,) for each in asked))
        posted[:] = [begin]  # those before as one: a limiter may ask for many tries
        posted += posts
        return posted[-1]
