"""Command lines from dataclasses: a field is an option, its "help" metadata the sentence in --help.

    @dataclass
    class Args:
        seed: int = option("Seed of everything this process draws.", 1)

    args = parse(Args, "what the program does", argv)

Types understood: str, int, float, bool (--flag / --no-flag), Path, tuples of int (1,2,3), each
also with `| None`, written "none". A field without a default is required. A mistake ends in one
sentence that names the nearest option. runfile.py reads the same fields from a file.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

Arguments = TypeVar("Arguments")
NONE = "none"
SHOWN: dict[Any, str] = {str: "NAME", int: "N", float: "X", Path: "PATH"}  # a value, in --help
SHORT = {"lr": "learning-rate", "batch-size": "batch", "num-envs": "envs", "gpu": "device"}


def option(
    sentence: str, default: Any = dataclasses.MISSING, *, saved: bool = True, shown: str = ""
) -> Any:
    """A dataclass field with its sentence for --help, which shows its value as `shown`, or by its
    type. Not `saved`: a flag only, in no file."""
    metadata = {"help": sentence, "saved": saved, "shown": shown}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def argument(sentence: str) -> Any:
    """A required field given by its place in the command line, not by a name."""
    return dataclasses.field(metadata={"help": sentence, "positional": True, "saved": False})


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def nearest(wrong: str, names: Iterable[str]) -> str:
    """The one of `names` that `wrong` is short for, or that is written most like it."""
    names, meant = list(names), SHORT.get(_plain(wrong))
    for name in names:
        if _plain(name) == meant:
            return name
    return difflib.get_close_matches(wrong, sorted(names), n=1, cutoff=0.0)[0]


def kind_of(annotation: Any) -> tuple[Any, bool]:
    """(the type, may it be none): the part beside None of an optional type."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        parts = typing.get_args(annotation)
        return next(part for part in parts if part is not type(None)), type(None) in parts
    return annotation, False


class ShowVersion(argparse.Action):
    """--version: one line, and the end."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        sentence = "Print the version and end."
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=sentence)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            version_text = version("replay-server")
        except PackageNotFoundError:
            version_text = "of a checkout that is not installed"
        print(f"replay-server {version_text}")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse, whose mistakes are one sentence; options are never guessed from their beginning."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)
        self.add_argument("--version", action=ShowVersion)

    def error(self, message: str) -> NoReturn:
        """One sentence and exit code 2."""
        self.exit(2, f"{self.prog}: {message}; --help lists every option\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The error of argparse, with the nearest option where one is not known."""
        found, unknown = self.parse_known_args(args, namespace)
        for word in unknown:
            if word.startswith("--"):
                name = word.split("=")[0]
                options = [o for o in self._asked(found) if o.startswith("--")]
                self.error(f"no option {name}; the nearest is {nearest(name, options)}")
        if unknown:
            self.error(f"{unknown[0]!r} is not expected here")
        return found

    def _asked(self, found: argparse.Namespace) -> Iterable[str]:
        """The options of the command that was asked for, or its own where it has none."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return action.choices[getattr(found, action.dest)]._option_string_actions
        return self._option_string_actions


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected numbers as in 64,64, and no brackets"
        ) from error


def _converter(annotation: Any) -> Any:
    """What turns an option's text into a value of this type."""
    kind, optional = kind_of(annotation)
    convert = _integers if typing.get_origin(kind) is tuple else kind
    if not optional:
        return convert

    def convert_or_none(text: str) -> Any:
        return None if text == NONE else convert(text)

    convert_or_none.__name__ = getattr(convert, "__name__", "value")
    return convert_or_none


def add_options(
    parser: Any, cls: type, *, keep_unset: bool = False, show_defaults: bool | None = None
) -> None:
    """One option for each field of `cls`; with keep_unset, what is not given is not set at all."""
    show_defaults = not keep_unset if show_defaults is None else show_defaults
    kinds = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.metadata.get("positional"):
            kind = _converter(kinds[field.name])
            parser.add_argument(field.name, type=kind, help=field.metadata["help"])
            continue
        has_default = field.default is not dataclasses.MISSING
        required = not has_default and not keep_unset
        sentence = field.metadata.get("help", "")
        shown = f" [{_text(field.default)}]" if has_default and show_defaults else ""
        settings: dict[str, Any] = {"help": (sentence + shown).replace("%", "%%")}
        if kind_of(kinds[field.name])[0] is bool:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            kind = kind_of(kinds[field.name])[0]
            shown = field.metadata.get("shown") or SHOWN.get(kind, "N,N")
            settings |= {"type": _converter(kinds[field.name]), "metavar": shown}
        default = argparse.SUPPRESS if keep_unset or required else field.default
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, dest=field.name, default=default, required=required, **settings)


def _text(default: Any) -> str:
    """A default as a person would type it."""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return NONE if default is None else str(default)


def parse(
    cls: type[Arguments],
    sentence: str,
    argv: Sequence[str] | None = None,
    program: str | None = None,
) -> Arguments:
    """`argv` (default: the process's) as an instance of `cls`; --help and mistakes exit, in the
    name of `program` (default: the file's)."""
    parser = Parser(prog=program, description=sentence)
    add_options(parser, cls)
    try:
        return cls(**vars(parser.parse_args(argv)))
    except ValueError as wrong:
        parser.error(str(wrong))
