"""A task of several agents, each with a learner of its own: whole runs, and who may not run so.

The task of the whole run is PettingZoo's, the programs are real, over UDP on this machine.
"""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from pairs import Pair
from running import Running
from until import until

from deploy.agents import seed_of
from deploy.demo import parsed
from deploy.page import page_at
from deploy.plan_run import fresh
from deploy.table import server_toml, table_for
from learner import checkpoint
from learner.__main__ import main as learner_main
from learner.evaluate import Verdict
from learner.joint import Player, of_run, play, players_of, verdict_on, watch
from learner.judge import save
from learner.learner import Learner
from replay_server.support import toml
from replay_server.training.actions import actions_of
from replay_server.training.agents import agent_of, make_seat
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import seed_for
from replay_server.training.presets import preset
from replay_server.training.runs import METRICS, Metrics, Run
from replay_server.training.weights import WeightsError

TASK = "agents:pairs"
SEATS = (f"{TASK}#left", f"{TASK}#right")


def refused(capsys, *words):
    """The sentence by which `run` refuses these options."""
    with pytest.raises(SystemExit) as ended:
        parsed(["--env", TASK, *words], "run")
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--plan", "single-learner-coarse"), "policy 'single-learner-coarse': a task of several"),
        (("--env", f"{TASK}#left"), "a run has all agents of a task: leave out #left"),
        (("--plan", "central"), "policy 'central': a task of several agents is stepped by workers"),
        (("--engine", "ray"), "on this machine, over udp or zmq"),
        (("--transport", "dpdk"), "transport dpdk: a task of several agents"),
        (("--metrics", "127.0.0.1:9000"), "each agent has a server, and they cannot share"),
        (("--algorithm", "sac"), "#left': SAC needs a Box"),
        (("--actors", "2"), "which has 1 actor"),
    ],
)
def test_what_agents_cannot_share(capsys, monkeypatch, words, said):
    """Given plans and options that several agents cannot have. Expect a sentence before anything
    starts."""
    monkeypatch.setattr("deploy.demo.require_installed", lambda plan: None)
    assert said in refused(capsys, *words)


def test_a_run_of_agents_is_not_begun_twice(tmp_path, capsys):
    """Given a folder in which one agent has metrics. Expect another run there to be refused."""
    (tmp_path / "right").mkdir()
    (tmp_path / "right" / METRICS).write_text("")
    assert "holds a run already" in refused(capsys, "--run", str(tmp_path))


def test_a_servers_file_says_any_id(tmp_path):
    """Given an id with quotes. Expect the server's file to be read back with it."""
    settings = dataclasses.replace(preset("cartpole"), env=f'{TASK}?names=["left","right"]#left')
    text = server_toml(settings, url="udp://127.0.0.1:0", seed=1)
    path = tmp_path / "server.toml"
    path.write_text(text)
    assert toml.parsed(path)["table"][0]["env"] == settings.env


def test_a_queue_is_looked_at_for_each_agent():
    """Given PPO and a task of several agents. Expect the run to be taken."""
    _, settings, _, _ = parsed(["--preset", "cartpole-ppo", "--env", TASK], "run")
    assert settings.on_policy and settings.env == TASK


def test_a_rate_that_is_old_is_none():
    """Given a line of a program that stands still. Expect its rate to be shown as 0."""
    assert fresh({"time": time.time(), "rate": 5.0}, "rate") == 5.0
    assert fresh({"time": time.time() - 11.0, "rate": 5.0}, "rate") == 0.0 == fresh({}, "rate")


def test_agents_get_the_plan_that_they_need():
    """Given a task of several agents and no plan. Expect the one whose workers are apart, and seeds
    that differ, the first the run's own."""
    _, settings, _, plan = parsed(["--env", TASK, "--seed", "7"], "run")
    assert plan.policy == "environments" and settings.env == TASK
    seeds = [seed_of(7, number) for number in range(5)]
    assert seeds[0] == 7 and len(set(seeds)) == 5


