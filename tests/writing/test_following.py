"""Episodes that end without a word: what is stored of them is what `step` returned.

Every observation says which episode and step it is of, so that a transition into another episode
shows. Each runs over in-process loopback.
"""

from __future__ import annotations

import copy
import itertools
import warnings

import gymnasium
import numpy as np
import pytest
from environments import Episode, ScriptedEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

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
    spec_from,
)
from replay_server.writing import following as following_module
from replay_server.writing.following import ODD_MAX

numbers = itertools.count(1)
LONG = (Episode(1000, "terminated"),)
SPEC = spec_from(ScriptedEnv())
SAID = "a step does not begin where the one before it ended"


@pytest.fixture
def served():
    """A table of ScriptedEnv's steps and a client of it."""
    url = f"loopback://following-{next(numbers)}"
    with (
        Server([Table("main", SPEC, NStep(1), 1 << 12)], url) as server,
        Client(server.address) as client,
    ):
        yield client


def long_env(who=0):
    """An environment whose episodes do not end by themselves."""
    return ScriptedEnv(who, LONG)


def check(client, writer, truth, still_open):
    """The items are the transitions of `truth` {observation: what step returned}, but for the
    newest of each episode that is still open, whose next row was not added yet."""
    writer.flush()
    batch = client.get("main", writer.ledger()["key"])
    found = {}
    for i in np.flatnonzero(batch.valid & (batch.ahead > 0)):
        seen, following = batch["observation"][i].tolist()
        found[tuple(seen)] = tuple(following)
    assert found.items() <= truth.items()
    assert len(found) == client.size("main") == len(truth) - still_open
    writer.close()


def play(writer, env, limit, calls, seen=lambda observation: observation, **spoken):
    """Steps of an Env that is reset after `limit` of them; {observation: what step returned}."""
    truth = {}
    for call in range(calls):
        if call % limit == 0:
            observation, _ = env.reset()
        result = env.step(0)
        truth[tuple(observation.tolist())] = tuple(result[0].tolist())
        writer.add_step(seen(observation), 0, *result, **spoken)
        observation = result[0]
    return truth


AS = {
    "as step returned it": lambda observation: observation,
    "a copy": np.copy,
    "a view": lambda observation: observation[:],
    "float64": np.float64,
    "a list": np.ndarray.tolist,
}


@pytest.mark.parametrize("seen", AS.values(), ids=AS)
@pytest.mark.parametrize("env", [long_env, lambda: gymnasium.wrappers.Autoreset(long_env())])
def test_a_step_limit_of_the_callers_own_joins_no_episodes(served, env, seen):
    """Given an Env that its caller resets after every 8 steps and says so nowhere. Expect every
    transition to lead where `step` led, and one warning."""
    writer = served.writer("main", autoreset=env())
    with pytest.warns(UserWarning, match=SAID) as told:
        truth = play(writer, env(), 8, 80, seen)
    assert len(told) == 1
    assert "writer.restart" in str(told[0].message) and "truncated=True" in str(told[0].message)
    assert len(truth) == 80
    check(served, writer, truth, 1)


