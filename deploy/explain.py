"""What `run --explain` prints: the loop's graph, and how a plan cuts it.

The graph is read from the loop's source (graph.py). An edge within a process is a call; one between
two is carried by what the table names.
"""

from __future__ import annotations

from deploy.graph import Edge, graph
from deploy.plan import Plan

# What carries an edge that a plan cuts: (source, target): words. Every cut of POLICIES is here.
SERVER = "the replay server's protocol, over {transport}"
CARRIED = {
    ("actor", "environments"): "ZeroMQ, at every step (actor/env_wire.py)",
    ("environments", "actor"): "ZeroMQ, at every step (actor/env_wire.py)",
    ("actor", "replay"): SERVER,
    ("replay", "actor"): SERVER,
    ("replay", "learner"): SERVER,
    ("learner", "replay"): SERVER,
    ("weights", "inference"): SERVER,
    ("learner", "weights"): "ZeroMQ, at every update (learner/central.py)",
    ("weights", "learner"): "ZeroMQ, at every update (learner/central.py)",
}


def boxes(plan: Plan) -> list[str]:
    """One box for each kind of process: its fragments, how often, where."""
    lines = []
    for process in plan.processes:
        facts = [f"{process.replicas} x {process.name}", process.device]
        head = ", ".join(facts)
        body = " + ".join(process.fragments)
        width = max(len(head), len(body))
        lines += [f"  +-{'-' * width}-+", f"  | {head:{width}} |", f"  | {body:{width}} |"]
        lines += [f"  +-{'-' * width}-+"]
    return lines


def carried(edge: Edge, plan: Plan) -> str:
    """By what this edge goes under the plan."""
    if plan.process_of(edge.source) is plan.process_of(edge.target):
        return "a call"
    return CARRIED[edge.source, edge.target].format(transport=plan.transport)


def explained(plan: Plan) -> str:
    """The whole text."""
    rows = [("from", "to", "what", "type", "goes by")]
    for edge in graph().edges:
        rows.append((edge.source, edge.target, edge.name, edge.kind, carried(edge, plan)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  " + "  ".join(f"{part:{w}}" for part, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    order = "in turns" if plan.in_turns else "side by side"
    lines = [
        f"policy {plan.policy}; collecting and learning go {order}",
        "",
        *boxes(plan),
        "",
        "the loop's graph, read from replay_server/training/loop.py:",
        *table,
    ]
    if plan.engine == "ray":
        lines += ["  processes are placed by Ray, on the nodes of its cluster"]
    if plan.averaged:
        count = plan.process_of("learner").replicas
        lines += [f"  gradients are averaged over {count} learners (torch.distributed)"]
    return "\n".join(lines)
