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

import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.curve import draw_curve
from deploy.engines import Engine, engine, require_installed
from deploy.explain import explained
from deploy.fleet import Fleet
from deploy.networks import network
from deploy.page import Page, check_address, require_free
from deploy.plan import (
    ENGINES,
    TRANSPORTS,
    Plan,
    PlanError,
    load,
    require_placeable,
    require_served,
    require_workers,
    with_actors,
)
from deploy.table import table_for
from replay_server import Client, ConfigError, ReplayError, SpecError
from replay_server.support.arguments import nearest
from replay_server.training import options, runfile
from replay_server.training.agents import agent_of, is_joint
from replay_server.training.contact import Stop
from replay_server.training.envs import check_playable, envs_of
from replay_server.training.presets import Preset, changed
from replay_server.training.progress import Progress, clock
from replay_server.training.runs import (
    METRICS,
    Metrics,
    commit,
    held,
    largest,
    make_folder,
    write_json,
)

COMMAND = "demo"
CONFIG = "config.toml"
ONE_PROGRAM = (
    "[{name}] {key}: actor and learner are one program under this plan, and would not have it; say "
    "it without a section where it is one of their common settings, or take another plan"
)
PLANNED = {"device", "compile", "environments", "turns", "gradients", "central", "number", "server"}
PLAN, ALONE = "single-learner-coarse", "gpu-only"
JOINT = "environments"  # of a task of several agents, which share them
LINE_S, STANDS_S = 1.0, 10.0


def run_folder(args: options.Demo) -> Path:
    """The folder named, or a new one."""
    if args.run != Path():
        return args.run
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"demo-{stamp}-seed{args.seed}"


