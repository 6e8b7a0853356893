"""Sampled batches: the memory they land in, and what a learner gets.

A `Landing` owns one slab of memory in which every column of a plan is an array of its own,
`[batch, steps, *shape]`, C-contiguous and starting at a multiple of 64 bytes, so that torch and
NumPy take it as it is. The core writes each arriving item straight to its place there: the one
copy between the socket and the learner. A landing belongs to one request from post to end. Its
`Batch` shows it without copying, and is valid until the landing is used again.

    slab    | column 0 [B, s0, *shape0] | gap | column 1 [B, s1, *shape1] | gap | ...

The importance weights are those of Schaul et al. 2015, section 3.4: w_i = (N P(i))^-beta, divided
by the largest of the batch. P(i) = (1-u) mass_i/total + u/N; u is the uniform part, N and total are
those of the item's own draw. Multiply the loss by the weights, never the new priority.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from ._native import ffi, lib
from .errors import ConfigError
from .returns import Transitions, transitions_of
from .spec import no_column
from .support.values import HUGE, numbers_of, real, whole
from .table import PlanLayout

ALIGNMENT, PLACE, KEY = lib.RP_SLAB_ALIGNMENT, ffi.typeof("struct rp_place *"), np.dtype(np.uint64)
FACTS = {  # what the core reports of each item
    **{"keys": np.uint64, "masses": np.uint64, "behind": np.uint16, "ahead": np.uint16},
    **{"totals": np.uint64, "drawables": np.uint32, "ages": np.uint64, "valid": np.bool_},
}
WEIGHED = {"probabilities": np.float64, "weights": np.float32}
BATCH_PARTS = (*FACTS, *WEIGHED)
SHOWN = frozenset(("data", *BATCH_PARTS))


class Keys(np.ndarray):
    """uint64 keys [B], with the table's `epoch`: after a reset or restart they are stale.

    Slices and copies keep the epoch. An array from elsewhere has `epoch` None, and its numbers
    decide: they rise on over a reset, and begin elsewhere in each server and each of its tables. So
    old keys, and keys of another table, name no item.
    """

    __slots__ = ("epoch",)
    epoch: int | None

    def __array_finalize__(self, source: Any) -> None:
        self.epoch = getattr(source, "epoch", None)

    def __reduce__(self) -> tuple:
        return keys_of, (np.asarray(self), self.epoch)


def keys_of(values: Any, epoch: int | None = None, table: str | None = None) -> Keys:
    """`values`, or those of a batch, as Keys; an epoch given here wins over one they carry. A batch
    has to be of that `table`."""
    if isinstance(values, Batch):
        if isinstance(table, str) and table != values.table:
            raise ConfigError(f"the batch is of table {values.table!r}, not of {table!r}")
        values = values.keys
    if epoch is None and type(values) is Keys and values.dtype is KEY and values.strides == (8,):
        return values
    carried = getattr(values, "epoch", None)
    if values is None:
        raise ConfigError("keys is None; expected those of a batch: batch.keys, or the batch")
    try:
        array = np.asarray(numbers_of("keys", values))
    except (TypeError, ValueError) as error:  # lists of several lengths
        raise ConfigError(f"keys: expected whole numbers ({error})") from error
    if array.dtype != np.uint64:
        if array.size and (array.dtype.kind not in "iu" or array.min() < 0):
            got = array.min() if array.dtype.kind == "i" else array.dtype
            raise ConfigError(f"keys: expected whole numbers from 0 to 2^64 - 1, got {got}")
        array = array.astype(np.uint64)
    keys = np.ascontiguousarray(array).reshape(-1).view(Keys)
    keys.epoch = carried if epoch is None else epoch
    return keys


@dataclass(frozen=True, repr=False, eq=False)
class Batch:
    """B items that were drawn, or asked for by key; the plan says which steps each item has.

    data           {column: [B, steps, *shape]}: numpy arrays, or torch tensors where asked for. A
                   plain dict, as pytrees of torch and JAX need it. batch[column] is data[column];
                   its KeyError names the nearest column
    weights        float32 [B], importance weights, the largest is 1
    keys           uint64 [B]: what `update_priorities` takes
    probabilities  float64 [B]: the probability with which each item was drawn
    ages           uint64 [B]: steps inserted after the item's own, up to its draw
    masses, totals, drawables  uint64, uint64, uint32 [B]: the item's mass, the mass of all items
                   and the number of drawable items, each at the item's own draw
    behind, ahead  uint16 [B]: rows before and after the anchor in its episode, up to the table's
                   reach; an n-step return reaches min(n, ahead) rows
    valid          bool [B]: False where `get` found no item at the key; its data is zero then
    table, plan    their names
    """

    data: dict[str, Any]
    weights: Any
    keys: Keys
    probabilities: np.ndarray
    masses: np.ndarray
    totals: np.ndarray
    drawables: np.ndarray
    ages: np.ndarray
    behind: np.ndarray
    ahead: np.ndarray
    valid: np.ndarray
    table: str = field(repr=False, default="")
    plan: str = field(repr=False, default="")
    layout: PlanLayout | None = field(repr=False, default=None)

    def __len__(self) -> int:
        return len(self.keys)

    if not TYPE_CHECKING:  # so that a type checker finds misspelt names

        def __getattr__(self, name: str) -> Any:
            """Makes the array of what has landed when it is first used."""
            if name not in SHOWN or "landing" not in self.__dict__:
                raise AttributeError(no_attribute(name))
            shown = getattr(self.landing, name)
            value = self.__dict__[name] = dict(shown) if name == "data" else shown
            return value

    def __getstate__(self) -> dict[str, Any]:
        """All of it, and no landing: what a pickle or a copy takes along."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {list(part.shape)}" for name, part in self.data.items())
        return f"Batch({len(self)} items of table {self.table!r}, plan {self.plan!r}: {parts})"

    def __getitem__(self, column: str) -> Any:
        if isinstance(column, str) and column in self.data:
            return self.data[column]
        raise KeyError(no_column(column, self.data))

    __iter__ = None  # of columns or of items? neither: data has the one, keys the other

    def transitions(
        self, gamma: float, device: Any = None, reward_clip: float | None = None
    ) -> Transitions:
        """Observations, actions, n-step returns and discounts, to compute an update from.

        gamma        discount of one step, 0 to 1
        device       None: arrays or tensors as `data` has them, views where possible; else torch
                     tensors on this device
        reward_clip  each reward is clipped to [-reward_clip, reward_clip] before the sum

        For plans NStep(n), for the same offsets written out, and for plain rows with a column
        next_observation. ConfigError where the plan holds no transitions. A Dict or Tuple space
        gives {leaf: array}, with the leaf "a/0" for ["a"][0]. To nest it as the space does, call
        spec.unflatten(group, {f"{group}/{leaf}": array}); group: "observation" or "action".
        """
        return transitions_of(self, gamma, device, reward_clip)

    def as_dict(self) -> dict[str, Any]:
        """{column: array}, views of the data. A column of which the plan takes one step comes
        without the axis of steps, [B, *shape]: so does each column of plain rows."""
        return {
            name: part[:, 0] if part.shape[1] == 1 else part for name, part in self.data.items()
        }

    def arrived(self) -> Batch:
        """A copy with the items that are valid: those that arrived, or were found by `get`."""
        rows = self.valid
        parts = {name: getattr(self, name)[rows] for name in BATCH_PARTS}
        data = {name: array[rows] for name, array in self.data.items()}
        return replace(self, data=data, **parts)

    def copied(self) -> Batch:
        """A copy in memory of its own, which stays valid when the landing is used again."""
        parts = {name: _copied(getattr(self, name)) for name in BATCH_PARTS}
        data = {name: _copied(part) for name, part in self.data.items()}
        return replace(self, data=data, **parts)

    @property
    def epoch(self) -> int:
        """The table's epoch at the draw: a number drawn anew each time the table is emptied."""
        return self.keys.epoch or 0


