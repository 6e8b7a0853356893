"""`python -m learner train` pulls prioritized batches and learns; `evaluate` judges a checkpoint.

    python -m learner train --server udp://127.0.0.1:7400 --run runs/first
    python -m learner train --resume runs/first          goes on from its newest checkpoint
    python -m learner evaluate runs/first/checkpoints/solved-12000.json --episodes 100 --seed 7

Training ends when it is solved (--solve-at), at --updates, or at a signal. Solved means: frozen
weights reach the mark over 20 greedy episodes and again over 20 others; then 100 more are played
and reported.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from actor.envs import action_count, make_env
from learner import checkpoint
from learner.learner import Learner
from learner.presets import PRESETS, Preset, changed, preset
from learner.solved import Judge, evaluate, save
from learner.weights import WeightsError
from replay_server import Client, ReplayError, Spec
from replay_server.arguments import add_options, argument, document, option, parse
from replay_server.patience import Stop, connect, lost_contact
from replay_server.runs import Phases, Run


@dataclass
class Train:
    """What this learner is; the preset's own settings are options too."""

    server: str = option("Address of the replay server.", "udp://127.0.0.1:7400")
    table: str = option("Table the batches come from.", "main")
    preset: str = option(f"One of {', '.join(PRESETS)}.", "cartpole")
    seed: int = option("Seed of the first weights and of the evaluations.", 1)
    run: Path = option("Run folder: metrics, checkpoints.", Path("runs/default"))
    resume: Path | None = option("Run folder to go on from; its arguments are taken over.", None)
    device: str = option("Where the nets live: cpu, or cuda.", "cpu")
    updates: int = option("Learner steps after which training ends; 0 is no end.", 0)
    solve_at: float | None = option("Mean greedy return that counts as solved.", None)
    evaluate_every: int = option("Learner steps between candidates for solved.", 500)
    checkpoint_seconds: float = option("Seconds between checkpoints.", 5.0)
    patience: float = option("Seconds to wait for a server that is gone.", 600.0)


@dataclass
class Evaluate:
    """Judging a checkpoint."""

    checkpoint: Path = argument("The checkpoint's JSON file.")
    episodes: int = option("Greedy episodes.", 100)
    seed: int = option("Seed of the episodes.", 1)


class Program:
    """The learner, its client, and what it does between updates."""

    def __init__(self, args: Train, settings: Preset, stop: Stop) -> None:
        self.args, self.settings, self.stop = args, settings, stop
        arguments = {**document(args), "settings": dataclasses.asdict(settings)}
        self.run = Run(args.run, "learner", arguments)
        self.phases = Phases()
        self.client: Client | None = None
        self.learner: Learner | None = None
        self.judge: Judge | None = None
        self.solved: dict | None = None
        self.ages: list[float] = []
        self.applied = self.stale = 0
        self.published_at = self.saved_at = self.logged_at = time.monotonic()
        self.logged_step = 0

    def connect(self) -> None:
        """A session; at the first one the nets, which need the table's spec."""
        self.client = connect(self.args.server, self.args.patience, self.stop)
        spec = self.client.table(self.args.table).spec
        if self.learner is None:
            self.build(spec)
        self.publish()

    def build(self, spec: Spec) -> None:
        """Nets, and what --resume found; the environment is asked only for its actions."""
        env = make_env(self.settings.env)
        actions = action_count(env)
        env.close()
        self.learner = Learner(
            spec=spec,
            actions=actions,
            preset=self.settings,
            seed=self.args.seed,
            device=self.args.device,
        )
        if self.args.resume is not None:
            newest = checkpoint.latest(self.args.resume / "checkpoints")
            if newest is None:
                print(f"no whole checkpoint in {self.args.resume}: starting at learner step 0")
            else:
                self.learner.restore(*checkpoint.load(newest))
                print(f"resumed from {newest.name}: learner step {self.learner.step}", flush=True)
        self.spec = spec
        self.logged_step = self.learner.step
        if self.args.solve_at is not None:
            mark, seed = self.args.solve_at, self.args.seed
            self.judge = Judge(self.settings, spec, mark=mark, seed=seed, run=self.run)

    def publish(self) -> None:
        """The online net as a new version; its number is the server's."""
        version = self.client.publish_weights(self.learner.weights())
        self.published_at = time.monotonic()
        self.run.log(event="published", version=version, learner_step=self.learner.step)

    def train(self) -> None:
        """Batches until the end; each phase under its name."""
        batches = self.client.batches(
            self.args.table,
            self.settings.batch,
            beta=lambda: self.learner.beta(),
            prefetch=self.settings.prefetch,
        )
        with batches:
            while not self.done():
                with self.phases("wait"):
                    batch = batches.get(timeout=0.25)
                if batch is None:
                    self.idle()
                    continue
                with self.phases("train"):
                    update, priorities = self.learner.learn(batch)
                with self.phases("update"):
                    self.client.update_priorities(
                        self.args.table, batch.keys, priorities, wait=False
                    )
                self.ages.append(float(batch.ages.mean()))
                self.between_updates(update)

    def done(self) -> bool:
        """Solved, at the end of --updates, or asked to stop."""
        limit = self.args.updates
        enough = limit > 0 and self.learner.step >= limit
        return self.stop.asked or self.solved is not None or enough

    def idle(self) -> None:
        """No batch yet: keep the log alive, so that whoever watches sees the wait."""
        if time.monotonic() - self.logged_at >= 1.0:
            self.log(None)

    def between_updates(self, update: object) -> None:
        """What is due: publication, candidate, checkpoint, a line of metrics."""
        step, now = self.learner.step, time.monotonic()
        late = now - self.published_at >= self.settings.publish_seconds
        if step % self.settings.publish_every == 0 or late:
            with self.phases("publish"):
                self.publish()
        if self.judge is not None and step % self.args.evaluate_every == 0:
            with self.phases("evaluate"):
                self.solved = self.judge.solved(self.learner)
        if now - self.saved_at >= self.args.checkpoint_seconds:
            with self.phases("checkpoint"):
                self.save(f"step-{step:09d}")
        if now - self.logged_at >= 1.0:
            self.log(update)

    def save(self, name: str) -> None:
        """A checkpoint of this moment."""
        save(self.learner, self.spec, self.args.seed, self.args.run, name)
        self.saved_at = time.monotonic()

    def log(self, update: object) -> None:
        """A line of metrics and a line for the person watching."""
        now, step = time.monotonic(), self.learner.step
        rate = (step - self.logged_step) / max(now - self.logged_at, 1e-9)
        info = self.client.table(self.args.table)
        values = {
            "steps/learner": step,
            "perf/learner_sps": rate,
            "replay/size": info.count,
            "replay/inserted": info.inserted,
            "replay/ratio": info.sampled / max(info.inserted, 1),
            "replay/age": float(np.mean(self.ages)) if self.ages else None,
            "weights/version": self.client.weights_version,
            "beta": self.learner.beta(),
        }
        if update is not None:
            values |= {
                "losses/td": float(update.td.mean()),
                "losses/loss": update.loss,
                "losses/q_mean": update.q_mean,
                "losses/gradient_norm": update.gradient_norm,
            }
        shares = self.phases.shares()
        self.run.log(**values, **shares)
        waiting = shares.get("phase/wait", 0.0)
        print(
            f"learner: step {step}, {rate:.0f}/s, replay {info.count} items, "
            f"{values['replay/ratio']:.1f} samples per insert, waiting {waiting:.0%}",
            flush=True,
        )
        self.logged_at, self.logged_step = now, step
        self.ages.clear()

    def main(self) -> None:
        """Connects and trains, again and again where the server goes and comes back."""
        while not self.stop.asked and self.solved is None:
            try:
                self.connect()
                self.train()
                return
            except ReplayError as lost:
                if not lost_contact(lost):
                    raise
                print(f"learner: {lost}", flush=True)
                self.close_client()

    def close_client(self) -> None:
        """Gives the session up without asking the server for anything it may not answer."""
        if self.client is not None:
            self.client.close(timeout=0.2)
            self.client = None

    def close(self) -> None:
        """A last checkpoint, then everything this program owns."""
        if self.learner is not None and self.learner.step > 0:
            self.save(f"step-{self.learner.step:09d}")
        self.close_client()
        if self.judge is not None:
            self.judge.close()
        self.run.close()


