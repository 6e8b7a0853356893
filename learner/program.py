"""The training program: a learner, its client, and what it does between updates.

Alone it draws batches, and publishes, judges and saves. As one of several (torchrun) it draws its
share, and rank 0 alone does the rest. With --central it sends gradients to the learner that has
--gradients, which draws none.
"""

from __future__ import annotations

import errno
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from learner import checkpoint
from learner.algorithms import batches_of, publication_due
from learner.central import Central, Kept
from learner.evaluate import actions_as_learned
from learner.judge import Judge, save
from learner.learner import Learner
from learner.optimizing import Update
from learner.replay import TRY_S, InOrder, Replay
from learner.replicas import Ended, Replicas, device_of_rank, rank_and_count
from replay_server import Client, ReplayError, Spec
from replay_server.requests.priorities import UpdateResult
from replay_server.training import options, runfile
from replay_server.training.contact import Stop, Stopped, connect, describe, lost_contact, met
from replay_server.training.device import device_from
from replay_server.training.envs import check_columns, make_env
from replay_server.training.loop import learn
from replay_server.training.presets import Preset
from replay_server.training.progress import Progress, left
from replay_server.training.runs import (
    ENDED,
    FINISHED,
    Metrics,
    Phases,
    Timed,
    fraction,
    read_metrics,
)
from replay_server.training.turns import Giving, due_of
from replay_server.training.weights import WeightsError

COMMAND = "learner train"
NAME = "learner"
LOG_S = 1.0
STEP = ("wait", "fetch", "train", "update")  # the phases of a learner step