def _copied(part: Any) -> Any:
    """A copy of an array, or of a tensor where it is."""
    return part.copy() if isinstance(part, np.ndarray) else part.clone()


def no_attribute(name: str) -> str:
    """The sentence for an attribute that a batch has not; it names the one that is meant."""
    sentence = f"a batch has no {name!r}"
    if name.startswith("_"):  # asked for by copy, pickle or numpy
        return sentence
    if name in (field.name for field in fields(Transitions)):
        return f"{sentence}: batch.transitions(gamma).{name} has it"
    near = get_close_matches(name, [n for n in dir(Batch) if n[0] != "_"] + [*SHOWN], n=1)
    if near:
        return f"{sentence}; the nearest is {near[0]!r}"
    return f'{sentence}; a column is batch["observation"], all are batch.data'


LARGE = 1 << 20
BETA_MAX, BATCH_MAX = 8.0, lib.RP_BATCH_MAX


def checked_beta(beta: Any) -> float:
    """A usable exponent of importance weights; ConfigError says what is wrong with it."""
    return real("beta", beta, 0.0, BETA_MAX, ": 0 corrects nothing, 1 all")


def checked_count(count: Any) -> int:
    """The size of a batch as an int; ConfigError where it is none."""
    return whole("batch", count, 1, BATCH_MAX)


def priority_from_td(td: Any, epsilon: float = 1e-6) -> np.ndarray:
    """float64 [B]: |td| + epsilon, from TD errors [B]. The server applies alpha, not this.

    ConfigError where `td` holds no finite numbers, or epsilon is below 0.
    """
    epsilon = real("epsilon", epsilon, 0.0, HUGE)
    try:
        priorities = np.abs(np.asarray(numbers_of("td", td), dtype=np.float64)) + epsilon
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"td: expected numbers ({error})") from error
    if not np.isfinite(priorities).all():
        wrong = np.flatnonzero(~np.isfinite(priorities.ravel()))[0]
        raise ConfigError(f"td[{wrong}] is {np.ravel(td)[wrong]}: expected finite numbers")
    return priorities


