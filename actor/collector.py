"""The actor's own part of a step: which action, what is stored of it, and how much it counts.

It keeps what has to be remembered between steps: the stacks of frames, the rows whose windows are
not complete, the returns of episodes.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from actor.exploration import Policy
from actor.segments import Segments
from actor.window import Alike, Window
from replay_server import Ready
from replay_server.spec import Spec
from replay_server.stacking import FrameStack
from replay_server.training.loop import Actions, Observations, Outcome, Priorities, Values
from replay_server.training.presets import Preset
from replay_server.writing.autoreset import Autoreset, Rows, flags_from_infos, mode_of

RETURNS_KEPT = 100


class Collector:
    """For the B environments of one actor, or of a lane of it. `envs` is asked for its spaces and
    mode alone. policy: chooses for them."""

    def __init__(
        self,
        *,
        envs: VectorEnv,
        spec: Spec,
        preset: Preset,
        policy: Policy,
        env_steps: int = 0,
    ) -> None:
        self.spec, self.preset, self.count = spec, preset, envs.num_envs
        self.policy = policy
        # the initial priority is a |TD| of Q values, which such a network alone gives
        self.weighs = preset.values == "q" and preset.alpha > 0.0
        self.autoreset = Autoreset(spec, mode_of(envs), self.count)
        self.stacks = {
            column.name: FrameStack(column, preset.stack, self.count)
            for column in spec.group("observation")
        }
        self.env_steps = env_steps  # those of earlier lives are counted
        self.episodes = 0
        self.returns: deque[float] = deque(maxlen=RETURNS_KEPT)
        self.lengths: deque[int] = deque(maxlen=RETURNS_KEPT)

    def restart(self, observation: Any) -> None:
        """New episodes begin with this observation; nothing of those before is held over."""
        self.window = self._window()
        self.autoreset.restart()
        self.episode_return = np.zeros(self.count)
        self.episode_length = np.zeros(self.count, np.int64)
        self._see(observation, np.ones(self.count, np.bool_))

    def _window(self) -> Window | Alike:
        preset = self.preset
        if preset.on_policy:
            return Segments(self.count, preset.rollout)
        if self.weighs:
            return Window(self.count, preset.n, preset.gamma, preset.reward_clip)
        return Alike()

    def observations(self) -> Observations:
        """The stacks of all environments, as they are until `advance`."""
        return {name: stack.array for name, stack in self.stacks.items()}

    def choose(self, values: Values) -> Actions:
        """One for each environment, as the policy has it."""
        self.values = values
        self.action = self.policy(values)
        return self.action

    def rows(self, outcome: Outcome) -> Rows:
        """What is stored of the step that led to `outcome`."""
        rows = self.autoreset.rows(
            observation=self.observation,
            action=self.action,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            next_observation=outcome.observation,
            infos=outcome.infos,
            life_lost=self._lives_lost(outcome.infos),
            extras=self.policy.extras(),
        )
        self.window.push(rows, self.observations(), self.values)
        self.newest = rows
        return rows

    def finals(self, rows: Rows) -> Observations:
        """The stacks that end with the final observation of the episodes that `rows` end; none
        where no priority needs them."""
        if not self.weighs or not len(rows.ended_streams):
            return {}
        mask = np.zeros(self.count, np.bool_)
        mask[rows.ended_streams] = True
        finals = {}
        for name, stack in self.stacks.items():
            frames = np.zeros((self.count, *stack.column.shape), stack.column.dtype)
            frames[mask] = rows.closing[name]
            finals[name] = stack.following(frames, mask)
        return finals

    def items(self, ready: Ready) -> Ready:
        """Of what became ready by the newest rows, what becomes an item."""
        return self.window.items(ready)

    def priorities(self, ready: Ready, closing: Values) -> Priorities:
        """Of the items that became ready by the newest rows; `closing`: values of `finals`. None:
        the largest in the table so far."""
        found = self.window.priorities(ready, self.newest, closing)
        return None if found is None else found + self.preset.priority_epsilon

    def advance(self, rows: Rows, outcome: Outcome) -> int:
        """The step is stored: counts it, and goes on from where it led. How many rows it had."""
        self._count(rows, np.asarray(outcome.reward))
        self._see(outcome.observation, rows.started)
        return len(rows.streams)

    def mean_return(self) -> float | None:
        """Of the newest RETURNS_KEPT episodes that ended; None before the first."""
        return float(np.mean(self.returns)) if self.returns else None

    def mean_length(self) -> float | None:
        """Of the same episodes, in steps."""
        return float(np.mean(self.lengths)) if self.lengths else None

    def held(self) -> Observations:
        """The stacks of the rows whose items are not created yet."""
        return self.window.held()

    def renew(self, values: Values) -> None:
        """The values of `held` by new weights: priorities to come are the present network's."""
        if values is not None:
            self.window.renew(values)

    def _lives_lost(self, infos: dict[str, Any]) -> np.ndarray | None:
        if not self.preset.life_loss:
            return None
        return flags_from_infos("life_lost", infos, self.count)

    def _see(self, observation: Any, started: np.ndarray) -> None:
        flat = self.spec.flatten("observation", observation)
        for name, stack in self.stacks.items():
            frames = np.asarray(flat[name])
            if started.any():
                stack.reset(frames, started)
            if not started.all():
                stack.push(frames, ~started)
        self.observation = observation

    def _count(self, rows: Rows, reward: np.ndarray) -> None:
        self.env_steps += len(rows.streams)
        self.episode_return[rows.streams] += reward[rows.streams]
        self.episode_length[rows.streams] += 1
        self.returns.extend(self.episode_return[rows.ended_streams].tolist())
        self.lengths.extend(self.episode_length[rows.ended_streams].tolist())
        self.episodes += len(rows.ended_streams)
        self.episode_return[rows.ended_streams] = 0.0
        self.episode_length[rows.ended_streams] = 0
