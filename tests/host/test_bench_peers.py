"""`make bench-peers`: its driver, workers and report, on grids that take seconds. No peer is
installed here: a stand-in of NumPy behind pickle over ZeroMQ is measured beside this package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from tracked import ROOT
from until import until

from benchmarks import harness
from benchmarks.peers import ours, pool, report, roster, run
from benchmarks.peers.arrays import NumpyReplay
from benchmarks.peers.in_process import InProcess
from benchmarks.peers.jobs import Job, PeerFailed, jobs_of, open_row
from benchmarks.peers.learn import TASKS, Learner
from benchmarks.peers.peer import Peer, Sampled, Setting, packed, stacked
from benchmarks.peers.processes import Process
from benchmarks.peers.worker import Client
from benchmarks.peers.worlds import CELLS, CartPoles, Flights

QUICK = ["--quick", "--rounds", "1", "--seconds", "0.01", "--items", "small"]
STAND_IN, LOCAL = roster.STAND_INS[:2]


def setting_of(item, path, capacity=1024, **options):
    """A setting with its pool made."""
    pool.make(item, path, 1)
    return Setting(item, pool.columns_of(item), capacity, str(path), options)


def test_a_run_prints_ours_and_the_stand_in_and_who_is_missing(tmp_path, capsys):
    """Given ours, a stand-in, and one that cannot be installed. Expect figures of both at every
    job, the third said, the last batch of each job right, and a page written from the lines."""
    names = "ours zmq,stand-in zmq,stand-in,stand-in missing"
    assert run.main(["--peers", names, *QUICK, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "stand-in missing cannot be installed: it needs Python 9.9" in out
    head, *lines = map(json.loads, (tmp_path / "peers.jsonl").read_text().splitlines())
    assert head["missing"] == {
        "stand-in missing": "cannot be installed: it needs Python 9.9, which is not here"
    }
    jobs = {job.name for job in jobs_of("small", True, False)}
    for name in ("ours zmq+tcp", "stand-in zmq"):
        assert {line["job"] for line in lines if line["peer"] == name} == jobs
    assert "mixed" not in {line["kind"] for line in lines if line["peer"] == "stand-in"}
    assert all(line["wrong"] == 0 and line["rate"] > 0 for line in lines)
    assert all(line["checked"] > 0 for line in lines if line["kind"] in ("sample", "ahead"))
    assert all(0 < line["waited"] <= 1 for line in lines if line["kind"] == "wait")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nbehind\n")
    assert report.main([str(tmp_path / "peers.jsonl"), "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("behind\n") and "\nold\n" not in text
    assert "### Ratios" in text and "What a learner feels: small" in text
    assert (tmp_path / "rates-small.png").exists()


def test_a_worker_that_dies_is_said_and_the_others_go_on(tmp_path, capsys):
    """Given two rows, one whose client is killed. Expect that one out, with its exit code, and a
    figure of the other."""
    path = tmp_path / "pool.npz"
    pool.make("small", path, 1)
    opened = {}
    try:
        for row in (STAND_IN, LOCAL):
            opened[row.name] = open_row(row, "small", path, 2, tmp_path / "logs", print)
        victim = opened[STAND_IN.name].clients[0].process
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(10)
        args = Namespace(seconds=0.01, rounds=1, seed=1)
        one = run.Run(args, [STAND_IN, LOCAL], {})
        job = Job("sample", 32)
        one.rounds("small", [job], opened)
    finally:
        for row in opened.values():
            row.close()
    assert "stand-in zmq is out: stand-in zmq, client 0" in capsys.readouterr().out
    assert STAND_IN.name in one.missing and set(opened) == {LOCAL.name}
    assert len(one.done["small", job, LOCAL.name]) == 1


def test_who_spins_is_stopped_while_others_are_measured(tmp_path, capsys):
    """Given a row that spins and one that does not. Expect the first stopped but for its turn, and
    no word of either; of a row that takes a core while idle, how much, in the header too."""
    path, spinning = tmp_path / "pool.npz", replace(STAND_IN, spins=True)
    pool.make("small", path, 1)
    opened = open_row(spinning, "small", path, 2, tmp_path / "logs", print)
    try:

        def states():
            stats = [Path(f"/proc/{process.process.pid}/stat") for process in opened.processes]
            return {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}

        until(lambda: states() == {"T"}, "its processes are stopped")
        assert opened.measure(Job("sample", 32), 0.01).items >= 32
        until(lambda: states() == {"T"}, "its processes are stopped again")
        one = run.Run(Namespace(), [spinning], {})
        one.look("small", {spinning.name: opened, "restless": Restless()})
    finally:
        opened.close()
    assert set(one.idle["small"]) == {"restless"} and one.idle["small"]["restless"] > run.IDLE_MOST
    assert "restless: takes" in capsys.readouterr().out
    head = harness.header(1, [0], rounds=1, seconds=1.0, wire="lo", pinning="none", environments={})
    head |= {"load_after": [0.0], "missing": {}, "idle": one.idle}
    assert "- Idle, of a core, beside all others (small): restless " in report.said(head)


class Restless:
    """A row that takes all of a core."""

    begin = time.monotonic()

    def cpu_s(self):
        return time.monotonic() - self.begin


def test_what_a_worker_cannot_do_is_a_sentence(tmp_path):
    """Given a worker of a module that fails, one that ends, and one that says nothing. Expect each
    by its name, with why."""
    row = replace(LOCAL, name="broken", module="no_such_peer")
    process = Process(row, "client", tmp_path)
    try:
        with pytest.raises(PeerFailed, match="broken, client: ModuleNotFoundError: No module"):
            process.ask(60, do="connect", setting={}, address="")
        with pytest.raises(PeerFailed, match="broken, client did not answer in 0 s"):
            process.answer(0)
        os.kill(process.process.pid, signal.SIGKILL)
        with pytest.raises(PeerFailed, match=r"broken, client died \(exit code -9\)"):
            process.answer(60)
    finally:
        process.close(1)


class Lying(Peer):
    """Gives the pool's first items, one byte changed in the second."""

    def __init__(self, columns):
        self.columns = columns

    def sample(self, batch):
        items = {name: column[:batch].copy() for name, column in self.columns.items()}
        items["observation"].view(np.uint8).reshape(batch, -1)[1, 3] ^= 1
        return Sampled(items, None, None)


