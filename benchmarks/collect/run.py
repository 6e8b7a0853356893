"""`make bench-collect`: how fast an actor collects Pong, beside the bare environments.

    python -m benchmarks.collect.run --json build/bench-collect/collect.jsonl

    bare       processes that step the games with random actions, each with passes of Nature's
               network over as many stacks: nothing is stored, nobody waits for another
    actor      one actor of `replay-server actor`, with lanes in as many processes (or, of 1, with
               all games in its own): each step is stored at a server, with its priority

in one run, interleaved; medians of the rounds. The share of bare is what storing, priorities and
the way between processes leave.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from actor.actor import Actor
from actor.inference import Inference
from actor.lane_workers import LaneVector, shares_of
from benchmarks import harness
from deploy.table import TABLE, table_for
from replay_server import Client, Server
from replay_server.training.actions import actions_of
from replay_server.training.envs import make_envs
from replay_server.training.networks import acting_network
from replay_server.training.presets import Preset, changed, preset

ENV, SEED, CAPACITY = "ALE/Pong-v5", 1, 100_000
WARM = 10  # steps of each environment before the clock starts


class Work(NamedTuple):
    """What is measured: one way to collect. lanes: of the actor; processes: of the bare games."""

    name: str
    backend: str = "sync"
    processes: int = 1
    lanes: int = 0
    ready: int = 1


def works(most: int) -> list[Work]:
    """1 process, and as many as there are cores, two at least."""
    found = [Work("bare, 1 process"), Work("actor, games in its own process")]
    for lanes in sorted({2, most}):
        found.append(Work(f"bare, {lanes} processes", processes=lanes))
        found += [
            Work(f"actor, {lanes} lanes, {ready} ready", lanes=lanes, processes=lanes, ready=ready)
            for ready in sorted({1, lanes})
        ]
    return found


def settings_of(envs: int, work: Work) -> Preset:
    """Nature's network on Pong."""
    return changed(
        preset("atari"),
        env=ENV,
        envs=envs,
        capacity=CAPACITY,
        backend=work.backend,
        lanes=work.lanes,
        lanes_ready=work.ready,
    )


# ---- the bare loop ----


def _bare(envs: int, steps: int, settings: Preset, pipe: Connection) -> None:
    torch.set_num_threads(1)
    with closing(make_envs(settings.env, envs, backend=settings.backend)) as games:
        network = acting_network(settings, table_for(settings).step, actions_of(games, "dqn"), SEED)
        inference = Inference(network)
        rng = np.random.default_rng(SEED)
        games.reset(seed=list(range(envs)))
        stacks = {"observation": np.zeros((envs, settings.stack, 84, 84), np.uint8)}

        def step() -> None:
            games.step(rng.integers(games.single_action_space.n, size=envs))
            inference.values(stacks)

        for _ in range(WARM):
            step()
        pipe.send("ready")
        pipe.recv()
        for _ in range(steps // envs):
            step()
        pipe.send("over")


def bare(envs: int, steps: int, settings: Preset, work: Work) -> float:
    """Steps a second of all processes."""
    context = get_context("spawn")
    pipes, processes = [], []
    for share in shares_of(envs, work.processes):
        mine, theirs = context.Pipe()
        part = (share, steps * share // envs, settings, theirs)
        processes.append(context.Process(target=_bare, args=part, daemon=True))
        processes[-1].start()
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()
    begin = time.perf_counter()
    for pipe in pipes:
        pipe.send("go")
    for pipe in pipes:
        pipe.recv()
    rate = steps / (time.perf_counter() - begin)
    for process in processes:
        process.join()
    return rate


# ---- the actor ----


def acting(envs: int, steps: int, settings: Preset) -> float:
    """Steps a second of an actor, until all of them are stored."""
    torch.set_num_threads(1)
    table = table_for(settings)
    if settings.lanes:
        games = LaneVector(settings.env, envs, settings.lanes)
    else:
        games = make_envs(settings.env, envs, backend=settings.backend)
    with (
        closing(games),
        Server([table], "udp://127.0.0.1:0") as server,
        Client(server.address) as client,
    ):
        network = acting_network(settings, table.step, actions_of(games, "dqn"), SEED)
        actor = Actor(
            envs=games,
            spec=table.step,
            inference=Inference(network),
            preset=settings,
            number=0,
            actors=1,
            seed=SEED,
            writer=client.writer(TABLE, autoreset=games, streams=envs),
        )
        while actor.env_steps < WARM * envs:
            actor.step()
        actor.writer.flush()
        done, begin = actor.env_steps, time.perf_counter()
        while actor.env_steps - done < steps:
            actor.step()
        actor.writer.flush()
        return (actor.env_steps - done) / (time.perf_counter() - begin)


def measured(envs: int, steps: int, rounds: int, most: int) -> Iterator[dict[str, Any]]:
    """A row for each way."""
    rates: dict[Work, list[float]] = {work: [] for work in works(most)}
    for number in range(rounds):
        for work, found in rates.items():
            print(f"round {number + 1} of {rounds}: {work.name}", file=sys.stderr, flush=True)
            settings = settings_of(envs, work)
            one = work.name.startswith("bare")
            found.append(
                bare(envs, steps, settings, work) if one else acting(envs, steps, settings)
            )
    for work, found in rates.items():
        beside = next(w for w in rates if w.processes == work.processes)
        share = median(a / b for a, b in zip(found, rates[beside], strict=True))
        yield {"way": work.name, "rate": median(found), "rates": found, "share": share}


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect.run", description=__doc__)
    parser.add_argument("--envs", type=int, default=8, help="games")
    parser.add_argument("--steps", type=int, default=4_000, help="of a measurement, of all games")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=2, help="processes, at most")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    head = harness.header(SEED, [], envs=args.envs, steps=args.steps, rounds=args.rounds)
    rows = list(measured(args.envs, args.steps, args.rounds, args.lanes))
    table = [[row["way"], f"{row['rate']:,.0f}", f"{row['share']:.0%}"] for row in rows]
    print("\n".join(harness.grid(["way", "steps/s", "of the bare loop"], table)))
    if args.json:
        harness.write_lines(args.json, [head, *rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())