@pytest.mark.parametrize("call", ["add", "add_batch", "add_step"])
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([(1, 2, False), (2, 3, False), (7, 8, False)], SAID),
        ([(1, 2, True), (2, 3, False)], "was given its final observation again"),
    ],
    ids=["begins elsewhere", "not reset"],
)
def test_a_warning_names_the_callers_line(served, call, steps, said):
    """Given steps that earn a warning, by each call that adds one. Expect it to name this file."""
    batch = call == "add_batch"
    writer = served.writer("main", 1, autoreset="disabled" if batch else "single")
    with pytest.warns(UserWarning, match=said) as told:
        for seen, after, ended in steps:
            given = {"observation": np.full(3, seen, np.float32), "action": 0, "reward": 1.0}
            given |= {"terminated": ended, "truncated": False}
            given |= {"next_observation": np.full(3, after, np.float32)}
            getattr(writer, call)(
                **{name: np.array([it]) if batch else it for name, it in given.items()}
            )
    assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_some_of_a_vector_are_reset_without_a_word(served, mode):
    """Given three environments that are reset together now and then, in the middle of episodes.
    Expect every transition to lead where `step` led."""
    makers = [
        lambda who=who: ScriptedEnv(who, (Episode(5 + who, "truncated"),)) for who in range(3)
    ]
    envs = SyncVectorEnv(makers, autoreset_mode=mode)
    writer, truth, over = served.writer("main", autoreset=envs), {}, np.zeros(3, np.bool_)
    with pytest.warns(UserWarning, match=SAID) as told:
        for call in range(60):
            if call % 13 == 0:
                observation, _ = envs.reset()
                writer.restart(over)  # those that ended are at their start: said, as ever
                over[:] = False
            elif mode == AutoresetMode.DISABLED and over.any():
                observation, _ = envs.reset(options={"reset_mask": over.copy()})
            made_up = over if mode == AutoresetMode.NEXT_STEP else np.zeros(3, np.bool_)
            result = envs.step(np.zeros(3, np.int64))
            over = result[2] | result[3]
            for i in np.flatnonzero(~made_up):
                ended = mode == AutoresetMode.SAME_STEP and over[i]
                final = result[4]["final_obs"][i] if ended else result[0][i]
                truth[tuple(observation[i].tolist())] = tuple(final.tolist())
            writer.add_step(observation, np.zeros(3, np.int64), *result)
            observation = result[0]
    assert len(told) == 1 and len(truth) > 100
    check(served, writer, truth, np.count_nonzero(~over & ~made_up))


def test_observations_of_several_leaves(served):
    """Given a dict of observations, one leaf of which never changes. Expect no word while steps
    follow each other, and a cut where only one leaf says that they do not."""
    spaces = gymnasium.spaces
    space = spaces.Dict({"at": spaces.Box(0, 99, (2,)), "goal": spaces.Discrete(9)})
    env = ScriptedEnv()
    env.observation_space = space
    goal, url = np.int64(3), f"loopback://following-{next(numbers)}"
    with (
        Server([Table("main", spec_from(env), NStep(1), 1024)], url) as server,
        Client(server.address) as client,
        client.writer("main") as writer,
    ):

        def add(at, following, goal=goal):
            here, there = ({"at": np.full(2, x), "goal": goal} for x in (at, following))
            writer.add_step(here, 0, there, 0.0, False, False)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for at in range(9):
                add(at, at + 1)
        with pytest.warns(UserWarning, match=SAID):
            add(9, 10, np.int64(4))
        assert writer.flush().steps_stored == 11


def in_any_order(rng, _, count):
    return rng.random((2, count, 3), np.float32)


def scaled_anew(_, call, count):
    """What walks evenly, divided by the largest number so far."""
    here = np.full((count, 3), call + 1, np.float32)
    return here / (call + 1), (here + 1) / (call + 2) + here / (call + 1)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("made", [in_any_order, scaled_anew])
def test_steps_that_never_go_on_are_not_cut(served, made, count):
    """Given next observations that no step begins with. Expect one warning, which says what is
    stored, and one episode, as if nobody looked; a look now and then goes on."""
    rng, calm = np.random.default_rng(5), np.zeros(count, np.bool_)
    print("seed 5")
    writer, steps = served.writer("main", count, autoreset="disabled"), 3 * ODD_MAX
    with pytest.warns(UserWarning, match=f"time and again {SAID}") as told:
        for call in range(steps):
            here, there = made(rng, call, count)
            writer.add_step(here, np.zeros(count, int), there, np.zeros(count), calm, calm)
    assert len(told) == 1 and "leave it out" in str(told[0].message)
    assert writer.flush().steps_stored == steps * count
    assert writer._following.pause == following_module.PAUSE_S
    writer.close()


