"""Options that would be taken for something else: refused, or told, by the call that gets them."""

from __future__ import annotations

import copy
import pickle
import types
from pathlib import Path

import numpy as np
import pytest
from conformance import plain, plain_rows

from actor.ledger import Ledger, Watched
from actor.ledger import main as ledger_main
from deploy.demo import _more
from replay_server import (
    Client,
    Column,
    ConfigError,
    Fifo,
    MinSize,
    NStep,
    Offsets,
    Prioritized,
    ReplayError,
    Row,
    SamplesPerInsert,
    Sequence,
    Server,
    Spec,
    SpecError,
    Table,
    UnknownPlan,
    UnknownTable,
    __main__,
)
from replay_server.batch import priority_from_td
from replay_server.observe import snapshot
from replay_server.writing.autoreset import Autoreset

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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.sample("m", 1, timeout=np.zeros(3)), "^timeout is array.*expected seconds"),
        (lambda c: c.flush(np.zeros(3)), "^timeout is array.*expected seconds"),
        (lambda c: c.get("main", [[1], [1, 2]]), "^keys: expected whole numbers"),
        (lambda c: c.sample("m", 1).transitions(0.9, 1 << 70), "^device 11805916"),
        (lambda c: c.update_priorities(np.zeros(2), c.sample("m", 1), [1.0]), "name"),
    ],
)
def test_arrays_and_numbers_where_none_belongs_are_refused(client, call, words):
    """Given an array for a time or a table, a number for a device. Expect ConfigError."""
    with pytest.raises((ConfigError, UnknownTable), match=words):
        call(client)


@pytest.mark.parametrize("state", [None, 3, np.array(3), "lstm", [3]])
def test_names_of_a_state_that_are_none_are_refused(state):
    """Given what holds no names. Expect SpecError that shows how they are said."""
    with pytest.raises(SpecError, match=r"Sequence\(state\) is .*; expected names"):
        Sequence(3, state=state)


STEP = {
    "observation": Column("observation", np.float32, (2,)),
    "action": Column("action", np.int64),
    "reward": Column("reward", np.float32),
    "terminated": Column("terminated", np.bool_),
}


@pytest.mark.parametrize("plan", [NStep(2), Sequence(3)], ids=["n-step", "sequence"])
@pytest.mark.parametrize(
    ("name", "columns", "words"),
    [
        ("observation", (), "no column 'observation', and each step of .* has one; the columns"),
        ("action", (), "no column 'action'"),
        ("reward", (), "no column 'reward'"),
        ("reward", [Column("reward", np.bool_)], "'reward' is bool, and returns are sums"),
        ("reward", [Column("reward/a", np.float32)], "one reward.* such as 'reward_a'"),
        ("terminated", [Column("terminated", np.uint8)], "'terminated' is uint8 .*one truth value"),
        ("terminated", [Column("terminated/a", np.bool_)], "one terminated.*'terminated_a'"),
        ("", [Column("self", np.float32)], "column 'self': name it otherwise, such as 'own_self'"),
        ("", [Column("self/a", np.float32)], "column 'self/a': name it otherwise"),
    ],
)
def test_a_table_that_no_step_fits_is_refused(plan, name, columns, words):
    """Given columns that no step can fill. Expect ConfigError at the table, and not at the first
    step; of the same columns in a table of rows, none."""
    spec = Spec((*(each for key, each in STEP.items() if key != name), *columns))
    with pytest.raises(ConfigError, match=words):
        Table("m", spec, plan)
    assert Table("m", spec).layout.ahead == 0


