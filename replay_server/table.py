"""A table as its owner describes it: its steps, its items, how they are drawn and when.

A `Table` is only a description: `Server([table, ...])` makes the table, and the engine gets its
`layout`. Spec and plans travel to every client as one JSON document, from which `layout_of`
rebuilds the same `Layout`. Both agree because they run the same function on the same bytes.

An item as it is sent is its picks back to back, column by column in the spec's order and offset by
offset inside a column, so that each column lands with one copy an item:

    | observation t | observation t+n | action t | reward t | ... | zeros to a multiple of 8 |

Limits (wire.h): TABLES_MAX tables, PLANS_MAX plans a table, names of at most NAME_BYTES_MAX bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .errors import ConfigError, UnknownPlan
from .plans import NStep, Plan, Resolved, Row, Sequence, plan_from_json
from .spec import SAID, Spec, SpecError, cannot_be_said, utf8
from .support.values import HUGE, SHOWN_MAX, TINY, Keyworded, one_of, real, whole

NAME_BYTES_MAX = 31
PLANS_MAX = 8
PIECES_MAX = 16384
PIECE_BYTES_MIN = 408  # what the smallest mtu (512) leaves for a piece
WINDOW_DEFAULT = 8192
CAPACITY_MAX = (1 << 31) - 1
ITEMS_MAX = (1 << 63) - 1
RESERVED_SHARE = 16  # window * writers may not exceed capacity / RESERVED_SHARE
DEFAULT_PLAN = "default"
FACTS = ("observation", "action", "reward", "terminated")  # of each step of an episode


@dataclass(frozen=True)
class Prioritized(Keyworded):
    """Items are drawn in proportion to priority ** alpha (Schaul et al. 2015, section 3.3).

    alpha     0 to 8; 0 draws all items of positive priority alike

    The server keeps priority ** alpha in units of 2^-26: at least one unit, at most 2^37 /
    capacity. A larger one is drawn like the largest; the server counts masses_saturated, and a
    client warns once. So scale priorities to lie between.
    """

    alpha: float = 0.6

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", real("Prioritized(alpha)", self.alpha, 0.0, 8.0))


@dataclass(frozen=True)
class Uniform:
    """Every item of positive priority is drawn with the same probability."""

    @property
    def alpha(self) -> float:
        """0: priorities make no difference, but for 0 itself."""
        return 0.0


@dataclass(frozen=True)
class Fifo(Keyworded):
    """Items are drawn oldest step first, each once; writers wait while `size` items wait to be
    drawn.

    size      items that wait at most. A batch holds at most so many, and at most 16000: a larger
              one is refused (OverBudget). A batch waits until all of its items are there

    No item is drawn twice, so none has a priority to update, and importance weights are 1. An item
    that is created with priority 0 is never drawn. An item that is overwritten before it was drawn
    is gone, and lets a writer go on. So is one of a draw that was given up: let draws wait. A batch
    is read from the ring while it travels: a capacity of a few times the rows of `size` items, each
    with its whole window, keeps it there. With less the queue may never fill.
    """

    _MEANT: ClassVar[dict[str, str]] = {"max_size": "size", "capacity": "size"}

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole("Fifo(size)", self.size, 1, CAPACITY_MAX))

    @property
    def alpha(self) -> float:
        """0: priorities make no difference, but for 0 itself."""
        return 0.0

    def _bounds(self) -> tuple[int, float, float, float]:
        """(min_size, samples_per_insert, error_min, error_max) as the engine takes them."""
        return 1, 1.0, 0.0, float(self.size)


@dataclass(frozen=True)
class MinSize(Keyworded):
    """Nothing is drawn until `items` items were created, counted since the table was emptied."""

    items: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", whole("MinSize(items)", self.items, 1, ITEMS_MAX))

    def _bounds(self) -> tuple[int, float, float, float]:
        """(min_size, samples_per_insert, error_min, error_max) as the engine takes them."""
        return self.items, 0.0, 0.0, 0.0


@dataclass(frozen=True)
class SamplesPerInsert(Keyworded):
    """Each item is drawn `ratio` times on average: inserts and draws wait for each other.

    ratio         draws for each item, above 0
    min_size      items that are there before the first draw. A loop that adds and draws in one
                  thread gives the number of items from which it draws first
    error_buffer  a number e: the bounds are ratio * min_size - e and + e; a pair: the two bounds,
                  error_min and error_max. At least max(1, ratio) on either side, which is room for
                  one insert and one draw. None: ratio * min_size, so that twice min_size items go
                  in while nothing is drawn; at least 4 * max(1, ratio)

    The rule is Reverb's: error_min <= inserted * ratio - sampled <= error_max. A batch of more than
    error_max - error_min items is refused (OverBudget). One message of a client holds items that
    are worth at most half of error_max - error_min, but at least one. A pair whose error_max lies
    below ratio * min_size lets in more at first: min_size items, and the rest of the message that
    reaches that number.
    """

    _MEANT: ClassVar[dict[str, str]] = {
        "samples_per_insert": "ratio",
        "min_size_to_sample": "min_size",
    }

    ratio: float
    min_size: int = 1
    error_buffer: float | tuple[float, float] | None = None

    def __post_init__(self) -> None:
        fixed = {
            "ratio": real("SamplesPerInsert(ratio)", self.ratio, TINY, HUGE),
            "min_size": whole("SamplesPerInsert(min_size)", self.min_size, 1, ITEMS_MAX),
            "error_buffer": _error_buffer(self.error_buffer),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        low, high = self._bounds()[2:]
        if high < low:
            raise ConfigError(
                f"SamplesPerInsert(error_buffer={self.error_buffer}): the lower bound comes first: "
                f"({high:g}, {low:g})"
            )
        if high - low < 2 * max(1.0, self.ratio):
            raise ConfigError(
                f"SamplesPerInsert(ratio={self.ratio}, error_buffer={self.error_buffer}): a buffer "
                f"below {max(1.0, self.ratio)} lets inserts and draws block each other for ever"
            )

    def _bounds(self) -> tuple[int, float, float, float]:
        """(min_size, samples_per_insert, error_min, error_max) as the engine takes them."""
        if isinstance(self.error_buffer, tuple):
            low, high = self.error_buffer
        else:
            middle, buffer = self.ratio * self.min_size, self.error_buffer
            if buffer is None:
                buffer = max(4.0 * max(1.0, self.ratio), middle)
            low, high = middle - buffer, middle + buffer
        return self.min_size, float(self.ratio), float(low), float(high)


def _error_buffer(given: Any) -> float | tuple[float, float] | None:
    """The error_buffer of SamplesPerInsert, with its numbers checked."""
    what = "SamplesPerInsert(error_buffer)"
    if given is None:
        return None
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise ConfigError(f"{what} is {given!r}; expected a number or two: (lowest, highest)")
        low, high = (real(what, bound, -HUGE, HUGE) for bound in given)
        return low, high
    return real(what, given, 0.0, HUGE)


@dataclass(frozen=True)
class PlanLayout:
    """One plan against one spec. `parts`: per column (name, steps, item_offset, bytes an item)."""

    name: str
    plan: Plan
    resolved: Resolved
    parts: tuple[tuple[str, int, int, int], ...]
    item_bytes: int


@dataclass(frozen=True)
class Layout:
    """Spec and plans with every size worked out; equal at server and client."""

    spec: Spec
    plans: tuple[PlanLayout, ...]
    fifo: bool = False  # items are drawn in order, each once

    @property
    def behind(self) -> int:
        return max(plan.resolved.behind for plan in self.plans)

    @property
    def ahead(self) -> int:
        return max(plan.resolved.ahead for plan in self.plans)

    def index(self, plan: int | str) -> int:
        """The number of a plan given by number or name; UnknownPlan lists the names."""
        if type(plan) is int and 0 <= plan < len(self.plans):
            return plan
        names = [layout.name for layout in self.plans]
        if isinstance(plan, str) and plan in names:
            return names.index(plan)
        raise UnknownPlan(f"no plan {plan!r}; the table has {', '.join(names)}")

    def document(self) -> bytes:
        """The canonical JSON that travels with the table: equal layouts give equal bytes."""
        document: dict[str, Any] = {
            "spec": json.loads(self.spec.to_json()),
            "plans": [[layout.name, json.loads(layout.plan.to_json())] for layout in self.plans],
        }
        if self.fifo:
            document["order"] = "fifo"
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def layout_for(spec: Spec, plans: Mapping[str, Plan], fifo: bool = False) -> Layout:
    """Works out where every column of every plan lies in an item; SpecError if a plan cannot be."""
    layouts = []
    for name, plan in plans.items():
        resolved = plan._resolve(spec)
        parts, end = [], 0
        for column in spec:
            steps = len(resolved.offsets[column.name])
            parts.append((column.name, steps, end, steps * column.size))
            end += steps * column.size
        layouts.append(PlanLayout(name, plan, resolved, tuple(parts), -(-end // 8) * 8))
    return Layout(spec, tuple(layouts), fifo)


def layout_of(document: bytes) -> Layout:
    """The inverse of `Layout.document`; SpecError where the bytes are something else."""
    try:
        parsed = json.loads(document)
        spec = Spec.from_json(json.dumps(parsed["spec"]))
        plans = {str(name): plan_from_json(json.dumps(plan)) for name, plan in parsed["plans"]}
        if (order := parsed.get("order")) not in (None, "fifo"):
            raise SpecError(f"a table whose order is {order!r}: a newer version's, which draws it")
    except SpecError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"not a table document: {error!r}") from error
    return layout_for(spec, plans, order == "fifo")


@dataclass(frozen=True)
class Table(Keyworded):
    """A ring of `capacity` steps, and the items anchored in it.

    name      1 to 31 bytes
    step      Spec: the columns of one step
    plan      what a sampled item holds: one plan, or {name: plan}; Row() by default
    capacity  steps that are kept; the oldest are overwritten first
    sampler   Prioritized(alpha), Uniform() or Fifo(size)
    limiter   MinSize(n) or SamplesPerInsert(ratio, min_size, error_buffer); Fifo is its own
    writers   writers at once, from all machines; one machine may have all of them
    streams   episodes that are open at once in one writer
    window    steps that one writer may have unanswered; None: the largest legal number up to 8192.
              window * writers may not exceed capacity / 16. So declare as many writers as there
              will be: a place that nobody takes makes the window of the others smaller

    Raises ConfigError where these are not valid together, SpecError where a plan does not fit.
    """

    _MEANT: ClassVar[dict[str, str]] = {"size": "capacity", "max_size": "capacity", "spec": "step"}

    name: str
    step: Spec
    plan: Plan | Mapping[str, Plan] = field(default_factory=Row)
    capacity: int = 100_000
    sampler: Prioritized | Uniform | Fifo = field(default_factory=Prioritized)
    limiter: MinSize | SamplesPerInsert = field(default_factory=MinSize)
    writers: int = 4
    streams: int = 64
    window: int | None = None
    layout: Layout = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            shown = repr(self.name)
            shown = shown if len(shown) <= SHOWN_MAX else f"an object of {type(self.name).__name__}"
            raise ConfigError(f"table name {shown}: expected a text, such as 'main'")
        if not 0 < len(utf8(self.name)) <= NAME_BYTES_MAX or "\0" in self.name:
            raise ConfigError(
                f"table name {self.name!r}: expected 1 to {NAME_BYTES_MAX} bytes without zeros"
            )
        where = f"table {self.name!r}: "
        one_of(f"{where}step", self.step, (Spec,), "spec_from(env)")
        samplers = (Prioritized, Uniform, Fifo)
        one_of(f"{where}sampler", self.sampler, samplers, "Prioritized(0.6)")
        one_of(f"{where}limiter", self.limiter, (MinSize, SamplesPerInsert), "MinSize(1000)")
        plans = self.plan if isinstance(self.plan, Mapping) else {DEFAULT_PLAN: self.plan}
        if not 0 < len(plans) <= PLANS_MAX:
            raise ConfigError(f"table {self.name!r}: {len(plans)} plans; expected 1 to {PLANS_MAX}")
        for name, plan in plans.items():
            if not isinstance(plan, Plan):
                raise ConfigError(
                    f"table {self.name!r}: plan is {plan!r}; expected a plan such as NStep(3)"
                )
            if not 0 < len(utf8(name)) <= NAME_BYTES_MAX:
                raise ConfigError(
                    f"{where}plan name {name!r}: expected 1 to {NAME_BYTES_MAX} bytes of text"
                )
        for what, most in (("capacity", CAPACITY_MAX), ("writers", 65535), ("streams", 65535)):
            object.__setattr__(self, what, whole(where + what, getattr(self, what), 1, most))
        if self.window is not None:
            object.__setattr__(self, "window", whole(f"{where}window", self.window, 1))
        if self._resolved_window() < 1 or (
            self._resolved_window() * self.writers * RESERVED_SHARE > self.capacity
        ):
            smallest = (self.window or 1) * self.writers * RESERVED_SHARE
            raise ConfigError(
                f"table {self.name!r}: capacity {self.capacity} is too small for {self.writers} "
                f"writer{'s' * (self.writers != 1)} with a window of {self.window or 1} steps "
                f"each; the smallest legal capacity is {smallest}"
            )
        most = self.capacity - self._resolved_window() * self.writers
        if isinstance(self.sampler, Fifo):
            _expect_queue(where, self.sampler, self.limiter, most)
        least = self._bounds()[0]
        if least > most:
            raise ConfigError(
                f"{where}a minimum size of {least} items is never reached: a capacity of "
                f"{self.capacity} steps holds at most {most}, beside the windows of "
                f"{self.writers} writers; ask for fewer, or give it more capacity"
            )
        layout = layout_for(self.step, dict(plans), isinstance(self.sampler, Fifo))
        object.__setattr__(self, "layout", layout)
        if layout.ahead or layout.behind:  # its items are cut out of episodes
            require_steps(where, self.step)
        for plan in plans.values():
            _require_facts(where, self.step, plan)

    def _bounds(self) -> tuple[int, float, float, float]:
        """(min_size, samples_per_insert, error_min, error_max) as the engine takes them."""
        return (self.sampler if isinstance(self.sampler, Fifo) else self.limiter)._bounds()

    def _resolved_window(self) -> int:
        """The window that the engine gets."""
        if self.window is not None:
            return self.window
        return min(WINDOW_DEFAULT, self.capacity // RESERVED_SHARE // self.writers)

    def _pieces_max(self) -> int:
        """Datagrams one step may need, at the smallest mtu a client may have."""
        return min(PIECES_MAX, -(-self.step.record_size // PIECE_BYTES_MIN))


def _expect_queue(where: str, queue: Fifo, limiter: MinSize | SamplesPerInsert, most: int) -> None:
    """ConfigError where a table of at most `most` items is no such queue."""
    if limiter != MinSize():
        raise ConfigError(
            f"{where}{queue} says already when writers and draws wait, so it goes with no limiter "
            f"such as {limiter}: leave limiter out"
        )
    if queue.size > most:
        raise ConfigError(
            f"{where}{queue} never holds a writer back: the table holds at most {most} items, "
            "beside the windows of its writers; ask for fewer, or give it more capacity"
        )


def require_steps(where: str, spec: Spec) -> None:
    """ConfigError where a writer of steps cannot fill a column."""
    for name in spec.names:
        group = name.split("/")[0]
        if group in SAID:
            raise ConfigError(f"{where}{cannot_be_said(name)}")
        if group == "self":  # a writer's method has it already
            raise ConfigError(f"{where}column {name!r}: name it otherwise, such as 'own_{name}'")
        if group in ("reward", "terminated") and name != group:
            raise ConfigError(
                f"{where}column {name!r}: a step has one {group}, in one column of that name; name "
                f"the others otherwise, such as {name.replace('/', '_')!r}"
            )
    reward, ends = spec.group("reward"), spec.group("terminated")
    if reward and reward[0].dtype == bool:
        raise ConfigError(
            f"{where}column 'reward' is bool, and returns are sums: say Column('reward', "
            "np.float32)"
        )
    if ends and (ends[0].dtype != bool or ends[0].shape):
        raise ConfigError(
            f"{where}column 'terminated' is {ends[0].dtype} {ends[0].shape}: it is one truth value "
            "a step; say Column('terminated', np.bool_)"
        )


def _require_facts(where: str, spec: Spec, plan: Plan) -> None:
    """ConfigError where a plan of transitions lacks a column that each transition has."""
    for name in FACTS if isinstance(plan, NStep | Sequence) else ():
        if not spec.group(name):
            raise ConfigError(
                f"{where}no column {name!r}, and each step of {plan!r} has one; the columns are "
                f"{', '.join(spec.names)}; spec_from(env) makes them, or write rows to a table of "
                "Row() with client.extend"
            )
