"""A task of two agents for tests, as PettingZoo's parallel environments are.

`left` is rewarded where its action is what `right` was shown, `right` where its action is left's
plus one. Episodes last 3 to 8 steps by their seed; those of odd length are cut off, the others end.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces


class Pair:
    """leaver: `left` ends one step before the others; fewer: `right` is shown nothing at first;
    names: others than these. Workers here refuse each. stays: an end is said by flags alone; old: a
    step returns "four" values, or no "rewards" of `right`."""

    def __init__(self, leaver=False, fewer=False, names=("left", "right"), stays=False, old=""):
        self.leaver, self.fewer, self.stays, self.old = leaver, fewer, stays, old
        self.possible_agents, self.agents = names, []
        self.random = np.random.default_rng()
        self.spaces = {
            "left": (spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(3)),
            "right": (
                spaces.Dict(
                    {
                        "shown": spaces.Box(0, 2, (1,), np.float32),
                        "age": spaces.Box(0, 9, (), np.int64),
                    }
                ),
                spaces.Discrete(4),
            ),
        }

    def observation_space(self, agent):
        return self.spaces[agent][0]

    def action_space(self, agent):
        return self.spaces[agent][1]

    def _seen(self):
        shown = np.array([self.shown], np.float32)
        left = np.array([self.length, self.age], np.float32)
        return {"left": left, "right": {"shown": shown, "age": np.int64(self.age)}}

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.age = list(self.possible_agents), 0
        self.length, self.shown = int(self.random.integers(3, 9)), int(self.random.integers(3))
        seen = self._seen()
        if self.fewer:
            del seen["right"]
        return seen, {agent: {} for agent in self.agents}

    def step(self, actions):
        rewards = {
            "left": float(actions["left"] == self.shown),
            "right": float(actions["right"] == actions["left"] + 1),
        }
        self.age, self.shown = self.age + 1, int(self.random.integers(3))
        over, cut = self.age == self.length, self.length % 2 == 1
        terminated = {agent: over and not cut for agent in self.agents}
        truncated = {agent: over and cut for agent in self.agents}
        if self.leaver and self.age == self.length - 1:
            terminated["left"] = True
        seen, infos = self._seen(), {agent: {} for agent in self.agents}
        if over and not self.stays:
            self.agents = []
        if self.old == "four":
            return seen, rewards, terminated, infos
        if self.old == "rewards":
            del rewards["right"]
        return seen, rewards, terminated, truncated, infos

    def close(self):
        """Nothing is open."""


def parallel_env(**named):
    """As PettingZoo's modules have it."""
    return Pair(**named)