@pytest.mark.parametrize("plan", [NStep(3), Sequence(3)], ids=["n-step", "sequence"])
def test_a_plan_of_transitions_without_any_of_their_names_is_refused(plan):
    """Given cpprb's names. Expect ConfigError: NStep(3) would hold single rows."""
    spec = Spec(tuple(Column(name, np.float32) for name in ("obs", "act", "rew", "done")))
    with pytest.raises(ConfigError, match=r"no column 'observation', .* are obs, act"):
        Table("m", spec, plan)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("truncated", np.bool_), "a writer of table 'm': column 'truncated'"),
        (Column("reward/a", np.float32), "one reward.* such as 'reward_a'"),
    ],
    ids=["truncated", "rewards"],
)
def test_a_writer_that_no_step_could_fill_is_refused(column, words):
    """Given a table of rows with a column that steps have no place for. Expect ConfigError as a
    writer is asked for, not at its first step; and rows of `extend` as ever."""
    rows = {"observation": np.ones((2, 2)), column.name: np.ones(2, column.dtype)}
    table = Table("m", Spec((SPEC["observation"], column)), Row(), 1024)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        with pytest.raises(ConfigError, match=words):
            client.writer("m")
        assert len(client.extend("m", rows)) == 2


def test_what_would_take_all_memory_or_is_no_list_is_refused(client):
    """Given batches to keep by the million, and an array where a list of columns should be. Expect
    a sentence each."""
    with pytest.raises(
        ConfigError, match="keep is 1000000; expected a whole number from 0 to 1,024"
    ):
        client.batches("m", 4, keep=10**6)
    with pytest.raises(SpecError, match=r"array\(3\) is no column"):
        Spec(np.array(3))
    with pytest.raises(ConfigError, match=r"tables is array\(3\); expected list"):
        Server(np.array(3))


