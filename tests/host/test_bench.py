"""The figures' command at tiny sizes: rows are whole and say what they should; no time is judged.

The programs in C are built by make, so this runs in a source checkout.
"""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from replay_server.__main__ import EXIT_USAGE, main
from replay_server.bench import machine

FIELDS = ["name", "transport", "workload", "batch", "metric", "value", "unit", "machine"]
TINY = ["--items", "20000", "--passes", "1", "--seconds", "0.02"]
EXPECTED = {
    "tree_draw": "engine",
    "table_draw": "engine",
    "table_update": "engine",
    "table_memory": "engine",
    "server_sample": "memory",
    "push_acknowledged": "udp",
    "sample": "udp",
    "client.sample": "udp",
    "client.extend": "zmq+tcp",
    "client.update_priorities": "loopback",
    "writer.add_batch": "loopback",
    "writer.add": "udp",
    "client.batches": "udp",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "figures.json"
    assert main(["bench", "--json", str(path), *TINY]) == 0
    return json.loads(path.read_text())


def test_rows_are_whole(rows):
    """Given every part. Expect all fields in order, numbers above or at zero, hashes as text."""
    for row in rows:
        assert list(row) == FIELDS
        assert isinstance(row["batch"], int) and row["machine"]
        if row["unit"] == machine.HASH_UNIT:
            assert len(row["value"]) == 16 and int(row["value"], 16) >= 0
        else:
            assert row["value"] >= 0
    found = {(row["name"], row["transport"]) for row in rows}
    assert set(EXPECTED.items()) <= found


def test_both_kernels_answer_alike(rows):
    """Given the hashes of tree and table. Expect one for all kernels of each."""
    hashes = defaultdict(set)
    for row in rows:
        if row["name"] in ("tree_answers", "table_answers"):
            hashes[row["name"]].add(row["value"])
    assert {name: len(values) for name, values in hashes.items()} == {
        "tree_answers": 1,
        "table_answers": 1,
    }


def test_a_plain_step_costs_little(rows):
    """Given a table of plain rows. Expect at most 33 bytes a step beyond bytes and tree."""
    own = [row["value"] for row in rows if row["metric"] == "bookkeeping"]
    assert len(own) == 1 and 0 < own[0] <= 33


def test_without_a_checkout_it_says_what_is_left_out(monkeypatch, tmp_path, capsys):
    """Given an installed package without tests/. Expect one line, and Python's figures alone."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert main(["bench", "--seconds", "0.01"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("left out: the engine's and the C client's figures") == 1
    assert "client.sample" in printed and "table_draw" not in printed


def test_an_unknown_part_is_a_sentence(capsys):
    """Given a part that does not exist. Expect its name, the parts there are, exit code 2."""
    assert main(["bench", "--parts", "network"]) == EXIT_USAGE
    assert "there is no part 'network'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--items", "0"], "--items is 0; expected a whole number from 16,384"),
        (["--parts", "tree", "--items", "-5"], "--items is -5; expected a whole number from 1 to"),
        (["--passes", "0"], "--passes is 0; expected a whole number from 1"),
        (["--seconds", "nan"], "--seconds is nan; expected a number from 0.001"),
        (["--json", "no/such/x"], "--json is no/such/x, and there is no folder no/such"),
        (["--json", "."], "--json is ., and that is no file that can be written"),
    ],
)
def test_what_cannot_be_measured_or_written_is_a_sentence(options, said, monkeypatch, capsys):
    """Given each mistake. Expect it told before anything is measured, exit code 2."""
    monkeypatch.setattr(machine, "measure", None)
    assert main(["bench", *options]) == EXIT_USAGE
    told = capsys.readouterr()
    assert said in told.err and told.err.count("\n") == 1 and told.out == ""


def test_figures_that_the_disk_does_not_take_are_on_the_screen(monkeypatch, tmp_path, capsys):
    """Given a folder that goes while it is measured. Expect the figures, and one sentence."""
    folder = tmp_path / "gone"
    folder.mkdir()

    def measure(*_):
        folder.rmdir()
        yield "tree", [machine.Row("a", "udp", "w", 32, "p50", 1.5, "us", "here")]

    monkeypatch.setattr(machine, "measure", measure)
    assert main(["bench", "--json", str(folder / "x")]) == EXIT_USAGE
    told = capsys.readouterr()
    assert "p50" in told.out and "No such file or directory; the figures are above" in told.err


def test_only_rows_are_read():
    """Given a program's output. Expect rows where seven fields are, other lines passed over."""
    text = "seed 7\na\tudp\tw\t32\tp50\t1.500\tus\na\tudp\tw\t0\thash\t00ff\tsiphash\nx: ok\n"
    first, second = machine.parse(text, "here")
    assert first == machine.Row("a", "udp", "w", 32, "p50", 1.5, "us", "here")
    assert second.value == "00ff"
