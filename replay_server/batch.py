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

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _native
from .errors import ConfigError
from .returns import Transitions, transitions_of
from .table import PlanLayout

ALIGNMENT = 64


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
        parts = ("weights", "keys", "probabilities", "masses", "totals", "drawables")
        parts += ("ages", "behind", "ahead", "valid")
        data = {name: array[rows] for name, array in self.data.items()}
        return replace(self, data=data, **{name: getattr(self, name)[rows] for name in parts})

    @property
    def epoch(self) -> int:
        """The table's epoch at the draw."""
        return self.keys.epoch or 0


def importance_weights(probabilities: np.ndarray, drawable: np.ndarray, beta: float) -> np.ndarray:
    """float32 [B]: (N P)^-beta over the largest. Items of probability 0 weigh 0."""
    drawn = probabilities > 0.0
    weights = np.zeros(len(probabilities))
    weights[drawn] = (drawable[drawn] * probabilities[drawn]) ** -beta
    largest = weights.max(initial=0.0)
    return (weights / largest if largest > 0.0 else weights).astype(np.float32)


def priority_from_td(td: Any, epsilon: float = 1e-6) -> np.ndarray:
    """float64 [B]: |td| + epsilon. Alpha is applied once, by the server, and not here."""
    if hasattr(td, "detach"):
        td = td.detach().cpu().numpy()
    return np.abs(np.asarray(td, dtype=np.float64)) + epsilon


def aligned(size: int, pin: bool = False) -> np.ndarray:
    """uint8 [size], zero, starting at a multiple of ALIGNMENT; `pin`: in page-locked memory."""
    if pin:
        import torch

        memory = torch.zeros(size + ALIGNMENT, dtype=torch.uint8, pin_memory=True).numpy()
    else:
        memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


class Landing:
    """Where a batch of `count` items of a plan lands; the caller's until its request was posted."""

    def __init__(self, layout: PlanLayout, spec: Any, count: int, pin: bool = False) -> None:
        if count < 1:
            raise ConfigError(f"a batch of {count} items; expected at least 1")
        self.layout, self.count = layout, count
        starts, end = {}, 0
        for name, _, _, size in layout.parts:
            starts[name] = end
            end += -(-size * count // ALIGNMENT) * ALIGNMENT
        self.slab = aligned(end, pin)
        self.data: dict[str, np.ndarray] = {}
        for name, steps, _, size in layout.parts:
            column = self.slab[starts[name] : starts[name] + size * count]
            shape = (count, steps, *spec[name].shape)
            self.data[name] = column.view(spec[name].dtype).reshape(shape)
        self.keys = np.zeros(count, np.uint64)
        self.masses = np.zeros(count, np.uint64)
        self.behind = np.zeros(count, np.uint16)
        self.ahead = np.zeros(count, np.uint16)
        self.totals = np.zeros(count, np.uint64)
        self.drawables = np.zeros(count, np.uint32)
        self.ages = np.zeros(count, np.uint64)
        self.valid = np.zeros(count, np.uint8)
        self._describe()

    def _describe(self) -> None:
        """The core's description of the memory above; its pointers keep the arrays alive."""
        ffi = _native.ffi
        parts = self.layout.parts
        self.columns = ffi.new("struct rp_landing_column[]", len(parts))
        self.held = [_native.pointer("uint8_t[]", self.slab)]
        for column, (name, _, offset, size) in zip(self.columns, parts, strict=True):
            begin = self.data[name].ctypes.data - self.slab.ctypes.data
            column.target = self.held[0] + begin
            column.stride, column.item_offset, column.size = size, offset, size
        self.raw = ffi.new("struct rp_landing *")
        self.raw.columns, self.raw.column_count = self.columns, len(parts)
        self.raw.item_bytes = self.layout.item_bytes
        for name in ("keys", "masses", "behind", "ahead", "totals", "drawables", "ages", "valid"):
            array = getattr(self, name)
            held = _native.pointer(f"uint{8 * array.itemsize}_t[]", array)
            self.held.append(held)
            setattr(self.raw, name, held)

    def batch(self, table: str, epoch: int, beta: float, uniform: float, copy: bool) -> Batch:
        """What has landed. Without `copy` data and keys are this landing's own memory."""
        total = np.maximum(self.totals, 1).astype(np.float64)
        drawable = np.maximum(self.drawables, 1).astype(np.float64)
        probabilities = (1.0 - uniform) * (self.masses / total) + uniform / drawable
        valid = self.valid.view(np.bool_)
        probabilities[~valid] = 0.0
        own = (lambda array: array.copy()) if copy else (lambda array: array)
        return Batch(
            data={name: own(array) for name, array in self.data.items()},
            weights=importance_weights(probabilities, drawable, beta),
            keys=keys_of(self.keys.copy(), epoch),
            probabilities=probabilities,
            masses=self.masses.copy(),
            totals=self.totals.copy(),
            drawables=self.drawables.copy(),
            ages=self.ages.copy(),
            behind=self.behind.copy(),
            ahead=self.ahead.copy(),
            valid=valid.copy(),
            table=table,
            plan=self.layout.name,
        )
