"""`replay-server learner train` learns from prioritized batches; `evaluate` judges a checkpoint.

    replay-server learner train --server udp://127.0.0.1:7400 --run runs/first
    replay-server learner train --config run.toml            options from a file
    replay-server learner train --resume runs/first          goes on from its newest checkpoint
    replay-server learner evaluate runs/first --episodes 100 --seed 7 --video first.mp4

Training ends when it is solved (--solve-at), at --updates, or at a signal. Solved means: frozen
weights reach the mark over 20 greedy episodes and again over 20 others; then 100 more are played
and reported.
"""

from __future__ import annotations

import errno
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from replay_server.support.interrupts import INTERRUPTED, import_quietly, run

import_quietly(__name__)

import numpy as np
import torch

from learner import checkpoint
from learner.device import DeviceError, device_from
from learner.dqn import NotFinite, Update
from learner.evaluate import actions_of
from learner.judge import Judge, evaluate, save
from learner.learner import Learner
from learner.video import Film, VideoError
from replay_server import Batch, Batches, Client, ReplayError, Spec, SpecError
from replay_server.errors import ConfigError
from replay_server.requests.priorities import UpdateResult
from replay_server.support.arguments import nearest, parse
from replay_server.training import options, runfile
from replay_server.training.contact import Stop, Stopped, connect, describe, lost_contact
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import check_columns, check_playable, make_env
from replay_server.training.presets import Preset
from replay_server.training.progress import Progress, left
from replay_server.training.runs import Phases, fraction, read_metrics
from replay_server.training.weights import WeightsError

COMMAND = "learner train"
NAME = "learner"
LOG_S = 1.0
STEP = ("wait", "fetch", "train", "update")  # the phases of a learner step


class Program:
    """The learner, its client, and what it does between updates."""

    def __init__(self, args: options.Train, settings: Preset, stop: Stop) -> None:
        self.args, self.settings, self.stop = args, settings, stop
        self.device = device_from(args.device)
        self.progress = Progress()
        say, take_over = self.progress.say, self.take_over
        self.run = options.begin_run(NAME, COMMAND, args, settings, say, take_over)
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
        self.logged_step = self.begun_at = 0
        self.candidates = 0  # judged in earlier lives of the run
        self.left_out = 0  # checkpoints in a row, up to now, that could not be written
        self.lost: OSError | WeightsError | None = None  # why there is no last checkpoint

    def connect(self) -> None:
        """A session; at the first one the nets, which need the table's spec."""
        server, batch = self.args.server, self.settings.batch
        self.version = 0  # one that was published as contact was lost may be there or not
        patience, say = self.args.patience, self.progress.say
        self.client = connect(server, patience, self.stop, say, batch=batch)
        table = self.client.table(self.args.table)
        table.expect_transitions(self.settings.n, self.settings.stack)
        spec = table.spec
        env = self.settings.env
        with closing(make_env(env, protocol=self.settings.protocol)) as made:
            check_columns(made, env, spec, self.args.table)
        if self.learner is None:
            self.settings = options.as_served(
                self.settings, self.args, table, lambda line: say(f"learner: {line}")
            )
            self.build(spec)
            if not self.done():
                options.keep(NAME, COMMAND, self.args, self.settings)
            self.incarnation, self.items = self.client.incarnation, table.count
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
            actions=actions_of(self.settings, spec),
            preset=self.settings,
            seed=self.args.seed,
            device=self.device,
        )
        if self.args.resume is not None:
            self.go_on()
        self.logged_step = self.begun_at = self.learner.step
        if self.args.solve_at is not None:
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
        """The online net as a new version; its number is the server's, one above the last: where it
        is more, somebody else publishes here, and the person watching is told so once."""
        before, self.version = self.version, self.client.publish_weights(self.learner.weights())
        self.published_at = time.monotonic()
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
            self.settings.batch,
            beta=lambda: self.learner.beta(),
            prefetch=self.settings.prefetch,
            device=self.device,
        )
        with batches:
            while not self.done():
                if self.is_another():  # its actors wait for weights, and no batch comes before them
                    self.publish()
                batch = self.next_batch(batches)
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

    def next_batch(self, batches: Batches) -> Batch | None:
        """The next batch, or None for now; its time as `limited`, `wait` and `fetch`.

        limited: the limiter held it back. wait: the server was free to send it, and it was not
        here yet. fetch: our own work, landing it and asking for a further one.
        """
        waited, limited, begin = batches.waited, batches.limited, time.perf_counter()
        batch = batches.get(timeout=0.25)
        spent = time.perf_counter() - begin
        waited, limited = batches.waited - waited, batches.limited - limited
        self.phases.add("wait", waited)
        self.phases.add("limited", limited)
        self.phases.add("fetch", max(spent - waited - limited, 0.0))
        return batch

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
        step, now = self.learner.step, time.monotonic()
        late = now - self.published_at >= self.settings.publish_seconds
        if step % self.settings.publish_every == 0 or late:
            with self.phases("publish"):
                self.publish()
        if self.judge is not None and step % self.args.evaluate_every == 0:
            with self.phases("evaluate"):
                self.verdict = self.judge.verdict_on(self.learner)
        if now - self.saved_at >= self.args.checkpoint_seconds:
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
        rate = (step - self.logged_step) / max(now - self.logged_at, 1e-9)
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
            "perf/wait_fraction": waiting,
            "perf/limited_fraction": limited,
            "weights/version": self.client.weights_version,
        }
        if update is not None:
            values |= {
                "losses/td": float(update.td.mean()),
                "losses/loss": update.loss,
                "losses/q_values": update.q_mean,
                "losses/grad_norm": update.gradient_norm,
            }
        self.run.log(step, **values, **shares)
        self.progress.show(
            f"learner: step {step}, {rate:.0f}/s, {self.what_is_left(rate)} | replay {info.count} "
            f"items, {values['replay/ratio']:.1f} samples per insert | waiting {waiting:.1%}, "
            f"held by the limiter {limited:.0%}"
        )
        self.logged_at, self.logged_step = now, step
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
                self.train()
                return
            except Stopped as ended:
                self.progress.say(f"learner: {ended}")
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
        if self.learner is not None and self.learner.step > self.begun_at:
            try:
                self.save(f"step-{self.learner.step:09d}")
            except (OSError, WeightsError) as error:
                self.lost = error
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


