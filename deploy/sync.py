"""Actor, server and learner in turn, in one process over loopback: a run that repeats bit for bit.

`InTurn` owns the three parts; `turns()` moves them: the actor steps, everything pushed is
acknowledged, and for every `steps_per_update` environment steps the learner takes one batch, learns
and updates its priorities before anything else happens. Time is counted in turns of the server, so
no clock, thread or socket has a say; what is left is the seed.
"""

from __future__ import annotations

import dataclasses
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
from learner.dqn import Update
from learner.learner import Learner
from learner.networks import network_from
from learner.presets import Preset, changed, preset
from learner.solved import Judge
from replay_server import Batch, Client, Server, Table
from replay_server.patience import Stop
from replay_server.runs import Run, commit

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from deploy.demo import Args

STEPS_PER_UPDATE = 16.0
EVALUATE_EVERY = 500


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
    begin, solved = time.time(), None
    table = table_for(settings)
    with Stop() as stop, InTurn(settings, args.seed, table=table) as parts:
        judge = Judge(settings, table.step, mark=args.solve_at, seed=args.seed, run=run)
        line_at = begin
        for turn in parts.turns():
            now = time.time()
            if stop.asked or now - begin > args.minutes * 60:
                break
            if now >= line_at:
                print_progress(parts, turn, now - begin)
                line_at = now + 1.0
            if parts.learner.step % EVALUATE_EVERY == 0:
                solved = judge.solved(parts.learner)
                if solved:
                    break
        judge.close()
        run.close()
        if stop.asked:
            return None
        return summary_of(parts, args, solved or {}, begin)


def print_progress(parts: InTurn, turn: Turn, elapsed: float) -> None:
    """One line for the person watching."""
    returns = parts.actor.returns
    shown = f"{np.mean(returns):.1f}" if returns else "-"
    print(
        f"{elapsed:4.0f} s | {parts.actor.env_steps} steps | {parts.learner.step} updates"
        f" | return {shown} | td {turn.update.td.mean():.3f}",
        flush=True,
    )


def summary_of(parts: InTurn, args: Args, solved: dict[str, Any], begin: float) -> dict[str, Any]:
    """The run's summary, with the server's own counters."""
    return {
        "seed": args.seed,
        "solved": bool(solved),
        "eval_return_mean": solved.get("eval_return_mean"),
        "eval_return_min": solved.get("eval_return_min"),
        "eval_episodes": solved.get("eval_episodes", 0),
        "train_seconds": solved["solved_at"] - begin if solved else None,
        "env_steps": parts.actor.env_steps,
        "learner_steps": parts.learner.step,
        "batch": parts.settings.batch,
        "transport": "loopback",
        "checkpoint": solved.get("checkpoint"),
        "commit": commit(),
        "settings": dataclasses.asdict(parts.settings),
        "server_counters": parts.client.stats().counters,
    }
