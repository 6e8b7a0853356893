"""A plan: which fragments of the loop share a process, how often, on which device.

    policy = "single-learner-coarse"      one of POLICIES: the rule that the cut keeps
    transport = "udp"                     what the processes reach the replay server over
    synchronous = false                   true: collecting and learning take turns
    engine = "processes"                  what starts them: this program, here, or Ray, on a cluster

    [[process]]
    fragments = ["environments", "inference", "actor"]
    replicas = 2                          as many such processes
    device = "cpu"                        of a learner's nets: cpu, cuda, cuda:1, auto
    compile = false                       true: these nets by torch.compile
    cpus = 1                              that Ray keeps for each
    port = 0                              what the process serves at; 0: any free one

Every fragment stands in exactly one kind of process. A mistake is a PlanError of one sentence: the
line, the rule, the nearest legal value; nothing has been started then. The policies are those of
MSRL (Zhu et al., ATC 2023, table 2), by its names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from deploy.graph import graph
from replay_server.errors import ConfigError
from replay_server.support.arguments import nearest
from replay_server.support.toml import parsed

SHIPPED = Path(__file__).parent / "plans"
TRANSPORTS = ("udp", "zmq", "dpdk", "dpdk-memif", "loopback")
ENGINES = ("processes", "ray")
REPLICAS_MAX = CPUS_MAX = 1024
PORT_MAX = 65_535
DEVICE = re.compile(r"cpu|auto|cuda(:\d+)?")

ACTING = ("environments", "inference", "actor")
LEARNING = ("learner", "weights")
FRAGMENTS = (*ACTING, "replay", *LEARNING)
# The cut of each policy: its kinds of processes, each with the most replicas it may have.
POLICIES: dict[str, dict[tuple[str, ...], int]] = {
    "single-learner-coarse": {ACTING: REPLICAS_MAX, ("replay",): 1, LEARNING: 1},
    "single-learner-fine": {
        ("environments",): REPLICAS_MAX,
        ("replay",): 1,
        ("inference", "actor", *LEARNING): 1,
    },
    "multiple-learners": {ACTING: REPLICAS_MAX, ("replay",): 1, LEARNING: REPLICAS_MAX},
    "gpu-only": {(*ACTING, "replay", *LEARNING): 1},
    "environments": {
        ("environments",): REPLICAS_MAX,
        ("inference", "actor"): 1,
        ("replay",): 1,
        LEARNING: 1,
    },
    "central": {
        ACTING: REPLICAS_MAX,
        ("replay",): 1,
        ("learner",): REPLICAS_MAX,
        ("weights",): 1,
    },
}


NETS = ("device", "compile")  # keys of a process that are options of its learner
JOINT = "environments"  # of a task of several agents, whose actors share the workers


class PlanError(ConfigError):
    """A plan that cannot be run: the line, the rule, the nearest legal value."""


@dataclass(frozen=True)
class Process:
    """One kind of process; the fields as above. line: where it stands in its file."""

    fragments: tuple[str, ...]
    replicas: int = 1
    device: str = "cpu"
    compile: bool = False
    port: int = 0
    cpus: int = 1
    line: int = 0

    @property
    def nets(self) -> dict[str, Any]:
        """{option of a learner: what the plan says}."""
        return {name: getattr(self, name) for name in NETS}

    @property
    def name(self) -> str:
        """What its program is called, in logs and pictures."""
        for fragment, name in (("learner", "learner"), ("actor", "actor"), ("replay", "server")):
            if fragment in self.fragments:
                return name
        return self.fragments[0]


@dataclass(frozen=True)
class Plan:
    """What a file says; `path` names it in errors."""

    policy: str
    processes: tuple[Process, ...]
    transport: str = "udp"
    synchronous: bool = False
    engine: str = "processes"
    path: str = ""

    @property
    def averaged(self) -> bool:
        """Whether several learners are one: each draws its share of a batch."""
        learner = self.process_of("learner")
        return learner.replicas > 1 and "weights" in learner.fragments

    @property
    def in_turns(self) -> bool:
        """Whether nothing is collected while the learner learns."""
        return self.synchronous or self.policy == "gpu-only"

    def process_of(self, fragment: str) -> Process:
        """The kind of process that this fragment is in."""
        return next(process for process in self.processes if fragment in process.fragments)


def shipped() -> list[str]:
    """The names of the plans that come with this."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load(name: str) -> Plan:
    """The plan in the file `name`, or the shipped one of that name; PlanError."""
    path = Path(name)
    if path.suffix != ".toml":
        if name not in shipped():
            raise PlanError(
                f"no plan {name!r}; the nearest is {nearest(name, shipped())!r}, and a file of "
                "your own ends in .toml"
            )
        path = SHIPPED / f"{name}.toml"
    try:
        return _Reader(path).plan()
    except PlanError:
        raise
    except ConfigError as error:
        raise PlanError(f"{path}: {error}") from error