def other_ways(folder: Path) -> str:
    """The advice for a run that was to begin in a folder that holds a learned one."""
    whole = checkpoint.latest(folder / "checkpoints") is not None
    return f"go on with --resume {folder}, or " * whole + "name another folder with --run"


def parse_train(argv: list[str]) -> tuple[options.Train, Preset]:
    """`train`'s options; with --resume, those of the run it goes on from, unless given anew.

    A run in which a learner has learned is not begun again: its checkpoints would stand for
    another's.
    """
    parser = options.parser_of(options.Train, COMMAND, __doc__.splitlines()[0])
    given = options.given_to(NAME, parser, argv)
    resume = given.get("resume")
    if resume is not None:
        try:
            given = resumed_options(resume, given)
        except (ConfigError, WeightsError) as error:
            parser.error(str(error))
    args, settings = options.checked(options.Train, parser, given, check_playable)
    if resume is None and has_learned(args.run):
        parser.error(f"{args.run} holds what a learner has learned: {other_ways(args.run)}")
    return args, settings


def resumed_options(resume: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The options of the run at `resume`, replaced by those `given` anew by flags or by a file.

    ConfigError or WeightsError, of one sentence, where the run cannot go on with them.
    """
    try:
        before = runfile.load(resume / f"config-{NAME}.toml", options.PROGRAMS)[NAME]
    except ConfigError as error:
        raise ConfigError(f"--resume {resume}: no run to go on from ({error})") from error
    newest_of(resume)
    now = {**before, "run": resume, **given}
    if now["run"].resolve() != resume.resolve() and has_learned(now["run"], resume):
        raise ConfigError(
            f"--run {now['run']} holds what a learner has learned, which would be mixed with what "
            f"{resume} has: {other_ways(now['run'])}"
        )
    begun = before.get("preset", "")
    now["preset"] = now.get("preset") or begun  # an empty one counts as not given
    if now["preset"] != begun:
        raise ConfigError(
            f"--preset {now['preset']}: {resume} was begun as {begun!r} and goes on with its "
            "settings; leave --preset out and give single settings anew, or begin another run, "
            "with --run alone"
        )
    was = before.get("optimizer")
    if was is not None and was != now.get("optimizer"):
        raise ConfigError(
            f"--optimizer {now.get('optimizer')}: the checkpoints of {resume} are those of {was}, "
            "and another optimizer cannot go on from them; leave --optimizer out, or begin another "
            "run with --run"
        )
    return now


def train(argv: list[str]) -> int:
    """The training program; returns its exit code."""
    args, settings = parse_train(argv)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    print(f"learner: seed {args.seed}, preset {args.preset}, run {args.run}", flush=True)
    with Stop() as stop:
        try:
            program = Program(args, settings, stop)
        except (ReplayError, DeviceError, WeightsError, OSError) as error:
            print(f"learner: {error}", file=sys.stderr)
            return 2
        try:
            try:
                program.main()
            finally:
                program.close()
        except (ReplayError, WeightsError, SpecError, EnvError, NotFinite, OSError) as error:
            program.progress.close()
            where = isinstance(error, OSError) and error.errno and not error.filename
            print(f"learner: {error}{f' (below {args.run})' * bool(where)}", file=sys.stderr)
            return 2
        finally:
            if program.lost is not None:
                print(f"learner: no last checkpoint: {program.lost}", file=sys.stderr)
    if program.verdict is not None:
        print(f"solved: mean return {program.verdict['eval_return_mean']:.1f} over 100 episodes")
        return 0  # the solved checkpoint is one of these very weights
    return 0 if program.lost is None else 2


def judge(argv: list[str]) -> int:
    """The evaluation program; returns its exit code."""
    sentence = "Greedy episodes of a checkpoint's frozen weights."
    args = parse(options.Evaluate, sentence, argv, "replay-server learner evaluate")
    torch.set_num_threads(1)
    if not args.checkpoint.exists():
        print(
            f"evaluate: {args.checkpoint} does not exist; {checkpoint.NAME_ONE}",
            file=sys.stderr,
        )
        return 2
    with Progress() as progress:
        try:
            path = checkpoint.of(args.checkpoint, lambda line: progress.say(f"evaluate: {line}"))
            if args.checkpoint.is_dir() and not path.stem.startswith("solved-"):
                progress.say(f"evaluate: no whole solved checkpoint yet: judging {path.stem}")
            film = None if args.video is None else Film(args.video)
            verdict = evaluate(
                path,
                args.episodes,
                args.seed,
                film=film,
                show=lambda far: progress.show(f"evaluate: {far}"),
                say=lambda line: progress.say(f"evaluate: {line}"),
            )
        except (WeightsError, VideoError, EnvError) as error:
            progress.close()
            print(f"evaluate: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            progress.say("interrupted: nothing was judged, and no film is left")
            return INTERRUPTED
    returns = verdict.returns
    print(
        f"{path.name}: mean return {returns.mean():.1f}, least {returns.min():.0f}, "
        f"{len(returns)} episodes, seed {args.seed}"
    )
    if film is not None:
        print(f"video: {film.path}: episode 0, return {returns[0]:.0f}, {film.frames} frames")
    return 0


def main(argv: list[str] | None = None) -> int:
    """`train` or `evaluate`."""
    argv = sys.argv[1:] if argv is None else argv
    programs = {"train": train, "evaluate": judge}
    if argv[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if argv and not argv[0].startswith("-") and argv[0] not in programs:
        close = nearest(argv[0], programs)
        said = f"no command {argv[0]!r}; the nearest is {close}"
        print(f"replay-server learner: {said}", file=sys.stderr)
        return 2
    if not argv or argv[0] not in programs:
        print(
            "replay-server learner: say what it is to do: train or evaluate, as in "
            f"`replay-server learner {shlex.join(['train', *argv])}`; --help has more",
            file=sys.stderr,
        )
        return 2
    return programs[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(run(main))
