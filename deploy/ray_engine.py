"""Ray as the engine of a run: a placement group, one actor for each process.

    bundle 0       the server and the learner, whose batches so stay in one host's memory
    bundle 1 ..    one for each other process; SPREAD: on as many nodes as there are

An actor runs the very command that a local run has (placed.py); its end is the command's. Ray moves
the bundles of a node that is lost, and the Fleet starts again what was there: Ray's own restarts
know nothing of the checkpoint that a learner goes on from. So actors have max_restarts=0.

All processes share the run's folder, by the same path: each node is asked before anything starts.
Addresses are loopback where one host has the run, else those of the nodes, which --insecure allows.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from deploy import placed
from deploy.engines import Engine
from deploy.launch import HOST, Command
from deploy.processes import GRACE_S, Logged
from replay_server.errors import ConfigError

STORE_BYTES = 80 << 20  # of a Ray of this run's own: nothing goes through its object store
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
REACH_S, PLACE_S = 5.0, 60.0
FACTS = (
    *("class_name:", "actor_id:", "pid:", "name:", "namespace:", "ip:"),
    "The actor died unexpectedly before",
)
GUESSES = "Some common causes include"
THREADS = 8  # of an actor: one waits, the others answer
LOST = -9  # the exit code of a program whose actor is gone: it was killed with it
FORWARDED = "REPLAY_"  # variables of this program that the others get: keys, among them
TOGETHER = ("server", "learner", "together")  # in one bundle

ray.cloudpickle.register_pickle_by_value(placed)  # nodes need no folder deploy/


@dataclass
class Place:
    """Of one bundle: its node, and what was seen there."""

    node: str
    ip: str
    port: int
    interface: str


class RayEngine(Engine):
    """Processes on a Ray cluster, or on a Ray of its own on this machine."""

    def __init__(self, folder: Path, address: str, insecure: bool) -> None:
        super().__init__()
        self.folder, self.insecure = folder.resolve(), insecure
        self.address = address or os.environ.get("RAY_ADDRESS", "")
        self.group: PlacementGroup | None = None
        self.needs: list[dict[str, float]] = []  # of each bundle
        self.bundle: dict[str, int] = {}  # of each process
        self.gpus: dict[str, int] = {}
        self.cpus: dict[str, int] = {}
        self.places: list[Place] = []
        self.alone = True  # one host has all of it

    def place(self, commands: Sequence[Command]) -> None:
        """Connects, and reserves all places at once."""
        self.connect(sum(c.process.cpus for c in commands))
        self.divide(commands)
        self.require_room()
        self.group = placement_group(self.needs, strategy="SPREAD")
        if not self.group.wait(PLACE_S):
            free = ray.available_resources()
            raise ConfigError(
                f"{self.wanted()}, and of the Ray cluster's {amounts(free)} are free, on "
                f"{len(self.nodes())} nodes: wait for other jobs, or add a node (ray start)"
            )
        self.places = [self.look_at(i) for i in range(len(self.needs))]
        self.require_allowed()

    def connect(self, cpus: int) -> None:
        """To the cluster, or to a Ray of its own, which counts as many CPUs as are asked for."""
        held = signal.getsignal(signal.SIGTERM)
        try:
            if self.address in ("", "local"):
                self.start_own(max(cpus, os.cpu_count() or 1))
            else:
                self.reach()
        finally:
            signal.signal(signal.SIGTERM, held)  # Ray takes it for its own

    @staticmethod
    def start_own(cpus: int) -> None:
        """A Ray that ends with this run."""
        own = {"num_cpus": cpus, "object_store_memory": STORE_BYTES}
        try:
            ray.init(address="local", include_dashboard=False, **own, **QUIET)
        except Exception as error:  # it raises just that where its programs do not come up
            why = f"Ray did not start here: {first_line(error)}"
            raise ConfigError(f"{why}; see /tmp/ray/session_latest/logs") from error

    def reach(self) -> None:
        """The cluster at this address."""
        host, _, port = self.address.rpartition(":")
        try:
            if port.isdigit():  # Ray itself takes a minute to say so
                socket.create_connection((host, int(port)), REACH_S).close()
            ray.init(address=self.address, **QUIET)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"no Ray cluster answers at {self.address} ({first_line(error)}): start it with "
                "`ray start --head`, and run this on one of its nodes"
            ) from error

    def divide(self, commands: Sequence[Command]) -> None:
        """The bundles, and what each process takes of its own."""
        nets = {c.name: c.process.device for c in commands if c.process.device != "cpu"}
        there = ray.cluster_resources().get("GPU", 0)
        enough = len(nets) <= there  # "auto": a GPU, if there is one for each
        self.gpus = {name: int(device != "auto" or enough) for name, device in nets.items()}
        self.needs = [{}]
        for command in commands:
            name = command.name
            i = self.bundle[name] = 0 if name in TOGETHER else len(self.needs)
            if i == len(self.needs):
                self.needs.append({})
            need, self.cpus[name] = self.needs[i], command.process.cpus
            need["CPU"] = need.get("CPU", 0) + self.cpus[name]
            if self.gpus.get(name):
                need["GPU"] = need.get("GPU", 0) + 1

    def wanted(self) -> str:
        """What the whole run needs, for a person."""
        total = {kind: sum(n.get(kind, 0) for n in self.needs) for kind in ("CPU", "GPU")}
        return f"the plan needs {amounts(total)}, of which {amounts(self.needs[0])} on one node"

    def require_room(self) -> None:
        """ConfigError where the cluster, with nothing else on it, is too small."""
        there = ray.cluster_resources()
        for kind in ("CPU", "GPU"):
            if sum(need.get(kind, 0) for need in self.needs) > there.get(kind, 0):
                raise ConfigError(
                    f"{self.wanted()}, and the Ray cluster has {amounts(there)}: add a node "
                    "(ray start), or take fewer replicas"
                )

    @staticmethod
    def nodes() -> list[dict[str, Any]]:
        """Those that are alive."""
        return [node for node in ray.nodes() if node["Alive"]]

    def on(self, i: int) -> dict[str, Any]:
        """Options of what runs in this bundle."""
        where = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=i)
        return {"scheduling_strategy": where}

    def look_at(self, i: int) -> Place:
        """The node that the bundle is on; ConfigError where the run's folder is not there."""
        token = self.folder / f".ray-{secrets.token_hex(8)}"
        token.write_text(token.name)
        try:
            look = ray.remote(num_cpus=0, max_retries=3, **self.on(i))(seen)
            found = ray.get(look.remote(str(token)), timeout=PLACE_S)
        except GetTimeoutError as error:
            names = [name for name, bundle in self.bundle.items() if bundle == i]
            raise ConfigError(
                f"no node has room for {' and '.join(names)} ({amounts(self.needs[i])}) within "
                f"{PLACE_S:g} s; {len(self.nodes())} nodes are left: add one (ray start)"
            ) from error
        finally:
            token.unlink()
        where = f"node {found['ip']}"
        if found["token"] != token.name:
            raise ConfigError(
                f"{where} has no folder {self.folder}: the run's folder has to be shared by all "
                "nodes, by the same path; name one with --run"
            )
        if not found["installed"]:
            raise ConfigError(f"{where} has no replay-server: pip install 'replay-server[train]'")
        return Place(found["node"], found["ip"], found["port"], found["interface"])

    def require_allowed(self) -> None:
        """ConfigError where processes would have to listen to other hosts, and may not."""
        ips = {place.ip for place in self.places} | {ray.util.get_node_ip_address()}
        self.alone = self.alone and len(ips) == 1
        if not self.alone and not self.insecure:
            raise ConfigError(
                f"the run's processes are on several hosts ({', '.join(sorted(ips))}), where "
                "whoever reaches their ports is let in: say --insecure where nobody else is on "
                "that network"
            )

    def host(self, name: str) -> str:
        return HOST if self.alone else self.places[self.bundle[name]].ip

    def port(self, name: str) -> int:
        return self.places[self.bundle[name]].port

    def interface(self, name: str) -> str:
        return "lo" if self.alone else self.places[self.bundle[name]].interface

    def start(
        self, name: str, command: Sequence[str], log: Path, variables: Mapping[str, str]
    ) -> Logged:
        """One more actor; `variables` beside those of its node."""
        own = {k: v for k, v in os.environ.items() if k.startswith(FORWARDED)}
        gpus = self.gpus.get(name, 0)
        if not gpus:
            own["CUDA_VISIBLE_DEVICES"] = ""  # those are of who reserved them
        made = ray.remote(
            num_cpus=self.cpus[name],
            num_gpus=gpus,
            max_restarts=0,
            max_concurrency=THREADS,
            **self.on(self.bundle[name]),
        )(placed.Placed)
        at = self.places[self.bundle[name]].ip
        return RayProcess(name, made, at, command, log.resolve(), {**own, **variables})

    def moved(self, name: str) -> bool:
        """Waits until Ray has a place for it; every bundle of a lost node is looked at again."""
        before = self.places[self.bundle[name]].node
        now = self.look_at(self.bundle[name])
        if now.node == before:
            return False
        for i, place in enumerate(self.places):
            if place.node == before:
                self.places[i] = self.look_at(i)
        self.require_allowed()
        return True

    def close(self) -> None:
        """Gives the places back, and leaves the cluster."""
        if self.group is not None:
            remove_placement_group(self.group)
        ray.shutdown()


