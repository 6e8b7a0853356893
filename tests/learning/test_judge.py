"""The judge of a policy that never ends its episodes: it is stopped, cut off, and says how far it
is; what is lost where a learner has to be killed is told too."""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit
from until import until

from deploy import sync
from deploy.fleet import killed
from deploy.launch import Command
from deploy.plan_run import PlanRun
from deploy.processes import Process
from deploy.table import TABLE, table_for
from learner import checkpoint, evaluate
from learner import judge as solved
from learner.__main__ import main as learner_main
from learner.evaluate import Evaluation
from learner.learner import Learner
from replay_server import Client, Server
from replay_server.training import options
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError
from replay_server.training.presets import CARTPOLE, changed
from replay_server.training.runs import Run, read_metrics

NAME = "Endless-v0"
SETTINGS = changed(CARTPOLE, env=NAME, envs=1, hidden=(8,), batch=8, min_size=16, n=1)


class Endless(gymnasium.Env):
    """Gives 1 for each step, and has no end. `at` is called at step `when` of an instance; soon
    after that it fails, so that a judge which goes on does not go on for ever."""

    when, at = 50, staticmethod(lambda: None)

    def __init__(self):
        self.steps = 0
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.steps += 1
        assert self.steps < 2 * Endless.when, "it goes on and on"
        if self.steps == Endless.when:
            Endless.at()
        return np.zeros(4, np.float32), 1.0, False, False, {}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(gymnasium.registry, NAME, None)
    monkeypatch.delitem(gymnasium.registry, NAME)
    gymnasium.register(NAME, Endless, disable_env_checker=True)
    monkeypatch.setattr(evaluate, "SHOW_S", 0.0)
    for purpose, count in {"select": 2, "confirm": 2, "evaluate": 3}.items():
        monkeypatch.setitem(solved.EPISODES, purpose, count)


@pytest.fixture
def made(tmp_path):
    """A judge whose mark any net reaches, its learner, what it says and shows, what stops it."""
    said, shown, spec = [], [], table_for(SETTINGS).step
    run = Run(tmp_path, "learner", {}, tensorboard=False, say=said.append)
    stop = Stop()
    judge = solved.Judge(SETTINGS, spec, mark=0.0, seed=1, run=run, show=shown.append, stop=stop)
    learner = Learner(spec=spec, actions=2, preset=SETTINGS, seed=1)
    yield SimpleNamespace(judge=judge, learner=learner, said=said, shown=shown, stop=stop)
    judge.close()
    run.close()


@pytest.mark.parametrize("purpose", ["select", "confirm", "evaluate"])
def test_a_judge_that_is_asked_to_stop_reaches_no_verdict(made, monkeypatch, purpose):
    """Given an episode without an end, and a signal in one of the three kinds of them. Expect None
    at once, and no event of a solved run."""
    begun = []

    def run(self, network, what, *rest, real=Evaluation.run, **named):
        begun.append(what)
        if what == purpose:
            return real(self, network, what, *rest, **named)
        return evaluate.Verdict(np.ones(2), np.ones(2, np.int64))

    monkeypatch.setattr(Evaluation, "run", run)
    monkeypatch.setattr(Endless, "at", made.stop.event.set)
    assert made.judge.verdict_on(made.learner) is None
    assert begun[-1] == purpose
    lines = read_metrics(made.judge.run.folder, "learner")
    assert not [line for line in lines if line.get("event") == "solved"]


def test_each_candidate_plays_episodes_of_its_own(made, monkeypatch):
    """Given three candidates, of which the second falls short over the last episodes. Expect no
    episode of a purpose played twice, and the second not solved, which is said."""
    begun = []

    def run(self, network, purpose, seed, first=0, show=None):
        begun.append((purpose, first, len(self.envs)))
        mean = -1.0 if purpose == "evaluate" and first == 3 else 1.0
        return evaluate.Verdict(np.full(len(self.envs), mean), np.ones(len(self.envs), np.int64))

    monkeypatch.setattr(Evaluation, "run", run)
    solved_ones = [made.judge.verdict_on(made.learner) is not None for _ in range(3)]
    assert solved_ones == [True, False, True]
    assert "twice over 2 episodes, and -1.0 over 3 more: training goes on" in made.said[-1]
    expected = [(p, n * c, c) for n in range(3) for p, c in solved.EPISODES.items()]
    assert begun == expected and made.judge.candidates == 3


