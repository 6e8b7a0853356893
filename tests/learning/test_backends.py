"""Ways to step environments side by side: as one after the other, for the same seeds."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from actor.worker import Options, served_by
from deploy import demo
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_envs


def played(env_id, backend, steps, count=3):
    """What `count` environments gave, a list of arrays a step."""
    envs = make_envs(env_id, count, backend=backend)
    rng = np.random.default_rng(5)
    found = [[envs.reset(seed=[11 + i for i in range(count)])[0]]]
    for _ in range(steps):
        actions = rng.integers(0, envs.single_action_space.n, count)
        observation, reward, terminated, truncated, infos = envs.step(actions)
        lost = infos.get("life_lost", np.zeros(count, np.bool_))
        found.append([observation, reward, terminated, truncated, lost])
    envs.close()
    return found


@pytest.mark.parametrize(("env_id", "steps"), [("CartPole-v1", 60), ("ALE/Breakout-v5", 150)])
def test_side_by_side_is_as_one_after_the_other(env_id, steps):
    """Given three environments, their seeds, and random actions past ends of episodes. Expect each
    observation, reward, end and lost life alike, byte for byte."""
    plain, beside = (played(env_id, backend, steps) for backend in ("sync", "async"))
    for step, (mine, theirs) in enumerate(zip(plain, beside, strict=True)):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"step {step}")
    ends = np.array([step[2] | step[3] | step[4] for step in plain[1:]])
    assert ends.any(), "no episode ended, and no life was lost"


def test_a_backend_that_cannot_be_had_is_one_sentence(capsys):
    """Given EnvPool where it is not installed, tensors in processes, and a typo. Expect what to
    do."""
    with pytest.raises(EnvError, match="one tensor, stepped as one: leave --backend async away"):
        make_envs("torch/CartPole-v1", 2, backend="async")
    with pytest.raises(EnvError, match="one task, stepped as one: leave --backend async away"):
        served_by(Options(env="agents:pairs", backend="async"))
    with pytest.raises(EnvError, match="no --backend 'envpol'; the nearest is 'envpool'"):
        served_by(Options(backend="envpol"))
    if importlib.util.find_spec("envpool") is None:
        with pytest.raises(
            EnvError, match=r"not installed: pip install 'replay-server\[envpool\]'"
        ):
            make_envs("CartPole-v1", 2, backend="envpool")
        with pytest.raises(SystemExit, match="2"):  # before anything starts
            demo.main(["--backend", "envpool"])
        assert "needs EnvPool, which is not installed" in capsys.readouterr().err
