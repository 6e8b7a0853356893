"""Sampled batches: the memory they land in, and what a learner gets.

A `Landing` owns one slab of memory in which every column of a plan is an array of its own,
`[batch, steps, *shape]`, C-contiguous and starting at a multiple of 64 bytes, so that torch and
NumPy take it as it is. The core writes each arriving item straight to its place there: the one
copy between the socket and the learner. A landing belongs to one request from post to end, and its
`Batch` shows it without copying; who reuses a landing says until when the batch stays valid.

    slab    | column 0 [B, s0, *shape0] | gap | column 1 [B, s1, *shape1] | gap | ...

The importance weights are those of Schaul et al. 2015, section 3.4: w_i = (N P(i))^-beta divided by
the largest of the batch, with P(i) = (1-u) mass_i/total + u/N where the uniform part is u. N and
total are those of the item's own draw. They multiply the loss, never the new priority.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _native
from .errors import ConfigError
from .returns import Transitions, transitions_of
from .table import PlanLayout
from .values import real, whole

ALIGNMENT = 64
SHAPES_MAX = 64
FACTS = {  # what the core tells of each item, in the order of struct rp_landing
    **{"keys": np.uint64, "masses": np.uint64, "behind": np.uint16, "ahead": np.uint16},
    **{"totals": np.uint64, "drawables": np.uint32, "ages": np.uint64, "valid": np.uint8},
}
WEIGHED = {"probabilities": np.float64, "odds": np.float64, "weights": np.float32}
BATCH_PARTS = (*FACTS, "probabilities", "weights")


class Keys(np.ndarray):
    """uint64 keys that remember the table's `epoch`: after a reset or restart they are stale.

    Slices and copies keep it; an array built from elsewhere has `epoch` None and is taken to be of
    the table as it is now.
    """

    epoch: int | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.epoch = getattr(source, "epoch", None)

    def __reduce__(self) -> tuple:
        return keys_of, (np.asarray(self), self.epoch)


def keys_of(values: Any, epoch: int | None = None) -> Keys:
    """`values` as Keys; an epoch given here wins over one they carry."""
    carried = getattr(values, "epoch", None)
    array = np.asarray(values)
    if array.dtype != np.uint64:
        if array.size and (array.dtype.kind not in "iu" or array.min() < 0):
            raise ConfigError(f"keys: expected unsigned integers, got {array.dtype}")
        array = array.astype(np.uint64)
    keys = np.ascontiguousarray(array).reshape(-1).view(Keys)
    keys.epoch = carried if epoch is None else epoch
    return keys


@dataclass(frozen=True)
class Batch:
    """Items that were drawn, or asked for by key. B items; steps as the plan says.

    data           {column: [B, steps, *shape]}: numpy arrays, or torch tensors where asked for
    weights        float32 [B], importance weights, the largest is 1
    keys           uint64 [B]: what `update_priorities` takes
    probabilities  float64 [B]: with which each was drawn
    ages           uint64 [B]: steps inserted since the item's, at its draw
    masses, totals, drawables  uint64, uint64, uint32 [B]: the item's mass, the mass of all and the
                   number of drawable items, each at the item's own draw
    behind, ahead  uint16 [B]: rows before and after the anchor in its episode, up to the table's
                   reach; `ahead` tells how far an n-step return reaches
    valid          bool [B]: False where a key asked for by `get` is gone; then its data is zero
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

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, column: str) -> Any:
        return self.data[column]

    def transitions(self, gamma: float, device: Any = None) -> Transitions:
        """Observations, actions, n-step returns, discounts: what an update is computed from.

        For plans NStep(n). Arrays as the data is, views where they can be; torch tensors on
        `device` where one is named. ConfigError where the plan holds no transitions.
        """
        return transitions_of(self, gamma, device)

    def arrived(self) -> Batch:
        """The items whose data is here, copied; fewer than were asked for."""
        rows = self.valid
        parts = {name: getattr(self, name)[rows] for name in BATCH_PARTS}
        data = {name: array[rows] for name, array in self.data.items()}
        return replace(self, data=data, **parts)

    def copied(self) -> Batch:
        """The same in memory of its own: stays valid whatever becomes of the landing."""
        parts = {name: getattr(self, name).copy() for name in BATCH_PARTS}
        data = {name: array.copy() for name, array in self.data.items()}
        return replace(self, data=data, **parts)

    @property
    def epoch(self) -> int:
        """The table's epoch at the draw."""
        return self.keys.epoch or 0


BETA_MAX = 8.0


def checked_beta(beta: Any) -> float:
    """A usable exponent of importance weights; ConfigError says what is wrong with it."""
    return real("beta", beta, 0.0, BETA_MAX, ": 0 corrects nothing, 1 all")


def checked_count(count: Any) -> int:
    """The size of a batch as an int; ConfigError where it is none."""
    return whole("batch", count, 1, _native.lib.RP_BATCH_MAX)


def priority_from_td(td: Any, epsilon: float = 1e-6) -> np.ndarray:
    """float64 [B]: |td| + epsilon. Alpha is applied once, by the server, and not here."""
    if hasattr(td, "detach"):
        td = td.detach().cpu().numpy()
    return np.abs(np.asarray(td, dtype=np.float64)) + epsilon


def zeros(size: int, pin: bool = False) -> np.ndarray:
    """uint8 [size]; `pin`: in page-locked memory."""
    if pin:
        import torch

        return torch.zeros(size, dtype=torch.uint8, pin_memory=True).numpy()
    return np.zeros(size, np.uint8)


