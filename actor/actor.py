"""One actor: B environments, a network, a writer; `step()` moves all of them once.

What a step is stands in replay_server/training/loop.py (`collect`); this class puts its parts
together in one process, and gives them the same start. Environments, inference and writer belong to
the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector import VectorEnv

from actor.collector import Collector
from actor.environments import Environments
from actor.inference import Inference
from replay_server.spec import Spec
from replay_server.training.envs import train_seeds
from replay_server.training.loop import Weights, collect, renew
from replay_server.training.presets import Preset
from replay_server.training.runs import Phases, Timed


class Actor:
    """The parts of a step.

    writer: append(rows) and create(streams, steps, priorities). newest: asked before each step for
    weights; None: those in use are the newest.
    """

    def __init__(
        self,
        *,
        envs: VectorEnv,
        spec: Spec,
        inference: Inference,
        preset: Preset,
        number: int,
        actors: int,
        seed: int,
        writer: Any,
        env_steps: int = 0,
        newest: Callable[[], Weights] = lambda: None,
    ) -> None:
        self.count, self.number, self.seed = envs.num_envs, number, seed
        self.environments = Environments(envs, preset.env)
        self.inference = inference
        self.collector = Collector(
            envs=envs,
            spec=spec,
            preset=preset,
            number=number,
            actors=actors,
            seed=seed,
            env_steps=env_steps,
        )
        self.newest = newest
        self.phases = Phases()
        self.fresh = True
        self.restart(writer)

    def restart(self, writer: Any) -> None:
        """Begins anew with this writer: environments reset, nothing held over."""
        self.writer = writer
        seeds = train_seeds(self.seed, self.number, self.count) if self.fresh else None
        self.fresh = False
        self.collector.restart(self.environments.reset(seeds))

    def load(self, newest: Weights) -> None:
        """Takes published weights now, as `step` does those that `newest` gives."""
        renew(self.inference, self.collector, newest)

    def step(self) -> int:
        """One step of every environment; returns how many rows were stored."""
        timed = self.phases
        return collect(
            Timed(self.environments, timed, "step"),
            Timed(self.inference, timed, "act"),
            Timed(self.collector, timed, "insert"),
            Timed(self.writer, timed, "insert"),
            self,
        )

    @property
    def env_steps(self) -> int:
        """Environment steps so far, of all of them, those of earlier lives included."""
        return self.collector.env_steps

    @property
    def learner_step(self) -> int:
        """Of the weights in use; -1: the network's own first ones."""
        return self.inference.learner_step
