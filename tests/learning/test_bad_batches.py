"""Batches that would spoil a net, or end the program in torch: each is refused, and named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_learner_safety import SETTINGS, SPEC, batch_of

from learner import dqn, optimizing
from learner.learner import Learner
from replay_server import Column, Spec
from replay_server.spec import SpecError
from replay_server.training.networks import network_from
from replay_server.training.presets import CARTPOLE, changed, preset


@pytest.mark.parametrize("action", [2, -1])
def test_an_action_that_is_none_of_the_nets_is_named(action):
    """Given one action outside the space among eight. Expect its column, value and key, and every
    weight, moment and counter as it was."""
    learner = Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=3)
    batch = batch_of(np.random.default_rng(3))
    batch.data["action"][5, 0] = action
    before, document = learner.state()
    before = {name: tensor.clone() for name, tensor in before.items()}
    says = (
        rf"step 1: column 'action' holds {action}, .* has 0 to 1; .* keys \[105\], .*client.reset"
    )
    with pytest.raises(SpecError, match=says):
        learner.learn(batch)
    after, same = learner.state()
    assert same == document and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("row", "state"), [(0, 9), (1, -4)])
def test_a_state_that_is_none_of_the_linear_nets_is_named(row, state):
    """Given one state outside those of a table, where an item begins or where it leads. Expect
    SpecError with the column, the state and the item's key."""
    spec = Spec((Column("observation", np.int64), *SPEC.columns[1:]))
    preset = changed(CARTPOLE, network="linear", states=9, n=1)
    learner = Learner(spec=spec, actions=2, preset=preset, seed=3)
    batch = batch_of(np.random.default_rng(3))
    batch.ahead[:] = 1
    batch.data["observation"] = np.zeros((8, 2), np.int64)
    batch.data["observation"][4, row] = state
    with pytest.raises(SpecError, match=rf"column 'observation' holds {state}, .* keys \[104\]"):
        learner.learn(batch)


def test_a_batch_that_is_not_finite_teaches_nothing():
    """Given a NaN in one reward. Expect NotFinite that names its key and its column, and every
    weight, moment and counter as it was; then the next batch teaches."""
    seed = 3
    rng = np.random.default_rng(seed)
    learner = Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=seed)
    learner.learn(batch_of(rng))
    before, document = learner.state()
    before = {name: tensor.clone() for name, tensor in before.items()}
    with pytest.raises(
        optimizing.NotFinite, match=r"step 2: loss nan.*reward hold .*keys \[105\]"
    ) as told:
        learner.learn(batch_of(rng, spoilt=5))
    assert told.value.items.tolist() == [5]
    after, same = learner.state()
    assert same == document and before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    learner.learn(batch_of(rng))
    assert learner.step == 2


def test_a_gradient_that_is_not_finite_is_refused_too():
    """Given a finite loss whose gradient overflows. Expect NotFinite, and weights as they were."""
    network = network_from("mlp", SPEC, 2, hidden=(8,), seed=1)
    optimizer = optimizing.optimizer_from(preset("cartpole"), network)
    for parameter in network.parameters():
        parameter.register_hook(lambda gradient: gradient * float("inf"))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    batch = batch_of(np.random.default_rng(1))
    transitions = batch.transitions(0.9, "cpu")
    with pytest.raises(optimizing.NotFinite, match=r"norm of the gradient (nan|inf)"):
        dqn.update(network, network, optimizer, transitions)
    assert all(torch.equal(before[n], tensor) for n, tensor in network.state_dict().items())
