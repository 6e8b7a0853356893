"""Observations that lie in one memory, or have another shape, from some call on: told at that call.

The environments are sound for longer than the first FRESH_CALLS steps are looked at closely.
"""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from replay_server import Client, NStep, Server, SpecError, Table, spec_from
from replay_server.writing.autoreset import FRESH_CALLS

LATE, EPISODE = 4 * FRESH_CALLS, 12
BOX = spaces.Box(-1e9, 1e9, (2,), np.float64)
names = itertools.count()


ROWS, turns = np.zeros((9, 2)), itertools.count()


def put(memory):
    at = next(turns) % len(ROWS)
    ROWS[at] = memory
    return ROWS[at]


def with_copy(leaf):
    return {"at": leaf, "goal": leaf.copy()}


# what an environment hands out, of its memory: the view, from the call LATE on
SHARED = {
    "itself": (BOX, lambda memory: memory),
    "view": (BOX, lambda memory: memory[:]),
    "buffer": (BOX, lambda memory: np.frombuffer(memory.data, np.float64)),
    "tensor": (BOX, lambda memory: torch.from_numpy(memory)),
    "of a tensor": (BOX, lambda memory: torch.from_numpy(memory).numpy()),
    "dict": (spaces.Dict({"at": BOX, "goal": BOX}), lambda memory: with_copy(memory[:])),
    "tuple": (spaces.Tuple((BOX, BOX)), lambda memory: (memory[:], memory.copy())),
}
# what looks like it, and is sound: each observation lies where no other does
APART = {
    "copy": (BOX, lambda memory: memory.copy()),
    "view of a copy": (BOX, lambda memory: memory.copy()[:]),
    "one large array": (BOX, lambda memory: put(memory)),
    "list": (BOX, lambda memory: memory.tolist()),
    "dict": (spaces.Dict({"at": BOX, "goal": BOX}), lambda memory: with_copy(memory.copy())),
}


class Late(gym.Env):
    """Its observation is (calls, step of the episode), shown in another way from LATE on."""

    action_space = spaces.Discrete(100_000)

    def __init__(self, space, show):
        self.observation_space, self.show = space, show
        self.memory, self.calls, self.at = np.zeros(2), 0, 0

    def _seen(self):
        self.calls += 1
        self.memory[:] = self.calls, self.at
        sound = type(self.observation_space), self.memory.copy()
        plain = {spaces.Dict: with_copy, spaces.Tuple: lambda leaf: (leaf, leaf.copy())}
        now = self.calls > LATE
        return self.show(self.memory) if now else plain.get(sound[0], lambda leaf: leaf)(sound[1])

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self._seen(), {}

    def step(self, action):
        self.at += 1
        return self._seen(), 1.0, self.at == EPISODE, False, {}


def played(env, steps, own=True):
    """(steps taken, the items): each action is the number in the observation it was chosen from."""
    table = Table("m", spec_from(env), NStep(1), 4096)
    with Server([table], f"loopback://late-{next(names)}") as server, Client(server.address) as c:
        writer, taken = c.writer("m", autoreset=env if own else None), 0
        seen, _ = env.reset()
        try:
            for _ in range(steps):
                first = seen["at"] if isinstance(seen, dict) else seen
                first = first[0] if isinstance(first, tuple) else first
                after, reward, terminated, truncated, infos = env.step(int(first[0]))
                writer.add_step(seen, int(first[0]), after, reward, terminated, truncated, infos)
                taken += 1
                seen = env.reset()[0] if terminated else after
            return taken, None
        except SpecError as error:
            return taken, str(error)


@pytest.mark.parametrize("own", [True, False], ids=["handed over", "named"])
@pytest.mark.parametrize("kind", list(SHARED))
def test_memory_that_is_shared_late_is_found(kind, own):
    """Given an environment whose observations lie in one memory from some call on. Expect SpecError
    at the second of these steps: at the first it may be a constant."""
    env = Late(*SHARED[kind])
    taken, told = played(env, 600, own)
    assert told is not None and "the same memory, which step writes over" in told
    assert LATE - EPISODE < taken <= LATE + 2


@pytest.mark.parametrize("kind", list(APART))
def test_observations_of_their_own_memory_are_taken(kind):
    """Given observations that are views, parts of one array, lists. Expect every step taken."""
    assert played(Late(*APART[kind]), 200) == (200, None)


WRONG = {
    "array": (BOX, lambda memory: np.zeros(3)),
    "an axis more": (BOX, lambda memory: np.zeros((1, 2))),
    "tensor": (BOX, lambda memory: torch.zeros(3)),
    "dict": (
        spaces.Dict({"at": BOX, "goal": BOX}),
        lambda memory: {"at": memory.copy(), "goal": np.zeros(3)},
    ),
}


@pytest.mark.parametrize("kind", list(WRONG))
def test_a_next_observation_of_another_shape_is_refused_late_too(kind):
    """Given a next observation that does not fit, long after the first steps. Expect SpecError that
    names it at that call, which took nothing."""
    taken, told = played(Late(*WRONG[kind]), 200)
    assert told is not None and "next_observation: column 'observation" in told
    assert "expected shape (2,)" in told and taken == LATE - 1 - LATE // (EPISODE + 1)
