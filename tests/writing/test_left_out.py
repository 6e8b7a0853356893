"""A step that a writer refused, or a limiter held back, and that its caller leaves out: what is
stored is what was played, and no item spans the gap."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    LimiterBlocked,
    NStep,
    SamplesPerInsert,
    Server,
    Spec,
    SpecError,
    Table,
)

SPEC = Spec(
    (
        Column("observation", np.float32, (1,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
FEW, MANY = NStep(1), NStep(3)


class Played:
    """Environments whose observations count up, each in numbers of its own, and the steps of them:
    {observation: (reward, what it led to, terminated)}."""

    def __init__(self, mode, count, seed):
        self.mode, self.count, self.rng = mode, count, np.random.default_rng(seed)
        self.at = 10_000 * np.arange(1, count + 1)
        self.over = np.zeros(count, np.bool_)
        self.resets = np.zeros(count, np.bool_)  # of the newest step
        self.steps = {}

    def step(self, rates=(0.15, 0.1)):
        """One step of all, as `add_batch` takes it; `rates`: of terminations and truncations."""
        before, self.resets = self.at.copy(), self.over & (self.mode == "next-step")
        ends = [self.rng.random(self.count) < rate for rate in rates]
        terminated, truncated = (end & ~self.resets for end in ends)
        final = before + np.where(self.resets, 100, 1)
        self.over, self.at = terminated | truncated, final.copy()
        reward = np.where(self.resets, 0.0, before % 7 + 1.0)
        infos = {}
        if self.mode == "same-step" and self.over.any():
            self.at[self.over] += 100
            finals = np.empty(self.count, object)
            finals[:] = [np.array([each], np.float32) for each in final]
            infos = {"final_obs": finals, "_final_obs": self.over}
        for i in np.flatnonzero(~self.resets):
            self.steps[before[i]] = reward[i], final[i], terminated[i]
        given = {"observation": before, "next_observation": self.at}
        given = {name: each.astype(np.float32)[:, None] for name, each in given.items()}
        given |= {"action": np.zeros(self.count, np.int64), "reward": reward, "infos": infos}
        return given | {"terminated": terminated, "truncated": truncated}

    def untold(self, given):
        """A step without next_observation, but where an episode ended."""
        ended = self.over.any() and self.mode != "same-step"
        final = {"final_observation": given["next_observation"]} if ended else {}
        return given | {"next_observation": None} | final

    def reset(self):
        """What a caller resets by hand, before the next step."""
        if self.mode == "disabled":
            self.at[self.over] += 100


def stored(client, keys):
    """{(observation, return, what it led to, discount)} of all items, by one row each."""
    found = client.get("main", keys)
    drawn = client.get("main", keys[found.valid & (found.ahead > 0)]).transitions(0.5)
    parts = drawn.observations, drawn.rewards, drawn.next_observations, drawn.discounts
    return {tuple(map(float, row)) for row in zip(*map(np.ravel, parts), strict=True)}


def targets(steps, taken, n):
    """{observation: (return, what it led to, discount)}: n steps on along those that were taken."""
    found = {}
    for begin in taken:
        at, total, discount = begin, 0.0, 1.0
        for _ in range(n):
            reward, to, terminated = steps[at]
            total, discount = total + discount * reward, discount * 0.5 * (not terminated)
            at = to
            if terminated or at not in taken:
                break
        found[float(begin)] = total, float(at), discount
    return found


@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
@pytest.mark.parametrize("plan", [FEW, MANY], ids=["n=1", "n=3"])
@pytest.mark.parametrize("mode", ["next-step", "same-step", "disabled"])
@pytest.mark.parametrize("seed", range(3))
def test_a_refused_step_that_is_left_out_joins_nothing(mode, plan, told, seed):
    """Given environments whose reward is NaN now and then, each such step left out, made again with
    a number, or refused twice. Expect the items of the steps that were taken: none leads over a
    gap or a reset, and none is lost where each step's next observation was given."""
    played, taken, count, refused = Played(mode, 3, seed), set(), 0, 0
    with (
        Server([Table("main", SPEC, plan, 4096, streams=3)], "loopback://", seed=seed) as server,
        Client(server.address) as client,
        client.writer("main", 3, autoreset=mode) as writer,
    ):
        for count in range(200):
            given = played.step((0.15, 0.1) if count < 190 else (0.0, 0.0))
            real = given["observation"][~played.resets, 0]
            wrong = np.where(played.resets | (played.rng.random(3) < 0.5), given["reward"], np.nan)
            given = given if told else played.untold(given)
            spoilt = np.isnan(wrong).any() and played.rng.random() < 0.3 and count < 190
            kind = played.rng.integers(3)
            if spoilt:
                for _ in range(1 + (kind == 2)):
                    refused += 1
                    with pytest.raises(SpecError, match="finite"):
                        writer.add_batch(**given | {"reward": wrong})
            if not spoilt or kind == 1:
                writer.add_batch(**given)
                taken |= {int(each) for each in real}
            played.reset()
        writer.restart(final_observation=played.at.astype(np.float32)[:, None])
        writer.flush()
        expected = {(begin, *rest) for begin, rest in targets(played.steps, taken, plan.n).items()}
        found = stored(client, writer.ledger()["key"])
        assert refused > 20 and found <= expected and len(found) > len(expected) // 2
        assert found == expected or not told


