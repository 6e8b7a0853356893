"""`make bench-ranks`: actors and learners from 1 to 64, measured as far as twice the cores.

    python -m benchmarks.scale.ranks --json build/bench-scale/ranks.jsonl

The programs are those of `replay-server run`: one server, Pong, Nature's network. Actors play into
a table that nobody draws from; learners draw batches of it while nobody plays. What one of each
takes goes into the model (rank_model.py), which says the rest; where the programs were measured, it
says by how much it is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks import harness
from benchmarks.scale import tables
from benchmarks.scale.rank_model import APART, RANKS, Actors, Learners
from benchmarks.scale.serving import processor_seconds
from deploy.launch import free_port
from deploy.processes import Process
from deploy.table import TABLE, server_toml
from learner.learner import Learner
from learner.optimizing import trained
from replay_server import Client
from replay_server.training.actions import actions_of
from replay_server.training.envs import make_envs
from replay_server.training.presets import Preset, changed, preset
from replay_server.training.runs import read_metrics

TRIES = 7
ADDRESS = re.compile(r"udp://127\.0\.0\.1:[1-9]\d*")
PATIENCE_S, WAIT = 300.0, timedelta(minutes=2)
SMALL, LARGE = 2, 1 << 20  # float64 and float32 of an all-reduce


@dataclass(frozen=True)
class Work:
    """What is played and learned. filled: steps of the table before anything is measured; steps,
    updates: of a measurement, of all actors and of each learner. rounds: of measurements."""

    preset: str
    env: str
    batch: int
    filled: int
    steps: int
    updates: int
    rounds: int

    @property
    def settings(self) -> Preset:
        """Of the table, and of the nets."""
        return changed(
            preset(self.preset),
            env=self.env,
            batch=self.batch,
            envs=1,
            min_size=self.filled // 2,
            capacity=50_000,
            actors=max(RANKS),
            steps_per_update=None,
        )


WORK = Work("atari", "ALE/Pong-v5", 256, 4_000, 6_000, 12, 3)
SMALL_WORK = Work("cartpole", "CartPole-v1", 64, 600, 12_000, 2_000, 1)


def replay_server(*words: str) -> list[str]:
    """The command of a program."""
    return [sys.executable, "-m", "replay_server", *words]


class Host:
    """A server, filled; programs that meet there, and what they came to. Close it."""

    def __init__(self, work: Work, folder: Path, stack: ExitStack) -> None:
        self.work, self.folder, self.stack, self.runs = work, folder, stack, 0
        text = server_toml(work.settings, url="udp://127.0.0.1:0", seed=1)
        (folder / "server.toml").write_text(text)
        self.server = self.started("server", "serve", str(folder / "server.toml"))
        self.url = self.until(self._address, "the server to serve")
        print(f"{work.filled} steps of {work.env} go into the table", flush=True)
        self.act(1, work.filled)

    def started(self, name: str, *words: str, **variables: str) -> Process:
        """One of the programs; ended with the stack."""
        own = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        process = Process(name, replay_server(*words), self.folder / f"{name}.log", own)
        self.stack.callback(process.end)
        return process

    def _address(self) -> str:
        found = ADDRESS.search("\n".join(self.server.lines()))
        return found.group() if found else ""

    def until(self, found: Callable[[], Any], what: str, *processes: Process) -> Any:
        """What `found` says once it says something; SystemExit where a program ends badly."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if said := found():
                return said
            for process in (self.server, *processes):
                if process.ended():
                    raise SystemExit(f"bench-ranks: {process.name}: {process.last_lines()}")
            time.sleep(0.05)
        raise SystemExit(f"bench-ranks: waited {PATIENCE_S:g} s for {what}")

    def run(self, names: Sequence[str], words: Sequence[str], variables: Any) -> Path:
        """Programs of one kind from their start to their end; their run folder."""
        self.runs += 1
        run = self.folder / f"run-{self.runs}"
        common = ("--preset", self.work.preset, "--env", self.work.env)
        common += ("--server", self.url, "--run", str(run))
        processes = [
            self.started(f"{name}-{self.runs}", *words, *common, *more, **variables(i))
            for i, (name, more) in enumerate(names)
        ]

        def done() -> bool:
            return all(process.ended() == 0 for process in processes)

        self.until(done, f"{words} to end", *processes)
        return run

    def act(self, count: int, steps: int) -> Path:
        """So many actors play so many steps together; their run folder."""
        names = [(f"actor-{i}", ("--number", str(i))) for i in range(count)]
        words = ("actor", "--envs", "1", "--actors", str(count), "--env-steps", str(steps))
        return self.run(names, words, lambda _: {})

    def acted(self, count: int) -> tuple[float, float]:
        """(steps a second of so many actors, the server's seconds of a step)."""
        before = processor_seconds(self.server.child.pid)
        run = self.act(count, self.work.steps)
        spent = processor_seconds(self.server.child.pid) - before
        return sum(rate_of(run, f"actor-{i}") for i in range(count)), spent / self.work.steps

    def learned(self, count: int) -> tuple[float, float]:
        """(updates a second of so many learners, the server's seconds of a sampled item)."""
        port = str(free_port())
        names = [("learner" if i == 0 else f"learner-{i}", ()) for i in range(count)]
        batch, updates = self.work.batch, self.work.updates
        words = ("learner", "train", "--batch", str(batch), "--updates", str(updates))
        words += ("--device", "cpu", "--publish-every", "1000", "--publish-seconds", "1000")
        words += ("--checkpoint-seconds", "1000")
        torchrun = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        torchrun |= {"GLOO_SOCKET_IFNAME": "lo"} if count > 1 else {}
        before = processor_seconds(self.server.child.pid)
        run = self.run(names, words, lambda i: {**torchrun, "RANK": str(i), "LOCAL_RANK": str(i)})
        spent = processor_seconds(self.server.child.pid) - before
        return rate_of(run, "learner"), spent / (updates * batch)


