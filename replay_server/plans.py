"""Which steps of which column a sampled item contains, relative to its anchor step t.

A plan belongs to a table. Resolved against the table's Spec it gives, per column, a rising tuple of
offsets; a sampled batch then has that column as [batch, len(offsets), *shape].

    Row()                every column {0}: a plain row, nothing around it
    NStep(n)             observation {0, n}; action {0}; reward, terminated {0 .. n-1}; extras {0}
    NStep(n, stack=k)    observation {-(k-1) .. n}, each frame once; the rest as above
    Sequence(length, n)  state columns {0}; every other column {0 .. length-1+n}, n >= 1
    Offsets({...})       as written

The reach of a plan is how far it looks behind and ahead of t. By it the server knows when a window
is complete, and when an item has to go with its oldest step.

Limits: offsets lie within ±OFFSET_MAX; a column has at least one offset, a plan at most
PICK_COUNT_MAX of them over all columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from .spec import Spec, SpecError
from .support.values import Keyworded, nearest, whole

GAMMA = "gamma of batch.transitions"
OFFSET_MAX = 1024
PICK_COUNT_MAX = 4096


@dataclass(frozen=True)
class Resolved:
    """A plan against a spec: what to copy for one item.

    `offsets`: {column: rising step offsets}, in the spec's column order, every column present.
    `behind`, `ahead`: the reach, both >= 0.
    """

    offsets: dict[str, tuple[int, ...]]
    behind: int
    ahead: int

    @property
    def picks(self) -> list[tuple[int, int]]:
        """(column index, offset) of every copy, in the order of an item's bytes."""
        columns = enumerate(self.offsets.values())
        return [(i, offset) for i, offsets in columns for offset in offsets]


@dataclass(frozen=True)
class Plan(Keyworded):
    """Base of all plans: which steps of which columns an item holds, around its anchor t.

    Row, NStep, Sequence and Offsets are plans. A column that a batch has from a plan is
    [B, number of steps, *shape]. The table compares plan and spec: SpecError where they do not fit.
    """

    def _offsets_of(self, spec: Spec) -> dict[str, tuple[int, ...]]:
        """{column: offsets} for every column of `spec`."""
        raise NotImplementedError

    def _resolve(self, spec: Spec) -> Resolved:
        """Check the plan against `spec`; raises SpecError naming the column that does not fit."""
        wanted = self._offsets_of(spec)
        offsets = {}
        unknown = [name for name in wanted if name not in spec.names]
        if unknown:
            near, there = nearest(unknown[0], list(spec.names)), ", ".join(spec.names)
            raise SpecError(f"plan {self!r}: no column {unknown[0]!r} in {there}{near}")
        for column in spec:
            taken = tuple(int(offset) for offset in wanted.get(column.name, ()))
            if not taken or list(taken) != sorted(set(taken)):
                raise SpecError(
                    f"plan {self!r}: column {column.name!r} has offsets {taken}; "
                    "expected at least one, rising"
                )
            if taken[0] < -OFFSET_MAX or taken[-1] > OFFSET_MAX:
                raise SpecError(
                    f"plan {self!r}: column {column.name!r} reaches {taken[0]} to {taken[-1]}; "
                    f"the limit is {-OFFSET_MAX} to {OFFSET_MAX}"
                )
            offsets[column.name] = taken
        picks = sum(len(taken) for taken in offsets.values())
        if picks > PICK_COUNT_MAX:
            raise SpecError(f"plan {self!r} copies {picks} columns; at most {PICK_COUNT_MAX}")
        return Resolved(
            offsets=offsets,
            behind=max(0, -min(taken[0] for taken in offsets.values())),
            ahead=max(0, max(taken[-1] for taken in offsets.values())),
        )

    def to_json(self) -> str:
        """A canonical JSON document, {"kind": ..., fields}; equal plans give equal text."""
        document = {"kind": type(self).__name__, **_document_of(self)}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _document_of(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in (each.name for each in fields(plan))}


def plan_from_json(text: str | bytes) -> Plan:
    """The inverse of `Plan.to_json`; raises SpecError on anything else."""
    kinds = {kind.__name__: kind for kind in (Row, NStep, Sequence, Offsets)}
    try:
        document = json.loads(text)
        kind = kinds[document.pop("kind")]
        if "state" in document:
            document["state"] = tuple(document["state"])
        return kind(**document)
    except SpecError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SpecError(f"not a plan document: {error!r}") from error


@dataclass(frozen=True)
class Row(Plan):
    """Plain rows: each column at the anchor step t only, [B, 1, *shape]."""

    def _offsets_of(self, spec: Spec) -> dict[str, tuple[int, ...]]:
        return {column.name: (0,) for column in spec}


