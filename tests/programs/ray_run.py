"""Runs on Ray: plans on one host, and a cluster of two nodes that loses a program, then a node.

`make test-ray` runs it with pytest in an environment that has Ray. The cluster is Ray's own for
tests: two nodes on this machine, whose addresses differ. Its nodes count more CPUs than there are.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster
from running import Running, parent_of, processes
from until import until

from deploy.plan import SHIPPED

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"}
os.environ.pop("RAY_ADDRESS", None)
UPDATES = 300
# What is promised, so time itself is tested. On two busy processors a lost node takes some 20 s, of
# which Ray needs 14 to call it dead; a killed program takes 6.
BACK_S = 30.0
START_S = 120.0
NODE = {"include_dashboard": False, "object_store_memory": 80 << 20}
# The learner needs 3 CPUs beside the server's 1: the first node alone has as many.
ON_FIRST = '"weights"]\ncpus = 3\n'


@contextmanager
def nodes(first, *others):
    """A cluster of nodes with so many CPUs, and all but its first node."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": first, **NODE})
    try:
        ips = [f"127.0.0.{number}" for number in range(2, 2 + len(others))]
        more = zip(others, ips, strict=True)
        found = [made.add_node(num_cpus=cpus, node_ip_address=ip, **NODE) for cpus, ip in more]
        made.wait_for_nodes()
        yield made, found
    finally:
        made.shutdown()


@pytest.fixture
def cluster():
    """Two nodes: the first can hold all of a run, and alone the learner."""
    with nodes(12, 3) as (made, (made.second,)):
        yield made


class Placed(Running):
    """A run on Ray."""

    def programs(self, words):
        """The process ids of this run's programs whose command line holds these words."""
        found = [pid for pid, line in processes() if words in line and self.at in line]
        return [pid for pid in found if parent_of(pid) != os.getpid()]

    @property
    def at(self):
        return str(self.folder)

    def lines_of_log(self, words):
        """The lines that the run printed and that hold these words."""
        return [line for line in self.run.lines() if words in line]

    def back(self, *programs):
        """Waits until these go on, within BACK_S of now; how long that took."""
        begin = time.monotonic()
        self.grow(*programs, seconds=BACK_S)
        return time.monotonic() - begin

    def end(self, number=signal.SIGINT):
        """Ctrl-C, or another signal; Ray ends the programs, none of which may be left."""
        self.run.child.send_signal(number)
        assert self.run.child.wait(START_S) == 130, self.said()
        until(lambda: not self.left(), "all programs end", START_S)


def raylet_of(node):
    """The process id of the node's own program, whose children are all that it starts."""
    return node.all_processes["raylet"][0].process.pid


def plan_of(tmp_path, name):
    """The plan that ships, with the learner where the cluster has room for it."""
    path = tmp_path / "plan.toml"
    path.write_text((SHIPPED / f"{name}.toml").read_text().replace('"weights"]\n', ON_FIRST))
    return str(path)


@pytest.mark.parametrize(
    "plan", ["single-learner-coarse", "single-learner-fine", "multiple-learners"]
)
def test_a_plan_learns_on_ray(tmp_path, plan):
    """Given a plan that ships and a Ray of the run's own. Expect all of the learner's updates, with
    no restart, and what each program says in the run's folder."""
    options = tmp_path / "run.toml"
    options.write_text(f"[learner]\nupdates = {UPDATES}\n")
    running = Placed(tmp_path, plan, "--engine", "ray", "--config", str(options))
    try:
        assert running.run.child.wait(2 * START_S) == 0, running.said()
    finally:
        running.run.end()
    summary = json.loads((running.folder / "summary.json").read_text())
    assert summary["learner_steps"] == UPDATES and summary["restarts"] == 0
    assert "serving at udp://127.0.0.1:" in (running.folder / "server.log").read_text()
    until(lambda: not running.left(), "all programs end", START_S)


