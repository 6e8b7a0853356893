"""A vector of environments that workers elsewhere step: the environments' edge of a plan.

`RemoteVector` is a Gymnasium vector like any other, in next-step mode. A step goes to every worker
at once, and is over when all have answered; a worker is given the share of environments that it
says it has. One that was begun anew says so: that, and no answer within STEP_S, is
EnvironmentsLost. Its episodes are gone, so the actor begins new ones with all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from actor.env_wire import (
    HELLO,
    LOST,
    REFUSED,
    RESET,
    STEP,
    asker_of,
    leaves_of,
    observation_of,
    outcome_of,
    packed,
    unpacked,
)
from replay_server.errors import Timeout
from replay_server.training.agents import agent_of, is_joint
from replay_server.training.asking import Asker
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_env
from replay_server.training.loop import Outcome
from replay_server.training.vectors import NextStepVector

STEP_S = 30.0  # a step of all of a worker's environments


class EnvironmentsLost(EnvError):
    """A worker that is gone, or was begun anew: new episodes may begin with it."""


class NoAnswer(EnvironmentsLost):
    """A worker that said nothing in time."""


class Worker(Asker):
    """The connection to one worker, and how many environments it has."""

    count = 0

    def told(self, until: float) -> bytes:
        """What it answers; NoAnswer where nothing, EnvironmentsLost where its episodes are gone;
        EnvError where it says why not."""
        try:
            verb, body = self.answer(until)
        except Timeout as error:
            raise NoAnswer(f"no answer from the environments at {self.url}") from error
        if verb in (REFUSED, LOST):
            kind = EnvironmentsLost if verb == LOST else EnvError
            raise kind(f"{self.url}: {body.decode(errors='replace')}")
        return body


def _hello_of(url: str, body: bytes) -> dict[str, Any]:
    """What a worker says of itself; EnvError where it is none."""
    try:
        said = json.loads(body)
        return {"env": str(said["env"]), "protocol": said["protocol"], "count": int(said["count"])}
    except (ValueError, KeyError, TypeError) as error:
        raise EnvError(
            f"{url} is no worker: start one there (replay-server environments)"
        ) from error


def infos_of(parts: Sequence[Outcome], counts: Sequence[int]) -> dict[str, np.ndarray]:
    """The infos of all workers, [B] each. As in Gymnasium's vectors "_NAME" says which environments
    reported NAME: none of a worker that has not got it, where zeros stand."""
    infos: dict[str, np.ndarray] = {}
    names = sorted({name for part in parts for name in part.infos})
    for name in (name for name in names if not name.startswith("_")):
        has = [name in part.infos for part in parts]
        some = next(part.infos[name] for part in parts if name in part.infos)
        values = [
            part.infos.get(name, np.zeros(count, some.dtype))
            for part, count in zip(parts, counts, strict=True)
        ]
        reported = [
            part.infos.get(f"_{name}", np.full(count, there))
            for part, count, there in zip(parts, counts, has, strict=True)
        ]
        infos |= {name: np.concatenate(values), f"_{name}": np.concatenate(reported)}
    return infos


class RemoteVector(NextStepVector):
    """`count` environments at the workers of `urls`, in their order; close it.

    EnvError where they play another environment, or are not so many; EnvironmentsLost where one
    does not answer. patience: seconds to wait for workers at first and at each reset; step_s: at
    each step. stopped: ends each wait.
    """

    def __init__(
        self,
        urls: Sequence[str],
        env_id: str,
        count: int,
        *,
        protocol: str = "sticky",
        patience: float = STEP_S,
        step_s: float = STEP_S,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        if twice := [url for i, url in enumerate(urls) if url in urls[:i]]:
            raise EnvError(f"{twice[0]} stands twice among the workers: name each once")
        self.stopped, self.patience, self.step_s = stopped, patience, step_s
        with_spaces = make_env(env_id, protocol=protocol)
        super().__init__(with_spaces.observation_space, with_spaces.action_space, count)
        with_spaces.close()
        self.workers: list[Worker] = []
        agent = agent_of(env_id) if is_joint(env_id) else ""
        name = asker_of(agent) if agent else b""
        try:
            for url in urls:
                self.workers.append(Worker(url, stopped, name))
            self._meet(env_id, protocol, time.monotonic() + patience)
        except BaseException:
            self.close()
            raise

    def _meet(self, env_id: str, protocol: str, until: float) -> None:
        for worker in self.workers:
            worker.ask(HELLO)
        for worker in self.workers:
            said = _hello_of(worker.url, worker.told(until))
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
        seeds = self.seeds_of(seed)
        shares = self._shares({} if seeds is None else {"seeds": np.array(seeds, np.int64)})
        try:
            answers = self._ask_all(RESET, shares, self.patience)
        except NoAnswer as error:
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
        shares = self._shares({"actions": np.asarray(actions)})
        try:
            answers = self._ask_all(STEP, shares, self.step_s)
        except NoAnswer as error:
            if self.stopped():
                raise
            raise EnvironmentsLost(
                f"{error} within {self.step_s:g} s (an environment that takes longer to step needs "
                "more --step-seconds)"
            ) from error
        space = self.single_observation_space
        parts = [
            outcome_of(body, space, worker.count)
            for worker, body in zip(self.workers, answers, strict=True)
        ]
        return (
            self._joined([part.observation for part in parts]),
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.terminated for part in parts]),
            np.concatenate([part.truncated for part in parts]),
            infos_of(parts, [worker.count for worker in self.workers]),
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
        return [worker.told(until) for worker in self.workers]

    def _joined(self, parts: list[Any]) -> Any:
        """One batch of observations of the workers' batches."""
        leaves = [leaves_of(part) for part in parts]
        whole = {name: np.concatenate([leaf[name] for leaf in leaves]) for name in leaves[0]}
        return observation_of(self.single_observation_space, whole, self.num_envs)

    def close(self, **kwargs: Any) -> None:
        """Gives the workers up, who go on for whoever asks next."""
        for worker in self.workers:
            worker.close()
        self.workers = []
