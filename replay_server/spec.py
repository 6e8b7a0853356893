"""What one stored step is made of: named columns in a fixed-size record.

A `Spec` is an ordered list of `Column`s. Nested observations and actions are flattened: a Box
observation is the column "observation", the entry "camera" of a Dict observation is
"observation/camera", the second entry of a Tuple is "observation/1", and so on to any depth.
`spec_from(env)` derives a Spec from a Gymnasium environment; `flatten` and `unflatten` go between
nested values and columns.

The record, as the server stores it (the server sees bytes and offsets, never names):

    | column 0 | gap | column 1 | gap | ... | tail gap |

  * columns lie in declared order, C-contiguous and little-endian, a bool as one byte 0 or 1;
  * column c starts at the next offset that is a multiple of min(8, itemsize of its dtype);
  * the record size is a multiple of 8, so an 8-byte aligned ring keeps every column aligned;
  * gaps are zero bytes; `Spec.padding` says how many there are.

Limits: dtypes are bool, (u)int8-64, float16-64. A spec has at most COLUMN_COUNT_MAX columns.
Which steps of which column a sampled item contains is a plan's business: see plans.py.
"""

from __future__ import annotations

import difflib
import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

COLUMN_COUNT_MAX = 64
RECORD_ALIGNMENT = 8
AXES_MAX = 16
PADS = ("zero", "first")
KINDS = "biuf"
FLAGS = ("terminated", "truncated")
STEP = ("observation", "action", "reward", *FLAGS, "next_observation", "final_observation")
STEP += ("infos", "life_lost")  # what a step says by name; with the table's own columns
SAID = ("truncated", "next_observation", "final_observation", "infos", "life_lost")  # not stored
DONE = (
    "`done` is two facts here: terminated, where the episode is over, and truncated, where it was "
    "only cut off and its return goes on"
)
MASKED = "a masked array, whose hidden numbers would be stored: fill it, array.filled(...)"
ALWAYS_FINITE = ("reward", "action")  # whatever else may be NaN; extras may: -inf is a legal log


def cannot_be_said(name: str) -> str:
    """The sentence for a column of that name in a table that writers of steps fill."""
    return (
        f"column {name!r}: a writer takes this name for how an episode goes on, and does not store "
        f"it; name the column otherwise, such as 'own_{name}'"
    )


class SpecError(ValueError):
    """A spec cannot be built, or values do not fit it; names column, expected and got."""


@dataclass(frozen=True, init=False)
class Column:
    """One named array of a step.

    name      text; parts separated by "/" make groups, such as "observation/camera"
    dtype     bool, an integer, or a float of at most 8 bytes
    shape     of one step, without a batch axis
    pad       what a plan gets from before an episode's start: "zero" bytes, or the episode's
              "first" row, repeated

    Raises SpecError where these are not valid.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    pad: str = "zero"

    def __init__(
        self, name: str, dtype: DTypeLike, shape: Sequence[int] = (), pad: str = "zero"
    ) -> None:
        put = partial(object.__setattr__, self)
        put("name", name)
        put("pad", pad)
        try:
            put("dtype", np.dtype(dtype).newbyteorder("<"))
        except (TypeError, ValueError, SyntaxError) as error:  # numpy parses "f4,,"
            raise SpecError(f"column {name!r}: dtype is {dtype!r}: {error}") from error
        if self.dtype.kind not in KINDS or self.dtype.itemsize > 8:
            raise SpecError(
                f"column {self.name!r}: dtype {self.dtype} is not supported; expected bool, an "
                "integer or a float of at most 8 bytes"
            )
        if not isinstance(self.name, str) or (self.name and not utf8(self.name)):
            raise SpecError(f"column name {self.name!r}: expected text that UTF-8 can hold")
        if not self.name or any(part == "" for part in self.name.split("/")):
            raise SpecError(f"column name {self.name!r} is empty or has an empty part")
        if self.pad not in PADS:
            raise SpecError(f"column {self.name!r}: pad {self.pad!r}; expected one of {PADS}")
        try:
            put("shape", tuple(operator.index(n) for n in shape))
        except TypeError as error:
            raise SpecError(
                f"column {self.name!r}: shape is {shape!r}; expected a tuple such as (3,)"
            ) from error
        if any(n < 1 for n in self.shape):
            raise SpecError(f"column {self.name!r}: shape {self.shape} has an empty axis")

    @property
    def size(self) -> int:
        """Bytes of one step of this column."""
        return self.dtype.itemsize * prod(self.shape)

    @property
    def alignment(self) -> int:
        """The column's offset in a record is a multiple of this number of bytes."""
        return min(8, self.dtype.itemsize)

    def to_json(self) -> dict[str, Any]:
        """Name, dtype, shape and pad, as a dict that JSON holds."""
        return {
            "name": self.name,
            "dtype": self.dtype.name,
            "shape": list(self.shape),
            "pad": self.pad,
        }

    def describe(self) -> str:
        """Dtype, shape and pad in a few words, for errors."""
        return f"{self.dtype.name}{list(self.shape)} pad={self.pad}"


