"""`make bench-learning`: is learning through the server slower than from a buffer in the process?

The same actor, network and learner twice, at as many environment steps and learner steps: in three
processes (`replay-server run`, plan single-learner-coarse, over UDP), and in one process with a
buffer of NumPy arrays (buffer.py), where collecting and learning take turns. Seed by seed, one
after the other. Exploration, initial priorities, n-step windows, weights and the rate of
publication are those of the preset on both sides. What differs is where the buffer is: in three
processes actor and learner go on side by side, so weights are older, and order is free.

A run's figure is the mean of its return curve over its steps (the mean return of the newest 100
training episodes, all epsilons). The difference is that of the seeds' means; its interval is that
of 2,000 draws of the seeds, pairs kept (95 %).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from actor.actor import Actor
from actor.inference import Inference
from benchmarks.harness import LEVEL, RESAMPLES, header
from benchmarks.learning.buffer import Buffer
from deploy.table import table_for
from learner.learner import Learner
from replay_server.support.toml import parsed
from replay_server.training import runfile
from replay_server.training.actions import actions_of
from replay_server.training.envs import generator, make_envs
from replay_server.training.loop import Weights, learn
from replay_server.training.networks import acting_network
from replay_server.training.presets import Preset, changed, preset
from replay_server.training.runs import read_metrics

ROOT = Path(__file__).resolve().parents[2]
BUFFER_INDEX = 1 << 21  # of the generator behind the buffer's draws
GRID, BOUND = 50, -0.10
SIDES = ("server", "process")


@dataclass(frozen=True)
class Task:
    """What is learned, over so many environment steps, from so many seeds."""

    settings: Preset
    steps: int
    seeds: int


def pixel() -> Preset:
    """The settings of tests/learning/pixel.toml."""
    given = parsed(ROOT / "tests/learning/pixel.toml")
    apart = ("solve_at", "minutes", "evaluate_every")
    given = {k: tuple(v) if k == "hidden" else v for k, v in given.items() if k not in apart}
    return changed(preset("cartpole"), **given)


def tasks() -> dict[str, Task]:
    """By name."""
    return {
        "cartpole": Task(preset("cartpole"), 40_000, 10),
        "pixel": Task(pixel(), 40_000, 5),
    }


Curve = list[tuple[int, float]]  # environment steps, mean return of the newest episodes


@dataclass(frozen=True)
class Learned:
    """What a run came to: its curve, learner steps and wall time."""

    curve: Curve
    updates: int
    seconds: float


class InProcess:
    """Actor, buffer and learner in one loop."""

    def __init__(self, settings: Preset, seed: int) -> None:
        torch.manual_seed(seed)
        self.settings = settings
        self.envs = make_envs(settings.env, settings.envs, protocol=settings.protocol)
        table = table_for(settings)
        actions = actions_of(self.envs, settings.algorithm)
        self.learner = Learner(spec=table.step, actions=actions, preset=settings, seed=seed)
        self.buffer = Buffer(
            table.step,
            table.plan,
            settings.envs,
            settings.env_steps,
            batch=settings.batch,
            alpha=settings.alpha,
            beta=self.learner.beta,
            rng=generator("train", seed, BUFFER_INDEX),
        )
        self.published: Weights = self.learner.weights()
        self.pull_at = 0
        self.actor = Actor(
            envs=self.envs,
            spec=table.step,
            inference=Inference(acting_network(settings, table.step, actions, seed)),
            preset=settings,
            number=0,
            actors=1,
            seed=seed,
            writer=self.buffer,
            newest=self.newest,
        )

    def newest(self) -> Weights:
        """Before a step: what was published since, where it is time to look."""
        if self.actor.env_steps < self.pull_at:
            return None
        self.pull_at = self.actor.env_steps + self.settings.pull_every
        found, self.published = self.published, None
        return found

    def run(self) -> Learned:
        """All of its steps."""
        curve, begin = [], time.perf_counter()
        while self.actor.env_steps < self.settings.env_steps:
            self.actor.step()
            while self.due():
                learn(self.buffer, self.learner, self.learner)
                if self.learner.step % self.settings.publish_every == 0:
                    self.published = self.learner.weights()
            mean = self.actor.collector.mean_return()
            if mean is not None:
                curve.append((self.actor.env_steps, mean))
        self.envs.close()
        return Learned(curve, self.learner.step, time.perf_counter() - begin)

    def due(self) -> bool:
        """Whether an update is, as the limiter counts: of all steps, once there are enough."""
        owed = self.actor.env_steps / self.settings.steps_per_update
        return self.buffer.items >= self.settings.min_size and owed >= self.learner.step + 1


def served(settings: Preset, seed: int, folder: Path) -> Learned:
    """The same in three processes; RuntimeError with its last lines where that ended otherwise."""
    folder.mkdir(parents=True)
    options = folder / "options.toml"
    shared = {**asdict(changed(settings, mark=None)), "minutes": 60.0, "tensorboard": False}
    runfile.write(options, "bench-learning", shared, learner={"evaluate_every": 10**9})
    command = [sys.executable, "-m", "replay_server", "run", "--config", str(options)]
    command += ["--seed", str(seed), "--run", str(folder / "run")]
    path = os.pathsep.join([str(ROOT / "tests/support"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    if done.returncode:
        raise RuntimeError("\n".join((done.stdout + done.stderr).splitlines()[-8:]))
    lines = [line for line in read_metrics(folder / "run", "actor-0") if "step" in line]
    name = "charts/episodic_return"
    curve = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    learner = [line for line in read_metrics(folder / "run", "learner") if "step" in line]
    spent = lines[-1]["time"] - lines[0]["time"] + 1.0  # the first line is of a second's steps
    return Learned(curve, learner[-1]["step"], spent)


def on_grid(curve: Curve, grid: np.ndarray) -> np.ndarray:
    """A curve's returns at these steps, between its points in straight lines."""
    steps, returns = zip(*curve, strict=True)
    return np.interp(grid, steps, returns)