class LandingShape:
    """Where everything lies in the landings of one plan and batch, worked out once.

    `record` is one structured dtype: a field for each column, "0", "1", ... in the plan's order,
    and one for each of FACTS and WEIGHED, all at multiples of ALIGNMENT. Behind it lies what the
    core is told: the columns, struct rp_landing and struct rp_weighing, as words of which some are
    addresses.
    """

    def __init__(self, layout: PlanLayout, spec: Any, count: int) -> None:
        count = checked_count(count)
        self.layout, self.count = layout, count
        fields: dict[str, tuple[Any, tuple[int, ...]]] = {}
        for i, (name, steps, _, _) in enumerate(layout.parts):
            fields[str(i)] = (spec[name].dtype, (count, steps, *spec[name].shape))
        for name, kind in {**FACTS, **WEIGHED}.items():
            fields[name] = (np.dtype(kind), (count,))
        offsets, end = {}, 0
        for name, (dtype, shape) in fields.items():
            offsets[name] = end
            end += -(-dtype.itemsize * math.prod(shape) // ALIGNMENT) * ALIGNMENT
        formats, places = list(fields.values()), list(offsets.values())
        self.record = np.dtype(
            {"names": list(fields), "formats": formats, "offsets": places, "itemsize": end}
        )
        self.columns = {name: str(i) for i, (name, *_) in enumerate(layout.parts)}
        self._describe(offsets, end)

    def _describe(self, offsets: dict[str, int], end: int) -> None:
        ffi, parts = _native.ffi, self.layout.parts
        self._words: list[int] = []
        for i, (_, _, item_offset, size) in enumerate(parts):
            self._words += (offsets[str(i)], size, item_offset, size)
        self._addresses = [4 * i for i in range(len(parts))]
        begin = len(self._words)
        self._words += (end, len(parts), self.layout.item_bytes)
        self._words += [offsets[name] for name in (*FACTS, *WEIGHED)]
        self._addresses += [begin, *range(begin + 3, len(self._words))]
        self._pack = struct.Struct(
            "@" + "PQII" * len(parts) + "PII" + "P" * len(FACTS) + "P" * len(WEIGHED)
        )
        self.told = end  # where the description begins
        self.landing = end + len(parts) * ffi.sizeof("struct rp_landing_column")
        self.weighing = self.landing + ffi.sizeof("struct rp_landing")
        self.size = end + self._pack.size

    def describe(self, memory: np.ndarray, start: int, address: int) -> None:
        """Writes the description for a record that lies at `start` of memory, and at `address`."""
        words = self._words.copy()
        for i in self._addresses:
            words[i] += address
        self._pack.pack_into(memory, start + self.told, *words)


class Landing:
    """Where a batch of `count` items of a plan lands; the caller's until its request was posted."""

    def __init__(
        self,
        layout: PlanLayout,
        spec: Any,
        count: int,
        pin: bool = False,
        shape: LandingShape | None = None,
    ) -> None:
        shape = LandingShape(layout, spec, count) if shape is None else shape
        cast = _native.ffi.cast
        self.layout, self.count = layout, count
        memory = zeros(shape.size + ALIGNMENT, pin)
        self._held = _native.ffi.from_buffer(memory)  # keeps it where it is
        address = int(cast("uintptr_t", self._held))
        start = -address % ALIGNMENT
        record = np.ndarray((), shape.record, memory, start)
        shape.describe(memory, start, address + start)
        self.raw = cast("struct rp_landing *", address + start + shape.landing)
        self.weighing = cast("struct rp_weighing *", address + start + shape.weighing)
        self.data = {name: record[field] for name, field in shape.columns.items()}
        self.keys, self.masses = record["keys"], record["masses"]
        self.behind, self.ahead = record["behind"], record["ahead"]
        self.totals, self.drawables = record["totals"], record["drawables"]
        self.ages, self.valid = record["ages"], record["valid"]
        self.probabilities, self.odds = record["probabilities"], record["odds"]
        self.weights = record["weights"]
        self.request: Any = None  # of the last draw into this landing, and what it was made of
        self.drawn: tuple = ()

    def batch(self, table: str, epoch: int, beta: float, uniform: float, copy: bool) -> Batch:
        """What has landed. Without `copy` all but the keys is this landing's own memory."""
        lib, odds = _native.lib, self.odds
        lib.rp_importance_odds(self.raw, self.weighing, self.count, uniform)
        odds **= -beta
        lib.rp_importance_weights(self.weighing, self.count)
        keys = self.keys.copy().view(Keys)
        keys.epoch = epoch
        batch = object.__new__(Batch)  # its own __init__ would set what is frozen one by one
        batch.__dict__.update(
            data=dict(self.data),
            weights=self.weights,
            keys=keys,
            probabilities=self.probabilities,
            masses=self.masses,
            totals=self.totals,
            drawables=self.drawables,
            ages=self.ages,
            behind=self.behind,
            ahead=self.ahead,
            valid=self.valid.view(np.bool_),
            table=table,
            plan=self.layout.name,
        )
        return batch.copied() if copy else batch


class Shapes:
    """The shapes of one client's landings, each worked out once; SHAPES_MAX are kept."""

    def __init__(self) -> None:
        self._known: dict[int, LandingShape] = {}

    def landing(self, layout: PlanLayout, spec: Any, count: int, pin: bool = False) -> Landing:
        """Memory of its own."""
        shape = self._known.get(count)
        if shape is None or shape.layout is not layout:
            shape = LandingShape(layout, spec, count)
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            self._known[count] = shape
        return Landing(layout, spec, count, pin, shape)
