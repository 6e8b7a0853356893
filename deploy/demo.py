"""The main job on one machine: CartPole learned through the replay server, in three programs.

    server    replay-server serve RUN/server.toml
    actor     replay-server actor            one process, 8 environments
    learner   replay-server learner train    until solved, then 100 greedy episodes

All three write into one run folder and take their options from its config.toml; this program
watches their metrics, shows a line of progress, and ends them in order. What it learns of the run
it writes to RUN/summary.json and names in its last line. Not solved within --minutes is an outcome:
exit code 0, but 1 with --require-solved, which needs a mark (Atari has none: say --solve-at).
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.agents import over_agents, require_shared
from deploy.curve import draw_curve
from deploy.engines import require_installed
from deploy.explain import explained
from deploy.launch import CONFIG
from deploy.page import check_address, page_at, require_free
from deploy.plan import (
    ENGINES,
    JOINT,
    NETS,
    TRANSPORTS,
    Plan,
    PlanError,
    load,
    require_placeable,
    require_served,
    require_workers,
    with_actors,
)
from deploy.plan_run import over_network, page_of
from deploy.table import table_for
from replay_server import ConfigError, ReplayError, SpecError
from replay_server.support.arguments import nearest
from replay_server.training import options, runfile
from replay_server.training.agents import agent_of, is_joint
from replay_server.training.backends import check_backend
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import check_playable, envs_of
from replay_server.training.presets import Preset, changed
from replay_server.training.runs import (
    METRICS,
    held,
    make_folder,
    write_json,
)

COMMAND = "demo"
ONE_PROGRAM = (
    "[{name}] {key}: actor and learner are one program under this plan, and would not have it; say "
    "it without a section where it is one of their common settings, or take another plan"
)
PLANNED = {*NETS, "environments", "turns", "gradients", "central", "number", "server"}
PLAN, ALONE = "single-learner-coarse", "gpu-only"


def run_folder(args: options.Demo) -> Path:
    """The folder named, or a new one."""
    if args.run != Path():
        return args.run
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"demo-{stamp}-seed{args.seed}"


def _more(spent: bool) -> str:
    """What to give a run that did not solve it; `spent`: it played all the steps it had."""
    if spent:
        return "let it play more with --env-steps, or take another --seed"
    return "give it more time with --minutes (make demo MINUTES=10), or another --seed"


def _judged(summary: Mapping[str, Any]) -> str:
    """How well the solved network plays, and after how long, for a person."""
    mean, seconds = summary["eval_return_mean"], summary["train_seconds"]
    best = summary.get("greedy_return_best")
    if mean is None and best is not None:
        return f"the best greedy mean of its evaluations was {best:.1f}"
    if mean is None:
        return "no greedy evaluation yet"
    return f"mean greedy return {mean:.1f}" + (f" after {seconds:.1f} s" if seconds else "")


def tables_of(
    given: Mapping[str, Any],
    in_file: Mapping[str, Mapping[str, Any]],
    values: Mapping[str, Any],
    together: bool,
) -> dict[str, dict[str, Any]]:
    """The options that only actor or learner has, and what the file says to one of them alone.

    given: the demo's command line, which wins. in_file: what the file says to each program. values:
    what RUN/config.toml holds for all programs. together: they are one program, which has no
    options that only one of them has. ValueError for what would do nothing.
    """
    tables = {}
    for name, cls in (("actor", options.Actor), ("learner", options.Train)):
        said = in_file.get(name, {})
        fields = {field.name for field in dataclasses.fields(cls)}
        own = runfile.saved(cls(**{key: said[key] for key in said if key in fields}))
        for key in PLANNED & own.keys():
            if own[key] != getattr(cls(), key):
                raise ValueError(
                    f"[{name}] {key} = {own[key]!r}: that is the plan's, which starts the {name}; "
                    "leave it out here, and say it in a plan of your own (--plan FILE.toml)"
                )
        tables[name] = {key: own[key] for key in own.keys() - PLANNED - values.keys() - {"run"}}
        usual = runfile.saved(cls())
        for key in tables[name] if together else ():
            if own[key] != usual[key]:
                raise ValueError(ONE_PROGRAM.format(name=name, key=key))
        alone = {key for key in said if key in values and key not in given}
        others = {key: said[key] for key in alone if said[key] != values[key]}
        for key in others if together else ():
            raise ValueError(ONE_PROGRAM.format(name=name, key=key))
        tables[name] |= others
    return tables


def planned(args: options.Demo, actors: int | None) -> Plan:
    """The plan that is asked for, with the transport and so many actors as are; PlanError.
    `--transport loopback` means all in one process, whose plan is gpu-only."""
    if args.transport == "loopback" and args.plan == PLAN:
        args.plan = ALONE
    plan = load(args.plan)
    if args.transport:
        alone = plan.policy == ALONE
        if alone != (args.transport == "loopback"):
            right = "loopback" if alone else ", ".join(TRANSPORTS[:-1])
            raise PlanError(
                f"--transport {args.transport}: the processes of plan {args.plan} meet over {right}"
            )
        plan = dataclasses.replace(plan, transport=args.transport)
    args.transport = plan.transport
    args.engine = args.engine or plan.engine
    if args.engine not in ENGINES:
        close = nearest(args.engine, ENGINES)
        raise PlanError(f"--engine: no engine {args.engine!r}; the nearest is {close!r}")
    plan = dataclasses.replace(plan, engine=args.engine)
    if args.engine != "ray" and (args.ray_address or args.insecure):
        flag = "--ray-address" if args.ray_address else "--insecure"
        raise PlanError(f"{flag} is of Ray's hosts, and the plan runs here: say --engine ray too")
    require_placeable(plan)
    require_installed(plan)
    if actors is not None:
        plan = with_actors(plan, actors)
    require_served(plan)
    return plan


def require_fit(plan: Plan, settings: Preset) -> None:
    """PlanError where these settings would make the plan's processes wait for one another, or do
    not divide among them."""
    require_workers(plan, settings.envs)
    learner = plan.process_of("learner")
    if plan.averaged and settings.batch % learner.replicas:
        near = max(settings.batch // learner.replicas, 1) * learner.replicas
        raise PlanError(
            f"--batch {settings.batch}: {plan.path}, line {learner.line}, has {learner.replicas} "
            f"learners who share it; the nearest is {near}"
        )
    rows, each = settings.envs * settings.actors, settings.steps_per_update
    apart = plan.synchronous and plan.policy != ALONE and not settings.on_policy
    if apart and each is not None and rows + each > settings.steps_ahead:
        raise PlanError(
            f"{plan.path} has turns: {rows} environments step before the learner learns, and "
            f"--steps-ahead {settings.steps_ahead} lets them be no further ahead; the nearest is "
            f"{math.ceil(rows + each)}"
        )


def require_queue(plan: Plan, settings: Preset) -> None:
    """PlanError where ppo's table cannot be: how many columns there are, its environment knows."""
    if settings.on_policy:
        try:
            for env in envs_of(settings.env):
                table_for(changed(settings, env=env), plan.in_turns)
        except (ConfigError, SpecError) as error:
            raise PlanError(
                f"--rollout {settings.rollout} --batch {settings.batch} --capacity "
                f"{settings.capacity}: {error}"
            ) from error


