"""One actor: B environments, a network, a writer; `step()` moves all of them once.

What a step is stands in replay_server/training/loop.py (`collect`); this class puts its parts
together in one process, and gives them the same start. Environments, inference and writer belong to
the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from actor.collector import Collector
from actor.environments import Environments
from actor.exploration import policy_of
from actor.inference import Inference
from actor.lane_workers import LaneVector, lanes_of
from replay_server.spec import Spec
from replay_server.training.actions import actions_of
from replay_server.training.envs import generator, train_seeds
from replay_server.training.loop import Weights, collect, renew
from replay_server.training.presets import Preset
from replay_server.training.runs import Phases, Timed

GENERATOR_INDEX = 1 << 22  # beyond every environment's reset seed


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
        self.inference = inference
        # seeded by (seed, actor number): what it chooses depends on what it is fed and nothing else
        rng = generator("train", seed, GENERATOR_INDEX + number)

        def collector(envs: VectorEnv, rng: np.random.Generator, part: slice) -> Collector:
            policy = policy_of(
                preset,
                actions_of(envs, preset.algorithm),
                rng,
                number=number,
                actors=actors,
                count=self.count,
                part=part,
            )
            steps = env_steps if part.start in (None, 0) else 0
            return Collector(envs=envs, spec=spec, preset=preset, policy=policy, env_steps=steps)

        if isinstance(envs, LaneVector):
            self.environments, self.collector = lanes_of(envs, preset.lanes_ready, rng, collector)
        else:
            self.environments = Environments(envs, preset.env)
            self.collector = collector(envs, rng, slice(None))
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
