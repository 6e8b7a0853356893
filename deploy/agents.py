"""A run of a task of several agents: each with an actor, a server and a learner of its own.

    RUN/AGENT/     the run folder of one agent, as that of any run; its programs know no other agent
    RUN/           what they do together: metrics of the program "judge", summary.json

The environments are shared: one plan's workers step them, each agent's actor asks for its seat
(actor/seats.py), and a step is made when all have acted. So the slowest learner sets the pace of
all. Agents learn independently (Tan 1993): to each the others are part of its environment. One more
program, `replay-server learner judge`, judges them together, by their newest checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from deploy.engines import Engine
from deploy.fleet import EXIT_ASKED_WRONG, RESTARTS_MAX
from deploy.launch import CONFIG, workers_of
from deploy.page import page_at
from deploy.plan import JOINT, Plan, PlanError
from deploy.plan_run import LINE_S, PlanRun, fresh, page_of, shown
from deploy.processes import Logged
from replay_server.training import options, runfile
from replay_server.training.agents import agent_of, make_task, seats_of
from replay_server.training.contact import Stop
from replay_server.training.presets import Preset, changed
from replay_server.training.progress import Progress, clock
from replay_server.training.runs import Metrics, commit, largest, make_folder

JUDGE, GREEDY = "judge", "charts/greedy_return"  # a program, and what it logs


def require_shared(plan: Plan, args: options.Demo, env: str) -> None:
    """PlanError where a plan cannot have environments that several agents share."""
    if agent := agent_of(env):
        raise PlanError(f"--env {env}: a run has all agents of a task: leave out #{agent}")
    sentence = "a task of several agents is stepped by workers that all their actors ask"
    if plan.policy != JOINT:
        raise PlanError(f"{plan.path} is policy {plan.policy!r}: {sentence}; take plan {JOINT!r}")
    if plan.engine != "processes" or plan.transport not in ("udp", "zmq"):
        wrong = plan.engine if plan.engine != "processes" else f"transport {plan.transport}"
        raise PlanError(f"{wrong}: {sentence}, on this machine, over udp or zmq")
    if plan.synchronous:
        raise PlanError(f"{plan.path}: synchronous is true: agents learn side by side")
    if port := plan.process_of("replay").port:
        raise PlanError(f"{plan.path}: port {port}: each agent has a server; leave it out")
    if args.metrics:
        raise PlanError("--metrics: each agent has a server, and they cannot share an address")


def seed_of(seed: int, number: int) -> int:
    """Agent `number`'s: none explores as another does."""
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number], spawn_key=(1,)).generate_state(1)[0])


