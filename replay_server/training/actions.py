"""What an algorithm chooses from: so many actions, or a box of numbers; and what it finds best.

The values that a network gives for observations say it (loop.py):

    dqn   [B, A]: what each of A actions is worth
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

LOG_STD_LEAST, LOG_STD_MOST = -20.0, 2.0


@dataclass(frozen=True, eq=False)
class Bounds:
    """A box of actions: `low` and `high`, float32 [*shape] each, finite."""

    low: np.ndarray
    high: np.ndarray

    @property
    def size(self) -> int:
        """Numbers of an action, D."""
        return prod(self.low.shape)

    def stretched(self, unit: np.ndarray) -> np.ndarray:
        """Numbers from -1 to 1, [B, D], as actions of the box, float32 [B, *shape]."""
        share = (unit.reshape(-1, *self.low.shape) + 1.0) / 2.0
        return (self.low + share * (self.high - self.low)).clip(self.low, self.high)


Actions: TypeAlias = int | Bounds


def actions_of(env: gymnasium.Env | VectorEnv, algorithm: str) -> Actions:
    """What `algorithm` chooses from in this environment; ValueError where it cannot play it."""
    space = getattr(env, "single_action_space", env.action_space)
    if algorithm == "sac":
        return _bounds_of(space)
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        hint = "; --preset pendulum takes them from a Box" if isinstance(space, spaces.Box) else ""
        raise ValueError(f"DQN needs a Discrete action space from 0, got {space}{hint}")
    return int(space.n)


def _bounds_of(space: spaces.Space) -> Bounds:
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        hint = "; --algorithm dqn takes them" if isinstance(space, spaces.Discrete) else ""
        raise ValueError(f"SAC needs a Box of floating-point actions, got {space}{hint}")
    low, high = (np.asarray(edge, np.float32) for edge in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ValueError(
            f"SAC needs a Box with finite bounds, got {space}: wrap the environment in "
            "gymnasium.wrappers.RescaleAction"
        )
    return Bounds(low, high)


def greedy(values: np.ndarray, actions: Actions) -> np.ndarray:
    """The best action by `values`, as the environment takes it: int64 [B], the first of equally
    good ones; or float32 [B, *shape], the means."""
    if isinstance(actions, Bounds):
        return actions.stretched(np.tanh(values[:, : actions.size])).astype(np.float32)
    return values.argmax(1).astype(np.int64)