def learner_of(seat, seed):
    """One with nets of that seed, and its table's spec."""
    settings = dataclasses.replace(preset("cartpole"), env=seat, hidden=(8,), mark=None)
    table = table_for(settings)
    with closing(make_seat(seat)) as env:
        actions = actions_of(env, "dqn")
    return Learner(spec=table.step, actions=actions, preset=settings, seed=seed), table.step


@pytest.fixture
def checkpoints(tmp_path):
    """Of both agents, untrained."""
    found = {}
    for number, seat in enumerate(SEATS):
        learner, spec = learner_of(seat, seed=number)
        folder = tmp_path / agent_of(seat)
        found[agent_of(seat)] = save(learner, spec, 1, folder, "step-000000000")
    return found


@pytest.mark.parametrize("stays", [False, True])
def test_joint_episodes_are_those_of_a_plain_loop(checkpoints, stays, monkeypatch):
    """Given two networks, and a task that empties its agents at an end or does not. Expect the
    returns of 12 episodes to be those of a loop that asks each network for one observation at a
    time."""
    players = players_of(list(checkpoints.values()))
    monkeypatch.setattr("learner.joint.make_task", lambda name: Pair(stays=stays))
    verdict = play(players, 12, "select", seed=3, first=5)
    for i in range(12):
        task = Pair()
        seen, total, steps = task.reset(seed_for("select", 3, 5 + i))[0], 0.0, 0
        while task.agents:
            actions = {}
            for agent, player in players.items():
                flat = player.spec.flatten("observation", seen[agent])
                stacks = {n: torch.from_numpy(np.array(a))[None, None] for n, a in flat.items()}
                named = stacks if len(stacks) > 1 else next(iter(stacks.values()))
                if len(stacks) > 1:
                    named = {n.partition("/")[2]: a for n, a in stacks.items()}
                with torch.no_grad():
                    actions[agent] = int(player.learner.acting(named)[0].argmax())
            seen, rewards, *_ = task.step(actions)
            total, steps = total + (rewards["left"] + rewards["right"]) / 2, steps + 1
        assert verdict.returns[i] == pytest.approx(total) and verdict.lengths[i] == steps
    assert len(set(verdict.returns)) > 1


class Asked:
    """A signal that came already, or none."""

    def __init__(self, asked=False):
        self.asked, self.waits = asked, 0

    @classmethod
    def once(cls):
        """One that comes at the second wait."""
        return cls()

    def wait(self, seconds):
        """Whether it came."""
        self.waits += 1
        return self.asked or self.waits > 1


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path, "judge", {}, tensorboard=False)
    made.begin()
    yield made
    made.close()


def test_the_judge_wants_the_mark_three_times(checkpoints, monkeypatch, run, capsys):
    """Given what a candidate reaches in the first and the second 20 episodes, and in 100 more.
    Expect it to be solved where all three reach the mark, its checkpoints kept; nothing kept, and a
    sentence, where the 100 do not; no verdict where it is to stop, nor on a full disk, which is
    said. Each candidate has episodes of its own."""
    players = players_of(list(checkpoints.values()))
    means, asked = {}, []

    def played(players, episodes, purpose, seed, first=0, stop=None, say=print):
        asked.append((purpose, first, episodes))
        mean = means[purpose]
        return None if stop.asked else Verdict(np.full(100, mean), np.zeros(100, np.int64))

    def tried(number, select, confirm, last=5.5, stopped=False):
        means.update(select=select, confirm=confirm, evaluate=last)
        return verdict_on(players, number, run, 5.0, 1, Asked(stopped))

    monkeypatch.setattr("learner.joint.play", played)
    assert tried(1, 4.9, 9.0) is None and tried(2, 5.0, 4.9) is None
    assert tried(3, 5.0, 5.0, last=4.9) is None
    assert not list(run.folder.glob("*/checkpoints/solved-*"))
    said = capsys.readouterr().out
    assert "reached the mark of 5 twice over 20 episodes, and 4.9 over 100 more" in said
    verdict = tried(4, 5.0, 5.0)
    assert verdict["eval_return_mean"] == 5.5 and verdict["eval_episodes"] == 100
    assert asked[:3] == [("select", 0, 20), ("select", 20, 20), ("confirm", 20, 20)]
    assert asked[-1] == ("evaluate", 300, 100)
    assert {Player(Path(path)).seat for path in verdict["checkpoint"].values()} == {*SEATS}
    assert tried(5, 5.0, 5.0, stopped=True) is None

    def full(player):
        if "right" in str(player.folder):
            raise OSError(28, "No space left on device")
        return kept(player)

    kept = Player.keep
    for path in verdict["checkpoint"].values():
        checkpoint.delete(Path(path))
    monkeypatch.setattr(Player, "keep", full)
    assert tried(6, 5.0, 5.0) is None
    assert not list(run.folder.glob("*/checkpoints/solved-*")), "all of them, or none"
    assert "reached the mark, and its checkpoint cannot be written" in capsys.readouterr().out