def require_devices(plan: Plan) -> None:
    """PlanError where a device of the plan is not there. torch is asked only where there is one;
    of a cluster's devices, Ray is."""
    for process in plan.processes if plan.engine == "processes" else ():
        if process.device.startswith("cuda"):
            from replay_server.training.device import DeviceError, device_from

            try:
                device_from(process.device)
            except DeviceError as error:
                raise PlanError(f"{plan.path}, line {process.line}: {error}") from error


def parsed(
    argv: list[str] | None, command: str = COMMAND
) -> tuple[options.Demo, Preset, dict[str, dict[str, Any]], Plan]:
    """The options and settings of a run, the tables of the programs it starts, and its plan."""
    parser = options.parser_of(options.Demo, command, __doc__.splitlines()[0])
    if any(word.partition("=")[0] == "--resume" for word in argv or ()):
        parser.error(
            "--resume: this begins a run; to go on with one, start `replay-server serve "
            "FOLDER/server.toml --url udp://127.0.0.1:7400`, actors at that --server, and "
            "`replay-server learner train --resume FOLDER --server udp://127.0.0.1:7400`"
        )
    given = vars(parser.parse_args(argv))
    config = given.pop("config")
    in_file = options.values_in(parser, config)
    args, settings = options.checked(
        options.Demo, parser, {**in_file.get("demo", {}), **given}, check_playable
    )
    if args.transport and args.transport not in TRANSPORTS:
        close = nearest(args.transport, TRANSPORTS)
        parser.error(f"no transport {args.transport!r}; the nearest is {close!r}")
    if "plan" in given and "transport" not in given:
        args.transport = ""  # one in a file was for the plan there
    if "plan" in given and "engine" not in given:
        args.engine = ""
    said = given if "plan" in given else {**in_file.get("demo", {}), **given}
    joint = is_joint(settings.env)
    if joint and "plan" not in said:
        args.plan = JOINT
    try:
        if args.page:
            for number, _ in enumerate(envs_of(settings.env)):
                address = page_at(args.page, number)
                check_address(address)
                if not args.explain:
                    require_free(address)
        plan = planned(args, said.get("actors"))
        if joint:
            require_shared(plan, args, settings.env)
        if not args.explain:
            require_devices(plan)
            if plan.engine == ENGINES[0]:  # a cluster's hosts say themselves what they have
                check_backend(settings.backend, settings.env)
        # as many as are started here: the ladder is theirs
        settings = changed(settings, actors=plan.process_of("actor").replicas)
        require_fit(plan, settings)
        require_queue(plan, settings)
    except (ConfigError, EnvError) as wrong:  # PlanError among them
        parser.error(str(wrong))
    if args.solve_at is None:
        args.solve_at = settings.mark
    if args.require_solved and args.solve_at is None:
        parser.error("--require-solved: there is no mark for this environment; say --solve-at")
    folders = [args.run, *(args.run / agent_of(env) for env in envs_of(settings.env) if joint)]
    if any((folder / METRICS).exists() for folder in folders):
        parser.error(
            f"{args.run} holds a run already ({METRICS} is there); name another folder with --run"
        )
    if not 0 < args.minutes < math.inf:
        said = f"--minutes {args.minutes:g}: say how long to learn at most"
        parser.error(f"{said}: a number of minutes above 0")
    if args.metrics and args.transport == "loopback":
        parser.error("--metrics is for a server of its own; say --transport udp, zmq or dpdk")
    values = {**runfile.saved(args), **dataclasses.asdict(settings)}
    try:
        return args, settings, tables_of(given, in_file, values, plan.policy == ALONE), plan
    except ValueError as wrong:
        parser.error(str(wrong))