def test_a_judge_shows_how_far_it_is(made, monkeypatch, capsys):
    """Given an evaluation of the newest weights. Expect the step it is at on the learner's line,
    and the same of the demo."""
    folder = made.judge.run.folder
    demo = PlanRun(options.Demo(run=folder), SETTINGS, folder)
    demo.progress.every_s = 0.0
    monkeypatch.setattr(Endless, "at", made.stop.event.set)
    made.judge.verdict_on(made.learner)
    assert made.shown[0].startswith("judging the newest weights: 0 of 2 episodes ended, the others")
    assert f"step {Endless.when - 1}, " in made.shown[-1]
    demo.show_progress()
    assert capsys.readouterr().out.partition(" s | ")[2] == f"{made.shown[-1]}\n"
    demo.close()


def test_an_episode_without_a_time_limit_is_cut_off_and_told_once(made, monkeypatch):
    """Given a bound of ten steps, and five evaluations. Expect ten steps of each episode, and one
    sentence that names the environment and what to do."""
    monkeypatch.setattr(evaluate, "STEPS_MAX", 10)
    verdict = made.judge.verdict_on(made.learner)
    made.judge.mark = 11.0
    made.judge.verdict_on(made.learner)
    assert verdict["select_mean"] == verdict["confirm_mean"] == verdict["eval_return_min"] == 10.0
    assert len(made.said) == 1, made.said
    assert made.said[0].startswith(f"environment {NAME!r} has no time limit, and 2 of 2 greedy")
    assert "after 10 steps" in made.said[0] and "gymnasium.wrappers.TimeLimit" in made.said[0]


