"""What is asked of a worker that steps environments, and what it answers (asking.py), as bytes.

    "h"   nothing                  -> JSON: env, protocol, count
    "r"   seeds int64 [B], or none -> observation
    "s"   actions [B, *shape]      -> observation, reward, terminated, truncated, info/NAME
                                   -> "!" and why not; "?" where there are no such episodes (any
                                      more), so that the asker begins new ones

Bodies are safetensors: names, dtypes, shapes and bytes, no code. An observation is one array named
"observation", or its leaves as "observation/a/b". Of infos, arrays of one number or flag for each
environment travel (`life_lost` among them); no other part is read by an actor in next-step mode,
which is the mode of every vector here. Of a task of several agents each has such a worker's view
of its own: the asker's name begins with "AGENT/" (seats.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from gymnasium import spaces
from safetensors import SafetensorError

from replay_server.training.env_errors import EnvError
from replay_server.training.loop import Outcome

HELLO, RESET, STEP, REFUSED, LOST = b"hrs!?"
INFO = "info/"
FLAGS = ("terminated", "truncated")


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Named arrays as a body."""
    return safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in arrays.items()})


def unpacked(body: bytes) -> dict[str, np.ndarray]:
    """The arrays of a body; EnvError where it is none."""
    try:
        return safetensors.numpy.load(body)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise EnvError(f"a body that is no safetensors: {error}") from error


def leaves_of(observation: Any, name: str = "observation") -> dict[str, np.ndarray]:
    """{name: array} of a batch of observations, however its space nests them."""
    if isinstance(observation, Mapping):
        parts = observation.items()
    elif isinstance(observation, tuple):
        parts = enumerate(observation)
    else:
        return {name: np.asarray(observation)}
    return {k: a for key, part in parts for k, a in leaves_of(part, f"{name}/{key}").items()}


def observation_of(
    space: spaces.Space, arrays: Mapping[str, np.ndarray], count: int, name: str = "observation"
) -> Any:
    """The inverse, for `count` environments of this space; EnvError where a leaf is not its own."""
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
        return {k: observation_of(s, arrays, count, f"{name}/{k}") for k, s in parts}
    if isinstance(space, spaces.Tuple):
        numbered = enumerate(space.spaces)
        return tuple(observation_of(s, arrays, count, f"{name}/{i}") for i, s in numbered)
    found, shape = arrays.get(name), (count, *(space.shape or ()))
    if found is None or found.shape != shape:
        what = "nothing" if found is None else list(found.shape)
        raise EnvError(f"{name!r}: expected {list(shape)}, got {what}")
    return found


def asker_of(agent: str) -> bytes:
    """A name for who asks for this agent, which nobody else has."""
    return f"{agent}/".encode() + os.urandom(16)


def agent_in(who: bytes) -> str:
    """Whose asker it is; "" of one that asks for no agent."""
    agent, slash, _ = who.partition(b"/")
    return agent.decode(errors="replace") if slash else ""


def seeds_in(body: bytes, count: int) -> list[int] | None:
    """Those that new episodes begin with, if the asker says any; EnvError."""
    seeds = unpacked(body).get("seeds") if body else None
    if seeds is None:
        return None
    if seeds.shape != (count,) or seeds.dtype.kind not in "iu":
        raise EnvError(f"seeds {seeds.dtype} {list(seeds.shape)}; expected int [{count}]")
    return seeds.tolist()


def actions_in(body: bytes, space: spaces.Space, count: int) -> np.ndarray:
    """The actions of a step, each within its space; EnvError, or TypeError for another kind of
    number."""
    actions, shape = unpacked(body).get("actions"), (count, *(space.shape or ()))
    if actions is None or actions.shape != shape:
        given = "none" if actions is None else list(actions.shape)
        raise EnvError(f"actions {given}; expected [{count}, *{list(space.shape or ())}]")
    actions = actions.astype(space.dtype, casting="same_kind", copy=False)
    for action in actions:
        if not space.contains(action):
            raise EnvError(f"action {action!r} is not in {space}")
    return actions


def outcome_body(outcome: Outcome, count: int) -> bytes:
    """What a worker answers to a step."""
    arrays = leaves_of(outcome.observation)
    arrays["reward"] = np.asarray(outcome.reward, np.float64)
    for name, flags in zip(FLAGS, (outcome.terminated, outcome.truncated), strict=True):
        arrays[name] = np.asarray(flags, np.bool_)
    for name, value in outcome.infos.items():
        if isinstance(value, np.ndarray) and value.shape == (count,) and value.dtype.kind in "biuf":
            arrays[INFO + name] = value
    return packed(arrays)


def outcome_of(body: bytes, space: spaces.Space, count: int) -> Outcome:
    """The inverse; EnvError where something is missing or of another shape."""
    arrays = unpacked(body)
    for name in ("reward", *FLAGS):
        if name not in arrays or arrays[name].shape != (count,):
            raise EnvError(f"{name!r}: expected [{count}]")
    infos = {k.removeprefix(INFO): a for k, a in arrays.items() if k.startswith(INFO)}
    observation = observation_of(space, arrays, count)
    return Outcome(observation, arrays["reward"], *(arrays[name] for name in FLAGS), infos)
