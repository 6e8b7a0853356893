"""The programs of a run with dpdk:// at both ends: the demo, then three actors and a learner.

Over a cable, everything stands in a pair of network namespaces, and the programs of one namespace
have its interface together, each by a device and an address of its own. Over memory, each has a
link of the server's socket.

    make dpdk-programs, as root
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from until import until

from deploy import networks
from deploy.networks import network
from deploy.processes import Process
from deploy.table import server_toml
from replay_server import Client, ConfigError
from replay_server.training.presets import CARTPOLE, changed
from replay_server.training.runs import read_metrics

BOUND_S = 90.0
ACTORS = 3
SMALL = {"envs": 4, "batch": 32, "min_size": 200, "capacity": 50_000}
OPTIONS = [word for name, value in SMALL.items()
           for word in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
TOLD = {"dpdk": "dpdk (af_packet over veth)", "dpdk-memif": "dpdk (memif)"}


@pytest.mark.parametrize("transport", TOLD)
def test_the_demo_learns(transport, tmp_path):
    """Given the demo with dpdk:// at both ends, few steps and a mark any play reaches. Expect it
    solved, its steps stored, no namespace left."""
    command = [sys.executable, "-m", "deploy", "demo", "--transport", transport, *OPTIONS]
    command += ["--solve-at", "1", "--minutes", "2.5", "--run", str(tmp_path / "run")]
    demo = Process("demo", command, tmp_path / "demo.log")
    try:
        assert demo.child.wait(2 * BOUND_S) == 0, demo.last_lines(20)
    finally:
        demo.end()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["transport"] == TOLD[transport] and summary["solved"]
    stored = summary["server_counters"]["steps_committed"]
    assert stored >= SMALL["min_size"]
    assert list(Path("/run/netns").glob(f"replay-{demo.child.pid}-*")) == []
    print(f"\n{summary['transport']}: the demo ended solved, {stored} steps stored")


def test_without_network_namespaces_the_other_one_is_named(monkeypatch):
    """Given an ordinary user. Expect why there is no cable, and which transport needs none."""
    monkeypatch.setattr(networks.namespaces, "missing", lambda: "network namespaces need root")
    with pytest.raises(ConfigError, match=r"need root; dpdk-memif needs no"):
        network("dpdk")


def awaited(true: Callable[[], bool], what: str, processes: list[Process]) -> None:
    """Waits for it; a failure tells what each program said last."""
    until(true, what, BOUND_S, said=lambda: "\n".join(each.last_lines() for each in processes))


@pytest.mark.parametrize("transport", TOLD)
def test_three_actors_and_a_learner_beside_each_other(transport, tmp_path):
    """Given three actors and a learner on one interface, each with an ip= of its own, or at one
    socket. Expect each actor's steps stored, and the learner to learn from them."""
    settings = changed(CARTPOLE, actors=ACTORS, **SMALL)
    with ExitStack() as open_:
        place = network(transport)
        open_.callback(place.close)
        toml = tmp_path / "server.toml"
        toml.write_text(server_toml(settings, url=place.url, seed=1))
        processes = []

        def start(name: str, command: list[str]) -> Process:
            process = Process(name, command, tmp_path / f"{name}.log")
            processes.append(process)
            open_.callback(process.end)
            return process

        program = [sys.executable, "-u", "-m"]
        server = start("server", place.served([*program, "replay_server", "serve", str(toml)]))
        awaited(lambda: "serving at" in server.log.read_text(), "the server serves", processes)
        address = server.log.read_text().partition("serving at ")[2].split()[0]
        common = ["--run", str(tmp_path), "--actors", str(ACTORS), *OPTIONS]
        for number in range(ACTORS):
            words = ["actor", "--number", str(number), "--server", place.address(address)]
            start(f"actor-{number}", place.reached([*program, *words, *common]))
        words = ["learner", "train", "--server", place.address(address)]
        start("learner", place.reached([*program, *words, *common]))

        def reached(name: str, least: int) -> bool:
            return any(line.get("step", 0) >= least for line in read_metrics(tmp_path, name))

        for name, least in (
            *((f"actor-{number}", 300) for number in range(ACTORS)),
            ("learner", 20),
        ):
            awaited(partial(reached, name, least), name, processes)
        with place.own(), Client(address) as client:
            stored = client.stats().counters["steps_committed"]
        assert stored >= 300 * ACTORS
        where = "at one socket" if transport == "dpdk-memif" else "on one interface"
        print(f"\n{TOLD[transport]}: {ACTORS} actors and a learner {where}, {stored} steps stored")