@pytest.mark.parametrize("seen", [AS["as step returned it"], np.copy], ids=["itself", "a copy"])
@pytest.mark.parametrize("lengths", [[20, 1, 20], [20, 1, 1, 20], [5, 1] * 20], ids=str)
def test_episodes_of_one_step_are_not_joined_either(served, seen, lengths):
    """Given resets that nobody announces, some one step apart. Expect every transition to lead
    where `step` led."""
    writer, truth = served.writer("main"), {}
    with pytest.warns(UserWarning, match=SAID) as told:
        for who, length in enumerate(lengths):
            truth |= play(writer, long_env(who), length, length, seen)
    assert len(told) == 1 and len(truth) == sum(lengths)
    check(served, writer, truth, 1)


def test_who_goes_on_no_more_is_cut_a_few_times(served):
    """Given steps that went on, and then never. Expect ODD_MAX cuts, and none after them."""
    writer, calm = served.writer("main", 2, autoreset="disabled"), np.zeros(2, np.bool_)
    with pytest.warns(UserWarning, match="the episode was cut there") as told:
        for call in range(3 * ODD_MAX):
            here, there = scaled_anew(None, call, 2)
            if call < 5:
                here, there = here * (call + 1), here * (call + 2)
            writer.add_step(here, np.zeros(2, int), there, np.zeros(2), calm, calm)
    assert [f"time and again {SAID}" in str(each.message) for each in told] == [False, True]
    assert writer.flush().steps_stored == 2 * (3 * ODD_MAX + ODD_MAX)
    writer.close()


def test_who_goes_on_again_is_cut_again(served, monkeypatch):
    """Given episodes of one step that nobody ends, more than are cut in a row, and then such of 20.
    Expect each end of these found, behind the first step that goes on."""
    monkeypatch.setattr(following_module, "PAUSE_S", 0.0)
    writer, at, lengths = served.writer("main"), 0.0, [5, *[1] * (3 * ODD_MAX), *[20] * 10]
    with pytest.warns(UserWarning, match=SAID):
        for length in lengths:
            at += 1000.0
            for _ in range(length):
                here, there = np.full(3, at, np.float32), np.full(3, at + 1.0, np.float32)
                writer.add_step(here, 0, there, 0.0, False, False)
                at += 1.0
    closing = ODD_MAX + 9  # of the first one, of seven of one step, and between those of 20
    assert writer.flush().steps_stored == sum(lengths) + closing
    writer.close()


def test_resets_between_many_steps_that_go_on_are_found_in_the_end(served, monkeypatch):
    """Given observations of another kind of number, more than are all looked at. Expect that resets
    are found, one in a while at first, and from the first one found on every one."""
    monkeypatch.setattr(following_module, "LOOKS_MAX", 20)
    writer, env = served.writer("main"), long_env()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        play(writer, env, 30, 30, np.float64)
        for _ in range(100_000):
            if told:
                break
            play(writer, env, 2, 2, np.float64)
        assert SAID in str(told[0].message)
    before = writer.flush().steps_stored
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(writer, env, 5, 50, np.float64)
    assert writer.flush().steps_stored == before + 50 + 10  # each episode's start closes another
    writer.close()


@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("quiet", [100, 101])
def test_a_reset_after_any_number_of_small_copies_is_found(served, monkeypatch, count, quiet):
    """Given small copies, long episodes of which every other one ends with a word, and no time for
    further looks. Expect each silent reset to be found: the closing row of its episode is there."""
    monkeypatch.setattr(following_module, "LOOKS_MAX", 20)
    monkeypatch.setattr(following_module, "PAUSE_S", np.inf)
    lead = () if count is None else (count,)
    writer = served.writer("main", count, autoreset=None if count is None else "disabled")
    no, at = np.zeros(lead, np.bool_) if lead else False, 0.0
    with pytest.warns(UserWarning, match=SAID) as told:
        for episode in range(6):
            at += 1000.0
            for step in range(quiet):
                here, there = (np.full((*lead, 3), at + more, np.float32) for more in (0, 1))
                over = no if step < quiet - 1 or episode % 2 else ~no if lead else True
                reward = np.zeros(lead) if lead else 0.0
                writer.add_step(here, np.zeros(lead, int) if lead else 0, there, reward, no, over)
                at += 1.0
    assert len(told) == 1
    # three ends were said and two found; the last episode is open
    assert writer.flush().steps_stored == (6 * quiet + 5) * (count or 1)
    writer.close()


