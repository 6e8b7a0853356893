"""Every option of a run's programs, in one place: their flags, and the keys of run.toml.

What all have in common, then actor, learner and demo; each has the preset's settings (presets.py)
as options too. Knows neither torch nor a loop, so that every program can read the whole file and
name what none of them has.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ..errors import ConfigError
from ..support.arguments import Parser, add_options, argument, option
from ..support.values import HUGE, SECONDS_MAX, real, whole
from . import runfile
from .presets import LOG_PROB, ONLY, PRESETS, SEED_MAX, Preset, changed, preset, preset_for, task_of
from .runs import Run, commit
from .wandb_run import require_wandb

BOUNDS = {  # (least, most) of the options below, wherever one has this name
    "seed": (0, SEED_MAX),
    "number": (0, None),
    "unacknowledged_max": (0, None),
    "updates": (0, None),
    "evaluate_every": (1, None),
    "checkpoints_keep": (0, None),
    "episodes": (1, None),
}


AMOUNTS = {  # (least, most) of options that are real numbers; NaN is none
    "solve_at": (-HUGE, HUGE),
    "checkpoint_seconds": (0.0, SECONDS_MAX),
    "patience": (0.0, SECONDS_MAX),
}


class Bounded:
    """Options that are within BOUNDS and AMOUNTS, or a ConfigError."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name in AMOUNTS and getattr(self, field.name) is not None:
                real(field.name, getattr(self, field.name), *AMOUNTS[field.name])
            if field.name in BOUNDS:
                whole(field.name, getattr(self, field.name), *BOUNDS[field.name])


@dataclass
class Common(Bounded):
    """The options that every program of a run has."""

    preset: str = option(f"One of {', '.join(PRESETS)}; empty: the one for --env.", "")
    seed: int = option("Seed of everything this program draws, 0 to 2^32 - 1.", 1)
    run: Path = option("Run folder.", Path("runs/default"), shown="FOLDER")
    tensorboard: bool = option("Write event files to RUN/tensorboard.", True)
    wandb: bool = option("Send metrics to wandb; WANDB_MODE=offline needs no network.", False)
    asked: ClassVar[frozenset[str]] = frozenset()  # settings given by flags or a file


@dataclass
class Actor(Common):
    """The options of an actor."""

    server: str = option("Address of the replay server.", "udp://127.0.0.1:7400", shown="URL")
    table: str = option("Table the steps go to.", "main")
    number: int = option("Which actor this is, from 0.", 0)
    unacknowledged_max: int = option(
        "Steps this actor may be ahead of what the server acknowledged; 0: as --steps-ahead, "
        "or ppo's share of a rollout.",
        0,
    )
    environments: str = option(
        "Where workers step the environments: tcp://HOST:PORT, several with commas; empty: here.",
        "",
        shown="URLS",
    )
    step_seconds: float = option("Seconds that a step of a worker's environments may take.", 30.0)
    turns: str = option(
        "Steps in turn with the learner that has --turns there: the run repeats.", "", shown="URL"
    )
    ledger: bool = option("Write every acknowledged (key, hash of the row) to RUN.", False)
    patience: float = option(
        "Seconds to wait for a server or learner that is gone, or a writer place.", 600.0
    )


@dataclass
class Train(Common):
    """The options of a learner."""

    server: str = option("Address of the replay server.", "udp://127.0.0.1:7400", shown="URL")
    table: str = option("Table the batches come from.", "main")
    resume: Path | None = option(
        "Run folder to go on from; its options are taken over.", None, saved=False, shown="FOLDER"
    )
    gradients: str = option(
        "Draws no batches: applies gradients of other learners, who send them to this tcp://HOST:"
        "PORT.",
        "",
        shown="URL",
    )
    central: str = option(
        "Sends gradients to the learner that has --gradients there, and takes its weights.",
        "",
        shown="URL",
    )
    turns: str = option(
        "Learns in turn with all actors, who have --turns there: the run repeats.", "", shown="URL"
    )
    insecure: bool = option(
        "Serve --gradients and --turns to other machines too: whoever reaches the port is trusted.",
        False,
    )
    number: int = option("Which of several learners with --central this is, from 1.", 0)
    device: str = option("Where the nets live: cpu, cuda, or auto: a GPU if there is one.", "auto")
    compile: bool = option("Compile the nets (torch.compile) before they are used first.", False)
    updates: int = option("Learner steps after which training ends; 0 is no end.", 0)
    solve_at: float | None = option("Mean greedy return that counts as solved.", None)
    evaluate_every: int = option("Learner steps between candidates for solved.", 500)
    checkpoint_seconds: float = option("Seconds between checkpoints.", 5.0)
    checkpoints_keep: int = option("Newest checkpoints kept, beside solved ones; 0: all.", 10)
    patience: float = option("Seconds to wait for a server that is gone.", 600.0)


