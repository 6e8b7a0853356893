"""The actor's own pieces: epsilons, actions, seeds, and the priorities it gives to new items."""

import gymnasium
import numpy as np
import pytest
from environments import ScriptedEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from actor.exploration import EpsilonGreedy, epsilons, epsilons_of
from actor.window import Window
from replay_server import Client, NStep, Sequence, Server, Table
from replay_server.errors import ConfigError
from replay_server.spec import spec_from
from replay_server.stacking import FrameStack
from replay_server.training.actions import actions_of
from replay_server.training.envs import make_envs, seed_for, seed_of_life, train_seeds
from replay_server.writing.anchors import Anchors
from replay_server.writing.autoreset import Autoreset, flags_from_infos, mode_of


def test_the_ladder_is_over_all_environments_of_all_actors():
    """Given one environment, 8, and 3 actors of 4 each. Expect the epsilons of Horgan et al. over
    all of them, each actor its own part, and ValueError for an actor beyond the last."""
    assert epsilons(1).tolist() == [0.4]
    ladder = epsilons(8)
    assert ladder == pytest.approx([0.4 ** (1 + 7 * i / 7) for i in range(8)])
    parts = [epsilons_of(actor, 3, 4) for actor in range(3)]
    assert np.concatenate(parts) == pytest.approx([0.4 ** (1 + 7 * i / 11) for i in range(12)])
    for arguments in [(3, 3, 4), (-1, 3, 4)]:
        with pytest.raises(ValueError, match="out of 3"):
            epsilons_of(*arguments)
    with pytest.raises(ValueError, match="at least 1"):
        epsilons(0)


def test_actions_are_greedy_but_for_epsilon():
    """Given 4000 choices by values two of which are the best, under epsilons 0, 0.5 and 1. Expect
    the first of the best, but for as large a share of other actions as chance has then."""
    q = np.tile(np.array([[0.0, 2.0, 2.0, 1.0]]), (3, 1))
    choose = EpsilonGreedy(np.array([0.0, 0.5, 1.0]), 4, np.random.default_rng(1))
    taken = np.array([choose(q) for _ in range(4000)])
    assert (taken[:, 0] == 1).all(), "greedy: the first of equally good actions"
    assert (taken[:, 1] != 1).mean() == pytest.approx(0.5 * 3 / 4, abs=0.03)
    assert (taken[:, 2] != 1).mean() == pytest.approx(3 / 4, abs=0.03)


def test_the_generators_course_does_not_depend_on_the_network():
    """Given two choosers of one seed and different values. Expect their generators in the same
    state after 50 choices."""
    a, b = (EpsilonGreedy(np.full(4, 0.3), 3, np.random.default_rng(7)) for _ in range(2))
    for step in range(50):
        a(np.zeros((4, 3)))
        b(np.full((4, 3), float(step)))
    assert a.rng.bit_generator.state == b.rng.bit_generator.state


def test_seeds_of_different_purposes_never_meet():
    """Given purposes, seeds, actors and lives. Expect all their seeds to differ, a first life to
    have the run's own, and ValueError for a seed or an index beyond its bound."""
    purposes = ("train", "select", "confirm", "evaluate")
    seen = {seed_for(p, s, i) for p in purposes for s in (0, 1, 2**32 - 1) for i in range(50)}
    assert len(seen) == 4 * 3 * 50
    assert set(train_seeds(1, 0, 8)).isdisjoint(train_seeds(1, 1, 8))
    lives = [seed_of_life(1, life) for life in range(5)]
    assert lives[0] == 1 and len(set(lives)) == 5
    assert set(train_seeds(lives[0], 0, 8)).isdisjoint(train_seeds(lives[1], 0, 8))
    for seed, index in [(-1, 0), (2**32, 0), (0, -1), (0, 2**24)]:
        with pytest.raises(ValueError, match="at most"):
            seed_for("train", seed, index)


def test_the_same_seeds_give_the_same_episodes():
    """Given three environments stepped alike twice, reset with the same seeds. Expect the same
    observations."""
    runs = []
    for _ in range(2):
        envs = make_envs("CartPole-v1", 3)
        observation, _ = envs.reset(seed=train_seeds(5, 0, 3))
        steps = [observation]
        for _ in range(60):
            steps.append(envs.step(np.array([0, 1, 1]))[0])
        runs.append(np.stack(steps))
        assert actions_of(envs, "dqn") == 2
        envs.close()
    assert np.array_equal(*runs)


def test_actions_that_are_not_discrete_are_refused():
    """Given a space of continuous actions, and one that counts from 1. Expect ValueError."""
    env = gymnasium.Env()
    for space in (spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=1)):
        env.action_space = space
        with pytest.raises(ValueError, match="Discrete"):
            actions_of(env, "dqn")


