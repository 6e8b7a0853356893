"""Tables and server.toml: what is right becomes a Table, what is wrong one sentence."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from deploy.table import server_toml, table_for
from replay_server import (
    Column,
    ConfigError,
    Fifo,
    MinSize,
    NStep,
    Prioritized,
    Row,
    SamplesPerInsert,
    Sequence,
    Server,
    ServerOptions,
    Spec,
    Table,
    Uniform,
    server,
    spec,
    table,
)
from replay_server.__main__ import ServeArgs, _from_options
from replay_server._native import ffi, lib
from replay_server.observe.metrics import MetricsOptions
from replay_server.server import Config
from replay_server.serving import config
from replay_server.training.presets import preset

ROOT = Path(__file__).resolve().parents[2]
SPEC = Spec((Column("x", np.float32, (2,)), Column("y", np.uint8, (), "first")))


def test_the_example_is_a_config():
    """Given deploy/server.toml, its comments taken away too. Expect the tables it describes."""
    loaded = config.load(ROOT / "deploy/server.toml")
    (table,) = loaded.tables
    assert (table.name, table.capacity, table.layout.plans[0].plan) == ("main", 100_000, NStep(3))
    assert (table.sampler, table.limiter) == (Prioritized(0.6), MinSize(1000))
    assert (loaded.options.url, loaded.options.seed) == ("udp://127.0.0.1:7400", 1)


def test_the_commented_examples_are_configs(tmp_path):
    """Given the sections that deploy/server.toml only shows. Expect them to load as well."""
    lines = (ROOT / "deploy/server.toml").read_text().splitlines()
    shown = lines[next(i for i, line in enumerate(lines) if line.startswith("# [[table]]")) :]
    text = "\n".join(line.removeprefix("#").strip() for line in shown)
    text = text.replace("Pixels, stacked by four, each item drawn four times on average:", "")
    path = tmp_path / "server.toml"
    path.write_text(text)
    rows, pixels = config.load(path).tables
    assert rows.sampler == Uniform() and rows.layout.plans[0].plan == Row()
    assert pixels.layout.plans[0].plan == NStep(3, stack=4)
    assert pixels.limiter == SamplesPerInsert(4.0, 50_000, 20_000.0)
    assert pixels.step["observation"].pad == "first"


def test_a_table_of_an_environment_has_the_writers_that_serve_was_told():
    """Given `serve --env NAME`, alone and with --writers. Expect as many places, or the default."""
    for given, places in (({}, 4), ({"writers": 2}, 2)):
        (table,) = _from_options({"env": "CartPole-v1", **given}).tables
        assert (table.writers, table.capacity) == (places, 100_000)


def test_a_pad_beside_columns_is_the_observations(tmp_path):
    """Given `pad` beside columns. Expect it of each observation column without one of its own, and
    of no other column."""
    path = tmp_path / "server.toml"
    path.write_text(
        """
        [[table]]
        name = "t"
        capacity = 1024
        pad = "first"
        columns = [
            { name = "observation/camera", dtype = "uint8", shape = [2] },
            { name = "observation/goal", dtype = "uint8", pad = "zero" },
            { name = "action", dtype = "int64" },
        ]
        """
    )
    step = config.load(path).tables[0].step
    assert [column.pad for column in step] == ["first", "zero", "zero"]


def test_a_queue_has_its_size_and_nothing_else_of_how_it_is_drawn(tmp_path):
    """Given `fifo`. Expect Fifo(size), and the core told so; with a sampler's or limiter's key, a
    sentence that names it."""
    path = tmp_path / "server.toml"
    table = COLUMNS + "fifo = 192\n"
    path.write_text(table)
    loaded = config.load(path)
    assert loaded.tables[0].sampler == Fifo(192)
    held = Config(loaded.tables, loaded.options, 0)
    told = held.raw.tables[0]
    assert (told.fifo, told.alpha, told.min_size) == (1, 0.0, 1)
    assert (told.samples_per_insert, told.error_min, told.error_max) == (1.0, 0.0, 192.0)
    for line in ('sampler = "uniform"', "alpha = 0.6", "min_size = 1", "samples_per_insert = 1.0"):
        path.write_text(f"{table}{line}\n")
        with pytest.raises(ConfigError, match=f"draws in order: leave {line.split()[0]} out"):
            config.load(path)
    path.write_text(COLUMNS + "fifo = true\n")
    with pytest.raises(ConfigError, match="fifo is True; expected a whole number"):
        config.load(path)


def test_named_plans(tmp_path):
    """Given several plans. Expect them by name, in order."""
    path = tmp_path / "server.toml"
    path.write_text(
        """
        [[table]]
        name = "t"
        capacity = 1024
        columns = [
            { name = "observation", dtype = "float32", shape = [2] },
            { name = "action", dtype = "int64" },
            { name = "reward", dtype = "float32" },
            { name = "terminated", dtype = "bool" },
            { name = "x", dtype = "float32", shape = [2] },
        ]
        [table.plans]
        near = { n_step = 1 }
        far = { sequence = 8, n_step = 2, state = ["x"] }
        """
    )
    plans = config.load(path).tables[0].layout.plans
    assert [(plan.name, plan.plan) for plan in plans] == [
        ("near", NStep(1)),
        ("far", Sequence(8, 2, ("x",))),
    ]


BROKEN = {
    "": "no [[table]]",
    "[server": "not TOML",
    "[serve]\n": "unknown section [serve]; the nearest is [server]",
    "[[tables]]\nname = 't'\n": "unknown section [tables]; the nearest is [[table]]",
    "[server]\nsesions = 9\n": "[server] has no field 'sesions'; the nearest is 'sessions'",
    "[server]\nregion = ''\n": "region is ''; expected a folder",
    "[[table]]\nname = 't'\ncapasity = 4\n": "no field 'capasity'; the nearest is 'capacity'",
    "[[table]]\nname = 't'\ncolumns = [{name='x', dtpye='int8'}]\n": "the nearest is 'dtype'",
    "[server]\nport = 1\n": "[server] has no field 'port'",
    "[server]\nseed = 'x'\n": "[server] seed is 'x'; expected int",
    "[server]\nsessions = 0\n": "sessions is 0",
    "table = 3\n": "no [[table]]",
    "url = 'udp://127.0.0.1:0'\n": "url stands above all sections; it belongs below [server]",
    "capacity = 9\n": "capacity stands above all sections; it belongs below [[table]]",
    "colour = 'red'\n": "colour stands above all sections, and is no field of [server], [metrics]",
    "[table.m]\ncapacity = 5\n": "[table.m] is no table of a server: write [[table]]",
    "[table]\nname = 't'\n": "[table] is no table of a server: write [[table]]",
    "[[table]]\ncapacity = 5\n": "has no name",
    "[[table]]\nname = 't'\n": "needs either env or columns",
    "[[table]]\nname = 't'\nenv = 'NoSuch-v0'\n": "NoSuch",
    "[[table]]\nname = 't'\nsize = 4\n": "has no field 'size'",
    "[[table]]\nname = 't'\ncolumns = [{name='x'}]\n": "expected name, dtype, shape, pad",
    "[[table]]\nname = 't'\ncolumns = [{name='x', dtype='flaot'}]\n": "flaot",
    "[[table]]\nname = 't'\ncolumns = [{name='x', dtype='U4'}]\n": "not supported",
    "[[table]]\nname = 't'\ncolumns = [{name='x', dtype='u1', shape=3}]\n": "such as (3,)",
}
COLUMNS = "[[table]]\nname = 't'\ncolumns = [{name='x', dtype='int8'}]\n"
BROKEN |= {
    COLUMNS + "capacity = 'many'\n": "capacity is 'many'",
    COLUMNS + "capacity = 8\n": "the smallest legal capacity is 64",
    COLUMNS + "plan = {n_steps = 3}\n": "plan has 'n_steps'; the nearest is 'n_step'",
    COLUMNS + "plan = {n_step = 0}\n": "expected a whole number from 1",
    COLUMNS + "sampler = 'best'\n": "sampler is 'best'",
    COLUMNS + "alpha = 'x'\n": "alpha is 'x'",
    COLUMNS + "error_buffer = 2.0\n": "needs samples_per_insert",
    COLUMNS + "samples_per_insert = 4.0\nerror_buffer = 1.0\n": "block each other",
    COLUMNS + "pad = 'rubbish'\n": "pad is 'rubbish'; expected one of ('zero', 'first')",
    COLUMNS + "pad = 'first'\n": "pad is of observation columns, and there are none",
    "[[table]]\nname = 't'\nenv = 'CartPole-v1'\npad = 5\n": "pad is 5; expected one of",
    "[[table]]\nname = 't'\ncolumns = 5\n": "columns is 5; expected a list",
    "[[table]]\nname = 't'\ncolumns = {name='x'}\n": "expected a list",
    "[[table]]\nname = 't'\ncolumns = [{name='x', dtype='f4,,'}]\n": "dtype is 'f4,,'",
    "[[table]]\nname = 't'\nenv = 'no_such_module:X-v0'\n": "no module to import",
    "[[table]]\nname = 't'\nenv = 'raising_env:Raising-v0'\n": "its constructor raised",
    COLUMNS + "min_size = nan\n": "min_size is nan; expected a whole number",
    COLUMNS + "min_size = inf\n": "min_size is inf; expected a whole number",
    COLUMNS + f"min_size = 1{'0' * 400}\n": "expected a whole number",
    COLUMNS + f"min_size = 1{'0' * 5000}\n": "not TOML",
    COLUMNS + "min_size = 10.7\n": "min_size is 10.7; expected a whole number",
    COLUMNS + f"alpha = 1{'0' * 400}\n": "expected a number that is finite",
    COLUMNS + "plan = {}\n": "plan is empty; expected { n_step = 1 }",
    COLUMNS + "plan = {sequence = 8, state = 'x'}\n": "Sequence(state) is 'x'; expected names",
    COLUMNS + COLUMNS: "",
}


RAISING = """
import gymnasium

