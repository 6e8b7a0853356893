"""`make bench-peers`: replay buffers of others and ours, in one run, work and order the same.

    python -m benchmarks.peers.run [--peers NAMES] [--quick | --full] [--seed N]

1. Each peer is installed into an environment of its own, build/peers/NAME; what cannot be is said.
2. As root, the rest runs in a network namespace of its own, so that the bytes counted on lo are
   those of the benchmark alone; else they are all of this machine's loopback, and that is said.
3. For each kind of item all peers are up at once, filled; rounds visit every job in an order drawn
   from the seed and in it every peer once. Every sampled batch that ends a job is held, byte for
   byte, against what was inserted.
4. build/bench-peers/ has peers.jsonl, peers.md and the plots; report.py makes them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness

from . import report
from .environments import CannotInstall, install
from .jobs import LEARN_CAPACITY, Done, Job, Opened, PeerFailed, jobs_of, open_row, start_row
from .learn import BATCH, TASKS, Task
from .pool import make
from .processes import machine_busy_s
from .roster import ROOT, Listed, chosen

OUT = ROOT / "build" / "bench-peers"
APART = "BENCH_PEERS_APART"
INTERRUPTED = 130
IDLE_S, IDLE_MOST = 1.0, 0.02  # looked at for so long; a smaller share of a core is not told

BEGUN = "BENCH_PEERS_BEGUN"  # when, by the clock of this machine's boot
BEGIN = float(os.environ.get(BEGUN, time.monotonic()))


def say(line: str) -> None:
    """A line of progress, with the time since the start."""
    print(f"[{time.monotonic() - BEGIN:5.0f} s] {line}", flush=True)


def installed(
    rows: Sequence[Listed], failed: dict[str, str]
) -> tuple[list[Listed], dict[str, dict[str, str]], dict[str, str]]:
    """(rows whose environment is there, {environment: versions}, {row: why it is not there}).
    failed: {environment: why}, which is not tried again; what fails here is added."""
    there, versions, missing = [], {}, {}
    for row in rows:
        try:
            if row.environment in failed:
                raise CannotInstall(failed[row.environment])
            versions[row.environment] = install(row, say)
            there.append(row)
        except (CannotInstall, OSError) as error:
            failed[row.environment] = str(error)
            missing[row.name] = f"cannot be installed: {error}"
            say(f"{row.name} cannot be installed: {error}")
    return there, versions, missing


def go_apart(failed: dict[str, str]) -> None:
    """As root: this program again, in a network namespace of its own with nothing but lo. It is
    given what could not be installed."""
    tools = [shutil.which(tool) for tool in ("unshare", "ip")]
    if os.geteuid() or None in tools or APART in os.environ:
        return
    again = 'ip link set lo up && exec "$@"'
    command = [sys.executable, "-m", "benchmarks.peers.run", *sys.argv[1:]]
    environment = {**os.environ, APART: json.dumps(failed), BEGUN: str(BEGIN)}
    sys.stdout.flush()
    os.execve(tools[0], ["unshare", "--net", "sh", "-c", again, "sh", *command], environment)


class Run:
    """All rounds of all kinds of items. `missing`: {row: why it has no figures, or no more}."""

    def __init__(self, args: argparse.Namespace, rows: list[Listed], missing: dict) -> None:
        self.args, self.rows, self.missing = args, rows, missing
        self.done: dict[tuple[str, Job, str], list[Done]] = defaultdict(list)
        self.memory: dict[tuple[str, str], float] = {}
        self.grid: dict[str, list[Job]] = {}
        self.idle: dict[str, dict[str, float]] = {}
        self.others: dict[str, float] = {}

    def item(self, item: str) -> None:
        """One kind of item: all peers up, rounds, all peers down."""
        jobs = self.grid[item] = jobs_of(item, self.args.quick, self.args.full)
        pool = self.pool(item)
        opened: dict[str, Opened] = {}
        writers = max(2, *(job.writers for job in jobs))
        try:
            for row in self.rows:
                if row.has(item):
                    self.up(opened, row, item, pool, writers)
            self.look(item, opened)
            self.rounds(item, jobs, opened)
        finally:
            for one in opened.values():
                one.close()

    def up(
        self, opened: dict[str, Opened], row: Listed, item: str, pool: Path, writers: int
    ) -> None:
        """Opens a row, or says why not."""
        say(f"{row.name}: starting")
        try:
            one = open_row(row, item, pool, writers, self.args.out / "logs" / item, say)
        except PeerFailed as error:
            self.missing[row.name] = f"{item}: {error}"
            say(f"{row.name} does not take part: {error}")
            return
        opened[row.name] = one
        self.memory[item, row.name] = one.item_memory

    def look(self, item: str, opened: dict[str, Opened]) -> None:
        """What share of a core each takes while nothing is asked of it, and what is no part of this
        run: all others miss it."""
        taken = {name: -one.cpu_s() for name, one in opened.items()}
        begin, busy_s = time.monotonic(), -machine_busy_s()
        time.sleep(IDLE_S)
        spent = time.monotonic() - begin
        busy_s += machine_busy_s()
        for name, one in opened.items():
            taken[name] += one.cpu_s()
        self.others[item] = round(max(0.0, busy_s - sum(taken.values())) / spent, 2)
        shares = {name: cpu_s / spent for name, cpu_s in taken.items() if cpu_s > IDLE_MOST * spent}
        self.idle[item] = {name: round(share, 3) for name, share in shares.items()}
        for name, share in shares.items():
            say(f"{name}: takes {share:.1%} of a core while idle")

    def rounds(self, item: str, jobs: list[Job], opened: dict[str, Opened]) -> None:
        """Every job and peer once a round; a peer that fails is out from then on."""

        def measure(job: Job, name: str) -> harness.Samples | None:
            if name not in opened:
                return None
            try:
                done = opened[name].measure(job, self.args.seconds)
            except PeerFailed as error:
                self.missing[name] = f"{item}, {job.name}: {error}"
                say(f"{name} is out: {error}")
                opened.pop(name).close()
                return None
            if done is None:
                return None
            self.done[item, job, name].append(done)
            if done.wrong:
                say(f"{name}: {done.wrong} of {done.checked} items are not what was inserted")
            return {"seconds": done.times}

        names, chance = list(opened), (self.args.rounds, self.args.seed)
        harness.rounds(jobs, names, measure, *chance, lambda line: say(f"{item}: {line}"), said_job)

    def learning(self) -> None:
        """Each task with each buffer, alone, in an empty table; a seed a round."""
        chance = random.Random(self.args.seed)
        for number in range(self.args.learn):
            for kind, task in TASKS.items():
                for row in chance.sample(self.rows, len(self.rows)):
                    if row.name not in self.missing and row.has("small"):
                        self.learn(row, Job(kind, BATCH), task, self.args.seed + number)

    def learn(self, row: Listed, job: Job, task: Task, seed: int) -> None:
        """One task, one buffer, one seed."""
        pool, logs = self.pool("small"), self.args.out / "logs" / "learn"
        try:
            opened = start_row(row, task.item, pool, LEARN_CAPACITY[task.item], 1, logs)
            try:
                done = opened.learn(job, seed)
            finally:
                opened.close()
        except PeerFailed as error:
            self.missing[row.name] = f"{job.name}: {error}"
            say(f"{row.name} learns nothing: {error}")
            return
        self.done[task.item, job, row.name].append(done)
        end = "" if done.reached else ", without the score"
        say(f"{row.name}: {task.name}, seed {seed}: {done.seconds:.1f} s{end}")

    def pool(self, item: str) -> Path:
        """The file of items of a kind, made once."""
        path: Path = self.args.out / f"pool-{item}-{self.args.seed}.npz"
        if not path.exists():
            say(f"{item}: making the items")
            make(item, path, self.args.seed)
        return path

    @property
    def wrong(self) -> int:
        """Sampled items that were not what was inserted."""
        return sum(done.wrong for all_of in self.done.values() for done in all_of)

    def lines(self) -> list[dict[str, Any]]:
        """A row a (item, job, peer), as JSON."""
        rows = {row.name: row for row in self.rows}
        return [
            line_of(item, job, rows[name], done, self.memory.get((item, name)), self.args.seed)
            for (item, job, name), done in self.done.items()
        ]


def said_job(job: Job) -> None:
    """Before a job's turn in a round."""
    say(f"  {job.name}")


