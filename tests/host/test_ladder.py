"""The ladder: its statistics, turns and verdict against oracles, its short runs over real sockets.

No time is judged: figures are planted where they matter, and a run has to be whole, not fast. Over
DPDK it is run by tests/dpdk/ladder.py.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from until import until

from replay_server import Client, ReplayError, Server, Table
from replay_server.__main__ import EXIT_USAGE, main
from replay_server.bench import ladder, namespaces
from replay_server.bench import ladder_cases as cases
from replay_server.bench import ladder_end as ends
from replay_server.bench import ladder_figures as figures
from replay_server.bench.ladder_figures import WORKS, Figures
from replay_server.bench.stoppable import put_off, stoppable

ROOT = Path(__file__).resolve().parents[2]
FIELDS = ["name", "transport", "workload", "batch", "metric", "value", "unit", "machine"]
MTU, SIZES = 1400, (64, 8192)
CORES = len(os.sched_getaffinity(0))
PLAIN = (*(("udp", "zmq") if CORES > 1 else ("zmq",)), "udp-sleep")


def climb(tmp_path, *names):
    """A run of two rounds or so, a few dozen calls in a cell; its rows."""
    paths = {"json": tmp_path / "ladder.json", "plot": tmp_path / "ladder.png"}
    course = ladder.course_of(True, ",".join(names), 1.0, 7)
    course = replace(course, sizes=SIZES, rate_sizes=SIZES, calls=24, rate_limit_s=0.005)
    assert ladder.ladder(course, *paths.values()) == 0
    assert paths["plot"].read_bytes().startswith(b"\x89PNG")
    return json.loads(paths["json"].read_text())


def expect_whole(rows, names):
    """Each case measured, each cell of it told."""
    for row in rows:
        assert list(row) == FIELDS and row["machine"]
        assert isinstance(row["batch"], int) and isinstance(row["value"], str | int | float)
    states = {row["transport"]: row["value"] for row in rows if row["name"] == "ladder.case"}
    assert states == dict.fromkeys(names, "measured") | {"nic": "unmeasured"}
    found = Counter((r["name"], r["transport"], r["batch"], r["metric"]) for r in rows)
    for name in names:
        for work in WORKS:
            for size in SIZES:
                for metric in ("p50", "p99", "p99.9", "calls"):
                    assert found[f"ladder.access.{work}", name, size, metric] == 1
                for metric in ("median", "best round"):
                    assert found[f"ladder.rate.{work}", name, size, metric] == 1
    assert all(r["value"] > 0 for r in rows if r["name"].startswith(("ladder.access", "ladder.ra")))


# ---- figures ----


@pytest.mark.parametrize("seed", range(20))
def test_a_quantile_is_the_smallest_value_that_share_does_not_exceed(seed):
    """Given random latencies, ties among them. Expect what counting says."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 50, rng.integers(1, 400)).astype(np.uint32)
    for share in (0.5, 0.99, 0.999, 1.0):
        enough = [v for v in values.tolist() if (values <= v).sum() >= share * len(values)]
        assert figures.quantile(values, share) == min(enough)


def test_rounds_visit_each_cell_and_case_once_side_by_side():
    """Given two rounds of a seed. Expect each (work, size, case) once in each, all cases of a cell
    before the next, orders that differ, and the same rounds from the same seed."""
    keys = ("udp", "memif", "zmq")
    chance = random.Random(5)
    both = [list(ladder.turns(chance, ladder.SIZES, keys)) for _ in range(2)]
    for turns in both:
        assert len(turns) == len(set(turns)) == len(WORKS) * len(ladder.SIZES) * len(keys)
        for at in range(0, len(turns), len(keys)):
            cell = turns[at : at + len(keys)]
            assert len({turn[:2] for turn in cell}) == 1 and {turn[2] for turn in cell} == {*keys}
    assert both[0] != both[1]
    assert both[0] == list(ladder.turns(random.Random(5), ladder.SIZES, keys))


