"""The paper's claims as experiments: their arithmetic, their quick grid through the real programs.

No time is judged: figures are planted where they matter, and a run has to be whole, not fast.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.paper import __main__ as paper
from benchmarks.paper import cores, grids, plots, redis_row, t1, t2a, tables
from benchmarks.paper.places import LEARNER, SERVER, TRANSPORTS, Place, Transport
from replay_server import ReplayError
from replay_server.bench import namespaces
from replay_server.bench.ladder import EXIT_STOPPED

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 300  # of a machine where others work too

# ---- the harness ----


def test_a_round_visits_everything_once():
    """Given two cells and three variants, four rounds. Expect each pair once a round, and a line at
    the end."""
    visited, said = [], []

    def measure(cell, variant):
        visited.append((cell, variant))
        return {"push": np.full(3, len(visited)), "fetch": np.ones(1)}

    taken = harness.rounds([1, 2], ["a", "b", "c"], measure, 4, 7, said.append)
    pairs = {(cell, variant) for cell in (1, 2) for variant in "abc"}
    assert [set(visited[i : i + 6]) for i in range(0, 24, 6)] == [pairs] * 4
    assert len(set(map(tuple, (visited[i : i + 6] for i in range(0, 24, 6))))) > 1
    assert said[-1].startswith("round 4 of 4, 100%")
    assert len(taken.rounds(1, "b", "push")) == 4 and taken.quantile(2, "c", "fetch", 0.99) == 1


def test_the_best_point_is_reported_on_rounds_that_had_no_part_in_the_choice():
    """Given a point that was lucky in the rounds 0, 2, 4. Expect it chosen, and its figure that of
    the rounds 1, 3, 5."""
    steady, lucky = [0.2] * 6, [0.9, 0.1, 0.9, 0.1, 0.9, 0.1]
    best = harness.best({"steady": steady, "lucky": lucky}, 1)
    assert (best.cell, best.chosen) == ("lucky", 0.9)
    assert (best.share.value, best.share.low, best.share.high) == pytest.approx((0.1, 0.1, 0.1))
    assert best.share.rounds == 3


def test_a_reduction_is_taken_round_by_round():
    """Given a machine that was ten times slower in one round. Expect no trace of it."""
    assert harness.shares_lower([4.0, 40.0, 4.0], [3.0, 30.0, 3.0]) == [0.25] * 3
    assert harness.figure([1.0, 1.4], 1).mark == "" and harness.figure([1.0, 1.5], 1).mark


# ---- grids, cores, tables ----


def test_sessions_are_cut_to_what_a_transport_takes():
    """Given 16 and 64 sessions where 15 are the most. Expect one cell of 15."""
    cells = [grids.T2aCell(64, count, 1) for count in (1, 16, 64)]
    assert [cell.sessions for cell in grids.within(cells, 15)] == [1, 15]
    assert cores.split(40) == [16, 16, 8] and cores.split(16) == [16]


@pytest.mark.parametrize("name, rounds", [("quick", 2), ("default", 5), ("full", 5)])
def test_grids_are_what_they_say(name, rounds):
    """Given each grid. Expect distinct cells, enough rounds, and the centre of the pictures."""
    grid = grids.grid(name)
    assert grid.rounds >= rounds
    for cells in (grid.t2a, grid.t2b):
        assert len(set(cells)) == len(cells)
    assert (1024, 4, 10) in grid.t2a and (1024, 4, 32, False) in grid.t2b
    if name != "quick":
        assert {cell.sessions for cell in grid.t2a} >= {1, 4, 16, 64}
        assert {cell.step_ms for cell in grid.t2a} == {1, 10, 100}


def test_equal_cores_are_equal():
    """Given two cores. Expect the engine of the baseline and of the network on the learner's core;
    a third core is a reading of its own."""
    two = t2a.readings((0, 1))
    assert two == {"learner": (1, 1), "network": (1, 1), "beside actors": (0, 1)}
    assert t2a.readings((0, 1, 2))["own core"] == t2a.readings((0, 1, 2))["polling"] == (2, 1)
    assert t2a.readings((0,))["network"] == (0, 0)


def test_what_is_slower_is_said():
    """Given reductions below zero. Expect them in words."""
    assert tables.share([0.1, 0.2, 0.3]) == "20.0 % (10.0 to 30.0)"
    assert tables.share([-0.3, -0.2, -0.1]) == "-20.0 % (-30.0 to -10.0)"
    assert tables.share([-3.0, -2.5, -2.0]) == "3.5 × as long"


def test_a_transport_that_cannot_be_used_is_a_row(monkeypatch, capsys):
    """Given one without what it needs. Expect its reason in rows and tables, and no figure."""
    monkeypatch.setattr(Transport, "missing", lambda self: "there is no ip")
    (rows,) = tables.measure_all("T2b", None, ["udp"], grids.grid("quick"), (0, 1), 1)
    assert rows == [{"missing": "T2b", "transport": "udp", "why": "there is no ip"}]
    assert "- udp: not measured: there is no ip" in list(tables.markdown(rows, "T2b"))
    assert "there is no ip" in capsys.readouterr().out


# ---- places ----


def needs_namespaces():
    """Skips, with the reason, where no host can be made; as root in CI that is a failure."""
    if why := namespaces.missing():
        assert os.environ.get("CI") != "true" or os.geteuid() != 0, why
        pytest.skip(why)


def test_hosts_at_a_switch_reach_each_other_and_are_gone_afterwards():
    """Given three hosts, one with a card. Expect a datagram of each to reach the first, an
    interface without an address where a card is, and no namespace left."""
    needs_namespaces()
    with namespaces.Switch("asl", "s", mtu=1428) as switch:
        first = switch.hosts["a"]
        for host in "sl":
            with namespaces.entered(first), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
                ear.bind((first.address, 7400))
                ear.settimeout(30)
                with namespaces.entered(switch.hosts[host]):
                    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                with sender:
                    sender.sendto(b"x" * 1400, (first.address, 7400))
                assert ear.recvfrom(2000)[1][0] == switch.hosts[host].address
        command = switch.hosts["s"].inside(["ip", "-4", "-br", "addr"])
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert namespaces.INTERFACE in shown and namespaces.CARD not in shown
        made = [end.namespace for end in switch.hosts.values()] + [switch.bridge]
        assert all((namespaces.NAMESPACES / name).exists() for name in made)
    assert not any((namespaces.NAMESPACES / name).exists() for name in made)


def test_a_place_says_where_to_serve_and_where_to_reach_it():
    """Given memif. Expect a socket for each host, in a folder that is gone afterwards."""
    with Place(TRANSPORTS["memif"]) as place:
        served, reached = place.served(SERVER), place.reached(SERVER, "any")
        assert "role=server" in served and "role=client" in reached
        assert f"socket={place.folder}/s" in served and f"socket={place.folder}/s" in reached
        assert f"socket={place.folder}/l" in place.served(LEARNER)
        assert place.inside(SERVER, ["a", "b"]) == ["a", "b"]
    assert not place.folder.exists()


def test_with_a_third_core_a_server_polls_beside_one_that_sleeps():
    """Given hosts at a switch and three cores. Expect figures of every reading: both servers stand
    at once, which takes a host each."""
    needs_namespaces()
    first = cores.cores_of()
    three = (first[0], *first[-1:], *first[-1:])
    rows = t2a.measured("udp", grids.grid("quick"), three, 1, print)
    for row in tables.of_claim(rows, "T2a"):
        assert all(row[reading]["push_us"] > 0 for reading in t2a.readings(three))


# ---- Redis ----


class Fake(threading.Thread):
    """Answers one connection with these bytes, a few at a time."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.answer, self.heard = answer, b""
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    def run(self):
        connection, _ = self.listening.accept()
        with self.listening, connection:
            self.heard = connection.recv(1 << 16)
            for at in range(0, len(self.answer), 3):
                connection.sendall(self.answer[at : at + 3])
            connection.recv(1)  # until the client closes


