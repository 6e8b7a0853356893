"""Proximal policy optimization against formulas written out here, one step at a time.

The oracle takes the advantage as the weighted sum of k-step advantages (Schulman et al. 2016,
eq. 15 and 16), where learner/ppo.py goes backwards, and the loss step by step in float64.
"""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

from actor.exploration import Categorical
from actor.segments import Segments
from deploy.table import table_for
from learner.algorithms import publication_due
from learner.learner import Learner
from learner.ppo import advantages_of
from learner.rollouts import Rollouts
from replay_server.errors import ConfigError
from replay_server.returns import leaves
from replay_server.spec import Column, Spec, SpecError
from replay_server.training import options
from replay_server.training.actions import Bounds
from replay_server.training.presets import changed, preset
from replay_server.writing.anchors import Anchors

SPEC = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
        Column("log_prob", np.float32),
    )
)
ACTIONS, SEGMENTS, STEPS = 4, 6, 5
SETTINGS = changed(
    preset("cartpole-ppo"), hidden=(16,), rollout=STEPS, batch=SEGMENTS, gamma=0.9, gae_decay=0.8
)


def rollout(seed, ends=True):
    """A batch of segments, of random lengths: a name for each array of a Batch."""
    rng = np.random.default_rng(seed)
    ahead = rng.integers(1, STEPS + 1, SEGMENTS)
    shape = (SEGMENTS, STEPS + 1)
    terminated = np.zeros(shape, np.bool_)
    if ends:
        terminated[np.arange(SEGMENTS), ahead - 1] = rng.random(SEGMENTS) < 0.5
    data = {
        "observation": rng.standard_normal((*shape, 3)).astype(np.float32),
        "action": rng.integers(0, ACTIONS, shape),
        "reward": rng.standard_normal(shape).astype(np.float32),
        "terminated": terminated,
        "log_prob": -rng.random(shape).astype(np.float32) - 0.5,
    }
    keys = np.arange(100, 100 + SEGMENTS, dtype=np.uint64)
    return types.SimpleNamespace(data=data, ahead=ahead.astype(np.uint16), keys=keys)


def advantage(rewards, terminated, values, length, gamma, decay):
    """Of the first step of `length`: (1 - decay) sum of decay^(k-1) A(k), the rest of the weight on
    the longest, by the definition."""
    end = next((i for i in range(length) if terminated[i]), None)
    most = length if end is None else end + 1
    of = []
    for k in range(1, most + 1):
        total = sum(gamma**i * rewards[i] for i in range(k))
        if end is None or k <= end:
            total += gamma**k * values[k]
        of.append(total - values[0])
    weights = [(1 - decay) * decay**k for k in range(most - 1)] + [decay ** (most - 1)]
    return sum(w * a for w, a in zip(weights, of, strict=True))


