"""The names under which programs log, and what each one means: said once, here.

A name stays what it is: dashboards and notebooks are built on them. The table of
docs/run-folders.md is this one; a test compares them. `Run.log` refuses any other name.
"""

from __future__ import annotations

SCALARS = {
    "charts/episodic_return": "mean return of the last 100 training episodes of this actor",
    "charts/episodic_length": "mean length of the same episodes, in environment steps",
    "charts/episodes": "training episodes that ended so far",
    "charts/epsilon": "mean epsilon of this actor's environments",
    "charts/greedy_return": "mean return of a candidate over 20 greedy episodes",
    "charts/beta": "exponent of the importance weights",
    "losses/td": "mean absolute TD error of the newest batch, unweighted; ppo: error of the values",
    "losses/loss": "weighted loss of the newest batch",
    "losses/q_values": "mean Q of the newest batch; dqn: over all actions, sac: over both critics, "
    "ppo: the values",
    "losses/grad_norm": "norm of the newest gradient, before it is clipped",
    "losses/policy": "sac: loss of the policy in the newest batch; losses/loss is the critics'. "
    "ppo: its part of losses/loss",
    "losses/value": "ppo: half the squared error of the values in the newest batch",
    "losses/entropy": "ppo: mean entropy of the policy in the newest batch",
    "losses/clipped": "ppo: share of the newest batch whose ratio of probabilities is clipped",
    "losses/temperature": "sac: what a unit of entropy is worth",
    "replay/size": "items in the table that can be drawn",
    "replay/inserted": "items created since the table was",
    "replay/ratio": "items drawn for each item created, as the table's limiter counts them",
    "replay/age": "steps inserted from an item's own step to its draw, mean since the last line",
    "replay/stale": "new priorities refused because their item was gone, since the learner started",
    "replay/unacknowledged": "rows this actor has handed over and the server has not acknowledged",
    "replay/steps_ahead": "items beyond what the limiter aims at, with those this actor waits for",
    "replay/items_failed": "items of this actor that were refused for good: overwritten too early",
    "perf/env_sps": "environment steps a second of this actor",
    "perf/learner_sps": "learner steps (updates) a second",
    "perf/wait_fraction": "share of the learner steps' time spent waiting for a batch that the "
    "server was free to send",
    "perf/limited_fraction": "share of the learner's time in which the limiter held batches back",
    "weights/version": "newest version of the weights that this program knows",
    "weights/learner_step": "learner step of the weights that this actor plays; -1: its own first",
    "weights/refused": "published weights that this actor did not take: they fit another network",
}
PHASES = "phase/"  # phase/NAME: share of this program's time since its last line


def known(name: str) -> bool:
    """Is this one of the names?"""
    return name in SCALARS or name.startswith(PHASES)