def table_q(stacks, scale):
    """A made-up network: three numbers from a stack [R, k, 3], different for every stack."""
    summed = stacks.astype(np.float64).reshape(len(stacks), stacks.shape[1] * stacks.shape[2])
    weights = np.cos(np.arange(summed.shape[1] * 3)).reshape(-1, 3)
    return (scale * np.sin(summed @ weights)).astype(np.float32)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("n", [1, 3, 4])
def test_initial_priorities_are_the_learners_td_of_each_item(mode, n):
    """Given scripted episodes, a net that changes half-way, and every item written down whole.

    Expect one priority for each step of each ended episode, equal to the loop over its rows, with
    the net of the moment the item was complete.
    """
    envs = SyncVectorEnv([lambda w=w: ScriptedEnv(w) for w in range(4)], autoreset_mode=mode)
    spec = spec_from(envs)
    reset, stack = Autoreset(spec, mode_of(envs), 4), FrameStack(spec["observation"], 2, 4)
    window, anchors = Window(4, n, 0.9, reward_clip=300.0), Anchors(4, n)
    rng = np.random.default_rng(n)
    history = [[] for _ in range(4)]  # rows of each stream: (stack, action, reward, cut, end)
    got = {}
    observation, _ = envs.reset()
    stack.reset(observation)
    scale = 1.0
    for step in range(50):
        if step == 25:
            scale = 2.0
            window.renew(table_q(window.held()["observation"], 2.0))
        q = table_q(stack.array, scale)
        action = rng.integers(0, 3, 4)
        after, reward, terminated, truncated, infos = envs.step(action)
        rows = reset.rows(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=after,
            infos=infos,
            life_lost=flags_from_infos("life_lost", infos, 4),
        )
        ended = np.zeros(4, np.bool_)
        ended[rows.ended_streams] = True
        final = np.zeros_like(after)
        final[ended] = rows.closing["observation"]
        last = stack.following(final, ended)
        window.push(rows, {"observation": stack.array}, q)
        ready = anchors.advance(rows.streams, rows.ended_streams)
        priorities = window.priorities(ready, rows, table_q(last, scale) if ended.any() else None)
        for row, stream in enumerate(rows.streams):
            cut = bool(rows.columns["terminated"][row])
            fed = stack.array[stream].copy()
            history[stream].append((fed, action[stream], reward[stream], cut, False))
        for row, stream in enumerate(rows.ended_streams):
            history[stream].append((last[row], 0, 0.0, False, True))
        key = list(zip(ready.streams.tolist(), ready.steps.tolist(), strict=True))
        assert key == sorted(key) and not set(key) & set(got)
        got |= {k: (p, scale) for k, p in zip(key, priorities, strict=True)}

        over = terminated | truncated
        if mode == AutoresetMode.DISABLED and over.any():
            after, _ = envs.reset(options={"reset_mask": over})
        stack.push(after)
        stack.reset(after, rows.started)
        observation = after
    envs.close()

    expected = {}
    for stream, rows in enumerate(history):
        ends = [i for i, row in enumerate(rows) if row[4]]
        for t, (fed, taken, _, _, closing) in enumerate(rows):
            end = next((e for e in ends if e >= t), None)
            if closing or (end is None and t + n >= len(rows)):
                continue
            at, total, factor, cut = t, 0.0, 1.0, False
            while at < t + n and not rows[at][4]:
                if not cut:
                    total += factor * min(rows[at][2], 300.0)
                    cut = rows[at][3]
                factor *= 0.9
                at += 1
            used = got[stream, t][1]
            best = 0.0 if cut else factor * float(table_q(rows[at][0][None], used).max())
            estimate = float(table_q(fed[None], used)[0, taken])
            expected[stream, t] = abs(total + best - estimate)
    assert set(got) == set(expected) and len(expected) > 100
    for key, value in expected.items():
        assert got[key][0] == pytest.approx(value, rel=1e-5, abs=1e-4), key


def test_a_table_whose_items_wait_longer_than_n_is_refused():
    """Given plans of n = 1 and of four steps. Expect an actor of n = 1 to be told, one of 4 not."""
    spec = spec_from(make_envs("CartPole-v1", 1))
    table = Table("main", spec, {"default": NStep(1), "long": Sequence(4)}, 100)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        with pytest.raises(ConfigError, match=r"look 4 rows ahead; .* n = 1 .* of its own"):
            client.table("main").expect_reach(1)
        client.table("main").expect_reach(4)
