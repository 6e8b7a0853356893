"""Options that would be taken for something else: refused, or told, by the call that gets them."""

from __future__ import annotations

import copy
import pickle
import types
from pathlib import Path

import numpy as np
import pytest

from actor.ledger import Ledger, Watched
from replay_server import (
    Client,
    Column,
    ConfigError,
    MinSize,
    NStep,
    Offsets,
    Prioritized,
    SamplesPerInsert,
    Sequence,
    Server,
    Spec,
    SpecError,
    Table,
    UnknownTable,
    __main__,
    looks,
)
from replay_server.autoreset import Autoreset

SPEC = Spec((Column("observation", np.float32, (2,)), Column("reward", np.float32)))
ROWS = {"observation": np.ones((4, 2), np.float32), "reward": np.ones(4, np.float32)}


@pytest.fixture(scope="module")
def client():
    server = Server([Table("m", SPEC, capacity=1024)], "udp://127.0.0.1:0")
    with server, Client(server.address) as client:
        client.extend("m", ROWS)
        yield client


@pytest.mark.parametrize("value", ["no", "", 2, None])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("finite_observations", lambda c, **no: c.writer("m", **no)),
        ("finite_observations", lambda c, **no: c.extend("m", ROWS, **no)),
        ("pump", lambda c, **no: c.batches("m", 2, **no)),
        ("copy", lambda c, **no: c.batches("m", 2, **no)),
        ("pin", lambda c, **no: c.batches("m", 2, **no)),
        ("pin", lambda c, **no: c.landing("m", 2, **no)),
        ("wait", lambda c, **no: c.update_priorities("m", c.sample("m", 1), [1.0], **no)),
        ("stratified", lambda c, **no: c.sample("m", 2, **no)),
    ],
    ids=["writer", "extend", "pump", "copy", "pin", "landing", "wait", "stratified"],
)
def test_an_on_or_off_that_is_neither_is_refused(client, name, call, value):
    """Given a word, a number or nothing where True or False belongs. Expect ConfigError that names
    the option; each was taken for True or False."""
    with pytest.raises(ConfigError, match=rf"^{name} is .*; expected True or False"):
        call(client, **{name: value})


@pytest.mark.parametrize("given", [["3", "4"], [b"3", b"4"], np.array(["1", "2"]), ["3", 4.0]])
def test_priorities_that_are_text_are_refused(client, given):
    """Given text that numpy reads numbers out of. Expect ConfigError at every call that takes
    priorities."""
    batch, two = client.sample("m", 2), {name: rows[:2] for name, rows in ROWS.items()}
    for call in (
        lambda: client.update_priorities("m", batch, given),
        lambda: client.update_priorities("m", batch, given, wait=False),
        lambda: client.extend("m", two, given),
    ):
        with pytest.raises(ConfigError, match=r"priorities: expected 2 numbers, got [<|]"):
            call()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Table("m", SPEC, size=9), "Table: no option 'size', it is 'capacity'; there are"),
        (lambda: Table("m", SPEC, capacty=9), "'capacty', nearest is 'capacity'; there are name,"),
        (lambda: Table("m", SPEC, layout=9), "no option 'layout'; there are name, step, plan"),
        (lambda: SamplesPerInsert(samples_per_insert=4.0), "'samples_per_insert', it is 'ratio'"),
        (lambda: SamplesPerInsert(4.0, error_bufer=9), "nearest is 'error_buffer'"),
        (lambda: Prioritized(priority_exponent=0.6), "no option 'priority_exponent'; there are al"),
        (lambda: MinSize(item=5), "nearest is 'items'"),
    ],
)
def test_unknown_keywords_name_the_nearest(make, words):
    """Given keywords of other libraries, and misspelt ones. Expect ConfigError with ours."""
    with pytest.raises(ConfigError, match=words):
        make()


def test_descriptions_are_copied_and_pickled_as_ever():
    """Given a table. Expect copies, in one process and through a pickle, that are equal."""
    table = Table("m", SPEC, limiter=SamplesPerInsert(4.0, 9), sampler=Prioritized(0.5))
    for each in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert each == table and each.layout == table.layout


def test_the_counters_of_an_idle_server_are_a_sentence(monkeypatch, capsys):
    """Given an endpoint of a server that nobody called yet. Expect words and no empty line."""
    nothing = types.SimpleNamespace(counters={"steps_pushed": 0}, facts=())
    source = types.SimpleNamespace(look=lambda: nothing, close=lambda: None)
    monkeypatch.setattr(looks, "source_of", lambda address, timeout: source)
    assert __main__.main(["stats", "http://127.0.0.1:1/metrics"]) == 0
    assert capsys.readouterr().out == "nothing has happened: every counter is 0\n"


def test_a_ledger_without_room_does_not_end_the_actor(client, capsys, tmp_path):
    """Given rows that are acknowledged while the disk is full. Expect one line, no error, and a
    ledger with room to hold every row."""
    written = []
    for path in (Path("/dev/full"), tmp_path / "a" / "actor.ledger"):
        ledger = Ledger(path)
        with client.writer("m") as writer:
            rows, watched = Autoreset(SPEC, "disabled"), Watched(writer, SPEC, ledger)
            for number in range(3):
                seen = np.full((1, 2), number, np.float32)
                watched.append(rows_of(rows, seen))
                watched.flush()
        ledger.close()
        written.append(capsys.readouterr().err)
    assert written[0].count("\n") == 1 and "the actor goes on" in written[0]
    assert "No space left on device: '/dev/full'" in written[0] and written[1] == ""
    lines = (tmp_path / "a" / "actor.ledger").read_text().splitlines()
    assert len(lines) == 3 and all(len(line.split()[1]) == 16 for line in lines)


def rows_of(autoreset, seen):
    return autoreset.rows(seen, {}, np.ones(1, np.float32), np.array([False]), np.array([False]))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Sequence(80, burn_in=40), "it is 'length, burn-in included'"),
        (lambda: Sequence(80, n_step=5), "it is 'n'"),
        (lambda: NStep(3, gamma=0.9), "it is 'gamma of batch.transitions'"),
        (lambda: NStep(n=3, stak=4), "'stack'"),
    ],
)
def test_plans_name_what_other_libraries_call_it(make, said):
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_column_that_is_misspelt_is_the_one_named():
    with pytest.raises(SpecError, match=r"no column 'observatoin' in .*'observation'"):
        Offsets({"observatoin": (0, 1), "reward": (0,)}).resolve(SPEC)


def test_what_is_no_name_names_no_table(client):
    """Given a name with a zero byte, which C would cut. Expect it refused, and the table kept."""
    for call in (client.reset, client.size, client.table):
        with pytest.raises(UnknownTable, match="without zeros"):
            call("m\0x")


@pytest.mark.parametrize(
    "weights", [np.array([np.ones(2), None], object), np.ma.masked_array([1.0, 2.0], [True, False])]
)
def test_arrays_that_are_no_numbers_are_no_weights(client, weights):
    with pytest.raises(ConfigError, match="publish numbers"):
        client.publish_weights(weights)