def rate_of(run: Path, name: str) -> float:
    """Steps of a program a second, between the first and the last line of its metrics, which are a
    second apart; SystemExit where it ended before the second one."""
    lines = [line for line in read_metrics(run, name) if "step" in line]
    if len(lines) < 2 or lines[-1]["time"] == lines[0]["time"]:
        raise SystemExit(f"bench-ranks: {name} was done before a rate could be told")
    first, last = lines[0], lines[-1]
    return (last["step"] - first["step"]) / (last["time"] - first["time"])


def seconds_of(call: Callable[[], Any]) -> float:
    """Of one call, the median of TRIES; the first does not count."""
    spent = []
    for _ in range(TRIES + 1):
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
    return median(spent[1:])


def learner_alone(work: Work, url: str) -> tuple[dict[int, float], float, int]:
    """({ranks: seconds of the gradients of a share}, of the optimizer's step, bytes of gradients),
    on one core."""
    torch.set_num_threads(1)
    envs, settings = make_envs(work.env, 1), work.settings
    with Client(url, batch_max=work.batch) as client:
        spec = client.table(TABLE).spec
        actions = actions_of(envs, settings.algorithm)
        learner = Learner(spec=spec, actions=actions, preset=settings, seed=1)
        shares = {}
        for count in RANKS:
            batch = client.sample(TABLE, work.batch // count, beta=0.4)
            shares[count] = seconds_of(lambda batch=batch: learner.gradients(batch))
        gradients = learner.gradients(batch)
        apply_s = seconds_of(lambda: learner.apply(gradients))
    envs.close()
    return shares, apply_s, 4 * sum(each.numel() for each in trained(learner.algorithm).values())


def _meet(rank: int, port: int, answers: Any) -> None:
    """One of two ranks: seconds of a small and of a large all-reduce."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", where, timeout=WAIT, rank=rank, world_size=2)
    small, large = torch.zeros(SMALL, dtype=torch.float64), torch.zeros(LARGE)
    answers.put([seconds_of(lambda some=some: dist.all_reduce(some)) for some in (small, large)])
    dist.destroy_process_group()


def all_reduce() -> tuple[float, float]:
    """(seconds of a round, bytes a second) of two ranks on this host, over gloo."""
    context, port = get_context("spawn"), free_port()
    answers = context.Queue()
    ranks = [
        context.Process(target=_meet, args=(rank, port, answers), daemon=True) for rank in range(2)
    ]
    for rank in ranks:
        rank.start()
    found = np.max([answers.get(timeout=WAIT.seconds) for _ in ranks], axis=0)
    for rank in ranks:
        rank.join()
    return found[0] / 2, 4 * LARGE / (found[1] - found[0])


def measured(host: Host, counts: Sequence[int]) -> dict[str, dict[int, tuple[float, float]]]:
    """{kind: {count: (rate, the server's seconds of a step or item)}}, medians of rounds."""
    taken: dict[str, dict[int, list[tuple[float, float]]]] = {
        kind: {count: [] for count in counts} for kind in ("actors", "learners")
    }
    rounds = host.work.rounds
    for number in range(rounds):
        for count in counts:
            taken["actors"][count].append(host.acted(count))
            taken["learners"][count].append(host.learned(count))
            print(f"round {number + 1} of {rounds}: {count} of each", flush=True)
    return {
        kind: {count: tuple(np.median(some, axis=0).tolist()) for count, some in of.items()}
        for kind, of in taken.items()
    }


def rows_of(
    kind: str,
    unit: str,
    model: Actors | Learners,
    taken: dict[int, tuple[float, float]],
    cores: int,
) -> list[dict[str, Any]]:
    """A row for each number of ranks; what was not measured is none."""
    return [
        {"kind": kind, "unit": unit, "ranks": count, "cores": cores}
        | {"measured": taken[count][0] if count in taken else None}
        | {"here": model.rate(count, cores), "apart": model.rate(count, APART)}
        for count in RANKS
    ]


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser("python -m benchmarks.scale.ranks", description=__doc__)
    parser.add_argument("--json", type=Path, help="JSON lines of all figures")
    parser.add_argument("--quick", action="store_true", help="CartPole, one round: proves nothing")
    args = parser.parse_args(argv)
    work = SMALL_WORK if args.quick else WORK
    cores = sorted(os.sched_getaffinity(0))
    head = harness.header(1, cores, rounds=work.rounds, batch=work.batch, env=work.env)
    head["quick"] = args.quick
    counts = [count for count in RANKS if count <= 2 * len(cores)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        host = Host(work, Path(folder), stack)
        shares, apply_s, size = learner_alone(work, host.url)
        latency, width = all_reduce()
        taken = measured(host, counts)
    (acts, step_server), (_, item_server) = taken["actors"][1], taken["learners"][1]
    actors = Actors(1 / acts, step_server)
    learners = Learners(work.batch, shares, apply_s, size, latency, width, item_server)
    rows = rows_of("actors", "environment steps/s", actors, taken["actors"], len(cores))
    rows += rows_of("learners", "updates/s", learners, taken["learners"], len(cores))
    print("\n".join(tables.of_ranks([head, *rows])))
    if args.json:
        harness.write_lines(args.json, [head, *rows])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nbench-ranks: stopped")
        sys.exit(130)
