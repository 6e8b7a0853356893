"""Vectors that write every observation into the same memory (copy=False), with a caller who hands
in no `next_observation`: without a copy each row would hold the observation of the next."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from replay_server import Client, NStep, Server, SpecError, Table, spec_from

numbers = itertools.count(1)
LENGTH = 5


class Counting(gymnasium.Env):
    """Observation: the step of the episode. Reward of a step: the one it leads to."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        return np.full(1, self.at, np.float32), float(self.at), self.at == LENGTH, False, {}


def played(kind, mode, copy, keep):
    """Whether each of 60 calls without a next observation was taken, and what was stored."""
    envs = kind([Counting] * 2, copy=copy, autoreset_mode=mode)
    table = Table("main", step=spec_from(envs), plan=NStep(1), capacity=1 << 12)
    url = f"loopback://reused-{next(numbers)}"
    with Server([table], url) as server, Client(server.address) as client:
        writer = client.writer("main", autoreset=envs)
        observation, _ = envs.reset(seed=1)
        try:
            for _ in range(60):
                kept = observation.copy() if keep else observation
                action = np.zeros(2, np.int64)
                after, reward, terminated, truncated, infos = envs.step(action)
                writer.add_batch(
                    observation=kept,
                    action=action,
                    reward=reward,
                    terminated=terminated,
                    truncated=truncated,
                    infos=infos,
                )
                observation = after
                if mode is AutoresetMode.DISABLED and terminated.any():
                    observation, _ = envs.reset(options={"reset_mask": terminated})
            writer.close()
            return client.sample("main", 256).transitions(0.9)
        finally:
            envs.close()


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_the_environments_own_memory_is_refused(kind, mode):
    """Given observations that nobody copied. Expect SpecError that says what to do; with a copy, or
    from a vector that makes one, every reward beside the observation it belongs to."""
    with pytest.raises(SpecError, match=r"the environment's own memory.*obs\.copy\(\)"):
        played(kind, mode, copy=False, keep=False)
    for copy, keep in ((False, True), (True, False)):
        stored = played(kind, mode, copy, keep)
        assert np.array_equal(stored.rewards, stored.observations[:, 0] + 1)
