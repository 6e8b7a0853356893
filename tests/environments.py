"""Small environments whose every step is known: for the autoreset, edge and tabular tests.

ScriptedEnv plays a fixed list of episodes; what it stores is written down by `scripted_rows` from
the script alone, never from what the environment returned.

ChainEnv is six states in a row. Action 1 goes right, action 0 left; the right end pays and ends the
episode, the left end pays a little and ends it too; the middle costs a life on the way right:
`terminated` is true there (the return is cut) while the episode goes on. A time limit truncates.
Its `transitions` are a table, so that value iteration needs no environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


@dataclass(frozen=True)
class Episode:
    """One scripted episode: `length` steps, its ending, and the steps that lose a life."""

    length: int
    ending: str  # "terminated" or "truncated"
    lives_lost: tuple[int, ...] = ()


SCRIPT = (
    Episode(3, "terminated"),
    Episode(1, "truncated"),
    Episode(5, "truncated", lives_lost=(1, 3)),
    Episode(1, "terminated"),
    Episode(4, "terminated", lives_lost=(0,)),
    Episode(2, "truncated", lives_lost=(1,)),
)


def frame(who: int, episode: int, step: int) -> np.ndarray:
    """The observation of environment `who`; no two are equal, none is zero. float32 [3]."""
    return np.array([who + 1, episode + 1, step + 1], np.float32)


class ScriptedEnv(gymnasium.Env):
    """Plays `script` over and over from episode `who` on; info["life_lost"] at every step."""

    def __init__(self, who: int = 0, script: tuple[Episode, ...] = SCRIPT) -> None:
        self.observation_space = spaces.Box(0, 1e6, (3,), np.float32)
        self.action_space = spaces.Discrete(1000)
        self.who, self.script = who, script
        self.episode, self.steps = -1, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        return frame(self.who, self.episode, 0), {"life_lost": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        played = self.script[(self.who + self.episode) % len(self.script)]
        life_lost = self.steps in played.lives_lost
        reward = 100.0 * self.episode + self.steps
        self.steps += 1
        over = self.steps == played.length
        return (
            frame(self.who, self.episode, self.steps),
            reward,
            over and played.ending == "terminated",
            over and played.ending == "truncated",
            {"life_lost": life_lost},
        )


def scripted_rows(who: int, episodes: int, script: tuple[Episode, ...] = SCRIPT) -> list[tuple]:
    """What a correct writer stores of the first `episodes` episodes of environment `who`.

    Each row is (observation, action, reward, terminated, end): `end` is "", or on a closing row how
    the episode ended. The action of step s in episode e is 10 e + s, see `scripted_action`.
    """
    rows = []
    for e in range(episodes):
        played = script[(who + e) % len(script)]
        for s in range(played.length):
            last = s == played.length - 1
            cuts = (last and played.ending == "terminated") or s in played.lives_lost
            rows.append((tuple(frame(who, e, s)), scripted_action(e, s), 100.0 * e + s, cuts, ""))
        rows.append((tuple(frame(who, e, played.length)), 0, 0.0, False, played.ending))
    return rows


def scripted_action(episode: int, step: int) -> int:
    """The action the tests take: a function of the place, so that modes can be compared."""
    return 10 * episode + step


class ChainEnv(gymnasium.Env):
    """Six states in a row; see the file's first lines. Observations are the state, int64 scalar."""

    STATES, ACTIONS = 6, 2
    START = 2
    LIFE_AT = 3

    def __init__(self, time_limit: int = 20, start: int | None = None) -> None:
        self.observation_space = spaces.Discrete(self.STATES)
        self.action_space = spaces.Discrete(self.ACTIONS)
        self.time_limit, self.start = time_limit, start
        self.state, self.steps = self.START, 0

    @classmethod
    def transitions(cls) -> dict[tuple[int, int], tuple[int, float, bool, bool]]:
        """(state, action) -> (next state, reward, terminated, life lost). States 0 and 5 end it."""
        table = {}
        for state in range(1, cls.STATES - 1):
            for action in range(cls.ACTIONS):
                after = state + (1 if action == 1 else -1)
                reward = {0: 0.3, cls.STATES - 1: 1.0}.get(after, -0.05)
                life_lost = state == cls.LIFE_AT and action == 1
                table[state, action] = (after, reward, after in (0, cls.STATES - 1), life_lost)
        return table

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.steps = 0
        inner = self.np_random.integers(1, self.STATES - 1)
        self.state = int(inner) if self.start is None else self.start
        return np.int64(self.state), {"life_lost": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        after, reward, terminated, life_lost = self.transitions()[self.state, int(action)]
        self.state = after
        self.steps += 1
        truncated = not terminated and self.steps >= self.time_limit
        return np.int64(after), reward, terminated, truncated, {"life_lost": life_lost}
