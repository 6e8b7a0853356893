"""replay_server.integrations.torchrl against the rollout it stored: `make test-adapters`."""

from __future__ import annotations

import math

import pytest
import torch
from torchrl.data import Unbounded
from torchrl.envs import GymEnv, RenameTransform, SerialEnv, TransformedEnv

from replay_server import (
    ConfigError,
    LimiterBlocked,
    NStep,
    Offsets,
    Prioritized,
    Row,
    SamplesPerInsert,
    Sequence,
    Server,
    Table,
    TableEmptied,
    Uniform,
)
from replay_server.integrations.torchrl import ReplayServerBuffer, columns_of

GAMMA, TRUNCATED_AT, DRAWN = 0.9, 100, 2000


@pytest.fixture(autouse=True)
def seeded():
    """Random actions are drawn from torch's global state."""
    torch.manual_seed(1)


def make_env():
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


def test_several_rewards_of_one_step_are_refused():
    """Given an environment with two rewards for a step. Expect ValueError, and neither chosen."""
    env = make_env()
    env.reward_spec = Unbounded((2,))
    with pytest.raises(ValueError, match=r"gives \[2\] rewards for a step, an item holds one"):
        columns_of(env)


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


def test_steps_that_do_not_say_truncated():
    """Given a rollout of 8, done by a time limit, with and without ("next", "truncated"). Expect
    both stored alike: the last step bootstraps."""
    buffers = []
    for keep in (True, False):
        buffer = ReplayServerBuffer(make_env(), 1000, batch_size=256, seed=1)
        env = make_env()
        env.set_seed(1)
        torch.manual_seed(1)
        rollout = env.rollout(8, break_when_any_done=False)
        assert not rollout["next", "done"].any()
        rollout["next", "done"][-1] = rollout["next", "truncated"][-1] = True
        if not keep:
            del rollout["next", "truncated"]
        buffer.extend(rollout)
        buffers.append(buffer)
    counts = [buffer.server.counters()["steps_committed"] for buffer in buffers]
    assert counts == [9, 9] and not any(buffer.sample()["next", "done"].any() for buffer in buffers)


@pytest.mark.parametrize(
    ("option", "value"), [("gamma", 2.0), ("beta", -1.0), ("batch_size", 0), ("batch_size", "8")]
)
def test_options_that_are_none(option, value):
    """Given an option outside its range. Expect a sentence that names it, before the first step."""
    options = {"batch_size": 8} | {option: value}
    with pytest.raises(ConfigError, match=option.removesuffix("_size")):
        ReplayServerBuffer(make_env(), 1000, **options)


def test_a_server_elsewhere_has_the_alpha():
    """Given a server of alpha 0.6. Expect its own taken, and another one refused."""
    env = make_env()
    table = Table("main", columns_of(env), NStep(1), 5000, Prioritized(0.6))
    with Server([table], "udp://127.0.0.1:0") as server:
        for alpha in (None, 0.6):
            ReplayServerBuffer(env, 1, batch_size=8, alpha=alpha, address=server.address).close()
        with pytest.raises(ValueError, match=r"alpha=0.7, and table 'main' .* draws with 0.6"):
            ReplayServerBuffer(env, 1, batch_size=8, alpha=0.7, address=server.address)


def test_how_many_there_are_and_how_many_are_drawn():
    """Given 40 steps. Expect their number, batches of the size asked for, and an end."""
    buffer = ReplayServerBuffer(make_env(), 1000, batch_size=8, seed=1)
    rollout = make_env().rollout(40, break_when_any_done=False)
    buffer.extend(rollout)
    assert len(buffer) == 39  # the newest step's next observation was not acted on
    assert buffer.sample().batch_size == torch.Size([8])
    assert buffer.sample(4).batch_size == torch.Size([4])
    buffer.close()
    assert buffer.client.closed and buffer.server.closed


