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

import numpy as np

from learner import checkpoint
from learner.evaluate import STEPS_MAX, Sight, Verdict, expect_finite
from learner.judge import SELECT_EPISODES, VERDICT_EPISODES, restored, tried
from replay_server.training.agents import agent_of, has_ended, make_task, stepped, task_of
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError, environments
from replay_server.training.envs import seed_for
from replay_server.training.runs import Run
from replay_server.training.weights import WeightsError

LOOK_S = 1.0  # between looks for newer checkpoints
Observed = Mapping[str, Any]  # by agent


class Player:
    """One agent, by the weights of its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.tensors, self.document = checkpoint.load(path)
        self.settings, self.spec, self.learner = restored(self.tensors, self.document)
        self.seat, self.folder = self.settings.env, path.parent

    def begin(self, episodes: int) -> None:
        """So many are to be played."""
        self.sight = Sight(self.settings, self.spec, episodes, self.learner.actions)

    def act(self, at: np.ndarray) -> np.ndarray:
        """What it does in the episodes `at`."""
        return self.sight.act(self.learner.acting, at)

    def keep(self) -> Path:
        """Its checkpoint under a name that no learner deletes."""
        named = {"tensors", "sha256"}
        document = {name: value for name, value in self.document.items() if name not in named}
        return checkpoint.save(self.folder, f"solved-{self.learner.step}", self.tensors, document)


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
) -> Verdict | None:
    """Episodes first, first + 1, ... of `purpose`; None where it was asked to stop before. `say`
    gets what they were cut off at."""
    name = task_of(next(iter(players.values())).seat)
    tasks = [make_task(name) for _ in range(episodes)]
    for player in players.values():
        player.begin(episodes)
    try:
        with environments(name, "reset"):
            seen = [
                task.reset(seed=seed_for(purpose, seed, first + i))[0]
                for i, task in enumerate(tasks)
            ]
        return _to_the_end(name, tasks, players, seen, stop, say)
    finally:
        for task in tasks:
            task.close()


def _to_the_end(
    name: str,
    tasks: list[Any],
    players: Mapping[str, Player],
    seen: list[Observed],
    stop: Stop | None,
    say: Callable[[str], None],
) -> Verdict | None:
    """Until all episodes ended, or took STEPS_MAX."""
    returns, lengths = np.zeros(len(tasks)), np.zeros(len(tasks), np.int64)
    alive, start = np.arange(len(tasks)), True
    while len(alive):
        if stop is not None and stop.asked:
            return None
        if lengths.max() >= STEPS_MAX:
            say(
                f"environment {name!r}: {len(alive)} of {len(tasks)} greedy episodes went on after "
                f"{STEPS_MAX:,} steps: they are judged as if they had ended there; give it a limit"
            )
            break
        actions = {}
        for agent, player in players.items():
            player.sight.see([each[agent] for each in seen], alive, start=start)
            actions[agent] = player.act(alive)
        seen, going, start = [], [], False
        for at, i in enumerate(alive):
            with environments(name, "step"):
                chosen = {a: actions[a][at] for a in players}
                now, rewards, *flags, _ = stepped(tasks[i], list(players), chosen)
                over = has_ended(list(players), flags)
                reward = float(np.mean([rewards[agent] for agent in players]))
            expect_finite(name, reward, "reward")
            returns[i] += reward
            lengths[i] += 1
            if not over:
                going.append(i)
                seen.append(now)
        alive = np.array(going, np.int64)
    return Verdict(returns, lengths)


def newest_of(folder: Path, env: str) -> list[Path]:
    """The newest checkpoint of each agent of a task, below RUN/AGENT; [] until all have one."""
    with closing(make_task(env)) as task:
        agents = list(task.possible_agents)
    found = [checkpoint.latest(folder / agent / "checkpoints") for agent in agents]
    return [path for path in found if path is not None] if all(found) else []


def of_run(folder: Path) -> list[Path]:
    """The checkpoint of each agent in the folder of such a run, solved ones first; [] in others."""
    if not folder.is_dir() or (folder / "checkpoints").is_dir():
        return []
    return [checkpoint.of(path.parent) for path in sorted(folder.glob("*/checkpoints"))]


def watch(run: Run, env: str, mark: float, seed: int, stop: Stop) -> dict[str, Any] | None:
    """Judges the newest checkpoints in the run's folder, as long as there are newer ones, until the
    mark is reached, as judge.py does for one agent: then the verdict, the event "solved" in the
    run's metrics. None where it was asked to stop. EnvError where they are of another task."""
    with closing(make_task(env)) as task:
        missing = [agent for agent in task.possible_agents if not (run.folder / agent).is_dir()]
    if missing:
        raise EnvError(f"{run.folder} is no run of {env}: it has no folder {missing[0]}")
    judged: list[Path] = []
    candidates = run.last_step  # those of earlier lives, whose episodes are not played again
    while not stop.wait(LOOK_S):
        newest = newest_of(run.folder, env)
        if not newest or newest == judged:
            continue
        try:
            players = players_of(newest)
        except WeightsError:
            continue  # its learner deleted one meanwhile: there are newer ones
        if (of := task_of(next(iter(players.values())).seat)) != task_of(env):
            raise EnvError(f"{run.folder} is a run of {of}, and --env {env} is another task")
        judged, candidates = newest, candidates + 1
        verdict = verdict_on(players, candidates, run, mark, seed, stop)
        if verdict is not None:
            run.event(**verdict)
            return verdict
    return None


def verdict_on(
    players: Mapping[str, Player], number: int, run: Run, mark: float, seed: int, stop: Stop
) -> dict[str, Any] | None:
    """Of candidate `number`, from 1: as judge.py's `tried`."""

    def episodes(purpose: str) -> Verdict | None:
        first = (number - 1) * SELECT_EPISODES
        return play(players, SELECT_EPISODES, purpose, seed, first, stop, run.say)

    def keep() -> dict[str, str]:
        return {agent: str(player.keep()) for agent, player in players.items()}

    def last_of(kept: dict[str, str]) -> Verdict | None:
        return play(players, VERDICT_EPISODES, "evaluate", seed, 0, stop, run.say)

    return tried(mark, episodes, keep, last_of, run, number)