def difference(curves: dict[str, np.ndarray]) -> tuple[float, float, float]:
    """(relative difference of the sides' mean returns, and its interval); curves [seeds, GRID]."""
    means = {side: curves[side].mean(1) for side in SIDES}
    rng = np.random.default_rng(0)
    count = len(means["server"])
    drawn = rng.integers(count, size=(RESAMPLES, count))
    of = {side: mean[drawn].mean(1) for side, mean in means.items()}
    found = of["server"] / of["process"] - 1.0
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return means["server"].mean() / means["process"].mean() - 1.0, low, high


def bands(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, lower, upper) of [seeds, GRID] by draws of the seeds."""
    rng = np.random.default_rng(0)
    drawn = curves[rng.integers(len(curves), size=(RESAMPLES, len(curves)))].mean(1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return curves.mean(0), low, high


def draw(path: Path, found: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]) -> None:
    """A picture with one chart for each task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, charts = pyplot.subplots(
        1, len(found), figsize=(6.2 * len(found), 4.2), layout="constrained", squeeze=False
    )
    words = {"server": "three processes, through the server", "process": "one process, its buffer"}
    for axes, (name, (grid, curves)) in zip(charts[0], found.items(), strict=True):
        for side in SIDES:
            mean, low, high = bands(curves[side])
            (line,) = axes.plot(grid, mean, label=f"{words[side]} ({len(curves[side])} seeds)")
            axes.fill_between(grid, low, high, alpha=0.25, color=line.get_color(), linewidth=0)
        axes.set_title(f"{name}: equal environment steps and learner steps")
        axes.set_xlabel("environment steps")
        axes.set_ylabel("mean return of the newest 100 training episodes")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def runs(task: Task, seeds: int, out: Path, name: str) -> Iterator[dict[str, Any]]:
    """A line for each run: both sides of a seed one after the other, the first in turn."""
    settings = changed(task.settings, env_steps=task.steps)
    for seed in range(1, seeds + 1):
        for side in SIDES if seed % 2 else SIDES[::-1]:
            folder = out / f"{name}-{seed}"
            learned = (
                InProcess(settings, seed).run()
                if side == "process"
                else served(settings, seed, folder)
            )
            line = {"task": name, "seed": seed, "side": side, "updates": learned.updates}
            yield {**line, "seconds": learned.seconds, "curve": learned.curve}


def main() -> int:
    """The program; exit code 1 where an interval reaches below the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = tasks()
    parser.add_argument("--tasks", nargs="+", choices=known, default=list(known))
    parser.add_argument("--seeds", type=int, default=0, help="Of each task; 0: 10 and 5.")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench-learning")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.append(str(ROOT / "tests/support"))  # where the pixels' environment is
    out = args.out / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True)
    facts = header(1, sorted(os.sched_getaffinity(0)))
    below, found = 0, {}
    with open(out / "learning.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")
        for name in args.tasks:
            task, lines = known[name], []
            for line in runs(task, args.seeds or task.seeds, out, name):
                file.write(json.dumps(line) + "\n")
                file.flush()
                lines.append(line)
                print(
                    f"{name}, seed {line['seed']}, {line['side']}: {line['updates']} updates in "
                    f"{line['seconds']:.0f} s, return {line['curve'][-1][1]:.2f} at the end",
                    flush=True,
                )
            grid = np.linspace(task.steps / GRID, task.steps, GRID)
            of = {s: [on_grid(x["curve"], grid) for x in lines if x["side"] == s] for s in SIDES}
            curves = {side: np.array(rows) for side, rows in of.items()}
            found[name] = grid, curves
            below += report(name, lines, curves)
    draw(out / "learning.png", found)
    print(f"picture: {out / 'learning.png'}; lines: {out / 'learning.jsonl'}")
    return 1 if below else 0


def report(name: str, lines: list[dict[str, Any]], curves: dict[str, np.ndarray]) -> bool:
    """A table of one task; whether its interval reaches below the bound."""
    print(f"\n| {name} | mean return over the run | at its end | learner steps | seconds |")
    print("|---|---|---|---|---|")
    for side in SIDES:
        mine = [line for line in lines if line["side"] == side]
        updates, seconds = ([line[key] for line in mine] for key in ("updates", "seconds"))
        print(
            f"| {side} | {curves[side].mean():.2f} | {curves[side][:, -1].mean():.2f} | "
            f"{min(updates)} to {max(updates)} | {np.median(seconds):.0f} |"
        )
    middle, low, high = difference(curves)
    print(
        f"\n{name}: through the server {middle:+.1%} of the return in process, interval "
        f"{low:+.1%} to {high:+.1%}; bound {BOUND:+.0%}: {'MISSED' if low < BOUND else 'held'}\n",
        flush=True,
    )
    return bool(low < BOUND)


if __name__ == "__main__":
    sys.exit(main())