def raising():
    raise RuntimeError("no licence")

gymnasium.register("Raising-v0", raising)
"""


@pytest.mark.parametrize("text", BROKEN)
def test_broken_configs_are_one_sentence(text, tmp_path, monkeypatch):
    """Given each mistake. Expect one line that names the file and what is wrong."""
    (tmp_path / "raising_env.py").write_text(RAISING)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "broken.toml"
    path.write_text(text)
    if text == COLUMNS + COLUMNS:
        loaded = config.load(path)
        with pytest.raises(ConfigError, match="same name"):
            Config(loaded.tables, loaded.options, 0)
        return
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert BROKEN[text] in str(caught.value)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value).strip()


def test_a_missing_file_is_one_sentence(tmp_path):
    """Given no file. Expect its name and the system's reason."""
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        config.load(tmp_path / "none.toml")


def test_windows_are_the_largest_legal_ones():
    """Given capacities. Expect window * writers within capacity / 16, at most 8192 by default."""
    for capacity, writers in ((64, 4), (1000, 3), (20_000, 4), (10**6, 1)):
        table = Table("t", step=SPEC, capacity=capacity, writers=writers)
        window = table._resolved_window()
        assert window * writers <= capacity / 16
        assert window == 8192 or (window + 1) * writers > capacity / 16
    with pytest.raises(ConfigError, match="smallest legal capacity is 1600"):
        Table("t", step=SPEC, capacity=1599, writers=1, window=100)