def test_a_cut_that_is_not_let_in_comes_with_the_next_call():
    """Given a limiter that holds the writer back, and every refused call made again. Expect each
    step once, each episode cut once."""
    limiter = SamplesPerInsert(1.0, min_size=4, error_buffer=20.0)
    table = Table("main", SPEC, NStep(1), 1 << 12, limiter=limiter)
    url, count, held = f"loopback://following-{next(numbers)}", 400, 0
    with Server([table], url) as server, Client(server.address) as client:
        client._options["messages_max"] = 8  # a queue that is full soon
        writer, env = client.writer("main"), long_env()
        writer.timeout = 0.0

        def add(*step):
            nonlocal held
            try:
                writer.add_step(*step)
                return True
            except TimeoutError as error:
                held += "ending episodes" in str(error)
                if isinstance(error, LimiterBlocked):
                    client.sample("main", 4, timeout=1.0)
                return False

        with pytest.warns(UserWarning, match=SAID):
            for call in range(count):
                if call % 2 == 0:
                    observation, _ = env.reset()
                result = env.step(0)
                while not add(np.copy(observation), 0, *result):
                    pass
                observation = result[0]
        for _ in range(count):
            try:
                writer.flush(0.05)
                break
            except LimiterBlocked:
                client.sample("main", 4, timeout=1.0)
        assert held and server.counters()["steps_committed"] == count + count // 2 - 1
        writer.close()


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        *itertools.product(["price", np.float64], AS.values()),
        *itertools.product([np.int64, np.int16], [AS[how] for how in AS if how != "float64"]),
        *itertools.product(["number"], [lambda same: same, copy.deepcopy, int]),
    ],
)
def test_a_reset_to_nearly_the_same_is_found(kind, seen):
    """Given observations whose numbers differ by little, beside a price of 30000 or in the last of
    an integer's digits, and a reset after every 8 steps. Expect every transition to lead where
    `step` led: each that is stored goes on by one."""
    spaces, start = gymnasium.spaces, 9000
    if kind == "number":
        space, made = spaces.Discrete(10_000), np.int64
    elif kind == "price":
        space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

        def made(at):
            return np.array([30_000, (at - start) / 256], np.float32)

    else:
        space = spaces.Box(0, 10_000, (1,), kind)

        def made(at):
            return np.array([at], kind)

    env = ScriptedEnv()
    env.observation_space = space
    url = f"loopback://following-{next(numbers)}"
    with (
        Server([Table("main", spec_from(env), NStep(1), 1024)], url) as server,
        Client(server.address) as client,
        client.writer("main") as writer,
    ):
        with pytest.warns(UserWarning, match=SAID) as told:
            for call in range(80):
                if call % 8 == 0:
                    here = made(start)
                there = made(start + call % 8 + 1)
                writer.add_step(seen(here), 0, there, 0.0, False, False)
                here = there
        assert len(told) == 1
        assert writer.flush().steps_stored == 80 + 9
        batch = client.get("main", writer.ledger()["key"])
        stored = batch["observation"][batch.valid & (batch.ahead > 0)].reshape(79, 2, -1)
        step = 1 / 256 if kind == "price" else 1
        assert (stored[:, 1, -1] - stored[:, 0, -1] == step).all()


@pytest.mark.parametrize("shape", [(), (3,)], ids=["numbers", "arrays"])
def test_small_copies_are_all_looked_at_whatever_came_between(served, monkeypatch, shape):
    """Given small copies, more than are all looked at, of which one is equal by value alone (-0.0).
    Expect the reset after it to be found."""
    monkeypatch.setattr(following_module, "LOOKS_MAX", 5)
    monkeypatch.setattr(following_module, "PAUSE_S", np.inf)
    spec = Spec((Column("observation", np.float32, shape), *list(SPEC)[1:]))
    url = f"loopback://following-{next(numbers)}"
    with (
        Server([Table("main", spec, NStep(1), 1024)], url) as server,
        Client(server.address) as client,
        client.writer("main") as writer,
    ):

        def add(at, following):
            here, there = (np.full(shape, x, np.float32)[()] for x in (at, following))
            writer.add_step(here, 0, there, 0.0, False, False)

        for at in range(-20, 0):
            add(at, at + 1 or 0.0)
        add(-0.0, 1.0)
        add(1.0, 2.0)
        with pytest.warns(UserWarning, match=SAID):
            add(2.000001, 3.0)
        assert writer.flush().steps_stored == 24


