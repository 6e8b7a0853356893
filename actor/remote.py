"""A vector of environments that workers elsewhere step: the environments' edge of a plan.

`RemoteVector` is a Gymnasium vector like any other, in next-step mode. A step goes to every worker
at once, and is over when all have answered; a worker is given the share of environments that it
says it has. A question without an answer is asked again every AGAIN_S: a worker that has answered
says the same again, and one that was begun anew says so. That, and no answer within STEP_S, is
EnvironmentsLost: its episodes are gone, so the actor begins new ones with all of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zmq
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from actor.env_wire import (
    BYTES_MAX,
    HELLO,
    REFUSED,
    RESET,
    STEP,
    leaves_of,
    message,
    observation_of,
    opened,
    outcome_of,
    packed,
    unpacked,
)
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_env

STEP_S = 30.0  # a step of the slowest environment
AGAIN_S = 1.0
SLICE_MS = 200


class EnvironmentsLost(EnvError):
    """A worker that is gone, or was begun anew: new episodes may begin with it."""


class Worker:
    """The connection to one worker, and how many environments it has."""

    def __init__(self, context: zmq.Context, url: str) -> None:
        self.url, self.count, self.number = url, 0, 0
        self.question, self.again_at = b"", 0.0
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.ROUTING_ID, b"P" + os.urandom(16))  # kept over a reconnection
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, BYTES_MAX)
        self.socket.connect(url)

    def ask(self, verb: int, body: bytes = b"") -> None:
        """Sends one question; older ones need no answer any more."""
        self.number += 1
        self.question = message(self.number, verb, body)
        self._send()

    def _send(self) -> None:
        self.socket.send(self.question)
        self.again_at = time.monotonic() + AGAIN_S

    def answer(self, until: float, stopped: Callable[[], bool]) -> bytes:
        """The newest question's answer; EnvironmentsLost where none comes, EnvError where the
        worker says why not."""
        while True:
            now = time.monotonic()
            left = until - now
            if left <= 0 or stopped():
                raise EnvironmentsLost(f"no answer from the environments at {self.url}")
            if not self.socket.poll(min(SLICE_MS, int(left * 1000) + 1)):
                if now >= self.again_at:
                    self._send()
                continue
            number, verb, body = opened(self.socket.recv())
            if number != self.number:
                continue  # of a question that was given up
            if verb == REFUSED:
                sentence = body.decode(errors="replace")
                lost = sentence.startswith("begun anew")
                raise (EnvironmentsLost if lost else EnvError)(f"{self.url}: {sentence}")
            return body


class RemoteVector(VectorEnv):
    """`count` environments at the workers of `urls`, in their order; close it.

    EnvError where they play another environment, or are not so many; EnvironmentsLost where one
    does not answer. patience: seconds to wait for workers at first and at each reset. stopped: ends
    each wait.
    """

    def __init__(
        self,
        urls: Sequence[str],
        env_id: str,
        count: int,
        *,
        protocol: str = "sticky",
        patience: float = STEP_S,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.num_envs, self.patience, self.stopped = count, patience, stopped
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        with_spaces = make_env(env_id, protocol=protocol)
        self.single_observation_space = with_spaces.observation_space
        self.single_action_space = with_spaces.action_space
        with_spaces.close()
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self.context = zmq.Context()
        self.workers: list[Worker] = []
        try:
            self.workers += [Worker(self.context, url) for url in urls]
            self._meet(env_id, protocol, time.monotonic() + patience)
        except BaseException:
            self.close()
            raise

    def _meet(self, env_id: str, protocol: str, until: float) -> None:
        for worker in self.workers:
            worker.ask(HELLO)
        for worker in self.workers:
            said = json.loads(worker.answer(until, self.stopped))
            if (said["env"], said["protocol"]) != (env_id, protocol):
                raise EnvError(
                    f"{worker.url} plays {said['env']!r} ({said['protocol']}), and this actor "
                    f"{env_id!r} ({protocol}): give both the same --env and --protocol"
                )
            worker.count = said["count"]
        there = sum(worker.count for worker in self.workers)
        if there != self.num_envs:
            raise EnvError(
                f"the workers have {there} environments, and this actor {self.num_envs}: say "
                f"--envs {there}"
            )

    def reset(
        self, *, seed: list[int] | int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        shares = self._shares({} if seeds is None else {"seeds": np.array(seeds, np.int64)})
        try:
            answers = self._ask_all(RESET, shares, self.patience)
        except EnvironmentsLost as error:
            if self.stopped():
                raise
            raise EnvError(f"{error} within {self.patience:g} s: start a worker there") from error
        space = self.single_observation_space
        parts = [
            observation_of(space, unpacked(body), worker.count)
            for worker, body in zip(self.workers, answers, strict=True)
        ]
        return self._joined(parts), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        answers = self._ask_all(STEP, self._shares({"actions": np.asarray(actions)}), STEP_S)
        space = self.single_observation_space
        parts = [
            outcome_of(body, space, worker.count)
            for worker, body in zip(self.workers, answers, strict=True)
        ]
        names = set.intersection(*(set(part.infos) for part in parts))
        return (
            self._joined([part.observation for part in parts]),
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.terminated for part in parts]),
            np.concatenate([part.truncated for part in parts]),
            {name: np.concatenate([part.infos[name] for part in parts]) for name in sorted(names)},
        )

    def _shares(self, arrays: dict[str, np.ndarray]) -> list[bytes]:
        """The part of each array that each worker is given."""
        shares, begin = [], 0
        for worker in self.workers:
            end = begin + worker.count
            shares.append(packed({name: array[begin:end] for name, array in arrays.items()}))
            begin = end
        return shares

    def _ask_all(self, verb: int, bodies: list[bytes], seconds: float) -> list[bytes]:
        until = time.monotonic() + seconds
        for worker, body in zip(self.workers, bodies, strict=True):
            worker.ask(verb, body)
        return [worker.answer(until, self.stopped) for worker in self.workers]

    def _joined(self, parts: list[Any]) -> Any:
        """One batch of observations of the workers' batches."""
        leaves = [leaves_of(part) for part in parts]
        whole = {name: np.concatenate([leaf[name] for leaf in leaves]) for name in leaves[0]}
        return observation_of(self.single_observation_space, whole, self.num_envs)

    def close(self, **kwargs: Any) -> None:
        """Gives the workers up, who go on for whoever asks next."""
        for worker in self.workers:
            worker.socket.close()
        self.workers = []
        self.context.term()