def parse_train(argv: list[str]) -> tuple[Train, Preset]:
    """`train`'s arguments; with --resume, those of the run it goes on from, unless given anew."""
    parser = argparse.ArgumentParser(
        prog="python -m learner train", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    add_options(parser, Train, keep_unset=True)
    settings = parser.add_argument_group("settings that replace the preset's")
    add_options(settings, Preset, keep_unset=True)
    given = vars(parser.parse_args(argv))
    before: dict = {}
    if "resume" in given:
        try:
            before = json.loads((given["resume"] / "args-learner.json").read_text())
        except (OSError, ValueError) as error:
            parser.error(f"--resume {given['resume']}: no run to go on from ({error})")
        given.setdefault("run", given["resume"])
    names = {field.name for field in dataclasses.fields(Train)}
    old = {name: before[name] for name in names - {"resume"} if before.get(name) is not None}
    old |= {"run": Path(old["run"])} if "run" in old else {}
    args = Train(**{**old, **{name: value for name, value in given.items() if name in names}})
    base = preset(args.preset)
    if "settings" in before:
        base = changed(base, **before["settings"] | {"hidden": tuple(before["settings"]["hidden"])})
    try:
        return args, changed(base, **{k: v for k, v in given.items() if k not in names})
    except ValueError as wrong:
        parser.error(str(wrong))


def train(argv: list[str]) -> int:
    """The training program; returns its exit code."""
    args, settings = parse_train(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    print(f"learner: seed {args.seed}, preset {args.preset}, run {args.run}", flush=True)
    with Stop() as stop:
        program = Program(args, settings, stop)
        try:
            program.main()
        except (ReplayError, WeightsError) as error:
            print(f"learner: {error}", file=sys.stderr)
            return 2
        finally:
            program.close()
    if program.solved is not None:
        print(f"solved: mean return {program.solved['eval_return_mean']:.1f} over 100 episodes")
    return 0


def judge(argv: list[str]) -> int:
    """The evaluation program; returns its exit code."""
    args = parse(Evaluate, "Greedy episodes of a checkpoint's frozen weights.", argv)
    torch.set_num_threads(1)
    try:
        returns = evaluate(args.checkpoint, args.episodes, args.seed)
    except WeightsError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    print(
        f"mean return {returns.mean():.1f}, least {returns.min():.0f}, "
        f"{len(returns)} episodes, seed {args.seed}"
    )
    return 0


def main(argv: list[str] | None = None) -> int:
    """`train` or `evaluate`."""
    argv = sys.argv[1:] if argv is None else argv
    programs = {"train": train, "evaluate": judge}
    if not argv or argv[0] not in programs:
        print(__doc__)
        return 0 if argv[:1] in (["-h"], ["--help"]) else 2
    return programs[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(main())
