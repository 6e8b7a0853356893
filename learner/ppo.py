"""Proximal policy optimization: rollouts of the present policy, each learned from a few times.

After Schulman et al. 2017. Of the steps of a minibatch (rollouts.py), whose advantages A and
returns R are estimated once a rollout:

    ratio    exp(log pi(a | o) - log pi_then(a | o)): how much likelier the action has become
    policy   the mean of -min(ratio A, clip(ratio, 1 - c, 1 + c) A)                    (eq. 7)
    value    the mean of half the squared error R - V(o)                               (eq. 9)
    entropy  the mean entropy of pi(. | o), which is to stay                           (eq. 9)

    loss     policy + value_weight * value - entropy_weight * entropy

A is brought to mean 0 and deviation 1 within each minibatch, unless that is one step. What came of
an action that was chosen by older weights is still right, up to the clipping: the ratio is to the
policy that chose it.

Arguments are torch tensors; a shape in brackets follows each: B segments, T steps, M of a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from learner.optimizing import Gradients, trained
from replay_server.returns import leaves
from replay_server.spec import Spec, SpecError
from replay_server.training.actions import Actions
from replay_server.training.networks import Mlp, Observations, acting_network, seeded
from replay_server.training.presets import LOG_PROB, Preset
from replay_server.training.weights import load_into

LEAST_DEVIATION = 1e-8


@dataclass(frozen=True, eq=False)
class Steps:
    """M steps of rollouts. weights [M]: all 1."""

    observations: Observations
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.advantages)

    def chosen(self, which: Tensor) -> Steps:
        """Those of these numbers, int64 [M]."""
        observations = self.observations
        if isinstance(observations, dict):
            observations = {name: part[which] for name, part in observations.items()}
        else:
            observations = observations[which]
        parts = (self.actions, self.log_probs, self.advantages, self.returns, self.weights)
        return Steps(observations, *(part[which] for part in parts))


def advantages_of(
    rewards: Tensor, terminated: Tensor, values: Tensor, ahead: Tensor, gamma: float, decay: float
) -> Tensor:
    """Generalized advantage estimation (Schulman et al. 2016, eq. 16), float32 [B, T].

    rewards [B, T], terminated bool [B, T], values [B, T + 1], ahead int64 [B]: the steps that a
    segment has. What a segment does not show counts as its value there: at its end, and where its
    episode was truncated. Behind its last step all is 0.
    """
    steps = rewards.shape[1]
    there = torch.arange(steps, device=rewards.device) < ahead[:, None]  # [B, T]
    goes_on = (~terminated).float()
    errors = (rewards + gamma * goes_on * values[:, 1:] - values[:, :-1]) * there
    found, after = torch.zeros_like(errors), torch.zeros_like(errors[:, 0])
    for i in reversed(range(steps)):
        after = errors[:, i] + gamma * decay * goes_on[:, i] * after
        found[:, i] = after
    return found


class Ppo(nn.Module):
    """The algorithm as a learner has it (algorithms.py)."""

    def __init__(self, preset: Preset, spec: Spec, actions: Actions, seed: int) -> None:
        super().__init__()
        if not isinstance(actions, int):
            raise SpecError("ppo chooses one of several actions, not a point of a Box")
        self.preset = preset
        self.acting = acting_network(preset, spec, actions, seed)
        columns = spec.group("observation")
        with seeded(seed + 1):
            self.value = Mlp(columns, preset.stack, preset.hidden, lambda n: nn.Linear(n, 1))

    @torch.no_grad()
    def steps_of(self, batch: Any, device: str) -> Steps:
        """All steps of B segments, by the weights of this moment; batch: of a plan Sequence(T)."""
        p = self.preset
        data = {name: torch.as_tensor(part, device=device) for name, part in batch.data.items()}
        ahead = torch.as_tensor(batch.ahead.astype("int64"), device=device)
        rows = {name: part.flatten(0, 1) for name, part in data.items()}  # [B * (T + 1), *shape]
        seen = leaves("observation", {n: p for n, p in rows.items() if n.startswith("observation")})
        values = self.value(seen)[:, 0].reshape(len(ahead), -1)
        rewards, terminated = data["reward"][:, :-1], data["terminated"][:, :-1] != 0
        if p.reward_clip is not None:
            rewards = rewards.clip(-p.reward_clip, p.reward_clip)
        advantages = advantages_of(rewards, terminated, values, ahead, p.gamma, p.gae_decay)
        advantages = pad(advantages, (0, 1))  # [B, T + 1]: the last row is no step
        every = Steps(
            observations=seen,
            actions=rows["action"],
            log_probs=rows[LOG_PROB],
            advantages=advantages.flatten(),
            returns=(advantages + values).flatten(),
            weights=torch.ones(values.numel(), device=device),
        )
        step = torch.arange(values.shape[1], device=device)
        return every.chosen((step < ahead[:, None]).flatten().nonzero()[:, 0])

    def gradients(self, steps: Steps) -> Gradients:
        """Of a minibatch; no weight changes."""
        p = self.preset
        log_probs = self.acting(steps.observations).log_softmax(1)  # [M, A]
        taken = log_probs.gather(1, steps.actions.long()[:, None])[:, 0]
        ratio = (taken - steps.log_probs).exp()
        advantages = steps.advantages
        if len(steps) > 1:  # of one step nothing would be left
            advantages = advantages - advantages.mean()
            advantages = advantages / (advantages.std(correction=0) + LEAST_DEVIATION)
        clipped = ratio.clip(1.0 - p.clip_range, 1.0 + p.clip_range)
        policy = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        error = steps.returns - self.value(steps.observations)[:, 0]
        value = 0.5 * error.square().mean()
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        loss = policy + p.value_weight * value - p.entropy_weight * entropy
        of = torch.autograd.grad(loss, list(trained(self).values()))
        return Gradients(
            list(of),
            loss.detach(),
            error.detach().abs(),
            (steps.returns - error.detach()).mean(),
            steps.weights,
            {
                "losses/policy": policy.detach(),
                "losses/value": value.detach(),
                "losses/entropy": entropy.detach(),
                "losses/clipped": ((ratio - 1.0).abs() > p.clip_range).float().mean(),
            },
        )

    def follow(self, step: int) -> None:
        """Nothing lags behind."""

    def shared(self, before: int, step: int) -> dict[str, Tensor]:
        """All of it."""
        return self.state_dict()

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """`shared` of another learner."""
        load_into(self, tensors)
