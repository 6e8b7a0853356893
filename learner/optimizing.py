"""What one update consists of, whatever the algorithm: gradients, then one step of an optimizer.

gradients      an algorithm makes them of a batch (dqn.py, sac.py)
apply          clips them, refuses what is not finite, and steps; the algorithm knows of neither
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from replay_server.training.presets import Preset


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that gradients are made of, by name, in their order."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


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
    """The optimizer a preset names, over what is trained of the network."""
    parameters = trained(network).values()
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
    importance weights, [B]. more: scalars of the algorithm's own, [] each, by their names in logs.
    """

    of: list[Tensor]
    loss: Tensor
    td: Tensor
    q_mean: Tensor
    weights: Tensor
    more: dict[str, Tensor] = field(default_factory=dict)


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
    more: dict[str, float] = field(default_factory=dict)

    def scalars(self) -> dict[str, float]:
        """By their names in logs (training/scalars.py)."""
        return {
            "losses/td": float(self.td.mean()),
            "losses/loss": self.loss,
            "losses/q_values": self.q_mean,
            "losses/grad_norm": self.gradient_norm,
            **self.more,
        }


def update_of(found: Gradients, norm: Tensor) -> Update:
    """What a step by these gradients reports."""
    more = {name: scalar.item() for name, scalar in found.more.items()}
    td = found.td.cpu().numpy()
    return Update(found.loss.item(), td, found.q_mean.item(), norm.item(), more)


def apply(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    found: Gradients,
    *,
    clip_norm: float | None = 10.0,
) -> Update:
    """One step of the optimizer, by gradients whose norm is cut to `clip_norm`.

    NotFinite where the loss or the gradient is: no weight and no state of the optimizer has been
    touched then.
    """
    parameters = list(trained(module).values())
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
    return update_of(found, norm)
