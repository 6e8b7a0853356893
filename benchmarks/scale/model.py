"""What a core, eight cores and a rack should serve at 40 and 100 GbE: on paper, with its error.

Inputs are counts, which do not depend on how busy the machine is: instructions of the server's
turns and bytes that passed (counting.py).
A request costs a core

    ns = instructions / speed + bytes / width
    requests/s = min(cores / ns, line / bits on the wire)

as bytes that are copied take time in which few instructions end. `speed` and `width` are fitted to
the timed turns of half of the workloads (least squares of the relative error), and the other half
says how wrong the model is: that error is printed beside what it says.

Eight cores are eight servers, each with a core, a queue and a table of its own: nothing is shared
between them. A rack is RACK hosts of that kind, each with its card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import dpdk_cost as cost

RACK = 32
LINES = (40e9, 100e9)
PAPER_SPEED = cost.PAPER_HZ * cost.PAPER_IPC / 1e9  # instructions a nanosecond


@dataclass(frozen=True)
class Core:
    """speed: instructions a nanosecond; width: bytes a nanosecond; infinite: they cost nothing."""

    speed: float
    width: float

    def ns(self, request: Request) -> float:
        """Of one such request."""
        return request.instructions / self.speed + request.wire_bits / 8 / self.width


@dataclass(frozen=True)
class Request:
    """One kind of request, each figure of one such request.

    instructions  of the server's turn
    wire_bits     of the fuller direction, Ethernet's own included
    items         steps pushed or items sampled; 0: a ping
    ns            the same turn without callgrind, on this machine
    """

    name: str
    mtu: int
    instructions: float
    wire_bits: float
    items: float
    ns: float


def fitted(requests: Sequence[Request]) -> tuple[Core, list[float]]:
    """The core, by every second workload; and for the others the share by which the model's time is
    off the measured one: 0.2 where it says a fifth too much."""
    some = requests[::2]
    parts = np.array([[each.instructions, each.wire_bits / 8] for each in some])
    parts /= np.array([[each.ns] for each in some])
    a_instruction, a_byte = np.linalg.lstsq(parts, np.ones(len(some)), rcond=None)[0]
    if a_byte <= 0:  # noise: bytes are not cheaper than nothing
        a_byte, a_instruction = 0.0, 1 / np.median(1 / parts[:, 0])
    core = Core(1 / a_instruction, 1 / a_byte if a_byte else float("inf"))
    return core, [core.ns(each) / each.ns - 1 for each in requests[1::2]]


def served(request: Request, core: Core, cores: int, line: float) -> tuple[float, str]:
    """Requests a second, and what bounds them: "core" or "line". One card for all cores."""
    by_core, by_line = cores * 1e9 / core.ns(request), line / request.wire_bits
    return min(by_core, by_line), "core" if by_core < by_line else "line"