class _Reader:
    """One file, its document, and the line that each value stands in."""

    def __init__(self, path: Path) -> None:
        self.path, self.document = path, parsed(path)
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.heads = [i for i, text in enumerate(self.lines) if re.match(r"\s*\[\[", text)]

    def wrong(self, sentence: str, key: str = "", process: int | None = None) -> PlanError:
        """The error of what stands under `key`, of the file or of its process number so."""
        return PlanError(f"{self.path}, line {self.line(key, process)}: {sentence}")

    def line(self, key: str, process: int | None = None) -> int:
        """Where `key` stands, or its section begins; lines count from 1."""
        inline = process is None or process >= len(self.heads)  # process = [{...}, {...}]
        begin = 0 if inline else self.heads[process]
        end = next((head for head in self.heads if head > begin), len(self.lines))
        for i in range(begin, end):
            if key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", self.lines[i]):
                return i + 1
        return begin + 1

    def plan(self) -> Plan:
        """The whole plan, checked."""
        document = dict(self.document)
        sections = document.pop("process", [])
        names = [field.name for field in fields(Plan) if field.name not in ("processes", "path")]
        self._known(document, names)
        policy = document.get("policy")
        if not isinstance(policy, str) or policy not in POLICIES:
            raise self.wrong(self._no("policy", policy, POLICIES), "policy")
        whole = isinstance(sections, list) and all(isinstance(s, dict) for s in sections)
        if not whole or not sections:
            raise self.wrong("a plan has a [[process]] for each kind of process", "process")
        processes = tuple(self._process(i, section) for i, section in enumerate(sections))
        plan = Plan(
            policy,
            processes,
            transport=self._transport(document, policy),
            synchronous=self._flag(document, "synchronous"),
            engine=self._engine(document),
            path=str(self.path),
        )
        self._each_once(plan)
        self._cut(plan)
        self._turns(plan)
        require_served(plan)
        require_placeable(plan)
        self._ports(plan)
        return plan

    def _known(self, given: Mapping[str, Any], names: list[str], process: int | None = None):
        for key in given:
            if key not in names:
                close = nearest(key, names)
                raise self.wrong(f"no key {key!r}; the nearest is {close!r}", key, process)

    def _no(self, what: str, value: Any, known: Any) -> str:
        if not isinstance(value, str):
            return f"{what} is {value!r}; expected one of {', '.join(known)}"
        return f"no {what} {value!r}; the nearest is {nearest(value, known)!r}"

    def _flag(self, given: Mapping[str, Any], key: str, process: int | None = None) -> bool:
        value = given.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(f"{key} is {value!r}; expected true or false", key, process)
        return value

    def _whole(
        self, given: Mapping[str, Any], key: str, least: int, most: int, process: int
    ) -> int:
        value = given.get(key, least)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            legal = min(max(value, least), most) if isinstance(value, int) else least
            raise self.wrong(
                f"{key} is {value!r}; expected {least} to {most:,}, the nearest is {int(legal)}",
                key,
                process,
            )
        return value

    def _transport(self, document: Mapping[str, Any], policy: str) -> str:
        alone = policy == "gpu-only"
        transport = document.get("transport", "loopback" if alone else "udp")
        if not isinstance(transport, str) or transport not in TRANSPORTS:
            raise self.wrong(self._no("transport", transport, TRANSPORTS), "transport")
        if alone != (transport == "loopback"):
            which = "all fragments in one process" if alone else "fragments in several processes"
            right = "loopback" if alone else "udp"
            raise self.wrong(
                f"transport {transport!r}: {policy} has {which}, which meet over {right!r}"
                + ("" if alone else ", zmq or dpdk"),
                "transport",
            )
        return transport

    def _engine(self, document: Mapping[str, Any]) -> str:
        engine = document.get("engine", ENGINES[0])
        if not isinstance(engine, str) or engine not in ENGINES:
            raise self.wrong(self._no("engine", engine, ENGINES), "engine")
        return engine

    def _process(self, i: int, given: Any) -> Process:
        names = [field.name for field in fields(Process) if field.name != "line"]
        self._known(given, names, i)
        listed = given.get("fragments")
        if not isinstance(listed, list) or not listed:
            known = ", ".join(graph().fragments)
            raise self.wrong(f"a process needs fragments, of {known}", "fragments", i)
        for fragment in listed:
            if not isinstance(fragment, str) or fragment not in graph().fragments:
                sentence = self._no("fragment", fragment, graph().fragments)
                raise self.wrong(sentence, "fragments", i)
        listed = sorted(listed, key=FRAGMENTS.index)  # their order in a file says nothing
        compiled = self._flag(given, "compile", i)
        if compiled and not set(listed) & set(LEARNING):
            raise self.wrong(
                f"compile is true: {' + '.join(listed)} has no learner's nets; the nearest is "
                "false",
                "compile",
                i,
            )
        device = given.get("device", "cpu")
        if not isinstance(device, str) or not DEVICE.fullmatch(device):
            raise self.wrong(f"device {device!r}; expected cpu, cuda, cuda:N or auto", "device", i)
        if device != "cpu" and not set(listed) & set(LEARNING):
            raise self.wrong(
                f"device {device!r}: {' + '.join(listed)} runs on the processor; a learner's nets "
                "have a device",
                "device",
                i,
            )
        return Process(
            tuple(listed),
            replicas=self._whole(given, "replicas", 1, REPLICAS_MAX, i),
            device=device,
            compile=compiled,
            port=self._whole(given, "port", 0, PORT_MAX, i),
            cpus=self._whole(given, "cpus", 1, CPUS_MAX, i),
            line=self.line("fragments", i),
        )

    def _each_once(self, plan: Plan) -> None:
        seen: dict[str, int] = {}
        for i, process in enumerate(plan.processes):
            for fragment in process.fragments:
                if fragment in seen:
                    raise self.wrong(
                        f"fragment {fragment!r} stands in line {seen[fragment]} already: each is "
                        "in one kind of process; for more of them say replicas",
                        "fragments",
                        i,
                    )
                seen[fragment] = process.line
        missing = [name for name in graph().fragments if name not in seen]
        if missing:
            of = next(group for group in POLICIES[plan.policy] if missing[0] in group)
            beside = [name for name in of if name in seen]
            where = f"beside {beside[0]!r}" if beside else "in a [[process]] of its own"
            raise self.wrong(f"no process has fragment {missing[0]!r}; it belongs {where}")

    def _cut(self, plan: Plan) -> None:
        """The processes are those of the policy, and no more of each than it takes."""
        rule = {frozenset(group): most for group, most in POLICIES[plan.policy].items()}
        for i, process in enumerate(plan.processes):
            group = frozenset(process.fragments)
            if group not in rule:
                right = next(g for g in POLICIES[plan.policy] if process.fragments[0] in g)
                others = [name for name, cut in POLICIES.items() if _same_cut(cut, plan)]
                hint = f"; this cut is policy {others[0]!r}" if others else ""
                raise self.wrong(
                    f"policy {plan.policy!r} has {' + '.join(right)} in one process, not "
                    f"{' + '.join(process.fragments)}{hint}",
                    "fragments",
                    i,
                )
            if process.replicas > rule[group]:
                raise self.wrong(
                    f"replicas is {process.replicas}: policy {plan.policy!r} has "
                    f"{' + '.join(process.fragments)} {rule[group]} time",
                    "replicas",
                    i,
                )

    def _turns(self, plan: Plan) -> None:
        """In turns there is one learner, who says when the next one begins."""
        learner = plan.process_of("learner")
        several = learner.replicas > 1 or "weights" not in learner.fragments
        if plan.synchronous and several:
            raise self.wrong(
                f"synchronous is true, which takes one learner, and policy {plan.policy!r} has "
                "several here; the nearest is false",
                "synchronous",
            )

    def _ports(self, plan: Plan) -> None:
        taken: dict[int, int] = {}
        for i, process in enumerate(plan.processes):
            ports, line = ports_of(process), self.line("port", i)
            for port in ports:
                if port > PORT_MAX or port in taken:
                    last = PORT_MAX + 1 - len(ports)
                    free = next(
                        p
                        for p in (*range(process.port, last + 1), *range(last, 1023, -1))
                        if taken.keys().isdisjoint(range(p, p + len(ports)))
                    )
                    why = (
                        f"there is none above {PORT_MAX:,}"
                        if port > PORT_MAX
                        else f"line {taken[port]} has it"
                    )
                    raise self.wrong(
                        f"port {port} (of {process.replicas} from {process.port}): {why}; the "
                        f"nearest free one is {free}, and 0 takes any",
                        "port",
                        i,
                    )
            taken |= dict.fromkeys(ports, line)


