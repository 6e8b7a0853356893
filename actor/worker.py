"""`replay-server environments`: steps environments for an actor that is elsewhere.

    replay-server environments --env CartPole-v1 --envs 4 --serve tcp://127.0.0.1:7500

One actor has them at a time: whoever asks for new episodes last; of a task of several agents
(--env agents:MODULE), one actor for each agent. It needs no replay server, no network and no torch.
It prints where it serves, and ends at a signal.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass

from actor.env_wire import (
    HELLO,
    LOST,
    REFUSED,
    RESET,
    STEP,
    actions_in,
    leaves_of,
    outcome_body,
    packed,
    seeds_in,
)
from actor.environments import Environments
from actor.seats import Seats
from replay_server.errors import ConfigError
from replay_server.support.arguments import option, parse
from replay_server.support.values import whole
from replay_server.training.agents import agent_of, is_joint
from replay_server.training.asking import Answerer, Question, is_local
from replay_server.training.backends import check_backend
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError, EnvironmentsDied
from replay_server.training.envs import make_envs

SLICE_S = 0.2


@dataclass
class Options:
    """The options of a worker."""

    env: str = option(
        "Gymnasium id of the environment, or agents:MODULE, a task of several agents.",
        "CartPole-v1",
    )
    envs: int = option("How many of them.", 1)
    backend: str = option(
        "How they are stepped: sync (one after the other), async (side by side) or envpool.", "sync"
    )
    protocol: str = option("For Atari: sticky, apex or none.", "sticky")
    serve: str = option("Where it serves; port 0 takes any.", "tcp://127.0.0.1:0", shown="URL")
    insecure: bool = option("Serve other machines too: whoever reaches the port may play.", False)

    def __post_init__(self) -> None:
        whole("envs", self.envs, 1, 1 << 16)
        if not self.insecure and not is_local(self.serve):
            raise ConfigError(
                f"--serve {self.serve}: other machines may reach it; say tcp://127.0.0.1:PORT, or "
                "--insecure where nobody else is on that network"
            )


class Gone(EnvError):
    """The episodes that a step was for."""


class Served:
    """Environments, and who plays them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        envs = make_envs(
            options.env, options.envs, protocol=options.protocol, backend=options.backend
        )
        self.environments = Environments(envs, options.env)
        self.space = envs.single_action_space
        self.player = b""  # who asked for the present episodes; "": there are none
        self.last = (REFUSED, b"")  # what the player was answered last

    def answers(self, question: Question) -> list[tuple[Question, int, bytes]]:
        """[(question, verb, body)]; to a question that comes again what was said before."""
        if question.again and question.who == self.player:
            return [(question, *self.last)]
        try:
            said = question.verb, self._answer(question.who, question.verb, question.body)
        except EnvironmentsDied:
            raise
        except (EnvError, TypeError) as error:  # TypeError: actions of another kind of number
            said = LOST if isinstance(error, Gone) else REFUSED, str(error).encode()
        if question.who == self.player:
            self.last = said
        return [(question, *said)]

    def _answer(self, who: bytes, verb: int, body: bytes) -> bytes:
        count = self.options.envs
        if verb == HELLO:
            said = {"env": self.options.env, "protocol": self.options.protocol, "count": count}
            return json.dumps(said).encode()
        if verb == RESET:
            seeds = seeds_in(body, count)
            self.player = b""
            observation = self.environments.reset(seeds)
            self.player = who
            return packed(leaves_of(observation))
        if verb == STEP:
            if not self.player:
                raise Gone("begun anew: ask for new episodes")
            if who != self.player:
                raise EnvError(
                    "another actor plays these environments now: give each actor workers of its own"
                )
            return outcome_body(self.environments.step(actions_in(body, self.space, count)), count)
        raise EnvError(f"verb {verb}; expected one of h, r, s")

    def close(self) -> None:
        """Closes the environments."""
        self.environments.envs.close()


def served_by(options: Options) -> Served | Seats:
    """What answers to the actors; EnvError where there is no such environment."""
    check_backend(options.backend, options.env)
    if not is_joint(options.env):
        return Served(options)
    if agent := agent_of(options.env):
        raise EnvError(f"--env {options.env}: a worker has all seats of a task: leave out #{agent}")
    return Seats(options.env, options.protocol, options.envs)


def serve(options: Options, stop: Stop) -> None:
    """Answers until it is asked to stop."""
    served = served_by(options)
    try:
        with closing(Answerer(options.serve, "--serve", insecure=options.insecure)) as line:
            print(f"serving at {line.address}: {options.envs} x {options.env}", flush=True)
            while not stop.asked:
                turn(line, served, SLICE_S)
    finally:
        served.close()


def turn(line: Answerer, served: Served | Seats, seconds: float) -> None:
    """One question, if one comes within that time, and what can be answered then."""
    question = line.question(seconds)
    for answer in () if question is None else served.answers(question):
        line.answer(*answer)


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    sentence = "Steps environments for an actor that is elsewhere."
    argv = sys.argv[1:] if argv is None else argv
    options = parse(Options, sentence, argv, "replay-server environments")
    with Stop() as stop:
        try:
            serve(options, stop)
        except (EnvError, ConfigError) as error:
            print(f"environments: {error}", file=sys.stderr)
            return getattr(error, "exit_code", 2)
    return 0
