"""Shows that a learner gets what the actor's network saw, byte for byte, and what that costs.

A real Actor with the Nature network plays a real game and pushes one new frame a step over UDP.
A network that remembers notes the digest of every stack it is fed, under the place (stream, step)
that the writer gives it. Then the learner's own function cuts stacks from what the server sends, in
prioritized batches while the game goes on and at the end once for every item there is, and each
stack must have the digest noted at its place: o_t of step t, o_{t+m} of step t + m, the closing
row's of an episode that ended in between. A frame of another episode, a lost or repeated one, a
stack cut one step too late: each gives another digest.

    python tests/programs/pong.py --steps 100000             Show 3 of the Atari frames: `make pong`
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from actor.actor import Actor
from actor.bounds import Ahead
from actor.inference import Inference
from replay_server import Client, NStep, Prioritized, Ready, Server, Table, spec_from
from replay_server.support.arguments import option, parse
from replay_server.training.actions import actions_of
from replay_server.training.atari import AtariFrames
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_envs
from replay_server.training.networks import network_from
from replay_server.training.presets import changed, preset
from replay_server.writing.autoreset import Rows

BATCH = 256
HEADERS = 28  # of IPv4 and UDP, which the counters do not see
Place = tuple[int, int]


@dataclass
class Args:
    """What is played, and how much."""

    steps: int = option("Environment steps.", 100_000)
    env: str = option("An Atari game.", "ALE/Pong-v5")
    envs: int = option("Games side by side.", 8)
    n: int = option("Steps of the n-step return.", 3)
    stack: int = option("Frames in a stack.", 4)
    pad: str = option("What stands before an episode's first frame: zero or first.", "zero")
    every: int = option("Environment steps between two prioritized batches.", 2_000)
    frames_max: int = option("Frames of the game after which an episode is truncated.", 108_000)
    life_loss: bool = option("A lost life cuts returns.", False)
    backend: str = option("How the games are stepped: sync, async or envpool.", "sync")
    seed: int = option("Seed of games, exploration and draws.", 1)


@dataclass
class Report:
    """What was compared and counted."""

    steps: int = 0
    episodes: int = 0
    items_drawn: int = 0
    items_fetched: int = 0
    stacks_equal: int = 0
    shorter: int = 0  # items whose episode ended within their n steps
    cut: int = 0  # rows that cut a return
    push_bytes: int = 0
    push_datagrams: int = 0
    resent: int = 0  # of the datagrams
    sample_bytes: int = 0
    seconds: float = 0.0

    @property
    def resent_bytes(self) -> float:
        """What was sent again, as datagrams of the usual size."""
        return self.push_bytes * self.resent / max(self.push_datagrams, 1)


def digests(stacks: np.ndarray) -> list[bytes]:
    """16 bytes for each stack of [B, k, H, W]."""
    return [hashlib.blake2b(np.ascontiguousarray(s), digest_size=16).digest() for s in stacks]


class Seen:
    """The network and the writer that an Actor gets: what is fed is noted, then passed on."""

    def __init__(self, network: torch.nn.Module, writer: Any) -> None:
        self.network, self.writer = network, writer
        self.calls: list[list[bytes]] = []
        self.at: dict[Place, bytes] = {}
        self.place_of: dict[int, Place] = {}  # of the key a row was acknowledged under
        self.items: set[Place] = set()
        self.next_step = np.zeros(writer.streams, np.int64)
        self.cut = 0

    def __call__(self, stacks: torch.Tensor) -> torch.Tensor:
        self.calls.append(digests(stacks.numpy()))
        return self.network(stacks)

    def append(self, rows: Rows) -> Ready:
        """The first call of this step was the acting one, the second saw the final frames."""
        for stream in rows.streams.tolist():
            self.at[stream, int(self.next_step[stream])] = self.calls[0][stream]
        self.next_step[rows.streams] += 1
        for e, stream in enumerate(rows.ended_streams.tolist()):
            self.at[stream, int(self.next_step[stream])] = self.calls[1][e]
        self.next_step[rows.ended_streams] += 1
        self.cut += int(rows.columns["terminated"].sum())
        self.calls.clear()
        return self.writer.append(rows)

    def create(self, streams: Any, steps: Any, priorities: Any) -> None:
        self.items.update(zip(streams.tolist(), steps.tolist(), strict=True))
        self.writer.create(streams, steps, priorities)

    def flush(self) -> None:
        """Everything is stored; then its keys are known."""
        self.writer.flush()
        for step, key, stream, _ in self.writer.ledger().tolist():
            self.place_of[key] = stream, step


class Proof:
    """A server, an actor and a learner's client; `play` and `compare` move them."""

    def __init__(self, args: Args, envs: Any) -> None:
        self.args, self.envs, self.report = args, envs, Report()
        self.settings = changed(
            preset("atari"),
            env=args.env,
            envs=args.envs,
            n=args.n,
            stack=args.stack,
            life_loss=args.life_loss,
        )
        spec = spec_from(envs, pad=args.pad)
        table = Table(
            "main",
            step=spec,
            plan=NStep(args.n, stack=args.stack),
            capacity=2 * args.steps + 1000,
            sampler=Prioritized(0.6),
            streams=args.envs,
        )
        self.server = Server([table], "udp://127.0.0.1:0", seed=args.seed)
        self.client = Client(self.server.address)
        network = network_from(
            "nature", spec, actions_of(envs, "dqn"), stack=args.stack, seed=args.seed
        )
        self.seen = Seen(network, self.client.writer("main", streams=args.envs, autoreset=envs))
        self.actor = Actor(
            envs=envs,
            spec=spec,
            inference=Inference(self.seen),
            preset=self.settings,
            number=0,
            actors=1,
            seed=args.seed,
            writer=self.seen,
        )

    def play(self, steps: int) -> None:
        """At least so many steps, acknowledged; counts what they put on the wire."""
        before = self.server.counters()
        until = self.actor.env_steps + steps
        while self.actor.env_steps < until:
            self.actor.step()
            state = self.seen.writer.state()
            Ahead(state.unacknowledged, state.unacknowledged_max, None, None).check()
            if self.actor.env_steps % 256 < self.args.envs:
                self.seen.flush()
        self.seen.flush()
        after = self.server.counters()
        self.report.push_bytes += after["bytes_in"] - before["bytes_in"]
        self.report.push_datagrams += after["datagrams_in"] - before["datagrams_in"]
        self.report.resent = self.seen.writer.link.counters()["retransmissions"]

    def compare(self, batch: Any) -> None:
        """The stacks a learner makes of this batch, against what the actor's network was fed."""
        if not batch.valid.all():
            raise AssertionError("an item that was never overwritten is gone")
        n, learned = self.args.n, batch.transitions(0.99)
        now, later = digests(learned.observations), digests(learned.next_observations)
        for i, key in enumerate(batch.keys.tolist()):
            stream, step = self.seen.place_of[key]
            m = min(n, int(batch.ahead[i]))
            for what, offset, digest in (("stack", 0, now[i]), ("next stack", m, later[i])):
                if self.seen.at[stream, step + offset] != digest:
                    raise AssertionError(
                        f"the {what} of stream {stream}, step {step} is not what the actor saw"
                    )
        self.report.stacks_equal += 2 * len(batch)
        self.report.shorter += int((batch.ahead < n).sum())

    def fetch_all(self) -> None:
        """Every item, by key; all steps are items but the last n of episodes still open."""
        keys = [key for key, place in self.seen.place_of.items() if place in self.seen.items]
        if not 0 <= self.actor.env_steps - len(keys) <= self.args.n * self.args.envs:
            raise AssertionError(f"{len(keys)} items of {self.actor.env_steps} steps")
        before = self.server.counters()["bytes_out"]
        for begin in range(0, len(keys), BATCH):
            part = np.array(keys[begin : begin + BATCH], np.uint64)
            self.compare(self.client.get("main", part))
        self.report.items_fetched = len(keys)
        self.report.sample_bytes += self.server.counters()["bytes_out"] - before

    def run(self) -> Report:
        """The whole proof."""
        begin = time.monotonic()
        while self.actor.env_steps < self.args.steps:
            self.play(min(self.args.every, self.args.steps - self.actor.env_steps))
            self.compare(self.client.sample("main", BATCH, timeout=10.0))
            self.report.items_drawn += BATCH
        self.fetch_all()
        self.report.steps = self.actor.env_steps
        self.report.episodes = self.actor.collector.episodes
        self.report.cut = self.seen.cut
        self.report.seconds = time.monotonic() - begin
        return self.report

    def close(self) -> None:
        """Client, server, games."""
        self.client.close()
        self.server.close()
        self.envs.close()