@pytest.mark.parametrize(
    ("plan", "words", "name"),
    [
        ("single-learner-coarse", "-m replay_server actor", "actor-0"),
        ("environments", "-m replay_server actor", "actor-0"),
    ],
)
def test_a_program_and_a_node_are_lost(tmp_path, cluster, plan, words, name):
    """Given a run on two nodes. Expect steps of environments and learner to go on within 30 s of
    kill -9 at a program's Ray worker, then of the loss of the node without learner; and lines that
    say what happened and why."""
    more = ("--actors", "2") if plan == "single-learner-coarse" else ()
    options = ("--engine", "ray", "--ray-address", cluster.address, "--insecure", *more)
    running = Placed(tmp_path, plan_of(tmp_path, plan), *options)
    growing = ("actor-0", *(("actor-1",) if more else ()), "learner")
    try:
        running.grow(*growing, seconds=START_S)
        (pid, *_) = running.programs(words)
        os.kill(parent_of(pid), signal.SIGKILL)
        took = running.back(name, "learner")
        (line,) = running.lines_of_log(f"{name} ended (-9")
        print(f"\n{line}\n{name} and learner go on after {took:.1f} s")

        cluster.remove_node(cluster.second, allow_graceful=False)
        took = running.back(*growing)
        lost = running.lines_of_log("node has died")
        moved = running.lines_of_log("is on host")
        print("\n".join([*lost, *moved, f"{growing} go on after {took:.1f} s"]))
        assert lost and moved, running.said()
    finally:
        running.end()


def test_the_node_of_server_and_learner_is_lost(tmp_path):
    """Given a run of which each part is on a node of its own. Expect all to go on behind the loss
    of the learner's node: the server at a new address, the learner from its newest checkpoint."""
    with nodes(1, 5, 5) as (cluster, found):
        options = ("--engine", "ray", "--ray-address", cluster.address, "--insecure")
        running = Placed(tmp_path, plan_of(tmp_path, "single-learner-coarse"), *options)
        try:
            running.grow("actor-0", "learner", seconds=START_S)
            (learner,) = running.programs("-m replay_server learner")
            raylet = parent_of(parent_of(learner))
            (node,) = [node for node in found if raylet_of(node) == raylet]
            cluster.remove_node(node, allow_graceful=False)
            begin = time.monotonic()
            running.grow("actor-0", "learner", seconds=START_S)
            took = time.monotonic() - begin
            moved = [*running.lines_of_log("node has died"), *running.lines_of_log("is on host")]
            print("\n".join([*moved, f"all go on after {took:.1f} s"]))
            assert "resumed from step-" in (running.folder / "learner.log").read_text()
        finally:
            running.end(signal.SIGTERM)


REFUSED = {  # options, the learner's device, what is said
    "hosts opened unasked": ((), "cpu", "on several hosts (127.0.0.2, "),
    "CPUs": (("--actors", "20", "--insecure"), "cpu", "needs 24 CPUs and 0 GPUs"),
    "GPUs": (("--insecure",), "cuda", "needs 5 CPUs and 1 GPU"),
    "nobody there": (("--ray-address", "127.0.0.1:1"), "cpu", "no Ray cluster answers at 127."),
    "no address": (("--ray-address", "127.0.0.1"), "cpu", "no Ray cluster answers at 127.0.0.1 ("),
}


def test_what_has_no_place_is_refused(tmp_path, cluster):
    """Given a run whose processes would be on two hosts, without --insecure; needs above what the
    cluster has; no cluster. Expect a sentence each, exit code 2, and nothing started."""
    plan = Path(plan_of(tmp_path, "single-learner-coarse"))
    text = plan.read_text()
    for case, (options, device, said) in REFUSED.items():
        (tmp_path / case).mkdir()
        plan.write_text(text.replace('"auto"', f'"{device}"'))
        at = ("--engine", "ray", "--ray-address", cluster.address)
        running = Placed(tmp_path / case, str(plan), *at, *options)
        assert running.run.child.wait(START_S) == 2, running.said()
        (line,) = running.lines_of_log(said)
        print(f"\n{case}: {line}")
        assert not (running.folder / "server.log").exists()
