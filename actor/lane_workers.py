"""The processes behind lanes: each steps its share of an actor's environments, on this machine.

A process serves as `replay-server environments` does, at a socket in a folder that its owner made,
and ends with it: also where the owner was killed, as the pipe between them closes.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from actor.collector import Collector
from actor.env_wire import RESET, STEP, observation_of, outcome_of, packed, unpacked
from actor.lanes import Lane, LaneCollector, Outcomes
from actor.remote import STEP_S, NoAnswer, RemoteVector
from replay_server.training.asking import heard
from replay_server.training.env_errors import EnvError, EnvironmentsDied
from replay_server.training.loop import Actions
from replay_server.training.vectors import NextStepVector

START_S = 60.0
SLICE_MS = 100


def shares_of(envs: int, lanes: int) -> list[int]:
    """How many environments each lane has: as even as can be, larger ones first."""
    return [envs // lanes + (i < envs % lanes) for i in range(lanes)]


def _steps(url: str, env: str, envs: int, protocol: str, owner: Connection) -> None:
    """The process. It answers until its owner closes the pipe, or is gone."""
    from actor.worker import Options, Served, turn
    from replay_server.training.asking import Answerer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its owner's to take
    over = threading.Event()

    def watch() -> None:
        owner.poll(None)  # nothing is ever sent: the pipe ends
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        served = Served(Options(env=env, envs=envs, protocol=protocol, serve=url))
    except EnvError as error:
        owner.send(str(error))
        return
    with closing(served), closing(Answerer(url, "--serve")) as line:
        owner.send("")
        while not over.is_set():
            turn(line, served, SLICE_MS / 1000)


class LaneVector(RemoteVector):
    """`count` environments in so many lanes; close it. As a plain vector it steps all at once.

    EnvError where an environment is not to be had; EnvironmentsDied where a process ended.
    """

    def __init__(
        self,
        env_id: str,
        count: int,
        lanes: int,
        *,
        protocol: str = "sticky",
        step_s: float = STEP_S,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.shares = shares_of(count, lanes)
        self.folder = tempfile.TemporaryDirectory(prefix="replay-lanes-")
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        try:
            urls = [self._start(i, env_id, protocol) for i in range(lanes)]
            for pipe in self.pipes:
                self._await(pipe)
            super().__init__(
                urls,
                env_id,
                count,
                protocol=protocol,
                patience=START_S,
                step_s=step_s,
                stopped=stopped,
            )
        except BaseException:
            self.close()
            raise

    def _start(self, number: int, env_id: str, protocol: str) -> str:
        url = f"ipc://{Path(self.folder.name) / str(number)}"
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        work = (url, env_id, self.shares[number], protocol, theirs)
        process = context.Process(target=_steps, args=work, daemon=True, name=f"lane-{number}")
        process.start()
        theirs.close()
        self.processes.append(process)
        self.pipes.append(mine)
        return url

    def _await(self, pipe: Connection) -> None:
        try:
            refused = pipe.recv() if pipe.poll(START_S) else f"no answer within {START_S:g} s"
        except EOFError:
            raise self._died() from None
        if refused:
            raise EnvError(refused)

    def _died(self) -> EnvironmentsDied:
        for process in self.processes:
            process.join(1.0)
        codes = [process.exitcode for process in self.processes if process.exitcode is not None]
        code = f" (exit code {codes[0]})" if codes else ""
        return EnvironmentsDied(
            f"a process that steps environments ended{code}: was it killed, or is memory short?"
        )

    # ---- lane by lane ----

    def reset_lanes(self, seeds: Sequence[int] | None) -> list[Any]:
        """The observations that new episodes begin with, a batch for each lane."""
        arrays = {} if seeds is None else {"seeds": np.array(seeds, np.int64)}
        answers = self._ask_all(RESET, self._shares(arrays), self.patience)
        space = self.single_observation_space
        return [
            observation_of(space, unpacked(body), count)
            for body, count in zip(answers, self.shares, strict=True)
        ]

    def send(self, lane: int, actions: Actions) -> None:
        """Begins a step of a lane."""
        self.workers[lane].ask(STEP, packed({"actions": np.asarray(actions)}))

    def first(self, waiting: Sequence[int], least: int) -> Outcomes:
        """What came of the steps of the first `least` of these lanes that are over, or more."""
        over: dict[int, bytes] = {}
        until = time.monotonic() + self.step_s
        while len(over) < least:
            left = [lane for lane in waiting if lane not in over]
            for place in heard([self.workers[lane] for lane in left], SLICE_MS):
                over[left[place]] = self.workers[left[place]].told(until)
            if len(over) < least:
                self._look(until)
        space = self.single_observation_space
        return [(lane, outcome_of(over[lane], space, self.shares[lane])) for lane in sorted(over)]

    def _look(self, until: float) -> None:
        """Raises where it is no use to wait on."""
        if any(process.exitcode is not None for process in self.processes):
            raise self._died()
        if self.stopped() or time.monotonic() >= until:
            raise NoAnswer(f"no step of a lane was over within {self.step_s:g} s")

    def close(self, **kwargs: Any) -> None:
        """Ends the processes."""
        if hasattr(self, "workers"):
            super().close()
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()
        self.processes, self.pipes = [], []
        self.folder.cleanup()


class LaneEnvironments:
    """What `collect` calls environments: a step goes to the lanes that were ready, and answers with
    those that are next."""

    def __init__(self, vector: LaneVector, least: int) -> None:
        self.vector, self.least = vector, least
        self.ready = list(range(len(vector.shares)))
        self.under_way: list[int] = []

    def reset(self, seeds: list[int] | None) -> list[Any]:
        """Batches of observations, one for each lane."""
        self.ready, self.under_way = list(range(len(self.vector.shares))), []
        return self.vector.reset_lanes(seeds)

    def step(self, actions: Actions) -> Outcomes:
        """`actions`: of the lanes that were ready, in their order."""
        begin = 0
        for lane in self.ready:
            end = begin + self.vector.shares[lane]
            self.vector.send(lane, actions[begin:end])
            begin = end
        self.under_way = sorted([*self.under_way, *self.ready])
        outcomes = self.vector.first(self.under_way, min(self.least, len(self.under_way)))
        self.ready = [lane for lane, _ in outcomes]
        self.under_way = [lane for lane in self.under_way if lane not in self.ready]
        return outcomes


def lanes_of(
    vector: LaneVector,
    least: int,
    rng: np.random.Generator,
    collector_of: Callable[[VectorEnv, np.random.Generator, slice], Collector],
) -> tuple[LaneEnvironments, LaneCollector]:
    """Both sides of an actor's lanes. least: lanes of a pass of the network. collector_of: of these
    environments, which are this part of the actor's."""
    lanes, first = [], 0
    for share, own in zip(vector.shares, rng.spawn(len(vector.shares)), strict=True):
        spaces = vector.single_observation_space, vector.single_action_space
        part = NextStepVector(*spaces, share)
        lanes.append(Lane(first, share, collector_of(part, own, slice(first, first + share))))
        first += share
    return LaneEnvironments(vector, least), LaneCollector(lanes)
