"""The whole way, judged by arithmetic: actor, server and learner in turn reach the solved values.

The six-state chain is played with random actions by the product's actor, stored and drawn by the
server, and learned by the product's learner: a one-hot linear net, importance weights with beta
one. What it must reach is solved by tests/support/reference.py from a trace that is written down
beside the environments, by rules of its own. n = 1 with two actions (the solution is that of value
iteration), n = 3 with one, since an uncorrected n-step return with exploration does not lead to Q*.

CartPole sees none of the bugs that this sees: truncation taken for termination, a discount of
gamma^n for a short window, a stored made-up row, a life loss or importance weights ignored.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from environments import ChainEnv
from gymnasium.vector import AutoresetMode
from reference import solve
from tabular import GAMMA, TOLERANCE, Average, Trace, chain, rate_at

from deploy.sync import InTurn
from replay_server import NStep, Prioritized, Table, spec_from
from replay_server.training.presets import CARTPOLE, changed

CALLS, UPDATES, RATE = 500, 2400, 6.0


def parts_for(actions, n):
    """Actor, server and learner of the chain, and the trace of its environments."""
    settings = changed(
        CARTPOLE,
        network="linear",
        states=ChainEnv.STATES,
        n=n,
        gamma=GAMMA,
        life_loss=True,
        beta_start=1.0,
        beta_end=1.0,
        priority_epsilon=1e-2,
        batch=256,
        huber_delta=None,
        clip_norm=None,
        target_every=10,
        envs=4,
        epsilon_base=1.0,
        publish_every=UPDATES,
        pull_every=CALLS,
    )
    envs = Trace(chain(actions, settings.envs, AutoresetMode.NEXT_STEP))
    table = Table(
        "main",
        step=spec_from(envs),
        plan=NStep(n),
        capacity=4096,
        sampler=Prioritized(settings.alpha),
        streams=settings.envs,
    )
    return InTurn(settings, seed=3, envs=envs, table=table), envs


def learned(parts):
    """Q [states, actions] after UPDATES learner steps on what is stored."""
    average = Average(UPDATES)
    online = parts.learner.acting
    parts.learner.optimizer = torch.optim.SGD(online.parameters(), lr=RATE)
    for step in range(1, UPDATES + 1):
        parts.learner.optimizer.param_groups[0]["lr"] = rate_at(step, RATE)
        parts.learn()
        average.add(step, online)
    return average.mean()


@pytest.mark.parametrize(("actions", "n"), [(2, 1), (1, 3)], ids=["q-n1", "process-n3"])
def test_through_the_server_a_linear_net_reaches_the_solved_values(actions, n):
    """Given a recorded trace. Expect every step of it to be an item, and the solved values."""
    parts, trace = parts_for(actions, n)
    with parts:
        for _ in range(CALLS):
            parts.collect()
        expected, visits = solve(trace.episodes(), ChainEnv.STATES, actions, GAMMA, n)
        assert int(visits.sum()) == parts.client.size("main"), "each recorded step is one item"
        assert (visits[1:-1] > 100).all()
        got = learned(parts)
    error = np.abs(got - expected)[visits > 0].max()
    assert error < TOLERANCE, f"tabular error {error:.4f}, expected\n{expected}\ngot\n{got}"