@pytest.mark.parametrize("mode", ["next-step", "same-step", "disabled"])
def test_a_step_that_a_limiter_held_back_and_that_is_left_out_joins_nothing(mode):
    """Given a loop that leaves out what a limiter does not let in, ends and resets among it. Expect
    the items of the steps that were taken, and no others."""
    played, taken, dropped = Played(mode, 1, 1), set(), []
    limiter = SamplesPerInsert(1.0, 8, 8.0)
    with (
        Server([Table("main", SPEC, FEW, 4096, limiter=limiter)], "loopback://") as server,
        Client(server.address, timeout=0.02) as client,
        client.writer("main", 1, autoreset=mode, unacknowledged_max=8) as writer,
    ):
        for _ in range(150):
            given = played.step()
            try:
                writer.add_batch(**given)
                taken |= {int(each) for each in given["observation"][~played.resets, 0]}
            except LimiterBlocked:
                dropped.append(bool(played.over.any() or played.resets.any()))
                if len(dropped) % 3 == 2:
                    client.sample("main", 8)
            played.reset()
        played.over[:] = False
        writer.restart(final_observation=played.at.astype(np.float32)[:, None])
        for _ in range(100):
            with suppress(LimiterBlocked):
                writer.flush()
                break
            client.sample("main", 8)
        expected = {(begin, *rest) for begin, rest in targets(played.steps, taken, 1).items()}
        assert len(dropped) > 20 and any(dropped)
        assert stored(client, writer.ledger()["key"]) == expected


def test_a_step_that_is_left_out_where_nothing_moves_is_known_by_its_flags():
    """Given observations that never change, and a refused step in which an environment ended: made
    again, then the same left out. Expect the reset behind it to be no row in both cases."""
    still, calm = np.zeros((2, 1), np.float32), np.zeros(2, np.bool_)
    given = {"observation": still, "action": np.zeros(2, np.int64), "reward": np.ones(2)}
    given |= {"next_observation": still, "terminated": calm, "truncated": calm, "infos": {}}
    ends = {"terminated": np.array([True, False])}
    with (
        Server([Table("main", SPEC, FEW, 64, streams=2)], "loopback://") as server,
        Client(server.address) as client,
        client.writer("main", 2, autoreset="next-step") as writer,
    ):
        for again in (True, False):
            writer.add_batch(**given)
            with pytest.raises(SpecError, match="finite"):
                writer.add_batch(**given | ends | {"reward": np.array([1.0, np.nan])})
            before = writer.flush().steps_stored
            if again:
                writer.add_batch(**given | ends)
            writer.add_batch(**given | {"reward": np.array([0.0, 1.0])})
            writer.add_batch(**given)
            added = writer.flush().steps_stored - before
            assert added == (2 + 1) * again + 2 * (not again) + 1 + 2


def add(writer, place, reward=1.0):
    """One step of a single environment, from `place` to the next."""
    here, there = (np.array([at], np.float32) for at in (place, place + 1))
    writer.add_step(here, 0, there, reward, False, False)


@pytest.mark.parametrize("plan", [FEW, MANY])
def test_an_episode_ends_where_its_newest_step_led(plan):
    """Given restarts with the reset's observation, and with that of a step that was refused. Expect
    the former refused, with the episode open as before, and in the latter the episode to end
    before that step: each item leads from a place to a later one of its episode."""
    with Server([Table("m", SPEC, plan, 1024)], seed=1) as server, Client(server.address) as client:
        writer = client.writer("m")
        for episode in range(10):
            for place in range(5):
                add(writer, 100 * episode + place)
            with pytest.raises(SpecError, match="not what its newest step led to"):
                writer.restart(final_observation=np.array([100 * episode + 100], np.float32))
            if episode % 2:
                with pytest.raises(SpecError, match="finite"):
                    add(writer, 100 * episode + 5, float("nan"))
                writer.restart(final_observation=np.array([100 * episode + 6], np.float32))
            else:
                writer.restart(final_observation=np.array([100 * episode + 5], np.float32))
        writer.close()
        drawn = client.sample("m", 512).transitions(1.0)
        begins, ends = drawn.observations[:, 0], drawn.next_observations[:, 0]
        assert set(begins) == {100.0 * e + p for e in range(10) for p in range(5)}
        assert (ends - begins == drawn.rewards).all() and (ends % 100 <= 5).all()


