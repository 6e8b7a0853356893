"""Greedy episodes of all agents of a task together, each by its own frozen weights.

An episode's return is the mean of its agents' returns, so that one number judges what they do
together. Seeds are those of evaluate.py: episode i of a purpose starts from (purpose, seed, i), and
all episodes go on side by side.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from learner import checkpoint
from learner.evaluate import Sight, Verdict, expect_finite
from learner.judge import SELECT_EPISODES, VERDICT_EPISODES, restored
from replay_server.training.agents import agent_of, make_task, task_of
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError, environments
from replay_server.training.envs import seed_for
from replay_server.training.runs import Run
from replay_server.training.weights import WeightsError

STEPS_MAX = 100_000  # of an episode
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
) -> Verdict | None:
    """Episodes first, first + 1, ... of `purpose`; None where it was asked to stop before."""
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
        return _to_the_end(name, tasks, players, seen, stop)
    finally:
        for task in tasks:
            task.close()


def _to_the_end(
    name: str,
    tasks: list[Any],
    players: Mapping[str, Player],
    seen: list[Observed],
    stop: Stop | None,
) -> Verdict | None:
    """Until no agent is left in any episode."""
    returns, lengths = np.zeros(len(tasks)), np.zeros(len(tasks), np.int64)
    alive, start = np.arange(len(tasks)), True
    while len(alive):
        if stop is not None and stop.asked:
            return None
        if lengths.max() >= STEPS_MAX:
            raise EnvError(f"environment {name!r}: an episode went on after {STEPS_MAX:,} steps")
        actions = {}
        for agent, player in players.items():
            player.sight.see([each[agent] for each in seen], alive, start=start)
            actions[agent] = player.act(alive)
        seen, going, start = [], [], False
        for at, i in enumerate(alive):
            with environments(name, "step"):
                now, rewards, *_ = tasks[i].step({a: actions[a][at] for a in players})
                reward = float(np.mean([rewards[agent] for agent in players]))
            expect_finite(name, reward, "reward")
            returns[i] += reward
            lengths[i] += 1
            if tasks[i].agents:
                going.append(i)
                seen.append(now)
        alive = np.array(going, np.int64)
    return Verdict(returns, lengths)


class JointJudge:
    """Tries the agents' checkpoints as training goes on, as judge.py does for one agent: the mark
    is to be reached over 20 episodes, again over 20 others, and then 100 more are played."""

    def __init__(self, mark: float, seed: int, stop: Stop, candidates: int = 0) -> None:
        """candidates: those that the run had before, whose episodes are not played again."""
        self.mark, self.seed, self.stop, self.candidates = mark, seed, stop, candidates

    def verdict_on(self, players: Mapping[str, Player]) -> dict[str, Any] | None:
        """The mean return of one more candidate, as "select_mean"; where it reached the mark both
        times also what the summary says then, and its checkpoints are kept. None where it was asked
        to stop."""
        first = self.candidates * SELECT_EPISODES
        self.candidates += 1
        select = play(players, SELECT_EPISODES, "select", self.seed, first, self.stop)
        if select is None or select.mean < self.mark:
            return None if select is None else {"select_mean": select.mean}
        again = play(players, SELECT_EPISODES, "confirm", self.seed, first, self.stop)
        if again is None or again.mean < self.mark:
            return None if again is None else {"select_mean": select.mean}
        solved_at = time.time()
        kept = {agent: str(player.keep()) for agent, player in players.items()}
        last = play(players, VERDICT_EPISODES, "evaluate", self.seed, stop=self.stop)
        if last is None:
            return None
        return {
            "solved_at": solved_at,
            "checkpoint": kept,
            "select_mean": select.mean,
            "confirm_mean": again.mean,
            "eval_return_mean": last.mean,
            "eval_return_min": float(last.returns.min()),
            "eval_episodes": VERDICT_EPISODES,
        }


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
    mark is reached: then the verdict, the event "solved" in the run's metrics. None where it was
    asked to stop."""
    judge, judged = JointJudge(mark, seed, stop, candidates=run.last_step), []
    while not stop.wait(LOOK_S):
        newest = newest_of(run.folder, env)
        if not newest or newest == judged:
            continue
        try:
            verdict = judge.verdict_on(players_of(newest))
        except WeightsError:
            continue  # its learner deleted one meanwhile: there are newer ones
        judged = newest
        if verdict is not None:
            run.log(judge.candidates, **{"charts/greedy_return": verdict["select_mean"]})
        if verdict is not None and "solved_at" in verdict:
            run.event(event="solved", **verdict)
            return verdict
    return None