def planted(worse: dict[tuple[str, int], int]) -> Figures:
    """Both cases at every size: udp at 10 us, memif at 4; `worse`: at so many nanoseconds."""
    found = Figures(ladder.SIZES, ladder.RATE_SIZES, (MTU,), cases.CASES)
    for work in WORKS:
        for size in ladder.SIZES:
            for key, ns in (("udp", 10_000), ("memif", worse.get((work, size), 4_000))):
                found.times_ns[key, (MTU, work, size)].append(np.full(9, ns, np.uint32))
    return found


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        ({}, ["met", "met"]),
        ({("get", 1024): 4_500}, ["not met", "met"]),
        ({("put", 2048): 7_000}, ["met", "not met"]),
        ({("put", 64): 9_000}, ["not met", "not met"]),
        ({("put", 16384): 20_000, ("get", 65536): 9_999}, ["met", "met"]),
        ({("put", 64): 4_110}, ["met", "met"]),
    ],
)
def test_the_verdict_is_that_of_the_worst_size(worse, words):
    """Given one planted worse size. Expect the targets it falls under not met, that size named;
    58.9 % exactly is met; sizes beyond a target do not count."""
    found = planted(worse)
    judged = [figures.verdict(found, target, MTU) for target in figures.TARGETS]
    assert [one.word for one in judged] == words
    for one in judged:
        if one.word == "not met":
            ((work, size),) = worse
            assert one.worst[1:] == (work, size)
            assert f"{work} of {figures.size_text(size)}" in figures.verdict_line(one)


def test_without_all_sizes_there_is_no_verdict():
    """Given a size that was not measured. Expect "unmeasured", however good the others are."""
    found = planted({})
    del found.times_ns["memif", (MTU, "get", 512)]
    assert [figures.verdict(found, t, MTU).word for t in figures.TARGETS] == ["unmeasured"] * 2
    nothing = Figures(ladder.SIZES, ladder.RATE_SIZES, (MTU,), cases.chosen("udp"))
    assert figures.verdict(nothing, figures.TARGETS[0], MTU).met is None
    assert [row.transport for row in figures.rows_of(nothing, "here")] == [
        "udp",
        "nic",
        "memif",
        "memif",
    ]


def test_tables_tell_medians_and_reductions():
    """Given planted figures. Expect the medians and the reductions as worked out by hand."""
    found = planted({("put", 128): 2_500})
    text = "\n".join(figures.lines(found, MTU))
    assert re.search(r"DPDK memif +p50 +4\.00 +2\.50 +4\.00", text)
    assert re.search(r"DPDK memif against UDP, busy polling +put +-60\.0 % +-75\.0 %", text)


# ---- turns, with cases that are no processes ----


class FakeCase:
    """Answers as a client does; fails at its `fails`th turn."""

    fails: tuple[str, int] = ("", 0)
    standing: list[FakeCase]

    def __init__(self, case, mtu, course, pair, path):
        self.case, self.turns, self.closed = case, 0, False
        self.client = self
        type(self).standing.append(self)

    def measure(self, order, **_):
        self.turns += 1
        if (self.case.key, self.turns) == self.fails:
            raise ReplayError("planted")
        return {"ns": 1000, "done": 5} if order == "rate" else {"ns": [1000, 2000, 3000]}

    def ask(self, order):
        assert order == "counters"
        return {"retransmissions": self.turns}

    def close(self):
        self.closed = True


def test_a_case_that_fails_is_reported_and_the_others_go_on(monkeypatch):
    """Given a case that fails in its third turn. Expect its reason, as many turns for the others as
    for each other, equal calls in their cells but for a round, everything closed."""
    fake = type("Fake", (FakeCase,), {"fails": ("udp", 3), "standing": []})
    monkeypatch.setattr(ladder, "Standing", fake)
    said = []
    chosen = cases.chosen("zmq,udp-sleep,udp")
    course = ladder.Course(chosen, (64, 128), (64,), (MTU,), seconds=0.01, cores=(0, 1))
    found = ladder.Rounds(course, said.append).run()
    turns = {one.case.key: one.turns for one in fake.standing}
    assert turns["udp"] == 3 and turns["zmq"] == turns["udp-sleep"] >= 2 * 2 + 2
    assert found.reasons == {(MTU, "udp"): "failed in round 1: planted"}
    assert any("planted" in line for line in said)
    for key in ("zmq", "udp-sleep"):
        calls = [found.calls(key, (MTU, work, size)) for work in WORKS for size in (64, 128)]
        assert calls == [found.calls("zmq", (MTU, w, s)) for w in WORKS for s in (64, 128)]
        assert min(calls) >= 3 and max(calls) - min(calls) <= 3
        assert found.rate(key, (MTU, "put", 64)) == (5e6, 5e6)
    assert all(one.closed for one in fake.standing)


