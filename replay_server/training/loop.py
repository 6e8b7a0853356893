"""The training loop, once, as it reads: what runs in one process, and what every plan cuts.

Six fragments take part. Each is a parameter below; each call on one is its work; each name that one
hands to another is an edge, whose type is the name's annotation. deploy/graph.py reads the graph
from this very source (`replay-server run --explain` draws it), so that no second description of the
loop can say something else.

    environments   take actions, and answer what came of them
    inference      gives the values of observations, by the newest weights that it was handed
    actor          chooses actions, and says what is stored and how much it counts
    replay         stores steps, draws batches, takes priorities
    learner        makes gradients of batches
    weights        applies gradients, and hands out the newest weights

Where two of them lie in one process an edge is the call as it stands; where a plan parts them, one
is an object that asks the other over a network. The loop knows neither. After MSRL's fragmented
dataflow graph (Zhu et al., ATC 2023).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..batch import Batch
from ..writing.anchors import Ready
from ..writing.autoreset import Rows

Weights: TypeAlias = bytes | None  # safetensors with the learner step (weights.py); None: no newer
Observations: TypeAlias = dict[str, np.ndarray]  # {column: [R, k, *shape]}: stacks of R rows
Values: TypeAlias = np.ndarray | None  # what the network gives for them (actions.py); None of none
Actions: TypeAlias = np.ndarray  # [B, *shape], one for each environment
Priorities: TypeAlias = np.ndarray | None  # float64, one for each item; None: all count alike
Gradients: TypeAlias = Any  # the algorithm's: a tensor for each parameter, and what it reports


class Outcome(NamedTuple):
    """What a step of B environments returned, as Gymnasium's vectors do."""

    observation: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: dict[str, Any]


def renew(inference: Any, actor: Any, newest: Weights) -> None:
    """Newer weights, if there are any; the priorities of what is held follow them."""
    if inference.load(newest):
        held: Observations = actor.held()
        renewed: Values = inference.values(held)
        actor.renew(renewed)


def collect(environments: Any, inference: Any, actor: Any, replay: Any, weights: Any) -> int:
    """One step of every environment; returns how many rows were stored."""
    newest: Weights = weights.newest()
    renew(inference, actor, newest)
    observations: Observations = actor.observations()
    values: Values = inference.values(observations)
    actions: Actions = actor.choose(values)
    outcome: Outcome = environments.step(actions)
    rows: Rows = actor.rows(outcome)
    finals: Observations = actor.finals(rows)
    closing: Values = inference.values(finals)
    ready: Ready = replay.append(rows)
    items: Ready = actor.items(ready)
    if len(items):
        priorities: Priorities = actor.priorities(items, closing)
        replay.create(items.streams, items.steps, priorities)
    return actor.advance(rows, outcome)


def learn(replay: Any, learner: Any, weights: Any) -> bool:
    """One update, if a batch is there; whether it was."""
    batch: Batch | None = replay.sample()
    if batch is None:
        return False
    gradients: Gradients = learner.gradients(batch)
    newest: Weights = weights.apply(gradients)
    learner.load(newest)
    priorities: Priorities = learner.priorities(gradients)
    replay.update(batch, priorities)
    return True
