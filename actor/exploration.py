"""Ape-X exploration: a ladder of epsilons over all environments of all actors.

    eps_i = 0.4^(1 + 7 i / (N - 1)),  i = 0 .. N-1        (Horgan et al. 2018; N = 1 gives 0.4)

N counts environments, not actors: with one actor of 8 environments, all 8 epsilons are there.
"""

from __future__ import annotations

import numpy as np


def epsilons(total: int, base: float = 0.4, power: float = 7.0) -> np.ndarray:
    """The ladder, float64 [total], falling."""
    if total < 1:
        raise ValueError(f"{total} environments; expected at least 1")
    if total == 1:
        return np.array([base])
    return base ** (1.0 + power * np.arange(total) / (total - 1))


def epsilons_of(
    actor: int, actors: int, envs: int, base: float = 0.4, power: float = 7.0
) -> np.ndarray:
    """The epsilons of actor number `actor` of `actors` with `envs` environments each, [envs]."""
    if not 0 <= actor < actors:
        raise ValueError(f"actor {actor} out of {actors}")
    return epsilons(actors * envs, base, power)[actor * envs : (actor + 1) * envs]


class EpsilonGreedy:
    """Chooses actions; draws two numbers an environment and call, whatever they are used for.

    So the generator's course depends on the number of calls alone, not on the network.
    """

    def __init__(self, epsilon: np.ndarray, actions: int, rng: np.random.Generator) -> None:
        self.epsilon = np.asarray(epsilon, np.float64)
        self.actions = actions
        self.rng = rng

    def __call__(self, q: np.ndarray) -> np.ndarray:
        """q [B, A] -> actions int64 [B]; the first of equally good ones."""
        explore = self.rng.random(len(self.epsilon)) < self.epsilon
        anything = self.rng.integers(self.actions, size=len(self.epsilon))
        return np.where(explore, anything, q.argmax(1)).astype(np.int64)