def test_one_changed_byte_of_a_sample_is_found(tmp_path):
    """Given a peer whose sample has one other byte, and items that were never inserted. Expect each
    counted."""
    setting = setting_of("small", tmp_path / "pool.npz")
    columns, _ = pool.load(setting.pool)
    client = Client(Lying(columns), setting)
    client.sample(8, {"seconds": 0.0})
    assert (client.checked, client.wrong) == (8, 1)
    items = {name: column[:4].copy() for name, column in columns.items()}
    assert pool.wrong(items, columns) == 0
    items["action"][:] = [-1, 1, 2, len(columns["action"])]
    assert pool.wrong(items, columns) == 2


@pytest.mark.parametrize("frames", [False, True])
def test_ours_returns_what_was_inserted(tmp_path, monkeypatch, frames):
    """Given Pong transitions as plain bytes and as native frames, with breaks in their order.
    Expect two stacks of each sampled item, byte for byte, in turn and ahead; and that updates are
    taken."""
    monkeypatch.setitem(pool.COUNTS, "atari", 96)
    options = {"url": "loopback://", "frames": frames, "client": 0}
    setting = setting_of("atari", tmp_path / "pool.npz", 1024, **options)
    client = Client(ours.connect(setting, ""), setting)
    try:
        for batch in (32, 7, 32, 1, 64):  # 64 does not fit behind the others: from the beginning
            client.peer.insert(client.next_items(batch))
        client.prepare("update", 32)
        assert client.update(32, {"seconds": 0.0})["items"] == 32
        client.sample(64, {"seconds": 0.0})
        client.ahead(64, {"seconds": 0.0})
        assert client.checked == 32 + 64 + 64 and client.wrong == 0
        assert len(client.learn(32, {"seconds": 0.0, "step": 0.001})["times"]) == 4
    finally:
        client.streams.clear()
        client.peer.close()


