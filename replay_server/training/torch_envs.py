"""Classic tasks whose every environment is a row of one tensor: a step of all is a few kernels.

    torch/CartPole-v1, torch/Pendulum-v1

For plans in which environments, network and learner share a device (gpu-only). Seeds, dynamics and
time limits are Gymnasium's, so an episode of a seed is the one it has there, within float32;
one environment of these names is Gymnasium's (envs.py). A vector is in next-step mode, and its
observations are NumPy's, as any vector's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.utils import seeding
from torch import Tensor

from .vectors import NextStepVector


class Task(NamedTuple):
    """How episodes begin, go on and look, each state a row of S numbers.

    first      a generator -> the state [S] that an episode begins with
    advanced   states [B, S] and actions -> (states, rewards [B], terminated [B]) behind a step
    seen       states -> observations [B, *shape]
    """

    first: Callable[[np.random.Generator], np.ndarray]
    advanced: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    seen: Callable[[Tensor], Tensor]


class TorchVector(NextStepVector):
    """`count` environments of TASKS[name] on `device`."""

    def __init__(self, name: str, count: int, device: str = "cpu") -> None:
        single = gymnasium.make(name)
        super().__init__(single.observation_space, single.action_space, count)
        self.task, self.device = TASKS[name], torch.device(device)
        self.limit = int(single.spec.max_episode_steps)
        single.close()
        self.random = [seeding.np_random()[0] for _ in range(count)]
        self.state = torch.zeros((count, 1), dtype=torch.float64, device=self.device)
        self.steps, self.over = np.zeros(count, np.int64), np.ones(count, np.bool_)

    def reset(
        self, *, seed: list[int] | int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if (seeds := self.seeds_of(seed)) is not None:
            self.random = [seeding.np_random(each)[0] for each in seeds]
        rows = np.stack([self.task.first(random) for random in self.random])
        self.state = torch.from_numpy(rows).to(self.device)
        self.steps[:], self.over[:] = 0, False
        return self._seen(), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        begins = np.flatnonzero(self.over)
        taken = torch.as_tensor(np.asarray(actions)).to(self.device)
        state, reward, terminated = self.task.advanced(self.state, taken)
        rewards = reward.cpu().numpy().astype(np.float64)
        ended = terminated.cpu().numpy().copy()
        self.steps += 1
        if len(begins):
            rows = np.stack([self.task.first(self.random[i]) for i in begins])
            state[torch.from_numpy(begins).to(self.device)] = torch.from_numpy(rows).to(self.device)
            rewards[begins], ended[begins], self.steps[begins] = 0.0, False, 0
        self.state = state
        cut = self.steps >= self.limit
        self.over = ended | cut
        return self._seen(), rewards, ended, cut, {}

    def _seen(self) -> np.ndarray:
        return self.task.seen(self.state).to(torch.float32).cpu().numpy().copy()


# Gymnasium's CartPole-v1: x, its speed, the pole's angle, its speed.


def cartpole_first(random: np.random.Generator) -> np.ndarray:
    return random.uniform(low=-0.05, high=0.05, size=(4,))


def cartpole_advanced(state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, x_dot, theta, theta_dot = state.unbind(1)
    force = 20.0 * (actions == 1).to(state.dtype) - 10.0
    cosine, sine = torch.cos(theta), torch.sin(theta)
    push = (force + 0.05 * theta_dot.square() * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine.square() / 1.1))
    pull = push - 0.05 * turn * cosine / 1.1
    after = torch.stack(
        (
            x + 0.02 * x_dot,
            x_dot + 0.02 * pull,
            theta + 0.02 * theta_dot,
            theta_dot + 0.02 * turn,
        ),
        dim=1,
    )
    fell = (after[:, 0].abs() > 2.4) | (after[:, 2].abs() > 12 * 2 * np.pi / 360)
    return after, torch.ones_like(x), fell


# Gymnasium's Pendulum-v1: the angle, its speed.


def pendulum_first(random: np.random.Generator) -> np.ndarray:
    high = np.array([np.pi, 1.0])
    return random.uniform(low=-high, high=high)


def pendulum_advanced(state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    theta, speed = state.unbind(1)
    torque = actions.reshape(-1).clamp(-2.0, 2.0)  # float32, as there, in both terms
    angle = torch.remainder(theta + np.pi, 2 * np.pi) - np.pi
    effort = (0.001 * torque.square()).to(state.dtype)
    cost = angle.square() + 0.1 * speed.square() + effort
    after = (speed + (15.0 * torch.sin(theta) + (3.0 * torque).to(state.dtype)) * 0.05).clamp(
        -8.0, 8.0
    )
    return (
        torch.stack((theta + after * 0.05, after), dim=1),
        -cost,
        torch.zeros_like(theta, dtype=torch.bool),
    )


def pendulum_seen(state: Tensor) -> Tensor:
    theta, speed = state.unbind(1)
    return torch.stack((torch.cos(theta), torch.sin(theta), speed), dim=1)


TASKS = {
    "CartPole-v1": Task(cartpole_first, cartpole_advanced, lambda state: state),
    "Pendulum-v1": Task(pendulum_first, pendulum_advanced, pendulum_seen),
}
