"""Soft actor-critic: a policy that gains by being random, two critics, a learned temperature.

After Haarnoja et al. 2018 (Soft Actor-Critic Algorithms and Applications). Of a `Transitions`:

    target        G + gamma^m (min_i Q'_i(o[t+m], a') - T log pi(a' | o[t+m])),  a' drawn anew
    critics       the weighted mean of half the squared TD error, of each of the two   (eq. 5)
    policy        the weighted mean of T log pi(a | o[t]) - min_i Q_i(o[t], a),  a drawn  (eq. 9)
    temperature   the mean of -log T (log pi(a | o[t]) - D): entropy -D is aimed at     (eq. 18)

All three are taken at the same weights, and one step of the optimizer moves all; Q', the target
nets, follow the critics by `target_share`. T is the temperature, the paper's alpha. Actions are
numbers from -1 to 1, of which log pi is the density; the environment's box is theirs, stretched.

Arguments are torch tensors; a shape in brackets follows each: B batch, D numbers of an action.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from learner.optimizing import Gradients, trained
from replay_server.returns import Transitions
from replay_server.spec import Spec, SpecError
from replay_server.training.actions import LOG_STD_LEAST, LOG_STD_MOST, Actions, Bounds
from replay_server.training.networks import (
    Joined,
    Observations,
    acting_network,
    layers_of,
    seeded,
)
from replay_server.training.presets import Preset
from replay_server.training.weights import load_into

LOG_2, LOG_2PI = math.log(2.0), math.log(2.0 * math.pi)


def drawn(values: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Of a policy's values [B, 2 D] and standard normal noise [B, D]: actions in -1 to 1, [B, D],
    and the logarithm of their density, [B]. Gradients go through both."""
    mean, log_std = values.chunk(2, dim=1)
    log_std = log_std.clamp(LOG_STD_LEAST, LOG_STD_MOST)
    before = mean + log_std.exp() * noise
    density = -0.5 * (noise.square() + LOG_2PI) - log_std
    slope = 2.0 * (LOG_2 - before - softplus(-2.0 * before))  # log(1 - tanh^2), without cancelling
    return before.tanh(), (density - slope).sum(1)


class Critics(nn.Module):
    """Two nets from an observation and an action to its value: [2, B]."""

    def __init__(self, preset: Preset, spec: Spec, actions: Bounds) -> None:
        super().__init__()
        self.joined = Joined(spec.group("observation"), preset.stack)
        sizes = (self.joined.width + actions.size, *preset.hidden)
        self.each = nn.ModuleList(
            nn.Sequential(*layers_of(sizes[0], preset.hidden), nn.Linear(sizes[-1], 1))
            for _ in range(2)
        )

    def forward(self, observations: Observations, actions: Tensor) -> Tensor:
        both = torch.cat([self.joined(observations), actions], 1)
        return torch.stack([net(both)[:, 0] for net in self.each])


class Temperature(nn.Module):
    """What a unit of entropy is worth, as its logarithm; 1 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))


class Sac(nn.Module):
    """The algorithm as a learner has it (algorithms.py)."""

    def __init__(self, preset: Preset, spec: Spec, actions: Actions, seed: int) -> None:
        super().__init__()
        if not isinstance(actions, Bounds):
            raise SpecError(f"sac chooses from a Box of actions, not from {actions} of them")
        self.preset, self.size = preset, actions.size
        self.acting = acting_network(preset, spec, actions, seed)
        with seeded(seed + 1):
            self.critics = Critics(preset, spec, actions)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.temperature = Temperature()
        for name, edge in (("low", actions.low), ("high", actions.high)):
            flat = torch.as_tensor(edge, dtype=torch.float64).reshape(-1)
            self.register_buffer(name, flat, persistent=False)

    def gradients(self, batch: Transitions) -> Gradients:
        """Of a batch; no weight changes. Draws noise of torch's global generator."""
        observations, weights = batch.observations, batch.weights
        temperature = self.temperature.log.exp().detach()
        with torch.no_grad():
            following, log_following = self._draw(batch.next_observations)
            value = self.targets(batch.next_observations, following).min(0).values
            target = batch.rewards + batch.discounts * (value - temperature * log_following)
        q = self.critics(observations, self._unit(batch.actions))  # [2, B]
        td = target - q
        critics = (weights * 0.5 * td.square()).mean(1).sum()

        actions, log_density = self._draw(observations)
        worth = self.critics(observations, actions).min(0).values
        policy = (weights * (temperature * log_density - worth)).mean()
        gap = (log_density.detach() - self.size).mean()  # above 0: less entropy than is aimed at
        parts = {"acting": policy, "critics": critics, "temperature": -self.temperature.log * gap}
        return Gradients(
            self._of(parts),
            critics.detach(),
            td.detach().abs().mean(0),
            q.detach().mean(),
            weights,
            {"losses/policy": policy.detach(), "losses/temperature": temperature},
        )

    def _of(self, losses: Mapping[str, Tensor]) -> list[Tensor]:
        """The gradient of each part's own loss, by its own parameters, in the order of all."""
        found: dict[str, Tensor] = {}
        for part, loss in losses.items():
            mine = trained(getattr(self, part))
            of = torch.autograd.grad(loss, list(mine.values()))
            found |= {f"{part}.{name}": each for name, each in zip(mine, of, strict=True)}
        return [found[name] for name in trained(self)]

    def _draw(self, observations: Observations) -> tuple[Tensor, Tensor]:
        values = self.acting(observations)
        noise = torch.randn(len(values), self.size).to(values.device)  # the same on every device
        return drawn(values, noise)

    def _unit(self, actions: Tensor) -> Tensor:
        """Actions of the box, [B, *shape], as numbers from -1 to 1, [B, D]."""
        flat = actions.reshape(len(actions), self.size).double()
        return (2.0 * (flat - self.low) / (self.high - self.low) - 1.0).float()

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """The target nets take over a share of the critics."""
        pairs = zip(self.targets.parameters(), self.critics.parameters(), strict=True)
        for target, critic in pairs:
            target.lerp_(critic, self.preset.target_share)

    def shared(self, before: int, step: int) -> dict[str, Tensor]:
        """All of it: the target nets change at each step."""
        return self.state_dict()

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """`shared` of another learner."""
        load_into(self, tensors)
