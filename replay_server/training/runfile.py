"""run.toml: the options of a run's programs in one file, named as on the command line.

    seed = 3                    for every program that has this option
    learning_rate = 5e-4        also "learning-rate", as the flag is written
    hidden = [128, 128]
    reward_clip = "none"        where an option may be none

    [learner]                   for this program alone; wins over what stands above
    updates = 20_000

A flag on the command line wins over the file, the file over the preset and the defaults. Every
program reads the whole file and refuses what none of them has, so that one mistake stops all of
them: a ConfigError of one sentence, with the nearest name. `write` makes such a file, with every
value in it, from which the same program can be started again.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..support.arguments import NONE, kind_of, nearest
from ..support.toml import parsed
from .runs import replace_text

Options = Mapping[str, tuple[type, ...]]  # program: the dataclasses that its options come from
EXPECTED = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


def load(path: Path, programs: Options) -> dict[str, dict[str, Any]]:
    """{program: {option: value}} of what the file says to each; ConfigError names the mistake."""
    known = {name: _annotations(classes) for name, classes in programs.items()}
    everyone = {name: kind for kinds in known.values() for name, kind in kinds.items()}
    try:
        document = parsed(path)
        tables = {name: part for name, part in document.items() if isinstance(part, dict)}
        own = {name: _read_table(name, table, known) for name, table in tables.items()}
        shared = {name: value for name, value in document.items() if name not in tables}
        _read(shared, everyone, "")  # every name is somebody's
        for name, kinds in known.items():
            theirs = {key: value for key, value in shared.items() if _plain(key) in kinds}
            own[name] = _read(theirs, kinds, "") | own.get(name, {})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return own


def write(path: Path, comment: str, values: Mapping[str, Any], **tables: Mapping[str, Any]) -> None:
    """The whole file or nothing: a comment, the shared values, then a table for each program."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"{name} = {text_of(value)}" for name, value in values.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]"] + [f"{key} = {text_of(value)}" for key, value in table.items()]
    replace_text(path, "\n".join(lines) + "\n")


def saved(args: Any) -> dict[str, Any]:
    """The values of a dataclass that belong into a file."""
    fields = [field for field in dataclasses.fields(args) if field.metadata.get("saved", True)]
    return {field.name: getattr(args, field.name) for field in fields}


def text_of(value: Any) -> str:
    """A value as TOML."""
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(text_of(part) for part in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)  # TOML's basic strings escape as JSON does


def _annotations(classes: tuple[type, ...]) -> dict[str, Any]:
    """{option: its type} of all fields that may stand in a file."""
    found = {}
    for cls in classes:
        kinds = typing.get_type_hints(cls)
        fields = [field for field in dataclasses.fields(cls) if field.metadata.get("saved", True)]
        found |= {field.name: kinds[field.name] for field in fields}
    return found


def _plain(name: str) -> str:
    """An option's name in Python, as a file may write it like the flag."""
    return name.replace("-", "_")


def _read_table(name: str, table: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    if name not in known:
        every = {option for kinds in known.values() for option in kinds}
        if _plain(name) in every:
            raise ConfigError(f"{name!r} is an option, not a section: write {name} = VALUE")
        raise ConfigError(f"no section [{name}]; the nearest is [{nearest(name, known)}]")
    return _read(table, known[name], f" in [{name}]")


def _read(section: Mapping[str, Any], kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for written, value in section.items():
        name = _plain(written)
        if name not in kinds:
            close = nearest(name, kinds)
            raise ConfigError(f"no option {written!r}{where}; the nearest is {close!r}")
        if name in found:
            raise ConfigError(f"{name} stands there twice{where}, with - and with _")
        found[name] = _value(written + where, value, kinds[name])
    return found


def _value(what: str, value: Any, annotation: Any) -> Any:
    """`value` as the option's type."""
    kind, optional = kind_of(annotation)
    if optional and value == NONE:
        return None
    if typing.get_origin(kind) is tuple:
        if isinstance(value, list) and all(type(part) is int for part in value):
            return tuple(value)
        raise ConfigError(f"{what} is {_shown(value)}; expected integers such as [128, 128]")
    if kind is float and type(value) is int:
        return float(value)
    written = str if kind is Path else kind
    if type(value) is not written:
        expected = EXPECTED[written] + (f', or "{NONE}"' if optional else "")
        raise ConfigError(f"{what} is {_shown(value)}; expected {expected}")
    return kind(value)


def _shown(value: Any) -> str:
    """A value of the file as it stands there, cut short."""
    try:
        text = text_of(value)
    except TypeError:
        text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