@pytest.mark.parametrize("decay", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_advantages_are_the_weighted_sum_of_all_k_steps(seed, decay):
    """Given segments of all lengths, with and without a termination. Expect of each step the sum by
    the definition, and nothing behind a segment's last step."""
    batch, rng = rollout(seed), np.random.default_rng(seed)
    values = rng.standard_normal((SEGMENTS, STEPS + 1)).astype(np.float32)
    rewards, terminated = batch.data["reward"][:, :-1], batch.data["terminated"][:, :-1]
    ahead = torch.from_numpy(batch.ahead.astype(np.int64))
    tensors = [torch.from_numpy(part) for part in (rewards, terminated, values)]
    found = advantages_of(*tensors, ahead, 0.9, decay).numpy()
    for i, length in enumerate(batch.ahead.tolist()):
        for t in range(STEPS):
            expected = 0.0
            if t < length:
                rest = (rewards[i, t:], terminated[i, t:], values[i, t:].astype(float))
                expected = advantage(*rest, length - t, 0.9, decay)
            assert found[i, t] == pytest.approx(expected, abs=1e-5)


def test_a_life_that_ends_inside_a_segment_cuts_it():
    """Given a termination in the middle, as --life-loss makes one. Expect nothing of behind it in
    what comes before, and a new beginning behind it."""
    rewards = torch.tensor([[1.0, 1.0, 5.0]])
    cut = torch.tensor([[False, True, False]])
    values = torch.tensor([[0.0, 0.0, 7.0, 2.0]])
    found = advantages_of(rewards, cut, values, torch.tensor([3]), 0.5, 1.0)
    assert found.tolist() == [[1.5, 1.0, 5.0 + 0.5 * 2.0 - 7.0]]


def steps_by_hand(learner, batch):
    """(observation, action, log prob, advantage, return) of each step, in order, float64."""
    found, p = [], learner.preset
    with torch.no_grad():
        values = (
            learner.algorithm.value(torch.from_numpy(batch.data["observation"].reshape(-1, 3)))
            .numpy()
            .reshape(SEGMENTS, STEPS + 1)
        )
    for i, length in enumerate(batch.ahead.tolist()):
        for t in range(length):
            part = [batch.data[name][i, t:] for name in ("reward", "terminated")]
            a = advantage(*part, values[i, t:].astype(float), length - t, p.gamma, p.gae_decay)
            row = [batch.data[name][i, t] for name in ("observation", "action", "log_prob")]
            found.append((*row, a, a + values[i, t]))
    return found


def learner_of(**changes):
    """A learner of the four actions."""
    return Learner(spec=SPEC, actions=ACTIONS, preset=changed(SETTINGS, **changes), seed=3)


def test_a_rollout_is_its_steps_and_no_row_else():
    """Given segments. Expect each of their steps once, in order, with the numbers by hand."""
    learner, batch = learner_of(), rollout(4)
    steps = learner.algorithm.steps_of(batch, "cpu")
    expected = steps_by_hand(learner, batch)
    assert len(steps) == len(expected) == int(batch.ahead.sum())
    parts = (steps.observations, steps.actions, steps.log_probs, steps.advantages, steps.returns)
    for found, wanted in zip(parts, zip(*expected, strict=True), strict=True):
        assert np.allclose(found.numpy(), np.stack(wanted), atol=1e-5)


def test_rewards_are_clipped_before_the_sum():
    """Given rewards beyond the clip. Expect the rollout of the clipped ones."""
    batch, clipped = rollout(5), rollout(5)
    clipped.data["reward"] = clipped.data["reward"].clip(-0.3, 0.3)
    steps = learner_of(reward_clip=0.3).algorithm.steps_of(batch, "cpu")
    assert torch.equal(steps.returns, learner_of().algorithm.steps_of(clipped, "cpu").returns)
    assert not torch.equal(steps.returns, learner_of().algorithm.steps_of(batch, "cpu").returns)


def loss_by_hand(learner, steps):
    """The loss of a minibatch, term by term; a float64 tensor with a gradient."""
    p, nets = learner.preset, learner.algorithm.double()
    advantages = steps.advantages.double()
    advantages = (advantages - advantages.mean()) / (advantages.var(correction=0).sqrt() + 1e-8)
    policy = value = entropy = 0.0
    for i in range(len(steps)):
        seen = steps.observations[i : i + 1]
        features = nets.acting.trunk(seen.double())  # Mlp itself makes float32 of what it sees
        odds = nets.acting.head(features)[0].softmax(0)
        ratio = odds[steps.actions[i]] / steps.log_probs[i].double().exp()
        low, high = 1.0 - p.clip_range, 1.0 + p.clip_range
        a = advantages[i]
        policy = policy - min(ratio * a, ratio.clip(low, high) * a, key=lambda x: x.item())
        guess = nets.value.head(nets.value.trunk(seen.double()))[0, 0]
        value = value + 0.5 * (steps.returns[i].double() - guess) ** 2
        entropy = entropy - (odds * odds.log()).sum()
    count = len(steps)
    return (policy + p.value_weight * value - p.entropy_weight * entropy) / count


def test_the_gradient_is_that_of_the_loss_by_hand():
    """Given a minibatch with ratios on both sides of the clip. Expect loss and gradients of the
    terms added one by one."""
    learner = learner_of(entropy_weight=0.02, clip_range=0.1)
    steps = learner.algorithm.steps_of(rollout(6), "cpu")
    found = learner.algorithm.gradients(steps)
    assert 0.0 < found.more["losses/clipped"].item() < 1.0
    expected = loss_by_hand(learner, steps)
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    of = torch.autograd.grad(expected, list(learner.algorithm.parameters()))
    for mine, theirs in zip(found.of, of, strict=True):
        assert torch.allclose(mine.double(), theirs, rtol=1e-3, atol=1e-6)


class Drawn:
    """A replay that gives these batches, then none."""

    def __init__(self, *batches):
        self.batches, self.ages = list(batches), []

    def ready(self):
        """Whether one is left."""
        return bool(self.batches)

    def sample(self):
        """The next one."""
        return self.batches.pop(0) if self.batches else None


def test_each_step_is_learned_from_once_an_epoch():
    """Given two rollouts. Expect epochs * minibatches parts of each; the parts of an epoch hold
    each step once, sizes differ by one at most, and keys are those of the steps' own segments."""
    learner = learner_of(epochs=3, minibatches=4)
    first, second = rollout(7), rollout(8)
    replay = Rollouts(Drawn(first, second), learner)
    torch.manual_seed(1)
    parts = []
    while replay.ready():
        parts.append(replay.sample())
    assert replay.sample() is None
    assert len(parts) == 2 * 3 * 4
    for batch, mine in ((first, parts[:12]), (second, parts[12:])):
        whole = np.sort(learner.algorithm.steps_of(batch, "cpu").returns.numpy())
        of_key = {}
        for key, length, values in zip(
            batch.keys, batch.ahead, segments_of(learner, batch), strict=True
        ):
            of_key[int(key)] = values
            assert len(values) == length
        orders = []
        for epoch in range(3):
            four = mine[4 * epoch : 4 * epoch + 4]
            sizes = [len(part) for part in four]
            assert max(sizes) - min(sizes) <= 1
            returns = np.concatenate([part.steps.returns.numpy() for part in four])
            assert np.array_equal(np.sort(returns), whole)
            orders.append(returns.tolist())
            for part in four:
                for key, value in zip(part.keys.tolist(), part.steps.returns, strict=True):
                    assert value.item() in of_key[key]
        assert orders[0] != orders[1]


def segments_of(learner, batch):
    """The returns of each segment's steps."""
    returns = learner.algorithm.steps_of(batch, "cpu").returns
    return [part.tolist() for part in returns.split(batch.ahead.astype(int).tolist())]


def test_a_learner_learns_from_a_minibatch_and_gives_no_priorities():
    """Given a minibatch. Expect a step of the optimizer, and that nothing goes back to replay."""
    learner = learner_of()
    part = Rollouts(Drawn(rollout(9)), learner).sample()
    before = {name: part.clone() for name, part in learner.algorithm.state_dict().items()}
    update, priorities = learner.learn(part)
    assert priorities is None and learner.step == 1
    assert any(not torch.equal(before[n], p) for n, p in learner.algorithm.state_dict().items())
    assert {"losses/policy", "losses/value", "losses/entropy"} < update.scalars().keys()


def test_a_reward_that_is_no_number_is_named_by_the_key_of_its_segment():
    """Given a rollout with a NaN. Expect a refusal that names segments that exist, and no step."""
    learner, batch = learner_of(), rollout(10)
    batch.data["reward"][2, 0] = np.nan
    part = Rollouts(Drawn(batch), learner).sample()
    with pytest.raises(ValueError, match=r"learner step 1: .*keys .10") as error:
        learner.apply(learner.gradients(part))
    assert "columns" in str(error.value) and learner.step == 0


def test_actions_are_drawn_as_softmax_says():
    """Given logits. Expect frequencies of softmax (chi-square), and the logarithm of the
    probability of what was drawn."""
    logits = np.tile(np.array([[2.0, -1.0, 0.0, 700.0 - 699.0]], np.float32), (20_000, 1))
    policy = Categorical(np.random.default_rng(5))
    actions = policy(logits)
    odds = np.exp(logits[0].astype(float)) / np.exp(logits[0].astype(float)).sum()
    counts = np.bincount(actions, minlength=4)
    assert ((counts - 20_000 * odds) ** 2 / (20_000 * odds)).sum() < 16.27  # p = 0.001, 3 degrees
    assert np.allclose(policy.extras()["log_prob"], np.log(odds[actions]), atol=1e-6)


def test_an_action_of_no_chance_is_never_drawn():
    """Given a logit that is far below the others, and numbers drawn at both edges. Expect the only
    action that has a chance."""

    class Edges:
        def random(self, shape):
            return np.resize(np.array([[0.0], [np.nextafter(1.0, 0.0)]]), shape)

    logits = np.array([[-2000.0, 0.0, 3000.0, -2000.0]] * 2, np.float32)
    policy = Categorical(Edges())
    assert policy(logits).tolist() == [2, 2]
    assert policy.extras()["log_prob"].tolist() == [0.0, 0.0]


def played(lengths, rollout_length):
    """(stream, first step) of the items of one stream with episodes of these lengths, as an actor
    makes them, and as by hand."""
    anchors, segments = Anchors(1, rollout_length), Segments(1, rollout_length)
    found, expected, at = [], [], 0
    for length in lengths:
        expected += [at + i for i in range(0, length, rollout_length)]
        for step in range(length):
            ended = np.array([0] if step == length - 1 else [], np.int64)
            rows = types.SimpleNamespace(streams=np.array([0]), ended_streams=ended)
            ready = anchors.advance(rows.streams, ended)
            segments.push(rows, {}, None)
            items = segments.items(ready)
            found += items.steps.tolist()
            assert len(items) == len(items.streams) == len(items.ahead)
        at += length + 1  # the closing row
    return sorted(found), expected


@pytest.mark.parametrize("length", [1, 2, 5])
def test_segments_follow_one_another_and_begin_with_each_episode(length):
    """Given episodes of many lengths. Expect an item at every so-many-th step of each episode."""
    found, expected = played([1, 2, 3, 4, 5, 6, 9, 10, 11, 1, 20], length)
    assert found == expected


def test_a_box_of_actions_is_refused():
    """Given actions from a Box. Expect one sentence."""
    bounds = Bounds(np.zeros(1, np.float32), np.ones(1, np.float32))
    with pytest.raises(SpecError, match="ppo chooses one of several actions"):
        Learner(spec=SPEC, actions=bounds, preset=SETTINGS, seed=0)


def test_observations_of_several_parts():
    """Given a Dict space. Expect the steps of each part."""
    columns = [Column("observation/a", np.float32, (2,)), Column("observation/b", np.float32)]
    spec = Spec((*columns, *list(SPEC)[1:]))
    learner = Learner(spec=spec, actions=ACTIONS, preset=SETTINGS, seed=0)
    batch = rollout(11)
    seen = batch.data.pop("observation")
    batch.data |= {"observation/a": seen[..., :2], "observation/b": seen[..., 2]}
    steps = learner.algorithm.steps_of(batch, "cpu")
    first = leaves("observation", {"observation/a": 1, "observation/b": 2})
    assert steps.observations.keys() == first.keys()
    assert np.array_equal(steps.observations["b"][0].item(), seen[0, 0, 2])
    assert learner.algorithm.gradients(steps).loss.isfinite()


def test_fewer_steps_than_parts_are_learned_from_again():
    """Given a rollout of 3 steps and 8 parts of each epoch. Expect a step in each part, each step
    in as many parts but for one, and finite losses."""
    learner, batch = learner_of(epochs=2, minibatches=8), rollout(12)
    batch.ahead[:] = 1
    for name in batch.data:
        batch.data[name] = batch.data[name][:3]
    batch.ahead, batch.keys = batch.ahead[:3], batch.keys[:3]
    replay = Rollouts(Drawn(batch), learner)
    parts = [replay.sample() for _ in range(16)]
    assert replay.sample() is None
    assert all(len(part) >= 1 for part in parts)
    for part in parts:
        learner.learn(part)
        assert np.isfinite(learner.update.loss)
    counts = np.unique(np.concatenate([part.keys for part in parts[:8]]), return_counts=True)[1]
    assert len(counts) == 3 and counts.max() - counts.min() == 0


def test_a_part_of_one_step_moves_the_policy():
    """Given a rollout of one step. Expect the policy's gradient of its raw advantage, not none."""
    learner, batch = learner_of(epochs=1, minibatches=1), rollout(15)
    batch.data = {name: part[:1] for name, part in batch.data.items()}
    batch.ahead, batch.keys = np.array([1], np.uint16), batch.keys[:1]
    steps = learner.algorithm.steps_of(batch, "cpu")
    found = learner.algorithm.gradients(steps)
    ratio = -found.more["losses/policy"] / steps.advantages[0]
    assert steps.advantages[0].abs() > 0.01 and 0.0 < ratio.item() < 10.0
    assert max(tensor.abs().max().item() for tensor in found.of[:4]) > 0.0


def test_weights_are_published_behind_each_whole_rollout():
    """Given a learner that goes on in the middle of what was a rollout. Expect publications behind
    the rollouts that it draws, and of one that keeps weights for others as many updates apart."""
    learner = learner_of(epochs=2, minibatches=3)
    learner.step = 4
    replay, due = Rollouts(Drawn(rollout(13), rollout(14)), learner), []
    for _ in range(12):
        learner.learn(replay.sample())
        due.append(publication_due(learner, replay))
    assert due == [False] * 5 + [True] + [False] * 5 + [True]
    learner.step = 12
    assert publication_due(learner, None)
    learner.step = 13
    assert not publication_due(learner, None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch": 256, "rollout": 128}, "need --capacity"),
        ({"batch": 16_001, "rollout": 1, "capacity": 10**6}, "batch is 16001; .* at most 16,000"),
        ({"rollout": 2048}, "rollout is 2048; expected at most 1,024"),
        ({"stack": 4}, "ppo takes no stacks"),
        ({"network": "nature"}, "ppo has mlp alone"),
    ],
)
def test_settings_that_cannot_be_played_are_refused(given, words):
    """Given rollouts that the table cannot hold, and what ppo has not. Expect a sentence."""
    with pytest.raises(ValueError, match=words):
        changed(preset("cartpole-ppo"), **given)


