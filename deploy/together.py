"""`replay-server together`: actor and learner in one process, inference beside the learner.

    replay-server together --server udp://127.0.0.1:7400 --environments tcp://127.0.0.1:7500

As SEED RL (Espeholt et al. 2020): workers elsewhere step the environments, and one batch of all
their observations goes through the learner's own network, by the weights of this very moment. So no
weights are published for it; the replay server gets them all the same, for whoever else pulls. The
learner has the main thread, the actor another; a lock keeps a step of the optimizer and a pass of
the network apart. Its options are those of `learner train` and of `actor`.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import torch

from actor.__main__ import Program as ActorProgram
from actor.inference import Inference
from deploy.launch import flags_of
from deploy.plan import NETS
from learner.__main__ import parse_train
from learner.learner import Learner
from learner.program import Program as LearnerProgram
from replay_server.errors import ReplayError
from replay_server.support.arguments import Parser
from replay_server.training import options
from replay_server.training.contact import Stop
from replay_server.training.envs import check_playable
from replay_server.training.loop import Weights
from replay_server.training.presets import Preset

ACTOR_JOIN_S = 10.0


class Beside(Inference):
    """By a learner's own network. In turns the priorities of what is held follow each update, as
    they follow weights that are pulled; side by side an update comes with nearly every step, and
    they are those of the step they were made at."""

    def __init__(self, learner: Learner, in_turns: bool) -> None:
        learner.guard = threading.Lock()
        super().__init__(learner.acting, device=learner.device, guard=learner.guard)
        self.learner, self.in_turns = learner, in_turns

    def load(self, newest: Weights) -> bool:
        """Whether the network is another one than at the last call; `newest` is nothing."""
        before, self.learner_step = self.learner_step, self.learner.step
        return self.in_turns and before not in (-1, self.learner_step)


class Acting(threading.Thread):
    """The actor, from when the learner has its network on."""

    def __init__(
        self, args: options.Actor, settings: Preset, stop: Stop, learner: LearnerProgram
    ) -> None:
        super().__init__(name="actor", daemon=True)
        self.args, self.settings, self.stop, self.learner = args, settings, stop, learner
        self.error: Exception | None = None

    def run(self) -> None:
        """Plays until it is asked to stop; an error ends the learner too."""
        torch.set_num_threads(1)  # torch counts them for each thread of Python
        try:
            while self.learner.learner is None and not self.stop.wait(0.05):
                pass
            if not self.stop.asked:
                self.play()
        except Exception as error:
            self.error = error
            self.stop.event.set()

    def play(self) -> None:
        """The actor's program, by the learner's network."""
        inference = Beside(self.learner.learner, bool(self.args.turns))
        program = ActorProgram(self.args, self.settings, self.stop, inference)
        try:
            program.main()
        finally:
            program.close()


def as_played(folder: str, given: list[str]) -> list[str]:
    """What gives the actor the options that it had in this run, unless others are given."""
    config = Path(folder) / "config-actor-0.toml"
    named = any(word.startswith("--config") for word in given)
    return [] if named or not config.exists() else ["--config", str(config)]


def nets_of(program: type) -> dict[str, Field[Any]]:
    """{name: the learner's option} of what the plan says of its nets; an actor has none."""
    return {option.name: option for option in fields(program) if option.name in NETS}


def main(argv: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    parser = Parser(prog="replay-server together", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--environments", metavar="URLS", default="", help="Where workers step them; empty: here."
    )
    for name, option in nets_of(options.Train).items():
        switch = {"action": "store_true"} if isinstance(option.default, bool) else {"metavar": "X"}
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, help=option.metadata["help"], **switch)
    parser.add_argument(
        "--resume", metavar="FOLDER", help="Run to go on from, with the options of both there."
    )
    parser.epilog = "Every other option is one that both `learner train` and `actor` have."
    mine, both = parser.parse_known_args(argv)
    words = flags_of({name: getattr(mine, name) for name in ("resume", *NETS)})
    args, settings = parse_train([*both, *words])
    played = as_played(mine.resume, both) if mine.resume else []
    playing = options.parse(options.Actor, "actor", "actor", "", [*both, *played], check_playable)
    playing[0].environments = mine.environments or playing[0].environments
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    print(f"together: seed {args.seed}, {settings.envs} x {settings.env}", flush=True)
    with Stop() as stop:
        learner = None
        try:
            learner = LearnerProgram(args, settings, stop)
            acting = Acting(*playing, stop, learner)
            acting.start()
            try:
                learner.main()
            finally:
                stop.event.set()
                acting.join(ACTOR_JOIN_S)
                learner.close()
            if acting.error is not None:
                raise acting.error
            if learner.lost is not None:
                raise type(learner.lost)(f"no last checkpoint: {learner.lost}")
        except (ReplayError, ValueError, OSError) as error:
            print(f"together: {error}", file=sys.stderr)
            return getattr(error, "exit_code", 2)
    return 0
