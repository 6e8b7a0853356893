"""What a plan starts on this machine: the command of each process, in the order of starting.

    environments   replay-server environments     one for each replica, at a port of its own
    server         replay-server serve
    actor          replay-server actor            with --environments where others step them
    learner        replay-server learner train    as torchrun starts it where there are several
    together       replay-server together         actor and learner in one process
    weights        replay-server learner train --gradients, whose learners have --central

The commands are those a person would type; the plan is in none of the programs.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.plan import ACTING, Plan, Process, require_workers

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Command:
    """One process to start. name: unique in the run, and its log's. kind: see above; `words` behind
    `replay-server`; `variables` beside the environment's own."""

    name: str
    kind: str
    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    served: bool = False  # it is given --server


def free_port() -> int:
    """A TCP port of this host that nobody has now; kept by number, so that a process which is
    started again finds its place."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def shares(total: int, parts: int) -> list[int]:
    """`total` in `parts` shares, the first ones larger."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def commands(plan: Plan, folder: Path, envs: int, env: str, protocol: str) -> list[Command]:
    """Of every process but the server, which comes first. envs: of each actor. PlanError where they
    are fewer than their workers."""
    found: list[Command] = []
    require_workers(plan, envs)
    workers = plan.process_of("environments")
    urls = []
    if workers.fragments == ("environments",):
        for i, share in enumerate(shares(envs, workers.replicas)):
            urls.append(f"tcp://{HOST}:{port_of(workers, i)}")
            words = ("environments", "--env", env, "--envs", str(share))
            words += ("--protocol", protocol, "--serve", urls[-1])
            found.append(Command(f"environments-{i}", "environments", words))
    common = ("--config", str(folder / "config.toml"), "--run", str(folder))
    at = ("--environments", ",".join(urls)) if urls else ()
    learners = plan.process_of("learner")
    if plan.synchronous:
        common += ("--turns", f"tcp://{HOST}:{free_port()}")
    if learners is plan.process_of("actor"):
        device = ("--device", learners.device)
        return [
            *found,
            Command("together", "together", ("together", *common, *device, *at), served=True),
        ]
    found += learning(plan, learners, common)
    for i in range(workers.replicas if workers.fragments == ACTING else 1):
        words = ("actor", *common, "--number", str(i), *at)
        found.append(Command(f"actor-{i}", "actor", words, served=True))
    return found


def learning(plan: Plan, learners: Process, common: tuple[str, ...]) -> list[Command]:
    """The learners, and where the weights are, if that is elsewhere."""
    words = ("learner", "train", *common, "--device", learners.device)
    weights = plan.process_of("weights")
    if weights is learners:
        if learners.replicas == 1:
            return [Command("learner", "learner", words, served=True)]
        ranks = {"WORLD_SIZE": str(learners.replicas), "MASTER_ADDR": HOST}
        ranks["MASTER_PORT"] = str(port_of(learners, 0))
        ranks["GLOO_SOCKET_IFNAME"] = "lo"  # gloo takes the host's name for its address otherwise
        return [
            Command(
                "learner" if i == 0 else f"learner-{i}",
                "learner",
                words,
                {**ranks, "RANK": str(i), "LOCAL_RANK": str(i)},
                served=True,
            )
            for i in range(learners.replicas)
        ]
    url = f"tcp://{HOST}:{port_of(weights, 0)}"
    kept = ("learner", "train", *common, "--device", weights.device, "--gradients", url)
    found = [Command("learner", "weights", kept, served=True)]
    for i in range(1, learners.replicas + 1):
        more = ("--central", url, "--number", str(i))
        found.append(Command(f"learner-{i}", "learner", (*words, *more), served=True))
    return found


def port_of(process: Process, replica: int) -> int:
    """The port that a replica serves at."""
    return process.port + replica if process.port else free_port()
