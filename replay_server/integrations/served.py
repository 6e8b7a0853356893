"""What adapters ask of the table of their server, and refuse in the same words."""

from __future__ import annotations

from replay_server import Client, NStep
from replay_server.support.values import real

DISCOUNT = 0.99  # where one step is all: the algorithm discounts by itself


def expect_items(client: Client, table: str, remedy: str) -> None:
    """ValueError where a draw would wait for what this very thread has to add."""
    if not client.size(table):
        raise ValueError(
            "nothing can be drawn yet: a transition is drawable when the step behind it is known; "
            f"{remedy}"
        )


def gamma_for(client: Client, table: str, n_steps: int, gamma: float | None) -> float:
    """The discount of the returns that the table's windows give.

    n_steps: what the adapter was asked for; of one step nothing is discounted here, whatever gamma
    is. ConfigError for a gamma that is none. ValueError where the table has other items, or where
    returns of several steps would be discounted by a gamma that nobody gave.
    """
    if gamma is not None:
        gamma = real("gamma", gamma, 0.0, 1.0)
    served = client.table(table)
    plan = next(iter(served.plans.values()))
    if not served.holds_transitions() or (isinstance(plan, NStep) and plan.stack > 1):
        raise ValueError(
            f"table {table!r} of {client.address} holds {plan}, of which this buffer makes no "
            "transitions: serve it with NStep(n), and stack frames in the environment"
        )
    n = len(served.layout.plans[0].resolved.offsets.get("reward", (0,)))  # also of Offsets
    if n_steps not in (1, n):
        raise ValueError(
            f"n_steps={n_steps}, and table {table!r} of {client.address} has windows of {n}: give "
            f"n_steps={n}"
        )
    if gamma is None and n > 1:
        raise ValueError(
            f"n_steps={n} without gamma: returns of several steps are discounted here; give the "
            "algorithm's gamma too"
        )
    return DISCOUNT if gamma is None or n == 1 else gamma
