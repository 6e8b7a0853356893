"""Tasks of several agents: PettingZoo's parallel environments, and the seat of one agent in them.

    agents:MODULE                    MODULE.parallel_env(), of which all agents act at every step
    agents:MODULE?KEY=VALUE&...      with these arguments; each VALUE is JSON, Python's True, False
                                     or None, or else a word
    agents:...#NAME                  the seat of one agent: what its programs say with --env

A seat has the spaces of its agent, from which come its table's columns and its networks. It is not
stepped: a task is stepped by a worker (actor/seats.py), once all its agents have said what they do.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import gymnasium

from ..support.arguments import nearest
from .env_errors import EnvError, raised

PREFIX = "agents:"
PYTHONS = {"True": True, "False": False, "None": None}
TAKEN = {"checkpoints", "tensorboard"}  # folders that a run has beside its agents'
NAME = re.compile(r"[\w-]+", re.ASCII)
INSTALL = "pip install 'replay-server[agents]'"


def is_joint(env_id: str) -> bool:
    """Whether this is the id of a task of several agents, or of a seat in one."""
    return env_id.startswith(PREFIX)


def task_of(env_id: str) -> str:
    """The id without the seat."""
    return env_id.partition("#")[0]


def agent_of(env_id: str) -> str:
    """Whose seat it is; "" of a task."""
    return env_id.partition("#")[2]


def seats_of(task: Any, env_id: str) -> list[str]:
    """The ids of all seats of a task, in its order of agents."""
    return [f"{task_of(env_id)}#{agent}" for agent in task.possible_agents]


def make_task(env_id: str, render_mode: str | None = None) -> Any:
    """One task, a pettingzoo.ParallelEnv; EnvError where there is none of this id."""
    name, _, query = task_of(env_id).removeprefix(PREFIX).partition("?")
    named = {key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}
    if render_mode is not None:
        named["render_mode"] = render_mode
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise EnvError(
            f"environment {env_id!r}: no module to import ({error}); {INSTALL} has those of "
            "PettingZoo's particles, mpe2.simple_speaker_listener_v4 among them"
        ) from error
    except Exception as error:  # what a stranger's module does; ValueError: an empty name
        raise EnvError(f"environment {env_id!r}: {raised(name or 'no name', error)}") from error
    if not hasattr(module, "parallel_env"):
        raise EnvError(
            f"environment {env_id!r}: module {name} has no parallel_env, as PettingZoo's"
        )
    try:
        task = module.parallel_env(**named)
    except Exception as error:
        raise EnvError(f"environment {env_id!r}: {raised('parallel_env', error)}") from error
    agents = list(task.possible_agents)
    named = all(NAME.fullmatch(agent) and agent not in TAKEN for agent in agents)
    if not agents or len(set(agents)) < len(agents) or not named:
        raise EnvError(
            f"environment {env_id!r} has agents {agents}: each needs a name of its own of letters, "
            f"digits, _ and -, since their folders have it, and not {' or '.join(sorted(TAKEN))}"
        )
    return task


def _value(text: str) -> Any:
    if text in PYTHONS:
        return PYTHONS[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


def stepped(task: Any, agents: Sequence[str], actions: Mapping[str, Any]) -> tuple[Any, ...]:
    """(observations, rewards, terminations, truncations, infos) of a step, by agent; EnvError where
    the task gives something else, or nothing of an agent."""
    found = task.step(actions)
    if not isinstance(found, tuple) or len(found) != 5:
        count = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
        raise EnvError(
            f"step returned {count}: PettingZoo's returns observations, rewards, terminations, "
            "truncations and infos"
        )
    for name, part in zip(("rewards", "terminations", "truncations"), found[1:4], strict=True):
        if missing := [agent for agent in agents if agent not in part]:
            raise EnvError(
                f"step returned no {name} of {missing[0]}: all agents of a task are there"
            )
    return found


def has_ended(agents: Sequence[str], flags: Sequence[Mapping[str, bool]]) -> bool:
    """Whether a step ended the episode, by the flags of all agents; EnvError where it ended for
    some of them alone: their seats would have nothing to store until the others end."""
    over = [any(flag[agent] for flag in flags) for agent in agents]
    if any(over) and not all(over):
        gone = [agent for agent, ended in zip(agents, over, strict=True) if ended]
        raise EnvError(
            f"{', '.join(gone)} ended before the others, and all agents of a task end together "
            "here: let it stay, without reward (SuperSuit's black_death does)"
        )
    return any(over)


class Seat(gymnasium.Env):
    """The spaces of one agent; EnvError where it is to be played by itself."""

    def __init__(self, env_id: str, space: Any, actions: Any) -> None:
        self.env_id, self.observation_space, self.action_space = env_id, space, actions

    def reset(self, **named: Any) -> Any:
        raise EnvError(
            f"{self.env_id} is one seat of a task, which is stepped when all agents act: "
            f"`replay-server run --env '{task_of(self.env_id)}'` has all of them, and workers that "
            "their actors ask (--environments); `replay-server learner evaluate` takes the folder "
            "of the whole run"
        )

    def step(self, action: Any) -> Any:
        return self.reset()


def make_seat(env_id: str) -> Seat:
    """The seat that this id names; EnvError where the task has none of that name."""
    task = make_task(env_id)
    try:
        agents, agent = list(task.possible_agents), agent_of(env_id)
        if agent not in agents:
            said = (
                f"no agent {agent!r}; the nearest is {nearest(agent, agents)!r}"
                if agent
                else (f"say whose seat: {env_id}#{agents[0]}, for example")
            )
            raise EnvError(f"environment {env_id!r} has agents {', '.join(agents)}: {said}")
        return Seat(env_id, task.observation_space(agent), task.action_space(agent))
    finally:
        task.close()