@pytest.mark.parametrize("how", ["registered", "wrapped"])
def test_an_episode_with_a_time_limit_of_its_own_is_not_cut_off(monkeypatch, how):
    """Given a limit beyond the bound, of the registration or of a wrapper within others. Expect
    episodes as long as it, and no word."""
    del gymnasium.registry[NAME]
    limit = {"max_episode_steps": 20} if how == "registered" else {}
    entry = Endless if limit else lambda: TimeLimit(Endless(), 20)
    gymnasium.register(NAME, entry, disable_env_checker=True, **limit)
    monkeypatch.setattr(evaluate, "STEPS_MAX", 10)
    said, spec = [], table_for(SETTINGS).step
    evaluation = Evaluation(SETTINGS, spec, episodes=2, say=said.append)
    network = Learner(spec=spec, actions=2, preset=SETTINGS, seed=1).acting
    assert evaluation.run(network, "select", 1).lengths.tolist() == [20, 20]
    assert said == []
    evaluation.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"observation_space": gymnasium.spaces.Box(-1, 1, (5,), np.float32)},
            f"not as in the checkpoint: column 'observation' is float32[4] there, and '{NAME}' "
            "makes float32[5]",
        ),
        (
            {"action_space": gymnasium.spaces.Box(-1, 1, (), np.float32)},
            f"'{NAME}': DQN needs a Discrete",
        ),
        ({"observation_space": gymnasium.spaces.Text(4)}, "'observation' is a Text space"),
        ({"action_space": gymnasium.spaces.Discrete(3)}, "expected torch.float32 [3, 8]"),
    ],
)
def test_an_environment_that_changed_since_its_checkpoint(tmp_path, capsys, changes, said):
    """Given a checkpoint, and its environment with other observations or actions now. Expect exit
    code 2 and one sentence."""

    class Changed(Endless):
        def __init__(self):
            super().__init__()
            vars(self).update(changes)

    spec = table_for(SETTINGS).step
    learner = Learner(spec=spec, actions=2, preset=SETTINGS, seed=1)
    solved.save(learner, spec, 1, tmp_path, "step-1")
    del gymnasium.registry[NAME]
    gymnasium.register(NAME, Changed, disable_env_checker=True)
    assert learner_main(["evaluate", str(tmp_path), "--episodes", "1"]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("evaluate: ") and said in told, told


def filled(client):
    """Items enough for a batch."""
    with client.writer(TABLE) as writer:
        for row in range(40):
            writer.add(
                observation=np.zeros(4, np.float32),
                action=row % 2,
                reward=1.0,
                terminated=False,
                truncated=row % 10 == 9,
                final_observation=np.ones(4, np.float32),
            )


def signalled(monkeypatch, number):
    """This process gets that signal, once, in the midst of an episode."""
    left = [number]
    monkeypatch.setattr(Endless, "at", lambda: left and os.kill(os.getpid(), left.pop()))


def test_a_learner_ends_in_order_where_a_signal_finds_it_judging(tmp_path, monkeypatch, capsys):
    """Given SIGTERM in the midst of an episode without an end. Expect exit code 0, its last
    checkpoint, and no second update."""
    signalled(monkeypatch, signal.SIGTERM)
    threads = torch.get_num_threads()
    with Server([table_for(SETTINGS)], "udp://127.0.0.1:0") as server:
        with Client(server.address) as client:
            filled(client)
        words = ["--server", server.address, "--run", str(tmp_path), "--env", NAME]
        words += ["--hidden", "8", "--batch", "8", "--n", "1", "--min-size", "16"]
        words += ["--solve-at", "1e9", "--evaluate-every", "1", "--no-tensorboard"]
        assert learner_main(["train", *words]) == 0, capsys.readouterr()
    torch.set_num_threads(threads)
    newest = checkpoint.latest(tmp_path / "checkpoints")
    assert newest is not None and newest.name == "step-000000001.json"
    assert "learner: step 1;" in capsys.readouterr().out


def test_a_demo_in_turn_ends_in_order_where_a_signal_finds_it_judging(tmp_path, monkeypatch):
    """Given Ctrl-C in the midst of an episode without an end. Expect no summary, and its last
    checkpoint."""
    monkeypatch.setattr(sync, "EVALUATE_EVERY", 1)
    signalled(monkeypatch, signal.SIGINT)
    args = options.Demo(run=tmp_path, minutes=60.0, solve_at=1e9, tensorboard=False)
    assert sync.in_turn(args, SETTINGS) is None
    assert checkpoint.latest(tmp_path / "checkpoints").name == "step-000000001.json"


def test_a_demo_says_what_it_killed_and_what_is_lost(tmp_path, monkeypatch, capsys):
    """Given a learner that does not heed SIGTERM, with a checkpoint and without, and an actor.
    Expect a sentence each: who was killed, and since which step a learner's work is lost."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
    deaf += "; signal.pause()"
    demo = PlanRun(options.Demo(run=tmp_path), SETTINGS, tmp_path)
    for name in ("learner", "actor"):
        process = Process(name, [sys.executable, "-c", deaf], tmp_path / f"{name}.log")
        monkeypatch.setattr(process, "end", lambda real=process.end: real(0.0))
        demo.fleet.processes.append(process)
        demo.fleet.asked[name] = Command(name, name, ())
        until(lambda log=process.log: "deaf" in log.read_text(), "deaf", said=process.last_lines)
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, "step-000000900", {"w": torch.zeros(1)}, {"learner_step": 900})
    checkpoint.save(folder, "solved-1000", {"w": torch.zeros(1)}, {"learner_step": 1000})
    demo.close()
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("the actor did not end within 5 s") and told[0].endswith("was killed")
    assert told[1].startswith("the learner did not end within 5 s")
    assert told[1].endswith(
        "what it learned since its newest checkpoint (learner step 1000) may be lost"
    )
    assert killed("learner", "learner", tmp_path / "none").endswith("what it learned may be lost")


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_return_that_is_no_number_solves_nothing(made, monkeypatch, reward):
    """Given a judge whose mark any number reaches, and an episode with a reward that is none.
    Expect the environment to be named; and a mean that is none to reach no mark."""
    monkeypatch.setattr(evaluate, "STEPS_MAX", 10)
    step = Endless.step
    monkeypatch.setattr(Endless, "step", lambda self, a: (step(self, a)[0], reward, 0, 0, {}))
    with pytest.raises(EnvError, match=f"'{NAME}' gave a number that is not finite: reward"):
        made.judge.verdict_on(made.learner)
    if reward != reward:
        none = evaluate.Verdict(np.full(2, reward), np.ones(2, np.int64))
        monkeypatch.setattr(Evaluation, "run", lambda *given, **named: none)
        assert made.judge.verdict_on(made.learner) is None


@pytest.mark.parametrize(
    ("observation", "said"),
    [
        (np.full(4, np.nan, np.float32), "gave a number that is not finite: observation"),
        (np.zeros(3), "its observation raised"),
    ],
)
def test_an_observation_that_is_none_ends_the_verdict(made, monkeypatch, observation, said):
    """Given an observation of NaN, or of another shape, in an episode. Expect one sentence."""
    monkeypatch.setattr(Endless, "step", lambda self, a: (observation, 1.0, False, False, {}))
    with pytest.raises(EnvError, match=f"'{NAME}':? {said}"):
        made.judge.verdict_on(made.learner)
