"""Inference: the values of observations, by a network with the newest weights it was handed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from replay_server.returns import leaves
from replay_server.training.loop import Observations, Values, Weights
from replay_server.training.weights import WeightsError, from_bytes, load_into, require_finite


class Inference:
    """A network, without gradients, on the device it is on; it belongs to the caller.

    guard: held while the network is used, where a learner in this process changes it.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        refused: Callable[[WeightsError], None] | None = None,
        device: str = "cpu",
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.network, self.refused, self.device = network, refused, device
        self.guard = guard or nullcontext()
        self.learner_step = -1  # of the weights in use; -1 = its own first ones

    def values(self, observations: Observations) -> Values:
        """The network on {column: [R, k, *shape]}: float32 [R, A]; None of no rows."""
        if not observations:
            return None
        with self.guard, torch.inference_mode():
            tensors = {
                name: torch.from_numpy(stack).to(self.device)
                for name, stack in observations.items()
            }
            return self.network(leaves("observation", tensors)).cpu().numpy()

    def load(self, newest: Weights) -> bool:
        """Takes published weights; whether there were any that fit. Another network's, and such as
        are not finite, are a WeightsError, or handed to `refused`; its own are kept then."""
        if newest is None:
            return False
        try:
            tensors, document = from_bytes(newest)
            require_finite(tensors, document["learner_step"])
            load_into(self.network, tensors)
        except WeightsError as error:
            if self.refused is None:
                raise
            self.refused(error)
            return False
        self.learner_step = int(document["learner_step"])
        return True