def asked(answer, expected, timeout=30.0):
    """What a client makes of this answer to a GET."""
    fake = Fake(answer)
    fake.start()
    client = redis_row.Client(fake.port, timeout)
    try:
        put, get = (redis_row.requests(b"k", b"value")[work] for work in ("put", "get"))
        assert put == (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n", b"+OK\r\n")
        found = bytes(client.ask(get[0], expected))
        assert fake.heard == b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
        return found
    finally:
        client.close()
        fake.join()


def test_redis_answers_come_in_pieces():
    """Given an answer three bytes at a time. Expect it whole."""
    assert asked(b"$5\r\nvalue\r\n", 11) == b"$5\r\nvalue\r\n"


@pytest.mark.parametrize("answer, error", [(b"-ERR no\r\n", "refused"), (b"", "did not answer")])
def test_redis_that_fails_is_an_error(answer, error):
    """Given an error, or no answer at all. Expect a sentence, and no figure."""
    with pytest.raises(ReplayError, match=error):
        asked(answer, 11, 0.2)


def test_redis_itself(tmp_path):
    """Given a real redis-server, where there is one. Expect times of puts and gets."""
    if why := redis_row.missing():
        pytest.skip(why)
    there = sorted(os.sched_getaffinity(0))
    found = redis_row.rounds((64, 8192), 5, 2, (there[-1], there[0]), tmp_path)
    assert set(found) == {(work, size) for work in ("put", "get") for size in (64, 8192)}
    assert all(len(part) == 5 and (part > 0).all() for parts in found.values() for part in parts)
    assert sorted(os.sched_getaffinity(0)) == there


# ---- the command ----


def begun(*words):
    """`python -m benchmarks.paper`, its output a pipe."""
    command = [sys.executable, "-u", "-m", "benchmarks.paper", "--grid", "quick", *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def test_the_quick_grid_through_the_real_programs(tmp_path):
    """Given all three claims over loopback. Expect JSON lines, tables and pictures of each."""
    words = ["--transports", "loopback", "--cases", "udp-sleep,zmq", "--out", str(tmp_path)]
    process = begun(*words)
    out, _ = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, out
    head, *rows = harness.read_lines(tmp_path / "paper.jsonl")
    assert head["grid"] == "quick" and head["machine"] and head["load"] and head["spin_ns"] > 0
    grid = grids.grid("quick")
    for claim, cells in (("T2a", grid.t2a), ("T2b", grid.t2b)):
        found = tables.of_claim(rows, claim)
        assert [[row[key] for key in cells[0]._fields] for row in found] == list(map(list, cells))
        assert {row["against"] for row in tables.of_claim(rows, claim, best=True)}
        assert (tmp_path / f"{claim.lower()}.png").read_bytes().startswith(b"\x89PNG")
        assert "the paper's" in (tmp_path / f"{claim.lower()}.md").read_text()
    for row in tables.of_claim(rows, "T2a"):
        for reading in t2a.readings(tuple(head["cores"])):
            assert min(row[reading][f"{what}_us"] for what in ("push", "fetch", "step")) > 0
    measured = {row["transport"] for row in tables.of_claim(rows, "T1")}
    assert measured >= {"udp-sleep", "zmq"}
    assert redis_row.missing() or t1.REDIS in measured
    for name in head:
        assert name in out or name in ("load_after", "spin_ns_after", "seconds")


def test_ctrl_c_leaves_nothing_running(tmp_path):
    """Given Ctrl-C while the programs of T2a stand. Expect exit code 130, a sentence, and every
    program of its session gone."""
    words = ["--claims", "T2a", "--transports", "loopback", "--out", str(tmp_path)]
    process = begun(*words)
    said = []
    for line in process.stdout:
        said.append(line)
        if "stands" in line:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            break
    said += process.stdout
    assert process.wait(RUN_S) == EXIT_STOPPED, said
    assert "nothing is left running" in said[-1]
    assert not (tmp_path / "paper.jsonl").exists()
    left = subprocess.run(["ps", "-s", str(process.pid), "-o", "args="], capture_output=True)
    assert left.stdout == b""


def test_what_was_whole_is_kept_where_the_rest_is_stopped(tmp_path, monkeypatch):
    """Given Ctrl-C behind the first transport. Expect its rows, with a head that says so."""

    def measure(args, cores):
        yield [{"missing": "T2a", "transport": "udp", "why": "none here"}]
        raise KeyboardInterrupt

    monkeypatch.setattr(paper, "measure", measure)
    assert paper.main(["--claims", "T2a", "--out", str(tmp_path)]) == EXIT_STOPPED
    head, row = harness.read_lines(tmp_path / "paper.jsonl")
    assert head["stopped"] is True and row["why"] == "none here"


def test_pictures_are_drawn_from_rows_alone(tmp_path):
    """Given rows as JSON has them, one far below zero. Expect a picture; none without rows."""
    lower = {"push_us": 2.0, "push_lower": [-9.0, -8.0, 0.1], "push_p99_lower": [0.1, 0.2, 0.3]}
    row = {"claim": "T2a", "transport": "udp", "size": 1024, "sessions": 4, "step_ms": 10}
    rows = json.loads(json.dumps([row | {"learner": {"push_us": 1.0}, "network": lower}]))
    assert plots.draw(rows, "T2a", tmp_path / "t2a.png", "here")
    assert (tmp_path / "t2a.png").read_bytes().startswith(b"\x89PNG")
    assert not plots.draw([], "T2a", tmp_path / "none.png", "here")
    assert set(TRANSPORTS) >= {"udp", "af_packet", "af_xdp", "memif"}