def main(argv: list[str] | None = None, command: str = COMMAND) -> int:
    """The program, `demo` or `run`; returns its exit code."""
    args, settings, tables, plan = parsed(argv, command)
    if args.explain:
        print(explained(plan))
        return 0
    try:
        return whole_run(args, settings, tables, plan, command)
    except BrokenPipeError:
        raise  # nobody reads what is printed
    except (RuntimeError, ReplayError, ValueError, OSError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2


def whole_run(
    args: options.Demo, settings: Preset, tables: Mapping[str, Any], plan: Plan, command: str
) -> int:
    """From the run's folder to its summary; the exit code."""
    folder = args.run = run_folder(args)
    make_folder(folder)
    with held(folder, "run"):
        return run_in(folder, args, settings, tables, plan, command)


def run_in(
    folder: Path,
    args: options.Demo,
    settings: Preset,
    tables: Mapping[str, Any],
    plan: Plan,
    command: str,
) -> int:
    """The same, in a folder that no other run has now."""
    values = {**runfile.saved(args), **dataclasses.asdict(settings)}
    del values["run"]  # so that the file starts another run, not this one again
    options.save(folder / CONFIG, command, values, **tables)
    cut = f"plan {args.plan}, " * (command != COMMAND)
    print(
        f"{command}: {cut}seed {args.seed}, transport {args.transport}, run folder {folder}",
        flush=True,
    )
    if args.transport == "loopback":
        from deploy.sync import in_turn

        learner = plan.process_of("learner")
        running = [{"name": "in-turn", "kind": "learner", "alive": True}]
        with page_of(args, settings, folder, plan, lambda: running):
            summary = in_turn(args, settings, **learner.nets)
    elif is_joint(settings.env):
        summary = over_agents(args, settings, folder, plan, tables)
    else:
        summary = over_network(args, settings, folder, plan)
    if summary is None:
        print("interrupted: nothing is left running")
        return 130
    print(f"learning curve: {draw_curve(folder)}")
    write_json(folder / "summary.json", summary)
    aimless = args.solve_at is None and summary["learner_steps"] > 0
    if aimless:
        print(f"learned for {args.minutes:g} minutes; there was no --solve-at to reach")
    else:
        spent = summary["env_steps"] >= settings.env_steps
        within = f"{settings.env_steps:,} steps" if spent else f"{args.minutes:g} minutes"
        said = "solved" if summary["solved"] else f"not solved in {within}"
        print(
            f"{said}: {_judged(summary)}, {summary['env_steps']} steps, "
            f"{summary['learner_steps']} updates"
        )
        if not summary["solved"]:
            print(_more(spent))
    print(f"summary: {folder / 'summary.json'}")
    return 1 if args.require_solved and not summary["solved"] else 0
