"""DQN's formulas against plain loops over whole episodes, at every edge an item can have.

The oracle walks an episode as a list of rows and knows nothing of batches, offsets or padding. A
sampled batch is imitated by `sample`, which applies the plan's edge rules to the same rows.
"""

import copy

import numpy as np
import pytest
import torch
from given import transitions

from learner import dqn, optimizing
from learner.learner import beta_at
from replay_server.errors import ConfigError
from replay_server.returns import n_step_targets
from replay_server.spec import Column, Spec
from replay_server.stacking import FrameStack, stacks_from_frames
from replay_server.training.networks import network_from
from replay_server.training.presets import CARTPOLE, changed

GAMMA = 0.9
SPEC = Spec(
    (
        Column("observation", np.dtype(np.float32), (2,)),
        Column("action", np.dtype(np.int64)),
        Column("reward", np.dtype(np.float32)),
        Column("terminated", np.dtype(np.bool_)),
    )
)


def episode_of(rng, length, ending, lives):
    """T rows and the closing one. `lives`: chance of a cut return at each step but the last."""
    terminated = rng.random(length) < lives
    terminated[-1] = ending == "terminated"
    return {
        "observation": rng.standard_normal((length + 1, 2)).astype(np.float32),
        "action": np.append(rng.integers(0, 3, length), 0),
        "reward": np.append(rng.standard_normal(length).astype(np.float32), np.float32(0)),
        "terminated": np.append(terminated, False),
    }


def episodes(rng, n, k):
    """Every length from 1 to n + k + 1, both endings, with and without lives lost."""
    for length in range(1, n + k + 2):
        for ending in ("terminated", "truncated"):
            for lives in (0.0, 0.4):
                yield episode_of(rng, length, ending, lives)


def sample(episode, t, n, k, pad="zero"):
    """What the server's plan gives for the item at t: {column: [steps, ...]}, ahead."""
    last = len(episode["reward"]) - 1
    frames = [0, n] if k == 1 else list(range(1 - k, n + 1))

    def row(column, offset):
        at = t + offset
        if at < 0 and pad == "zero":
            return np.zeros_like(episode[column][0])
        return episode[column][min(max(at, 0), last)]

    offsets = {
        "observation": frames,
        "action": [0],
        "reward": range(n),
        "terminated": range(n),
    }
    columns = {c: np.stack([row(c, o) for o in os]) for c, os in offsets.items()}
    return columns, min(last - t, max(n, 1))


def batch_of(samples):
    data = {c: np.stack([s[0][c] for s in samples]) for c in samples[0][0]}
    return data, np.array([s[1] for s in samples], np.uint16)


def stack_at(episode, t, k, pad="zero"):
    """The stack of k at row t, walking back through the episode."""
    frames = []
    for at in range(t - k + 1, t + 1):
        zero = np.zeros_like(episode["observation"][0])
        frames.append(episode["observation"][max(at, 0)] if at >= 0 or pad == "first" else zero)
    return np.stack(frames)


def oracle(episode, t, n):
    """(G, discount, row of the bootstrap observation) by walking forward from t."""
    last = len(episode["reward"]) - 1
    total, factor, at = 0.0, 1.0, t
    while at < last and at < t + n:
        total += factor * float(episode["reward"][at])
        factor *= GAMMA
        at += 1
        if episode["terminated"][at - 1]:
            return total, 0.0, min(t + n, last)
    return total, factor, at


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_targets_and_stacks_at_every_edge(n, k):
    """Given every item of episodes that end in every way, over several n, stacks and pads. Expect
    return, discount and both stacks as the loops of the oracle compute them, from tensors and
    arrays alike."""
    rng = np.random.default_rng([n, k])
    for pad in ("zero", "first"):
        samples, expected = [], []
        for episode in episodes(rng, n, k):
            for t in range(len(episode["reward"]) - 1):
                samples.append(sample(episode, t, n, k, pad))
                total, discount, at = oracle(episode, t, n)
                stacks = stack_at(episode, t, k, pad), stack_at(episode, at, k, pad)
                expected.append((total, discount, *stacks, at - t))
        data, ahead = batch_of(samples)
        batch = transitions(data, ahead, np.ones(len(ahead), np.float32), GAMMA)
        tensors = (torch.from_numpy(data[name]) for name in ("reward", "terminated"))
        total, discount, m = n_step_targets(*tensors, ahead, GAMMA)
        assert torch.equal(batch.rewards, total) and torch.equal(batch.discounts, discount)
        for i, (g, d, obs, next_obs, steps) in enumerate(expected):
            assert total[i].item() == pytest.approx(g, abs=1e-5), f"G of item {i}"
            assert discount[i].item() == pytest.approx(d, abs=1e-6), f"discount of item {i}"
            assert m[i].item() == steps
            assert batch.observations[i].numpy().tobytes() == obs.tobytes()
            assert batch.next_observations[i].numpy().tobytes() == next_obs.tobytes()
        arrays = n_step_targets(data["reward"], data["terminated"], ahead, GAMMA)
        for array, tensor in zip(arrays, (total, discount, m), strict=True):
            assert array.tolist() == pytest.approx(tensor.tolist(), abs=1e-6)
        numpy_stacks = stacks_from_frames(data["observation"], ahead, n, k)
        for numpy_stack, stacked in zip(
            numpy_stacks, (batch.observations, batch.next_observations), strict=True
        ):
            assert np.array_equal(numpy_stack.reshape(stacked.shape), stacked)


