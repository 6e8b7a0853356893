"""The learner's state and what one batch does to it. No sockets, no files, no clock.

    gradients(batch)   what the batch says of the parameters, and its new priorities
    apply(gradients)   one step of the optimizer; target nets follow
    weights()          the network that actors play by, as the bytes that they pull
    shared()           what learners hand one another whose weights are kept in one place
    state()            everything from which `restore` continues: nets, optimiser, counters,
                       generators

Beta comes from `beta()`, which counts learner steps too, so a resumed run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from learner import checkpoint, optimizing
from learner.algorithms import algorithm_from
from learner.optimizing import Gradients, NotFinite, Update
from replay_server.spec import Spec, SpecError
from replay_server.training.actions import Actions, Bounds
from replay_server.training.device import compile_nets
from replay_server.training.loop import Priorities, Weights
from replay_server.training.presets import Preset
from replay_server.training.weights import from_bytes, to_bytes

KEYS_SHOWN = 8
ROUNDING = 1e-3  # an action may lie outside its bounds by so much, of their distance


def beta_at(step: int, start: float, end: float, steps: int) -> float:
    """The exponent of the importance weights at a learner step: linear, `end` from `steps` on."""
    if steps <= 0 or step >= steps:
        return end
    return start + (end - start) * step / steps


class Learner:
    """An algorithm's nets, their optimiser, and the count of learner steps."""

    def __init__(
        self,
        *,
        spec: Spec,
        actions: Actions,
        preset: Preset,
        seed: int,
        device: str = "cpu",
        compiled: bool = False,
    ) -> None:
        self.preset, self.device, self.actions = preset, device, actions
        self.algorithm = algorithm_from(preset, spec, actions, seed).to(device)
        if compiled:
            compile_nets(self.algorithm, device)
        self.optimizer = optimizing.optimizer_from(preset, self.algorithm)
        self.step = 0
        self.batch: Any = None  # the newest that gradients were made of
        self.update: Update | None = None  # what the newest step of the optimizer reports
        self.guard: AbstractContextManager[Any] = nullcontext()  # held while the weights change
        self.weights_of: Callable[[Any], np.ndarray] | None = None  # of a batch, if not its own

    @property
    def acting(self) -> torch.nn.Module:
        """The network that actors play by."""
        return self.algorithm.acting

    def beta(self) -> float:
        """The exponent of the importance weights for the next batch."""
        p = self.preset
        return beta_at(self.step, p.beta_start, p.beta_end, p.beta_steps)

    def gradients(self, batch: Any) -> Gradients:
        """What a sampled batch says; no weight changes. SpecError where an action, or a state of
        the linear network, is none of those there are."""
        p, self.batch = self.preset, batch
        transitions = batch.transitions(p.gamma, self.device, p.reward_clip)
        if self.weights_of is not None:
            weights = torch.from_numpy(self.weights_of(batch)).to(self.device)
            transitions = replace(transitions, weights=weights)
        self._require_actions(batch, transitions.actions)
        if p.network == "linear":
            for frames in (transitions.observations, transitions.next_observations):
                states = frames.reshape(len(batch), -1)[:, -1]
                self._require_between(batch, "observation", states, 0, p.states - 1)
        return self.algorithm.gradients(transitions)

    def apply(self, gradients: Gradients) -> None:
        """One step of the optimizer, which target nets follow. NotFinite, which names the newest
        batch, where loss or gradient are NaN or infinite: nothing has changed."""
        module, optimizer, clip_norm = self.algorithm, self.optimizer, self.preset.clip_norm
        with self.naming_the_batch(), self.guard:
            self.update = optimizing.apply(module, optimizer, gradients, clip_norm=clip_norm)
        self.step += 1
        module.follow(self.step)

    @contextmanager
    def naming_the_batch(self) -> Iterator[None]:
        """NotFinite, raised within, names the newest batch that gradients were made of here."""
        try:
            yield
        except NotFinite as error:
            if self.batch is None:
                raise
            raise NotFinite(self._named(error, self.batch), error.items) from error

    def priorities(self, gradients: Gradients) -> Priorities:
        """Of the batch they were made of: |TD| and a little, float64 [B]; None where the exponent
        alpha is 0, so that priorities change nothing."""
        if self.preset.alpha == 0.0:
            return None
        return gradients.td.cpu().numpy().astype(np.float64) + self.preset.priority_epsilon

    def load(self, newest: Weights) -> None:
        """`shared` of another place, where the optimizer is; None where it is here."""
        if newest is None:
            return
        tensors, document = from_bytes(newest)
        self.algorithm.take(tensors)
        self.step = int(document["learner_step"])

    def learn(self, batch: Any) -> tuple[Update, Priorities]:
        """One update on a batch; (what it reports, new priorities). Errors as of `gradients` and
        `apply`."""
        gradients = self.gradients(batch)
        self.apply(gradients)
        return self.update, self.priorities(gradients)

    def _require_actions(self, batch: Any, actions: torch.Tensor) -> None:
        if not isinstance(self.actions, Bounds):
            self._require_between(batch, "action", actions, 0, self.actions - 1)
            return
        room = ROUNDING * (self.actions.high - self.actions.low)
        low, high = self.actions.low - room, self.actions.high + room
        flat = actions.reshape(len(batch), -1)
        for i, (least, most) in enumerate(zip(low.ravel(), high.ravel(), strict=True)):
            self._require_between(batch, "action", flat[:, i], float(least), float(most))

    def _require_between(
        self, batch: Any, name: str, values: torch.Tensor, least: float, most: float
    ) -> None:
        """SpecError where one of `values` [B] is not: torch would end the program, or learn from
        what no actor of this environment can have done."""
        wrong = np.flatnonzero(((values < least) | (values > most)).cpu().numpy())
        if len(wrong):
            raise SpecError(
                f"learner step {self.step + 1}: column {name!r} holds {values[wrong[0]].item():g}, "
                f"where this one has {least:g} to {most:g}; nothing was learned from this batch: "
                f"{_keys_of(batch, wrong)}, for client.get; whoever wrote them had another "
                "environment: find that actor, and begin with client.reset"
            )

    def _named(self, error: NotFinite, batch: Any) -> str:
        """The sentence of what is wrong, in which batch, and what to check."""
        parts = {name: torch.as_tensor(part) for name, part in batch.data.items()}
        wrong = [name for name, part in parts.items() if not torch.isfinite(part).all()]
        chosen = error.items if len(error.items) else np.arange(len(batch.ahead))
        found = f"columns {', '.join(wrong)} hold such numbers" if wrong else "its data is finite"
        return (
            f"learner step {self.step + 1}: {error}; nothing was learned from this batch: {found}; "
            f"{_keys_of(batch, chosen)}, for client.get; where the data is finite, look at the "
            "learning rate and the rewards' size, and go on from the newest checkpoint"
        )

    def weights(self) -> bytes:
        """The acting network and the learner step, as published."""
        return to_bytes(self.acting.state_dict(), self.step)

    def shared(self, before: int = -1) -> bytes:
        """What `load` takes at another learner that has what was shared at step `before`, -1: that
        has nothing; and the learner step."""
        return to_bytes(self.algorithm.shared(before, self.step), self.step)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors, document) for a checkpoint."""
        tensors, document = checkpoint.training_tensors(self.algorithm, self.optimizer)
        return tensors, {**document, "learner_step": self.step}

    def restore(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        """Continues from `state`, with this preset's learning rate, epsilon and decay.

        WeightsError where the networks do not fit, or another optimizer wrote it.
        """
        groups = self.optimizer.param_groups
        options = {
            name: [group[name] for group in groups]
            for name in ("lr", "eps", "alpha")  # alpha: RMSprop's decay
            if name in groups[0]
        }
        checkpoint.restore_training(tensors, document, self.algorithm, self.optimizer)
        for name, values in options.items():
            for group, value in zip(self.optimizer.param_groups, values, strict=True):
                group[name] = value
        self.step = int(document["learner_step"])


def _keys_of(batch: Any, chosen: np.ndarray) -> str:
    """The keys of some items of a batch, as many as a sentence holds."""
    keys = np.unique(np.asarray(batch.keys)[chosen]).tolist()  # several items of one segment
    more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
    return f"keys {keys[:KEYS_SHOWN]}{more}"
