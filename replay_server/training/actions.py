"""What an algorithm chooses from: so many actions, or a box of numbers; and what it finds best.

The values that a network gives for observations say it (loop.py):

    dqn   [B, A]: what each of A actions is worth
    ppo   [B, A]: logits, of which softmax makes the probability of each action
    sac   [B, 2 D]: D means, then D logarithms of standard deviations, of a number each that tanh
          brings into -1 to 1; the box stretches these (Haarnoja et al. 2018, appendix C)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from .presets import TRAITS

LOG_STD_LEAST, LOG_STD_MOST = -20.0, 2.0
WIDTH_MOST = 1e9  # wider bounds are none that anybody chose


@dataclass(frozen=True, eq=False)
class Bounds:
    """A box of actions: `low` and `high`, [*shape] each, of its own float dtype, finite."""

    low: np.ndarray
    high: np.ndarray

    @property
    def size(self) -> int:
        """Numbers of an action, D."""
        return prod(self.low.shape)

    def stretched(self, unit: np.ndarray) -> np.ndarray:
        """Numbers from -1 to 1, [B, D], as actions of the box, of its dtype, [B, *shape]."""
        share = (unit.reshape(-1, *self.low.shape).astype(np.float64) + 1.0) / 2.0
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        actions = (low + share * (high - low)).astype(self.low.dtype)
        return actions.clip(self.low, self.high)  # in its own dtype: none lies outside by rounding


Actions: TypeAlias = int | Bounds


def actions_of(env: gymnasium.Env | VectorEnv, algorithm: str) -> Actions:
    """What `algorithm` chooses from in this environment; ValueError where it cannot play it."""
    space = getattr(env, "single_action_space", env.action_space)
    if TRAITS[algorithm].values == "gaussian":
        return bounds_of(space)
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        hint = "; --preset pendulum takes them from a Box" * isinstance(space, spaces.Box)
        name = algorithm.upper()
        raise ValueError(f"{name} needs a Discrete action space from 0, got {space}{hint}")
    return int(space.n)


def bounds_of(space: spaces.Space) -> Bounds:
    """Those of a Box that soft actor-critic can choose from; ValueError where it cannot."""
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        hint = "; --preset cartpole takes them" if isinstance(space, spaces.Discrete) else ""
        raise ValueError(f"SAC needs a Box of floating-point actions, got {space}{hint}")
    low, high = space.low, space.high
    with np.errstate(over="ignore", invalid="ignore"):
        wide = ~(high - low <= WIDTH_MOST)  # so that of NaN, too
    if wide.any():
        raise ValueError(
            f"SAC stretches its actions to the bounds of a Box, {WIDTH_MOST:g} apart at most, got "
            f"{space}: give the environment the bounds that matter "
            "(gymnasium.wrappers.TransformAction, with an action_space of its own)"
        )
    if not (low < high).all():
        raise ValueError(
            f"SAC needs a Box in which every action has a choice, got {space}: leave out those "
            "whose bounds are equal (gymnasium.wrappers.TransformAction)"
        )
    return Bounds(low, high)


def greedy(values: np.ndarray, actions: Actions) -> np.ndarray:
    """The best action by `values`, as the environment takes it: int64 [B], the first of equally
    good ones; or [B, *shape] of the box, the means."""
    if isinstance(actions, Bounds):
        return actions.stretched(np.tanh(values[:, : actions.size]))
    return values.argmax(1).astype(np.int64)
