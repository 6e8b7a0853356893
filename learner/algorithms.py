"""The algorithms by name, and what a learner asks of one.

An algorithm is a torch module. Its children are the parts that a checkpoint holds; what has
`requires_grad` among its parameters is trained.

    acting                       the network that actors play by; its weights are published
    gradients(batch)             of a `Transitions`, one for each trained parameter (optimizing.py)
    follow(step)                 what lags behind, as target nets do, at this count of steps
    shared(before, step)         {name: tensor} that a learner needs who has what there was at step
                                 `before`, -1: nothing (central.py)
    take(tensors)                those of another learner

ppo learns from each rollout several times, in parts: `batches_of` puts that between a learner and
its replay. An algorithm knows nothing of where it runs, nor the loop of it: neither plan nor server
names one. Another one is a file like dqn.py and sac.py, a name here, and a row of TRAITS in
presets.py; what else it may need is in CONTRIBUTING.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from learner.dqn import DoubleDqn
from learner.ppo import Ppo
from learner.rollouts import Rollouts
from learner.sac import Sac
from replay_server.spec import Spec
from replay_server.training.actions import Actions
from replay_server.training.presets import Preset

if TYPE_CHECKING:
    from learner.learner import Learner

ALGORITHMS = {"dqn": DoubleDqn, "sac": Sac, "ppo": Ppo}


def algorithm_from(preset: Preset, spec: Spec, actions: Actions, seed: int) -> nn.Module:
    """The one that the preset names, with first weights of `seed`. SpecError where the columns do
    not suit it."""
    return ALGORITHMS[preset.algorithm](preset, spec, actions, seed)


def batches_of(replay: Any, learner: Learner) -> Any:
    """The replay as this learner's algorithm draws from it."""
    return Rollouts(replay, learner) if learner.preset.on_policy else replay


def publication_due(learner: Learner, replay: Any) -> bool:
    """Whether the weights are to be published behind this update: ppo's behind each rollout.
    replay: as `batches_of` gave it; None where others draw."""
    preset = learner.preset
    if not preset.on_policy:
        return learner.step % preset.publish_every == 0
    if replay is None:
        return learner.step % (preset.epochs * preset.minibatches) == 0
    return not replay.parts
