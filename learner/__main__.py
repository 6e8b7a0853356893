"""`replay-server learner train` learns from prioritized batches; `evaluate` judges a checkpoint.

    replay-server learner train --server udp://127.0.0.1:7400 --run runs/first
    replay-server learner train --config run.toml            options from a file
    replay-server learner train --resume runs/first          goes on from its newest checkpoint
    replay-server learner evaluate runs/first --episodes 100 --seed 7 --video first.mp4
    replay-server learner judge runs/two --env agents:MODULE  several agents, as `run` starts it

Training ends when it is solved (--solve-at), at --updates, or at a signal. Solved means: frozen
weights reach the mark over 20 greedy episodes, again over 20 others, and over 100 more, which are
reported.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from replay_server.support.interrupts import INTERRUPTED, import_quietly, run

import_quietly(__name__)

import torch

from learner import checkpoint, joint
from learner.judge import evaluate
from learner.optimizing import NotFinite
from learner.program import COMMAND, NAME, Program, has_learned, newest_of
from learner.replicas import rank_and_count
from learner.video import Film, VideoError
from replay_server import ReplayError, SpecError
from replay_server.errors import ConfigError
from replay_server.support.arguments import nearest, parse
from replay_server.training import options, runfile
from replay_server.training.agents import is_joint
from replay_server.training.contact import Stop, Stopped
from replay_server.training.device import DeviceError
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import check_env, check_playable
from replay_server.training.presets import Preset
from replay_server.training.progress import Progress
from replay_server.training.runs import Run
from replay_server.training.weights import WeightsError

JUDGE = "judge"  # its name in a run folder
APART = {"gradients": "kept weights for others at", "turns": "took turns with actors at"}


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
    for wrong, sentence in (
        (args.gradients and args.central, "--gradients and --central: a learner has one of them"),
        (args.central and args.number < 1, "--central: such learners are numbered: say --number 1"),
        (
            args.number and not args.central,
            f"--number {args.number}: is for learners with --central",
        ),
        (
            is_joint(settings.env) and args.solve_at is not None,
            "--solve-at: agents of a task are judged together: by `replay-server learner judge`",
        ),
    ):
        if wrong:
            parser.error(sentence)
    if resume is None and not args.central and has_learned(args.run):
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
    for name, did in APART.items():
        if (url := before.get(name)) and name not in given:
            raise ConfigError(
                f"--resume {resume}: that learner {did} {url}; say --{name} {url} where that is to "
                f"be so again, or --{name} '' for one that learns by itself"
            )
    was, wanted = before.get("algorithm", "dqn"), now.get("algorithm", "dqn")
    if was != wanted:
        raise ConfigError(
            f"--algorithm {wanted}: the checkpoints of {resume} are those of {was}, which has "
            "other nets; leave --algorithm out, or begin another run with --run"
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
    torch.manual_seed(args.seed + (rank_and_count()[0] or args.number))  # noise of each its own
    print(f"learner: seed {args.seed}, preset {args.preset}, run {args.run}", flush=True)
    with Stop() as stop:
        try:
            program = Program(args, settings, stop)
        except Stopped as ended:
            print(f"learner: {ended}", flush=True)
            os._exit(0)  # a thread of torch's waits on, and would abort an exit in order
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


def evaluated(argv: list[str]) -> int:
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
            tell = partial(_evaluating, progress)
            if together := joint.of_run(args.checkpoint, tell):
                return evaluated_together(together, args, progress)
            path = checkpoint.of(args.checkpoint, tell)
            if args.checkpoint.is_dir() and not path.stem.startswith("solved-"):
                progress.say(f"evaluate: no whole solved checkpoint yet: judging {path.stem}")
            film = None if args.video is None else Film(args.video)
            verdict = evaluate(
                path,
                args.episodes,
                args.seed,
                film=film,
                show=lambda far: progress.show(f"evaluate: {far}"),
                say=tell,
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


def _evaluating(progress: Progress, line: str) -> None:
    progress.say(f"evaluate: {line}")


def evaluated_together(paths: list[Path], args: options.Evaluate, progress: Progress) -> int:
    """The same of the agents of one run, each by its own checkpoint."""
    if args.video is not None:
        raise VideoError("--video: a task of several agents is not filmed; leave it out")
    returns = joint.play(
        joint.players_of(paths),
        args.episodes,
        "evaluate",
        args.seed,
        say=partial(_evaluating, progress),
        show=lambda far: progress.show(f"evaluate: {far}"),
    ).returns
    names = ", ".join(f"{path.parts[-3]}/{path.name}" for path in paths)
    print(
        f"{names}: mean return {returns.mean():.1f}, least {returns.min():.1f}, {len(returns)} "
        f"episodes, seed {args.seed}"
    )
    return 0


def judge(argv: list[str]) -> int:
    """The program that judges several agents as they learn; returns its exit code."""
    sentence = "Judges all agents of a task together as they learn."
    args = parse(options.Judge, sentence, argv, "replay-server learner judge")
    torch.set_num_threads(1)
    if args.solve_at is None or not is_joint(args.env):
        wants = "--solve-at" if is_joint(args.env) else "--env agents:MODULE"
        print(f"judge: say {wants}, as in docs/training.md, Several agents", file=sys.stderr)
        return 2
    with Stop() as stop:
        try:
            check_env(args.env)
            run = Run(args.run, JUDGE, vars(args), tensorboard=False)
            run.begin()
            try:
                verdict = joint.watch(run, args.env, args.solve_at, args.seed, stop)
            finally:
                run.close()
        except (EnvError, ReplayError, WeightsError, OSError) as error:
            print(f"judge: {error}", file=sys.stderr)
            return 2
    if verdict is not None:
        print(f"solved: mean return {verdict['eval_return_mean']:.1f} over 100 episodes")
    return 0


def main(argv: list[str] | None = None) -> int:
    """`train`, `evaluate` or `judge`."""
    argv = sys.argv[1:] if argv is None else argv
    programs = {"train": train, "evaluate": evaluated, "judge": judge}
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
            "replay-server learner: say what it is to do: train, evaluate or judge, as in "
            f"`replay-server learner {shlex.join(['train', *argv])}`; --help has more",
            file=sys.stderr,
        )
        return 2
    return programs[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(run(main))