def serves(process: Process, plan: Plan) -> bool:
    """Whether others come to this process at a port that a plan may name."""
    if process.fragments == ("replay",):
        return plan.transport in ("udp", "zmq")
    meets = plan.averaged and "learner" in process.fragments
    return process.fragments in (("environments",), ("weights",)) or meets


def ports_of(process: Process) -> range:
    """Those that a plan names for it: learners that are one meet at a single one."""
    count = 1 if "learner" in process.fragments else process.replicas
    return range(process.port, process.port + count * (process.port > 0))


def require_workers(plan: Plan, envs: int) -> None:
    """PlanError where an actor's environments are fewer than their workers."""
    workers = plan.process_of("environments")
    if workers.fragments == ("environments",) and envs < workers.replicas:
        raise PlanError(
            f"{plan.path}, line {workers.line}: {workers.replicas} workers for {envs} "
            f"environments: the nearest is replicas = {envs}, or more --envs"
        )


def with_actors(plan: Plan, count: int) -> Plan:
    """The plan with so many processes that act; PlanError where its policy has but one."""
    acting = plan.process_of("actor")
    most = next(m for g, m in POLICIES[plan.policy].items() if "actor" in g)
    if count > most:
        workers = ("environments",) in POLICIES[plan.policy]
        more = "; more workers are replicas of environments there" * workers
        raise PlanError(
            f"--actors {count}: {plan.path} is policy {plan.policy!r}, which has {most} actor{more}"
        )
    more = replace(acting, replicas=count)
    return replace(plan, processes=tuple(more if p is acting else p for p in plan.processes))


