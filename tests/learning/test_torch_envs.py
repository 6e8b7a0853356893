"""Tasks as rows of one tensor: their episodes are Gymnasium's.

Oracle: Gymnasium's own vector, with the same seeds and actions.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from deploy.demo import parsed
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import TORCH_TASKS, check_playable, make_env, make_envs
from replay_server.training.presets import preset_for
from replay_server.training.torch_envs import TASKS


@pytest.mark.parametrize(("name", "steps"), [("CartPole-v1", 300), ("Pendulum-v1", 450)])
def test_episodes_are_gymnasiums(name, steps):
    """Given five environments of one seed each, and the same actions. Expect what Gymnasium's
    vector gives, within float32, over the ends of episodes, and again behind a reset
    that names no seeds."""
    ours, theirs = make_envs(f"torch/{name}", 5), make_envs(name, 5)
    assert ours.single_action_space == theirs.single_action_space
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    theirs.action_space.seed(1)
    ends = 0
    for seeds in ([3, 1, 4, 1, 5], None):
        one, other = ours.reset(seed=seeds)[0], theirs.reset(seed=seeds)[0]
        assert np.array_equal(one, other) and one.dtype == other.dtype
        for _ in range(steps):
            actions = theirs.action_space.sample()
            one, other = ours.step(actions), theirs.step(actions)
            assert np.allclose(one[0], other[0], rtol=1e-4, atol=1e-4)
            assert np.allclose(one[1], other[1], rtol=1e-4, atol=1e-6)
            for mine, their in zip(one[1:4], other[1:4], strict=True):
                assert mine.dtype == their.dtype
            assert np.array_equal(one[2], other[2]) and np.array_equal(one[3], other[3])
            ends += int((one[2] | one[3]).sum())
    assert ends >= 10


def test_a_pole_that_stands_is_cut_off_at_gymnasiums_limit():
    """Given a pole that is held up. Expect a cut behind 500 steps, and a reset in the next one."""
    envs = make_envs("torch/CartPole-v1", 1)
    seen = envs.reset(seed=[1])[0]
    for step in range(1, 501):
        x, x_dot, theta, theta_dot = seen[0]
        action = int(3 * theta + theta_dot + 0.1 * x + 0.2 * x_dot > 0)
        seen, _, terminated, truncated, _ = envs.step(np.array([action]))
        assert not terminated[0] and truncated[0] == (step == 500)
    seen, reward, terminated, truncated, _ = envs.step(np.array([0]))
    assert (abs(seen) <= 0.05).all() and reward[0] == 0.0 and not (terminated[0] or truncated[0])


def test_names(capsys):
    """Given these names. Expect one environment to be Gymnasium's, presets and marks those of the
    task, and a typo to be told the nearest."""
    assert set(TORCH_TASKS) == set(TASKS)
    assert make_env("torch/CartPole-v1").spec.id == gymnasium.spec("CartPole-v1").id
    check_playable("torch/Pendulum-v1", "sac")
    assert preset_for("", "torch/Pendulum-v1") == "pendulum"
    args, settings, _, _ = parsed(["--env", "torch/CartPole-v1", "--plan", "gpu-only"], "run")
    assert (args.solve_at, settings.env) == (490.0, "torch/CartPole-v1")
    with pytest.raises(EnvError, match="the nearest is 'torch/CartPole-v1'"):
        make_envs("torch/CartPol-v1", 2)
