"""Engines: which one a run has, what is refused without Ray, who follows a process that moved.

Runs on Ray itself are tests/programs/ray_run.py (`make test-ray`): Ray is not installed here.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import pytest
from until import until

from deploy import demo, engines, placed
from deploy.engines import Engine
from deploy.explain import explained
from deploy.fleet import Fleet
from deploy.launch import HOST, Places, commands
from deploy.networks import network
from deploy.plan import SHIPPED, load
from replay_server.training.presets import CARTPOLE

ELSEWHERE = "10.0.0.7"
NEWLY = "started again with new addresses: "


def parsed(tmp_path, *words):
    """The plan of a run that is asked for with these words."""
    return demo.parsed([*words, "--run", str(tmp_path / "run")], "run")[3]


@pytest.fixture
def ray_there(monkeypatch):
    """Ray, as far as anybody asks before a run starts."""
    monkeypatch.setattr(engines, "find_spec", lambda name: name)


def on_ray(tmp_path, name="single-learner-coarse", more=""):
    """A plan that ships, which says Ray."""
    path = tmp_path / "ray.toml"
    path.write_text('engine = "ray"\n' + (SHIPPED / f"{name}.toml").read_text() + more)
    return str(path)


def test_the_command_line_wins_over_the_plan(tmp_path, ray_there):
    """Given a plan that says Ray, one that says nothing, and --engine. Expect this, then the plan's
    engine, then local processes; the plans that ship say nothing."""
    plan = on_ray(tmp_path)
    assert parsed(tmp_path).engine == "processes"
    assert parsed(tmp_path, "--engine", "ray").engine == "ray"
    assert parsed(tmp_path, "--plan", plan).engine == "ray"
    assert parsed(tmp_path, "--plan", plan, "--engine", "processes").engine == "processes"
    assert "placed by Ray" in explained(load(plan)) != explained(load("single-learner-coarse"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "ray"], r"Ray is not installed here: pip install 'replay-server\[ray\]'"),
        (["--engine", "rai"], "no engine 'rai'; the nearest is 'ray'"),
        (["--engine", "ray", "--plan", "gpu-only"], "one process, which runs here: .*'processes'"),
        (["--engine", "ray", "--transport", "dpdk"], "the plan is over dpdk: take transport 'udp'"),
        (["--ray-address", "10.0.0.1:6379"], "--ray-address is of Ray's hosts.* --engine ray too"),
        (["--insecure"], "--insecure is of Ray's hosts"),
    ],
)
def test_what_cannot_be_placed_is_refused(words, said, tmp_path, capsys, monkeypatch):
    """Given an engine that is not installed, a typo, plans that Ray cannot run, options of Ray
    without it. Expect one sentence with what to do, and nothing started."""
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        parsed(tmp_path, *words)
    told = capsys.readouterr().err
    assert ended.value.code == 2 and re.search(said, told) and told.count("\n") == 1, told


def test_ray_chooses_the_gpu(tmp_path, ray_there, capsys):
    """Given a plan for Ray whose learner names its GPU by number. Expect it refused by line."""
    plan = on_ray(tmp_path)
    text = (tmp_path / "ray.toml").read_text().replace('"auto"', '"cuda:1"')
    (tmp_path / "ray.toml").write_text(text)
    with pytest.raises(SystemExit):
        parsed(tmp_path, "--plan", plan)
    assert "Ray gives each process a GPU of its own, and chooses which" in capsys.readouterr().err


def test_local_processes_do_not_import_ray():
    """Given the programs of a local run. Expect no module of Ray's among those they import."""
    script = "import sys, deploy.demo; print([m for m in sys.modules if m.split('.')[0] == 'ray'])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_node_is_looked_at(tmp_path):
    """Given a node that sees the run's folder, and one that does not. Expect what the token says,
    or nothing; a port that is free, and loopback's interface."""
    token = tmp_path / "token"
    assert placed.looked(HOST, str(token))["token"] == ""
    token.write_text("words")
    seen = placed.looked(HOST, str(token))
    assert (seen["token"], seen["interface"], seen["installed"]) == ("words", "lo", True)
    with socket.socket() as free:
        free.bind((HOST, seen["port"]))


def test_a_placed_program_speaks_into_the_runs_folder(tmp_path, capsys):
    """Given a program as an actor has it. Expect its words in the log and in Ray's, its variables,
    its exit code; and SIGTERM to reach it, though a thread of the node's would not hear it."""
    log = tmp_path / "log"
    words = "import os; print(os.environ['SAID'], flush=True); raise SystemExit(3)"
    program = placed.Placed("one", ["python", "-c", words], str(log), {"SAID": "aloud"})
    assert program.wait() == 3 and log.read_text() == capsys.readouterr().out == "aloud\n"
    words = "import time; print('there', flush=True); time.sleep(600)"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        program = placed.Placed("two", ["python", "-c", words], str(log), {})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    until(lambda: "there" in log.read_text(), "it runs")
    program.tell()
    assert program.wait() == -signal.SIGTERM


