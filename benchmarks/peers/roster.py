"""Every row of the table: which module, installed how, set up how, and what differs in meaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import ROOT

HERE = "here"  # the environment of this interpreter
NETWORK, PROCESS, SHOWN = "network", "in process", "shown, not counted"
CPPRB = "cpprb==11.0.0"
TORCH = "torch==2.13.0"  # as constraints.txt has it: a newer one pulls gigabytes for GPUs
# its wheels need the torch they were built with
TORCHRL = ("torchrl==0.14.1", "tensordict", "numpy", "torch==2.14.1")

PLACES = "keys are places: an update of an item that was overwritten goes to its successor"
STORE = "large answers go through shared memory of one host, not over a socket"


@dataclass(frozen=True)
class Listed:
    """One row. where: NETWORK, PROCESS or SHOWN; ours: this package; items: () for all kinds;
    notes: the footnotes of the table."""

    name: str
    module: str
    where: str
    environment: str
    packages: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    python: str = ""  # "3.11": the interpreter that its wheels need
    reserves: bool = True  # whether an empty table takes memory by its capacity
    spins: bool = False  # whether its processes take a core while nothing is asked of them

    @property
    def ours(self) -> bool:
        return self.module == "ours"

    @property
    def served(self) -> bool:
        """Whether a process of its own serves it."""
        return self.where != PROCESS

    @property
    def equal(self) -> bool:
        """Whether it waits asleep and goes through a socket, as most behind a network do."""
        return not self.spins and not self.options.get("url", "").startswith("dpdk:")

    def has(self, item: str) -> bool:
        """Whether the row has this kind of item."""
        return not self.items or item in self.items


MEMIF = (
    "dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket={folder}/memif,links=16",
    "a client's bytes cross shared memory of one host, not a wire",
)
FRAMES = "frames are sent and stored once; a batch is cut into two stacks of four at the client"
BUSY = "both ends wait without sleeping, and are stopped while others are measured"
REACTOR = (
    "a thread of TensorPipe's never sleeps; its processes are stopped while others are measured"
)


def ours() -> list[Listed]:
    """This package over every transport that is built here, plain bytes and native frames."""
    urls: dict[str, tuple[str, tuple[str, ...]]] = {
        "udp": ("udp://127.0.0.1:0", ()),
        "zmq+tcp": ("zmq+tcp://127.0.0.1:0", ()),
    }
    if (ROOT / "replay_server" / "_dpdk.so").exists():
        urls["memif"] = (MEMIF[0], (MEMIF[1],))
    rows = []
    for name, (url, notes) in urls.items():
        rows.append(
            Listed(f"ours {name}", "ours", NETWORK, HERE, options={"url": url}, notes=notes)
        )
    busy = {"url": urls["udp"][0], "busy_poll": True}
    rows.append(
        Listed("ours udp, busy", "ours", NETWORK, HERE, options=busy, notes=(BUSY,), spins=True)
    )
    for name, (url, notes) in urls.items():
        options, said = {"url": url, "frames": True}, (*notes, FRAMES)
        rows.append(
            Listed(f"ours {name}, frames", "ours", NETWORK, HERE, (), options, ("atari",), said)
        )
    options = {"url": "loopback://"}
    rows.append(Listed("ours loopback", "ours", PROCESS, HERE, options=options))
    return rows


def peers() -> list[Listed]:
    """The others."""
    held = {"buffer": "cpprb"}
    pickled = {"module": "pickle_zmq", "where": NETWORK, "environment": "cpprb"}
    packages = (CPPRB, "pyzmq", "numpy")
    redis = ("redis[hiredis]", "numpy")
    reverb = ("dm-reverb[tensorflow]==0.14.0", "numpy")
    chunk = "no importance weights of its own; it compresses what it stores"
    task = "uniform draws by its sampler, no priorities; items are columns of a batch by index"
    return [
        Listed("zmq pickle", packages=packages, options=held, notes=(PLACES,), **pickled),
        Listed(
            "zmq out of band",
            packages=packages,
            options={**held, "out_of_band": True},
            notes=(PLACES,),
            **pickled,
        ),
        Listed(
            "Reverb",
            "reverb",
            NETWORK,
            "reverb",
            reverb,
            notes=(chunk,),
            python="3.11",
            reserves=False,
        ),
        Listed(
            "Reverb, frames",
            "reverb",
            NETWORK,
            "reverb",
            reverb,
            {"frames": True},
            ("atari",),
            (chunk, FRAMES),
            "3.11",
            False,
        ),
        Listed(
            "Ray actor",
            "ray_actor",
            NETWORK,
            "ray",
            ("ray", CPPRB, "numpy"),
            held,
            notes=(PLACES, STORE),
        ),
        Listed(
            "TorchRL rpc",
            "torchrl",
            NETWORK,
            "torchrl",
            TORCHRL,
            notes=(PLACES, STORE, REACTOR),
            reserves=False,
            spins=True,
        ),
        Listed(
            "TransferQueue",
            "transferqueue",
            NETWORK,
            "transferqueue",
            ("TransferQueue", "numpy", TORCH),
            notes=(task,),
            reserves=False,
        ),
        Listed("Redis", "redis", NETWORK, "redis", redis, notes=(PLACES,), reserves=False),
        Listed(
            "Redis, at learner",
            "redis",
            SHOWN,
            "redis",
            redis,
            {"at": "learner"},
            notes=(PLACES, "its tree knows this client's inserts and updates alone"),
            reserves=False,
        ),
        Listed("cpprb", "in_process", PROCESS, "cpprb", packages, held, notes=(PLACES,)),
        Listed(
            "TorchRL",
            "torchrl",
            PROCESS,
            "torchrl",
            TORCHRL,
            notes=(PLACES,),
            reserves=False,
        ),
        Listed(
            "Stable-Baselines3",
            "sb3",
            PROCESS,
            "sb3",
            ("stable-baselines3", "numpy", TORCH),
            notes=("uniform draws, no priorities; next observations are stored beside",),
            reserves=False,
        ),
    ]


def roster() -> list[Listed]:
    """All rows, ours first."""
    return [*ours(), *peers(), *STAND_INS]


# For tests: the same program as `zmq pickle`, its buffer of NumPy, in this interpreter.
STAND_INS: tuple[Listed, ...] = (
    Listed(
        "stand-in zmq", "pickle_zmq", NETWORK, HERE, options={"buffer": "numpy"}, notes=(PLACES,)
    ),
    Listed("stand-in", "in_process", PROCESS, HERE, options={"buffer": "numpy"}, notes=(PLACES,)),
    Listed("stand-in missing", "in_process", PROCESS, "missing", ("nothing",), python="9.9"),
)


def chosen(names: str) -> list[Listed]:
    """Those whose name holds one of these words, apart by commas; without words all but the
    stand-ins. ValueError names a word that fits none."""
    rows = roster()
    if not names.strip():
        return [row for row in rows if row not in STAND_INS]
    found: list[Listed] = []
    for word in (word.strip().lower() for word in names.split(",")):
        fitting = [
            row
            for row in rows
            if word in row.name.lower() and (row not in STAND_INS or word == row.name)
        ]
        if not fitting:
            raise ValueError(
                f"PEERS: {word!r} is in no name; there are: "
                + ", ".join(row.name for row in rows if row not in STAND_INS)
            )
        found += [row for row in fitting if row not in found]
    return found
