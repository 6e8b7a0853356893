"""A task of several agents, for a worker: one actor plays each seat, and all act at once.

`Joint` steps copies of the task, each agent seeing its own part of an outcome. `Seats` is what the
actors ask (env_wire.py): a question to begin or to step is answered when every seat has asked it.
Where one begins anew, as an actor does that was started again, the others' steps are answered as
LOST: they begin new episodes with it. Whose seat an asker has, its name says: AGENT/anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from actor.env_wire import (
    HELLO,
    LOST,
    REFUSED,
    RESET,
    STEP,
    actions_in,
    agent_in,
    leaves_of,
    outcome_body,
    packed,
    seeds_in,
)
from replay_server.training.agents import has_ended, make_task, stepped, task_of
from replay_server.training.asking import Question
from replay_server.training.env_errors import EnvError, environments
from replay_server.training.loop import Outcome

Answer = tuple[Question, int, bytes]


class Joint:
    """`count` copies of a task, in Gymnasium's next-step mode: the step after an end resets."""

    def __init__(self, env_id: str, count: int) -> None:
        self.env_id, self.count = task_of(env_id), count
        self.tasks = [make_task(env_id) for _ in range(count)]
        self.agents: list[str] = list(self.tasks[0].possible_agents)
        self.over = np.zeros(count, np.bool_)

    def space(self, agent: str) -> Any:
        """Of an agent's actions."""
        return self.tasks[0].action_space(agent)

    def reset(self, seeds: list[int] | None) -> dict[str, Any]:
        """A batch of observations for each agent; `seeds`: one for each copy, or none."""
        self.over[:] = False
        with environments(self.env_id, "reset"):
            found = [
                task.reset(seed=None if seeds is None else seeds[i])[0]
                for i, task in enumerate(self.tasks)
            ]
            return {agent: self._batch(agent, found) for agent in self.agents}

    def step(self, actions: Mapping[str, np.ndarray]) -> dict[str, Outcome]:
        """What every agent sees of a step of all copies; EnvError as has_ended."""
        rewards = {agent: np.zeros(self.count) for agent in self.agents}
        ended = {agent: np.zeros((2, self.count), np.bool_) for agent in self.agents}
        seen: list[Mapping[str, Any]] = []
        with environments(self.env_id, "step"):
            for i, task in enumerate(self.tasks):
                if self.over[i]:
                    seen.append(task.reset()[0])
                    self.over[i] = False
                    continue
                now, reward, *flags, _ = stepped(
                    task, self.agents, {a: actions[a][i] for a in self.agents}
                )
                seen.append(now)
                self.over[i] = has_ended(self.agents, flags)
                for agent in self.agents:
                    rewards[agent][i] = reward[agent]
                    ended[agent][:, i] = [flag[agent] for flag in flags]
            return {
                agent: Outcome(
                    self._batch(agent, seen),
                    rewards[agent],
                    *ended[agent],
                    {},
                )
                for agent in self.agents
            }

    def _batch(self, agent: str, seen: list[Mapping[str, Any]]) -> Any:
        """What an agent sees in all copies; EnvError where it is not there."""
        space = self.tasks[0].observation_space(agent)
        if any(agent not in each for each in seen):
            raise EnvError(f"{self.env_id} shows {agent} nothing: all agents of a task are there")
        items = [each[agent] for each in seen]
        return concatenate(space, items, create_empty_array(space, self.count))

    def close(self) -> None:
        """Closes all copies."""
        for task in self.tasks:
            task.close()


class Seats:
    """Who plays which agent, what each waits for, and what it was answered last."""

    def __init__(self, env_id: str, protocol: str, count: int) -> None:
        self.joint, self.protocol = Joint(env_id, count), protocol
        self.players: dict[str, bytes] = {}
        self.waiting: dict[str, Question] = {}  # to begin; while episodes go on, to step
        self.actions: dict[str, np.ndarray] = {}
        self.seeds: list[int] | None = None  # as the first agent wants them
        self.last: dict[str, tuple[int, bytes]] = {}
        self.going = False  # episodes

    def answers(self, question: Question) -> list[Answer]:
        """What can be answered now that this was asked: nothing, while another seat is silent."""
        agent = agent_in(question.who)
        if question.again and question.who == self.players.get(agent) and agent in self.last:
            return [(question, *self.last[agent])]
        try:
            if agent not in self.joint.agents:
                what = (
                    f"no agent {agent!r} here"
                    if agent
                    else "an actor has to say whose seat it plays"
                )
                raise EnvError(
                    f"{what}: --env {self.joint.env_id}#{' or #'.join(self.joint.agents)}"
                )
            if question.verb == HELLO:
                return [self._told(agent, question, HELLO, self._hello(agent))]
            if question.verb == RESET:
                return self._begins(agent, question)
            if question.verb == STEP:
                return self._acts(agent, question)
            raise EnvError(f"verb {question.verb}; expected one of h, r, s")
        except (EnvError, TypeError) as error:  # TypeError: actions of another kind of number
            return [self._told(agent, question, REFUSED, str(error).encode())]

    def _hello(self, agent: str) -> bytes:
        env = f"{self.joint.env_id}#{agent}"
        said = {"env": env, "protocol": self.protocol, "count": self.joint.count}
        return json.dumps(said).encode()

    def _told(self, agent: str, question: Question, verb: int, body: bytes) -> Answer:
        if question.who == self.players.get(agent):
            self.last[agent] = verb, body
        return question, verb, body

    def _begins(self, agent: str, question: Question) -> list[Answer]:
        seeds = seeds_in(question.body, self.joint.count)
        if agent == self.joint.agents[0]:
            self.seeds = seeds
        said: list[Answer] = []
        if self.going:
            why = f"begun anew by {agent}: ask for new episodes".encode()
            left = {a: q for a, q in self.waiting.items() if a != agent}
            said = [self._told(a, q, LOST, why) for a, q in left.items()]
            self.waiting, self.going = {}, False
        self.players[agent], self.waiting[agent] = question.who, question
        if len(self.waiting) == len(self.joint.agents):
            said += self._together(lambda: self.joint.reset(self.seeds), _seen)
        return said

    def _acts(self, agent: str, question: Question) -> list[Answer]:
        if not self.going:
            return [self._told(agent, question, LOST, b"begun anew: ask for new episodes")]
        if question.who != self.players[agent]:
            raise EnvError(f"another actor plays {agent} now: start one for each agent")
        space, count = self.joint.space(agent), self.joint.count
        self.actions[agent] = actions_in(question.body, space, count)
        self.waiting[agent] = question
        if len(self.waiting) < len(self.joint.agents):
            return []
        return self._together(
            lambda: self.joint.step(self.actions), lambda outcome: outcome_body(outcome, count)
        )

    def _together(
        self, act: Callable[[], Mapping[str, Any]], body: Callable[[Any], bytes]
    ) -> list[Answer]:
        """Acts for all that wait, and answers each with its part; or with what was wrong."""
        waiting, self.waiting = self.waiting, {}
        try:
            found = act()
        except EnvError as error:
            self.going = False
            why = str(error).encode()
            return [self._told(a, q, REFUSED, why) for a, q in waiting.items()]
        self.going = True
        return [self._told(a, q, q.verb, body(found[a])) for a, q in waiting.items()]

    def close(self) -> None:
        """Closes the task's copies."""
        self.joint.close()


def _seen(observation: Any) -> bytes:
    return packed(leaves_of(observation))