class Demo:
    """The processes of a run, and what their metrics say."""

    def __init__(
        self,
        args: options.Demo,
        settings: Preset,
        folder: Path,
        plan: Plan | None = None,
        placing: Engine | None = None,
        shared: Sequence[str] = (),
    ) -> None:
        self.args, self.settings, self.folder = args, settings, folder
        self.metrics = Metrics(folder)
        self.progress, self.name = Progress(), ""  # of an agent, where there are several
        self.begin = time.monotonic()
        plan = plan or load(args.plan)
        self.network = network(args.transport, plan.process_of("replay").port)
        self.page: Page | None = None
        finished = self.metrics.finished
        self.fleet = Fleet(
            plan, settings, folder, self.network, self.say, finished, placing, shared
        )

    def say(self, sentence: str) -> None:
        """A line for the person watching, here and on the page."""
        self.progress.say(f"{self.name}: {sentence}" if self.name else sentence)
        if self.page is not None:
            self.page.say(sentence)

    def start_all(self) -> None:
        """Every process of the plan."""
        self.fleet.start_all(self.args)

    def watch(self, stop: Stop) -> Mapping[str, Any] | None:
        """Until solved, out of time, or asked to stop; the learner's event "solved", or None."""
        line_at = time.monotonic()
        while not stop.wait(0.1):
            if solved := self.metrics.events("learner", "solved"):
                return solved[0]
            self.fleet.look()
            if time.monotonic() - self.begin > self.args.minutes * 60 or self.used_up():
                return None
            if time.monotonic() >= line_at:
                self.show_progress()
                line_at += LINE_S
        return None

    def used_up(self) -> bool:
        """Has the learner made all its updates; or the actors played all their steps, and it
        stopped learning from them?"""
        actors = (f"actor-{i}" for i in range(self.settings.actors))
        idle = self.newest("learner", "perf/learner_sps").get("perf/learner_sps", 1) == 0
        # one that nothing holds back would learn from the same steps for ever
        idle = idle or self.settings.steps_per_update is None
        finished = self.metrics.finished
        return finished("learner") or (idle and all(map(finished, actors)))

    def newest(self, program: str, name: str) -> Mapping[str, Any]:
        """The newest line in which the program logged this scalar; empty without one."""
        lines = reversed(self.metrics.read(program))
        return next((line for line in lines if name in line), {})

    def waiting(self) -> float:
        """The share of their time that learners waited for batches, over those that draw any."""
        count = self.fleet.plan.process_of("learner").replicas
        names = ("learner", *(f"learner-{i}" for i in range(1, count + 1)))
        lines = [self.newest(name, "perf/wait_fraction") for name in names]
        shares = [share for line in lines if (share := line.get("perf/wait_fraction")) is not None]
        return sum(shares) / len(shares) if shares else 0.0

    def acting(self) -> dict[str, Any]:
        """The newest line of each actor as one: steps and rates added up, the rest averaged over
        those that have it; empty before the first."""
        lines = [self.newest(f"actor-{i}", "perf/env_sps") for i in range(self.settings.actors)]
        lines = [line for line in lines if line]
        joined: dict[str, Any] = {}
        for name in {name for line in lines for name in line}:
            values = [v for v in (line.get(name) for line in lines) if isinstance(v, int | float)]
            if values:
                added = name in ("step", "perf/env_sps")
                joined[name] = sum(values) if added else sum(values) / len(values)
        return joined

    def show_progress(self) -> None:
        """One line: what goes in, what comes out, how well it plays."""
        actor = self.acting()
        learner = self.newest("learner", "perf/learner_sps")
        greedy = self.newest("learner", "charts/greedy_return")
        elapsed = time.monotonic() - self.begin
        newest = next(reversed(self.metrics.read("learner")), {})
        if newest.get("event") == "judging":  # nobody learns meanwhile: the rates are old
            self.progress.show(f"{elapsed:4.0f} s | judging {newest['what']}: {newest['far']}")
            return
        if not actor:
            return  # it has only just started
        if not learner.get("step"):
            least, there = self.settings.min_size, actor["step"]
            waits = f"waiting for {there:,} of {least:,} steps before learning starts"
            starts = f"{there:,} steps are there, the learner is starting"
            self.progress.show(
                f"{elapsed:4.0f} s | in {actor['perf/env_sps']:5.0f} steps/s | "
                f"{waits if there < least else starts}"
            )
            return
        self.progress.show(
            f"{elapsed:4.0f} s | in {actor['perf/env_sps']:5.0f} steps/s"
            f", out {fresh(learner, 'perf/learner_sps'):4.0f} batches/s"
            f" | return {shown(actor.get('charts/episodic_return'))}"
            f", greedy {shown(greedy.get('charts/greedy_return'))}"
            f"{_epsilon(actor)}"
            f" | replay {learner.get('replay/size', 0):6.0f}"
            f", {learner.get('replay/ratio', 0):4.1f} samples/insert"
            f" | weights v{learner.get('weights/version', 0):.0f}"
            f" | waiting {self.waiting():.1%}"
            f" | at most {clock(self.seconds_left(elapsed, actor))} more"
        )

    def seconds_left(self, elapsed: float, actor: Mapping[str, Any]) -> float:
        """Until time or environment steps are used up; solved may come any time before."""
        left = max(self.args.minutes * 60 - elapsed, 0.0)
        rate = actor.get("perf/env_sps", 0)
        if rate <= 0:
            return left
        return min(left, (self.settings.env_steps - actor["step"]) / rate)

    def summary(self, solved: Mapping[str, Any] | None) -> dict[str, Any]:
        """What happened, from the programs' metrics and the server's own counters."""
        names = [f"actor-{i}" for i in range(self.settings.actors)]
        actor = [line for name in names for line in self.metrics.read(name) if "step" in line]
        learner = [line for line in self.metrics.read("learner") if "step" in line]
        first = min((line["time"] for line in actor), default=1.0) - 1.0 if actor else None
        with self.network.own(), Client(self.fleet.address) as client:
            counters = client.stats().counters
        solved = solved or {}
        learner_steps = solved.get("learner_step", learner[-1]["step"] if learner else 0)
        return {
            "seed": self.args.seed,
            "solved": bool(solved),
            "eval_return_mean": solved.get("eval_return_mean"),
            "eval_return_min": solved.get("eval_return_min"),
            "eval_episodes": solved.get("eval_episodes", 0),
            "greedy_return_best": largest(learner, "charts/greedy_return"),
            "train_seconds": solved["solved_at"] - first if solved and first else None,
            "env_steps": self.acting().get("step", 0),
            "unacknowledged_most": largest(actor, "replay/unacknowledged"),
            "steps_ahead_most": largest(actor, "replay/steps_ahead"),
            "learner_steps": learner_steps,
            "batch": self.settings.batch,
            "transport": self.network.summary_name or self.args.transport,
            "plan": self.fleet.plan.policy,
            "restarts": sum(self.fleet.restarts.values()),
            "checkpoint": solved.get("checkpoint"),
            "commit": commit(),
            "settings": dataclasses.asdict(self.settings),
            "server_counters": counters,
        }

    def close(self) -> None:
        """Ends every process, the server last."""
        self.progress.close()
        self.fleet.close()


