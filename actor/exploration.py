"""How actions are chosen from a network's values (training/actions.py), so that others are tried.

dqn: Ape-X's ladder of epsilons over all environments of all actors.

    eps_i = 0.4^(1 + 7 i / (N - 1)),  i = 0 .. N-1        (Horgan et al. 2018; N = 1 gives 0.4)

N counts environments, not actors: with one actor of 8 environments, all 8 epsilons are there.

sac, ppo: the policy is random by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from replay_server.training.actions import LOG_STD_LEAST, LOG_STD_MOST, Actions, Bounds, greedy
from replay_server.training.presets import LOG_PROB, Preset


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


class Policy(ABC):
    """Called with values [B, ...] it gives B actions; what comes beside them."""

    @abstractmethod
    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The actions."""

    def extras(self) -> dict[str, np.ndarray] | None:
        """{column: [B]} of what is stored beside the newest actions, if anything is."""
        return None

    def scalars(self) -> dict[str, float]:
        """What the actor logs of it."""
        return {}


class EpsilonGreedy(Policy):
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
        return np.where(explore, anything, greedy(q, self.actions)).astype(np.int64)

    def scalars(self) -> dict[str, float]:
        """Their mean epsilon."""
        return {"charts/epsilon": float(self.epsilon.mean())}


class SquashedGaussian(Policy):
    """Draws actions of a box as the values say: a normal distribution, brought to -1 to 1 by tanh,
    then stretched. As many numbers a call as the actions have."""

    def __init__(self, actions: Bounds, rng: np.random.Generator) -> None:
        self.actions, self.rng = actions, rng

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """values [B, 2 D] -> actions of the box, [B, *shape]."""
        mean, log_std = np.split(values, 2, axis=1)
        noise = self.rng.standard_normal(mean.shape)
        unit = np.tanh(mean + np.exp(log_std.clip(LOG_STD_LEAST, LOG_STD_MOST)) * noise)
        return self.actions.stretched(unit)


class Categorical(Policy):
    """Draws one of A actions as the values say, which are logits; one number an environment and
    call. The logarithm of its probability is stored beside it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """values [B, A] -> actions int64 [B]."""
        logits = values.astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        through = np.exp(log_probs).cumsum(1)  # [B, A]
        drawn = self.rng.random((len(values), 1)) * through[:, -1:]  # below the last, as rounded
        actions = (through <= drawn).sum(1).astype(np.int64)
        self.log_probs = np.take_along_axis(log_probs, actions[:, None], 1)[:, 0]
        return actions

    def extras(self) -> dict[str, np.ndarray]:
        """{column: float32 [B]}, of the newest actions."""
        return {LOG_PROB: self.log_probs.astype(np.float32)}


def policy_of(
    preset: Preset,
    actions: Actions,
    rng: np.random.Generator,
    *,
    number: int,
    actors: int,
    count: int,
    part: slice = slice(None),
) -> Policy:
    """That of actor `number` of `actors`, with `count` environments; or of a part of these."""
    if isinstance(actions, Bounds):
        return SquashedGaussian(actions, rng)
    if preset.on_policy:
        return Categorical(rng)
    ladder = (preset.epsilon_base, preset.epsilon_power)
    return EpsilonGreedy(epsilons_of(number, actors, count, *ladder)[part], actions, rng)
