"""How the environments of a vector are stepped, where there is more than one way.

    sync      one after the other, on one thread
    async     side by side: a process for each, or threads of ale-py's for Atari
    envpool   side by side on EnvPool's threads (Weng et al. 2022), the extra "envpool"

All are in next-step mode, and have the spaces, rewards and ends that the environment has under
`sync`. EnvPool's episodes are others, since its generators are its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from ..support.arguments import nearest
from .atari import FRAMES_MAX, STICKY, AtariGame, seed_of
from .env_errors import EnvError

SKIPPED = 4  # frames of a step
Make = Callable[[], gymnasium.Env]


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Quiet:
    """Makes an environment in a process of its own: a terminal's Ctrl-C is its owner's to take."""

    def __init__(self, make: Make) -> None:
        self.make = make

    def __call__(self) -> gymnasium.Env:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.make()


def vector_of(backend: str, env_id: str, make: Make, count: int, protocol: str) -> VectorEnv:
    """`count` of what `make` makes, which is Gymnasium's `env_id`; an Atari game only with
    "envpool". EnvError where the backend has none such."""
    if backend == "envpool":
        return EnvPoolVector(env_id, make(), count, protocol)
    if backend == "async":
        # spawned: a fork would copy the threads' locks of torch and of ours
        return AsyncVectorEnv([Quiet(make)] * count, context="spawn")
    return SyncVectorEnv([make] * count)


def _pools() -> Any:
    try:
        import envpool
    except ImportError as error:
        raise EnvError(
            "--backend envpool needs EnvPool, which is not installed: "
            "pip install 'replay-server[envpool]'"
        ) from error
    return envpool


class EnvPoolVector(VectorEnv):
    """`count` environments on EnvPool's threads, with the spaces of `single`, which it closes.

    `reset` with seeds, one for each, begins all anew. Of Atari infos have "lives" and "life_lost",
    as AtariFrames'.
    """

    def __init__(self, env_id: str, single: gymnasium.Env, count: int, protocol: str) -> None:
        self.num_envs, self.atari = count, isinstance(single, AtariGame)
        self.name = env_id.removeprefix("ALE/")
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        single.close()
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.options: dict[str, Any] = {"num_envs": count, "num_threads": min(count, cores())}
        if self.atari:
            self.options |= {
                "stack_num": 1,
                "frame_skip": SKIPPED,
                "noop_max": 30,
                "max_episode_steps": FRAMES_MAX // SKIPPED,
                "repeat_action_probability": STICKY[protocol],
                "use_fire_reset": False,
            }
        known = _pools().list_all_envs()
        if self.name not in known:
            raise EnvError(
                f"EnvPool has no {self.name!r}, the nearest is {nearest(self.name, known)!r}: "
                "leave --backend envpool away"
            )
        self.pool: Any = None
        self.lives = np.zeros(count, np.int32)
        self._begin(range(count))

    def _begin(self, seeds: Iterable[int]) -> None:
        self.close()
        own = {"env_seed": [seed_of(seed) for seed in seeds]}
        self.pool = _pools().make(self.name, env_type="gymnasium", **self.options, **own)
        ours, theirs = self.single_observation_space, self.pool.observation_space
        frames = (1, *(ours.shape or ())) if self.atari else ours.shape
        if theirs.shape != frames or self.pool.action_space != self.single_action_space:
            raise EnvError(
                f"EnvPool's {self.name!r} has {theirs} and {self.pool.action_space}, Gymnasium's "
                f"{ours} and {self.single_action_space}: leave --backend envpool away"
            )

    def _seen(self, observation: np.ndarray) -> np.ndarray:
        frames = observation[:, 0] if self.atari else observation
        return np.array(frames, self.single_observation_space.dtype)  # the pool's memory is its own

    def _infos(self, infos: dict[str, Any], lost: np.ndarray | None = None) -> dict[str, Any]:
        if not self.atari:
            return {}
        self.lives = np.array(infos["lives"])
        lost = np.zeros(self.num_envs, np.bool_) if lost is None else lost
        return {"lives": self.lives, "life_lost": lost}

    def reset(
        self, *, seed: list[int] | int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if isinstance(seed, int):
            seed = [seed + i for i in range(self.num_envs)]
        if seed is not None:
            self._begin(seed)
        observation, infos = self.pool.reset()
        return self._seen(observation), self._infos(infos)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, terminated, truncated, infos = self.pool.step(np.asarray(actions))
        lost = None
        if self.atari:  # as in AtariFrames: the last life ends the game
            lost = (infos["lives"] > 0) & (infos["lives"] < self.lives)
        return (
            self._seen(observation),
            np.array(reward, np.float64),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
            self._infos(infos, lost),
        )

    def close(self, **kwargs: Any) -> None:
        """Ends the pool's threads."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None
