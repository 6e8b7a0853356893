"""Options checked where they are given: one sentence with the name, the value and what is legal.

Each function returns the value as the plain Python type that the rest of the package counts on, or
raises ConfigError. `what` is the option as its owner calls it: "NStep(n)", "capacity".
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import ConfigError
from ..spec import MASKED, nearest

if TYPE_CHECKING:
    from typing_extensions import Self

TINY, HUGE = sys.float_info.min, sys.float_info.max  # above nothing, below infinity
SECONDS_MAX = 1e9
SHARDS_MAX = 16  # servers beside each other, of one `serve`
NUMBERS = (int, float, np.generic, type(None))
NAMED, LISTED = (dict, Mapping), (tuple, list)
SHOWN_MAX = 100  # letters of a value in a sentence


class Keyworded:
    """Base of dataclasses that refuse an unknown keyword with the one that is meant, or nearest."""

    _MEANT: ClassVar[dict[str, str]] = {}  # what other libraries call it: our name

    def __new__(cls, *_: Any, **named: Any) -> Self:
        names = [field.name for field in fields(cls) if field.init]
        for name in named:
            if name not in names:
                meant = cls._MEANT.get(name)
                hint = f", it is {meant!r}" if meant else nearest(name, names)
                there = ", ".join(names)
                raise ConfigError(f"{cls.__name__}: no option {name!r}{hint}; there are {there}")
        return object.__new__(cls)


def whole(
    what: str, value: Any, least: int, most: int | None = None, error: type[Exception] = ConfigError
) -> int:
    """A whole number from `least` to `most`; True and 2.5 are none, np.int64(3) is one."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        legal = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        raise error(f"{what} is {value!r}; expected a whole number {legal}")
    return number


def real(what: str, value: Any, least: float, most: float, why: str = "") -> float:
    """A number from `least` to `most`, both included; NaN is none. `why` ends the sentence."""
    try:
        number = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        legal = f"from {least:g} to {most:g}"
        if most == HUGE:
            legal = {TINY: "above 0", -HUGE: "that is finite"}.get(least, f"of at least {least:g}")
        raise ConfigError(f"{what} is {value!r}; expected a number {legal}{why}")
    return number


def seconds(what: str, value: Any) -> float:
    """A time-out."""
    return real(what, value, 0.0, SECONDS_MAX, " of seconds")


def flag(what: str, value: Any) -> bool:
    """True or False; 1 and 0 are taken for them, "no" is not."""
    try:
        return bool(whole(what, int(value) if isinstance(value, bool) else value, 0, 1))
    except ConfigError:
        raise ConfigError(f"{what} is {value!r}; expected True or False") from None


def whole_numbers(what: str, values: Any) -> np.ndarray:
    """`values` as an array of int64; ConfigError for fractions, which would be cut."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ConfigError(f"{what}: expected whole numbers, got {array.dtype}; convert them first")
    return array.astype(np.int64, copy=False)


def numbers_of(what: str, values: Any) -> Any:
    """`values` as numpy takes them: of a tensor its memory, bfloat16 as float64. ConfigError for
    complex numbers, of which numpy would take a part, and for masked ones: it takes all."""
    if isinstance(values, np.ma.MaskedArray):
        raise ConfigError(f"{what}: {MASKED}")
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.numpy() if not values.is_floating_point() else values.double().numpy()
    if np.iscomplexobj(values):
        raise ConfigError(f"{what}: expected real numbers, got {np.asarray(values).dtype}")
    return values


def one_of(what: str, value: Any, kinds: tuple[type, ...], example: str) -> None:
    """Refuses what is not an object of one of these classes."""
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN_MAX else f"an object of {type(value).__name__}"
        raise ConfigError(f"{what} is {shown}; expected {names}, such as {example}")


def odd_pair(one: Any, other: Any) -> bool:
    """Whether leaves of two observations lie in the same memory, or differ in kind or shape: found
    at little cost, since it is asked at every step. None is no odd one: it was not given."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        owned = one.base is None is other.base
        shared = not owned and np.may_share_memory(one, other) and same_memory(one, other)
        return shared or one is other or one.shape != other.shape
    if isinstance(one, NUMBERS):
        return not (isinstance(other, NUMBERS) or getattr(other, "shape", None) == ())
    if isinstance(one, NAMED) and isinstance(other, NAMED):
        return any(odd_pair(leaf, other.get(name)) for name, leaf in one.items())
    if isinstance(one, LISTED) and isinstance(other, LISTED):
        flat = isinstance(one, list) and (not one or isinstance(one[0], NUMBERS))
        same = one is other if flat else any(map(odd_pair, one, other))
        return same or len(one) != len(other)
    shapes = [getattr(each, "shape", None) for each in (one, other)]
    if shapes[0] is not None and shapes[1] is None and other is not None:
        return True
    if isinstance(one, (*NAMED, *LISTED)):
        return other is not None
    return (None not in shapes and shapes[0] != shapes[1]) or same_memory(one, other)


def same_memory(one: Any, other: Any) -> bool:
    """Whether every array, tensor or list of an observation's leaf lies where that of the other
    does. Numbers lie nowhere."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        places = [each.__array_interface__["data"][0] for each in (one, other)]
        return places[0] == places[1]
    if hasattr(one, "data_ptr") and hasattr(other, "data_ptr"):
        return one.data_ptr() == other.data_ptr()
    if one is other and not isinstance(one, tuple):
        return not isinstance(one, NUMBERS)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) > 0 and all(map(same_memory, one, other))
    return False
