"""replay_server.integrations.torchrl against the rollout it stored: `make test-adapters`."""

from __future__ import annotations

import pytest
import torch
from torchrl.envs import GymEnv, SerialEnv

from replay_server.integrations.torchrl import ReplayServerBuffer

GAMMA, TRUNCATED_AT, DRAWN = 0.9, 100, 2000


def make_env():
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


@pytest.mark.filterwarnings("ignore:environment 0 ended")  # it was cut by hand
@pytest.mark.parametrize("n", [1, 3])
def test_transitions(n):
    """Given a rollout in parts, one of its episodes truncated by hand. Expect its n-step returns,
    terminations, last observations and steps in every TensorDict drawn."""
    buffer = ReplayServerBuffer(
        make_env(), 5000, batch_size=DRAWN, alpha=0.6, n_steps=n, gamma=GAMMA, seed=1
    )
    env = make_env()
    env.set_seed(1)
    rollout = env.rollout(300, break_when_any_done=False)
    following = rollout["next"]
    following["truncated"][TRUNCATED_AT] = True
    for part in rollout.split(50):
        buffer.extend(part)
    ends = (following["terminated"] | following["truncated"])[:, 0]
    rows = {tuple(row): i for i, row in enumerate(rollout["observation"].tolist())}
    assert len(rows) == 300
    sample, seen = buffer.sample(), set()
    for i in range(DRAWN):
        t = rows[tuple(sample["observation"][i].tolist())]
        stop = next((t + k for k in range(n) if ends[t + k]), t + n - 1)
        steps, terminated = stop - t + 1, bool(following["terminated"][stop])
        total = sum(GAMMA**k * following["reward"][t + k].item() for k in range(steps))
        assert abs(sample["next", "reward"][i].item() - total) < 1e-4
        assert bool(sample["next", "terminated"][i]) == terminated
        assert sample["action"][i] == rollout["action"][t]
        if not terminated:
            assert torch.equal(sample["next", "observation"][i], following["observation"][stop])
            assert n == 1 or sample["steps_to_next_obs"][i].item() == steps
        seen.add((stop == TRUNCATED_AT, terminated))
    assert seen == {(False, False), (False, True), (True, False)}, seen
    sample["td_error"] = torch.rand(DRAWN, 1)
    buffer.update_tensordict_priority(sample)
    result = buffer.client.flush()
    assert result.applied == len(set(sample["key"].tolist())) and result.stale == 0


def test_several_environments():
    """Given [environments, time]. Expect each a stream of its own, every step stored."""
    envs = SerialEnv(3, make_env)
    buffer = ReplayServerBuffer(envs, 5000, batch_size=64, seed=1)
    rollout = envs.rollout(50, break_when_any_done=False)
    buffer.extend(rollout)
    ended = int(rollout["next", "done"].sum())
    assert buffer.server.counters()["steps_committed"] == 150 + ended
    assert buffer.sample().batch_size == torch.Size([64])


def test_several_steps_need_a_gamma():
    """Given n_steps=3 alone. Expect a sentence: the loss's gamma is not this buffer's."""
    with pytest.raises(ValueError, match="n_steps=3 without gamma"):
        ReplayServerBuffer(make_env(), 1000, batch_size=8, n_steps=3)
