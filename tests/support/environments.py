"""Small environments whose every step is known: for the autoreset, edge and tabular tests.

ScriptedEnv plays a fixed list of episodes; what it stores is written down by `scripted_rows` from
the script alone, never from what the environment returned.

ChainEnv is six states in a row, for which the values of one-hot linear nets are solved exactly:

    0 (ends, +0.3) <- 1 <-> 2 <-> 3 -> 4 -> 5 (ends, +5 one time in five)

Going from 3 to 4 loses a life: `terminated` is true there and the episode goes on. A time limit
truncates. Moves slip, and the jackpot is rare, so TD errors stay large at the solution: a replay
that draws by |TD| and forgets the importance weights ends up elsewhere.
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
    """Six states; observations are the state, an int64 scalar. See the file's first lines.

    actions=2: 0 goes left and 1 right, and one move in five slips the other way. actions=1: a
    reward process, which goes right six times in ten.
    """

    STATES = 6
    LIFE_AT = 3

    def __init__(self, actions: int = 2, time_limit: int = 3) -> None:
        self.observation_space = spaces.Discrete(self.STATES)
        self.action_space = spaces.Discrete(actions)
        self.time_limit = time_limit
        self.state, self.steps = 1, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.steps = 0
        self.state = int(self.np_random.integers(1, self.STATES - 1))
        return np.int64(self.state), {"life_lost": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        right = 0.6 if self.action_space.n == 1 else (0.2, 0.8)[int(action)]
        before = self.state
        self.state += 1 if self.np_random.random() < right else -1
        reward = 0.1
        if self.state == 0:
            reward = 0.3
        elif self.state == self.STATES - 1:
            reward = 5.0 if self.np_random.random() < 0.2 else 0.0
        self.steps += 1
        terminated = self.state in (0, self.STATES - 1)
        truncated = not terminated and self.steps >= self.time_limit
        lost = before == self.LIFE_AT and self.state == self.LIFE_AT + 1
        return np.int64(self.state), reward, terminated, truncated, {"life_lost": lost}