class Hosts(Places):
    """Places on hosts, each as it is told."""

    def __init__(self, **hosts):
        super().__init__()
        self.hosts = {name.replace("_", "-"): host for name, host in hosts.items()}

    def host(self, name):
        return self.hosts.get(name, HOST)


def test_who_serves_other_hosts_is_told_so(tmp_path):
    """Given workers of which one is on another host. Expect it alone to serve there with
    --insecure, and the actor to be told both."""
    plan, places = load("environments"), Hosts(environments_1=ELSEWHERE)
    found = commands(plan, tmp_path, 8, "CartPole-v1", "sticky", places)
    one, other, *_ = found
    assert "--insecure" not in one.words and other.words[-1] == "--insecure"
    actor = next(command for command in found if command.kind == "actor")
    urls = actor.words[actor.words.index("--environments") + 1]
    assert re.fullmatch(rf"tcp://{HOST}:\d+,tcp://{ELSEWHERE}:\d+", urls)


@pytest.mark.parametrize("policy", ["central", "multiple-learners"])
def test_learners_meet_on_the_host_of_the_first(tmp_path, policy):
    """Given learners whose first is on another host. Expect all to be told its address."""
    found = commands(load(policy), tmp_path, 8, "CartPole-v1", "sticky", Hosts(learner=ELSEWHERE))
    for command in (c for c in found if c.kind in ("learner", "weights")):
        told = (*command.words, *command.variables.values())
        assert any(ELSEWHERE in word for word in told), command


class Moving(Engine):
    """An engine whose processes are only named, and of which one host is lost."""

    def __init__(self):
        super().__init__()
        self.lost, self.started, self.at = [], [], {}

    def host(self, name):
        return self.at.get(name, HOST)

    def start(self, name, command, log, variables):
        self.started.append((name, command))
        return Named(name, log)

    def moved(self, name):
        self.at |= dict.fromkeys(self.lost, ELSEWHERE)
        return bool(self.lost)


class Named:
    """A process that runs until it is ended."""

    reason, killed, told = "its node has died", False, False

    def __init__(self, name, log):
        self.name, self.log, self.code = name, log, None

    def ended(self):
        return self.code

    def lines(self):
        return [f"serving at udp://{HOST}:{7400}"]

    def tell(self):
        self.told = True

    def end(self):
        self.code = 0
        return 0


@pytest.fixture
def fleet(tmp_path):
    engine, said = Moving(), []
    args = (CARTPOLE, tmp_path, network("udp"), said.append, lambda name: False)
    made = Fleet(load("environments"), *args, engine)
    made.said = said
    made.start_all(demo.options.Demo(run=tmp_path))
    engine.started.clear()
    return made


def test_who_was_told_of_the_old_host_follows(fleet):
    """Given a worker whose node is lost. Expect it on another host, the actor started again with
    the new address, nobody else disturbed, and lines with the reason."""
    (lost,) = fleet.processes_of({"environments-1"})
    lost.code, fleet.engine.lost = -9, ["environments-1"]
    fleet.look()
    assert [name for name, _ in fleet.engine.started] == ["environments-1", "actor-0"]
    assert any(ELSEWHERE in word for word in fleet.engine.started[-1][1])
    assert "ended (-9: its node has died) and is started again (1 of 5)" in fleet.said[-2]
    assert fleet.said[-1] == f"environments-1 is on host {ELSEWHERE} now; {NEWLY}actor-0"
    fleet.look()
    assert len(fleet.engine.started) == 2


def test_a_server_that_moved_takes_all_along(fleet):
    """Given the loss of the node of server and learner, which the learner's end shows first. Expect
    the server started first, at its new host, then whoever comes to it, once each."""
    (fleet.folder / "checkpoints").mkdir()
    (fleet.folder / "checkpoints" / "step-1.json").write_text("{}")
    for process in fleet.processes_of({"server", "learner"}):
        process.code = -9
    fleet.engine.lost = ["server", "learner"]
    (server,) = fleet.processes_of({"server"})
    fleet.processes.remove(server)  # behind the learner
    fleet.processes.append(server)
    fleet.look()
    names = [name for name, _ in fleet.engine.started]
    assert names == ["server", "learner", "actor-0"]
    commands_of = dict(fleet.engine.started)
    assert f"udp://{ELSEWHERE}:0" in commands_of["server"]
    assert commands_of["server"][-1] == "--insecure" and "--resume" in commands_of["learner"]
