"""Double DQN with n-step returns on whole batches: pure functions, and one update made of them.

A batch is a `Transitions` of torch tensors, as `Batch.transitions` gives it: it has the target
G + gamma^m Q(o[t+m]) as rewards + discounts * Q(next_observations), rewards clipped, if at all.

Double Q: Q(o[t+m]) is the target net's value of the online net's best action. Importance weights
multiply the loss and nothing else; the new priority of an item is its unweighted |TD|, before the
step. Beta and the target net count learner steps. Initial priorities of an actor (actor/window.py)
are the same |TD| with its own net in both roles.

Arguments are torch tensors; a shape in brackets follows each: B batch, A actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from replay_server.returns import Transitions
from replay_server.training.presets import Preset


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


def beta_at(step: int, start: float, end: float, steps: int) -> float:
    """The exponent of the importance weights at a learner step: linear, `end` from `steps` on."""
    if steps <= 0 or step >= steps:
        return end
    return start + (end - start) * step / steps


def target_is_due(step: int, every: int) -> bool:
    """True when the target net is to be copied after learner step `step` (counted from 1)."""
    return step % every == 0


class RMSprop(torch.optim.RMSprop):
    """torch's centred RMSprop, without its NaN: a steady gradient's variance, the difference of two
    averages, may be rounded to below 0. It is at least what it can be rounded by."""

    def __init__(self, parameters: Iterable[Tensor], **options: float) -> None:
        super().__init__(parameters, centered=True, **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One step; no closure, momentum or weight decay."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["square_avg"] = torch.zeros_like(parameter)
            state["grad_avg"] = torch.zeros_like(parameter)
        square, mean, new = state["square_avg"], state["grad_avg"], 1.0 - group["alpha"]
        state["step"] += 1
        square.mul_(group["alpha"]).addcmul_(gradient, gradient, value=new)
        mean.lerp_(gradient, new)
        variance = square.addcmul(mean, mean, value=-1.0)
        least = square * torch.finfo(square.dtype).eps
        size = torch.maximum(variance, least).sqrt_().add_(group["eps"])
        parameter.addcdiv_(gradient, size, value=-group["lr"])


def optimizer_from(preset: Preset, network: nn.Module) -> torch.optim.Optimizer:
    """The optimizer a preset names, over the network's parameters."""
    parameters = network.parameters()
    if preset.optimizer == "adam":
        return torch.optim.Adam(
            parameters, lr=preset.learning_rate, eps=preset.optimizer_epsilon, foreach=True
        )
    if preset.optimizer == "rmsprop":
        return RMSprop(
            parameters,
            lr=preset.learning_rate,
            alpha=preset.rmsprop_decay,
            eps=preset.optimizer_epsilon,
        )
    raise ValueError(f"optimizer {preset.optimizer!r}; expected adam or rmsprop")


class NotFinite(ValueError):
    """A loss or gradient that is NaN or infinite. `items`: which of the batch are, int64 [K]."""

    def __init__(self, sentence: str, items: np.ndarray) -> None:
        self.items = items
        super().__init__(sentence)


@dataclass(frozen=True)
class Gradients:
    """What a batch says of the parameters: `of` holds one tensor for each, in their order.

    td: |TD|, unweighted, by the weights before the step, [B]. loss, q_mean: []. weights: the
    importance weights, [B].
    """

    of: list[Tensor]
    loss: Tensor
    td: Tensor
    q_mean: Tensor
    weights: Tensor


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


def require_finite(found: Gradients, norm: Tensor) -> None:
    """NotFinite where the loss, or the norm of its gradient, is."""
    if not torch.isfinite(found.loss + norm):
        items = (~torch.isfinite(found.td * found.weights)).nonzero()[:, 0].cpu().numpy()
        sentence = f"loss {found.loss.item()}, norm of the gradient {norm.item()}"
        raise NotFinite(sentence, items)


@dataclass(frozen=True)
class Update:
    """What one update reports; `td` is |TD|, float32 [B], unweighted, before the step."""

    loss: float
    td: np.ndarray
    q_mean: float
    gradient_norm: float


def apply(
    online: nn.Module,
    optimizer: torch.optim.Optimizer,
    found: Gradients,
    *,
    clip_norm: float | None = 10.0,
) -> Update:
    """One step of the optimizer, by gradients whose norm is cut to `clip_norm`.

    NotFinite where the loss or the gradient is: no weight and no state of the optimizer has been
    touched then.
    """
    parameters = list(online.parameters())
    for parameter, gradient in zip(parameters, found.of, strict=True):
        parameter.grad = gradient
    limit = float("inf") if clip_norm is None else clip_norm
    norm = nn.utils.clip_grad_norm_(parameters, limit)
    try:
        require_finite(found, norm)
    except NotFinite:
        optimizer.zero_grad(set_to_none=True)
        raise
    optimizer.step()
    return Update(found.loss.item(), found.td.cpu().numpy(), found.q_mean.item(), norm.item())


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