@pytest.mark.parametrize("how", ["not given", "one buffer"])
def test_where_nobody_knows_what_was_last_no_item_spans_a_step_that_was_not_taken(how):
    """Given a refused step, and a restart behind it with what that step returned; next observations
    not given, or in one buffer that each step writes over. Expect no item across it."""
    buffer = np.zeros(1, np.float32)
    with Server([Table("m", SPEC, FEW, 1024)], seed=1) as server, Client(server.address) as client:
        writer = client.writer("m")
        for place in range(8):
            buffer[:] = place + 1
            said = {"next_observation": buffer} if how == "one buffer" else {}
            said |= {"observation": np.array([place], np.float32), "action": 0}
            said |= {"reward": float("nan") if place == 7 else 1.0}
            with suppress(SpecError):
                writer.add(**said, terminated=False, truncated=False)
        writer.restart(final_observation=np.array([8], np.float32))
        writer.close()
        drawn = client.sample("m", 256).transitions(1.0)
        steps = {*zip(drawn.observations[:, 0], drawn.next_observations[:, 0], strict=True)}
        assert steps == {(place, place + 1) for place in range(6)}


def test_an_episode_in_one_buffer_ends_where_its_caller_says():
    """Given next observations in one buffer, which a reset wrote to, and the last copied before it.
    Expect the copy taken: nobody knows it better."""
    buffer = np.zeros(1, np.float32)
    with Server([Table("m", SPEC, FEW, 1024)], seed=1) as server, Client(server.address) as client:
        writer = client.writer("m")
        for place in range(5):
            buffer[:] = place + 1
            writer.add_step(np.array([place], np.float32), 0, buffer, 1.0, False, False)
        last = buffer.copy()
        buffer[:] = 100
        writer.restart(final_observation=last)
        writer.close()
        drawn = client.sample("m", 256).transitions(1.0)
        assert (drawn.next_observations - drawn.observations == 1).all()
        assert set(drawn.observations[:, 0]) == set(range(5))


@pytest.mark.parametrize("lost", [None, np.zeros(2, np.float32)], ids=["none", "another shape"])
def test_a_step_whose_observation_did_not_come_is_joined_over_nowhere(lost):
    """Given next observations in one array that each step writes over, and a step that is left out,
    refused for an observation that cannot be read. Expect no item across it."""
    buffer = np.zeros(1, np.float32)
    with Server([Table("m", SPEC, FEW, 1024)], seed=1) as server, Client(server.address) as client:
        writer, seen = client.writer("m"), buffer.copy()
        for place in range(10):
            buffer[:] = place + 1
            given = lost if place == 5 else seen
            with pytest.raises(SpecError) if place == 5 else nullcontext():
                writer.add_step(given, 0, buffer, 1.0, False, False)
            seen = buffer.copy()
        writer.flush()
        drawn = client.sample("m", 512).transitions(1.0)
        assert (drawn.next_observations - drawn.observations == 1).all()
        assert set(drawn.observations[:, 0]) == {0, 1, 2, 3, 6, 7, 8}


@pytest.mark.parametrize("final", ["given", "mended", "left out"])
@pytest.mark.parametrize("count", [1, 2])
def test_an_episode_that_led_to_a_nan_is_ended_by_a_restart(count, final):
    """Given a next observation that is a NaN, seen by the caller, who resets that environment and
    says so. Expect it to end without the item that leads there, and the others to go on."""
    with (
        Server([Table("m", SPEC, FEW, 1024, streams=2)], seed=1) as server,
        Client(server.address) as client,
    ):
        writer, calm = client.writer("m", count, autoreset="disabled"), np.zeros(count, np.bool_)
        at = 1000 * np.arange(count, dtype=np.float32)[:, None]
        for place in range(8):
            to = at + 1
            to[0] = np.nan if place == 4 else to[0]
            given = {"observation": at, "next_observation": to, "reward": np.ones(count)}
            given |= {"action": np.zeros(count, np.int64), "terminated": calm, "truncated": calm}
            writer.add_batch(**given)
            at = to.copy()
            if place == 4:
                mask = np.arange(count) == 0
                shown = {"given": to, "mended": np.nan_to_num(to), "left out": None}[final]
                writer.restart(mask, shown)
                at[0] = 100
        writer.flush()
        drawn = client.sample("m", 512).transitions(1.0)
        begins, ends = drawn.observations[:, 0], drawn.next_observations[:, 0]
        expected = {0, 1, 2, 3, 100, 101, *(range(1000, 1007) if count > 1 else ())}
        assert set(begins) == expected and (ends - begins == 1).all()


