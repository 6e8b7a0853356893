"""Greedy episodes of all agents of a task together, each by its own frozen weights.

An episode's return is the mean of its agents' returns, so that one number judges what they do
together. Seeds are those of evaluate.py: episode i of a purpose starts from (purpose, seed, i), and
all episodes go on side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from learner import checkpoint
from learner.evaluate import Episodes, Sight, Verdict
from learner.judge import restored, tried
from replay_server.training.agents import agent_of, has_ended, make_task, stepped, task_of
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError
from replay_server.training.runs import Run
from replay_server.training.weights import WeightsError

LOOK_S = 1.0  # between looks for newer checkpoints


class Player:
    """One agent, by the weights of its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.tensors, self.document = checkpoint.load(path)
        self.settings, self.spec, self.learner = restored(self.tensors, self.document)
        self.seat, self.folder = self.settings.env, path.parent

    def keep(self) -> Path:
        """Its checkpoint under a name that no learner deletes."""
        return checkpoint.save(
            self.folder, f"solved-{self.learner.step}", self.tensors, self.document
        )


class Together(gymnasium.Env):
    """A task as one environment: an action is that of every agent, a reward the mean of theirs."""

    def __init__(self, env_id: str) -> None:
        self.task = make_task(env_id)
        self.agents: list[str] = list(self.task.possible_agents)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.task.reset(seed=seed)[0], {}

    def step(self, action: Mapping[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        now, rewards, *flags, _ = stepped(self.task, self.agents, action)
        mean = float(np.mean([rewards[agent] for agent in self.agents]))
        return now, mean, has_ended(self.agents, flags), False, {}

    def close(self) -> None:
        self.task.close()


class JointSight:
    """What the players see in each of `episodes` episodes, and what they do then."""

    def __init__(self, players: Mapping[str, Player], episodes: int) -> None:
        self.sights = {
            agent: Sight(player.settings, player.spec, episodes, player.learner.actions)
            for agent, player in players.items()
        }

    def see(self, observations: list[Any], at: np.ndarray, *, start: bool) -> None:
        """As Sight's; an observation is that of every agent."""
        for agent, sight in self.sights.items():
            if any(agent not in each for each in observations):
                raise EnvError(f"{sight.env} shows {agent} nothing: all agents of a task are there")
            sight.see([each[agent] for each in observations], at, start=start)

    def act(self, players: Mapping[str, Player], at: np.ndarray) -> list[dict[str, Any]]:
        """{agent: its action} in each of the episodes `at`."""
        chosen = {a: sight.act(players[a].learner.acting, at) for a, sight in self.sights.items()}
        return [{agent: actions[i] for agent, actions in chosen.items()} for i in range(len(at))]


def players_of(paths: Sequence[Path]) -> dict[str, Player]:
    """{agent: its player} of these checkpoints, one of each agent; WeightsError, and EnvError where
    they are not those of one task's agents."""
    players = [Player(path) for path in paths]
    names = sorted({task_of(player.seat) for player in players})
    if len(names) != 1:
        raise EnvError(f"checkpoints of several tasks: {', '.join(names)}")
    found = {agent_of(player.seat): player for player in players}
    with closing(make_task(names[0])) as task:
        if missing := [agent for agent in task.possible_agents if agent not in found]:
            raise EnvError(f"environment {names[0]!r}: no checkpoint of agent {missing[0]!r}")
    return found


def play(
    players: Mapping[str, Player],
    episodes: int,
    purpose: str,
    seed: int,
    first: int = 0,
    stop: Stop | None = None,
    say: Callable[[str], None] = print,
    show: Callable[[str], None] | None = None,
) -> Verdict | None:
    """Episodes first, first + 1, ... of `purpose`, as `Episodes.run`."""
    name = task_of(next(iter(players.values())).seat)
    envs: list[gymnasium.Env] = [Together(name) for _ in range(episodes)]
    sight = JointSight(players, episodes)
    with closing(Episodes(name, envs, sight, limited=False, stop=stop, say=say)) as all_of_them:
        return all_of_them.run(players, purpose, seed, first, show)


def newest_of(folders: Sequence[Path]) -> list[Path]:
    """The newest checkpoint of each agent, of these folders; [] until all have one."""
    found = [checkpoint.latest(folder / "checkpoints") for folder in folders]
    return [path for path in found if path is not None] if all(found) else []


def of_run(folder: Path, say: Callable[[str], None] = lambda line: None) -> list[Path]:
    """The checkpoint of each agent in the folder of such a run: those that solved it, where all
    have one, else the newest; [] of other folders. `say`: as checkpoint.of's."""
    places = sorted(path.parent for path in folder.glob("*/checkpoints"))
    if not places or (folder / "checkpoints").is_dir():
        return []
    if all(any(place.glob("checkpoints/solved-*.json")) for place in places):
        return [checkpoint.of(place, say) for place in places]
    found = [checkpoint.latest(place / "checkpoints", say) for place in places]
    if missing := [place for place, path in zip(places, found, strict=True) if path is None]:
        raise WeightsError(f"no whole checkpoint in {missing[0]}; train first")
    return [path for path in found if path is not None]


def watch(run: Run, env: str, mark: float, seed: int, stop: Stop) -> dict[str, Any] | None:
    """Judges the newest checkpoints in the run's folder, as long as there are newer ones, until the
    mark is reached, as judge.py does for one agent: then the verdict, the event "solved" in the
    run's metrics. None where it was asked to stop. EnvError where they are of another task."""
    with closing(make_task(env)) as task:
        folders = [run.folder / agent for agent in task.possible_agents]
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise EnvError(f"{run.folder} is no run of {env}: it has no folder {missing[0].name}")
    judged: list[Path] = []
    candidates = run.last_step  # those of earlier lives, whose episodes are not played again
    while not stop.wait(LOOK_S):
        newest = newest_of(folders)
        if not newest or newest == judged:
            continue
        try:
            players = players_of(newest)
        except WeightsError:
            if all(path.exists() for path in newest):
                raise
            continue  # its learner deleted one meanwhile: there are newer ones
        if (of := task_of(next(iter(players.values())).seat)) != task_of(env):
            raise EnvError(f"{run.folder} is a run of {of}, and --env {env} is another task")
        judged, candidates = newest, candidates + 1
        verdict = verdict_on(players, candidates, run, mark, seed, stop)
        if verdict is not None:
            run.event(**verdict)
            return verdict
    return None


def kept(players: Mapping[str, Player]) -> dict[str, str]:
    """{agent: where its checkpoint is kept} of all; OSError where not all can be, and then none."""
    found: dict[str, Path] = {}
    try:
        for agent, player in players.items():
            found[agent] = player.keep()
    except OSError:
        for path in found.values():
            checkpoint.delete(path)
        raise
    return {agent: str(path) for agent, path in found.items()}


def verdict_on(
    players: Mapping[str, Player], number: int, run: Run, mark: float, seed: int, stop: Stop
) -> dict[str, Any] | None:
    """Of candidate `number`, from 1: as judge.py's `tried`."""

    def episodes(purpose: str, count: int, first: int) -> Verdict | None:
        return play(players, count, purpose, seed, first, stop, run.say)

    return tried(mark, number - 1, episodes, lambda: kept(players), run, number)
