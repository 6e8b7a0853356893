"""Actor, server and learner in turn, in one process over loopback: a run that repeats bit for bit.

`InTurn` owns the three parts; `turns()` moves them: the actor steps, everything pushed is
acknowledged, and for every `steps_per_update` environment steps the learner takes one batch, learns
and updates its priorities before anything else happens. Time is counted in turns of the server, so
no clock, thread or socket has a say; what is left is the seed.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from actor.actor import Actor
from actor.inference import Inference
from deploy.table import TABLE, needed, table_for
from learner.algorithms import batches_of, publication_due
from learner.judge import Judge, save
from learner.learner import Learner
from learner.optimizing import Update
from learner.replay import InOrder
from replay_server import Batch, Client, Server, Table
from replay_server.requests.draws import BATCH_DEFAULT
from replay_server.training.actions import actions_of
from replay_server.training.contact import Stop
from replay_server.training.device import device_from
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_envs
from replay_server.training.loop import Priorities, Weights, learn
from replay_server.training.networks import acting_network
from replay_server.training.options import begin_run, keep
from replay_server.training.presets import Preset
from replay_server.training.progress import Progress, clock
from replay_server.training.runs import Run, commit, largest, read_metrics
from replay_server.training.turns import due_of
from replay_server.training.weights import WeightsError

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from replay_server.training.options import Demo

COMMAND = "run"  # which starts it again
EVALUATE_EVERY = 500
LOG_S = 1.0


@dataclass(frozen=True)
class Turn:
    """One update: the batch it learned from, what it reported, the new priorities."""

    batch: Batch
    update: Update
    priorities: Priorities


class Watched(InOrder):
    """The same, which keeps the newest batch and its priorities."""

    batch: Batch
    priorities: Priorities = None

    def sample(self) -> Batch | None:
        """The next batch."""
        found = super().sample()
        self.batch = found if found is not None else self.batch
        return found

    def update(self, batch: Batch, priorities: Priorities) -> None:
        """New priorities of a batch's items, set."""
        self.priorities = priorities
        super().update(batch, priorities)


class InTurn:
    """The three parts of a run in one process; use as a context."""

    def __init__(
        self,
        settings: Preset,
        seed: int,
        *,
        envs: VectorEnv | None = None,
        table: Table | None = None,
        device: str = "cpu",
        compiled: bool = False,
    ) -> None:
        if settings.lanes:
            raise EnvError("here all goes in turn, and lanes go on beside: leave --lanes away")
        torch.manual_seed(seed)
        self.settings = settings
        self.envs = (
            envs
            if envs is not None
            else make_envs(
                settings.env,
                settings.envs,
                protocol=settings.protocol,
                device=str(device),
                backend=settings.backend,
            )
        )
        table = table if table is not None else table_for(settings, in_turns=True)
        name = f"loopback://in-turn-{os.getpid()}-{id(self)}"
        self.server = Server([table], name, seed=seed, virtual_clock=True, **needed(settings))
        self.actor_client = Client(self.server.address)
        self.client = Client(self.server.address, batch_max=max(settings.batch, BATCH_DEFAULT))
        actions = actions_of(self.envs, settings.algorithm)
        self.learner = Learner(
            spec=table.step,
            actions=actions,
            preset=settings,
            seed=seed,
            device=device,
            compiled=compiled,
        )
        network = acting_network(settings, table.step, actions, seed)
        self.actor = Actor(
            envs=self.envs,
            spec=table.step,
            inference=Inference(network.to(device), device=device),
            preset=settings,
            number=0,
            actors=1,
            seed=seed,
            writer=self.actor_client.writer(TABLE, autoreset=self.envs),
            newest=self.newest,
        )
        self.drawn = Watched(self.client, TABLE, settings.batch, self.learner.beta)
        self.replay = batches_of(self.drawn, self.learner)
        self.due = due_of(settings, self.replay.ready)
        self.pull_at = self.version = 0
        self.publish()

    def publish(self) -> None:
        """The acting network as a new version."""
        self.client.publish_weights(self.learner.weights())

    def newest(self) -> Weights:
        """Before a step: newer weights, where it is time to look for them."""
        if self.actor.env_steps < self.pull_at:
            return None
        self.pull_at = self.actor.env_steps + self.settings.pull_every
        pulled = self.actor_client.pull_weights(newer_than=self.version)
        if pulled is None:
            return None
        self.version, weights = pulled
        return weights

    def collect(self) -> None:
        """One step of every environment, acknowledged."""
        stored = self.actor.step()
        self.actor.writer.flush()
        self.due.add(stored)

    def learn(self) -> Turn:
        """One batch, one update, its priorities."""
        learn(self.replay, self.learner, self.learner)
        if publication_due(self.learner, self.replay):
            self.publish()
        return Turn(self.drawn.batch, self.learner.update, self.drawn.priorities)

    def rounds(self) -> Iterator[Turn | None]:
        """None behind each step of the environments, then its updates, until the steps are done."""
        while self.actor.env_steps < self.settings.env_steps:
            self.collect()
            yield None
            while self.due.take():
                yield self.learn()

    def turns(self) -> Iterator[Turn]:
        """The updates alone."""
        return (turn for turn in self.rounds() if turn is not None)

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


