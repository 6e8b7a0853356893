"""One actor: B environments, a copy of the network, a writer. `step()` moves all of them once.

    act      q = network(stacks); epsilon-greedy, one epsilon of the ladder for each environment
    step     the environments take their actions
    insert   the rows go to the server; items whose window became complete are created with their
             initial priority, |n-step double-Q TD| by the present network

Everything random comes from generators seeded by (seed, actor number). The actor owns its
environments, stacks and window; the writer and its client belong to the caller.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from actor.exploration import EpsilonGreedy, epsilons_of
from actor.window import Window
from replay_server.returns import leaves
from replay_server.spec import Spec
from replay_server.stacking import FrameStack
from replay_server.training.env_errors import environments
from replay_server.training.envs import generator, train_seeds
from replay_server.training.presets import Preset
from replay_server.training.runs import Phases
from replay_server.training.weights import from_bytes, load_into, require_finite
from replay_server.writing.autoreset import Autoreset, Rows, flags_from_infos, mode_of

RETURNS_KEPT = 100
GENERATOR_INDEX = 1 << 22  # beyond every environment's reset seed


class Actor:
    """The loop's body. `writer` needs append(rows) and create(streams, steps, priorities)."""

    def __init__(
        self,
        *,
        envs: VectorEnv,
        spec: Spec,
        network: torch.nn.Module,
        preset: Preset,
        number: int,
        actors: int,
        seed: int,
        writer: Any,
        env_steps: int = 0,
    ) -> None:
        self.envs, self.spec, self.network, self.preset = envs, spec, network, preset
        self.count, self.number, self.seed = envs.num_envs, number, seed
        ladder = (preset.epsilon_base, preset.epsilon_power)
        self.epsilon = epsilons_of(number, actors, self.count, *ladder)
        rng = generator("train", seed, GENERATOR_INDEX + number)
        self.policy = EpsilonGreedy(self.epsilon, int(envs.single_action_space.n), rng)
        self.autoreset = Autoreset(spec, mode_of(envs), self.count)
        self.stacks = {
            column.name: FrameStack(column, preset.stack, self.count)
            for column in spec.group("observation")
        }
        self.phases = Phases()
        self.env_steps = env_steps  # those of earlier lives are counted
        self.fresh = True
        self.episodes = 0
        self.learner_step = -1  # of the weights in use; -1 = its own first ones
        self.returns: deque[float] = deque(maxlen=RETURNS_KEPT)
        self.lengths: deque[int] = deque(maxlen=RETURNS_KEPT)
        self.restart(writer)

    def restart(self, writer: Any) -> None:
        """Begins anew with this writer: environments reset, nothing held over."""
        self.writer = writer
        self.window = Window(self.count, self.preset.n, self.preset.gamma, self.preset.reward_clip)
        seeds = train_seeds(self.seed, self.number, self.count)
        with environments(self.preset.env, "reset"):
            self.observation, _ = self.envs.reset(seed=seeds if self.fresh else None)
        self.fresh = False
        self.autoreset.restart()
        self._push_frames(self.observation, np.ones(self.count, np.bool_))
        self.episode_return = np.zeros(self.count)
        self.episode_length = np.zeros(self.count, np.int64)

    def load(self, weights: bytes) -> None:
        """Takes published weights; priorities of what is held follow them. WeightsError, with its
        own kept, where they are another network's or not finite."""
        tensors, document = from_bytes(weights)
        require_finite(tensors, document["learner_step"])
        load_into(self.network, tensors)
        self.learner_step = int(document["learner_step"])
        self.window.refresh(self.q_values)

    def step(self) -> int:
        """One step of every environment; returns how many rows were stored."""
        with self.phases("act"):
            stacks = {name: stack.array for name, stack in self.stacks.items()}
            q = self.q_values(stacks)
            action = self.policy(q)
        with self.phases("step"), environments(self.preset.env, "step"):
            following, reward, terminated, truncated, infos = self.envs.step(action)
        with self.phases("insert"):
            rows = self.autoreset.rows(
                observation=self.observation,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=following,
                infos=infos,
                life_lost=self._lives_lost(infos),
            )
            self.window.push(rows, stacks, q)
            self._insert(rows, self._q_final(rows))
            self._count(rows, np.asarray(reward))
            self._push_frames(following, rows.started)
        self.observation = following
        return len(rows.streams)

    def q_values(self, stacks: dict[str, np.ndarray]) -> np.ndarray:
        """The network on {column: [R, k, *shape]}: float32 [R, A]."""
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(stack) for name, stack in stacks.items()}
            return self.network(leaves("observation", tensors)).numpy()

    def _lives_lost(self, infos: dict[str, Any]) -> np.ndarray | None:
        if not self.preset.life_loss:
            return None
        return flags_from_infos("life_lost", infos, self.count)

    def _q_final(self, rows: Rows) -> np.ndarray | None:
        """Q of the final observations of episodes that ended with these rows."""
        if not len(rows.ended_streams):
            return None
        mask = np.zeros(self.count, np.bool_)
        mask[rows.ended_streams] = True
        finals = {}
        for name, stack in self.stacks.items():
            frames = np.zeros((self.count, *stack.column.shape), stack.column.dtype)
            frames[mask] = rows.closing[name]
            finals[name] = stack.following(frames, mask)
        return self.q_values(finals)

    def _insert(self, rows: Rows, q_final: np.ndarray | None) -> None:
        ready = self.writer.append(rows)
        if len(ready):
            priorities = self.window.priorities(ready, rows, q_final)
            priorities += self.preset.priority_epsilon
            self.writer.create(ready.streams, ready.steps, priorities)

    def _push_frames(self, observation: Any, started: np.ndarray) -> None:
        flat = self.spec.flatten("observation", observation)
        for name, stack in self.stacks.items():
            frames = np.asarray(flat[name])
            if started.any():
                stack.reset(frames, started)
            if not started.all():
                stack.push(frames, ~started)

    def _count(self, rows: Rows, reward: np.ndarray) -> None:
        self.env_steps += len(rows.streams)
        self.episode_return[rows.streams] += reward[rows.streams]
        self.episode_length[rows.streams] += 1
        self.returns.extend(self.episode_return[rows.ended_streams].tolist())
        self.lengths.extend(self.episode_length[rows.ended_streams].tolist())
        self.episodes += len(rows.ended_streams)
        self.episode_return[rows.ended_streams] = 0.0
        self.episode_length[rows.ended_streams] = 0