def test_what_is_no_reset_is_not_told(served):
    """Given steps that follow each other by value, or of which that cannot be known. Expect no
    warning, and one episode."""
    env, plain = long_env(), np.arange(3, dtype=np.float32)
    observation, _ = env.reset()
    quiet = (0, 0.0, False, False)
    zero = np.zeros(3, np.float32)
    given = [  # what a step begins with, and its next observation
        (observation, None),  # none was given
        (plain, plain.astype(np.float64)),
        (plain, zero),
        (-zero, plain.astype(np.float64) / 3 + 1e-7),
        (plain * np.float32(1 / 3), np.full(3, np.nan)),  # computed otherwise, in another dtype
        (np.full(3, np.nan, np.float32), plain),
        (plain, zero),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = served.writer("main", finite_observations=False)
        for seen, following in given:
            action, reward, terminated, truncated = quiet
            writer.add_step(seen, action, following, reward, terminated, truncated)
        assert writer.flush().steps_stored == len(given)
        writer.close()
        memory = np.zeros(3, np.float32)  # which a step writes over, as with copy=False
        with served.writer("main") as writer:
            for at in range(5):
                seen = memory.copy()
                memory[:] = at + 1
                writer.add_step(seen, 0, memory, 0.0, False, False)
            assert writer.flush().steps_stored == 5
        with served.writer("main") as writer:
            for at in (0, 7):  # a reset that is said
                for _ in range(4):
                    writer.add_step(zero + at, 0, zero + at + 1, 0.0, False, False)
                    at += 1
                writer.restart(final_observation=zero + at)
            assert writer.flush().steps_stored == 10


@pytest.mark.parametrize("count", [None, 4], ids=["single", "vector"])
@pytest.mark.parametrize("seen", [AS["as step returned it"], np.copy], ids=["object", "copy"])
@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
@pytest.mark.parametrize("added", [True, False], ids=["added", "reset at once"])
def test_an_environment_that_blew_up_is_reset_and_goes_on(served, count, seen, wrong, added):
    """Given a next observation that is not finite, of one environment; the step after it is added
    and refused, or the caller sees it and resets. Expect the refusal to say where it came from, the
    episode to end ahead of it, and every step after it to be taken."""
    writer = served.writer("main", count, autoreset="single" if count is None else "disabled")
    lead, truth, which = (count,) if count else (), {}, 2 if count else 0
    flags = np.zeros(lead, np.bool_) if count else False
    rewards, actions = (np.zeros(lead), np.zeros(lead, np.int64)) if count else (0.0, 0)
    here = np.arange(3.0 * (count or 1), dtype=np.float32).reshape(*lead, 3)
    for at in range(40):
        there = here + 100
        if at == 19:
            there.reshape(-1, 3)[which, 1] = wrong
        step = (actions, there, rewards, flags, flags)
        if at == 20 and added:
            with pytest.raises(SpecError, match=r"next_observation of the step before had it"):
                writer.add_step(seen(here), *step)
        if at == 20:  # only the one that blew up is reset
            here = np.where(np.isfinite(here), here, np.float32(7))
            there = here + 100
            step = (actions, there, *step[2:])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if at == 20 and not added else "error")
            writer.add_step(seen(here), *step)
        for begun, led in zip(
            here.reshape(-1, 3).tolist(), there.reshape(-1, 3).tolist(), strict=True
        ):
            if np.isfinite(led).all():
                truth[tuple(begun)] = tuple(led)
        here = there
    check(served, writer, truth, count or 1)