@pytest.mark.parametrize(
    ("workers", "shape", "fits"),
    [(1, (12,), True), (1, (1, 12), True), (2, (2, 6), True), (2, (12,), True), (1, (2, 6), False),
     (2, (1, 12), False), (2, (4, 3), False), (2, (2, 2, 3), False), (2, (11,), False)],
)  # fmt: skip
def test_steps_lie_as_the_environments_do(workers, shape, fits):
    """Given steps in many shapes. Expect those of [time] and [environments, time] stored, each
    once, and others refused: they would be laid one behind the other."""
    envs = SerialEnv(2, make_env) if workers == 2 else make_env()
    buffer = ReplayServerBuffer(envs, 1000, batch_size=8, seed=1)
    rollout = make_env().rollout(12, break_when_any_done=False)[: math.prod(shape)]
    if fits:
        buffer.extend(rollout.reshape(shape))
        assert buffer.server.counters()["steps_committed"] >= 12
    else:
        with pytest.raises(ValueError, match=r"steps of shape .*: expected \[time\]"):
            buffer.extend(rollout.reshape(shape))
        assert buffer.server.counters()["steps_committed"] == 0
    buffer.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_in_a_list_and_single_steps_go_on_where_the_one_before_ended(workers):
    """Given a rollout whole, as a list of parts, and step by step. Expect the same stored."""
    envs = SerialEnv(2, make_env) if workers == 2 else make_env()
    rollout, drawn = envs.rollout(12, break_when_any_done=False), []
    for parts in ([rollout], [rollout.split(5, -1)], [rollout[..., t] for t in range(12)]):
        buffer = ReplayServerBuffer(envs, 1000, batch_size=64, seed=1)
        for part in parts:
            buffer.extend(part)
        drawn.append((len(buffer), buffer.server.counters()["steps_committed"]))
        seen = {tuple(row) for row in buffer.sample()["observation"].tolist()}
        assert seen <= {tuple(row) for row in rollout["observation"].reshape(-1, 4).tolist()}
        buffer.close()
    assert drawn[0] == drawn[1] == drawn[2] and drawn[0][1] >= 12 * workers


def test_mistakes_of_a_loop_are_told_at_once():
    """Given a draw before the first step, steps that are none, and priorities without "td_error".
    Expect a sentence each, and not a wait for the server's limiter, which it has none."""
    buffer = ReplayServerBuffer(make_env(), 1000, batch_size=8, seed=1)
    with pytest.raises(ValueError, match=r"nothing can be drawn yet.*extend it by more steps"):
        buffer.sample()
    for wrong, kind in (({}, "dict"), ([], "list"), ([1.0], "list")):
        with pytest.raises(ValueError, match=f"steps is {kind}: expected a TensorDict"):
            buffer.extend(wrong)
    buffer.extend(make_env().rollout(12, break_when_any_done=False))
    with pytest.raises(ValueError, match='there is no "td_error" in this TensorDict'):
        buffer.update_tensordict_priority(buffer.sample())
    buffer.close()


def test_padding_is_no_step():
    """Given trajectories with a mask, as split_trajs=True makes them. Expect a refusal."""
    buffer = ReplayServerBuffer(make_env(), 1000, batch_size=8, seed=1)
    rollout = make_env().rollout(12, break_when_any_done=False)
    rollout["collector", "mask"] = torch.arange(12) < 9
    with pytest.raises(ValueError, match=r"3 of 12 steps are padding .*split_trajs=True"):
        buffer.extend(rollout)
    rollout["collector", "mask"] = torch.ones(12, dtype=torch.bool)
    buffer.extend(rollout)
    assert buffer.server.counters()["steps_committed"] >= 12
    buffer.close()


def test_an_observation_of_another_name():
    """Given an environment whose observation is "state". Expect a refusal without that name, and
    with it the steps, under that name."""
    env = TransformedEnv(make_env(), RenameTransform(["observation"], ["state"]))
    with pytest.raises(ValueError, match=r"no observation 'observation': name one of state"):
        ReplayServerBuffer(env, 1000, batch_size=8)
    buffer = ReplayServerBuffer(env, 1000, batch_size=8, seed=1, observation="state")
    rollout = env.rollout(12, break_when_any_done=False)
    buffer.extend(rollout)
    rows = {tuple(row) for row in rollout["state"].tolist()}
    sample = buffer.sample()
    assert {tuple(row) for row in sample["state"].tolist()} <= rows
    assert sample["next", "state"].shape == sample["state"].shape
    buffer.close()


def test_an_extend_that_is_held_back_says_how_much_it_took():
    """Given a limiter that lets 40 in. Expect the count, and by going on each step once."""
    env = make_env()
    limiter = SamplesPerInsert(1.0, min_size=20, error_buffer=20.0)
    table = Table("main", columns_of(env), NStep(1), 5000, Uniform(), limiter)
    with Server([table], "udp://127.0.0.1:0") as server:
        buffer = ReplayServerBuffer(env, 5000, batch_size=8, address=server.address)
        buffer.writer.timeout = 0.3
        steps, tries = env.rollout(120, break_when_any_done=False), 0
        while steps.shape[-1]:
            try:
                buffer.extend(steps)
                break
            except LimiterBlocked as error:
                assert f"{error.taken} were taken" in str(error) and "nothing of" not in str(error)
                steps, tries = steps[..., error.taken :], tries + 1
                for _ in range(5):
                    buffer.client.sample("main", 8)
        inserted = buffer.client.table("main").inserted
    assert tries > 1 and 110 <= inserted <= 120


