"""The main job on one machine: CartPole learned through the replay server, in three programs.

    server    python -m replay_server serve RUN/server.toml
    actor     python -m replay_server actor           one process, 8 environments
    learner   python -m replay_server learner train   until solved, then 100 greedy episodes

All three write into one run folder; this program watches it, prints a line of progress a second,
and ends them in order. What it learns of the run it writes to RUN/summary.json and names in its
last line. Not solved within --minutes: exit code 1.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.curve import draw_curve
from deploy.processes import Process
from deploy.table import server_toml
from learner.presets import PRESETS, changed, preset
from replay_server import Client, ReplayError
from replay_server.arguments import document, option, parse
from replay_server.patience import Stop
from replay_server.runs import commit, read_metrics, write_json

START_S = 30.0
LINE_S = 1.0


@dataclass
class Args:
    """The demo's arguments."""

    seed: int = option("Seed of everything the three programs draw.", 1)
    env: str = option("Gymnasium id, or empty for the preset's.", "")
    preset: str = option(f"One of {', '.join(PRESETS)}.", "cartpole")
    transport: str = option("udp, or loopback: all in one process, in turn.", "udp")
    solve_at: float = option("Mean greedy return over 20 and 20 episodes that is solved.", 490.0)
    minutes: float = option("Longest training time.", 6.0)
    run: Path = option("Run folder; a new one below runs/ where none is named.", Path())


def run_folder(args: Args) -> Path:
    """The folder named, or a new one."""
    if args.run != Path():
        return args.run
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"demo-{stamp}-seed{args.seed}"


