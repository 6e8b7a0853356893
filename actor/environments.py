"""Environments: a vector that is stepped in this process, or what is asked for one elsewhere."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

from replay_server.training.env_errors import environments
from replay_server.training.loop import Actions, Outcome


class Environments:
    """B environments of a vector; what they raise is an EnvError. The vector is the caller's."""

    def __init__(self, envs: VectorEnv, env_id: str) -> None:
        self.envs, self.env_id = envs, env_id

    def reset(self, seeds: list[int] | None) -> Any:
        """The observations that B new episodes begin with; `seeds`: one for each, or none."""
        with environments(self.env_id, "reset"):
            return self.envs.reset(seed=seeds)[0]

    def step(self, actions: Actions) -> Outcome:
        """One step of each."""
        with environments(self.env_id, "step"):
            return Outcome(*self.envs.step(actions))