class Program:
    """The learner, its client, and what it does between updates."""

    def __init__(self, args: options.Train, settings: Preset, stop: Stop) -> None:
        self.args, self.settings, self.stop = args, settings, stop
        rank, ranks = rank_and_count()
        self.device = device_of_rank(device_from(args.device))
        self.progress = Progress()
        number = rank or args.number
        self.leads = number == 0  # it alone publishes, judges and saves
        self.replicas = Replicas(self.device, self.progress.say, stop) if ranks > 1 else None
        self.central: Central | None = None  # where the weights are, if not here
        self.replay: Any = None  # what it draws from, as its algorithm has it
        self.turns: Giving | None = None  # with actors; it knows who has left, whatever session
        self.share = settings.batch if ranks == 1 else self.replicas.share(settings.batch)
        name = NAME if self.leads else f"{NAME}-{number}"
        say, take_over = self.progress.say, self.take_over if self.leads else lambda: None
        self.run = options.begin_run(name, COMMAND, args, settings, say, take_over)
        self.phases = Phases()
        self.client: Client | None = None
        self.learner: Learner | None = None
        self.judge: Judge | None = None
        self.verdict: dict | None = None  # once it is solved
        self.incarnation = self.items = 0  # of the server, and in its table, when last seen
        self.version = 0  # of the weights published last; 0: none at this server
        self.alone = True  # nobody else was seen to publish here
        self.ages: list[float] = []
        self.updated = UpdateResult()
        self.published_at = self.saved_at = self.logged_at = time.monotonic()
        self.begun_at = 0
        self.candidates = 0  # judged in earlier lives of the run
        self.left_out = 0  # checkpoints in a row, up to now, that could not be written
        self.lost: OSError | WeightsError | None = None  # why there is no last checkpoint
        self.complete = False  # it did all that it was asked for
        self.updates = self.logged_updates = 0  # made of batches of its own, or applied for others

    def connect(self) -> None:
        """A session; at the first one the nets, which need the table's spec."""
        server, batch = self.args.server, self.settings.batch
        self.version = 0  # one that was published as contact was lost may be there or not
        patience, say = self.args.patience, self.progress.say
        self.client = connect(server, patience, self.stop, say, batch=batch)
        table = self.client.table(self.args.table)
        options.expect_items(self.settings, table)
        spec = table.spec
        env = self.settings.env
        with closing(make_env(env, protocol=self.settings.protocol)) as made:
            check_columns(made, env, spec, self.args.table)
        if self.learner is None:
            self.settings = options.as_served(
                self.settings, self.args, table, lambda line: say(f"learner: {line}")
            )
            self.build(spec)
            if self.leads and not self.done():
                options.keep(NAME, COMMAND, self.args, self.settings)
            self.incarnation, self.items = self.client.incarnation, table.count
            self.progress.say(f"learner: {met(self.client, table)}")
        elif not self.is_another():
            self.progress.say(
                f"learner: the server answers again, and has kept what it held: {table.count} items"
            )
        self.publish()

    def is_another(self) -> bool:
        """Whether the server came back empty since it was seen last; says so then."""
        if self.client.incarnation == self.incarnation:
            return False
        self.incarnation, self.version = self.client.incarnation, 0
        self.progress.say(
            f"learner: the server is back, and empty: the {self.items} items it last held are "
            f"gone; the weights are published there anew, and training goes on from learner step "
            f"{self.learner.step} once actors have brought new items"
        )
        return True

    def build(self, spec: Spec) -> None:
        """Nets, and what --resume found; the environment is asked only for its actions."""
        self.spec = spec
        self.learner = Learner(
            spec=spec,
            actions=actions_as_learned(self.settings, spec),
            preset=self.settings,
            seed=self.args.seed,
            device=self.device,
            compiled=self.args.compile,
        )
        if self.args.resume is not None:
            self.go_on()
            if self.replicas is not None and self.replicas.rank:  # what is restored is rank 0's
                torch.manual_seed(self.args.seed + self.replicas.rank + self.learner.step)
        if self.replicas is not None:
            self.replicas.join(self.learner)
        if self.args.central:
            self.central = Central(
                self.args.central, self.learner, lambda: self.stop.asked, self.args.patience
            )
            self.learner.load(self.central.newest())
        self.begun_at = self.learner.step
        if self.args.solve_at is not None and self.leads:
            self.judge = Judge(
                self.settings,
                spec,
                mark=self.args.solve_at,
                seed=self.args.seed,
                run=self.run,
                show=lambda far: self.progress.show(f"learner: step {self.learner.step}, {far}"),
                stop=self.stop,
                candidates=self.candidates,
            )

    def take_over(self) -> None:
        """The newest checkpoint of a run that is gone on with elsewhere, as the first one here, and
        the options it was made with, in place of those of a run that learned nothing.

        Before anything can end this program: from then on the folder goes on by itself.
        """
        args = self.args
        if args.resume is None or args.run.resolve() == args.resume.resolve():
            return
        tensors, document = checkpoint.load(newest_of(args.resume, self.progress.say))
        name = f"step-{document['learner_step']:09d}"
        document["taken_from"] = str(args.resume.resolve())
        checkpoint.save(args.run / "checkpoints", name, tensors, document)
        made_with = runfile.load(args.resume / f"config-{NAME}.toml", options.PROGRAMS)[NAME]
        made_with["run"] = args.run
        options.save(args.run / f"config-{NAME}.toml", COMMAND, made_with)

    def go_on(self) -> None:
        """From the newest checkpoint of the folder, which is there by now wherever it is from."""
        newest = newest_of(self.args.run, self.progress.say)
        self.restore(newest)
        self.progress.say(f"resumed from {newest.name}: learner step {self.learner.step}")
        if self.done():
            self.progress.say(
                f"--updates {self.args.updates} is the total, and so many are made: "
                "nothing is left to do; say a larger one, or 0 for no end"
            )

    def restore(self, newest: Path) -> None:
        """Goes on from a checkpoint; WeightsError with what to do where it is of other nets."""
        try:
            tensors, document = checkpoint.load(newest)
            self.learner.restore(tensors, document)
        except WeightsError as error:
            raise WeightsError(
                f"{newest}: {error}; go on with the nets it was made with (leave --hidden, "
                "--network, --stack and --states away, or say those of its run), or begin another "
                "run with --run"
            ) from error
        played = self.learner.step // self.args.evaluate_every  # where no count was kept
        self.candidates = document.get("candidates", played)

    def publish(self) -> None:
        """The weights as a new version; its number is the server's, one above the last: where it
        is more, somebody else publishes here, and the person watching is told so once. Only who
        leads publishes."""
        if not self.leads:
            return
        before, self.version = self.version, self.client.publish_weights(self.learner.weights())
        self.published_at = time.monotonic()
        if self.client.incarnation != self.incarnation:
            return  # it counts from another number
        if before and self.version != before + 1 and self.alone:
            self.alone = False
            self.progress.say(
                f"learner: another program publishes weights at {self.args.server} too: actors "
                "play with either's in turn, and each learner trains on what both played; end one "
                "of the two, or give it a server of its own"
            )

    def train(self) -> None:
        """Batches until the end; each phase under its name."""
        batches = self.client.batches(
            self.args.table,
            self.share,
            beta=lambda: self.learner.beta(),
            prefetch=self.settings.prefetch,
            device=self.device,
        )
        drawn = Replay(self.client, self.args.table, batches, self.phases)
        replay = self.replay = batches_of(drawn, self.learner)
        self.ages, learner = drawn.ages, Timed(self.learner, self.phases, "train")
        weights = Timed(self.central or self.replicas or self.learner, self.phases, "train")
        with batches:
            while not self.done():
                if self.is_another():  # its actors wait for weights, and no batch comes before them
                    self.publish()
                if learn(replay, learner, weights):
                    self.between_updates(self.learner.update)
                else:
                    self.idle()

    def train_in_turns(self) -> None:
        """As many updates behind each step of the actors as are due, and nothing meanwhile."""
        drawn = InOrder(self.client, self.args.table, self.share, self.learner.beta)
        replay = self.replay = batches_of(drawn, self.learner)
        self.ages, learner = drawn.ages, Timed(self.learner, self.phases, "train")
        weights = Timed(self.central or self.replicas or self.learner, self.phases, "train")
        due = due_of(self.settings, replay.ready)
        if self.turns is None:
            count = self.settings.actors
            metrics = Metrics(self.args.run)
            gone = {n for n in range(count) if metrics.finished(f"actor-{n}")}
            self.turns = Giving(self.args.turns, count, gone, insecure=self.args.insecure)
        while not self.done():
            if self.is_another():
                self.publish()
            with self.phases("wait"):
                stored = self.turns.collected(TRY_S)
            if stored is None:
                self.idle()
                continue
            due.add(stored)
            while not self.done() and due.take():
                if learn(replay, learner, weights):
                    self.between_updates(self.learner.update)
            self.turns.go()

    def keep_weights(self) -> None:
        """Others' gradients until the end, in place of batches."""
        with closing(Kept(self.args.gradients, self.learner, self.args.insecure)) as kept:
            self.progress.say(f"learner: gradients are taken at {kept.address}")
            while not self.done():
                if self.is_another():
                    self.publish()
                with self.phases("idle"):
                    question = kept.question(TRY_S)
                with self.phases("train"):
                    changed = question is not None and kept.turn(question)
                if changed:
                    self.between_updates(self.learner.update)
                else:
                    self.idle()

    def done(self) -> bool:
        """Solved, at the end of --updates, or asked to stop."""
        limit = self.args.updates
        enough = limit > 0 and self.learner.step >= limit
        return self.stop.asked or self.verdict is not None or enough

    def idle(self) -> None:
        """No batch yet: keep the log alive, so that whoever watches sees the wait."""
        if time.monotonic() - self.logged_at >= LOG_S:
            self.log(None)

    def between_updates(self, update: object) -> None:
        """What is due: publication, candidate, checkpoint, a line of metrics."""
        self.updates += 1
        step, now = self.learner.step, time.monotonic()
        late = now - self.published_at >= self.settings.publish_seconds and not self.args.turns
        if late or publication_due(self.learner, self.replay):
            with self.phases("publish"):
                self.publish()
        if self.judge is not None and step % self.args.evaluate_every == 0:
            with self.phases("evaluate"):
                self.verdict = self.judge.verdict_on(self.learner)
        first = step == self.begun_at + 1 and self.args.resume is None
        if self.leads and (first or now - self.saved_at >= self.args.checkpoint_seconds):
            with self.phases("checkpoint"):
                self.save_or_leave_out(f"step-{step:09d}")
        if now - self.logged_at >= LOG_S:
            self.log(update)

    def save_or_leave_out(self, name: str) -> None:
        """A checkpoint as training goes on: where it cannot be written, those before it stay.

        The first of several is reported to the person watching, and the next that is written.
        """
        try:
            self.save(name, delete=not self.left_out)
        except OSError as error:
            self.saved_at = time.monotonic()  # the next is due a whole period later
            self.left_out += 1
            if self.left_out == 1:
                self.progress.say(
                    f"learner: no checkpoint can be written ({error}): it is left out, those "
                    "before it stay, and training goes on; make room, and they are written again"
                )
            return
        if self.left_out:
            were = "1 was" if self.left_out == 1 else f"{self.left_out} were"
            self.progress.say(f"learner: checkpoints are written again: {name}; {were} left out")
            self.left_out = 0

    def save(self, name: str, *, delete: bool = True) -> None:
        """A checkpoint of this moment; on a full disk the oldest one makes room for it, unless all
        are to be kept (`delete`: not again where that did not help)."""
        folder, args = self.args.run / "checkpoints", self.args
        judged = self.candidates if self.judge is None else self.judge.candidates
        try:
            save(self.learner, self.spec, args.seed, args.run, name, judged)
        except OSError as full:
            no_room = delete and full.errno in (errno.ENOSPC, errno.EDQUOT)
            gone = checkpoint.make_room(folder) if no_room and args.checkpoints_keep else None
            if gone is None:
                raise
            self.progress.say(f"learner: {full}: deleted the oldest checkpoint, {gone}")
            save(self.learner, self.spec, args.seed, args.run, name, judged)
        checkpoint.prune(folder, args.checkpoints_keep, name)
        self.saved_at = time.monotonic()

    def log(self, update: Update | None) -> None:
        """A line of metrics and a line for the person watching."""
        now, step = time.monotonic(), self.learner.step
        rate = (self.updates - self.logged_updates) / max(now - self.logged_at, 1e-9)
        info = self.client.table(self.args.table)
        if self.client.incarnation == self.incarnation:
            self.items = info.count
        self.updated += self.client.flush()
        waiting = fraction(self.phases.seconds, "wait", STEP)
        shares = self.phases.shares()
        limited = shares.get("phase/limited", 0.0)
        values = {
            "charts/beta": self.learner.beta(),
            "replay/size": info.count,
            "replay/inserted": info.inserted,
            "replay/ratio": info.sampled / max(info.inserted, 1),
            "replay/age": float(np.mean(self.ages)) if self.ages else None,
            "replay/stale": self.updated.stale,
            "perf/learner_sps": rate,
            "perf/wait_fraction": None if self.args.gradients else waiting,
            "perf/limited_fraction": limited,
            "weights/version": self.client.weights_version,
        }
        if update is not None:
            values |= update.scalars()
        self.run.log(step, **values, **shares)
        self.progress.show(
            f"learner: step {step}, {rate:.0f}/s, {self.what_is_left(rate)} | replay {info.count} "
            f"items, {values['replay/ratio']:.1f} samples per insert | waiting {waiting:.1%}, "
            f"held by the limiter {limited:.0%}"
        )
        self.logged_at, self.logged_updates = now, self.updates
        self.ages.clear()

    def what_is_left(self, rate: float) -> str:
        """Until --updates; a run without an end goes on until it is solved or stopped."""
        if self.args.updates > 0:
            return left(self.args.updates - self.learner.step, rate)
        return "until solved" if self.judge is not None else "until stopped"

    def main(self) -> None:
        """Connects and trains, again and again where the server goes and comes back."""
        while not self.stop.asked and self.verdict is None:
            try:
                self.connect()
                if self.args.gradients:
                    self.keep_weights()
                elif self.args.turns:
                    self.train_in_turns()
                else:
                    self.train()
                self.complete = self.done() and not self.stop.asked
                return
            except (Stopped, Ended) as ended:
                self.progress.say(f"learner: {ended}")
                return
            except ReplayError as lost:
                if not lost_contact(lost):
                    raise
                again = f"; trying again for up to {self.args.patience:g} s"
                self.progress.say(f"learner: {describe(lost)}{again * (not self.stop.asked)}")
                self.close_client()

    def close_client(self) -> None:
        """Gives the session up without asking the server for anything it may not answer."""
        if self.client is None:
            return
        with warnings.catch_warnings():
            # priorities that a server which is gone has not set: the loss of contact was reported
            warnings.simplefilter("ignore", RuntimeWarning)
            self.client.close(timeout=0.2)
        self.client = None

    def close(self) -> None:
        """A last checkpoint, what the time went to, then everything this program owns."""
        learned = self.learner is not None and self.learner.step > self.begun_at
        if learned and self.leads:
            try:
                self.save(f"step-{self.learner.step:09d}")
            except (OSError, WeightsError) as error:
                self.lost = error
        if self.replicas is not None:  # who may wait for one that is gone: nothing is lost by then
            self.replicas.leave()
            self.replicas.close()
        for line in (self.central, self.turns):
            if line is not None:
                line.close()
        if self.learner is not None:
            self.run.event(event=FINISHED if self.complete else ENDED, step=self.learner.step)
        if learned:
            self.progress.say(f"learner: step {self.learner.step}{self.spent()}")
        self.close_client()
        if self.judge is not None:
            self.judge.close()
        self.run.close()
        self.progress.close()

    def spent(self) -> str:
        """How the time was spent, for a person; "" where no step was made."""
        if not self.phases.all:
            return ""
        if self.args.gradients:
            return f"; of its time {self.phases.text()}"
        waiting = fraction(self.phases.all, "wait", STEP)
        return (
            f"; of its time {self.phases.text()}; its steps waited for replay {waiting:.2%} of "
            "theirs"
        )


def has_learned(folder: Path, beside: Path | None = None) -> bool:
    """Whether a learner has made a step in this run folder: one that met no server has not, nor
    one that only took checkpoints over from the run `beside` it."""
    origin = None if beside is None else str(beside.resolve())
    origins = checkpoint.origins(folder / "checkpoints")
    if any(origin is None or each != origin for _, each in origins):
        return True
    begun = max((step for step, _ in origins), default=0)
    return any(line.get("step", 0) > begun for line in read_metrics(folder, NAME))


def newest_of(folder: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """The newest whole checkpoint of a run; WeightsError says how to begin where it has none.

    `say` gets a line for each newer one that is damaged.
    """
    newest = checkpoint.latest(folder / "checkpoints", lambda line: say(f"learner: {line}"))
    if newest is not None:
        return newest
    again = "begin another run" if has_learned(folder) else "begin it afresh"
    where = "a new folder" if has_learned(folder) else str(folder)
    raise WeightsError(
        f"--resume {folder}: no whole checkpoint is there to go on from; {again} with --run "
        f"{where}, and without --resume"
    )
