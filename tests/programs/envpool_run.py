"""EnvPool's environments as a backend: `make test-envpool`, where EnvPool is installed.

Oracles: Gymnasium's CartPole, set to the state that EnvPool's shows; the Atari vector's rules.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from replay_server.training.backends import FRAMES_MAX, SKIPPED
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_env, make_envs

COUNT = 4
UPRIGHT = np.array([0.1, 0.3, 1.0, 0.5])  # a linear policy that keeps the pole up


def test_a_step_of_cartpole_is_gymnasiums():
    """Given 400 random steps of four poles. Expect each observation and reward to be what
    Gymnasium's gives from the one before, and the step behind an end to begin an episode."""
    envs, oracle = make_envs("CartPole-v1", COUNT, backend="envpool"), gymnasium.make("CartPole-v1")
    oracle.reset()
    rng, over, ends = np.random.default_rng(1), np.zeros(COUNT, np.bool_), 0
    seen, _ = envs.reset(seed=[3, 4, 5, 6])
    for _ in range(400):
        actions = rng.integers(0, 2, COUNT)
        now, reward, terminated, truncated, _ = envs.step(actions)
        for i in range(COUNT):
            if over[i]:
                assert reward[i] == 0.0 and not terminated[i] and np.abs(now[i]).max() <= 0.05
                continue
            inner = oracle.unwrapped
            inner.state, inner.steps_beyond_terminated = seen[i].astype(np.float64), None
            expected, one, end, _, _ = inner.step(int(actions[i]))
            np.testing.assert_allclose(now[i], expected, atol=1e-5)
            assert (reward[i], terminated[i]) == (one, end)
        over, seen = terminated | truncated, now
        ends += int(over.sum())
    envs.close()
    assert ends > 20


def test_an_episode_of_cartpole_is_cut_where_gymnasiums_is():
    """Given a pole that is kept up by hand. Expect truncation at the 500th step."""
    envs = make_envs("CartPole-v1", 1, backend="envpool")
    seen, _ = envs.reset(seed=[1])
    steps, over = 0, False
    while not over:
        seen, _, terminated, truncated, _ = envs.step(np.array([int(seen[0] @ UPRIGHT > 0)]))
        steps, over = steps + 1, terminated[0] or truncated[0]
    envs.close()
    assert (steps, bool(truncated[0]), bool(terminated[0])) == (500, True, False)


def test_a_game_has_the_frames_and_infos_of_ours():
    """Given Breakout. Expect our spaces, uint8 frames, whole rewards, lives that go one by one, a
    life lost reported and ending nothing but the last, and the same from the same seeds."""
    ours = make_env("ALE/Breakout-v5")
    taken = []
    for _ in range(2):
        envs = make_envs("ALE/Breakout-v5", 2, backend="envpool")
        assert envs.single_observation_space == ours.observation_space
        assert envs.single_action_space == ours.action_space
        rng, frames, lost, over = np.random.default_rng(2), [], 0, np.zeros(2, np.bool_)
        seen, infos = envs.reset(seed=[1, 2])
        assert seen.shape == (2, 84, 84) and seen.dtype == np.uint8 and (infos["lives"] == 5).all()
        for _ in range(400):
            before = infos["lives"]
            seen, reward, terminated, truncated, infos = envs.step(rng.integers(0, 4, 2))
            went = (infos["lives"] < before) & ~over
            np.testing.assert_array_equal(infos["life_lost"] | terminated, went | terminated)
            assert ((infos["lives"] == 0) == terminated).all() or terminated.any()
            assert (reward == np.round(reward)).all() and reward.dtype == np.float64
            over = terminated | truncated
            lost += int(infos["life_lost"].sum())
            frames.append(seen)
        envs.close()
        taken.append(np.array(frames))
        assert lost > 4
    np.testing.assert_array_equal(*taken)
    assert FRAMES_MAX // SKIPPED == 27_000
    ours.close()


def test_what_envpool_has_not_is_refused():
    """Given a task it does not know. Expect the nearest that it does, and what to do."""
    gymnasium.register("Cartpol-v1", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    with pytest.raises(EnvError, match="EnvPool has no 'Cartpol-v1', the nearest is 'CartPole-v1'"):
        make_envs("Cartpol-v1", 2, backend="envpool")