def test_what_lies_behind_the_window_is_never_looked_at():
    """Given NaN rewards and true flags from m on. Expect finite numbers and a bootstrap."""
    reward = torch.tensor([[1.0, float("nan"), float("nan")]])
    terminated = torch.tensor([[False, True, True]])
    total, discount, m = n_step_targets(reward, terminated, torch.tensor([1]), GAMMA)
    assert total.tolist() == [1.0] and m.tolist() == [1]
    assert discount.tolist() == pytest.approx([GAMMA])


def test_whole_windows_share_the_frames():
    """Given windows that are whole, then one that is cut short. Expect stacks that are views of the
    frames, a copy only where one has to move, and ValueError for too few steps."""
    frames = np.arange(2 * 7 * 3, dtype=np.float32).reshape(2, 7, 3)
    obs, next_obs = stacks_from_frames(frames, np.array([3, 9]), 3, 4)
    assert np.shares_memory(obs, frames) and np.shares_memory(next_obs, frames)
    obs, next_obs = stacks_from_frames(frames, np.array([3, 2]), 3, 4)
    assert np.shares_memory(obs, frames) and not np.shares_memory(next_obs, frames)
    assert np.array_equal(next_obs[1], frames[1, 2:6])
    with pytest.raises(ValueError, match="have 7 steps"):
        stacks_from_frames(frames[:, :6], np.array([3, 2]), 3, 4)


@pytest.mark.parametrize("pad", ["zero", "first"])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_the_actors_running_stack_is_the_learners_stack(pad, k):
    """Given an episode pushed frame by frame beside another environment. Expect each stack to be
    the one the learner builds, and the other environment's not to move."""
    rng = np.random.default_rng(k)
    column = Column("observation", np.dtype(np.float32), (2,), pad)
    stack = FrameStack(column, k, 2)
    other = rng.standard_normal((2, 2)).astype(np.float32)
    for length in range(1, 8):
        episode = episode_of(rng, length, "truncated", 0.0)
        rows = episode["observation"]
        stack.reset(np.stack([rows[0], other[0]]), np.array([True, length == 1]))
        before = stack.array[1].copy()
        for t in range(length):
            assert stack.array[0].tobytes() == stack_at(episode, t, k, pad).tobytes()
            both = np.stack([rows[t + 1], other[1]])
            ahead = stack.following(both, np.array([True, False]))
            assert ahead[0].tobytes() == stack_at(episode, t + 1, k, pad).tobytes()
            stack.push(both, np.array([True, False]))
        assert np.array_equal(stack.array[1], before), "the other environment moved"


def test_double_q_takes_the_online_nets_action_and_the_target_nets_value():
    """Given values where the two networks prefer different actions. Expect the target's value of
    the online's first best action."""
    online = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]])
    target = torch.tensor([[9.0, -1.0, 7.0], [4.0, 8.0, 6.0]])
    assert dqn.double_q_value(online, target).tolist() == [-1.0, 4.0]


def test_loss_is_weighted_and_td_is_not():
    """Given two errors and their weights. Expect the mean of the weighted losses, Huber's and the
    squared one."""
    td = torch.tensor([0.5, -3.0])
    weights = torch.tensor([1.0, 0.1])
    assert dqn.weighted_loss(td, weights).item() == pytest.approx((0.125 + 0.1 * 2.5) / 2)
    assert dqn.weighted_loss(td, weights, None).item() == pytest.approx((0.125 + 0.1 * 4.5) / 2)


def a_batch(rng, size=16, n=3):
    samples = []
    while len(samples) < size:
        episode = episode_of(rng, int(rng.integers(1, 7)), "terminated", 0.3)
        samples.append(sample(episode, int(rng.integers(len(episode["reward"]) - 1)), n, 1))
    data, ahead = batch_of(samples)
    return data, ahead, rng.random(size).astype(np.float32)


