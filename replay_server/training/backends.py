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
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from .. import _native
from ..support.arguments import nearest
from ..support.parents import end_with
from .agents import is_joint
from .atari import FRAMES_MAX, STICKY, AtariGame, seed_of
from .env_errors import EnvError, EnvironmentsDied, environments
from .presets import CHOICES, TORCH
from .vectors import NextStepVector

SKIPPED = 4  # frames of a step
REAPED_S, CLOSE_S = 1.0, 5.0
Make = Callable[[], gymnasium.Env]


def threads_for(count: int) -> int:
    """For `count` environments side by side."""
    return min(count, len(_native.cores()))


def check_backend(backend: str, env_id: str) -> None:
    """EnvError where there is none of this name, or it has no such environment."""
    if backend not in CHOICES["backend"]:
        close = nearest(backend, CHOICES["backend"])
        raise EnvError(f"no --backend {backend!r}; the nearest is {close!r}")
    if backend == "sync":
        return
    if env_id.startswith(TORCH) or is_joint(env_id):
        what = "one task" if is_joint(env_id) else "one tensor"
        raise EnvError(f"{env_id} is {what}, stepped as one: leave --backend {backend} away")
    if backend == "envpool":
        name, known = env_id.removeprefix("ALE/"), _pools().list_all_envs()
        if name not in known:
            raise EnvError(
                f"EnvPool has no {name!r}, the nearest is {nearest(name, known)!r}: leave "
                "--backend envpool away"
            )


class Apart:
    """Makes an environment; in a process of its own, which leaves a terminal's Ctrl-C to its owner,
    and ends with it."""

    def __init__(self, env_id: str, make: Make) -> None:
        self.env_id, self.make, self.owner = env_id, make, os.getpid()

    def __call__(self) -> gymnasium.Env:
        if os.getpid() == self.owner:  # it makes one too, to look at its spaces
            return self.make()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        end_with(self.owner)
        return Told(self.make(), self.env_id)


class Told(gymnasium.Wrapper):
    """An environment whose errors are one sentence, which any process can be handed."""

    def __init__(self, env: gymnasium.Env, env_id: str) -> None:
        super().__init__(env)
        self.env_id = env_id

    def reset(self, **kwargs: Any) -> Any:
        with environments(self.env_id, "reset"):
            return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        with environments(self.env_id, "step"):
            return self.env.step(action)


class SideBySide(AsyncVectorEnv):
    """A process for each environment; one that ends is EnvironmentsDied, and closing raises nothing
    of it. What an environment raises is raised; `reset` then makes all processes anew."""

    def __init__(self, env_id: str, make: Make, count: int) -> None:
        self.env_id, self.make, self.processes = env_id, make, []
        resource_tracker.ensure_running()  # which ends by letting Ctrl-C through
        # it is heard behind this, by the owner alone: a child begins with it blocked, too
        old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            with self._alive():
                # spawned: a fork would copy the threads' locks of torch and of ours
                super().__init__([Apart(env_id, make)] * count, context="spawn")
        except EnvironmentsDied:
            self._end()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)

    def reset(self, **kwargs: Any) -> Any:
        if any(pipe is None for pipe in self.parent_pipes):  # Gymnasium gave one up
            self._end()
            self.__init__(self.env_id, self.make, self.num_envs)  # type: ignore[misc]
        with self._alive():
            return super().reset(**kwargs)

    def step(self, actions: Any) -> Any:
        with self._alive():
            return super().step(actions)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError) as error:
            frames = traceback.extract_tb(error.__traceback__)
            if any(frame.name == "_raise_if_errors" for frame in frames):  # an environment did
                raise
            raise EnvironmentsDied(
                f"environment {self.env_id!r}: a process that steps it ended{self._how()}"
            ) from error

    def _how(self) -> str:
        until = time.monotonic() + REAPED_S
        for process in self.processes:
            process.join(max(until - time.monotonic(), 0.0) if process.is_alive() else None)
            if process.exitcode is not None:
                killed = ": was it killed, or is memory short?"
                own = ": its own words stand above"
                return f" (exit code {process.exitcode}){killed if process.exitcode < 0 else own}"
        return ""

    def _end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ends all processes: by themselves, where they do so in time."""
        until = time.monotonic() + (CLOSE_S if timeout is None else timeout)
        if not terminate and self._state == AsyncState.DEFAULT:
            for pipe in self.parent_pipes:
                with suppress(OSError, AttributeError):  # one that ended, or was given up
                    pipe.send(("close", None))
            for process in self.processes:
                process.join(max(until - time.monotonic(), 0.0))
        self._end()
        for pipe in self.parent_pipes:
            if pipe is not None:
                pipe.close()


def vector_of(backend: str, env_id: str, make: Make, count: int, protocol: str) -> VectorEnv:
    """`count` of what `make` makes, which is Gymnasium's `env_id`. backend: one that check_backend
    let pass."""
    if backend == "envpool":
        return EnvPoolVector(env_id, make(), count, protocol)
    if backend == "async":
        return SideBySide(env_id, make, count)
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


class EnvPoolVector(NextStepVector):
    """`count` environments on EnvPool's threads, with the spaces of `single`, which it closes.

    `reset` with seeds, one for each, begins all anew. Of Atari infos have "lives" and "life_lost",
    as AtariFrames'. EnvError where EnvPool's spaces are others.
    """

    def __init__(self, env_id: str, single: gymnasium.Env, count: int, protocol: str) -> None:
        super().__init__(single.observation_space, single.action_space, count)
        self.name, self.atari = env_id.removeprefix("ALE/"), isinstance(single, AtariGame)
        single.close()
        self.options: dict[str, Any] = {"num_envs": count, "num_threads": threads_for(count)}
        if self.atari:
            self.options |= {
                "stack_num": 1,
                "frame_skip": SKIPPED,
                "noop_max": 30,
                "max_episode_steps": FRAMES_MAX // SKIPPED,
                "repeat_action_probability": STICKY[protocol],
                "use_fire_reset": False,
            }
        self.pool: Any = None
        self.lives = np.zeros(count, np.int32)
        self._expect_spaces()

    def _expect_spaces(self) -> None:
        spec = _pools().make_spec(self.name, **self.options)
        theirs, actions = spec.gymnasium_observation_space, spec.gymnasium_action_space
        ours = self.single_observation_space
        frames = (1, *(ours.shape or ())) if self.atari else ours.shape
        if theirs.shape != frames or actions != self.single_action_space:
            raise EnvError(
                f"EnvPool's {self.name!r} has {theirs} and {actions}, Gymnasium's {ours} and "
                f"{self.single_action_space}: leave --backend envpool away"
            )

    def _begin(self, seeds: Sequence[int]) -> None:
        self.close()
        own = {"env_seed": [seed_of(seed) for seed in seeds]}
        self.pool = _pools().make(self.name, env_type="gymnasium", **self.options, **own)

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
        seeds = self.seeds_of(seed)
        if seeds is None and self.pool is None:
            seeds = np.random.SeedSequence().generate_state(self.num_envs).tolist()
        if seeds is not None:
            self._begin(seeds)
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
