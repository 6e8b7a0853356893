"""Actor, server and learner in turn, in one process over loopback: a run that repeats bit for bit.

`InTurn` owns the three parts; `turns()` moves them: the actor steps, everything pushed is
acknowledged, and for every `steps_per_update` environment steps the learner takes one batch, learns
and updates its priorities before anything else happens. Time is counted in turns of the server, so
no clock, thread or socket has a say; what is left is the seed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from actor.actor import Actor
from actor.envs import action_count, make_envs
from deploy.table import TABLE, table_for
from learner import checkpoint
from learner.dqn import Update
from learner.evaluate import Evaluation
from learner.learner import Learner
from learner.networks import network_from
from learner.presets import Preset, changed, preset
from replay_server import Batch, Client, Server, Table
from replay_server.patience import Stop
from replay_server.runs import Run, commit

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from deploy.demo import Args

STEPS_PER_UPDATE = 16.0
SELECT_EPISODES = 20


@dataclass(frozen=True)
class Turn:
    """One update: the batch it learned from, what it reported, the new priorities."""

    batch: Batch
    update: Update
    priorities: np.ndarray


class InTurn:
    """The three parts of a run in one process; use as a context."""

    def __init__(
        self,
        settings: Preset,
        seed: int,
        *,
        envs: VectorEnv | None = None,
        table: Table | None = None,
    ) -> None:
        torch.manual_seed(seed)
        self.settings = settings
        self.envs = envs if envs is not None else make_envs(settings.env, settings.envs)
        table = table if table is not None else table_for(settings)
        name = f"loopback://in-turn-{os.getpid()}-{id(self)}"
        self.server = Server([table], name, seed=seed, virtual_clock=True)
        self.actor_client = Client(self.server.address)
        self.client = Client(self.server.address)
        actions = action_count(self.envs)
        self.learner = Learner(spec=table.step, actions=actions, preset=settings, seed=seed)
        network = network_from(
            settings.network,
            table.step,
            actions,
            stack=settings.stack,
            hidden=settings.hidden,
            states=settings.states,
            seed=seed,
        )
        self.actor = Actor(
            envs=self.envs,
            spec=table.step,
            network=network,
            preset=settings,
            number=0,
            actors=1,
            seed=seed,
            writer=self.actor_client.writer(TABLE, streams=self.envs.num_envs),
        )
        self.owed = 0.0
        self.pull_at = 0
        self.publish()

    def publish(self) -> None:
        """The online net as a new version."""
        self.client.publish_weights(self.learner.weights())

    def collect(self) -> None:
        """One step of every environment, acknowledged; weights where they are due."""
        if self.actor.env_steps >= self.pull_at:
            pulled = self.actor_client.pull_weights()
            self.actor.load(pulled[1])
            self.pull_at = self.actor.env_steps + self.settings.pull_every
        stored = self.actor.step()
        self.actor.writer.flush()
        if self.client.can_sample(TABLE, self.settings.batch):
            self.owed += stored / (self.settings.steps_per_update or STEPS_PER_UPDATE)

    def learn(self) -> Turn:
        """One batch, one update, its priorities."""
        batch = self.client.sample(TABLE, self.settings.batch, beta=self.learner.beta())
        update, priorities = self.learner.learn(batch)
        self.client.update_priorities(TABLE, batch.keys, priorities)
        if self.learner.step % self.settings.publish_every == 0:
            self.publish()
        return Turn(batch, update, priorities)

    def turns(self) -> Iterator[Turn]:
        """Updates until the run's steps are done."""
        while self.actor.env_steps < self.settings.env_steps:
            self.collect()
            while self.owed >= 1.0:
                self.owed -= 1.0
                yield self.learn()

    def close(self) -> None:
        """Clients, server, environments."""
        self.actor_client.close()
        self.client.close()
        self.server.close()
        self.envs.close()

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_turn(args: Args, folder: Path) -> dict[str, Any] | None:
    """The demo in turn; its summary, or None if it was interrupted."""
    base = preset(args.preset)
    settings = changed(base, env=args.env) if args.env else base
    torch.set_num_threads(1)
    run = Run(folder, "learner", {"preset": dataclasses.asdict(settings), "seed": args.seed})
    begin = line_at = time.monotonic()
    solved: dict[str, Any] = {}
    table = table_for(settings)
    with Stop() as stop, InTurn(settings, args.seed, table=table) as parts:
        judge = Evaluation(settings.env, table.step, stack=settings.stack, episodes=SELECT_EPISODES)
        for turn in parts.turns():
            if stop.asked or time.monotonic() - begin > args.minutes * 60:
                break
            step = parts.learner.step
            if time.monotonic() >= line_at:
                returns = parts.actor.returns
                shown = f"{np.mean(returns):.1f}" if returns else "-"
                print(
                    f"{time.monotonic() - begin:5.0f} s | {parts.actor.env_steps} steps"
                    f" | {step} updates | return {shown} | td {turn.update.td.mean():.3f}",
                    flush=True,
                )
                line_at += 1.0
            if step % 500 == 0 and solves(parts.learner, judge, args, step // 500, run):
                solved = verdict(parts, args, folder, time.monotonic() - begin)
                break
        judge.close()
        run.close()
        counters = parts.client.stats().counters
        steps, updates = parts.actor.env_steps, parts.learner.step
        if stop.asked:
            return None
    return {
        "seed": args.seed,
        "solved": bool(solved),
        "eval_return_mean": solved.get("eval_return_mean"),
        "eval_episodes": solved.get("eval_episodes", 0),
        "train_seconds": solved.get("train_seconds"),
        "env_steps": steps,
        "learner_steps": updates,
        "batch": settings.batch,
        "transport": "loopback",
        "checkpoint": solved.get("checkpoint"),
        "commit": commit(),
        "settings": dataclasses.asdict(settings),
        "server_counters": counters,
    }


def solves(learner: Learner, judge: Evaluation, args: Args, candidate: int, run: Run) -> bool:
    """Twice 20 greedy episodes at or above the mark?"""
    first = candidate * SELECT_EPISODES
    chosen = judge.run(learner.online, "select", args.seed, first).mean
    run.log(**{"steps/learner": learner.step, "charts/greedy_return": chosen})
    if chosen < args.solve_at:
        return False
    return judge.run(learner.online, "confirm", args.seed, first).mean >= args.solve_at


def verdict(parts: InTurn, args: Args, folder: Path, seconds: float) -> dict[str, Any]:
    """The checkpoint of these weights, and what 100 greedy episodes say of it."""
    from learner.__main__ import evaluate

    tensors, state = parts.learner.state()
    document = {
        **state,
        "preset": dataclasses.asdict(parts.settings),
        "spec": json.loads(parts.actor.spec.to_json()),
        "seed": args.seed,
    }
    name = f"solved-{parts.learner.step}"
    path = checkpoint.save(folder / "checkpoints", name, tensors, document)
    returns = evaluate(path, 100, args.seed)
    return {
        "eval_return_mean": float(returns.mean()),
        "eval_episodes": len(returns),
        "train_seconds": seconds,
        "checkpoint": str(path),
    }
