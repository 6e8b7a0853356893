"""Command lines from dataclasses: a field is an option, its "help" metadata the sentence in --help.

    @dataclass
    class Args:
        seed: int = option("Seed of everything this process draws.", 1)

    args = parse(Args, "what the program does", argv)

Types understood: str, int, float, bool (--flag / --no-flag), Path, tuples of int (1,2,3), each
also with `| None`. A field without a default is required. `document(args)` is plain JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

Arguments = TypeVar("Arguments")


def option(sentence: str, default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field with its sentence for --help."""
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={"help": sentence})
    return dataclasses.field(default=default, metadata={"help": sentence})


def argument(sentence: str) -> Any:
    """A required field given by its place in the command line, not by a name."""
    return dataclasses.field(metadata={"help": sentence, "positional": True})


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _converter(kind: Any) -> Any:
    """What turns an option's text into `kind`; the part beside None of an optional type."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is tuple:
        return _integers
    return kind


def add_options(parser: argparse.ArgumentParser, cls: type, *, keep_unset: bool = False) -> None:
    """One option for each field of `cls`; with keep_unset, what is not given is not set at all."""
    kinds = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind = _converter(kinds[field.name])
        if field.metadata.get("positional"):
            parser.add_argument(field.name, type=kind, help=field.metadata["help"])
            continue
        required = field.default is dataclasses.MISSING and not keep_unset
        sentence = field.metadata.get("help", "")
        shown = "" if required or keep_unset else f" [{field.default}]"
        settings: dict[str, Any] = {"help": (sentence + shown).replace("%", "%%")}
        if kind is bool:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings |= {"type": kind, "metavar": getattr(kind, "__name__", "VALUE").strip("_")}
        default = argparse.SUPPRESS if keep_unset or required else field.default
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, dest=field.name, default=default, required=required, **settings)


def parse(cls: type[Arguments], sentence: str, argv: Sequence[str] | None = None) -> Arguments:
    """`argv` (default: the process's) as an instance of `cls`; --help and mistakes exit."""
    parser = argparse.ArgumentParser(description=sentence, allow_abbrev=False)
    add_options(parser, cls)
    return cls(**vars(parser.parse_args(argv)))


def document(args: Any) -> dict[str, Any]:
    """The arguments as plain JSON, paths as text."""
    fields = dataclasses.asdict(args)
    return {name: str(v) if isinstance(v, Path) else v for name, v in fields.items()}