def test_windows_written_out_are_several_steps_too():
    """Given a server's Offsets of three rewards. Expect the question for gamma."""
    env = make_env()
    spec = columns_of(env)
    offsets = {c.name: (0,) for c in spec} | {"reward": (0, 1, 2), "terminated": (0, 1, 2)}
    offsets["observation"] = (0, 3)
    table = Table("main", spec, Offsets(offsets), 5000, Uniform())
    with (
        Server([table], "udp://127.0.0.1:0") as server,
        pytest.raises(ValueError, match="n_steps=3 without gamma"),
    ):
        ReplayServerBuffer(env, 5000, batch_size=8, address=server.address)


def test_a_flush_that_is_held_back_says_that_all_was_taken():
    """Given a limiter that lets fewer in than an extend has. Expect all steps counted as taken,
    since those that are held back are in the writer's hands."""
    env = make_env()
    limiter = SamplesPerInsert(1.0, 1)
    table = Table("main", columns_of(env), NStep(1), 5000, Uniform(), limiter, writers=1)
    with Server([table], "udp://127.0.0.1:0") as server:
        buffer = ReplayServerBuffer(env, 5000, batch_size=4, address=server.address)
        buffer.writer.timeout = 0.5
        with pytest.raises(LimiterBlocked, match="10 were taken: none of them again") as held:
            buffer.extend(env.rollout(10, break_when_any_done=False))
        assert held.value.taken == 10
        buffer.writer.close(0)


def test_what_a_loss_wrote_may_need_a_gradient():
    """Given a td_error that is part of a graph. Expect the priorities updated."""
    env = make_env()
    buffer = ReplayServerBuffer(env, 5000, batch_size=8, alpha=0.6)
    buffer.extend(env.rollout(100, break_when_any_done=False))
    sample = buffer.sample()
    sample["td_error"] = torch.rand(8, requires_grad=True) * 2
    buffer.update_tensordict_priority(sample)
    buffer.client.flush()
    assert buffer.server.counters()["updates"] == 1


@pytest.mark.parametrize("plan", [NStep(1, stack=4), Sequence(4), Row()])
def test_a_table_of_other_items_is_refused_at_once(plan):
    """Given a server whose items are no single transitions. Expect its plan in the sentence."""
    env = make_env()
    with (
        Server([Table("main", columns_of(env), plan, 5000)], "udp://127.0.0.1:0") as server,
        pytest.raises(ValueError, match="makes no transitions"),
    ):
        ReplayServerBuffer(env, 5000, batch_size=8, address=server.address)


def test_steps_without_a_part_are_told_and_no_steps_are_none():
    """Given steps that lack a key, and none at all. Expect the key named, and nothing."""
    env = make_env()
    buffer = ReplayServerBuffer(env, 5000, batch_size=8)
    steps = env.rollout(20, break_when_any_done=False)
    for key in ("action", "next", ("next", "terminated")):
        with pytest.raises(ValueError, match=f"there is no .*{key[-1] if len(key) == 2 else key}"):
            buffer.extend(steps.exclude(key))
    buffer.extend(steps[:0])
    assert buffer.client.table("main").inserted == 0


@pytest.mark.parametrize("how", ["in order", "shuffled", "one step each", "in two parts"])
def test_each_step_leads_where_it_says(how):
    """Given steps in the order they were played, in any, each of an episode of its own, and parts
    that do not follow each other. Expect the next observation that each step names."""
    env = make_env()
    env.set_seed(1)
    steps = env.rollout(300, break_when_any_done=False)
    if how == "shuffled":
        steps = steps[torch.randperm(300)]
    elif how == "one step each":
        steps = torch.cat([env.rollout(1) for _ in range(100)])
    buffer = ReplayServerBuffer(env, 5000, batch_size=512, seed=1)
    parts = (steps[150:], steps[:150]) if how == "in two parts" else steps.split(7)
    for part in parts:
        buffer.extend(part)
    ends = {
        tuple(step["observation"].tolist()): tuple(step["next", "observation"].tolist())
        for step in steps
    }
    sample = buffer.sample()
    for one in sample:
        assert ends[tuple(one["observation"].tolist())] == tuple(
            one["next", "observation"].tolist()
        )


def test_an_emptied_table_is_told_once():
    """Given a table that somebody empties. Expect one error, and a buffer that goes on."""
    env = make_env()
    table = Table("main", columns_of(env), NStep(1), 1000, Uniform())
    with Server([table], "udp://127.0.0.1:0") as server:
        buffer = ReplayServerBuffer(env, 1000, batch_size=8, address=server.address)
        buffer.extend(env.rollout(20, break_when_any_done=False))
        buffer.client.reset("main")
        with pytest.raises(TableEmptied, match="a new one was opened here"):
            buffer.extend(env.rollout(20, break_when_any_done=False))
        buffer.extend(env.rollout(20, break_when_any_done=False))
        assert len(buffer.sample()) == 8
