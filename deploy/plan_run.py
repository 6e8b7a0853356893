"""A run's processes watched: whether it is solved, a line of progress, what its summary says.

It knows the programs by their command lines, their processes and what they log; demo.py decides
what is run, and agents.py watches several such runs at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.engines import Engine, engine
from deploy.fleet import Fleet
from deploy.networks import network
from deploy.page import Page
from deploy.plan import Plan, load
from replay_server import Client
from replay_server.training import options
from replay_server.training.contact import Stop
from replay_server.training.presets import Preset
from replay_server.training.progress import Progress, clock
from replay_server.training.runs import Metrics, commit, largest

LINE_S, STANDS_S = 1.0, 10.0


class PlanRun:
    """A run: its processes, and what their metrics say. name: of an agent, where there are several,
    who share `progress`; shared: workers that another one's run starts."""

    def __init__(
        self,
        args: options.Demo,
        settings: Preset,
        folder: Path,
        plan: Plan | None = None,
        placing: Engine | None = None,
        *,
        name: str = "",
        progress: Progress | None = None,
        shared: Sequence[str] = (),
    ) -> None:
        self.args, self.settings, self.folder = args, settings, folder
        self.metrics = Metrics(folder)
        self.progress, self.name = progress or Progress(), name
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
                if name == "perf/env_sps":
                    values = [fresh(line, name) for line in lines]
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


def over_network(
    args: options.Demo, settings: Preset, folder: Path, plan: Plan
) -> dict[str, Any] | None:
    """The run as the plan's programs; its summary, or None if it was interrupted."""
    with contextlib.ExitStack() as open_ones:
        placing = engine(plan, folder, args.ray_address, args.insecure)
        open_ones.callback(placing.close)
        stop = open_ones.enter_context(Stop())
        run = PlanRun(args, settings, folder, plan, placing)
        try:
            run.page = open_ones.enter_context(
                page_of(args, settings, folder, plan, run.fleet.running)
            )
            run.start_all()
            solved = run.watch(stop)
            run.progress.close()
            run.fleet.end()  # what they did last belongs to the summary
            return None if stop.asked else run.summary(solved)
        finally:
            run.close()


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
