"""What a training script of one's own uses: add_step, restart, transitions, and plain sentences.

The script of `environments.py` is played through the writer; every sampled transition is found
again by its observation, which no two steps share, and compared with the script.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections import abc
from dataclasses import replace
from typing import get_type_hints

import numpy as np
import pytest
import torch
from environments import SCRIPT, ScriptedEnv, frame, scripted_action
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import DTypeLike

from replay_server import (
    Batches,
    Client,
    Column,
    ConfigError,
    LimiterBlocked,
    NStep,
    Offsets,
    Row,
    SamplesPerInsert,
    Sequence,
    Server,
    Spec,
    SpecError,
    SpecMismatch,
    Table,
    n_step_targets,
    spec_from,
)
from replay_server import batch as batch_module

GAMMA = 0.9
GOES_ON = {"terminated": False, "truncated": False}
names = itertools.count()


@pytest.fixture
def served():
    """Makes (server, client) of one table; both are closed at the end."""
    opened = []

    def make(plan, spec=None, **options):
        spec = spec_from(ScriptedEnv()) if spec is None else spec
        table = Table("main", spec, plan, capacity=4096, **options)
        server = Server([table], f"loopback://own-{next(names)}", seed=3, virtual_clock=True)
        client = Client(server.address)
        opened.extend([client, server])
        return server, client

    yield make
    for part in opened:
        part.close()


def expected(who, episode, step, n):
    """(G, discount, next frame) of one scripted step."""
    played = SCRIPT[(who + episode) % len(SCRIPT)]
    m, total = min(n, played.length - step), 0.0
    for i in range(m):
        total += GAMMA**i * (100.0 * episode + step + i)
        if played.ending == "terminated" and step + i == played.length - 1:
            return total, 0.0, frame(who, episode, step + m)
    return total, GAMMA**m, frame(who, episode, step + m)


def check_transitions(transitions, n):
    seen = set()
    for i, observation in enumerate(np.asarray(transitions.observations)):
        who, episode, step = (int(part) - 1 for part in observation)
        total, discount, following = expected(who, episode, step, n)
        place = f"step {step} of episode {episode} of environment {who}"
        assert int(transitions.actions[i]) == scripted_action(episode, step), place
        assert float(transitions.rewards[i]) == pytest.approx(total, rel=1e-5), place
        assert float(transitions.discounts[i]) == pytest.approx(discount, abs=1e-6), place
        assert np.array_equal(transitions.next_observations[i], following), place
        seen.add((who, episode, step))
    return seen


def test_what_a_newcomer_prints_and_draws_too_early_is_short(served):
    """Given an empty table, then a batch printed, a port with a letter. Expect a line for each."""
    _, client = served(Row())
    with pytest.raises(
        LimiterBlocked, match=r"nothing to draw until 1 more item is created .*empty"
    ):
        client.sample("main", 4, timeout=0.0)
    rows = {
        column.name: np.zeros((3, *column.shape), column.dtype)
        for column in client.table("main").spec
    }
    client.extend("main", rows)
    told = repr(client.sample("main", 4))
    assert told.startswith("Batch(4 items of table 'main', plan ") and len(told) < 200
    assert "observation [4, 1, 3]" in told
    with pytest.raises(ConfigError, match="PORT a number up to 65535"):
        Client("udp://127.0.0.1:7455x")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("weigths", "a batch has no 'weigths'; the nearest is 'weights'"),
        ("transition", "a batch has no 'transition'; the nearest is 'transitions'"),
        (
            "observations",
            "a batch has no 'observations': batch.transitions(gamma).observations has it",
        ),
        ("_repr_html_", "a batch has no '_repr_html_'"),
    ],
)
def test_a_batch_says_where_a_name_that_it_has_not_is_found(served, name, told):
    """Given names that people try. Expect where it is, or the nearest that there is."""
    _, client = served(Row())
    rows = {
        column.name: np.zeros((3, *column.shape), column.dtype)
        for column in client.table("main").spec
    }
    client.extend("main", rows)
    batch = client.sample("main", 4)
    with pytest.raises(AttributeError) as caught:
        getattr(batch, name)
    assert str(caught.value) == told


def test_options_of_batches_are_spelt_out_where_people_look():
    """Given Client.batches as an editor and a type checker see it. Expect every option of Batches
    with its type and default, told in the docstring; a wrong one named."""
    shown = inspect.signature(Client.batches).parameters
    taken = inspect.signature(Batches.__init__).parameters
    mine = {name: shown[name] for name in shown if name not in ("self", "table", "batch")}
    named = inspect.Parameter.KEYWORD_ONLY
    theirs = {name: taken[name] for name in taken if taken[name].kind is named}
    assert mine == theirs and len(mine) >= 11
    assert set(get_type_hints(Client.batches)) == {*mine, "table", "batch", "return"}
    assert all(re.search(rf"\b{name}\b", Client.batches.__doc__) for name in mine)
    with pytest.raises(TypeError, match="prefech"):
        Client.batches(None, "main", 4, prefech=2)


def test_a_type_checker_sees_no_names_that_a_batch_has_not():
    """Given Batch as a type checker reads it. Expect no __getattr__, under which every name is."""
    tree = ast.parse(inspect.getsource(batch_module))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Batch").body
    assert "__getattr__" not in [n.name for n in body if isinstance(n, ast.FunctionDef)]
    (hidden,) = [n for n in body if isinstance(n, ast.If)]
    assert ast.unparse(hidden.test) == "not TYPE_CHECKING"
    assert [n.name for n in hidden.body] == ["__getattr__"]


def test_a_type_checker_takes_columns_as_they_are_written():
    """Given Column and Spec as a type checker reads them. Expect them to take what docs/, the
    examples and a list say, and to hold what they hold."""
    taken, held = get_type_hints(Column.__init__), get_type_hints(Column)
    assert (taken["dtype"], taken["shape"]) == (DTypeLike, abc.Sequence[int])
    assert (held["dtype"], held["shape"]) == (np.dtype, tuple[int, ...])
    assert get_type_hints(Spec.__init__)["columns"] == abc.Iterable[Column]
    assert get_type_hints(Spec)["columns"] == tuple[Column, ...]
    column = Column("x", "float32", [3])
    assert column == Column("x", np.float32, (3,)) and Spec([column]) == Spec((column,))
    assert replace(column, pad="first") == Column("x", np.float32, (3,), "first")
    assert replace(Spec([column]), tuples={"x"}) == Spec((column,), frozenset({"x"}))


def test_extend_into_a_table_of_episodes_names_the_road_that_works(served):
    """Given whole arrays for a table of n-step windows. Expect ConfigError with the way."""
    _, client = served(NStep(3))
    with pytest.raises(ConfigError, match=r"offline data too: .*writer.add\(.*next_observation"):
        client.extend("main", {"reward": np.zeros(5, np.float32)})


def test_extend_says_why_rows_have_no_next_observation(served):
    """Given transitions for a table of rows, whose step has no such column. Expect the ways out;
    of a word that is misspelt the nearest."""
    _, client = served(Row())
    for name in ("next_observation", "truncated"):
        words = rf"no column '{name}', and its rows .* extras=\[Column.*to a table of NStep"
        with pytest.raises(SpecError, match=words):
            client.extend("main", {"reward": np.zeros(5), name: np.zeros((5, 4))})
    with pytest.raises(SpecError, match="no column 'rewrad', nearest is 'reward'"):
        client.extend("main", {"rewrad": np.zeros(5)})


def test_a_writer_shows_what_it_is(served):
    """Given a writer, and it closed. Expect its table, its streams and that it is closed."""
    _, client = served(NStep(1))
    with client.writer("main", 3, autoreset="same-step") as writer:
        assert repr(writer) == "Writer('main', streams=3)"
    assert repr(writer) == "Writer('main', streams=3, closed)"


@pytest.mark.parametrize(
    ("limiter", "begin", "batch", "every"),
    [
        (SamplesPerInsert(8.0, 100), 120, 32, 4),
        (SamplesPerInsert(8.0, 1000), 2000, 32, 4),
        (SamplesPerInsert(1.0, 100), 128, 32, 32),
        (SamplesPerInsert(0.5, 100), 128, 32, 64),
        (SamplesPerInsert(8.0, 100), 128, 512, 64),
        (SamplesPerInsert(8.0), 1, 32, 4),
    ],
)
def test_a_loop_in_one_thread_keeps_its_ratio(served, limiter, begin, batch, every):
    """Given a loop that adds, and draws as often as its limiter asks. Expect it to end."""
    _, client = served(NStep(1), limiter=limiter)
    drawn = 0
    with client.writer("main", timeout=0.5) as writer:
        for i in range(begin + 20 * every):
            writer.add(observation=frame(0, 0, i), action=0, reward=0.0, **GOES_ON)
            if i >= begin and i % every == 0:
                drawn += len(client.sample("main", batch, timeout=0.5))
        writer.restart(final_observation=frame(0, 0, begin + 20 * every))
    assert drawn >= 20 * batch and client.size("main") == begin + 20 * every


def test_a_loop_that_draws_too_late_is_told_to_draw_first(served):
    """Given draws that begin later than the limiter lets in. Expect its numbers, and what to do."""
    _, client = served(NStep(1), limiter=SamplesPerInsert(8.0))
    writer = client.writer("main", timeout=0.1)
    told = r"ratio 8, min_size 1, bounds -24 to 40: about 5 items .*thread that draws, draw first"
    with pytest.raises(LimiterBlocked, match=told):
        for i in range(100):
            writer.add(observation=frame(0, 0, i), action=0, reward=0.0, **GOES_ON)
    told = r"this thread that adds, add first, and let min_size be below .*its learning_starts"
    with pytest.raises(LimiterBlocked, match=told):
        for _ in range(100):
            client.sample("main", 8, timeout=0.1)
    writer.link.close(0.0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"truncated": None}, "`truncated` is missing: every step says terminated and truncated"),
        ({"terminated": None, "truncated": None, "done": False}, "`done` is two facts here"),
        ({"observation": None, "obs": frame(0, 0, 0)}, "no column 'obs', nearest is 'observation'"),
        ({"next_obs": frame(0, 0, 0)}, "no column 'next_obs', nearest is 'next_observation'"),
        ({"rewrd": 1.0}, "no column 'rewrd', nearest is 'reward'"),
        ({"observation": None}, "`observation` is missing"),
        ({"action": None}, "`action` is missing"),
        ({"reward": None}, "`reward` is missing"),
    ],
)
def test_a_forgotten_or_old_name_is_told_by_name(served, wrong, told):
    """Given a step that lacks a column, or names one as others do. Expect the name, and the step
    not taken."""
    _, client = served(NStep(1))
    step = {"observation": frame(0, 0, 0), "action": 0, "reward": 0.0, **GOES_ON}
    given = {name: value for name, value in (step | wrong).items() if value is not None}
    with client.writer("main") as writer:
        with pytest.raises(SpecError, match=told):
            writer.add(**given)
        with pytest.raises(SpecError, match=told):
            writer.add(**step | wrong)
        writer.add(**step)
        writer.restart(final_observation=frame(0, 0, 1))
    assert client.size("main") == 1


@pytest.mark.parametrize("n", [1, 3])
def test_single_environment_in_gymnasiums_order(served, n):
    """Given add_step(obs, action, *env.step(action)) of a whole script. Expect every transition."""
    _, client = served(NStep(n))
    env, steps = ScriptedEnv(), sum(played.length for played in SCRIPT)
    with client.writer("main") as writer:
        for episode in range(len(SCRIPT)):
            observation, over, step = env.reset()[0], False, 0
            while not over:
                action = scripted_action(episode, step)
                result = env.step(action)
                writer.add_step(observation, action, *result)
                observation, over, step = result[0], result[2] or result[3], step + 1
    batch = client.sample("main", 300)
    assert len(check_transitions(batch.transitions(GAMMA), n)) == steps
    tensors = batch.transitions(GAMMA, "cpu")
    assert isinstance(tensors.rewards, torch.Tensor) and tensors.rewards.dtype == torch.float32
    check_transitions(tensors, n)


def test_vector_environment_in_gymnasiums_order(served):
    """Given the same from a vector environment in same-step mode. Expect final observations."""
    _, client = served(NStep(1))
    envs = SyncVectorEnv(
        [lambda who=who: ScriptedEnv(who) for who in range(2)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    with client.writer("main", 2, autoreset=envs) as writer:
        observation, _ = envs.reset()
        for _ in range(30):
            actions = np.array([scripted_action(int(o[1]) - 1, int(o[2]) - 1) for o in observation])
            result = envs.step(actions)
            writer.add_step(observation, actions, *result)
            observation = result[0]
    assert len(check_transitions(client.sample("main", 500).transitions(GAMMA), 1)) > 50


def test_a_reset_in_mid_episode_ends_the_episode(served):
    """Given a reset after two steps of five. Expect the cut episode to bootstrap from its last
    observation, and nothing that leads from one episode into the other."""
    server, client = served(NStep(3))
    row = {"action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    with client.writer("main") as writer:
        for episode, steps in ((0, 2), (1, 3)):
            for step in range(steps):
                at, to = frame(0, episode, step), frame(0, episode, step + 1)
                writer.add(observation=at, next_observation=to, **row)
            if episode == 0:
                with pytest.raises(ConfigError, match="needs final_observation"):
                    writer.restart()
            writer.restart(final_observation=to)
    assert server.counters()["episodes_cut"] == 0
    batch = client.sample("main", 200)
    found = batch.transitions(GAMMA)
    lengths = {1: 2, 2: 3}
    for observation, following, discount in zip(
        found.observations, found.next_observations, found.discounts, strict=True
    ):
        episode, step = observation[1:] - 1
        m = min(3, lengths[int(episode) + 1] - int(step))
        assert following.tolist() == frame(0, int(episode), int(step) + m).tolist()
        assert discount == pytest.approx(GAMMA**m)
    assert len({tuple(row) for row in found.observations.tolist()}) == 5


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("url", ["loopback://", "udp://127.0.0.1:0"])
def test_a_sample_waits_for_what_its_own_writer_has_not_sent(url, prefetch):
    """Given four streams of two steps, far less than a datagram, and no flush. Expect a batch,
    by sample and by batches: whoever waits in the thread that writes cannot wait for itself."""
    table = Table("main", spec_from(ScriptedEnv()), NStep(1), 4096)
    flags, step = np.zeros(4, np.bool_), np.zeros((4, 3), np.float32)
    with Server([table], url, seed=1) as server, Client(server.address) as client:
        writer = client.writer("main", 4, autoreset="disabled")
        for _ in range(2):
            writer.add_step(step, np.zeros(4, np.int64), step, np.ones(4), flags, flags)
        if prefetch:
            with client.batches("main", 50, prefetch=prefetch) as batches:
                assert len(next(batches)) == 50
        else:
            assert len(client.sample("main", 50)) == 50
        assert server.counters()["items_created"] == 4  # the newest anchors
        writer.close()


def test_a_batch_without_transitions_says_so(served):
    """Given a table of plain rows. Expect one sentence with what to do."""
    spec = spec_from(ScriptedEnv())
    _, client = served(Row(), spec)
    client.extend(
        "main", {column.name: np.zeros((3, *column.shape), column.dtype) for column in spec}
    )
    with pytest.raises(ConfigError, match=r"one observation an item; give the table plan=NStep"):
        client.sample("main", 2).transitions(GAMMA)


def changed(spec, which, **changes):
    """`spec` with column `which` changed."""
    fields = ("name", "dtype", "shape", "pad")
    return Spec(
        tuple(
            Column(**{f: changes.get(f, getattr(c, f)) for f in fields}) if c.name == which else c
            for c in spec
        )
    )


def test_a_spec_that_does_not_match_is_named_by_its_first_difference(served):
    """Given dtype, shape, name, lack and order that differ. Expect one sentence each."""
    spec = spec_from(ScriptedEnv())
    _, client = served(NStep(1), spec)
    told = {
        changed(spec, "reward", dtype="float64"): "reward: mine float64[] pad=zero, theirs float32",
        changed(spec, "observation", shape=(4,)): "observation: mine float32[4] pad=zero, theirs",
        changed(spec, "reward", name="rewards"): "theirs has no such column, nearest is 'reward'",
        Spec(spec.columns[:-1]): "terminated: theirs bool[] pad=zero, mine has no such column",
        Spec(spec.columns[::-1]): "order: mine terminated, reward",
    }
    for wrong, sentence in told.items():
        for ask in (
            lambda: client.table("main", spec=wrong),  # noqa: B023 (called at once)
            lambda: client.writer("main", spec=wrong),  # noqa: B023 (called at once)
            lambda: Client(client.address, specs={"main": wrong}),  # noqa: B023 (called at once)
        ):
            with pytest.raises(SpecMismatch) as caught:
                ask()
            text = str(caught.value)
            assert sentence in text and "\n" not in text and text.count("mine") <= 3, text
    assert client.table("main", spec=spec).spec == spec
    with pytest.raises(SpecError, match="no column 'rewrd', nearest is 'reward'"):
        spec["rewrd"]


def shaped(reward=(), terminated=()):
    """A spec whose reward and terminated have axes of their own."""
    return Spec(
        (
            Column("observation", np.float32, (2,)),
            Column("action", np.int64),
            Column("reward", np.float32, reward),
            Column("terminated", np.bool_, terminated),
        )
    )


def sampled(served, plan, spec):
    """A batch of a table whose one writer added two episodes of six steps."""
    _, client = served(plan, spec)
    with client.writer("main") as writer:
        for i in range(12):
            writer.add(
                observation=np.full(2, i, np.float32),
                action=0,
                reward=np.full(spec["reward"].shape, i, np.float32),
                terminated=np.full(spec["terminated"].shape, False)[()],
                truncated=i % 6 == 5,
                next_observation=np.full(2, i + (100 if i % 6 == 5 else 1), np.float32),
            )
    return client.sample("main", 4)


@pytest.mark.parametrize("axes", [((1,), ()), ((2,), ()), ((), (1,))])
def test_more_than_one_reward_a_step_is_refused_by_the_table(axes):
    """Given a reward or terminated with an axis. Expect NStep refused when the table is made:
    (1,) against [B] broadcast, and every return was the sum over the whole batch."""
    with pytest.raises(SpecError, match=r"expected one number a step: shape \(\)"):
        Table("main", shaped(*axes), NStep(1), capacity=4096)


def test_returns_of_more_than_one_reward_a_step_are_refused():
    """Given arrays and tensors with an axis too many. Expect one sentence with the remedy."""
    for of in (np.asarray, torch.as_tensor):
        flags, ahead = of(np.zeros((4, 1), np.bool_)), of(np.ones(4, np.int64))
        for reward in (np.ones((4, 1, 1), np.float32), np.ones((4, 2), np.float32)):
            with pytest.raises(ConfigError, match=r"expected \[B, n\] alike"):
                n_step_targets(of(reward), flags, ahead, GAMMA)


@pytest.mark.parametrize(
    "plan",
    [
        Offsets({"observation": (0, 1), "action": 0, "reward": (0, 1, 2), "terminated": (0, 1, 2)}),
        Offsets({"observation": (0, 3), "action": 0, "reward": 0, "terminated": 0}),
        Offsets({"observation": (-1, 0), "action": 0, "reward": 0, "terminated": 0}),
        Offsets({"observation": (0, 1), "action": 0, "reward": -1, "terminated": 0}),
        Offsets({"observation": (0, 1), "action": 1, "reward": 0, "terminated": 0}),
        Sequence(1, 1, ("action",)),
        Sequence(1, 3, ("action",)),
        Sequence(3, 1),
    ],
    ids=repr,
)
def test_windows_that_are_no_transitions_are_refused(served, plan):
    """Given plans whose columns are there but not at an n-step transition's steps. Expect
    ConfigError, also of a copy, and not discounts of one window with observations of another."""
    batch = sampled(served, plan, shaped())
    for each in (batch, batch.copied()):
        with pytest.raises(ConfigError, match=r"no transitions|sequences, which are no"):
            each.transitions(GAMMA)


def test_offsets_that_are_an_n_step_transition_are_taken(served):
    """Given NStep(2) written out as Offsets. Expect the same transitions."""
    two = {"observation": (0, 2), "action": 0, "reward": (0, 1), "terminated": (0, 1)}
    batch = sampled(served, Offsets(two), shaped())
    wanted = [batch["reward"][i, 0] + GAMMA * batch["reward"][i, 1] for i in range(4)]
    wanted = np.where(batch.ahead == 1, batch["reward"][:, 0], wanted)
    assert np.allclose(batch.transitions(GAMMA).rewards, wanted)


def test_numbers_that_are_not_whole_are_refused(served):
    """Given a step, or a count of streams, with a fraction, and Gymnasium's own name of a mode.
    Expect a sentence for the first two, which were cut and a TypeError; the third is taken."""
    _, client = served(NStep(1), shaped())
    writer = client.writer("main", 1, autoreset=AutoresetMode.DISABLED)
    with pytest.raises(ConfigError, match=r"steps: expected whole numbers, got float64"):
        writer.create([0], [0.7])
    writer.close()
    with pytest.raises(ConfigError, match=r"streams is 2\.0; expected a whole number"):
        client.writer("main", 2.0, autoreset="disabled")


@pytest.mark.parametrize("mask", [[1], [0, 0, 1], np.array([1, 2]), [True], [0, 1, 1, 0]], ids=repr)
def test_a_restart_takes_flags_and_no_indices(served, mask):
    """Given indices, or flags of too few streams. Expect one sentence with the remedy, and no
    episode cut; they were broadcast, or taken for flags."""
    _, client = served(NStep(1), shaped())
    with client.writer("main", 3, autoreset="disabled") as writer:
        o = np.ones((3, 2), np.float32)
        rest = np.ones(3, np.float32), np.zeros(3, np.bool_), np.zeros(3, np.bool_)
        writer.add_step(o, np.zeros(3, np.int64), o + 1, *rest)
        with pytest.raises(SpecError, match=r"mask: expected bool \(3,\).*np\.isin"):
            writer.restart(mask, o)
        assert writer.flush().steps_stored == 3