class Demo:
    """The three processes of a run, and what their metrics say."""

    def __init__(self, args: Args, folder: Path) -> None:
        self.args, self.folder = args, folder
        settings = preset(args.preset)
        self.settings = changed(settings, env=args.env) if args.env else settings
        self.processes: list[Process] = []
        self.address = ""
        self.begin = time.monotonic()
        self.client: Client | None = None

    def start(self, name: str, *command: str) -> Process:
        """One more process, its output in RUN/NAME.log."""
        full = [sys.executable, "-u", "-m", "replay_server", *command]
        process = Process(name, full, self.folder / f"{name}.log")
        self.processes.append(process)
        return process

    def start_all(self) -> None:
        """Server first: the others need its address, which it prints once it serves."""
        toml = self.folder / "server.toml"
        toml.write_text(server_toml(self.settings, url="udp://127.0.0.1:0", seed=self.args.seed))
        server = self.start("server", "serve", str(toml))
        self.address = self.wait_for_address(server)
        print(f"serving at {self.address}; actor and learner are starting", flush=True)
        common = ["--server", self.address, "--run", str(self.folder), "--seed"]
        common += [str(self.args.seed), "--preset", self.args.preset, "--env", self.settings.env]
        self.start("learner", "learner", "train", "--solve-at", str(self.args.solve_at), *common)
        self.start("actor", "actor", *common)
        self.client = Client(self.address)

    def wait_for_address(self, server: Process) -> str:
        """The url in the server's line "serving at URL"; RuntimeError where none comes."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and server.ended() is None:
            for line in server.log.read_text().splitlines():
                if line.startswith("serving at "):
                    return line.split()[2]
            time.sleep(0.02)
        raise RuntimeError(f"the server did not start:\n{server.last_lines()}")

    def watch(self, stop: Stop) -> Mapping[str, Any] | None:
        """Until solved, out of time, or asked to stop; the learner's event "solved", or None."""
        line_at = time.monotonic()
        while not stop.wait(0.1):
            for process in self.processes:
                code = process.ended()
                if code or (code == 0 and process.name == "server"):
                    raise RuntimeError(f"{process.name} ended ({code}):\n{process.last_lines()}")
            solved = [m for m in self.metrics("learner") if m.get("event") == "solved"]
            if solved:
                return solved[0]
            if time.monotonic() - self.begin > self.args.minutes * 60 or self.used_up():
                return None
            if time.monotonic() >= line_at:
                self.print_progress()
                line_at += LINE_S
        return None

    def used_up(self) -> bool:
        """Has the actor played all its steps, and the learner stopped learning from them?"""
        actor = next(process for process in self.processes if process.name == "actor")
        if actor.ended() is None:
            return False
        rates = [m.get("perf/learner_sps", 1) for m in self.metrics("learner")]
        return bool(rates) and rates[-1] == 0

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """What program `name` has logged so far."""
        return read_metrics(self.folder / f"{name}.jsonl")

    def print_progress(self) -> None:
        """One line: what goes in, what comes out, how well it plays."""
        lines = self.metrics("learner")
        actor = next((m for m in reversed(self.metrics("actor-0")) if "steps/env" in m), None)
        learner = next((m for m in reversed(lines) if "beta" in m), {})
        greedy = next((m for m in reversed(lines) if "charts/greedy_return" in m), {})
        elapsed = time.monotonic() - self.begin
        if actor is None:
            return  # it has only just started
        print(
            f"{elapsed:4.0f} s | in {actor['perf/env_sps']:5.0f} steps/s"
            f", out {learner.get('perf/learner_sps', 0):4.0f} batches/s"
            f" | return {_shown(actor['charts/episodic_return'])}"
            f", greedy {_shown(greedy.get('charts/greedy_return'))}"
            f" | epsilon {actor['charts/epsilon']:.3f}"
            f" | replay {learner.get('replay/size', 0):6}"
            f", {learner.get('replay/ratio', 0):4.1f} samples/insert"
            f" | weights v{learner.get('weights/version', 0)}"
            f" | at most {self.seconds_left(elapsed, actor):.0f} s more",
            flush=True,
        )

    def seconds_left(self, elapsed: float, actor: Mapping[str, Any]) -> float:
        """Until time or environment steps are used up; solved may come any time before."""
        left = max(self.args.minutes * 60 - elapsed, 0.0)
        rate = actor.get("perf/env_sps", 0)
        if rate <= 0:
            return left
        return min(left, (self.settings.env_steps - actor["steps/env"]) / rate)

    def summary(self, solved: Mapping[str, Any] | None) -> dict[str, Any]:
        """What happened, from the programs' metrics and the server's own counters."""
        actor = [m for m in self.metrics("actor-0") if "steps/env" in m]
        learner = [m for m in self.metrics("learner") if "steps/learner" in m]
        first = actor[0]["time"] - 1.0 if actor else None
        counters = self.client.stats().counters
        solved = solved or {}
        learner_steps = solved.get("learner_step", learner[-1]["steps/learner"] if learner else 0)
        return {
            "seed": self.args.seed,
            "solved": bool(solved),
            "eval_return_mean": solved.get("eval_return_mean"),
            "eval_return_min": solved.get("eval_return_min"),
            "eval_episodes": solved.get("eval_episodes", 0),
            "train_seconds": solved["solved_at"] - first if solved and first else None,
            "env_steps": actor[-1]["steps/env"] if actor else 0,
            "learner_steps": learner_steps,
            "batch": self.settings.batch,
            "transport": self.args.transport,
            "checkpoint": solved.get("checkpoint"),
            "commit": commit(),
            "settings": asdict(self.settings),
            "server_counters": counters,
        }

    def close(self) -> None:
        """Ends actor, learner and server, in that order, whatever state they are in."""
        if self.client is not None:
            self.client.close(timeout=0.2)
        order = {"actor": 0, "learner": 1, "server": 2}
        for process in sorted(self.processes, key=lambda process: order[process.name]):
            process.end()


def _shown(mean_return: float | None) -> str:
    return "    -" if mean_return is None else f"{mean_return:5.1f}"


def over_network(args: Args, folder: Path) -> dict[str, Any] | None:
    """The run as three programs; its summary, or None if it was interrupted."""
    with Stop() as stop:
        demo = Demo(args, folder)
        try:
            demo.start_all()
            solved = demo.watch(stop)
            return None if stop.asked else demo.summary(solved)
        finally:
            demo.close()


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    args = parse(Args, __doc__.splitlines()[0], argv)
    folder = run_folder(args)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "args-demo.json", {**document(args), "commit": commit()})
    print(f"demo: seed {args.seed}, transport {args.transport}, run folder {folder}", flush=True)
    try:
        if args.transport == "loopback":
            from deploy.sync import in_turn

            summary = in_turn(args, folder)
        else:
            summary = over_network(args, folder)
    except (RuntimeError, ReplayError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    if summary is None:
        print("interrupted: nothing is left running")
        return 130
    draw_curve(folder)
    write_json(folder / "summary.json", summary)
    said = "solved" if summary["solved"] else f"not solved in {args.minutes:g} minutes"
    print(
        f"{said}: mean greedy return {summary['eval_return_mean']}, "
        f"{summary['env_steps']} steps, {summary['learner_steps']} updates, "
        f"{json.dumps(summary['train_seconds'])} s"
    )
    print(f"summary: {folder / 'summary.json'}")
    return 0 if summary["solved"] else 1