def test_impossible_tables_say_so():
    """Given impossible values. Expect a ConfigError that names the value."""
    for wrong, said in (
        ({"name": ""}, "name"),
        ({"name": "x" * 32}, "31 bytes"),
        ({"step": 3}, "expected Spec"),
        ({"plan": {}}, "0 plans"),
        ({"capacity": 0}, "capacity is 0"),
        ({"writers": 0}, "writers is 0"),
        ({"streams": 0}, "streams is 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            Table(**{"name": "t", "step": SPEC, "capacity": 1024, **wrong})
    for make in (
        lambda: Prioritized(-1),
        lambda: Prioritized(float("nan")),
        lambda: MinSize(0),
        lambda: SamplesPerInsert(0.0),
        lambda: SamplesPerInsert(4.0, 10, 1.0),
        lambda: ServerOptions(url="udp://127.0.0.1:0", virtual_clock=True),
        lambda: ServerOptions(weights_max=1 << 40),
        lambda: Server([], "loopback://"),
    ):
        with pytest.raises(ConfigError):
            make()


@pytest.mark.parametrize("ratio", [0.25, 1.0, 8.0, 32.0])
@pytest.mark.parametrize("min_size", [1, 1000])
def test_a_limiter_is_legal_without_a_buffer(ratio: float, min_size: int):
    """Given the default buffer. Expect room for both sides, and a batch once items may be drawn."""
    limiter = SamplesPerInsert(ratio, min_size)
    size, _, low, high = limiter._bounds()
    middle = ratio * min_size
    assert size == min_size and low == middle - (high - middle)
    assert high - middle == max(4 * max(1.0, ratio), middle)
    Table("t", step=SPEC, capacity=32768, limiter=limiter)


def test_the_core_is_told_columns_picks_and_document():
    """Given a table with two plans. Expect its struct to hold what the table says."""
    plans = {"a": Row(), "b": Row()}
    table = Table("t", step=SPEC, plan=plans, capacity=4096, limiter=SamplesPerInsert(2.0, 10, 8.0))
    held = Config((table,), ServerOptions(), 5)
    raw = held.raw
    told = raw.tables[0]
    assert ffi.string(told.name) == b"t" and (told.capacity, told.step_bytes) == (4096, 16)
    columns = [(c.offset, c.size, c.pad_first) for c in told.columns[0 : told.column_count]]
    assert columns == [(0, 8, 0), (8, 1, 1)]
    assert [(p.column, p.offset) for p in told.plans[0].picks[0:2]] == [(0, 0), (1, 0)]
    assert (told.min_size, told.samples_per_insert) == (10, 2.0)
    assert (told.error_min, told.error_max) == (12.0, 28.0)
    assert bytes(ffi.buffer(told.spec, told.spec_bytes)) == table.layout.document()
    assert (raw.seed, raw.table_count) == (5, 1)


@pytest.mark.parametrize("name", ["cartpole", "atari"])
def test_the_committed_tables_are_the_presets(name):
    """Given deploy/NAME.toml, which docs/ serves. Expect what the demo would write."""
    written = (ROOT / "deploy" / f"{name}.toml").read_text()
    made = server_toml(preset(name), url="udp://127.0.0.1:7400", seed=1)
    assert [line for line in written.splitlines() if not line.startswith("#")][1:] == (
        made.splitlines()
    )


def test_the_queue_of_segments_in_a_file_is_the_one_in_a_program(tmp_path):
    """Given the table of PPO as a file. Expect the very table that a run in one process has."""
    settings = preset("cartpole-ppo")
    path = tmp_path / "server.toml"
    path.write_text(server_toml(settings, url="udp://127.0.0.1:7400", seed=1))
    table = config.load(path).tables[0]
    assert table == table_for(settings)
    assert table.layout.document() == table_for(settings).layout.document()


FILE_ALONE = {"virtual_clock", "batch_max", "records", "lapse_ms", "weights_max", "receive_budget"}


def test_every_option_of_a_server_is_read_from_a_file_and_has_its_row():
    """Given the fields of a server's sections. Expect each of a type that a file has, in the table
    of docs/operations.md, and a flag of serve but for those of a file alone."""
    names = {field.name for field in fields(ServerOptions)}
    for kind in (ServerOptions, MetricsOptions):
        assert [field.name for field in fields(kind) if field.type not in config.TYPES] == []
    page = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()
    rows = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`\w+`[^|]*) \|", page, re.M))))
    assert names - rows == set()
    assert names - {field.name for field in fields(ServeArgs)} == FILE_ALONE


def test_limits_are_the_cores():
    """Given the limits that Python checks by itself. Expect those of the core."""
    assert server.TABLES_MAX == lib.RP_TABLES_MAX and table.PLANS_MAX == lib.RP_PLANS_MAX
    assert spec.COLUMN_COUNT_MAX == lib.RP_COLUMNS_MAX
    assert table.NAME_BYTES_MAX == lib.RP_NAME_BYTES - 1
