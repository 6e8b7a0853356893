"""server.toml: what `replay-server serve FILE` serves. deploy/server.toml is the example.

    [server]                       any field of ServerOptions
    url = "udp://127.0.0.1:7400"

    [metrics]                      optional: metrics.py has its fields
    address = "127.0.0.1:9464"

    [[table]]                      one section a table
    name = "main"
    capacity = 1_000_000
    env = "CartPole-v1"            the columns of a Gymnasium environment ("ALE/Pong-v5": of any
                                   Atari game, without ale-py), or written out:
    columns = [{ name = "observation", dtype = "float32", shape = [4], pad = "zero" }, ...]
    pad = "zero"                   before an episode's start; of observation columns without their
                                   own, "first" repeats the episode's first row
    plan = { n_step = 3, stack = 1 }             or { sequence = 80, n_step = 5, state = ["h"] }
    sampler = "prioritized"        by priority ** alpha; or "uniform"
    alpha = 0.6
    min_size = 1000                items before the first draw
    samples_per_insert = 4.0       draws of each item on average; without: no limit
    error_buffer = 400.0           how far off that inserts and draws may run ahead
    fifo = 1024                    in place of all from sampler on: items are drawn in order, each
                                   once, and writers wait while so many wait to be drawn
    writers = 4
    streams = 64

Several plans: `[table.plans.NAME]` sections instead of `plan`. Without any: plain rows. Every
mistake is a ConfigError of one sentence that names the file, the section and the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import ConfigError, ReplayError
from ..observe.metrics import MetricsOptions
from ..plans import NStep, Plan, Row, Sequence
from ..server import ServerOptions
from ..spec import PADS, Column, Spec, SpecError, spec_from
from ..support.arguments import nearest
from ..support.toml import parsed
from ..support.values import HUGE, real, whole
from ..table import (
    CAPACITY_MAX,
    ITEMS_MAX,
    Fifo,
    MinSize,
    Prioritized,
    SamplesPerInsert,
    Table,
    Uniform,
)

Options = TypeVar("Options", ServerOptions, MetricsOptions)
DRAWING = ("sampler", "alpha", "min_size", "samples_per_insert", "error_buffer")
TABLE_FIELDS = (
    *("name", "capacity", "env", "columns", "pad", "plan", "plans"),
    *(*DRAWING, "fifo"),
    *("writers", "streams", "window"),
)

COLUMN_FIELDS = ("name", "dtype", "shape", "pad")


@dataclass(frozen=True)
class ServerConfig:
    """The content of a file: the tables, the server's options, the metrics endpoint."""

    tables: tuple[Table, ...]
    options: ServerOptions
    metrics: MetricsOptions


def load(path: str | Path) -> ServerConfig:
    """The config in a file; ConfigError with one sentence where it is not one."""
    try:
        return from_document(parsed(Path(path)))
    except (ReplayError, SpecError) as error:
        raise ConfigError(f"{path}: {error}") from error


def from_document(document: Mapping[str, Any]) -> ServerConfig:
    """The configuration from what a TOML parser returns."""
    sections = {"server": "[server]", "metrics": "[metrics]", "table": "[[table]]"}
    for name, value in document.items():
        if name not in sections:
            _refuse(name, value, sections)
    options = _options(document, "server", ServerOptions)
    metrics = _options(document, "metrics", MetricsOptions)
    tables = document.get("table", [])
    if isinstance(tables, dict) and tables:
        name = next(iter(tables))
        of = f"[table.{name}] is" if isinstance(tables[name], dict) else "[table] is"
        raise ConfigError(
            f'{of} no table of a server: write [[table]], and name = "..." below it for each'
        )
    if not isinstance(tables, list) or not tables:
        raise ConfigError("no [[table]] section; a server needs at least one")
    sections = (_section(entry, "[[table]]") for entry in tables)
    read = tuple(_table(entry, i) for i, entry in enumerate(sections))
    return ServerConfig(read, options, metrics)


