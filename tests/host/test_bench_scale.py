"""`make bench-scale` and `make bench-model`: every point measured, what does not fit left out by
name, and a model that finds the core it was made from."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.scale import page
from benchmarks.scale.axes import AXES, BASE, OPERATIONS, QUICK, Point, fitting, points
from benchmarks.scale.model import Core, Request, fitted, served
from benchmarks.scale.serving import Serving


def test_every_point_over_real_sockets(tmp_path):
    """Given the small grid, one round. Expect a row for each point and operation, with a rate and
    the server's cost, a picture, and tables."""
    told, picture = tmp_path / "scale.jsonl", tmp_path / "scale.png"
    command = [sys.executable, "-m", "benchmarks.scale.run", "--quick", "--rounds", "1"]
    command += ["--json", str(told), "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    head, *rows = map(json.loads, told.read_text().splitlines())
    assert head["machine"] and head["load"] and head["spin_ns"] > 0
    expected = {(axis, value) for axis, values in QUICK.items() for value in values}
    assert {(row["axis"], row[row["axis"]]) for row in rows} == expected
    assert {row["operation"] for row in rows} == set(OPERATIONS)
    assert len(rows) == len(expected) * len(OPERATIONS) - len(QUICK["sessions"])  # no ahead
    assert all(row["value"] > 0 and row["server_ns"] > 0 for row in rows)
    assert done.stdout.count("items/s (server ns)") == len(QUICK) * len(OPERATIONS)
    assert picture.exists() or "matplotlib is not installed" in done.stdout


def test_what_does_not_fit_is_left_out_by_name():
    """Given room for two million items of the base. Expect the larger tables named and dropped
    until all that stand at once fit, and large items in a smaller table."""
    found, memory = points(AXES, BASE), 2_000_000 * (BASE.size + 64)
    lines = list(fitting(found, memory))
    assert all(sum(point.memory for point in some) <= memory for some in found.values())
    kept = [point.sessions for point in found["sessions"]]  # all alike in memory
    assert kept and tuple(kept) == AXES["sessions"][: len(kept)]
    left = [point.capacity for point in found["capacity"]]
    assert left == [10_000, 100_000, 1_000_000]
    dropped = [line.split(": ")[1] for line in lines]
    assert {"capacity 10,000,000", "capacity 100,000,000"} <= set(dropped)
    assert all(point.capacity * point.size <= 400_000_000 for point in found["size"])
    assert all(point.capacity > BASE.capacity for point in found["sessions"])


@pytest.mark.parametrize("sessions", [16, 256])
def test_as_many_sessions_as_an_axis_has(monkeypatch, sessions):
    """Given sessions beyond a server's defaults. Expect each to insert and to draw, once to warm it
    and at least once more."""
    point = Point(capacity=64 * 16 * sessions, sessions=sessions, batch=8, size=64)
    serving, made, counts = Serving(point, "udp://127.0.0.1:0", None), Serving._calls, Counter()

    def counted(self, operation, stack):
        calls = list(enumerate(made(self, operation, stack)))
        return [lambda i=i, call=call: (counts.update([i]), call())[1] for i, call in calls]

    monkeypatch.setattr(Serving, "_calls", counted)
    try:
        for operation in ("insert", "sample"):
            counts.clear()
            rates, server_ns = serving.measured(operation)
            assert len(counts) == sessions and min(counts.values()) >= 2
            assert rates.min() > 0 and server_ns > 0
    finally:
        serving.close()


@pytest.mark.parametrize(
    "name, lines, says",
    [
        ("scale", [{"quick": True}], "is of QUICK=1"),
        ("model", [{"quick": True}], "is of QUICK=1"),
        ("ranks", [{"quick": True}], "is of QUICK=1"),
        ("scale", [{"rounds": 1}, *({"axis": axis} for axis in AXES)], "is of 1 rounds"),
        (
            "scale",
            [{"rounds": 5}, {"axis": "capacity"}],
            "was cut off: batch, sessions, shards, si",
        ),
    ],
)
def test_a_page_is_written_of_whole_runs_alone(tmp_path, name, lines, says):
    """Given figures of QUICK, of fewer rounds, and such as were cut off. Expect them refused, and
    the page as it was."""
    before = page.PAGE.read_bytes()
    (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(SystemExit, match=says):
        page.main([str(tmp_path)])
    assert page.PAGE.read_bytes() == before


def requests_of(core):
    """Requests whose times are exactly the core's."""
    shapes = [(3e3, 1e3), (5e3, 4e3), (2e4, 2e4), (4e4, 1e5), (2e5, 5e5), (3e5, 2e6)]
    made = [Request(f"{i}", 1400, *shape, 8.0, 1.0) for i, shape in enumerate(shapes)]
    return [Request(r.name, r.mtu, r.instructions, r.wire_bits, r.items, core.ns(r)) for r in made]


def test_the_model_finds_the_core_it_was_made_from():
    """Given times of a core of 5 instructions and 8 bytes a nanosecond. Expect these, and no error
    on the requests that it was not fitted to; twice the time of one is an error of a half."""
    core = Core(5.0, 8.0)
    requests = requests_of(core)
    found, errors = fitted(requests)
    assert found.speed == pytest.approx(5.0) and found.width == pytest.approx(8.0)
    assert errors == pytest.approx([0.0] * 3, abs=1e-9)
    slow = requests[1]
    requests[1] = Request(slow.name, slow.mtu, slow.instructions, slow.wire_bits, 8.0, 2 * slow.ns)
    assert fitted(requests)[1][0] == pytest.approx(-0.5)


def test_what_bounds_a_rate():
    """Given a request of 1000 ns and 10,000 bits. Expect the core to bound one, the line eight."""
    request = Request("one", 1400, 1000.0, 1e4, 1.0, 0.0)
    core = Core(1.0, float("inf"))
    assert served(request, core, 1, 40e9) == (1e6, "core")
    assert served(request, core, 8, 40e9) == (4e6, "line")