# ---- what cannot be measured here ----


def test_cases_that_cannot_run_say_why(monkeypatch):
    """Given one core, no pyzmq, no root, no iproute2. Expect a sentence for the cases concerned."""
    by_key = {case.key: case for case in cases.CASES}
    assert "one core" in cases.missing(by_key["memif"], 1)
    assert cases.missing(by_key["udp-sleep"], 1) is None
    monkeypatch.setattr(cases.importlib.util, "find_spec", lambda _: None)
    assert "replay-server[zmq]" in cases.missing(by_key["zmq"], 2)
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    assert "root" in cases.missing(by_key["af_xdp"], 2)
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces.shutil, "which", lambda _: None)
    assert "iproute2" in cases.missing(by_key["veth-udp"], 2)


def test_without_dpdk_the_ladder_goes_on(monkeypatch, tmp_path, capsys):
    """Given no DPDK object. Expect memif's line to say that, and the other case's rows."""
    monkeypatch.setenv("REPLAY_DPDK", str(tmp_path / "nothing"))
    rows = climb(tmp_path, "udp-sleep", "memif")
    states = {row["transport"]: row["value"] for row in rows if row["name"] == "ladder.case"}
    assert states["udp-sleep"] == "measured"
    why = "built without DPDK" if CORES > 1 else "there is one core"
    assert why in states["memif"]
    printed = capsys.readouterr().out
    assert f"memif, frames of {MTU} B: not here: " in printed
    assert f"T1 memif, every S <= 8 KiB, frames of {MTU} B: at least 32.7 % lower: unmeasured" in (
        printed
    )


def test_without_matplotlib_it_says_so_before_it_measures(monkeypatch, capsys):
    """Given no matplotlib. Expect one sentence with the install command, and no attempt."""
    monkeypatch.setattr(ladder.ladder_plot.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(ladder.Rounds, "run", lambda self: self.figures)
    course = ladder.Course(cases.chosen("udp"), cores=(0,))
    assert ladder.ladder(course, None, Path("ladder.png")) == 0
    assert "pip install 'replay-server[plot]'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cases", "udp,tcp"], "there is no case 'tcp'; the cases are zmq, udp-sleep, udp"),
        (["--budget", "0.5"], "--budget is 0.5; expected 1 to 86400 s"),
        (["--plot", "ladder.plot"], "--plot is ladder.plot; expected a name that ends in .png"),
        (["--json", "not/here.json"], "--json is not/here.json, and there is no folder not"),
    ],
)
def test_wrong_options_are_a_sentence(options, sentence, capsys):
    """Given a case or a time that cannot be. Expect what can, and exit code 2."""
    assert main(["bench", "--ladder", *options]) == EXIT_USAGE
    assert sentence in capsys.readouterr().err


def test_the_command_line_says_what_is_measured_for_how_long(monkeypatch):
    """Given full, quick and chosen ladders. Expect sizes, frames, cases, seconds as they say."""
    asked = []
    monkeypatch.setattr(ladder, "ladder", lambda course, *files: asked.append((course, files)) or 0)
    full, quick, own = [], ["--quick", "--plot", "none"], ["--cases", "memif,udp", "--budget", "9"]
    assert [main(["bench", "--ladder", *options]) for options in (full, quick, own)] == [0, 0, 0]
    (full, files), (quick, no_plot), (own, _) = asked
    assert files == (None, Path("ladder.png")) and no_plot == (None, None)
    assert full.sizes == ladder.SIZES and full.mtus == (1400, 8960) and full.seconds == 360
    assert quick.sizes == (64, 1024, 8192, 65536) and quick.mtus == (1400,) and quick.seconds < 60
    assert [case.key for case in own.cases] == ["udp", "memif"] and own.seconds == 9
    assert [case.key for case in full.cases] == list(cases.KEYS)