def _refuse(name: str, value: Any, sections: Mapping[str, str]) -> None:
    """ConfigError for what stands at the top of a file and is no section of ours."""
    if isinstance(value, Mapping | list):
        close = sections[nearest(name, sections)]
        raise ConfigError(f"unknown section [{name}]; the nearest is {close}")
    server, metrics = ({field.name for field in fields(k)} for k in (ServerOptions, MetricsOptions))
    known = {"[[table]]": {*TABLE_FIELDS}, "[metrics]": metrics, "[server]": server}
    below = [section for section, names in known.items() if name in names]
    if below:
        raise ConfigError(f"{name} stands above all sections; it belongs below {below[-1]}")
    raise ConfigError(
        f"{name} stands above all sections, and is no field of {', '.join(sections.values())}"
    )


def _section(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is {value!r}; expected a section")
    return dict(value)


# What a file has for a field of this annotation.
TYPES = {"bool": bool, "int": int, "int | None": int, "str": str, "str | None": str}


def _options(document: Mapping[str, Any], name: str, kind: type[Options]) -> Options:
    """The section [name] as the dataclass `kind`, each field of its type."""
    section = _section(document.get(name, {}), f"[{name}]")
    known = {field.name: str(field.type) for field in fields(kind)}
    for field, value in section.items():
        if field not in known:
            close = nearest(field, known)
            raise ConfigError(f"[{name}] has no field {field!r}; the nearest is {close!r}")
        wanted = TYPES[known[field]]
        if type(value) is not wanted:
            raise ConfigError(f"[{name}] {field} is {value!r}; expected {wanted.__name__}")
    return kind(**section)


def _table(section: dict[str, Any], number: int) -> Table:
    where = f"[[table]] {section.get('name', number + 1)!r}"
    for name in section:
        if name not in TABLE_FIELDS:
            close = nearest(name, TABLE_FIELDS)
            raise ConfigError(f"{where} has no field {name!r}; the nearest is {close!r}")
    if "name" not in section:
        raise ConfigError(f"{where} has no name")
    numbers = {n: section[n] for n in ("capacity", "writers", "streams", "window") if n in section}
    for name, value in numbers.items():
        if type(value) is not int:
            raise ConfigError(f"{where}: {name} is {value!r}; expected an integer")
    try:
        return Table(
            name=str(section["name"]),
            step=_spec(section, where),
            plan=_plans(section, where),
            sampler=_sampler(section, where),
            limiter=_limiter(section, where),
            **numbers,
        )
    except (SpecError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _spec(section: Mapping[str, Any], where: str) -> Spec:
    if ("env" in section) == ("columns" in section):
        raise ConfigError(f"{where} needs either env or columns")
    pad = section.get("pad", "zero")
    if pad not in PADS and not ("env" in section and isinstance(pad, dict)):
        raise ConfigError(f"{where}: pad is {pad!r}; expected one of {PADS}")
    if "env" in section:
        return _spec_of_env(str(section["env"]), pad, where)
    if not isinstance(section["columns"], list):
        raise ConfigError(f"{where}: columns is {section['columns']!r}; expected a list of columns")
    spec = Spec(_column(entry, pad, where) for entry in section["columns"])
    if "pad" in section and not spec.group("observation"):
        raise ConfigError(f"{where}: pad is of observation columns, and there are none")
    return spec


def _column(entry: Any, pad: str, where: str) -> Column:
    """A column as written; one of the observation's has the table's `pad`, where it has none."""
    entry = _section(entry, f"{where}: a column")
    for name in entry:
        if name not in COLUMN_FIELDS:
            close = nearest(name, COLUMN_FIELDS)
            raise ConfigError(f"{where}: a column has {name!r}; the nearest is {close!r}")
    if "name" not in entry or "dtype" not in entry:
        raise ConfigError(f"{where}: column {entry!r}; expected name, dtype, shape, pad")
    name = str(entry["name"])
    default = pad if name.split("/")[0] == "observation" else "zero"
    return Column(name, entry["dtype"], entry.get("shape", ()), entry.get("pad", default))


def atari_spec(pad: str = "zero") -> Spec:
    """The columns of any ALE game, as training/atari.py plays it: one new frame a step."""
    frame = Column("observation", np.dtype(np.uint8), (84, 84), pad)
    facts = {"action": np.int64, "reward": np.float32, "terminated": np.bool_}
    return Spec((frame, *(Column(name, np.dtype(kind)) for name, kind in facts.items())))


def _spec_of_env(name: str, pad: str | dict[str, str], where: str) -> Spec:
    if name.startswith("ALE/"):
        return atari_spec(pad)
    try:
        from ..training.envs import EnvError, make_env
    except ImportError as error:
        raise ConfigError(f"{where}: env needs gymnasium: pip install gymnasium") from error
    try:
        env = make_env(name)
    except EnvError as error:
        raise ConfigError(f"{where}: {error}") from error
    try:
        return spec_from(env, pad=pad)
    finally:
        env.close()


def _plans(section: Mapping[str, Any], where: str) -> Plan | dict[str, Plan]:
    if "plans" in section:
        if "plan" in section:
            raise ConfigError(f"{where} has both plan and plans")
        named = _section(section["plans"], f"{where}: plans")
        return {name: _plan(plan, where) for name, plan in named.items()}
    return _plan(section["plan"], where) if "plan" in section else Row()


def _plan(value: Any, where: str) -> Plan:
    if value == "row":
        return Row()
    given = _section(value, f"{where}: plan")
    if "sequence" in given:
        names = {"sequence": "length", "n_step": "n", "state": "state"}
        return Sequence(**_renamed(given, names, where))
    if not given:
        raise ConfigError(
            f"{where}: plan is empty; expected {{ n_step = 1 }} or {{ sequence = 8 }}"
        )
    chosen = _renamed(given, {"n_step": "n", "stack": "stack"}, where)
    return NStep(**{"n": 1, **chosen})


def _renamed(given: Mapping[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    for name in given:
        if name not in names:
            close = nearest(name, {*names, "sequence"})  # which makes it another plan
            raise ConfigError(f"{where}: plan has {name!r}; the nearest is {close!r}")
    return {names[name]: value for name, value in given.items()}


def _sampler(section: Mapping[str, Any], where: str) -> Prioritized | Uniform | Fifo:
    if "fifo" in section:
        for name in DRAWING:
            if name in section:
                raise ConfigError(f"{where}: a table with fifo draws in order: leave {name} out")
        return Fifo(whole(f"{where}: fifo", section["fifo"], 1, CAPACITY_MAX))
    kind = section.get("sampler", "prioritized")
    if kind not in ("prioritized", "uniform"):
        raise ConfigError(f"{where}: sampler is {kind!r}; expected 'prioritized' or 'uniform'")
    if kind == "uniform":
        if "alpha" in section:
            raise ConfigError(f"{where}: a uniform sampler has no alpha")
        return Uniform()
    if "alpha" not in section:
        return Prioritized()
    return Prioritized(_number(section["alpha"], "alpha", where))


def _limiter(section: Mapping[str, Any], where: str) -> MinSize | SamplesPerInsert:
    size = section.get("min_size", 1)
    size = int(size) if isinstance(size, float) and size.is_integer() else size  # 1e6
    size = whole(f"{where}: min_size", size, 1, ITEMS_MAX)
    if "samples_per_insert" not in section:
        if "error_buffer" in section:
            raise ConfigError(f"{where}: error_buffer needs samples_per_insert")
        return MinSize(size)
    ratio = _number(section["samples_per_insert"], "samples_per_insert", where)
    buffer = section.get("error_buffer")
    if buffer is None:
        return SamplesPerInsert(ratio, size)
    if isinstance(buffer, list) and len(buffer) == 2:
        bounds = (_number(bound, "error_buffer", where) for bound in buffer)
        return SamplesPerInsert(ratio, size, tuple(bounds))
    return SamplesPerInsert(ratio, size, _number(buffer, "error_buffer", where))


def _number(value: Any, name: str, where: str) -> float:
    return real(f"{where}: {name}", value, -HUGE, HUGE)