def _round_up(value: int, to: int) -> int:
    return -(-value // to) * to


@dataclass(frozen=True, init=False)
class Spec:
    """The columns of a step, and where each lies in its record.

    columns      the Columns, in the order of the record
    tuples       groups (such as "observation" or "observation/arm") that were tuples before
                 flattening; `unflatten` makes tuples of them again
    offsets      {column: its offset in the record, in bytes}
    record_size  bytes of a record, a multiple of 8

    Raises SpecError where the columns do not go together.
    """

    columns: tuple[Column, ...]
    tuples: frozenset[str] = frozenset()
    offsets: dict[str, int] = field(init=False, compare=False, repr=False)
    record_size: int = field(init=False, compare=False)
    _record: np.dtype = field(init=False, compare=False, repr=False)
    _groups: dict[str, tuple[Column, ...]] = field(init=False, compare=False, repr=False)

    def __init__(self, columns: Iterable[Column], tuples: Iterable[str] = ()) -> None:
        columns = tuple(columns) if np.iterable(columns) else (columns,)
        for column in columns:
            if not isinstance(column, Column):
                raise SpecError(f"{column!r} is no column; expected Column('reward', np.float32)")
        if not columns:
            raise SpecError("a spec needs at least one column")
        if len(columns) > COLUMN_COUNT_MAX:
            raise SpecError(f"{len(columns)} columns; at most {COLUMN_COUNT_MAX}")
        offsets: dict[str, int] = {}
        end = 0
        for column in columns:
            if column.name in offsets:
                raise SpecError(f"column {column.name!r} appears twice")
            offsets[column.name] = _round_up(end, column.alignment)
            end = offsets[column.name] + column.size
        groups: dict[str, tuple[Column, ...]] = {}
        for column in columns:
            for name in accumulate(column.name.split("/"), "{}/{}".format):
                if name in offsets and name != column.name:
                    raise SpecError(f"{column.name!r} lies inside column {name!r}")
                groups[name] = (*groups.get(name, ()), column)
        if end >= 1 << 31:
            largest = max(columns, key=lambda column: column.size)
            raise SpecError(
                f"a step of {end} bytes, {largest.size} of them in column {largest.name!r} "
                f"{list(largest.shape)}: expected less than {1 << 31}"
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "tuples", frozenset(tuples))
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "record_size", _round_up(end, RECORD_ALIGNMENT))
        deep = next((c.name for c in columns if len(c.shape) > AXES_MAX), None)
        if deep is not None:
            raise SpecError(f"column {deep!r}: more than {AXES_MAX} axes; flatten some")
        record = {
            "names": list(offsets),
            "formats": [(column.dtype, column.shape) for column in columns],
            "offsets": list(offsets.values()),
            "itemsize": self.record_size,
        }
        object.__setattr__(self, "_record", np.dtype(record))

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SpecError(no_column(name, self.names))

    def __hash__(self) -> int:
        return hash((self.columns, self.tuples))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(self.offsets)

    @property
    def padding(self) -> int:
        """Zero bytes in a record that belong to no column."""
        return self.record_size - sum(column.size for column in self.columns)

    def group(self, name: str) -> tuple[Column, ...]:
        """The column called `name`, and every column below "name/"; () where there is none."""
        return self._groups.get(name, ())

    # -- records ---------------------------------------------------------------------------------

    def record_dtype(self) -> np.dtype:
        """The NumPy structured dtype of a record: names, offsets and size as they are stored."""
        return self._record

    def pack(self, values: Mapping[str, Any], count: int, *, partial: bool = False) -> np.ndarray:
        """Columns of [count, *shape] -> records, uint8 [count, record_size], gaps zero.

        With `partial`, columns may be missing; they become zeros (closing rows hold only an
        observation). Raises SpecError that names column, expected and got.
        """
        unknown = [name for name in values if name not in self.offsets]
        if unknown:
            raise SpecError(no_column(unknown[0], self.names))
        records = np.zeros((count, self.record_size), np.uint8)
        fields = records.view(self.record_dtype())[:, 0]
        for column in self.columns:
            if column.name in values:
                fields[column.name] = fitted(column, values[column.name], count)
            elif not partial:
                raise SpecError(
                    f"column {column.name!r} is missing; expected {column.describe()}, "
                    f"got columns {', '.join(values) or 'none'}"
                )
        return records

    def unpack(self, records: np.ndarray) -> dict[str, np.ndarray]:
        """Records, uint8 [..., record_size] C-contiguous -> views of the columns [..., *shape]."""
        fields = records.view(self.record_dtype())[..., 0]
        return {name: fields[name] for name in self.names}

    @staticmethod
    def _require_names(given: Iterable[str], extras: Iterable[str]) -> None:
        """SpecError for what a step was given beyond its own words, where that is not `extras`."""
        known = [*STEP, *extras]
        for name in given:
            if name not in known:
                raise SpecError(DONE if name == "done" else no_column(name, known))
        for name in known[len(STEP) :]:
            if name not in given:
                raise SpecError(f"`{name}` is missing: this table stores it of every step")

    # -- nested values ---------------------------------------------------------------------------

    def flatten(self, name: str, value: Any) -> dict[str, Any]:
        """A nested value (dicts, tuples, arrays) of the group `name` -> {column: leaf}.

        Leaves are passed on as they are, with any leading axes. SpecError where a column is missing
        or unknown.
        """
        flat: dict[str, Any] = {}
        _flatten_into(flat, name, value, self.offsets)
        expected = [column.name for column in self.group(name)]
        for column_name in expected:
            if column_name not in flat:
                raise SpecError(f"column {column_name!r} is missing; got {', '.join(flat)}")
        for column_name in flat:
            if column_name not in expected and not expected:
                raise SpecError(
                    f"no column {name!r}, and each step that a writer adds has one; there are "
                    f"{', '.join(self.names)}: declare it, or hand over rows of any columns with "
                    "writer.append(Rows(...))"
                )
            if column_name not in expected:
                raise SpecError(no_column(column_name, expected))
        return flat

    def unflatten(self, name: str, columns: Mapping[str, Any]) -> Any:
        """{column: leaf} -> the nested value of the group `name`; the inverse of `flatten`."""
        if name in self.offsets:
            return columns[name]
        keys = list(dict.fromkeys(c.name[len(name) + 1 :].split("/")[0] for c in self.group(name)))
        if not keys:
            raise SpecError(no_column(name, self.names))
        entries = {key: self.unflatten(f"{name}/{key}", columns) for key in keys}
        return tuple(entries.values()) if name in self.tuples else entries

    # -- documents -------------------------------------------------------------------------------

    def to_json(self) -> str:
        """A canonical document: equal specs give equal bytes."""
        document = {
            "columns": [column.to_json() for column in self.columns],
            "tuples": sorted(self.tuples),
            "record_size": self.record_size,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Spec:
        """The Spec of a document that `to_json` made; SpecError where the text is another."""
        try:
            document = json.loads(text)
            columns = tuple(
                Column(c["name"], np.dtype(c["dtype"]), tuple(c["shape"]), c["pad"])
                for c in document["columns"]
            )
            spec = Spec(columns, frozenset(document["tuples"]))
            record_size = document["record_size"]
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise SpecError(f"not a spec document: {error!r}") from error
        if record_size != spec.record_size:
            raise SpecError(
                f"a record is {spec.record_size} bytes, the document says {record_size}"
            )
        return spec

    def _differences(self, other: Spec) -> list[str]:
        """What `other` has that this spec has not, one readable line each; empty when they agree.

        "mine" is this spec, "theirs" the other one.
        """
        lines = []
        theirs = {column.name: column for column in other}
        for column in self:
            if column.name not in theirs:
                lines.append(
                    f"{column.name}: mine {column.describe()}, theirs has no such column"
                    + nearest(column.name, [name for name in theirs if name not in self.offsets])
                )
            elif theirs[column.name] != column:
                lines.append(
                    f"{column.name}: mine {column.describe()}, "
                    f"theirs {theirs[column.name].describe()}"
                )
        for column in other:
            if column.name not in self.offsets:
                lines.append(f"{column.name}: theirs {column.describe()}, mine has no such column")
        if not lines and self.names != other.names:
            lines.append(f"order: mine {', '.join(self.names)}; theirs {', '.join(other.names)}")
        if not lines and self.tuples != other.tuples:
            lines.append(f"tuples: mine {sorted(self.tuples)}; theirs {sorted(other.tuples)}")
        return lines


def nearest(name: str, names: Iterable[str]) -> str:
    """ ", nearest is 'reward'" where one of `names` looks like `name`, or `name` is short for it;
    else nothing."""
    if not isinstance(name, str) or not name:
        return ""
    names = list(names)
    found = [whole for whole in names if whole.startswith(name)]
    found = found or difflib.get_close_matches(name, names, n=1)
    return f", nearest is {found[0]!r}" if found else ""


def utf8(name: Any) -> bytes:
    """The bytes of a name; none where it is no text, or holds halves of letters (surrogates)."""
    try:
        return name.encode() if isinstance(name, str) else b""
    except UnicodeEncodeError:
        return b""


def no_column(name: str, names: Iterable[str]) -> str:
    """The sentence for a column that is none of `names`."""
    names = list(names)
    return f"no column {name!r}{nearest(str(name), names)}; there are {', '.join(names)}"


def array_of(name: str, value: Any) -> np.ndarray:
    """`value` as an array: also a torch tensor, wherever it lives and whatever it is part of.

    SpecError where there is none, or numpy has no such thing.
    """
    if value is None:
        also = ": every step says terminated and truncated" if name in FLAGS else ""
        raise SpecError(f"`{name}` is missing{also}")
    if isinstance(value, np.ma.MaskedArray):
        raise SpecError(f"column {name!r}: {MASKED}")
    try:
        if hasattr(value, "detach"):
            return value.detach().cpu().numpy()
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        if not hasattr(value, "dtype"):
            raise SpecError(
                f"column {name!r}: numpy cannot hold it ({error}); give numbers, in lists of one "
                "length"
            ) from error
        kind = f"{type(value).__name__} of {value.dtype}"
        raise SpecError(
            f"column {name!r}: numpy cannot hold {kind} ({error}); convert it, such as by .float()"
        ) from error


def flags_of(mask: Any, count: int) -> np.ndarray:
    """`mask` as bool [count], one an environment; SpecError for indices: they look like flags."""
    array = array_of("mask", mask)
    if array.dtype != np.bool_ or array.shape != (count,):
        raise SpecError(
            f"mask: expected bool ({count},), one flag an environment, got {array.dtype} "
            f"{array.shape}; make flags of indices by np.isin(np.arange({count}), indices)"
        )
    return array


def fitted(column: Column, value: Any, count: int) -> np.ndarray:
    """`value` as an array [count, *shape] that the column can hold without changing its meaning.

    Floats may become narrower floats (Gymnasium rewards are float64) and integers floats; integers
    in an integer column must keep their values; bool and numbers do not mix. Raises SpecError
    naming column, expected and got.
    """
    array = value if type(value) is np.ndarray else array_of(column.name, value)
    if array.shape != (count, *column.shape):
        raise SpecError(
            f"column {column.name!r}: expected shape {(count, *column.shape)}, got {array.shape}"
        )
    if array.dtype == column.dtype:
        return array
    widens = np.can_cast(array.dtype, column.dtype, casting="safe") and (
        (array.dtype.kind == "b") == (column.dtype.kind == "b")
    )
    narrows = array.dtype.kind in "iuf" and column.dtype.kind == "f"
    if array.dtype.kind in "iu" and column.dtype.kind in "iu" and not widens:
        limits = np.iinfo(column.dtype)
        narrows = not array.size or (array.min() >= limits.min and array.max() <= limits.max)
        if not narrows:
            raise SpecError(
                f"column {column.name!r}: {column.dtype.name} holds {limits.min} to {limits.max}, "
                f"got {array.min()} to {array.max()}"
            )
    if not (widens or narrows):
        raise SpecError(
            f"column {column.name!r}: expected dtype {column.dtype.name}, got {array.dtype.name}"
        )
    with np.errstate(over="ignore", under="ignore"):
        cast = array.astype(column.dtype)
    if column.dtype.kind == "f" and not widens:
        lost = np.isinf(cast) & ~np.isinf(array)
        if lost.any():
            raise SpecError(
                f"column {column.name!r}: {column.dtype.name} holds numbers up to "
                f"{np.finfo(column.dtype).max:.3g}, got {array[lost][0]:.3g}"
            )
    return cast


def require_finite(
    name: str, array: np.ndarray, rows: np.ndarray | None = None, leading: bool = True
) -> None:
    """SpecError that names the first NaN or infinity of column `name`; integers hold none.

    rows     the caller's numbers of the array's rows, where it is given some of them only
    leading  False: the caller's array has no axis of rows
    """
    if array.dtype.kind != "f":
        return
    wrong = ~np.isfinite(array)
    if wrong.any():
        place = [int(i) for i in np.argwhere(wrong)[0]]
        found = array[tuple(place)]
        place[:1] = ([place[0]] if rows is None else [int(rows[place[0]])]) * leading
        where = f" at {place}" if place else ""
        remedy = (
            "; find where it is made"
            if name.split("/")[0] in ALWAYS_FINITE
            else "; find where the environment makes it (a program of your own may say "
            "finite_observations=False)"
        )
        raise SpecError(
            f"column {name!r}: expected finite numbers, got {found}{where}{remedy}: one such "
            "number in a batch makes every weight of a learner NaN"
        )


def _flatten_into(flat: dict[str, Any], name: str, value: Any, leaves: Mapping[str, int]) -> None:
    if name in leaves:
        flat[name] = value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            _flatten_into(flat, f"{name}/{key}", entry, leaves)
    elif isinstance(value, tuple | list):
        for i, entry in enumerate(value):
            _flatten_into(flat, f"{name}/{i}", entry, leaves)
    else:
        flat[name] = value


def spec_from(
    env: Any, *, extras: Iterable[Column] = (), pad: str | Mapping[str, str] = "zero"
) -> Spec:
    """The Spec of one step of one environment, for a Gymnasium Env or VectorEnv.

    extras    more columns, after the others
    pad       of the observation columns, what stands before an episode's start: "zero" or "first",
              one for all or {column: pad}

    The columns are "observation" (or "observation/..."), "action" (or "action/..."), "reward"
    float32, "terminated" bool, then `extras`. Raises SpecError that names the space that is not
    supported: Box, Discrete, MultiBinary, MultiDiscrete, and Dict and Tuple of these are.
    """
    if not hasattr(env, "observation_space") or not hasattr(env, "action_space"):
        raise SpecError(f"expected a Gymnasium Env or VectorEnv, got {env!r}")
    if hasattr(env, "single_observation_space"):
        observation, action = env.single_observation_space, env.single_action_space
    else:
        observation, action = env.observation_space, env.action_space
    tuples: set[str] = set()
    observations = list(_leaves("observation", observation, tuples))
    pads = {name: pad for name, _, _ in observations} if isinstance(pad, str) else dict(pad)
    for name in pads:
        if name not in [leaf[0] for leaf in observations]:
            raise SpecError(f"pad names {name!r}, which is not an observation column")
    columns = [Column(name, d, s, pads.get(name, "zero")) for name, d, s in observations]
    columns += [Column(name, d, s) for name, d, s in _leaves("action", action, tuples)]
    columns += [Column("reward", np.dtype(np.float32)), Column("terminated", np.dtype(np.bool_))]
    more = (extras,) if isinstance(extras, Column) else extras
    return Spec((*columns, *more), frozenset(tuples))


def _leaves(
    name: str, space: Any, tuples: set[str]
) -> Iterator[tuple[str, np.dtype, tuple[int, ...]]]:
    from gymnasium import spaces

    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        yield name, np.dtype(space.dtype), tuple(space.shape)
        return
    if isinstance(space, spaces.Dict):
        entries = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        entries = [(str(i), entry) for i, entry in enumerate(space.spaces)]
        tuples.add(name)
    else:
        raise SpecError(
            f"{name!r} is a {type(space).__name__} space, which has no fixed size in bytes; "
            "supported are Box, Discrete, MultiBinary, MultiDiscrete, and Dict and Tuple of these"
        )
    if not entries:
        raise SpecError(f"{name!r} is an empty {type(space).__name__} space")
    for key, entry in entries:
        if not isinstance(key, str) or not key or "/" in key:
            raise SpecError(f"{name!r} has the key {key!r}; expected a string without '/'")
        yield from _leaves(f"{name}/{key}", entry, tuples)
