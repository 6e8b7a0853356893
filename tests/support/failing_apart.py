"""Environments that fail in the process that steps them, and not in their owner's."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import threading
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Missing(gymnasium.Env):
    """Misses a file as it steps."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        raise FileNotFoundError("level.dat")


class Ending(Missing):
    """Ends its process as it is made."""

    def __init__(self):
        if multiprocessing.parent_process() is not None:
            os._exit(9)


class Program(Missing):
    """Raises what is made of two arguments."""

    def step(self, action):
        raise subprocess.CalledProcessError(3, "simulator")


class Locked(Missing):
    """Raises what cannot be pickled."""

    def step(self, action):
        error = RuntimeError("simulator is gone")
        error.lock = threading.Lock()
        raise error


class Unclosing(Missing):
    """Never closes, in a process of its own."""

    def close(self):
        while multiprocessing.parent_process() is not None:
            time.sleep(1.0)


class Once(Missing):
    """Raises in its first step, and is of no use behind that."""

    def step(self, action):
        raise ZeroDivisionError("of a reward")


class Hanging(Missing):
    """Never ends its step."""

    def step(self, action):
        while True:
            time.sleep(1.0)


gymnasium.register("Missing-v0", Missing, disable_env_checker=True)
gymnasium.register("Ending-v0", Ending, disable_env_checker=True)
gymnasium.register("Once-v0", Once, disable_env_checker=True)
gymnasium.register("Hanging-v0", Hanging, disable_env_checker=True)
for kind in (Program, Locked, Unclosing):
    gymnasium.register(f"{kind.__name__}-v0", kind, disable_env_checker=True)