def in_turn(
    args: Demo, settings: Preset, device: str = "cpu", compile: bool = False
) -> dict[str, Any] | None:
    """The demo in turn; its summary, or None if it was interrupted. The others are the plan's NETS
    (plan.py)."""
    nets = {"device": device_from(device), "compiled": compile}
    torch.set_num_threads(1)
    progress = Progress()
    run = begin_run("in-turn", COMMAND, args, settings, progress.say)
    keep("in-turn", COMMAND, args, settings)
    begin, solved = time.time(), None
    table = table_for(settings, in_turns=True)
    with Stop() as stop, progress, InTurn(settings, args.seed, table=table, **nets) as parts:
        mark = math.inf if args.solve_at is None else args.solve_at
        judge = Judge(
            settings,
            table.step,
            mark=mark,
            seed=args.seed,
            run=run,
            show=progress.show,
            stop=stop,
        )
        watch = Watch(parts, run, progress, args.minutes * 60.0)
        try:
            for turn in parts.rounds():
                if stop.asked or time.time() - begin > args.minutes * 60:
                    break
                if turn is None:
                    watch.collected()
                    continue
                watch.look(turn)
                if parts.learner.step % EVALUATE_EVERY == 0:
                    solved = judge.verdict_on(parts.learner)
                    if solved:
                        break
        finally:
            save_newest(parts.learner, judge)
            judge.close()
            run.close()
        if stop.asked:
            return None
        return summary_of(parts, args, solved or {}, begin)


def save_newest(learner: Learner, judge: Judge) -> None:
    """What was learned, however the run ended, under the name that the learner program gives it.

    Where it cannot be written the person watching is told, and what ended the run stands.
    """
    if not learner.step:
        return
    run, name = judge.run, f"step-{learner.step:09d}"
    try:
        save(learner, judge.spec, judge.seed, run.folder, name, judge.candidates)
    except (OSError, WeightsError) as error:
        run.say(f"demo: no last checkpoint: {error}")


class Watch:
    """A line of metrics and one for the person watching, once a second."""

    def __init__(self, parts: InTurn, run: Run, progress: Progress, limit_s: float) -> None:
        self.parts, self.run, self.progress, self.limit_s = parts, run, progress, limit_s
        self.begin = self.at = time.monotonic()
        self.before = (0, 0)

    def collected(self) -> None:
        """After a step of the environments: until learning starts the person watching is shown how
        far that is; from then on `look` shows it."""
        now, done = time.monotonic(), self.parts.actor.env_steps
        if self.parts.learner.step or now - self.at < LOG_S:
            return
        self.at = now
        self.progress.show(
            f"waiting for {done:,} of {self.parts.settings.min_size:,} steps before learning "
            f"starts | at most {clock(self._remaining(now))} more"
        )

    def _remaining(self, now: float) -> float:
        return max(self.limit_s - (now - self.begin), 0.0)

    def look(self, turn: Turn) -> None:
        """After an update; most of the time there is nothing to do."""
        now, actor = time.monotonic(), self.parts.actor
        if now - self.at < LOG_S:
            return
        done = (actor.env_steps, self.parts.learner.step)
        rates = [(d - b) / (now - self.at) for d, b in zip(done, self.before, strict=True)]
        self.at, self.before = now, done
        info = self.parts.client.table(TABLE)
        played = actor.collector
        mean = played.mean_return()
        self.run.log(
            done[1],
            **{
                "charts/episodic_return": mean,
                "charts/episodic_length": played.mean_length(),
                **played.policy.scalars(),
                "charts/beta": self.parts.learner.beta(),
                **turn.update.scalars(),
                "replay/size": info.count,
                "replay/ratio": info.sampled / max(info.inserted, 1),
                "replay/age": float(turn.batch.ages.mean()),
                "perf/env_sps": rates[0],
                "perf/learner_sps": rates[1],
            },
        )
        shown = "-" if mean is None else f"{mean:.1f}"
        self.progress.show(
            f"{done[0]} steps, {rates[0]:.0f}/s | {done[1]} updates, {rates[1]:.0f}/s | "
            f"return {shown} | at most {clock(self._remaining(now))} more"
        )


def summary_of(parts: InTurn, args: Demo, solved: dict[str, Any], begin: float) -> dict[str, Any]:
    """The run's summary, with the server's own counters."""
    return {
        "seed": args.seed,
        "solved": bool(solved),
        "eval_return_mean": solved.get("eval_return_mean"),
        "eval_return_min": solved.get("eval_return_min"),
        "eval_episodes": solved.get("eval_episodes", 0),
        "greedy_return_best": largest(read_metrics(args.run, "in-turn"), "charts/greedy_return"),
        "train_seconds": solved["solved_at"] - begin if solved else None,
        "env_steps": parts.actor.env_steps,
        "learner_steps": parts.learner.step,
        "batch": parts.settings.batch,
        "transport": "loopback",
        "plan": "gpu-only",
        "restarts": 0,
        "checkpoint": solved.get("checkpoint"),
        "commit": commit(),
        "settings": dataclasses.asdict(parts.settings),
        "server_counters": parts.client.stats().counters,
    }