def line_of(
    item: str, job: Job, row: Listed, done: list[Done], memory: float | None, seed: int
) -> dict[str, Any]:
    """The figures of a peer at a job. Times in us, of all calls of all rounds; rate and share:
    median of rounds with the interval of that median; spread: best round's rate / worst."""
    times = np.concatenate([one.times for one in done])
    rate = harness.figure([one.rate for one in done], seed)
    count = sum(one.all_items for one in done)
    waits = [float(one.times.sum()) / one.seconds for one in done]
    share = harness.figure(waits, seed)
    p50, p99, p999 = (float(np.quantile(times, share_of)) * 1e6 for share_of in (0.5, 0.99, 0.999))
    return {
        "item": item,
        "job": job.name,
        "kind": job.kind,
        "batch": job.batch,
        "writers": job.writers,
        "step_ms": job.step * 1e3,
        "peer": row.name,
        "ours": row.ours,
        "equal": row.equal,
        "where": row.where,
        "frames": bool(row.options.get("frames")),
        "notes": list(row.notes),
        "calls": len(times),
        "rounds": len(done),
        "p50_us": p50,
        "p99_us": p99,
        "p999_us": p999,
        "rate": rate.value,
        "rate_low": rate.low,
        "rate_high": rate.high,
        "spread": rate.spread,
        "inserted_a_second": sum(one.inserted for one in done) / sum(one.seconds for one in done),
        "client_cpu_us": 1e6 * sum(one.client_cpu_s for one in done) / count,
        "server_cpu_us": 1e6 * sum(one.server_cpu_s for one in done) / count,
        "wire_bytes": sum(one.wire for one in done) / count,
        "waited": share.value,
        "waited_low": share.low,
        "waited_high": share.high,
        "memory_bytes": memory,
        "checked": sum(one.checked for one in done),
        "wrong": sum(one.wrong for one in done),
        "seconds": [one.seconds for one in done],
        "steps": [one.steps for one in done],
        "reached": sum(one.reached for one in done),
    }


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, with what follows from --quick and --full."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.run", description=__doc__)
    parser.add_argument("--peers", default="", help="words of names, apart by commas; all")
    parser.add_argument("--items", default="", help="small,atari,bytes-1024,...")
    parser.add_argument("--quick", action="store_true", help="two rounds of a small grid")
    parser.add_argument("--full", action="store_true", help="all batches, sizes, 32 writers")
    parser.add_argument("--learn", type=int, default=0, help="seeds of each task learned with each")
    parser.add_argument("--rounds", type=int, default=0, help="5, or 2 with --quick")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a job, each round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    args.rounds = args.rounds or (2 if args.quick else 5)
    args.seconds = args.seconds or (0.1 if args.quick else 0.25)
    sizes = ("small", "atari", "bytes-64", "bytes-1024", "bytes-8192") if args.full else ()
    args.items = args.items.split(",") if args.items else list(sizes or ("small", "atari"))
    try:
        args.rows = chosen(args.peers)
    except ValueError as error:
        parser.error(str(error))
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def written(run: Run, head: dict[str, Any], args: argparse.Namespace) -> None:
    """Files and what is printed at the end."""
    lines = run.lines()
    head = {
        **head,
        "missing": run.missing,
        "idle": run.idle,
        "others": run.others,
        "load_after": [round(x, 2) for x in os.getloadavg()],
    }
    harness.write_lines(args.out / "peers.jsonl", [head, *lines])
    text = report.page(head, lines)
    (args.out / "peers.md").write_text(text)
    print(text)
    for path in report.plots(lines, args.out):
        print(f"plot: {path}")
    print(f"figures: {args.out / 'peers.jsonl'}")


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 0; 1 when a sampled item was wrong or nothing was measured; 130 on Ctrl-C."""
    args = parsed(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = None
    try:
        failed: dict[str, str] = json.loads(os.environ.get(APART, "{}"))
        rows, versions, missing = installed(args.rows, failed)
        if argv is None:
            go_apart(failed)
        head = harness.header(
            args.seed,
            sorted(os.sched_getaffinity(0)),
            pinning="none: the kernel places all processes",
            wire="lo of a namespace of its own" if APART in os.environ else "lo, others' bytes too",
            rounds=args.rounds,
            seconds=args.seconds,
            environments=versions,
        )
        run = Run(args, rows, missing)
        for item in args.items:
            run.item(item)
        run.learning()
    except KeyboardInterrupt:
        say("interrupted: all processes of this run are ended")
        if run is not None and run.done:
            written(run, {**head, "interrupted": True}, args)
        return INTERRUPTED
    if not run.done:
        say("nothing was measured")
        return 1
    written(run, head, args)
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
