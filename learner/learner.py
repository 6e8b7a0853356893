"""The learner's state and what one batch does to it. No sockets, no files, no clock.

    gradients(batch)   what the batch says of the parameters, and its new priorities
    apply(gradients)   one step of the optimizer; the target net is copied every so many
    weights()          the online net as the bytes that actors pull
    state()            everything from which `restore` continues: nets, optimiser, counters,
                       generators

Beta comes from `beta()`, which counts learner steps too, so a resumed run goes on where it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from learner import checkpoint, dqn
from replay_server.spec import Spec, SpecError
from replay_server.training.loop import Weights
from replay_server.training.networks import network_from
from replay_server.training.presets import Preset
from replay_server.training.weights import from_bytes, load_into, to_bytes

KEYS_SHOWN = 8


class Learner:
    """Online and target nets, optimiser, and the count of learner steps."""

    def __init__(
        self, *, spec: Spec, actions: int, preset: Preset, seed: int, device: str = "cpu"
    ) -> None:
        self.preset, self.device, self.actions = preset, device, actions
        self.online = network_from(
            preset.network,
            spec,
            actions,
            stack=preset.stack,
            hidden=preset.hidden,
            states=preset.states,
            seed=seed,
        ).to(device)
        self.target = copy.deepcopy(self.online)
        self.optimizer = dqn.optimizer_from(preset, self.online)
        self.step = 0
        self.batch: Any = None  # the newest that gradients were made of
        self.update: dqn.Update | None = None  # what the newest step of the optimizer reports
        self.guard: AbstractContextManager[Any] = nullcontext()  # held while the weights change
        self.weights_of: Callable[[Any], np.ndarray] | None = None  # of a batch, if not its own

    def beta(self) -> float:
        """The exponent of the importance weights for the next batch."""
        p = self.preset
        return dqn.beta_at(self.step, p.beta_start, p.beta_end, p.beta_steps)

    def gradients(self, batch: Any) -> dqn.Gradients:
        """What a sampled batch says; no weight changes. SpecError where an action, or a state of
        the linear network, is none of those the net has."""
        p, self.batch = self.preset, batch
        transitions = batch.transitions(p.gamma, self.device, p.reward_clip)
        if self.weights_of is not None:
            weights = torch.from_numpy(self.weights_of(batch)).to(self.device)
            transitions = replace(transitions, weights=weights)
        self._require_places(batch, "action", transitions.actions, self.actions)
        if p.network == "linear":
            for frames in (transitions.observations, transitions.next_observations):
                states = frames.reshape(len(batch), -1)[:, -1]
                self._require_places(batch, "observation", states, p.states)
        return dqn.gradients(self.online, self.target, transitions, huber_delta=p.huber_delta)

    def apply(self, gradients: dqn.Gradients) -> None:
        """One step of the optimizer; the target net is copied where it is due. NotFinite, which
        names the newest batch, where loss or gradient are NaN or infinite: nothing has changed."""
        p = self.preset
        with self.naming_the_batch(), self.guard:
            self.update = dqn.apply(self.online, self.optimizer, gradients, clip_norm=p.clip_norm)
        self.step += 1
        if dqn.target_is_due(self.step, p.target_every):
            self.target.load_state_dict(self.online.state_dict())

    @contextmanager
    def naming_the_batch(self) -> Iterator[None]:
        """NotFinite, raised within, names the newest batch that gradients were made of here."""
        try:
            yield
        except dqn.NotFinite as error:
            if self.batch is None:
                raise
            raise dqn.NotFinite(self._named(error, self.batch), error.items) from error

    def priorities(self, gradients: dqn.Gradients) -> np.ndarray:
        """Of the batch they were made of: |TD| and a little, float64 [B]."""
        return gradients.td.cpu().numpy().astype(np.float64) + self.preset.priority_epsilon

    def load(self, newest: Weights) -> None:
        """Weights of another place, where the optimizer is; None where it is here."""
        if newest is None:
            return
        tensors, document = from_bytes(newest)
        load_into(self.online, tensors)
        before, self.step = self.step, int(document["learner_step"])
        if before // self.preset.target_every != self.step // self.preset.target_every:
            self.target.load_state_dict(self.online.state_dict())

    def learn(self, batch: Any) -> tuple[dqn.Update, np.ndarray]:
        """One update on a batch; (what it reports, new priorities). Errors as of `gradients` and
        `apply`."""
        gradients = self.gradients(batch)
        self.apply(gradients)
        return self.update, self.priorities(gradients)

    def _require_places(self, batch: Any, name: str, values: torch.Tensor, count: int) -> None:
        """SpecError where one of `values` [B] is not below `count`: torch would end the program."""
        wrong = np.flatnonzero(((values < 0) | (values >= count)).cpu().numpy())
        if len(wrong):
            raise SpecError(
                f"learner step {self.step + 1}: column {name!r} holds {int(values[wrong[0]])}, "
                f"where this network has 0 to {count - 1}; nothing was learned from this batch: "
                f"{_keys_of(batch, wrong)}, for client.get; whoever wrote them had another "
                "environment: find that actor, and begin with client.reset"
            )

    def _named(self, error: dqn.NotFinite, batch: Any) -> str:
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
        """The online net and the learner step, as published."""
        return to_bytes(self.online.state_dict(), self.step)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """(tensors, document) for a checkpoint."""
        tensors, document = checkpoint.training_tensors(self.online, self.target, self.optimizer)
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
        checkpoint.restore_training(tensors, document, self.online, self.target, self.optimizer)
        for name, values in options.items():
            for group, value in zip(self.optimizer.param_groups, values, strict=True):
                group[name] = value
        self.step = int(document["learner_step"])


def _keys_of(batch: Any, chosen: np.ndarray) -> str:
    """The keys of some items of a batch, as many as a sentence holds."""
    keys = np.asarray(batch.keys)[chosen[:KEYS_SHOWN]].tolist()
    more = f" and {len(chosen) - KEYS_SHOWN} more" if len(chosen) > KEYS_SHOWN else ""
    return f"keys {keys}{more}"