@dataclass(frozen=True)
class NStep(Plan):
    """An n-step transition, for `Batch.transitions`.

    n         steps of the return, 1 to 1024
    stack     frames of an observation; 1: no stacks

    Observation columns come at t and t+n; with stack=k at t-k+1 to t+n, which are the frames of
    both stacks, each once. "reward" and "terminated" come at t to t+n-1, the other columns at t.
    """

    _MEANT: ClassVar[dict[str, str]] = {"n_step": "n", "frame_stack": "stack", "gamma": GAMMA}

    n: int
    stack: int = 1

    def __post_init__(self) -> None:
        for name in ("n", "stack"):
            number = whole(f"NStep({name})", getattr(self, name), 1, OFFSET_MAX, SpecError)
            object.__setattr__(self, name, number)

    def _offsets_of(self, spec: Spec) -> dict[str, tuple[int, ...]]:
        frames = (0, self.n) if self.stack == 1 else tuple(range(1 - self.stack, self.n + 1))
        offsets = {column.name: (0,) for column in spec}
        offsets |= {column.name: frames for column in spec.group("observation")}
        for name in ("reward", "terminated"):
            if name in offsets:
                offsets[name] = tuple(range(self.n))
                if spec[name].shape:
                    raise SpecError(
                        f"plan {self!r}: column {name!r} has shape {spec[name].shape}; an n-step "
                        "return is made of scalars, expected one number a step: shape (); hand in "
                        f"{name}[..., 0] or a sum, or keep more of them in columns of their own"
                    )
        return offsets


@dataclass(frozen=True)
class Sequence(Plan):
    """`length` steps in a row, and the `n` rows after them to bootstrap from.

    length    steps of the sequence, burn-in included, 1 to 1024
    n         rows after them, at least 1
    state     names of columns (or groups) of recurrent state, which are taken at t only

    All other columns come at t to t+length+n-1: `length` + `n` rows. Of all rows but the last, row
    i is a step exactly where i < batch.ahead. Where the episode ends sooner, the rows after its end
    hold its last observation, and zeros in the other columns. Use the last row for its observation
    only: a batch does not say whether a step happened there. So `n` is at least 1.
    """

    _MEANT: ClassVar[dict[str, str]] = {
        "sequence_length": "length",
        "burn_in": "length, burn-in included",  # the learner cuts it off
        "n_step": "n",
        "gamma": GAMMA,
    }

    length: int
    n: int = 1
    state: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("n", 0)):
            number = whole(f"Sequence({name})", getattr(self, name), least, OFFSET_MAX, SpecError)
            object.__setattr__(self, name, number)
        if self.n == 0:
            instead = f"Sequence({self.length - 1})" if self.length > 1 else "Row()"
            raise SpecError(
                "Sequence(n) is 0 (n_step in a file); expected at least 1, the row after the last "
                "step: without it a batch does not say whether that step happened; "
                f"{instead} copies as many rows; a region made with n=0 is another plan's: name a "
                "new one"
            )
        names = self.state if isinstance(self.state, list | tuple) else (None,)
        if not all(isinstance(name, str) for name in names):
            raise SpecError(f"Sequence(state) is {self.state!r}; expected names: ('lstm',)")
        object.__setattr__(self, "state", tuple(names))

    def _offsets_of(self, spec: Spec) -> dict[str, tuple[int, ...]]:
        offsets = {column.name: tuple(range(self.length + self.n)) for column in spec}
        for name in self.state:
            columns = spec.group(name)
            if not columns:
                raise SpecError(f"no state column {name!r}; there are {', '.join(spec.names)}")
            offsets |= {column.name: (0,) for column in columns}
        return offsets


@dataclass(frozen=True)
class Offsets(Plan):
    """Offsets for each column, for windows that the named plans do not describe.

    columns   {column: rising offsets from t, each within -1024 to 1024}, for every column

    The row at offset i is a step where i < batch.ahead. Of the plan's furthest offset a batch does
    not say so. So let the observation reach one row further than actions and rewards.
    """

    columns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping):
            raise SpecError(f"Offsets: {self.columns!r}; expected {{'observation': (0, 1)}}")
        fixed = {
            str(name): tuple(
                whole(f"Offsets({name!r})", offset, -(1 << 31), 1 << 31, SpecError)
                for offset in (offsets if isinstance(offsets, Iterable) else (offsets,))
            )
            for name, offsets in self.columns.items()
        }
        object.__setattr__(self, "columns", fixed)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.columns.items())))

    def _offsets_of(self, spec: Spec) -> dict[str, tuple[int, ...]]:
        return dict(self.columns)