def test_a_table_without_observations_says_how_rows_get_there():
    """Given windows of columns that no step of `add` has. Expect `extend` and `add` to name them,
    and the call that takes any."""
    spec = Spec((Column("x", np.float32), STEP["reward"]))
    table = Table("m", spec, Offsets({"x": (0, 1), "reward": (0,)}), 1024)
    step = {"x": 1.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    with Server([table], "loopback://") as server, Client(server.address) as client:
        with pytest.raises(ConfigError, match=r"writer\.append\(Rows"):
            client.extend("m", {"x": np.ones(4), "reward": np.ones(4)})
        with (
            client.writer("m") as writer,
            pytest.raises(SpecError, match=r"there are x, reward: declare it, or .*append\(Rows"),
        ):
            writer.add(observation=0.0, next_observation=0.0, **step)


def test_the_tables_of_a_server_are_shown():
    """Given two tables. Expect them by name, in order, as they are now, and shown in lines that
    tell what each holds; of a name that is none, those there are."""
    limiter = SamplesPerInsert(4, 10, error_buffer=8)
    rows = Table("rows", SPEC, Row(), 1024, limiter=limiter, sampler=Prioritized(0.5))
    with (
        Server([rows, Table("m", Spec(tuple(STEP.values())), capacity=4096)]) as server,
        Client(server.address) as client,
    ):
        client.extend("rows", ROWS)
        tables = client.tables()
        with pytest.raises(KeyError, match="no table 'nope'; there are "):
            tables["nope"]
        assert list(tables) == ["rows", "m"] and tables["rows"].count == 4
        assert repr(tables) == "\n".join(map(repr, tables.values()))
        assert repr(tables["rows"]) == (
            "table 'rows': 4 items can be drawn, 1,024 steps fit\n"
            "  columns  observation float32[2], reward float32\n"
            "  plans    'default': Row()\n"
            "  limiter  ratio 4, min_size 10, bounds 32 to 48: about 12 items go in while nothing "
            "is drawn, then 4 draws let one in\n"
            "  counts   4 inserted, 0 sampled, alpha 0.5"
        )
        assert "plans    'default': Row()" in repr(tables["m"])
        with pytest.raises(UnknownTable, match="there are 'rows', 'm'"):
            client.table("n")


def test_a_plan_that_the_table_has_not_is_unknown():
    """Given the name and the number of a plan that is not there. Expect UnknownPlan, which lists
    those that are, of each call that takes one."""
    with Server([plain()]) as server, Client(server.address) as client:
        keys = client.extend("main", plain_rows(4))
        for plan in ("zz", 1):
            for call in (
                lambda plan=plan: client.sample("main", 4, plan=plan),
                lambda plan=plan: client.get("main", keys, plan=plan),
                lambda plan=plan: client.landing("main", 4, plan=plan),
                lambda plan=plan: client.batches("main", 4, plan=plan),
            ):
                with pytest.raises(UnknownPlan, match=f"no plan {plan!r}; the table has default"):
                    call()


def test_descriptions_are_copied_and_pickled_as_ever():
    """Given a table. Expect copies, in one process and through a pickle, that are equal."""
    table = Table("m", SPEC, limiter=SamplesPerInsert(4.0, 9), sampler=Prioritized(0.5))
    for each in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert each == table and each.layout == table.layout


def test_the_counters_of_an_idle_server_are_a_sentence(monkeypatch, capsys):
    """Given an endpoint of a server that nobody called yet. Expect words and no empty line."""
    nothing = types.SimpleNamespace(counters={"steps_pushed": 0}, facts=())
    source = types.SimpleNamespace(look=lambda: nothing, close=lambda: None)
    monkeypatch.setattr(snapshot, "source_of", lambda address, timeout: source)
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
    """Given a plan with an argument as other libraries call it, or misspelt. Expect ConfigError
    with the name that it has here."""
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_column_that_is_misspelt_is_the_one_named():
    """Given offsets of a misspelt column. Expect SpecError to name it and the column that was
    meant."""
    with pytest.raises(SpecError, match=r"no column 'observatoin' in .*'observation'"):
        Offsets({"observatoin": (0, 1), "reward": (0,)})._resolve(SPEC)


def test_what_is_no_name_names_no_table(client):
    """Given a name with a zero byte, which C would cut. Expect it refused, and the table kept."""
    for call in (client.reset, client.size, client.table):
        with pytest.raises(UnknownTable, match="without zeros"):
            call("m\0x")


HALF = "a\ud800"  # half of a letter: no UTF-8 has it


def test_names_that_no_utf8_holds_are_refused_in_a_sentence(client):
    """Given names of tables, plans and columns with half a letter. Expect each refused as any other
    name that is none."""
    for call in (client.reset, client.size, client.table, client.writer):
        with pytest.raises(UnknownTable, match="expected a name of 1 to 31 bytes"):
            call(HALF)
    with pytest.raises(SpecError, match="expected text that UTF-8 can hold"):
        Column(HALF, np.int64)
    with pytest.raises(ConfigError, match=r"table name .*expected 1 to 31 bytes"):
        Table(HALF, SPEC)
    with pytest.raises(ConfigError, match=r"plan name .*expected 1 to 31 bytes"):
        Table("t", SPEC, {HALF: Row()})


def test_no_keys_are_no_rows(client):
    """Given `get` and `rows` of no keys. Expect no items, and no error, as of an update of none."""
    name = next(iter(client.tables()))
    batch, (rows, valid) = client.get(name, []), client.rows(name, [])
    assert len(batch) == len(valid) == len(batch.keys) == 0
    assert all(len(array) == 0 for array in (*batch.data.values(), *rows.values()))
    assert client.update_priorities(name, batch, []).applied == 0


def test_looking_up_all_tables_says_so():
    """Given a server that is gone, and a call that asks for all its tables. Expect the sentence to
    name no table by a number."""
    server = Server(Table("t", SPEC), "udp://127.0.0.1:0")
    with Client(server.address, timeout=0.1) as client:
        server.close()
        with pytest.raises(ReplayError, match=r"^looking up the server's tables: "):
            client.tables()


def test_a_minimum_size_beside_the_windows_is_refused_at_once():
    """Given more items than the capacity holds beside the writers' windows. Expect the table to
    refuse them, as the server would; one fewer is served."""
    with pytest.raises(ConfigError, match=r"of 1877 items .* 2000 steps holds at most 1876, .* 4"):
        Table("t", SPEC, capacity=2000, limiter=MinSize(1877))
    Server(Table("t", SPEC, capacity=2000, limiter=MinSize(1876))).close()


@pytest.mark.parametrize(
    "wrong", [b"\xff\xfe\x00\n", b"1 2 3\n", b"key hash\n", b"9" * 20 + b" a\n"]
)
def test_a_file_that_is_no_ledger_is_refused_in_a_sentence(tmp_path, capsys, wrong):
    """Given other files to `python -m actor.ledger`. Expect one sentence with the file and line,
    and exit code 2."""
    path = tmp_path / "x"
    path.write_bytes(b"12 abc\n" + wrong)
    with Server(Table("main", SPEC), "udp://127.0.0.1:0") as server:
        assert ledger_main([str(path), "--server", server.address]) == 2
    said = capsys.readouterr().err
    assert f"{path} is no ledger: its line 2" in said and said.count("\n") == 1


def test_a_demo_that_played_all_its_steps_is_not_told_to_take_more_time():
    """Given runs that ended at --env-steps, and at --minutes. Expect advice about that one."""
    assert "--minutes" in _more(False) and "--env-steps" not in _more(False)
    assert "--minutes" not in _more(True) and "--env-steps" in _more(True)


def test_a_doctor_of_no_host_says_so(tmp_path, capsys):
    """Given a --root that is no folder, or an empty one. Expect one sentence, and no report."""
    for root in (tmp_path, tmp_path / "gone"):
        assert __main__.main(["doctor", "--root", str(root)]) == __main__.EXIT_USAGE
        said = capsys.readouterr()
        assert said.out == "" and f"--root {root}: there is no sys, proc" in said.err


@pytest.mark.parametrize(
    "weights", [np.array([np.ones(2), None], object), np.ma.masked_array([1.0, 2.0], [True, False])]
)
def test_arrays_that_are_no_numbers_are_no_weights(client, weights):
    """Given weights that are an array of objects, or a masked one. Expect ConfigError: numbers
    alone are published."""
    with pytest.raises(ConfigError, match="publish numbers"):
        client.publish_weights(weights)


@pytest.mark.parametrize(
    ("td", "said"), [(None, r"td\[0\] is None"), ([1.0, float("nan")], r"td\[1\] is nan")]
)
def test_a_td_error_that_is_no_number_is_told_before_it_is_a_priority(td, said):
    """Given None, and NaN. Expect priority_from_td to refuse them, and say which."""
    with pytest.raises(ConfigError, match=f"{said}: expected finite numbers"):
        priority_from_td(td)


def test_next_observations_of_plain_rows_are_finite_as_observations_are():
    """Given a NaN in a leaf of next_observation. Expect SpecError that names it; with
    finite_observations=False the row is stored."""
    leaves = ("observation/x", "next_observation/x")
    table = Table("rows", step=Spec(Column(name, np.float32) for name in leaves), capacity=1024)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        row = {"observation/x": np.ones(1), "next_observation/x": np.array([np.nan])}
        with pytest.raises(SpecError, match=r"'next_observation/x': expected finite numbers.*nan"):
            client.extend("rows", row)
        assert len(client.extend("rows", row, finite_observations=False)) == 1


def test_a_table_of_sequences_is_no_table_of_a_program_that_learns_from_transitions():
    """Given the tables of sequences and of n-step windows. Expect the first one refused with the
    plan that it lacks, as soon as it is known; the second passes."""
    step = Spec((*SPEC.columns, Column("action", np.int64), Column("terminated", np.bool_)))
    tables = [Table("seq", step, Sequence(3), 2048), Table("n", step, NStep(3), 2048)]
    tables.append(Table("row", step, Row(), 2048))
    with Server(tables) as server, Client(server.address) as client:
        client.table("n").expect_transitions(3, 1)
        with pytest.raises(ConfigError, match=r"holds Sequence.*plan = { n_step = 3, stack = 1 }"):
            client.table("seq").expect_transitions(3, 1)
        with pytest.raises(ConfigError, match="holds Row"):
            client.table("row").expect_transitions(3, 1)


def test_a_table_of_another_kind_is_no_table_of_a_program_that_learns_from_rollouts():
    """Given a queue of segments, one of other segments, one without the column of probabilities,
    and no queue. Expect what has to be served instead, but for the first."""
    step = Spec((*SPEC.columns, Column("action", np.int64), Column("terminated", np.bool_)))
    more = Spec((*step.columns, Column("log_prob", np.float32)))
    tables = [
        Table("queue", more, Sequence(3), 2048, sampler=Fifo(8)),
        Table("long", more, Sequence(4), 2048, sampler=Fifo(8)),
        Table("without", step, Sequence(3), 2048, sampler=Fifo(8)),
        Table("again", more, Sequence(3), 2048),
    ]
    served = r"serve it with plan = { sequence = 3, n_step = 1 }, with fifo = SIZE and a float32 "
    with Server(tables) as server, Client(server.address) as client:
        client.table("queue").expect_sequences(3, "log_prob")
        for name in ("long", "without", "again"):
            with pytest.raises(ConfigError, match=f"table '{name}' holds .*{served}"):
                client.table(name).expect_sequences(3, "log_prob")
        with pytest.raises(ConfigError, match="without column 'log_prob'"):
            client.table("without").expect_sequences(3, "log_prob")


def test_a_column_has_as_many_axes_as_an_array_may():
    """Given a column of 16 axes, and one more. Expect the second one refused by its name."""
    Spec((Column("x", np.float32, [1] * 16),))
    with pytest.raises(SpecError, match="'x': more than 16 axes"):
        Spec((Column("x", np.float32, [1] * 17),))


@pytest.mark.parametrize("mode", ["single", "next-step", "same-step", "disabled"])
@pytest.mark.parametrize("steps", [0, 20])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"next_observation": "x"}, "next_observation: .*'observation'"),
        ({"next_observation": [1.0]}, "next_observation: .*expected shape"),
        ({"next_observation": {"a": 1}}, "next_observation: "),
        ({"infos": 3}, "infos is 3; expected the dict that step returned"),
        ({"infos": "x"}, "infos is 'x'"),
        ({"final_observation": 3}, r"final_observation: .*expected shape"),
        ({"final_observation": "x"}, "final_observation: .*'observation'"),
    ],
)
def test_what_a_step_is_given_is_looked_at_where_no_episode_ends(mode, steps, given, words):
    """Given what is no next or final observation, and no infos, at a step that ends nothing. Expect
    SpecError there, not at the end of an episode, and the writer to go on."""
    kinds = {"observation": (np.float32, (2,)), "action": (np.int64,), "reward": (np.float32,)}
    columns = [Column(name, *kind) for name, kind in kinds.items()]
    table = Table("steps", Spec([*columns, Column("terminated", np.bool_)]), NStep(1), 64)
    calm = {"action": 0, "reward": 1.0, "terminated": False, "truncated": False, "infos": {}}
    with (
        Server([table], "loopback://") as server,
        Client(server.address) as client,
        client.writer("steps", autoreset=mode) as writer,
    ):
        for number in range(steps + 1):
            seen = np.full(2, number, np.float32)
            step = calm | {"observation": seen, "next_observation": seen + 1}
            if number == steps:
                with pytest.raises(SpecError, match=words):
                    writer.add(**step | given)
            writer.add(**step)
        assert writer.flush().steps_stored == steps + 1