def pinned(size: int) -> np.ndarray:
    """uint8 [size], zeros in page-locked memory."""
    import torch

    return torch.zeros(size, dtype=torch.uint8, pin_memory=True).numpy()


class LandingShape:
    """Where everything lies in the landings of one plan and batch size, computed once.

    `arrays` and `columns`: (shape, dtype, offset in the slab) of each of FACTS and WEIGHED, and of
    each column, all at multiples of ALIGNMENT. `raw` holds the same for the core.
    """

    def __init__(self, layout: PlanLayout, spec: Any, count: int, table: str = "") -> None:
        self.layout, self.count, self.table = layout, checked_count(count), table
        self.spec = spec
        self._end = 0
        self.columns = {
            name: self._place(spec[name].dtype, (count, steps, *spec[name].shape))
            for name, steps, _, _ in layout.parts
        }
        facts = {**FACTS, **WEIGHED}
        self.arrays = {name: self._place(np.dtype(kind), (count,)) for name, kind in facts.items()}
        self._described = ffi.new("struct rp_landing_column[]", len(layout.parts))
        for column, (name, _, item_offset, size) in zip(self._described, layout.parts, strict=True):
            column.target = ffi.cast("uint8_t *", self.columns[name][2])
            column.stride, column.item_offset, column.size = size, item_offset, size
        self.raw: Any = ffi.new("struct rp_shape *")
        self.raw.columns, self.raw.column_count = self._described, len(layout.parts)
        self.raw.item_bytes, self.raw.count = layout.item_bytes, count
        for name, (_, _, offset) in self.arrays.items():
            setattr(self.raw, name, offset)
        self.size = lib.rp_place_bytes(self.raw, self._end)

    def difference(self, other: LandingShape) -> str:
        """How `other` ("theirs") differs: the first such column, or the plan; "" if not at all."""
        mine, theirs = self.layout, other.layout
        if mine == theirs and self.spec == other.spec:
            return ""
        if lines := self.spec._differences(other.spec):
            return lines[0]
        return f"plan: mine {mine.name!r}, {mine.plan!r}; theirs {theirs.name!r}, {theirs.plan!r}"

    def _place(self, dtype: np.dtype, shape: tuple[int, ...]) -> tuple[tuple, np.dtype, int]:
        offset = self._end
        self._end += -(-dtype.itemsize * math.prod(shape) // ALIGNMENT) * ALIGNMENT
        return shape, dtype, offset


class Landing:
    """Memory in which a batch of `count` items of a plan lands.

    `data`, {column: array}, and the arrays of FACTS and WEIGHED are attributes, each made when it
    is first asked for.
    """

    def __init__(self, shape: LandingShape, pin: bool = False) -> None:
        self.shape = shape
        if pin:
            memory = pinned(shape.size)
        elif shape.size < LARGE:
            memory = bytearray(shape.size)  # made and shared with less work than an array
        else:
            memory = np.zeros(shape.size, np.uint8)  # the system's zeros, in huge pages
        self.memory = memory
        self.raw = raw = ffi.from_buffer(PLACE, memory)
        self._slab = lib.rp_place_lay(raw, shape.raw)

    @property
    def layout(self) -> PlanLayout:
        return self.shape.layout

    @property
    def count(self) -> int:
        return self.shape.count

    def _array(self, shape: tuple[int, ...], dtype: np.dtype, offset: int) -> np.ndarray:
        return np.ndarray(shape, dtype, self.memory, self._slab + offset)

    def __getattr__(self, name: str) -> Any:
        if name == "data":
            self.data = {name: self._array(*at) for name, at in self.shape.columns.items()}
            return self.data
        if name in BATCH_PARTS:
            array = self.__dict__[name] = self._array(*self.shape.arrays[name])
            return array
        raise AttributeError(f"a landing has no {name!r}")

    def batch(self, table: str, epoch: int, lasting: bool) -> Batch:
        """The batch that has landed, in this memory. Its keys are copied, unless `lasting`: then
        the landing is not used again."""
        shape = self.shape
        count, dtype, offset = shape.arrays["keys"]
        keys = Keys(count, dtype, self.memory, self._slab + offset)
        keys = keys if lasting else keys.copy()
        keys.epoch = epoch
        batch = object.__new__(Batch)  # what its own __init__ does costs more
        parts = batch.__dict__
        parts["landing"], parts["keys"], parts["table"] = self, keys, table
        parts["layout"] = layout = shape.layout
        parts["plan"] = layout.name
        return batch