def test_the_stand_in_is_a_replay():
    """Given rows and priorities. Expect its tree to hold them, and draws in proportion."""
    replay = NumpyReplay(Setting("small", {"action": ["<i8", []]}, 2048))
    for count in (1000, 700):
        replay.add({"action": np.arange(count)})
    priorities = np.arange(1700) / 100.0
    replay.update_priorities(np.arange(1700), priorities)
    assert np.isclose(replay.tree[1], (priorities**0.6).sum())
    batch = replay.sample(20_000)
    assert batch["indexes"].min() > 0 and batch["indexes"].max() < 1700
    drawn = np.bincount(batch["indexes"] // 170, minlength=10) / 20_000
    share = (priorities**0.6).reshape(10, 170).sum(1) / (priorities**0.6).sum()
    assert np.abs(drawn - share).max() < 0.02
    assert batch["weights"].max() == 1.0


def test_items_are_the_bytes_that_are_said():
    """Given each kind of item. Expect its bytes, and records that give the columns back."""
    for item, size in (("small", 45), ("atari", 56_461), ("bytes-65", 65)):
        assert Setting(item, pool.columns_of(item), 1).item_bytes == size
    record = Setting("small", pool.columns_of("small"), 1).record
    rows = {name: np.ones((3, *record[name].shape), record[name].base) for name in record.names}
    back = stacked([row.tobytes() for row in packed(rows, record)], record)
    assert all(np.array_equal(back[name], rows[name]) for name in rows)


def line(peer, rate, ours_too=False, spread=1.0, **more):
    """A line of a report."""
    known = {"item": "small", "job": "insert 256 acknowledged", "kind": "insert", "batch": 256}
    known |= {"writers": 1, "step_ms": 0.0, "peer": peer, "ours": ours_too, "where": "network"}
    known |= {
        "equal": "busy" not in peer,
        "rate_low": 0.9 * rate,
        "rate_high": 1.1 * rate,
        "rounds": 5,
        "calls": 50,
    }
    return known | {"frames": False, "rate": rate, "spread": spread, "p50_us": 1e6 / rate} | more


def test_losses_are_printed_like_wins_and_unsteady_rows_are_marked():
    """Given a loss, whose rows disagree, a row that does not count, and one that polls. Expect the
    ratio below 1 in bold, the mark, the best peer that counts, and the poll beside an equal wait;
    a tie said to be one, and no percentile of few calls."""
    lines = [line("ours udp", 100.0, True), line("slow", 50.0), line("fast", 200.0, spread=1.6)]
    lines.append(line("local", 900.0, where="in process"))
    text = "\n".join(report.ratios(lines))
    assert "| **0.5** | **0.5** |" in text and "fast: 200/s (!)" in text and "local" not in text
    text = "\n".join(report.ratios([*lines, line("ours udp, busy", 220.0, True)]))
    assert "| **0.5** | ≈ 1.1 |" in text
    few = line("fast", 1.0, p99_us=7.0, p999_us=8.0, notes=[], wire_bytes=0, rounds=1)
    row = report.cells(few | {"client_cpu_us": 1.0, "server_cpu_us": 1.0}, [])
    assert row[3:6] == ["–", "–", "1 (1 round)"]


def test_a_name_that_nobody_has_is_refused(capsys):
    """Given PEERS=nobody. Expect exit code 2 and the names."""
    with pytest.raises(SystemExit, match="2"):
        run.main(["--peers", "nobody"])
    assert "'nobody' is in no name; there are: ours udp" in capsys.readouterr().err


def children_of(pid):
    """Process ids below this one."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(name), *children_of(int(name))]
    return found


def test_ctrl_c_ends_every_process(tmp_path):
    """Given a run whose workers are at work, and SIGINT. Expect exit code 130, said, and none of
    its processes left."""
    command = [sys.executable, "-m", "benchmarks.peers.run", "--peers", "ours zmq", "--quick"]
    command += ["--items", "small", "--rounds", "1000", "--out", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for said in process.stdout:
            if " of 1000, " in said:
                break
        below = children_of(process.pid)
        assert len(below) >= 3  # a server, two clients
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 130
    assert "interrupted" in rest and "**Interrupted**" in rest
    assert [pid for pid in below if os.path.exists(f"/proc/{pid}")] == []


def test_the_poles_are_gymnasiums():
    """Given random states and actions. Expect Gymnasium's CartPole-v1 after each step, and ends."""
    env = gymnasium.make("CartPole-v1").unwrapped
    random = np.random.default_rng(1)
    states = random.uniform(-1, 1, (200, 4)) * [2.5, 2.0, 0.25, 2.0]
    actions = random.integers(2, size=200)
    poles = CartPoles(200, random)
    poles.state = states.copy()
    played = poles.step(actions)
    after, terminated = played.after, played.terminated
    for i in range(200):
        env.reset(seed=1)
        env.state, env.steps_beyond_terminated = tuple(states[i]), None
        then, _, over, _, _ = env.step(int(actions[i]))
        assert np.allclose(after[i], then, atol=1e-6) and bool(terminated[i]) == over


def test_a_flight_is_what_its_frames_show():
    """Given balls and random answers. Expect the newest frame a cell further each step in the
    ball's own direction, frames that go back in the stack, a reward for the fourth right answer
    alone, and an end with it or with a wrong one."""
    random = np.random.default_rng(1)
    world, right = Flights(64, random), np.zeros(64, int)
    for _ in range(200):
        now, way, first = world.observations, world.way.copy(), world.age == 0
        actions = random.integers(2, size=64)
        played = world.step(actions)
        cell = now[:, -1].max(1).reshape(64, CELLS, 4).max(2).argmax(1)
        moved = played.after[:, -1].max(1).reshape(64, CELLS, 4).max(2).argmax(1)
        assert ((cell + 2 * way - 1) % CELLS == moved).all()
        assert (played.after[:, :-1] == now[:, 1:]).all()
        right = np.where(first, 0, right + (actions == way))
        wrong = ~first & (actions != way)
        assert (played.rewards == (right == 4)).all()
        assert (played.terminated == (wrong | (right == 4))).all()
        assert sorted(played.scores) == sorted(played.rewards[played.terminated])


def learned(task, seed):
    """A learner through the stand-in, at its end: the task's score, or 10 000 updates."""
    setting = Setting(task.item, pool.columns_of(task.item), 1 << 13, "", {"buffer": "numpy"})
    learner = Learner(InProcess(setting), task, seed)
    while learner.updates < 10_000 and not learner.reached:
        learner.run(0.01)
    return learner


@pytest.mark.parametrize("name", TASKS)
def test_a_learner_learns_through_a_buffer(name):
    """Given the stand-in. Expect items stored, batches learned from, and the task's score from one
    of three seeds: one in sixteen is stuck for longer on CartPole, and which one it is differs by
    processor (the last bits of a product of matrices do)."""
    learners = []
    while len(learners) < 3 and not any(learner.reached for learner in learners):
        learners.append(learned(TASKS[name], seed=1 + len(learners)))
    assert all(learner.steps >= 1024 and learner.updates >= 500 for learner in learners)
    assert learners[-1].reached