@pytest.mark.parametrize(("envs", "batch"), [(64, 8), (8, 2), (1, 8), (200, 1)])
def test_a_step_of_all_environments_always_has_room(envs, batch):
    """Given a rollout of which one segment is missing, and a step that completes two segments of
    each environment: a whole one and the episode's last. Expect room in the queue."""
    settings = changed(preset("cartpole-ppo"), envs=envs, batch=batch, actors=2, capacity=10**6)
    assert settings.queue(in_turns=True) >= batch - 1 + 2 * envs * 2
    assert table_for(settings, True).sampler.size == settings.queue(in_turns=True)
    assert table_for(settings).sampler.size == batch, "played by weights that are no older"
    assert settings.rows_ahead == batch * 32 / 2


def test_a_setting_of_another_algorithm_is_refused():
    """Given settings that the algorithm has not, and its own. Expect the former refused by name."""
    for words, said in (
        (["--preset", "cartpole-ppo", "--n", "5"], "--n is a setting of dqn and sac: with ppo"),
        (["--preset", "pendulum", "--huber-delta", "2"], "--huber-delta is a setting of dqn: with"),
        (["--clip-range", "0.1"], "--clip-range is a setting of ppo: with dqn"),
    ):
        values = vars(options.parser_of(options.Train, "x", "").parse_args(words))
        values.pop("config")
        with pytest.raises(ConfigError, match=said):
            options.resolved(options.Train, values)
    mine = {"preset": "cartpole-ppo", "clip_range": 0.1, "epochs": 3}
    assert options.resolved(options.Train, mine)[1].clip_range == 0.1