def test_the_two_cores_are_no_siblings_where_that_can_be():
    """Given hosts of 1, 2 and 4 threads. Expect one core, both, and threads of different cores."""
    pairs = {0: {0, 2}, 1: {1, 3}, 2: {0, 2}, 3: {1, 3}}
    assert ladder.two_cores([5], lambda _: set()) == (5,)
    assert ladder.two_cores([0, 1], lambda _: {0, 1}) == (1, 0)
    assert ladder.two_cores([1, 2, 3], pairs.__getitem__) == (3, 2)


# ---- the real thing, a few dozen calls ----


def test_the_ladder_over_real_sockets(tmp_path):
    """Given ZeroMQ and UDP. Expect every cell measured and a picture."""
    expect_whole(climb(tmp_path, *PLAIN), PLAIN)


def test_the_ladder_between_two_namespaces(tmp_path):
    """Given kernel UDP over a veth pair. Expect every cell measured, and no namespace left."""
    why = namespaces.missing() or ("there is one core" if CORES < 2 else None)
    if why:
        assert os.environ.get("CI") != "true" or os.geteuid() != 0, why
        pytest.skip(why)
    expect_whole(climb(tmp_path, "veth-udp"), ("veth-udp",))
    assert f"replay-{os.getpid()}-" not in subprocess.check_output(["ip", "netns"], text=True)


def marked(mark: str) -> list[int]:
    """Processes whose environment holds it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended, or is not ours
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_ladder_leaves_nothing(number, tmp_path):
    """Given a signal in the middle. Expect no process, namespace or folder left; after a kill -9,
    which lets nobody clear away, no process all the same."""
    mark = uuid.uuid4().hex
    veth = namespaces.missing() is None and CORES > 1 and number != signal.SIGKILL
    names = "udp-sleep,veth-udp" if veth else "udp-sleep"
    command = ["-u", "-m", "replay_server", "bench", "--ladder", "--quick", "--cases", names]
    process = subprocess.Popen(
        [sys.executable, *command, "--plot", "none"],
        cwd=ROOT,
        env=os.environ | {"LADDER_MARK": mark, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any(
            "cases that stand: " + names.replace(",", ", ") in said for said in process.stdout
        )
        assert len(marked(mark)) == (5 if veth else 3)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    until(lambda: not marked(mark), "every process of the ladder ends")
    if number != signal.SIGKILL:
        assert process.returncode == ladder.EXIT_STOPPED
        assert "stopped before the end" in printed
        assert list(tmp_path.iterdir()) == []
        if veth:
            listed = subprocess.check_output(["ip", "netns"], text=True)
            assert f"replay-{process.pid}-" not in listed


def test_an_item_that_nobody_put_is_found():
    """Given a table with rows of another writer's. Expect the client to say that they are wrong."""
    cores = os.sched_getaffinity(0)
    table = ends.table_of(64)
    table = Table(table.name, step=table.step, capacity=512, writers=2, streams=1, window=16)
    with Server([table], "udp://127.0.0.1:0", seed=3) as server:
        asking = ends.Asking(server.address, [64], False, 0)
        try:
            assert len(asking.latency("get", 64, 30, 5, 5.0)["ns"]) == 30
            assert asking.rate("get", 64, 0.001)["done"] > 0
            with Client(server.address) as client:
                client.extend("s64", {"x": np.ones((256, 64), np.uint8)})
            with pytest.raises(ReplayError, match="were not what had been put"):
                asking.latency("get", 64, 100, 0, 5.0)
        finally:
            asking.close()
    assert os.sched_getaffinity(0) == cores


def test_ctrl_c_waits_until_a_child_is_known_to_who_ends_it():
    """Given SIGINT within a put_off in another. Expect all of both to run, then KeyboardInterrupt;
    at once outside; and the handlers from before behind it."""
    before, ran = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), stoppable():
        with put_off():
            with put_off():
                signal.raise_signal(signal.SIGINT)
                ran.append("inner")
            ran.append("outer")
        ran.append("behind")
    with pytest.raises(KeyboardInterrupt), stoppable():
        with put_off():
            pass
        signal.raise_signal(signal.SIGTERM)
        ran.append("behind")
    assert ran == ["inner", "outer"] and signal.getsignal(signal.SIGINT) is before
