"""What an environment does wrong while it plays: one sentence, of an actor and of a judge."""

from __future__ import annotations

import contextlib

import gymnasium
import numpy as np
import pytest
import torch

from actor.environments import Environments
from deploy.sync import InTurn
from learner.evaluate import Evaluation
from replay_server import SpecError, spec_from
from replay_server.training.env_errors import EnvError, EnvironmentsDied
from replay_server.training.envs import make_envs
from replay_server.training.presets import CARTPOLE, changed


class Failing(gymnasium.Env):
    """Raises in `reset`, in its tenth step, or gives a reward that is no number."""

    def __init__(self, how):
        self.how, self.steps = how, 0
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        if self.how == "reset":
            raise OSError("no simulator")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.how == "step" and self.steps == 10:
            raise ZeroDivisionError("of a reward")
        reward = np.array([1.0]) if self.how == "reward" else 1e39 if self.how == "large" else 1.0
        return np.zeros(2, np.float32), reward, False, False, {}


@pytest.mark.parametrize(
    "how, words",
    [
        ("reset", r"its reset raised OSError: no simulator \(test_failing_environments.py, line "),
        (
            "step",
            r"its step raised ZeroDivisionError: of a reward \(test_failing_en.*py, line ",
        ),
        ("reward", "its step raised ValueError: setting an array element with a sequence"),
        ("large", r"column 'reward': float32 holds numbers up to 3.4e\+38, got 1e\+39"),
    ],
)
def test_what_an_environment_does_wrong_while_it_plays_is_one_sentence(monkeypatch, how, words):
    """Given environments that fail in `reset` or `step`, or reward what no column holds. Expect a
    sentence that names the environment, what failed and in which line, of an actor and a judge."""
    name = f"Failing{how}-v0"
    monkeypatch.setitem(gymnasium.registry, name, None)
    monkeypatch.delitem(gymnasium.registry, name)
    gymnasium.register(name, Failing, kwargs={"how": how}, disable_env_checker=True)
    settings = changed(CARTPOLE, env=name, envs=1)
    with pytest.raises((EnvError, SpecError), match=words), InTurn(settings, seed=1) as parts:
        for _ in range(20):
            parts.collect()
    if how in ("reset", "step"):
        judged = Evaluation(settings, spec_from(Failing(how)), episodes=1)
        with pytest.raises(EnvError, match=words):
            judged.run(torch.nn.Linear(2, 2), "select", 1)


@pytest.mark.parametrize(
    "name, words",
    [
        ("Missing", r"its step raised FileNotFoundError: level.dat"),
        (
            "Program",
            r"its step raised CalledProcessError: Command 'simulator' returned non-zero ex",
        ),
        ("Locked", r"its step raised RuntimeError: simulator is gone"),
    ],
)
def test_what_an_environment_beside_does_wrong_is_its_own(name, words):
    """Given an environment in a process of its own that misses a file, or raises what no other
    process can be handed. Expect the sentence that one in this process has."""
    found = []
    for backend in ("sync", "async"):
        env_id = f"failing_apart:{name}-v0"
        with contextlib.closing(make_envs(env_id, 2, backend=backend)) as envs:
            environments = Environments(envs, env_id)
            environments.reset([1, 2])
            with pytest.raises(EnvError, match=words + r".* \(failing_apart.py, line ") as error:
                environments.step(np.zeros(2, np.int64))
            assert not isinstance(error.value, EnvironmentsDied)
            found.append(str(error.value))
    assert found[0] == found[1]


def test_closing_ends_an_environment_that_does_not_close():
    """Given an environment whose close never ends. Expect its vector's to."""
    envs = make_envs("failing_apart:Unclosing-v0", 2, backend="async")
    envs.reset(seed=[1, 2])
    envs.close(timeout=0.2)
    assert not any(process.is_alive() for process in envs.processes)


def test_a_process_that_ends_as_it_makes_its_environment_is_said_so(monkeypatch, tmp_path):
    """Given an environment whose constructor ends its process. Expect that said, of a kind that the
    program is started again for."""
    with pytest.raises(EnvironmentsDied, match=r"a process that steps it ended"):
        make_envs("failing_apart:Ending-v0", 2, backend="async")
