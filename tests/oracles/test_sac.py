"""Soft actor-critic's formulas against torch's distributions, and against losses written out here.

The oracle takes the density from a TransformedDistribution, one item at a time, and each gradient
from a loss of its own on deep copies; it shares no formula with learner/sac.py.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from given import batch_from, transitions
from gymnasium import spaces
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from actor.exploration import SquashedGaussian
from learner import optimizing, sac
from learner.learner import Learner
from replay_server.spec import Column, Spec, SpecError
from replay_server.training.actions import Bounds, actions_of, bounds_of, greedy
from replay_server.training.envs import make_env
from replay_server.training.networks import acting_network
from replay_server.training.presets import changed, preset

SPEC = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.float32, (2,)),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
BOUNDS = Bounds(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
SETTINGS = changed(preset("pendulum"), hidden=(16,), gamma=0.9)
COUNT = 32


def data_of(rng):
    """A batch of one-step items: a column each."""
    return {
        "observation": rng.standard_normal((COUNT, 2, 3)).astype(np.float32),
        "action": rng.uniform(BOUNDS.low, BOUNDS.high, (COUNT, 1, 2)).astype(np.float32),
        "reward": rng.standard_normal((COUNT, 1)).astype(np.float32),
        "terminated": rng.random((COUNT, 1)) < 0.3,
    }


def distribution_of(values):
    """What values [B, 2 D] say, as torch has it."""
    mean, log_std = values[:, :2], values[:, 2:].clamp(-20.0, 2.0)
    normal = Normal(mean, log_std.exp(), validate_args=False)
    return Independent(TransformedDistribution(normal, [TanhTransform(cache_size=1)]), 1)


def drawn_by(policy, observations):
    """(action, log density) by torch's own distributions, with the noise that is next."""
    distribution = distribution_of(policy(observations))
    action = distribution.rsample()
    return action, distribution.log_prob(action)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_the_density_is_torchs(scale):
    """Given values of a policy and noise. Expect action and log density of torch's distribution."""
    rng = np.random.default_rng(3)
    values = torch.from_numpy(scale * rng.standard_normal((500, 4))).double()
    noise = torch.from_numpy(rng.standard_normal((500, 2)))
    action, density = sac.drawn(values, noise)
    before = values[:, :2] + values[:, 2:].clamp(-20, 2).exp() * noise
    assert torch.equal(action, before.tanh())
    inside = (before.abs() < 8.0).all(1)  # beyond, torch's own inverse of tanh has no digits left
    assert inside.sum() > 100
    expected = distribution_of(values).log_prob(action)
    assert torch.allclose(density[inside], expected[inside], rtol=1e-6, atol=1e-6)
    assert torch.isfinite(density).all()


def test_a_density_far_out_is_finite_and_has_a_gradient():
    """Given means that tanh takes to exactly 1 in float32, and deviations past their bounds. Expect
    finite densities and gradients."""
    values = torch.tensor([[50.0, -50.0, 9.0, -40.0]], requires_grad=True)
    action, density = sac.drawn(values, torch.tensor([[1.0, -1.0]]))
    density.sum().backward()
    assert action.abs().max() == 1.0
    assert torch.isfinite(density).all() and torch.isfinite(values.grad).all()