def lines(args: Args, report: Report, step_bytes: int, frame_bytes: int) -> list[str]:
    """The report in words; figures are of this run."""
    item = report.sample_bytes / report.items_fetched
    pushed = report.push_bytes / report.steps
    headers = HEADERS * report.push_datagrams / report.steps
    frames = args.stack + args.n if args.stack > 1 else 2
    return [
        f"{args.env}: {report.steps} steps in {report.episodes} whole episodes, {args.envs} games, "
        f"n = {args.n}, stack = {args.stack}, pad = {args.pad}, seed {args.seed}",
        f"items drawn {report.items_drawn}, then every item fetched once: {report.items_fetched}",
        f"stacks equal to the network's inputs, byte for byte: {report.stacks_equal} of "
        f"{2 * (report.items_drawn + report.items_fetched)}; {report.shorter} of the items end "
        f"with their episode",
        f"stored a step: {step_bytes} bytes, of which {frame_bytes} are its one new frame",
        f"pushed a step: {pushed:.0f} bytes of datagrams, and {headers:.0f} of UDP and IP headers: "
        f"{pushed / frame_bytes:.2f} frames, where two stacks would be {2 * args.stack} (as "
        f"the server received it; {100 * report.resent / report.push_datagrams:.1f} % sent again)",
        f"sampled an item: {item:.0f} bytes, {item / frame_bytes:.2f} frames, for two stacks of "
        f"{args.stack} ({frames} different frames)",
        f"{report.seconds:.0f} s in all",
    ]


def prove(args: Args) -> tuple[Report, list[str]]:
    """Plays, samples and compares; AssertionError where a stack differs."""
    torch.set_num_threads(1)
    envs = (
        AtariFrames(args.env, args.envs, frames_max=args.frames_max)
        if args.backend == "sync"
        else make_envs(args.env, args.envs, backend=args.backend)
    )
    proof = Proof(args, envs)
    try:
        report = proof.run()
        spec = proof.client.table("main").spec
        return report, lines(args, report, spec.record_size, spec["observation"].size)
    finally:
        proof.close()


def main(argv: list[str] | None = None) -> int:
    """The program; 1 where a stack differs, 2 where there is no such game."""
    args = parse(Args, __doc__.splitlines()[0], argv)
    try:
        print("\n".join(prove(args)[1]))
    except EnvError as error:
        print(f"pong: {error}", file=sys.stderr)
        return 2
    except AssertionError as wrong:
        print(f"pong: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
