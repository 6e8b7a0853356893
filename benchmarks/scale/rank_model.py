"""What 1 to 64 actors, or learners, should come to: from what one of them takes.

Actors of a plan without shared inference do not wait for one another, so that they end where a core
or the server does:

    steps/s = min(a / (s_actor + s_server), n / s_actor, 1 / s_server)

with a cores of one host for all, the server's included; a = infinite: a core for each. s_actor,
s_server: processor seconds of a step.

Learners whose gradients are averaged take a share of the batch each, and meet twice in an update:
for the largest weight (two numbers) and for the gradients (P bytes). An all-reduce over a ring has
2 (n - 1) rounds, in which each rank passes 2 (n - 1) / n of the bytes on (Patarasuk & Yuan, 2009):

    s_update = max(1, n / a) s_share(B / n) + s_apply + 4 (n - 1) latency + 2 (n - 1) / n P / width
    updates/s = min(1 / s_update, 1 / (B s_item))

s_share: gradients of a share, measured for each n; s_apply: the optimizer's step; s_item: the
server's processor time of a sampled item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RANKS = (1, 2, 4, 8, 16, 32, 64)
APART = float("inf")  # cores, where each has its own


@dataclass(frozen=True)
class Actors:
    """Processor seconds of a step, of an actor and of the server."""

    step_s: float
    server_s: float

    def rate(self, count: int, cores: float = APART) -> float:
        """Environment steps a second of so many actors."""
        together = cores / (self.step_s + self.server_s)
        return min(together, count / self.step_s, 1 / self.server_s)


@dataclass(frozen=True)
class Learners:
    """What an update of `batch` items takes. share_s: {ranks: seconds of one's gradients}."""

    batch: int
    share_s: Mapping[int, float]
    apply_s: float
    bytes: int
    latency_s: float
    width: float  # bytes a second
    item_s: float

    def reduce_s(self, count: int) -> float:
        """Of both all-reduces."""
        moved = 2 * (count - 1) / count * self.bytes
        return 4 * (count - 1) * self.latency_s + moved / self.width

    def rate(self, count: int, cores: float = APART) -> float:
        """Updates a second of so many learners."""
        share = self.share_s[count] * max(1.0, count / cores)
        update = share + self.apply_s + self.reduce_s(count)
        return min(1 / update, 1 / (self.batch * self.item_s))