def test_gradients_are_those_of_the_papers_losses():
    """Given a batch with weights, ends and none. Expect the target by eq. 3 and 5, and gradients of
    each loss by its own parameters, as autograd finds them in copies, at the same noise."""
    algorithm = sac.Sac(SETTINGS, SPEC, BOUNDS, seed=1)
    with torch.no_grad():
        algorithm.temperature.log.fill_(-1.0)
        for parameter in algorithm.targets.parameters():
            parameter.mul_(0.9)
    rng = np.random.default_rng(5)
    data, weights = data_of(rng), rng.random(COUNT, np.float32)
    batch = transitions(data, np.ones(COUNT), weights, SETTINGS.gamma)
    torch.manual_seed(7)
    found = algorithm.gradients(batch)

    one, weights = copy.deepcopy(algorithm), torch.from_numpy(weights)
    now, after = (torch.from_numpy(data["observation"][:, i]) for i in (0, 1))
    unit = torch.from_numpy((data["action"][:, 0] - [0.0, 5.0]) / [2.0, 5.0]).float()
    torch.manual_seed(7)
    with torch.no_grad():
        following, density = drawn_by(one.acting, after)
        value = torch.minimum(*one.targets(after, following)) - np.exp(-1.0) * density
        alive = torch.from_numpy(~data["terminated"][:, 0]).float()
        target = torch.from_numpy(data["reward"][:, 0]) + 0.9 * alive * value
    first, second = one.critics(now, unit)
    errors = (target - first).square() + (target - second).square()
    (0.5 * (weights * errors)).mean().backward()
    critics = [p.grad.clone() for p in one.critics.parameters()]
    one.zero_grad()
    action, density = drawn_by(one.acting, now)
    loss = weights * (np.exp(-1.0) * density - torch.minimum(*one.critics(now, action)))
    loss.mean().backward()
    acting = [p.grad.clone() for p in one.acting.parameters()]
    temperature = -(density.detach() - 2.0).mean()  # entropy aimed at: -D = -2

    names = list(optimizing.trained(algorithm))
    assert [n.split(".")[0] for n in names] == ["acting"] * 4 + ["critics"] * 8 + ["temperature"]
    for mine, other in zip(found.of, [*acting, *critics, temperature], strict=True):
        assert torch.allclose(mine, other, rtol=1e-4, atol=1e-5)
    assert found.td.numpy() == pytest.approx(
        ((target - first).abs() + (target - second).abs()).detach().numpy() / 2, rel=1e-4, abs=1e-5
    )


@pytest.mark.parametrize(("log_std", "rises"), [(-5.0, True), (0.5, False)])
def test_the_temperature_rises_where_there_is_too_little_entropy(log_std, rises):
    """Given a policy that is nearly certain, and one that is not at all. Expect the temperature to
    rise, and to fall."""
    algorithm = sac.Sac(SETTINGS, SPEC, BOUNDS, seed=1)
    with torch.no_grad():
        algorithm.acting.head.weight.zero_()
        algorithm.acting.head.bias.copy_(torch.tensor([0.0, 0.0, log_std, log_std]))
    optimizer = optimizing.optimizer_from(SETTINGS, algorithm)
    rng = np.random.default_rng(5)
    batch = transitions(data_of(rng), np.ones(COUNT), np.ones(COUNT, np.float32), 0.9)
    optimizing.apply(algorithm, optimizer, algorithm.gradients(batch), clip_norm=None)
    assert (algorithm.temperature.log.item() > 0.0) == rises


def test_target_nets_follow_by_a_share():
    """Given critics that stay as they are. Expect the targets' distance to shrink by 1 - share a
    step, and `take` to bring all of another."""
    algorithm, other = (sac.Sac(SETTINGS, SPEC, BOUNDS, seed=seed) for seed in (1, 2))
    with torch.no_grad():
        for parameter in algorithm.critics.parameters():
            parameter.add_(1.0)
    for step in range(10):
        algorithm.follow(step + 1)
    pairs = zip(algorithm.targets.parameters(), algorithm.critics.parameters(), strict=True)
    for target, critic in pairs:
        left = torch.full_like(target, (1.0 - SETTINGS.target_share) ** 10)
        assert torch.allclose(critic - target, left, atol=1e-5)
    other.take(algorithm.shared(9, 10))
    for name, tensor in algorithm.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_actors_draw_what_the_learner_thinks_they_draw():
    """Given one policy. Expect an actor's actions to lie in the box, with the mean and the spread
    that the learner's formula has over the same values; greedily, the middle of it."""
    rng = np.random.default_rng(9)
    values = np.tile(np.array([[0.3, -0.5, -0.7, 0.4]], np.float32), (50_000, 1))
    actions = SquashedGaussian(BOUNDS, rng)(values)
    assert actions.dtype == np.float32 and actions.shape == (50_000, 2)
    assert (actions >= BOUNDS.low).all() and (actions <= BOUNDS.high).all()
    torch.manual_seed(1)
    unit, _ = sac.drawn(torch.from_numpy(values), torch.randn(len(values), 2))
    stretched = BOUNDS.stretched(unit.numpy())
    assert np.allclose(actions.mean(0), stretched.mean(0), atol=0.05)
    assert np.allclose(actions.std(0), stretched.std(0), atol=0.05)
    wild = np.array([[0.0, 0.0, 90.0, -90.0]], np.float32)  # deviations past their bounds
    small = Bounds(np.full(2, -1, np.float32), np.full(2, 1, np.float32))
    drawn = np.arctanh(SquashedGaussian(small, rng)(np.repeat(wild, 4000, 0)).astype(np.float64))
    inside = np.isfinite(drawn[:, 0])
    assert np.median(np.abs(drawn[inside, 0])) < 0.6745 * np.exp(2.0)
    assert 0.0 < np.abs(drawn[:, 1]).max() < 1e-7  # exp(-20), not exp(-90)
    best = greedy(values[:1], BOUNDS)
    assert best == pytest.approx(np.array([[2.0 * np.tanh(0.3), 5.0 + 5.0 * np.tanh(-0.5)]]))