@dataclass
class Demo(Common):
    """The options of the demo."""

    run: Path = option(
        "Run folder; a new one below runs/ where none is named.", Path(), shown="FOLDER"
    )
    plan: str = option(
        "Which fragments of the loop share a process: a plan that ships, or a file .toml.",
        "single-learner-coarse",
    )
    explain: bool = option(
        "Print the loop's graph and how the plan cuts it; start nothing.", False, saved=False
    )
    transport: str = option(
        "udp, zmq, dpdk (as root), dpdk-memif, or loopback: all in one process, in turn; not "
        "given: the plan's.",
        "",
    )
    engine: str = option(
        "What starts the processes: processes (this program, here), or ray; not given: the plan's.",
        "",
    )
    ray_address: str = option(
        "HOST:PORT of a Ray cluster, or auto: the one that runs here; empty: RAY_ADDRESS, or a Ray "
        "of this run's own.",
        "",
        shown="HOST:PORT",
    )
    insecure: bool = option("Processes on several hosts let in whoever reaches their ports.", False)
    solve_at: float | None = option(
        "Mean greedy return over 20 and 20 episodes that is solved; not given: the preset's mark.",
        None,
    )
    minutes: float = option("Longest training time.", 6.0)
    require_solved: bool = option("Exit code 1 where it is not solved by then.", False)
    metrics: str = option(
        "HOST:PORT where its server serves OpenMetrics; empty: nowhere.", "", shown="HOST:PORT"
    )
    page: str = option(
        "HOST:PORT of this machine where a browser sees the run as it goes; empty: nowhere.",
        "",
        shown="HOST:PORT",
    )


@dataclass
class Evaluate(Bounded):
    """Judging a checkpoint; in no run.toml, since it is not part of a run."""

    checkpoint: Path = argument("A checkpoint's JSON file, or a run folder: its newest, solved.")
    episodes: int = option("Greedy episodes.", 100)
    seed: int = option("Seed of the episodes.", 1)
    video: Path | None = option("Film of the first episode: a file .mp4, or a folder.", None)


@dataclass
class Judge(Bounded):
    """Judging all agents of a task together as they learn."""

    run: Path = argument("The run's folder, in which each agent has one of its own.")
    env: str = option("The task: agents:MODULE.", "", shown="ID")
    solve_at: float | None = option(
        "Mean over agents of the greedy return that counts as solved; to be given.", None
    )
    seed: int = option("Seed of the episodes.", 1)


PROGRAMS = {"actor": (Actor, Preset), "learner": (Train, Preset), "demo": (Demo, Preset)}
Args = TypeVar("Args", bound=Common)


def parser_of(cls: type, command: str, sentence: str) -> argparse.ArgumentParser:
    """The command line of a program: its own options, the preset's settings, --config."""
    parser = Parser(prog=f"replay-server {command}", description=sentence)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=(
            "A run.toml with the same names; flags win over it. RUN/config-*.toml is such a file."
        ),
    )
    add_options(parser, cls, keep_unset=True, show_defaults=True)
    settings = parser.add_argument_group("settings that replace the preset's")
    add_options(settings, Preset, keep_unset=True)
    return parser


def values_in(parser: argparse.ArgumentParser, path: Path | None) -> dict[str, dict[str, Any]]:
    """What the file gives each program; {} without a file. A mistake ends the program."""
    try:
        return {} if path is None else runfile.load(path, PROGRAMS)
    except ConfigError as error:
        parser.error(str(error))