class Agents:
    """The runs of all agents, the first of which has the workers of all."""

    def __init__(
        self,
        args: options.Demo,
        settings: Preset,
        folder: Path,
        plan: Plan,
        tables: Mapping[str, Any],
    ) -> None:
        self.args, self.settings, self.folder = args, settings, folder
        self.progress, self.begin = Progress(), time.monotonic()
        with contextlib.closing(make_task(settings.env)) as task:
            seats = seats_of(task, settings.env)
        self.runs: dict[str, PlanRun] = {}
        shared: Sequence[str] = ()
        for number, seat in enumerate(seats):
            own = changed(settings, env=seat)
            run = self._run_of(number, own, plan, tables, shared)
            shared = shared or workers_of(plan, run.fleet.engine)
            self.runs[agent_of(seat)] = run
        self.metrics = Metrics(folder)
        self.judge: Logged | None = None  # where there is a mark
        self.judges = 0  # that ended

    def _run_of(
        self,
        number: int,
        settings: Preset,
        plan: Plan,
        tables: Mapping[str, Any],
        shared: Sequence[str],
    ) -> PlanRun:
        """The run of one agent, which nobody judges by itself."""
        agent = agent_of(settings.env)
        folder, seed = self.folder / agent, seed_of(self.args.seed, number)
        page = page_at(self.args.page, number)
        args = dataclasses.replace(self.args, run=folder, seed=seed, solve_at=None, page=page)
        make_folder(folder)
        values = {**runfile.saved(args), **dataclasses.asdict(settings)}
        options.save(folder / CONFIG, "run", values, **tables)
        named = {"name": agent, "progress": self.progress, "shared": shared}
        return PlanRun(args, settings, folder, plan, Engine(), **named)

    def start_all(self) -> None:
        """Every agent's programs, and who judges them, where there is a mark."""
        for run in self.runs.values():
            run.start_all()
        if self.args.solve_at is not None:
            self.start_judge()

    def start_judge(self) -> None:
        """One goes on with the candidates that the one before it had not judged."""
        words = ("learner", "judge", str(self.folder), "--env", self.settings.env)
        words += ("--solve-at", str(self.args.solve_at), "--seed", str(self.args.seed))
        first = next(iter(self.runs.values()))
        self.judge = first.fleet.start_beside(JUDGE, words, self.folder)

    def look(self) -> None:
        """Starts again what died and can come back; RuntimeError, which names the agent, where the
        run cannot go on."""
        code = None if self.judge is None else self.judge.ended()
        if code is not None and not self.metrics.events(JUDGE, "solved"):
            self.judges += 1
            if code == EXIT_ASKED_WRONG or self.judges > RESTARTS_MAX:
                raise RuntimeError(f"the judge ended ({code}):\n{self.judge.last_lines()}")
            self.progress.say(
                f"the judge ended ({code}) and is started again ({self.judges} of {RESTARTS_MAX}): "
                f"see {self.judge.log}"
            )
            self.start_judge()
        for agent, run in self.runs.items():
            try:
                run.fleet.look()
            except RuntimeError as error:
                raise RuntimeError(f"{agent}: {error}") from error

    def watch(self, stop: Stop) -> Mapping[str, Any] | None:
        """Until they solve it, are out of time, or it was asked to stop; the verdict, or None."""
        line_at = time.monotonic()
        while not stop.wait(0.1):
            if solved := self.metrics.events(JUDGE, "solved"):
                return solved[0]
            self.look()
            over = time.monotonic() - self.begin > self.args.minutes * 60
            if over or any(run.used_up() for run in self.runs.values()):
                return None
            if time.monotonic() >= line_at:
                self.show_progress()
                line_at += LINE_S
        return None

    def env_steps(self) -> int:
        """Steps of the task that its agents have told of."""
        return min(int(run.acting().get("step", 0)) for run in self.runs.values())

    def show_progress(self) -> None:
        """One line: how fast it is stepped, and for each agent what it learns."""
        elapsed = time.monotonic() - self.begin
        acting = {agent: run.acting() for agent, run in self.runs.items()}
        if not all(acting.values()):
            return
        rate = min(fresh(line, "perf/env_sps") for line in acting.values())
        parts = []
        for agent, run in self.runs.items():
            sps = fresh(run.newest("learner", "perf/learner_sps"), "perf/learner_sps")
            played = shown(acting[agent].get("charts/episodic_return"))
            parts.append(f"{agent}: return {played}, out {sps:4.0f} batches/s")
        judged = [line for line in self.metrics.read(JUDGE) if GREEDY in line]
        greedy = shown(judged[-1][GREEDY] if judged else None)
        left = next(iter(self.runs.values())).seconds_left(elapsed, next(iter(acting.values())))
        self.progress.show(
            f"{elapsed:4.0f} s | in {rate:5.0f} steps/s | {' | '.join(parts)} | together, greedy "
            f"{greedy} | at most {clock(left)} more"
        )

    def summary(self, solved: Mapping[str, Any] | None) -> dict[str, Any]:
        """What happened: of all together, and of each agent."""
        each = {agent: run.summary(None) for agent, run in self.runs.items()}
        for one in each.values():
            for name in ("solved", "settings", "commit", "plan", "transport"):
                del one[name]  # said once, of all
        judged = self.metrics.read(JUDGE)
        acted = [line for run in self.runs.values() for line in run.metrics.read("actor-0")]
        first = min((line["time"] for line in acted if "step" in line), default=None)
        trained = solved and first and solved["solved_at"] - first + 1.0
        told = ("checkpoint", "eval_return_mean", "eval_return_min", "eval_episodes")
        found = {name: solved[name] for name in told} if solved else {}
        return {
            "seed": self.args.seed,
            "solved": bool(solved),
            "eval_return_mean": None,
            "greedy_return_best": largest(judged, GREEDY),
            "train_seconds": trained,
            **found,
            "env_steps": self.env_steps(),
            "learner_steps": sum(one["learner_steps"] for one in each.values()),
            "plan": JOINT,
            "transport": self.args.transport,
            "commit": commit(),
            "settings": dataclasses.asdict(self.settings),
            "agents": each,
        }

    def end(self) -> None:
        """Ends every program but the servers, those of all agents at once: each may take seconds,
        and a learner that is killed meanwhile loses what it learned since its checkpoint."""
        self.end_judge()
        with ThreadPoolExecutor(len(self.runs)) as pool:
            list(pool.map(lambda run: run.fleet.end(), self.runs.values()))

    def close(self) -> None:
        """Ends what there is."""
        self.progress.close()
        self.end_judge()
        with ThreadPoolExecutor(len(self.runs)) as pool:
            list(pool.map(PlanRun.close, self.runs.values()))

    def end_judge(self) -> None:
        """Ends who judges, where somebody does."""
        if self.judge is not None:
            self.judge.tell()
            self.judge.end()


def over_agents(
    args: options.Demo, settings: Preset, folder: Path, plan: Plan, tables: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The run of all agents; its summary, or None if it was interrupted."""
    with contextlib.ExitStack() as pages, Stop() as stop:
        agents = Agents(args, settings, folder, plan, tables)
        try:
            for run in agents.runs.values():
                page = page_of(run.args, run.settings, run.folder, plan, run.fleet.running)
                run.page = pages.enter_context(page)
            agents.start_all()
            solved = agents.watch(stop)
            agents.progress.close()
            agents.end()
            return None if stop.asked else agents.summary(solved)
        finally:
            agents.close()