def test_what_a_box_cannot_be():
    """Given actions that each algorithm has not got. Expect a sentence that names the other."""
    with pytest.raises(ValueError, match=r"DQN needs a Discrete .* --preset pendulum"):
        actions_of(make_env("Pendulum-v1"), "dqn")
    with pytest.raises(ValueError, match=r"SAC needs a Box .*--preset cartpole"):
        actions_of(make_env("CartPole-v1"), "sac")
    with pytest.raises(SpecError, match="not from 2 of them"):
        sac.Sac(SETTINGS, SPEC, 2, seed=1)
    with pytest.raises(ValueError, match="say --network mlp"):
        changed(SETTINGS, network="nature")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge", [0.1, 0.3, np.pi, 1e6])
def test_no_action_lies_outside_its_box_by_rounding(dtype, edge):
    """Given boxes whose bounds no float32 holds, and a policy that is sure of their edges. Expect
    every action within, and of the box's own dtype, drawn and greedy."""
    box = spaces.Box(dtype(-edge), dtype(edge), (2,), dtype)
    bounds = bounds_of(box)
    values = np.array([[50.0, -50.0, -5.0, -5.0], [0.1, -0.1, 0.5, 0.5]], np.float32)
    drawn = SquashedGaussian(bounds, np.random.default_rng(1))(np.repeat(values, 500, 0))
    for action in (*drawn, *greedy(values, bounds)):
        assert action.dtype == dtype and box.contains(action), action
    assert np.isclose(greedy(values, bounds)[0], [edge, -edge]).all()


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-np.inf, np.inf, "1e\\+09 apart at most"),
        (-3.4e38, 3.4e38, "1e\\+09 apart at most"),
        (0.0, 1e10, "1e\\+09 apart at most"),
        (1.0, 1.0, "every action has a choice"),
    ],
)
def test_a_box_that_cannot_be_stretched_to_is_refused(low, high, said):
    """Given bounds that stand for none, and equal ones. Expect a sentence with what to do."""
    with pytest.raises(ValueError, match=rf"SAC .*{said}.*TransformAction"):
        bounds_of(spaces.Box(np.float32(low), np.float32(high), (1,), np.float32))


def test_an_action_outside_the_box_is_named():
    """Given a batch in which one action is no actor's. Expect SpecError with its column and key,
    and no step; one that is off by rounding is learned from."""
    learner = Learner(spec=SPEC, actions=BOUNDS, preset=SETTINGS, seed=1)
    data = data_of(np.random.default_rng(5))
    data["action"][4, 0, 1] = 10.0005
    batch = batch_from(data, np.ones(COUNT), np.ones(COUNT))
    learner.learn(batch)
    data["action"][4, 0, 1] = 10.5
    with pytest.raises(SpecError, match=r"'action' holds 10.5, where this one has .* keys \[104\]"):
        learner.learn(batch_from(data, np.ones(COUNT), np.ones(COUNT)))
    assert learner.step == 1


def test_uniform_replay_has_no_priorities():
    """Given the exponent 0, and another. Expect none of a batch, and |TD|."""
    batch = batch_from(data_of(np.random.default_rng(5)), np.ones(COUNT), np.ones(COUNT))
    for alpha in (0.0, 0.6):
        settings = changed(SETTINGS, alpha=alpha)
        learner = Learner(spec=SPEC, actions=BOUNDS, preset=settings, seed=1)
        found = learner.gradients(batch)
        priorities = learner.priorities(found)
        assert (priorities is None) == (alpha == 0.0)
    assert np.allclose(priorities, found.td.numpy() + settings.priority_epsilon)


def test_actor_and_learner_begin_with_one_policy():
    """Given a seed. Expect the actor's own first network to be the learner's."""
    learner = Learner(spec=SPEC, actions=BOUNDS, preset=SETTINGS, seed=11)
    mine = acting_network(SETTINGS, SPEC, BOUNDS, 11).state_dict()
    for name, tensor in learner.acting.state_dict().items():
        assert torch.equal(tensor, mine[name])