def given_to(
    program: str, parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> dict[str, Any]:
    """The values of the command line, and of the file it names; a mistake ends the program."""
    given = vars(parser.parse_args(argv))
    return values_in(parser, given.pop("config")).get(program, {}) | given


def resolved(cls: type[Args], values: Mapping[str, Any]) -> tuple[Args, Preset]:
    """The program's options, and the preset with what replaces its settings.

    ValueError or ConfigError, of one sentence, where they are not to be had.
    """
    names = {field.name for field in dataclasses.fields(cls)}
    args = cls(**{name: value for name, value in values.items() if name in names})
    args.preset = preset_for(args.preset, str(values.get("env", "")))
    if args.wandb:
        require_wandb()
    settings = {name: value for name, value in values.items() if name not in names}
    args.asked = frozenset(settings)
    usual = preset(args.preset)
    chosen = changed(usual, **settings)
    for name, algorithms in ONLY.items():
        if chosen.algorithm not in algorithms and getattr(chosen, name) != getattr(usual, name):
            raise ConfigError(
                f"--{name.replace('_', '-')} is a setting of {' and '.join(algorithms)}: with "
                f"{chosen.algorithm} it would do nothing; leave it out"
            )
    if task_of(chosen.env) != preset(args.preset).env and "mark" not in settings:
        chosen = changed(chosen, mark=None)  # a preset's mark is that of its own environment
    return args, chosen


def checked(
    cls: type[Args],
    parser: argparse.ArgumentParser,
    values: Mapping[str, Any],
    check_env: Callable[[str, str], None],
) -> tuple[Args, Preset]:
    """As `resolved`, and `check_env` checks that the algorithm can play the environment; a mistake
    ends the program."""
    try:
        args, settings = resolved(cls, values)
        check_env(settings.env, settings.algorithm)
        return args, settings
    except (ValueError, ConfigError) as wrong:
        parser.error(str(wrong))


def parse(
    cls: type[Args],
    program: str,
    command: str,
    sentence: str,
    argv: Sequence[str] | None,
    check_env: Callable[[str, str], None],
) -> tuple[Args, Preset]:
    """The command line, and the file it names, as a program's options and settings."""
    parser = parser_of(cls, command, sentence)
    return checked(cls, parser, given_to(program, parser, argv), check_env)


def values_of(args: Common, settings: Preset) -> dict[str, Any]:
    """All options and settings of a program, by name."""
    return {**runfile.saved(args), **dataclasses.asdict(settings)}


def expect_items(settings: Preset, table: Any) -> None:
    """ConfigError where a server's table does not hold what the algorithm learns from. table: a
    RemoteTable."""
    if settings.on_policy:
        table.expect_sequences(settings.rollout, LOG_PROB)
        return
    table.expect_transitions(settings.n, settings.stack)


def as_served(
    settings: Preset, args: Common, table: Any, say: Callable[[str], None] = print
) -> Preset:
    """The settings with what the server's table decides, as they belong into a run's record.

    table: a RemoteTable. `say` gets a sentence where options, or the record of a run that is
    resumed, replace the preset's and the table has others.
    """
    ratio, usual = table.samples_per_insert, preset(args.preset)
    served = {
        "alpha": table.alpha,
        "capacity": table.capacity,
        "min_size": table.min_size,
        "steps_per_update": settings.batch / ratio if ratio > 0.0 else None,
    }
    if settings.on_policy:  # its table is a queue: nothing else is decided there
        served = {"capacity": table.capacity}
    differs = {n: v for n, v in served.items() if not _same(getattr(settings, n), v)}
    asked = args.asked | {n for n in served if getattr(settings, n) != getattr(usual, n)}
    vain = {n: v for n, v in differs.items() if n in asked}
    if vain:
        asked = " ".join(f"--{n.replace('_', '-')} {getattr(settings, n)}" for n in vain)
        there = ", ".join(f"{n} {v}" for n, v in vain.items())
        say(
            f"{asked}: the server's table {table.name!r} decides, and has {there}; serve a table "
            "with other numbers where you want them"
        )
    return changed(settings, **differs)


def _same(one: float | None, other: float | None) -> bool:
    """Alike but for rounding: a ratio was divided twice."""
    return one == other if one is None or other is None else math.isclose(one, other)


def keep(name: str, command: str, args: Common, settings: Preset) -> None:
    """RUN/config-NAME.toml, which starts program `name` again as it is now."""
    save(args.run / f"config-{name}.toml", command, values_of(args, settings))


def begin_run(
    name: str,
    command: str,
    args: Common,
    settings: Preset,
    say: Callable[[str], None] = print,
    take_over: Callable[[], None] = lambda: None,
) -> Run:
    """The run folder of program `name`; `say` as Run's. `take_over` copies what the run continues
    from, before the folder has options from which it could be resumed.

    Options of an earlier life stay there until `keep`: a program that starts nothing changes none.
    """
    values = values_of(args, settings)
    shown = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
    run = Run(args.run, name, shown, tensorboard=args.tensorboard, wandb=args.wandb, say=say)
    run.begin()
    take_over()
    if not (args.run / f"config-{name}.toml").exists():
        keep(name, command, args, settings)
    return run


def save(path: Path, command: str, values: Mapping[str, Any], **tables: Mapping[str, Any]) -> None:
    """A run.toml that starts `command` again."""
    comment = f"replay-server {command} --config {path}\ncommit {commit()}"
    runfile.write(path, comment, values, **tables)
