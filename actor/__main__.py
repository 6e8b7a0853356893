"""`replay-server actor`: plays environments, pushes every step, creates items with priorities.

Needs a server whose table holds this environment's steps; takes the newest weights from it whenever
there are newer ones. When the server is gone it says so once, waits, and goes on when it is back.
Its options stand on the command line or in the file that --config names.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings

from replay_server.support.interrupts import import_quietly, run

import_quietly(__name__)

import torch
from gymnasium.vector import VectorEnv

from actor.actor import Actor
from actor.bounds import Ahead, ahead_of
from actor.inference import Inference
from actor.lane_workers import LaneVector
from actor.ledger import Ledger
from actor.remote import EnvironmentsLost, RemoteVector
from actor.waiting_writer import WaitingWriter
from replay_server import (
    Client,
    ClosedError,
    LimiterBlocked,
    ReplayError,
    RowsDropped,
    ServerRestarted,
    Spec,
    SpecError,
    TableEmptied,
    Timeout,
)
from replay_server.requests.remote import rows_ahead
from replay_server.training import options
from replay_server.training.actions import actions_of
from replay_server.training.contact import (
    Stop,
    Stopped,
    connect,
    describe,
    lost_contact,
    met,
    writer_of,
)
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import (
    check_columns,
    check_playable,
    generator,
    make_envs,
    seed_of_life,
)
from replay_server.training.loop import Weights
from replay_server.training.networks import acting_network
from replay_server.training.presets import Preset
from replay_server.training.progress import Progress, left
from replay_server.training.runs import FINISHED, RunTaken, first_free
from replay_server.training.turns import Taking
from replay_server.training.weights import WeightsError

COMMAND = "actor"
PULL_INDEX = 1 << 23  # of the generator behind the jitter of pulls
WEIGHTS_WAIT_S = 10.0
LOG_S = 1.0


class Program:
    """The actor, its client, and what it does between steps."""

    def __init__(
        self,
        args: options.Actor,
        settings: Preset,
        stop: Stop,
        inference: Inference | None = None,
    ) -> None:
        """inference: that of a learner in this process, whose weights are always the newest."""
        self.args, self.settings, self.stop, self.shared = args, settings, stop, inference
        self.name = name = f"actor-{args.number}"
        self.progress = Progress()
        self.run = options.begin_run(name, COMMAND, args, settings, self.progress.say)
        self.seed = seed_of_life(args.seed, self.run.life)
        self.envs = self.environments()
        self.ledger = Ledger(args.run / f"{name}.ledger") if args.ledger else None
        self.rng = generator("train", self.seed, PULL_INDEX + args.number)
        self.client: Client | None = None
        self.actor: Actor | None = None
        self.incarnation = 0  # of the server, when it was met last
        self.waiting_writer: WaitingWriter | None = None  # the actor's writer
        self.turns: Taking | None = None
        if args.turns:
            self.turns = Taking(args.turns, args.number, args.patience, lambda: stop.asked)
        self.stored = self.in_doubt = 0  # rows that it acknowledged, and that it had not yet
        self.gone = self.emptied = False  # whether the server, or the table, was at the end of it
        self.version = self.refused = 0
        self.refusal = ""  # why weights were refused last
        self.pull_at = self.flush_at = 0
        self.log_at = time.monotonic()
        self.logged_steps = 0
        self.share = settings.env_steps // settings.actors
        ahead = rows_ahead(settings.envs, settings.rows_ahead)
        self.unacknowledged_max = args.unacknowledged_max or ahead

    def environments(self) -> VectorEnv:
        """Those of this process, or what stands for those of workers elsewhere."""
        settings, protocol = self.settings, self.settings.protocol
        if settings.lanes and self.args.environments:
            raise EnvError("--lanes are processes here, --environments elsewhere: give one of them")
        if settings.lanes:
            return LaneVector(
                settings.env,
                settings.envs,
                settings.lanes,
                protocol=protocol,
                step_s=self.args.step_seconds,
                stopped=lambda: self.stop.asked,
            )
        if not self.args.environments:
            return make_envs(
                settings.env, settings.envs, protocol=protocol, backend=settings.backend
            )
        return RemoteVector(
            self.args.environments.split(","),
            settings.env,
            settings.envs,
            protocol=protocol,
            patience=self.args.patience,
            step_s=self.args.step_seconds,
            stopped=lambda: self.stop.asked,
        )

    def connect(self) -> None:
        """A session, a writer and an actor on it; environments restart with the session."""
        self.client = connect(self.args.server, self.args.patience, self.stop, self.progress.say)
        table = self.client.table(self.args.table)
        options.expect_items(self.settings, table)
        if self.settings.values == "q":
            table.expect_reach(self.settings.n)  # it computes priorities
        spec = table.spec
        check_columns(self.envs, self.settings.env, spec, self.args.table)
        writer = writer_of(
            self.client,
            self.args.table,
            self.args.patience,
            self.stop,
            self.say,
            autoreset=self.envs,
            unacknowledged_max=self.unacknowledged_max,
        )
        writer = WaitingWriter(writer, self.args.patience, lambda: self.stop.asked, self.say)
        self.waiting_writer = writer
        if self.ledger:
            writer = self.ledger.watch(writer, spec)
        if self.actor is None:
            self.settings = options.as_served(self.settings, self.args, table, self.say)
            self.actor = Actor(
                envs=self.envs,
                spec=spec,
                inference=self.shared or self.inference(spec),
                preset=self.settings,
                number=self.args.number,
                actors=self.settings.actors,
                seed=self.seed,
                writer=writer,
                env_steps=self.run.last_step,
                newest=self.due,
            )
            self.logged_steps = self.actor.env_steps
            options.keep(self.name, COMMAND, self.args, self.settings)
            self.say(met(self.client, table))
            if self.run.life:
                self.say(f"start {self.run.life + 1} of this run: from step {self.run.last_step}")
        else:
            if self.gone:
                self.report_return()
            self.actor.restart(writer)
        self.gone = False
        self.incarnation = self.client.incarnation
        self.version = 0
        # one that has played with a learner's weights goes on with them until there are newer ones
        if self.shared is None:
            wait_s = WEIGHTS_WAIT_S if self.actor.learner_step < 0 else 0.0
            if self.turns is not None:
                wait_s = self.args.patience  # the first turn begins with the learner's weights
            self.actor.load(self.pull(wait_s))

    def inference(self, spec: Spec) -> Inference:
        """By a network of its own, whose first weights are those of the seed."""
        actions = actions_of(self.envs, self.settings.algorithm)
        network = acting_network(self.settings, spec, actions, self.args.seed)
        return Inference(network, self.refuse)

    def report_return(self) -> None:
        """After a gap: whether the server is the same, and what became of this actor's rows."""
        sentence = f"the server answers again, and holds the {self.stored} rows it acknowledged"
        if self.client.incarnation != self.incarnation:
            sentence = f"the server is back, and empty: {self.stored} rows it acknowledged are gone"
            self.stored = 0
        elif self.emptied:
            sentence = f"the table was emptied: {self.stored} rows it acknowledged are gone"
            self.stored = 0
        self.say(f"{sentence}; {self.in_doubt} more were on their way and are not sent again")
        self.in_doubt = 0

    def due(self) -> Weights:
        """Before a step: newer weights, where it is time to look for them."""
        if self.shared is not None or self.actor.env_steps < self.pull_at:
            return None
        return self.pull()

    def pull(self, wait_s: float = 0.0) -> Weights:
        """The newest weights, if there are newer ones; waits up to `wait_s` for the first."""
        until, said, weights = time.monotonic() + wait_s, False, None
        while True:
            if self.newest() > self.version:
                pulled = self.client.pull_weights(newer_than=self.version)
                if pulled is not None:
                    self.version, weights = pulled
                break
            if time.monotonic() >= until or self.stop.asked:
                break
            if not said:
                self.say(f"waiting up to {wait_s:g} s for a learner's first weights")
                said = True
            self.stop.wait(0.1)
            self.client.ping()
        share = 0.0 if self.turns is not None else self.settings.pull_jitter
        jitter = 1.0 + share * self.rng.uniform(-1.0, 1.0)
        self.pull_at = self.actor.env_steps + self.settings.pull_every * jitter
        return weights

    def refuse(self, error: WeightsError) -> None:
        """Weights do not fit: says so once, and plays on with its own."""
        self.refused += 1
        if str(error) != self.refusal:
            self.refusal = str(error)
            self.say(
                f"weights {self.version} do not fit and are left out; the actor plays on with "
                f"those it has: {error}; give the learner this actor's --env and networks"
            )

    def newest(self) -> int:
        """The newest version that any answer named; costs no request."""
        return max(self.client.weights_version, self.actor.writer.weights_version)

    def say(self, sentence: str) -> None:
        """A line for the person watching."""
        self.progress.say(f"actor {self.args.number}: {sentence}")

    def collect(self) -> None:
        """Steps until the run's share of steps is done or a signal comes."""
        actor = self.actor
        if actor.env_steps >= self.share:
            self.say(
                f"--env-steps {self.settings.env_steps} is the total of all actors, and its share "
                "is played: nothing is left to do; say a larger one"
            )
        self.log_at = time.monotonic() + LOG_S  # the wait for weights is no part of its rate
        while not self.stop.asked and actor.env_steps < self.share:
            stored = actor.step()
            if self.turns is not None:
                actor.writer.flush()
                self.turns.done(stored)
                self.client.ping()  # what the server has now is what is pulled, if it is time to
            elif actor.env_steps >= self.flush_at:
                self.flush_at = actor.env_steps + self.settings.push_batch
                actor.writer.send()
            if time.monotonic() >= self.log_at:
                self.log()
        actor.writer.flush()
        self.log()
        if actor.env_steps >= self.share:
            self.run.event(event=FINISHED)

    def ahead(self) -> Ahead:
        """How far this actor is ahead of the server; ReplayError where that is too far."""
        state = self.actor.writer.state()
        ahead = ahead_of(state, self.client.table(self.args.table))
        ahead.check()
        return ahead

    def log(self) -> None:
        """A line of metrics and a line for the person watching."""
        actor, now = self.actor, time.monotonic()
        rate = (actor.env_steps - self.logged_steps) / max(now - self.log_at + LOG_S, 1e-9)
        played = actor.collector
        mean = played.mean_return()
        failed, ahead = actor.writer.state().items_failed, self.ahead()
        self.run.log(
            actor.env_steps,
            **{
                "charts/episodic_return": mean,
                "charts/episodic_length": played.mean_length(),
                "charts/episodes": played.episodes,
                **played.policy.scalars(),
                "replay/unacknowledged": ahead.unacknowledged,
                "replay/steps_ahead": ahead.steps,
                "replay/items_failed": failed,
                "perf/env_sps": rate,
                "weights/version": self.version,
                "weights/learner_step": actor.learner_step,
                "weights/refused": self.refused,
            },
            **actor.phases.shares(),
        )
        shown = "no episode yet" if mean is None else f"return {mean:.1f}"
        self.progress.show(
            f"actor {self.args.number}: {actor.env_steps} of {self.share} steps, {rate:.0f}/s, "
            f"{left(self.share - actor.env_steps, rate)} | {shown} | "
            f"weights {self.version} of learner step {actor.learner_step} | "
            f"{ahead.unacknowledged} unacknowledged"
            + (f", {max(ahead.steps, 0.0):.0f} ahead" if ahead.steps is not None else "")
        )
        self.log_at, self.logged_steps = now + LOG_S, actor.env_steps

    def main(self) -> None:
        """Connects and collects, again and again where the server goes and comes back."""
        while not self.stop.asked:
            try:
                self.connect()
                self.collect()
                return
            except Stopped as ended:
                self.say(str(ended))
            except LimiterBlocked:
                if not self.stop.asked:
                    raise
                waiting = self.actor.writer.state().unacknowledged
                self.say(f"stopped; {waiting} rows were not let in by the limiter")
            except EnvironmentsLost as lost:
                if not self.stop.asked:
                    self.say(f"{lost}; new episodes begin once they answer again")
                with contextlib.suppress(ReplayError):  # what was played is kept
                    if self.actor is not None:
                        self.actor.writer.flush()
                self.close_client()
            except ReplayError as lost:
                if not lost_contact(lost):
                    raise
                self.count_lost()
                self.emptied = isinstance(lost, TableEmptied)
                self.report_lost(lost)
                self.close_client()

    def report_lost(self, lost: ReplayError) -> None:
        """That it tries again; where it was asked to stop, what nobody will acknowledge."""
        if not self.stop.asked:
            self.say(f"{describe(lost)}; trying again for up to {self.args.patience:g} s")
            return
        held = self.waiting_writer is not None and self.waiting_writer.held
        held &= type(lost) is not Timeout  # then nobody was there to let anything in
        what = "let in by the limiter" if held else "acknowledged"
        waiting = f"; {self.in_doubt} rows were not {what}" if self.in_doubt else ""
        ended = isinstance(lost, (ClosedError, ServerRestarted))
        self.say(
            f"stopped{waiting}" + ("; the server stopped too" if ended else f": {describe(lost)}")
        )

    def count_lost(self) -> None:
        """What the session that is given up had stored, and had not."""
        self.gone = True
        with contextlib.suppress(ReplayError):  # a writer that was given up has no count
            if self.actor:
                state = self.actor.writer.state()
                self.stored += state.steps_stored
                self.in_doubt = state.unacknowledged

    def close_client(self) -> None:
        """Gives the session up without asking the server for anything it may not answer. The loss
        was reported before, so its warning is silenced."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsDropped)
            for part in (self.actor.writer if self.actor else None, self.client):
                if part is not None:
                    with contextlib.suppress(ReplayError):
                        part.close(timeout=0.2)
        self.client = None

    def close(self) -> None:
        """Everything this program owns."""
        self.close_client()
        if self.turns is not None:
            self.turns.leave()
            self.turns.close()
        self.envs.close()
        self.run.close()
        self.progress.close()
        if self.ledger:
            self.ledger.close()


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    sentence = __doc__.splitlines()[0]
    args, settings = options.parse(options.Actor, "actor", COMMAND, sentence, argv, check_playable)
    torch.set_num_threads(1)
    if not 0 <= args.number < settings.actors:
        print(
            f"actor {args.number}: there are {settings.actors} actors, numbered from 0: say "
            f"--actors {args.number + 1} or more to every one of them",
            file=sys.stderr,
        )
        return 2
    print(f"actor {args.number}: seed {args.seed}, {settings.envs} x {settings.env}", flush=True)
    with Stop() as stop:
        try:
            program = Program(args, settings, stop)
        except (ReplayError, EnvError, OSError) as error:
            advice = ""
            if isinstance(error, RunTaken):
                free = first_free(args.run, "actor")
                actors = max(settings.actors, free + 1)
                advice = f"; a further actor is --actors {actors} --number {free}"
                advice += "; give the same --actors to all of them"
            print(f"actor {args.number}: {error}{advice}", file=sys.stderr)
            return getattr(error, "exit_code", 2)
        try:
            try:
                program.main()
            finally:
                program.close()
        except (ReplayError, WeightsError, SpecError, EnvError, OSError) as error:
            program.progress.close()
            sentence = str(error)
            if isinstance(error, LimiterBlocked):
                sentence = describe(error)
                sentence += "; is the learner running? To wait longer, give --patience"
            print(f"actor {args.number}: {sentence}", file=sys.stderr)
            return getattr(error, "exit_code", 2)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