def test_update_reports_td_from_before_the_step_and_scales_gradients_by_weights():
    """Given one batch, with weights and without. Expect equal |TD| and the oracle's numbers."""
    data, ahead, weights = a_batch(np.random.default_rng(5))
    updates = {}
    for name, w in [("weighted", weights), ("even", np.ones_like(weights))]:
        online = network_from("mlp", SPEC, 3, hidden=(8,), seed=1)
        target = network_from("mlp", SPEC, 3, hidden=(8,), seed=2)
        optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
        batch = transitions(data, ahead, w, GAMMA)
        with torch.no_grad():
            q = online(batch.observations)
            best = online(batch.next_observations).argmax(1)
            value = target(batch.next_observations)
        expected = []
        for i in range(len(ahead)):
            total, factor, cut = 0.0, 1.0, False
            for j in range(min(3, int(ahead[i]))):
                if not cut:
                    total += factor * float(data["reward"][i, j])
                    cut = bool(data["terminated"][i, j])
                factor *= GAMMA
            total += 0.0 if cut else factor * float(value[i, best[i]])
            expected.append(abs(total - float(q[i, int(data["action"][i, 0])])))
        report = dqn.update(online, target, optimizer, batch, clip_norm=None)
        assert report.td == pytest.approx(expected, abs=1e-5)
        losses = [d * d / 2 if d <= 1 else d - 0.5 for d in expected]
        assert report.loss == pytest.approx(float(np.mean(w * np.array(losses))), abs=1e-5)
        updates[name] = report
    assert np.array_equal(updates["weighted"].td, updates["even"].td)
    assert updates["weighted"].gradient_norm != updates["even"].gradient_norm


def test_a_weight_of_zero_leaves_the_network_alone():
    """Given a batch whose weights are all 0. Expect a loss of 0, errors that are reported all the
    same, and the network as it was."""
    data, ahead, weights = a_batch(np.random.default_rng(6))
    online = network_from("mlp", SPEC, 3, seed=1)
    before = {name: tensor.clone() for name, tensor in online.state_dict().items()}
    optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
    batch = transitions(data, ahead, np.zeros_like(weights), GAMMA)
    report = dqn.update(online, online, optimizer, batch)
    assert report.td.min() > 0 and report.loss == 0
    for name, tensor in online.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_gradients_and_rewards_are_clipped_where_asked():
    """Given large rewards with and without a clip, and a bound for gradients. Expect a step of just
    that norm, and small errors only where rewards are clipped."""
    data, ahead, weights = a_batch(np.random.default_rng(7))
    data["reward"] = data["reward"] * 100
    norms = {}
    for limit in (None, 1.0):
        online = network_from("mlp", SPEC, 3, seed=1)
        optimizer = torch.optim.SGD(online.parameters(), lr=1.0)
        before = torch.nn.utils.parameters_to_vector(online.parameters()).detach().clone()
        batch = transitions(data, ahead, weights * 100, GAMMA, reward_clip=limit)
        norms[limit] = dqn.update(online, online, optimizer, batch, clip_norm=0.5).td.max()
        moved = torch.nn.utils.parameters_to_vector(online.parameters()) - before
        assert moved.norm().item() == pytest.approx(0.5, rel=1e-3)
    assert norms[1.0] < 5 < norms[None]


def test_an_item_without_a_next_row_is_refused():
    """Given an item with no row ahead. Expect ConfigError."""
    data, ahead, weights = a_batch(np.random.default_rng(8))
    ahead[3] = 0
    with pytest.raises(ConfigError, match="ahead = 0"):
        transitions(data, ahead, weights, GAMMA)


def test_schedules_count_learner_steps():
    """Given learner steps. Expect beta to rise in a straight line to its end and stay there."""
    assert [beta_at(s, 0.4, 1.0, 10) for s in (0, 5, 10, 99)] == [0.4, 0.7, 1.0, 1.0]
    assert beta_at(0, 0.4, 0.4, 0) == 0.4


def test_the_target_is_a_copy_at_each_multiple():
    """Given a target net copied every 4 steps, and an online net that is another at each. Expect it
    copied at 4 and 8, and given to who has nothing, or what there was before the copy."""
    preset = changed(CARTPOLE, target_every=4, hidden=(8,))
    algorithm = dqn.DoubleDqn(preset, SPEC, 3, seed=1)

    def same():
        pairs = zip(algorithm.target.parameters(), algorithm.online.parameters(), strict=True)
        return all(torch.equal(*pair) for pair in pairs)

    copied = []
    for step in range(1, 11):
        with torch.no_grad():
            next(algorithm.online.parameters()).add_(1.0)
        algorithm.follow(step)
        copied += [step] if same() else []
    assert copied == [4, 8]
    for before, whole in ((-1, True), (7, True), (8, False), (9, False)):
        taker = dqn.DoubleDqn(preset, SPEC, 3, seed=3)
        first = copy.deepcopy(taker.target.state_dict())
        taker.take(algorithm.shared(before, 10))
        expected = algorithm.target.state_dict() if whole else first
        for net, of in ((taker.target, expected), (taker.online, algorithm.online.state_dict())):
            assert all(torch.equal(part, of[name]) for name, part in net.state_dict().items())
    assert not same()


def test_optimizers_are_what_the_preset_says():
    """Given the CartPole preset, with an epsilon of its own. Expect Adam with both."""
    network = network_from("mlp", SPEC, 3)
    adam = optimizing.optimizer_from(changed(CARTPOLE, optimizer_epsilon=3e-4), network)
    assert isinstance(adam, torch.optim.Adam)
    assert (adam.defaults["lr"], adam.defaults["eps"]) == (5e-4, 3e-4)
