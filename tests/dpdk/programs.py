"""The programs of a run with dpdk:// at both ends of a cable: the demo, and three actors.

Everything stands in a pair of network namespaces. Programs of one namespace have its interface
together, each by a device and an address of its own.

    make test-dpdk-veth, as root
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import namespaces

from deploy.networks import Cable
from deploy.processes import Process
from deploy.table import server_toml
from learner.presets import CARTPOLE, changed
from replay_server import Client
from replay_server.runs import read_metrics

BOUND_S = 90.0
ACTORS = 3
SMALL = {"envs": 4, "batch": 32, "min_size": 200, "capacity": 50_000}
OPTIONS = [word for name, value in SMALL.items()
           for word in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip


def test_the_demo_learns_over_a_cable(tmp_path):
    """Given the demo with dpdk:// at both ends, few steps and a mark any play reaches. Expect it
    solved, its steps stored, no namespace left."""
    command = [sys.executable, "-m", "deploy", "demo", "--transport", "dpdk-veth", *OPTIONS]
    command += ["--solve-at", "1", "--minutes", "2.5", "--run", str(tmp_path / "run")]
    demo = Process("demo", command, tmp_path / "demo.log")
    try:
        assert demo.child.wait(2 * BOUND_S) == 0, demo.last_lines(20)
    finally:
        demo.end()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["transport"] == "dpdk (af_packet over veth)" and summary["solved"]
    assert summary["server_counters"]["steps_committed"] >= SMALL["min_size"]
    assert list(Path("/run/netns").glob(f"replay-{demo.child.pid}-*")) == []


def until(true: Callable[[], bool], what: str, processes: list[Process]) -> None:
    end = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < end, f"{what}\n" + "\n".join(p.last_lines() for p in processes)
        time.sleep(0.05)


def test_three_actors_and_a_learner_have_one_interface_together(tmp_path):
    """Given three actors and a learner on one interface, each with an ip= of its own. Expect each
    actor's steps stored, and the learner to learn from them."""
    settings = changed(CARTPOLE, actors=ACTORS, **SMALL)
    with ExitStack() as open_:
        cable = Cable()
        open_.callback(cable.close)
        toml = tmp_path / "server.toml"
        toml.write_text(server_toml(settings, url=cable.url, seed=1))
        processes = []

        def start(name: str, command: list[str]) -> Process:
            process = Process(name, command, tmp_path / f"{name}.log")
            processes.append(process)
            open_.callback(process.end)
            return process

        program = [sys.executable, "-u", "-m"]
        server = start("server", cable.served([*program, "replay_server", "serve", str(toml)]))
        until(lambda: "serving at" in server.log.read_text(), "the server serves", processes)
        common = ["--run", str(tmp_path), "--actors", str(ACTORS), *OPTIONS]
        for number in range(ACTORS):
            words = ["actor", "--number", str(number), "--server", cable.address("")]
            start(f"actor-{number}", cable.reached([*program, *words, *common]))
        words = ["learner", "train", "--server", cable.address("")]
        start("learner", cable.reached([*program, *words, *common]))

        def reached(name: str, least: int) -> bool:
            return any(line.get("step", 0) >= least for line in read_metrics(tmp_path, name))

        for name, least in (
            *((f"actor-{number}", 300) for number in range(ACTORS)),
            ("learner", 20),
        ):
            until(partial(reached, name, least), name, processes)
        with namespaces.inside(cable.pair.client):
            client = Client(f"udp://{namespaces.SERVER}:7400")
        with client:
            assert client.stats().counters["steps_committed"] >= 300 * ACTORS
