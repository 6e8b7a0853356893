"""Environments by name: vectors for acting, seeds that never meet, lives lost made visible.

Seeds are built from (purpose, seed, index) in disjoint bit fields, so training, selection and the
final evaluation can never play the same episode start, whatever --seed was given:

    bit 56..   purpose      bit 24..55  seed      bit 0..23  environment or episode index
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv

from replay_server.arguments import nearest

PURPOSES = ("train", "select", "confirm", "evaluate")
SEED_MAX = (1 << 32) - 1
INDEX_MAX = (1 << 24) - 1


def seed_for(purpose: str, seed: int, index: int = 0) -> int:
    """A seed for environment (or episode) `index`; equal only for equal arguments."""
    if not 0 <= seed <= SEED_MAX or not 0 <= index <= INDEX_MAX:
        raise ValueError(f"seed {seed}, index {index}: at most {SEED_MAX} and {INDEX_MAX}")
    return PURPOSES.index(purpose) << 56 | seed << 24 | index


class LifeLoss(gymnasium.Wrapper):
    """info["life_lost"]: True at a step after which info["lives"] is lower than before."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.lives = 0

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**arguments)
        self.lives = int(info.get("lives", 0))
        return observation, {**info, "life_lost": False}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = int(info.get("lives", self.lives))
        info = {**info, "life_lost": lives < self.lives}
        self.lives = lives
        return observation, reward, terminated, truncated, info


class EnvError(ValueError):
    """An environment that is not to be had, and what to do about it, in one sentence."""


def check_env(env_id: str) -> None:
    """EnvError where no environment has this id, with the nearest one that there is."""
    if env_id.startswith("ALE/"):
        try:
            import ale_py
        except ImportError as error:
            raise EnvError(f"{env_id} needs ale-py: pip install ale-py") from error
        gymnasium.register_envs(ale_py)
    if env_id not in gymnasium.registry and ":" not in env_id:
        close = nearest(env_id, gymnasium.registry)
        raise EnvError(f"no environment {env_id!r}; the nearest is {close!r}")


def make_env(env_id: str, render_mode: str | None = None) -> gymnasium.Env:
    """One environment. ALE games get the usual 84x84 grey frames, four actions a step, lives."""
    check_env(env_id)
    if not env_id.startswith("ALE/"):
        return gymnasium.make(env_id, render_mode=render_mode)
    game = gymnasium.make(env_id, frameskip=1, render_mode=render_mode)
    return LifeLoss(gymnasium.wrappers.AtariPreprocessing(game))


def make_envs(env_id: str, count: int) -> VectorEnv:
    """`count` environments stepped in turn in this process, in Gymnasium's next-step mode."""
    return SyncVectorEnv([lambda: make_env(env_id) for _ in range(count)])


def train_seeds(seed: int, actor: int, count: int) -> list[int]:
    """The reset seeds of actor number `actor`, one an environment."""
    return [seed_for("train", seed, actor * count + i) for i in range(count)]


def action_count(env: gymnasium.Env | VectorEnv) -> int:
    """How many actions DQN chooses from; ValueError where the action space is not Discrete."""
    space = getattr(env, "single_action_space", env.action_space)
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        raise ValueError(f"DQN needs a Discrete action space from 0, got {space}")
    return int(space.n)


def generator(purpose: str, seed: int, index: int = 0) -> np.random.Generator:
    """The NumPy generator of `seed_for`'s seed."""
    return np.random.default_rng(seed_for(purpose, seed, index))
