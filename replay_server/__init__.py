"""Experience replay that lives in the network: a server that stores steps and draws batches itself.

    spec = spec_from(env)
    table = Table("main", step=spec, plan=NStep(3), capacity=100_000)
    with Server([table], "udp://127.0.0.1:0", seed=1) as server, Client(server.address) as client:
        with client.writer("main", autoreset=envs) as writer: ...
        batch = client.sample("main", 512, beta=0.4)
        client.update_priorities("main", batch, priority_from_td(td))

Names are looked up on first use, so that `import replay_server.spec` needs no compiled core.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "autoreset": ("Autoreset", "Rows", "mode_of"),
    "anchors": ("Ready",),
    "batch": ("Batch", "Keys", "priority_from_td"),
    "batches": ("Batches",),
    "client": ("Client",),
    "errors": (
        "ClosedError",
        "ConfigError",
        "ForkedError",
        "Insecure",
        "LimiterBlocked",
        "NoRoom",
        "NotAuthorised",
        "NothingDrawable",
        "OverBudget",
        "ReplayError",
        "ServerRestarted",
        "SessionExpired",
        "ShortBatch",
        "SpecMismatch",
        "StaleEpoch",
        "Timeout",
        "TransportError",
        "UnknownPlan",
        "UnknownTable",
        "WeightsGone",
    ),
    "plans": ("NStep", "Offsets", "Plan", "Row", "Sequence"),
    "priorities": ("UpdateResult",),
    "returns": ("Transitions", "n_step_targets"),
    "server": ("Server", "ServerOptions"),
    "spec": ("Column", "Spec", "SpecError", "spec_from"),
    "stacking": ("FrameStack", "stacks_from_frames"),
    "table": ("MinSize", "Prioritized", "SamplesPerInsert", "Table", "Uniform"),
    "writer": ("Writer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
