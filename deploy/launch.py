"""What a plan starts: the command of each process, in the order of starting.

    environments   replay-server environments     one for each replica, at a port of its own
    server         replay-server serve
    actor          replay-server actor            with --environments where others step them
    learner        replay-server learner train    as torchrun starts it where there are several
    together       replay-server together         actor and learner in one process
    weights        replay-server learner train --gradients, whose learners have --central

The commands are those a person would type; the plan is in none of the programs. Where a process is
reached is its engine's to say (engines.py).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.plan import Plan, Process, require_workers
from replay_server.training.agents import is_joint, task_of

HOST = "127.0.0.1"
CONFIG = "config.toml"  # in a run's folder: the options of all its programs
TOGETHER_S = 600  # an agent's step, which is over when all agents have acted
OPEN = ("--insecure",)  # to other hosts, where a process is reached from there


@dataclass(frozen=True)
class Command:
    """One process to start. name: unique in the run, and its log's. kind: see above; `words` behind
    `replay-server`; `variables` beside the environment's own."""

    name: str
    kind: str
    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    served: bool = False  # it is given --server
    process: Process | None = None  # of the plan


def free_port() -> int:
    """A TCP port of this host that nobody has now; kept by number, so that a process which is
    started again finds its place."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


class Places:
    """Where a process of this name is reached: all on this machine."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}

    def host(self, name: str) -> str:
        """The address of its host."""
        return HOST

    def port(self, name: str) -> int:
        """A free port there, the same one each time."""
        if name not in self.ports:
            self.ports[name] = free_port()
        return self.ports[name]

    def interface(self, name: str) -> str:
        """The network interface of that address."""
        return "lo"

    def url(self, name: str, port: int = 0) -> str:
        """Where it serves; port 0: at its free one."""
        return f"tcp://{self.host(name)}:{port or self.port(name)}"

    def open(self, name: str) -> tuple[str, ...]:
        """What a program needs to serve there: nothing on loopback."""
        return () if self.host(name) == HOST else OPEN


def flags_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Options as words of a command; of switches those that are on, nothing of what is None."""
    words: list[str] = []
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return tuple(words)


def shares(total: int, parts: int) -> list[int]:
    """`total` in `parts` shares, the first ones larger."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def workers_of(plan: Plan, places: Places) -> list[str]:
    """Where a plan's workers step environments; none where the actors do."""
    workers = plan.process_of("environments")
    if workers.fragments != ("environments",):
        return []
    ports = [workers.port and workers.port + i for i in range(workers.replicas)]
    return [places.url(f"environments-{i}", port) for i, port in enumerate(ports)]


def commands(
    plan: Plan,
    folder: Path,
    envs: int,
    env: str,
    protocol: str,
    places: Places | None = None,
    shared: Sequence[str] = (),
    backend: str = "sync",
) -> list[Command]:
    """Of every process but the server, which comes first. envs: of each actor. shared: where the
    environments are stepped already, for several agents. PlanError where environments are fewer
    than their workers."""
    found: list[Command] = []
    places = places or Places()
    require_workers(plan, envs)
    workers = plan.process_of("environments")
    urls = list(shared) or workers_of(plan, places)
    for i, share in enumerate(shares(envs, workers.replicas) if urls and not shared else ()):
        name = f"environments-{i}"
        words = ("environments", "--env", task_of(env), "--envs", str(share))
        words += ("--backend", backend) * (backend != "sync")
        words += ("--protocol", protocol, "--serve", urls[i], *places.open(name))
        found.append(Command(name, "environments", words, process=workers))
    common = ("--config", str(folder / CONFIG), "--run", str(folder))
    at = ("--environments", ",".join(urls)) if urls else ()
    if is_joint(env):
        at += ("--step-seconds", str(TOGETHER_S))
    learners = plan.process_of("learner")
    acting = plan.process_of("actor")
    if learners is acting:
        common += ("--turns", places.url("together")) if plan.synchronous else ()
        words = ("together", *common, *flags_of(learners.nets), *at)
        return [*found, Command("together", "together", words, served=True, process=acting)]
    turns = ("--turns", places.url("learner")) if plan.synchronous else ()
    found += learning(plan, learners, (*common, *turns), places)
    for i in range(acting.replicas):
        words = ("actor", *common, *turns, "--number", str(i), *at)
        found.append(Command(f"actor-{i}", "actor", words, served=True, process=acting))
    return found


def learning(
    plan: Plan, learners: Process, common: tuple[str, ...], places: Places
) -> list[Command]:
    """The learners, and where the weights are, if that is elsewhere."""
    weights, insecure = plan.process_of("weights"), places.open("learner")
    words = ("learner", "train", *common, *flags_of(learners.nets))
    if weights is learners:
        if learners.replicas == 1:
            more = insecure if plan.synchronous else ()
            return [Command("learner", "learner", (*words, *more), served=True, process=learners)]
        return [
            Command(name, "learner", words, variables, served=True, process=learners)
            for name, variables in ranks(learners, places).items()
        ]
    url = places.url("learner", weights.port)
    kept = ("learner", "train", *common, *flags_of(weights.nets), "--gradients", url, *insecure)
    found = [Command("learner", "weights", kept, served=True, process=weights)]
    for i in range(1, learners.replicas + 1):
        more = ("--central", url, "--number", str(i))
        found.append(
            Command(f"learner-{i}", "learner", (*words, *more), served=True, process=learners)
        )
    return found


def ranks(learners: Process, places: Places) -> dict[str, dict[str, str]]:
    """The variables of several learners that are one, as torchrun has them, by name."""
    common = {"WORLD_SIZE": str(learners.replicas), "MASTER_ADDR": places.host("learner")}
    common["MASTER_PORT"] = str(learners.port or places.port("learner"))
    found = {}
    for i in range(learners.replicas):
        name = "learner" if i == 0 else f"learner-{i}"
        # gloo takes the host's name for its address otherwise
        own = {"GLOO_SOCKET_IFNAME": places.interface(name), "RANK": str(i), "LOCAL_RANK": str(i)}
        found[name] = {**common, **own}
    return found
