"""A task of several agents, each with a learner of its own: whole runs, and who may not run so.

The task of the whole run is PettingZoo's, the programs are real, over UDP on this machine.
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from pairs import Pair
from running import Running
from until import until

from deploy.agents import page_at, seed_of
from deploy.demo import parsed
from deploy.table import table_for
from learner.__main__ import main as learner_main
from learner.joint import JointJudge, Player, of_run, play, players_of, watch
from learner.judge import save
from learner.learner import Learner
from replay_server.training.actions import actions_of
from replay_server.training.agents import agent_of, make_seat
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import seed_for
from replay_server.training.presets import preset
from replay_server.training.runs import Metrics, Run

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


def test_joint_episodes_are_those_of_a_plain_loop(checkpoints):
    """Given two networks. Expect the returns of 12 episodes to be those of a loop that asks each
    network for one observation at a time."""
    players = players_of(list(checkpoints.values()))
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
        self.asked = asked


def test_the_judge_wants_the_mark_twice(checkpoints, monkeypatch):
    """Given what a candidate reaches in the first and the second 20 episodes. Expect it to be
    solved where both reach the mark, its checkpoints kept; and no verdict where it is to stop."""
    players = players_of(list(checkpoints.values()))
    means, asked = {}, []

    def played(players, episodes, purpose, seed, first=0, stop=None):
        asked.append((purpose, first, episodes))
        return None if stop.asked else type("V", (), means[purpose])()

    def reach(select, confirm):
        for name, mean in (("select", select), ("confirm", confirm), ("evaluate", 4.0)):
            means[name] = {"mean": mean, "returns": np.full(100, mean)}

    monkeypatch.setattr("learner.joint.play", played)
    judge = JointJudge(mark=5.0, seed=1, stop=Asked())
    reach(4.9, 9.0)
    assert judge.verdict_on(players) == {"select_mean": 4.9}
    reach(5.0, 4.9)
    assert judge.verdict_on(players) == {"select_mean": 5.0}
    reach(5.0, 5.0)
    verdict = judge.verdict_on(players)
    assert verdict["eval_return_mean"] == 4.0 and verdict["eval_episodes"] == 100
    assert asked[:3] == [("select", 0, 20), ("select", 20, 20), ("confirm", 20, 20)]
    assert {Player(Path(path)).seat for path in verdict["checkpoint"].values()} == {*SEATS}
    assert JointJudge(5.0, 1, Asked(True)).verdict_on(players) is None


def test_the_newest_of_all_are_judged_until_the_mark(checkpoints, tmp_path, monkeypatch):
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

    def verdict_on(judge, players):
        judge.candidates += 1
        judged.append(players["left"].learner.step)
        more = {"solved_at": 1.0, "eval_return_mean": 4.0} if judged[-1] else {}
        return {"select_mean": 3.0, **more}

    monkeypatch.setattr(JointJudge, "verdict_on", verdict_on)
    run = Run(tmp_path, "judge", {}, tensorboard=False)
    run.begin()
    verdict = watch(run, TASK, 3.0, 1, Stop())
    run.close()
    assert judged == [0, 1] and len(looks) == 4 and verdict["eval_return_mean"] == 4.0
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
    with pytest.raises(SystemExit):
        learner_main(["train", "--env", SEATS[0], "--run", str(tmp_path / "x"), "--solve-at", "1"])
    assert "are judged together" in capsys.readouterr().err


def test_pages_of_agents_have_ports_of_their_own():
    """Given where the first agent's page is. Expect the others at the next ports."""
    assert [page_at("127.0.0.1:8080", i) for i in range(2)] == ["127.0.0.1:8080", "127.0.0.1:8081"]
    assert page_at("", 1) == "" and page_at("127.0.0.1:0", 1) == "127.0.0.1:0"
    assert page_at("[::1]:8080", 1) == "[::1]:8081"


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
        running.stop(f"actor --config {running.folder}/listener_0")
        until(lambda: "listener_0: actor-0 ended (-9) and is started again" in running.said(),
              "the actor comes back", 60.0, said=running.said)  # fmt: skip
        grow()
    finally:
        running.end()
    logs = [json.loads(line) for line in (running.folder / "metrics.jsonl").open()]
    assert {line["program"] for line in logs} == {"judge"}
