"""How far an actor is ahead of what the server let in: two numbers, and their bounds.

    unacknowledged   rows taken and not yet acknowledged; at most the writer's unacknowledged_max
    steps ahead      items that exist or wait in this writer beyond what the limiter aims at,
                     min_size + sampled / ratio; at most the limiter's own buffer, or what the
                     message that reaches min_size may pass it by, and the above

Beyond either bound an actor plays with a policy that is older than anybody asked for, and nothing
else would show it. So a run that passes a bound ends with an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from replay_server import ReplayError
from replay_server.requests.remote import RemoteTable
from replay_server.writing.writers import WriterState


@dataclass(frozen=True)
class Ahead:
    """Rows and items; `steps` and `steps_max` are None where the table has no limiter's ratio."""

    unacknowledged: int
    unacknowledged_max: int
    steps: float | None
    steps_max: float | None

    def check(self) -> None:
        """ReplayError where a bound is passed."""
        if self.unacknowledged > self.unacknowledged_max:
            raise ReplayError(
                f"{self.unacknowledged} rows are not acknowledged and {self.unacknowledged_max} "
                "may be: the writer's back-pressure failed; please report it"
            )
        if self.steps is not None and self.steps > self.steps_max:
            raise ReplayError(
                f"this actor is {self.steps:.0f} steps ahead of the limiter and may be "
                f"{self.steps_max:.0f}: back-pressure failed; please report it"
            )


def ahead_of(state: WriterState, table: RemoteTable) -> Ahead:
    """From a writer's state, and the table as it was looked up after it, never before: what is
    stored in between counts twice then, and never too little."""
    steps = steps_max = None
    if table.samples_per_insert > 0.0 and not table.fifo:  # a queue counts what lies in it alone
        aim = table.min_size + table.sampled / table.samples_per_insert
        buffer = table.error_max / table.samples_per_insert - table.min_size
        message = (table.error_max - table.error_min) / (2 * table.samples_per_insert)
        steps = table.inserted + state.unacknowledged - aim
        steps_max = max(buffer, message) + state.unacknowledged_max + 1
    return Ahead(state.unacknowledged, state.unacknowledged_max, steps, steps_max)
