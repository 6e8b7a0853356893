"""Replay, as a learner has it: batches that come ahead of time, priorities that go back."""

from __future__ import annotations

import time
from collections.abc import Callable

from replay_server import Batch, Batches, Client, LimiterBlocked
from replay_server.training.loop import Priorities
from replay_server.training.runs import Phases

TRY_S = 0.25


class Replay:
    """One table of a server. `batches` and `client` are the caller's.

    ages: of each batch drawn, the mean age of its items; the caller empties it.
    """

    def __init__(self, client: Client, table: str, batches: Batches, phases: Phases) -> None:
        self.client, self.table, self.batches, self.phases = client, table, batches, phases
        self.ages: list[float] = []

    def sample(self) -> Batch | None:
        """The next batch, or None for now; its time as `limited`, `wait` and `fetch`.

        limited: the limiter held it back. wait: the server was free to send it, and it was not
        here yet. fetch: our own work, landing it and asking for a further one.
        """
        batches = self.batches
        waited, limited, begin = batches.waited, batches.limited, time.perf_counter()
        batch = batches.get(timeout=TRY_S)
        spent = time.perf_counter() - begin
        waited, limited = batches.waited - waited, batches.limited - limited
        self.phases.add("wait", waited)
        self.phases.add("limited", limited)
        self.phases.add("fetch", max(spent - waited - limited, 0.0))
        if batch is not None:
            self.ages.append(float(batch.ages.mean()))
        return batch

    def update(self, batch: Batch, priorities: Priorities) -> None:
        """New priorities of a batch's items, on their way; nothing where there are none."""
        if priorities is None:
            return
        with self.phases("update"):
            self.client.update_priorities(self.table, batch.keys, priorities, wait=False)


class InOrder:
    """The same, where each batch is drawn as it is asked for, and its priorities are set before
    anything else happens."""

    def __init__(self, client: Client, table: str, count: int, beta: Callable[[], float]) -> None:
        self.client, self.table, self.count, self.beta = client, table, count, beta
        self.ages: list[float] = []

    def ready(self) -> bool:
        """Whether a batch may be drawn now."""
        return self.client.can_sample(self.table, self.count)

    def sample(self) -> Batch | None:
        """The next batch; None where the table has become another since it was ready."""
        try:
            batch = self.client.sample(self.table, self.count, beta=self.beta())
        except LimiterBlocked:
            return None
        self.ages.append(float(batch.ages.mean()))
        return batch

    def update(self, batch: Batch, priorities: Priorities) -> None:
        """New priorities of a batch's items, set; nothing where there are none."""
        if priorities is None:
            return
        self.client.update_priorities(self.table, batch.keys, priorities)
