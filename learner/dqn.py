"""Double DQN with n-step returns on whole batches: pure functions, and one update made of them.

A batch is a `Transitions` of torch tensors, as `Batch.transitions` gives it: it has the target
G + gamma^m Q(o[t+m]) as rewards + discounts * Q(next_observations), rewards clipped, if at all.

Double Q: Q(o[t+m]) is the target net's value of the online net's best action. Importance weights
multiply the loss and nothing else; the new priority of an item is its unweighted |TD|, before the
step. The target net counts learner steps. Initial priorities of an actor (actor/window.py)
are the same |TD| with its own net in both roles.

Arguments are torch tensors; a shape in brackets follows each: B batch, A actions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from learner.optimizing import Gradients, Update, apply
from replay_server.returns import Transitions
from replay_server.spec import Spec
from replay_server.training.actions import Actions
from replay_server.training.networks import acting_network
from replay_server.training.presets import Preset
from replay_server.training.weights import load_into


def double_q_value(q_online: Tensor, q_target: Tensor) -> Tensor:
    """[B]: the target net's value of the action that the online net prefers. Both [B, A]."""
    best = q_online.argmax(1, keepdim=True)
    return q_target.gather(1, best)[:, 0]


def td_error(
    q: Tensor, action: Tensor, return_t: Tensor, discount_t: Tensor, value: Tensor
) -> Tensor:
    """[B]: target minus estimate. q [B, A] of o_t, action int64 [B], the others [B]."""
    estimate = q.gather(1, action[:, None])[:, 0]
    return return_t + discount_t * value - estimate


def weighted_loss(td: Tensor, weights: Tensor, huber_delta: float | None = 1.0) -> Tensor:
    """The mean over the batch of weight * loss(td). None: half the square; else Huber's loss."""
    square = 0.5 * td.square()
    if huber_delta is None:
        return (weights * square).mean()
    size = td.abs()
    linear = huber_delta * (size - 0.5 * huber_delta)
    return (weights * torch.where(size <= huber_delta, square, linear)).mean()


def gradients(
    online: nn.Module,
    target: nn.Module,
    batch: Transitions,
    *,
    huber_delta: float | None = 1.0,
) -> Gradients:
    """Of the weighted loss, by the parameters of `online`; no weight changes. The nets take
    `batch.observations` and give [B, A]."""
    with torch.no_grad():
        value = double_q_value(online(batch.next_observations), target(batch.next_observations))
    q = online(batch.observations)  # [B, A]
    td = td_error(q, batch.actions.long(), batch.rewards, batch.discounts, value)  # [B]
    loss = weighted_loss(td, batch.weights, huber_delta)
    of = torch.autograd.grad(loss, list(online.parameters()))
    return Gradients(list(of), loss.detach(), td.detach().abs(), q.detach().mean(), batch.weights)


def update(
    online: nn.Module,
    target: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Transitions,
    *,
    huber_delta: float | None = 1.0,
    clip_norm: float | None = 10.0,
) -> Update:
    """Both: one gradient step of `online`."""
    found = gradients(online, target, batch, huber_delta=huber_delta)
    return apply(online, optimizer, found, clip_norm=clip_norm)


class DoubleDqn(nn.Module):
    """The algorithm as a learner has it (algorithms.py): an online net, and its target net."""

    def __init__(self, preset: Preset, spec: Spec, actions: Actions, seed: int) -> None:
        super().__init__()
        self.preset = preset
        self.online = acting_network(preset, spec, actions, seed)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    @property
    def acting(self) -> nn.Module:
        """What actors play by."""
        return self.online

    def gradients(self, batch: Transitions) -> Gradients:
        """Of a batch; no weight changes."""
        return gradients(self.online, self.target, batch, huber_delta=self.preset.huber_delta)

    def follow(self, step: int) -> None:
        """The target net is copied where that is due at this count of learner steps."""
        if step % self.preset.target_every == 0:
            self.target.load_state_dict(self.online.state_dict())

    def shared(self, before: int, step: int) -> dict[str, Tensor]:
        """The online net; the target net too where it was copied since step `before`."""
        every = self.preset.target_every
        copied = before < 0 or before // every != step // every
        return self.state_dict() if copied else self.online.state_dict(prefix="online.")

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """`shared` of another learner."""
        whole = any(name.startswith("target.") for name in tensors)
        mine = {name.removeprefix("online."): part for name, part in tensors.items()}
        load_into(self, tensors) if whole else load_into(self.online, mine)