def test_episodes_without_an_end_are_cut_off(checkpoints, monkeypatch, capsys):
    """Given episodes that are longer than may be. Expect them judged as if they had ended there,
    and a sentence."""
    monkeypatch.setattr("learner.evaluate.STEPS_MAX", 2)
    verdict = play(players_of(list(checkpoints.values())), 4, "select", seed=1)
    assert (verdict.lengths == 2).all()
    assert "4 of 4 greedy episodes went on after 2 steps" in capsys.readouterr().out


def test_the_newest_of_all_are_judged_until_the_mark(checkpoints, tmp_path, monkeypatch, run):
    """Given a run in which one agent has no checkpoint at first, then both, then newer ones that
    reach the mark. Expect candidates to be the pairs alone, each judged once, the verdict in the
    run's metrics, and `evaluate` of the run to be of both."""
    late = tmp_path / "right" / "checkpoints"
    late.rename(tmp_path / "aside")
    looks, judged = [], []

    class Stop(Asked):
        def wait(self, seconds):
            looks.append(seconds)
            if len(looks) == 2:
                (tmp_path / "aside").rename(late)
            if len(looks) == 4:
                learner, spec = learner_of(SEATS[0], seed=9)
                learner.step = 1
                save(learner, spec, 1, tmp_path / "left", "step-000000001")
            return len(looks) > 6

    def decided(players, number, *rest):
        judged.append((number, players["left"].learner.step))
        return {"event": "solved", "eval_return_mean": 4.0} if judged[-1][1] else None

    monkeypatch.setattr("learner.joint.verdict_on", decided)
    with pytest.raises(EnvError, match="is another task"):
        (tmp_path / "aside").rename(late)
        try:
            watch(run, f"{TASK}?leaver=true", 3.0, 1, Asked.once())
        finally:
            late.rename(tmp_path / "aside")
    verdict = watch(run, TASK, 3.0, 1, Stop())
    assert judged == [(1, 0), (2, 1)] and len(looks) == 4 and verdict["eval_return_mean"] == 4.0
    assert [line["eval_return_mean"] for line in Metrics(tmp_path).events("judge", "solved")] == [4]
    assert [path.parts[-3] for path in of_run(tmp_path)] == ["left", "right"]
    assert of_run(tmp_path / "left") == []


def test_a_run_of_agents_is_evaluated_together(checkpoints, tmp_path, capsys):
    """Given such a run. Expect `evaluate` to say the mean return of both together, and
    to refuse a film."""
    assert learner_main(["evaluate", str(tmp_path), "--episodes", "5"]) == 0
    said = capsys.readouterr().out
    assert "left/step-000000000.json, right/step-000000000.json: mean return" in said
    assert learner_main(["evaluate", str(tmp_path), "--video", str(tmp_path / "film.mp4")]) == 2
    assert "is not filmed" in capsys.readouterr().err
    assert learner_main(["judge", str(tmp_path), "--env", TASK]) == 2
    assert "say --solve-at" in capsys.readouterr().err
    nowhere = ["judge", str(tmp_path / "none"), "--env", TASK, "--solve-at", "1"]
    assert learner_main(nowhere) == 2
    assert "it has no folder left" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        learner_main(["train", "--env", SEATS[0], "--run", str(tmp_path / "x"), "--solve-at", "1"])
    assert "are judged together" in capsys.readouterr().err