class RayProcess(Logged):
    """One actor and the program in it."""

    def __init__(
        self,
        name: str,
        made: Any,
        at: str,
        command: Sequence[str],
        log: Path,
        variables: Mapping[str, str],
    ) -> None:
        super().__init__(name, log)
        self.at, self.lock = at, threading.Lock()
        self.actor = made.remote(name, list(command), str(log), dict(variables))
        self.waiting = self.actor.wait.remote()
        self.code: int | None = None

    def ended(self) -> int | None:
        """The exit code, or None while it runs or has no place yet."""
        with self.lock:  # the page of the run asks too, in a thread of its own
            if self.code is None and ray.wait([self.waiting], timeout=0)[0]:
                self.code = self.outcome()
            return self.code

    def outcome(self) -> int | None:
        """The exit code, as the actor says it, or Ray of the actor."""
        try:
            code = ray.get(self.waiting)
        except ActorUnavailableError:
            self.waiting = self.actor.wait.remote()  # Ray does not know yet whether it is dead
            return None
        except RayError as error:
            code, self.reason = LOST, f"on {self.at}, {said_of(error)}"
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"{self.name}: {self.reason}\n")
        ray.kill(self.actor)  # it has nothing left to run
        return code

    def tell(self) -> None:
        """SIGTERM, if it still runs; once."""
        if self.ended() is None and not self.told:
            self.told = True
            self.actor.tell.remote()

    def end(self, grace_s: float = GRACE_S) -> int:
        """SIGTERM, then the end of its actor after `grace_s`; the exit code."""
        self.tell()
        until = time.monotonic() + grace_s
        while self.ended() is None and (left := until - time.monotonic()) > 0:
            ray.wait([self.waiting], timeout=left)
        if self.code is None:
            self.killed, self.code = True, LOST
            ray.kill(self.actor)
        return self.code


def seen(token: str) -> dict[str, object]:
    """On a node: which it is, and what placed.py sees there."""
    context, ip = ray.get_runtime_context(), ray.util.get_node_ip_address()
    return {"node": context.get_node_id(), "ip": ip, **placed.looked(ip, token)}


def amounts(resources: Mapping[str, float]) -> str:
    """CPUs and GPUs, for a person."""
    cpus, gpus = (int(resources.get(kind, 0)) for kind in ("CPU", "GPU"))
    return f"{cpus} CPU{'s' * (cpus != 1)} and {gpus} GPU{'s' * (gpus != 1)}"


def said_of(error: RayError) -> str:
    """Why an actor is gone, in Ray's own words, without those that only Ray needs."""
    text = str(error).partition(GUESSES)[0]
    lines = [line.strip().rstrip(".") for line in text.splitlines()]
    return "; ".join(line for line in lines if line and not line.startswith(FACTS))


def first_line(error: BaseException) -> str:
    """Of what an error says, without its last dot."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