def require_served(plan: Plan) -> None:
    """PlanError where a process has a port at which it would serve nothing."""
    for process in plan.processes:
        if process.port and not serves(process, plan):
            who = " + ".join(process.fragments)
            raise PlanError(
                f"{plan.path}, line {process.line}: port is {process.port}, and {who} serves at "
                f"none over {plan.transport}: leave it out"
            )


def require_placeable(plan: Plan) -> None:
    """PlanError where Ray is to start what it cannot."""
    if plan.engine != "ray":
        return
    if plan.transport not in ("udp", "zmq"):
        all_here = plan.transport == "loopback"
        why = "is one process, which runs here" if all_here else f"is over {plan.transport}"
        others = "take engine 'processes'" if all_here else "take transport 'udp' or 'zmq'"
        raise PlanError(f"{plan.path}: engine 'ray', and the plan {why}: {others}")
    for process in plan.processes:
        if process.device.startswith("cuda:"):
            raise PlanError(
                f"{plan.path}, line {process.line}: device {process.device!r}: Ray gives each "
                "process a GPU of its own, and chooses which; say 'cuda'"
            )


def _same_cut(cut: Mapping[tuple[str, ...], int], plan: Plan) -> bool:
    return {frozenset(group) for group in cut} == {frozenset(p.fragments) for p in plan.processes}