def _epsilon(actor: Mapping[str, Any]) -> str:
    """What the actors explore with, where that is epsilon."""
    epsilon = actor.get("charts/epsilon")
    return "" if epsilon is None else f" | epsilon {epsilon:.3f}"


def fresh(line: Mapping[str, Any], name: str) -> float:
    """A rate of a program's newest line; 0 where that is so old that the program stands still."""
    old = time.time() - line.get("time", 0.0) > STANDS_S
    return 0.0 if old else float(line.get(name, 0.0))


def shown(mean_return: float | None) -> str:
    """A mean return as wide as others, for a line of progress."""
    return "    -" if mean_return is None else f"{mean_return:5.1f}"


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


def over_network(
    args: options.Demo, settings: Preset, folder: Path, plan: Plan, tables: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The run as the plan's programs; its summary, or None if it was interrupted."""
    if is_joint(settings.env):
        from deploy.agents import over_agents

        return over_agents(args, settings, folder, plan, tables)
    with contextlib.ExitStack() as open_ones:
        placing = engine(plan, folder, args.ray_address, args.insecure)
        open_ones.callback(placing.close)
        stop = open_ones.enter_context(Stop())
        demo = Demo(args, settings, folder, plan, placing)
        try:
            demo.page = open_ones.enter_context(
                page_of(args, settings, folder, plan, demo.fleet.running)
            )
            demo.start_all()
            solved = demo.watch(stop)
            demo.progress.close()
            demo.fleet.end()  # what they did last belongs to the summary
            return None if stop.asked else demo.summary(solved)
        finally:
            demo.close()


@contextlib.contextmanager
def page_of(
    args: options.Demo,
    settings: Preset,
    folder: Path,
    plan: Plan,
    running: Callable[[], list[dict[str, Any]]],
) -> Iterator[Page | None]:
    """The run's page, where one is asked for."""
    if not args.page:
        yield None
        return
    named = {"seed": args.seed, "minutes": args.minutes}
    page = Page(args.page, folder, plan, settings, processes=running, **named)
    print(f"page: {page.url}", flush=True)
    try:
        yield page
    finally:
        page.close()


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


def page_at(address: str, number: int) -> str:
    """Where agent `number` has its page: the ports from the given one on; 0 and nowhere stay."""
    if not address:
        return ""
    host, port = check_address(address)
    named = f"[{host}]" if ":" in host else host
    return f"{named}:{port + number * (port > 0)}"


def pages_of(address: str, env: str) -> list[str]:
    """Where a run has pages: one, or one for each agent."""
    return [page_at(address, number) for number, _ in enumerate(envs_of(env))]


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
            for address in pages_of(args.page, settings.env):
                check_address(address)
                if not args.explain:
                    require_free(address)
        plan = planned(args, said.get("actors"))
        if joint:
            from deploy.agents import require_shared

            require_shared(plan, args, settings.env)
        if not args.explain:
            require_devices(plan)
        # as many as are started here: the ladder is theirs
        settings = changed(settings, actors=plan.process_of("actor").replicas)
        require_fit(plan, settings)
        require_queue(plan, settings)
    except ConfigError as wrong:  # PlanError among them
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
            summary = in_turn(args, settings, learner.device, learner.compile)
    else:
        summary = over_network(args, settings, folder, plan, tables)
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