def test_a_step_that_was_refused_for_a_nan_observation_is_not_the_next_one():
    """Given steps whose observation is nothing but a NaN, refused: left out, and made again with
    the number. Expect an item of each step that was taken, and none across the other."""
    with Server([Table("m", SPEC, FEW, 1024)], seed=1) as server, Client(server.address) as client:
        writer, taken = client.writer("m"), set()
        for place in range(12):
            here, there = np.array([place], np.float32), np.array([place + 1], np.float32)
            if place in (1, 4, 8):
                with pytest.raises(SpecError, match="finite"):
                    writer.add_step(np.full(1, np.nan), 0, there, 1.0, False, False)
            if place not in (1, 8):
                writer.add_step(here, 0, there, 1.0, False, False)
                taken.add(place)
        writer.flush()
        drawn = client.sample("m", 512).transitions(1.0)
        assert (drawn.next_observations - drawn.observations == 1).all()
        assert set(drawn.observations[:, 0]) == taken - {11}


@pytest.mark.parametrize("place", [0, 1], ids=["one of two numbers", "both"])
def test_a_step_with_a_nan_that_is_allowed_is_known_when_it_is_made_again(place):
    """Given observations that are NaN now and then, which the writer was told to take, and a reward
    refused before each step, which is then made again. Expect no row but those of the steps, and
    each item as long as its plan says."""
    spec = Spec((Column("observation", np.float32, (2,)), *SPEC.columns[1:]))

    def seen(step):
        here = np.full(2, step, np.float32)
        here[: place + 1] = np.nan if step % 5 == 4 else here[: place + 1]
        return here

    table = Table("m", spec, MANY, 1024)
    with Server([table], seed=1) as server, Client(server.address) as client:
        writer = client.writer("m", finite_observations=False)
        for step in range(40):
            rest = {"truncated": step == 39, "next_observation": seen(step + 1)}
            given = {"observation": seen(step), "action": 0, "terminated": False, **rest}
            with pytest.raises(SpecError, match="reward"):
                writer.add(reward=float("nan"), **given)
            writer.add(reward=1.0, **given)
        assert writer.flush().steps_stored == 41
        ahead = np.unique(client.sample("m", 2048).ahead, return_counts=True)
        assert ahead[0].tolist() == [1, 2, 3] and ahead[1][:2].sum() < 300


def test_a_reset_with_a_nan_reward_behind_an_end_that_could_not_be_read_is_no_step():
    """Given a last step whose flags cannot be read, and the step of the reset with a reward that is
    none, given once more where it is refused. Expect no item from one episode into the next."""
    one, no = np.ones(1), np.zeros(1, np.bool_)

    def step(place, to=None, **more):
        observed = {"observation": np.full((1, 1), place, np.float32)}
        observed["next_observation"] = np.full((1, 1), to or place + 1, np.float32)
        flags = {"terminated": no, "truncated": no, "infos": {}}
        return {**observed, "action": np.zeros(1, np.int64), "reward": one, **flags, **more}

    with Server([Table("m", SPEC, FEW, 1024)], seed=1) as server, Client(server.address) as client:
        writer = client.writer("m", 1, autoreset="next-step")
        for place in range(5):
            writer.add_batch(**step(place))
        with pytest.raises(SpecError):
            writer.add_batch(**step(5, truncated=np.array([2.5])))
        try:
            writer.add_batch(**step(6, 100, reward=np.full(1, np.nan)))
        except SpecError:
            writer.add_batch(**step(6, 100, reward=np.zeros(1)))
        for place in range(100, 104):
            writer.add_batch(**step(place))
        writer.flush()
        drawn = client.sample("m", 512).transitions(1.0)
        assert (drawn.next_observations - drawn.observations == 1).all()
        assert {0.0, 100.0} <= set(drawn.observations[:, 0])