def test_pages_of_agents_have_ports_of_their_own():
    """Given where the first agent's page is. Expect the others at the next ports."""
    assert [page_at("127.0.0.1:8080", i) for i in range(2)] == ["127.0.0.1:8080", "127.0.0.1:8081"]
    assert page_at("", 1) == "" and page_at("127.0.0.1:0", 1) == "127.0.0.1:0"
    assert page_at("[::1]:8080", 1) == "[::1]:8081"


def test_what_is_no_checkpoint_ends_the_judge(checkpoints, run):
    """Given a checkpoint that states no settings. Expect the sentence that says so, and not a wait
    for newer ones."""
    document = json.loads(checkpoints["left"].read_text())
    del document["preset"]
    checkpoints["left"].write_text(json.dumps(document))
    with pytest.raises(WeightsError, match="states no 'preset'"):
        watch(run, TASK, 3.0, 1, Asked.once())


def test_solved_checkpoints_are_those_of_all(checkpoints, tmp_path):
    """Given one agent's that solved it, without the other's. Expect the newest of both."""
    learner, spec = learner_of(SEATS[0], seed=3)
    save(learner, spec, 1, tmp_path / "left", "solved-0")
    assert [path.stem for path in of_run(tmp_path)][1] == "step-000000000"
    learner, spec = learner_of(SEATS[1], seed=3)
    save(learner, spec, 1, tmp_path / "right", "solved-0")
    assert [path.stem for path in of_run(tmp_path)] == ["solved-0", "solved-0"]


def test_checkpoints_of_other_agents_are_refused(checkpoints):
    """Given one agent's checkpoint alone. Expect the sentence that names the missing one."""
    with pytest.raises(EnvError, match="no checkpoint of agent 'right'"):
        players_of([checkpoints["left"]])


def test_two_agents_learn_and_come_back(tmp_path):
    """Given PettingZoo's speaker and listener. Expect both learners to learn and to be judged
    together; an actor that is killed to come back, the other one going on with it; and nothing left
    running behind Ctrl-C."""
    pytest.importorskip("mpe2", reason="left out: no mpe2 here (pip install mpe2)")
    running = Running(tmp_path, "environments", "--env", "agents:mpe2.simple_speaker_listener_v4")
    try:
        agents = ("speaker_0", "listener_0")
        running.metrics = Metrics(running.folder)
        each = {agent: Metrics(running.folder / agent) for agent in agents}

        def grow():
            before = {a: len(m.read("learner")) + len(m.read("actor-0")) for a, m in each.items()}
            for agent, metrics in each.items():
                until(
                    lambda m=metrics, a=agent: (
                        len(m.read("learner")) + len(m.read("actor-0")) > before[a] + 3
                    ),
                    f"{agent} goes on",
                    60.0,
                    said=running.said,
                )

        grow()
        until(lambda: running.lines("judge"), "they are judged", 60.0, said=running.said)
        running.stop("learner judge")
        until(lambda: "the judge ended (-9) and is started again (1 of 5)" in running.said(),
              "the judge comes back", 60.0, said=running.said)  # fmt: skip
        seen = running.lines("judge")
        until(lambda: running.lines("judge") > seen, "they are judged", 60.0, said=running.said)
        running.stop(f"actor --config {running.folder}/listener_0")
        until(lambda: "listener_0: actor-0 ended (-9) and is started again" in running.said(),
              "the actor comes back", 60.0, said=running.said)  # fmt: skip
        grow()
    finally:
        running.end()
    logs = [json.loads(line) for line in (running.folder / "metrics.jsonl").open()]
    assert {line["program"] for line in logs} == {"judge"}