@pytest.mark.parametrize("wrong", ["x", np.ones(2), [1.0]])
def test_a_next_observation_of_another_kind_than_a_number_is_found(wrong):
    """Given observations that are numbers, or two of them by name, and such a next one at a late
    step. Expect SpecError; None, an int and a numpy scalar are right."""
    kinds = {"action": (np.int64,), "reward": (np.float32,), "terminated": (np.bool_,)}
    rest = [Column(name, *kind) for name, kind in kinds.items()]
    calm = {"action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    named = [Column("observation/a", np.int64), Column("observation/b", np.int64)]
    tables = [
        Table("number", Spec([Column("observation", np.int64), *rest]), NStep(1), 64),
        Table("named", Spec([*named, *rest]), NStep(1), 64),
    ]
    with Server(tables, "loopback://") as server, Client(server.address) as client:
        for name, of in (("number", lambda v: v), ("named", lambda v: {"a": 1, "b": v})):
            with client.writer(name) as writer:
                for _ in range(5):
                    for right in (1, np.int64(1), None, np.array(1)):
                        following = None if right is None else of(right)
                        writer.add(**calm, observation=of(1), next_observation=following)
                with pytest.raises(SpecError, match="next_observation: "):
                    writer.add(**calm, observation=of(1), next_observation=of(wrong))
