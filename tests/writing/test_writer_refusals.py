"""What a writer refuses, because nobody would notice it in what is learned: episodes glued together
by a wrong autoreset mode, numbers that are not finite, two threads that add in turns.

Each runs over in-process loopback, whose turns are those of whoever waits.
"""

from __future__ import annotations

import itertools
import threading
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from environments import ScriptedEnv, scripted_rows
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from replay_server import (
    Client,
    Column,
    ConfigError,
    LimiterBlocked,
    NStep,
    Row,
    SamplesPerInsert,
    Server,
    Spec,
    SpecError,
    StaleEpoch,
    Table,
    spec_from,
)
from replay_server.errors import ItemsFailed
from replay_server.returns import n_step_targets
from replay_server.writing.autoreset import mode_of

numbers = itertools.count(1)
FLOATS = Spec(
    (
        Column("observation", np.float32, (3,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)


def vector(mode, count=3):
    makers = [lambda who=who: ScriptedEnv(who) for who in range(count)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


@pytest.fixture
def served():
    """A table of ScriptedEnv's steps and a client of it."""
    table = Table("main", step=FLOATS, plan=NStep(2), capacity=1 << 12)
    url = f"loopback://refusals-{next(numbers)}"
    with Server([table], url) as server, Client(server.address) as client:
        yield client


def step(count=None, **changed):
    """One calm step of `count` environments, or of one without the leading axis."""
    lead = () if count is None else (count,)
    calm = {
        "observation": np.ones((*lead, 3), np.float32),
        "action": np.zeros(lead, np.int64),
        "reward": np.ones(lead, np.float32) if lead else 1.0,
        "terminated": np.zeros(lead, np.bool_) if lead else False,
        "truncated": np.zeros(lead, np.bool_) if lead else False,
        "next_observation": np.ones((*lead, 3), np.float32),
    }
    return calm | changed


def play(writer, envs, steps):
    """Steps of `envs` by `add_step`, all that it returns handed on."""
    observation, _ = envs.reset()
    shape = () if not hasattr(envs, "num_envs") else (envs.num_envs,)
    for _ in range(steps):
        action = np.zeros(shape, np.int64) if shape else 0
        result = envs.step(action)
        writer.add_step(observation, action, *result)
        observation = result[0]


# -- which mode -----------------------------------------------------------------------------------


def test_a_table_too_small_for_whole_items_is_refused():
    """Given streams in turn whose items' rows lie further apart than the table is long, and one
    fewer. Expect a refusal with the numbers, and a writer."""
    table = Table("main", step=FLOATS, plan=NStep(64), capacity=1 << 12)
    url = f"loopback://refusals-{next(numbers)}"
    with Server([table], url) as server, Client(server.address) as client:
        with pytest.raises(ConfigError, match=r"holds 4096 steps; with 64 streams .* over 4097"):
            client.writer("main", 64, autoreset="next-step")
        client.writer("main", 63, autoreset="next-step").close()


def test_several_streams_need_to_be_told_the_mode(served):
    """Given several streams and not a word about resets. Expect a sentence; an environment or a
    mode will do, and the environment says how many streams."""
    with pytest.raises(ConfigError, match="hand the environment over"):
        served.writer("main", 3)
    with pytest.raises(ConfigError, match=r"streams is 2 and the environment .* has 3"):
        served.writer("main", 2, autoreset=vector(AutoresetMode.NEXT_STEP))
    with pytest.raises(ConfigError, match="for one environment, not for 3"):
        served.writer("main", 3, autoreset="single")
    with served.writer("main", autoreset=vector(AutoresetMode.SAME_STEP)) as writer:
        assert writer.streams == 3
    with served.writer("main", 3, autoreset="next-step") as writer:
        assert writer.streams == 3
    with served.writer("main") as writer:
        assert writer.streams == 1


@pytest.mark.parametrize("said", ["next-step", "disabled"])
def test_final_observations_in_infos_contradict_the_mode(served, said):
    """Given same-step environments and another mode. Expect SpecError at the first episode's end,
    and not one row of the next episode behind it."""
    writer = served.writer("main", 3, autoreset=said)
    with pytest.raises(SpecError, match=r"infos holds 'final_obs'.*autoreset=envs"):
        play(writer, vector(AutoresetMode.SAME_STEP), 30)
    writer.close()


def test_a_reward_in_a_step_that_nobody_took_contradicts_the_mode(served):
    """Given same-step environments, mode next-step, and no infos. Expect SpecError in the first
    step that would be lost, and nothing of it taken; from an environment that named the mode itself
    such a reward is some wrapper's."""
    with served.writer("main", 3, autoreset="next-step") as writer:
        over = np.array([False, True, False])
        writer.add_batch(**step(3, terminated=over))
        with pytest.raises(SpecError, match=r"environment 1 ended.* the reward .*autoreset=envs"):
            writer.add_batch(**step(3, reward=np.full(3, -0.5, np.float32)))
        unrewarded = np.array([2.0, 0.0, 2.0], np.float32)
        writer.add_batch(**step(3, reward=unrewarded))
        writer.add_batch(**step(3, reward=np.full(3, 2.0, np.float32)))
        writer.flush()
        assert writer.state().steps_stored == 3 + 1 + 2 + 3
    own = vector(AutoresetMode.NEXT_STEP)
    with served.writer("main", autoreset=own) as writer:
        writer.add_batch(**step(3, terminated=over))
        writer.add_batch(**step(3, reward=np.full(3, -0.5, np.float32)))
        writer.flush()
        assert writer.state().steps_stored == 3 + 1 + 2


@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
def test_final_observations_are_found_by_their_name_of_each_release(served, name):
    """Given infos of a same-step vector, new and old. Expect the closing row from there."""
    finals = np.empty(2, object)
    finals[1] = np.full(3, 5, np.float32)
    with served.writer("main", 2, autoreset="same-step") as writer:
        ended = np.array([False, True])
        writer.add_batch(**step(2, truncated=ended), infos={name: finals, f"_{name}": ended})
        writer.flush()
        ledger = writer.ledger()
        key = ledger["key"][(ledger["stream"] == 1) & (ledger["step"] == 1)]
        rows, valid = served.rows("main", key)
        assert valid.all() and rows["observation"].tolist() == [[5.0, 5.0, 5.0]]


def test_infos_that_a_wrapper_made_a_list_of_are_told_apart(served):
    """Given infos as DictInfoToList returns them. Expect a sentence about the list."""
    with served.writer("main", 2, autoreset="same-step") as writer:
        ended, infos = np.array([False, True]), [{}, {"final_obs": np.ones(3)}]
        with pytest.raises(SpecError, match=r"infos is a list.*DictInfoToList.*final_observation"):
            writer.add_batch(**step(2, truncated=ended), infos=infos)


def test_same_step_without_final_observations_is_contradicted(served):
    """Given next-step environments and mode same-step. Expect SpecError at the first end."""
    writer = served.writer("main", 3, autoreset="same-step")
    with pytest.raises(SpecError, match="ended and infos holds no 'final_obs'"):
        play(writer, vector(AutoresetMode.NEXT_STEP), 30)
    writer.close()


def test_an_episode_that_ends_in_its_reset_is_contradicted(served):
    """Given environments that the caller resets, with one-step episodes, and mode next-step. Expect
    SpecError at the second end, where a reset was due."""
    writer, over = served.writer("main", 2, autoreset="next-step"), np.array([True, False])
    writer.add_batch(**step(2, terminated=over))
    with pytest.raises(SpecError, match="environment 0 ended again"):
        writer.add_batch(**step(2, terminated=over))
    writer.close()


@pytest.mark.parametrize("layers", [1, 2])
def test_a_single_environment_that_resets_itself_is_recognised(served, layers):
    """Given gymnasium.wrappers.Autoreset somewhere among the wrappers. Expect the script's rows, as
    of the same environment reset by hand."""
    env = gymnasium.wrappers.Autoreset(ScriptedEnv(0))
    if layers == 2:
        env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    assert mode_of(env) == "next-step" and mode_of(ScriptedEnv(0)) == "single"
    with served.writer("main", autoreset=env) as writer:
        play(writer, env, 40)
        writer.flush()
        keys = writer.ledger()["key"]
    rows, valid = served.rows("main", keys)
    stored = zip(map(tuple, rows["observation"].tolist()), rows["reward"].tolist(), strict=True)
    expected = [(row[0], row[2]) for row in scripted_rows(0, 40)]
    assert valid.all() and len(keys) > 30
    assert list(stored) == expected[: len(keys)]


def test_a_wrapper_inside_a_vector_that_leaves_resets_to_its_caller():
    """Given Autoreset inside a vector in mode disabled. Expect SpecError: both would reset."""
    makers = [lambda: gymnasium.wrappers.Autoreset(ScriptedEnv(0))] * 2
    with pytest.raises(SpecError, match="take the wrapper away"):
        mode_of(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED))


def test_what_is_no_environment_of_gymnasium_needs_a_mode(served):
    """Given an object with num_envs and nothing more. Expect SpecError that lists the modes."""

    class Other:
        num_envs = 2

        def step(self):
            """Whatever."""

    with pytest.raises(SpecError, match=r"neither a Gymnasium Env nor a VectorEnv.*same-step"):
        served.writer("main", 2, autoreset=Other())


# -- numbers --------------------------------------------------------------------------------------

WRONG = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("wrong", [*WRONG, 1e300])
def test_rewards_that_are_not_finite_are_refused(served, count, wrong):
    """Given NaN, infinities, and what float32 does not hold. Expect SpecError that names column and
    number, no warning, nothing stored, and the writer to go on."""
    writer = served.writer("main", count, autoreset="single" if count is None else "disabled")
    add = writer.add if count is None else writer.add_batch
    reward = wrong if count is None else np.array([1.0, wrong, 1.0])
    add(**step(count))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SpecError, match=r"column 'reward': .*(nan|inf|1e.300)"):
            add(**step(count, reward=reward))
    add(**step(count))
    assert writer.flush().steps_stored == 2 * (count or 1)
    writer.close()


def test_a_reward_beyond_float32_is_a_sentence_without_a_warning(served):
    """Given Python's 1e300 with warnings as they are by default. Expect the sentence alone."""
    with served.writer("main") as writer, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(SpecError, match=r"column 'reward': .*1e.300"):
            writer.add(**step(reward=1e300))
    assert warned == []


@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_that_raises_makes_no_step_an_error(served, count, dtype):
    """Given numpy told to raise at every overflow and underflow. Expect numbers too small for
    float32 to go in, and of those too large the sentence, as ever."""
    lead = () if count is None else (count,)
    with (
        served.writer("main", count, autoreset="disabled" if count else "single") as writer,
        np.errstate(all="raise"),
    ):
        add = writer.add if count is None else writer.add_batch
        seen = np.full((*lead, 3), 1e-40, dtype)
        for small in (1e-50, 1.0):
            reward = small if count is None else np.full(lead, small)
            add(**{**step(count, reward=reward), "observation": seen})
        with pytest.raises(SpecError, match=r"column 'reward': .*1e.39"):
            add(**step(count, reward=1e39 if count is None else np.full(lead, 1e39)))
        assert writer.flush().steps_stored == 2 * (count or 1)


@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("where", ["observation", "next_observation"])
def test_observations_are_finite_unless_told_otherwise(served, count, where):
    """Given a NaN in an observation, the last one of an episode too. Expect SpecError; with
    finite_observations=False it is stored, and a reward still refused."""
    mode = "single" if count is None else "disabled"
    lead = () if count is None else (count,)
    over = True if count is None else np.ones(count, np.bool_)
    spoilt = step(count, **{where: np.full((*lead, 3), np.nan, np.float32)}, terminated=over)
    for checked in (True, False):
        writer = served.writer("main", count, autoreset=mode, finite_observations=checked)
        add = writer.add if count is None else writer.add_batch
        if checked:
            with pytest.raises(SpecError, match=r"'observation': .*finite_observations=False"):
                add(**spoilt)
            assert writer.flush().steps_stored == 0
        else:
            add(**spoilt)
            assert writer.flush().steps_stored == 2 * (count or 1)
            with pytest.raises(SpecError, match="'reward'"):
                add(**step(count, reward=np.nan if count is None else np.full(count, np.nan)))
        writer.close()


def test_what_is_not_finite_is_named_as_the_caller_has_it(served):
    """Given a NaN in environment 2 while 0 is reset, in the last observation of an episode that
    ends there, and one of a single environment. Expect the environment's own number, and the place
    in what `add` was given, which has no axis of environments."""
    spoilt = np.where(np.arange(9).reshape(3, 3) == 7, np.nan, 1.0).astype(np.float32)
    first, last = np.array([True, False, False]), np.array([False, False, True])
    with served.writer("main", 3, autoreset="next-step") as writer:
        writer.add_batch(**step(3, terminated=first), infos={})
        with pytest.raises(SpecError, match=r"'reward': .* got nan at \[2\]"):
            writer.add_batch(**step(3, reward=np.array([0.0, 1.0, np.nan])))
        with pytest.raises(SpecError, match=r"'observation': .* got nan at \[2, 1\]"):
            reset = step(3, reward=np.array([0.0, 1.0, 1.0]), infos={})
            writer.add_batch(**reset | {"truncated": last, "next_observation": spoilt})
    for mode in ("single", "next-step"):
        with served.writer("main", autoreset=mode) as writer:
            with pytest.raises(SpecError, match=r"'reward': .* got nan; find"):
                writer.add(**step(reward=np.nan))
            with pytest.raises(SpecError, match=r"'observation': .* got nan at \[1\]"):
                writer.add(**step(observation=spoilt[2]))
            with pytest.raises(SpecError, match=r"'observation': .* got nan at \[1\]"):
                writer.add(**step(truncated=True, next_observation=spoilt[2]), infos={})


def test_shapes_of_one_environment_are_told_as_they_were_given(served):
    """Given a wrong shape to `add`. Expect it in the sentence without an axis nobody gave."""
    for mode in ("single", "disabled"):
        with served.writer("main", 1, autoreset=mode) as writer:
            with pytest.raises(SpecError, match=r"expected shape \(3,\), got \(2,\)"):
                writer.add(**step(observation=np.ones(2, np.float32)))
            with pytest.raises(SpecError, match=r"expected shape \(3,\), got \(2,\)"):
                writer.add(**step(next_observation=np.ones(2, np.float32), terminated=True))


@pytest.mark.parametrize("wrong", [np.ones(2, np.float32), "no observation"])
def test_a_next_observation_of_a_wrong_shape_is_found_before_an_end(served, wrong):
    """Given one in the midst of the first episode. Expect SpecError that names it, nothing taken,
    and the writer to go on."""
    with served.writer("main") as writer:
        with pytest.raises(SpecError, match=r"next_observation: .*expected shape \(3,\), got \("):
            writer.add(**step(next_observation=wrong))
        writer.add(**step())
        assert writer.flush().steps_stored == 1


# -- threads --------------------------------------------------------------------------------------


def test_two_threads_on_one_writer_are_refused(served):
    """Given two threads that add in turns. Expect one of them to be refused at every call, and
    every row of the other to be stored; after a flush the other may go on."""
    writer = served.writer("main")
    writer.add(**step())
    taken, refused = [], []

    def other():
        try:
            writer.add(**step())
            taken.append(1)
        except ConfigError as error:
            refused.append(str(error))

    def in_thread():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()

    for _ in range(50):
        in_thread()
        writer.add(**step())
    assert not taken and len(refused) == 50
    assert all("belongs to thread 'MainThread'" in sentence for sentence in refused)
    assert writer.flush().steps_stored == 51
    in_thread()
    assert taken == [1], "after a flush the writer is anybody's"
    writer.add(**step())  # that thread has ended
    assert writer.flush().steps_stored == 53
    writer.close()


@pytest.mark.parametrize("mode", ["single", "disabled"])
def test_add_takes_and_refuses_the_same_in_every_mode(served, mode):
    """Given a tensor in a graph, and what no array can hold. Expect it stored, and SpecError."""
    graph = torch.ones(3, requires_grad=True) * 2
    with served.writer("main", autoreset=mode) as writer:
        writer.add(**step(observation=graph, next_observation=graph.tolist()))
        for wrong in [[[1.0], [1.0, 2.0], [3.0]], graph.to(torch.bfloat16)]:
            with pytest.raises(SpecError, match=r"column 'observation': numpy cannot hold"):
                writer.add(**step(observation=wrong))
        assert writer.flush().steps_stored == 1


# -- what was not taken, and what failed ----------------------------------------------------------


def test_an_add_that_raises_has_taken_nothing():
    """Given a limiter that holds the writer back, and every refused call made again. Expect each
    step once, in order."""
    limiter = SamplesPerInsert(1.0, min_size=4, error_buffer=20.0)
    table = Table("main", step=FLOATS, plan=NStep(2), capacity=1 << 13, limiter=limiter)
    url, count, held = f"loopback://refusals-{next(numbers)}", 400, 0
    with Server([table], url) as server, Client(server.address) as client:
        client._options["messages_max"] = 8  # a queue that is full soon
        writer = client.writer("main")
        writer.timeout = 0.0
        for i in range(count):
            while True:
                try:
                    writer.add(**step(action=i))
                    break
                except LimiterBlocked:
                    held += 1
                    client.sample("main", 4, timeout=1.0)
                except TimeoutError:
                    held += 1
        for _ in range(count):
            try:
                writer.flush(0.05)
                break
            except LimiterBlocked:
                client.sample("main", 4, timeout=1.0)
        ledger = writer.ledger()
        assert held > 10 and server.counters()["steps_committed"] == count
        rows, valid = client.rows("main", ledger["key"][-100:])
        assert rows["action"][valid].tolist() == ledger["step"][-100:][valid].tolist()
        writer.close()


@pytest.mark.parametrize(("kind", "wrong"), [(np.float32, 0.5), (np.int64, 7)])
def test_rows_whose_terminated_is_no_truth_value_are_refused(kind, wrong):
    """Given a spec of single rows whose `terminated` is a number. Expect 0 and 1 taken, and another
    number refused by name; and so is a column of numbers where returns are cut."""
    spec = Spec((Column("reward", np.float32), Column("terminated", kind)))
    with (
        Server([Table("rows", spec, Row(), 64)], "loopback://") as server,
        Client(server.address) as client,
    ):
        given = {"reward": np.zeros(2, np.float32), "terminated": np.array([0, 1], kind)}
        client.extend("rows", given)
        given["terminated"][1] = wrong
        with pytest.raises(SpecError, match=f"'terminated': expected truth values.*got {wrong}"):
            client.extend("rows", given)
        assert client.size("rows") == 2
    flags = given["terminated"][:, None]
    for each, reward in ((flags, np.ones((2, 1))), (torch.tensor(flags), torch.ones(2, 1))):
        with pytest.raises(ConfigError, match=r"terminated is .*: expected bool"):
            n_step_targets(reward, each, reward[:, 0], 0.9)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_close_makes_no_items_of(served, restarts):
    """Given an open episode that is closed, and one that a restart ends before. Expect the last n
    steps without items, and every step with one."""
    writer = served.writer("main")
    for _ in range(10):
        writer.add(**step())
    if restarts:
        writer.restart(final_observation=np.ones(3, np.float32))
    writer.close()
    assert served.size("main") == (10 if restarts else 8)


def test_an_item_whose_window_is_not_complete_is_refused(served):
    """Given create at an anchor that rows are missing behind, in each kind of number. Expect a
    sentence that says how many, nothing taken, and the same item made once they are there."""
    writer = served.writer("main")
    writer.add(**step())
    for kind in (np.int64, np.uint16):
        with pytest.raises(ConfigError, match="step 0 of stream 0 needs 2 more rows, or its"):
            writer.create(np.zeros(1, kind), np.zeros(1, kind), [5.0])
    writer.add(**step())
    with pytest.raises(ConfigError, match="step 0 of stream 0 needs 1 more row, or"):
        writer.create([0, 0], [0, 1])
    with pytest.raises(ConfigError, match="at a step this writer has added"):
        writer.create([0], [2])
    writer.add(**step())
    writer.create([0], [0], [5.0])
    writer.add(**step(terminated=True))
    writer.create([0, 0, 0], [1, 2, 3])
    assert writer.flush().items_created == 4
    writer.close()


def test_a_writer_of_a_table_that_was_emptied_says_what_is_gone():
    """Given a reset under an open writer. Expect its next hand-over to say how many rows went."""
    table = Table("main", step=FLOATS, plan=NStep(2), capacity=1 << 12)
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        writer = client.writer("main")
        for _ in range(50):
            writer.add(**step())
        writer.flush()
        client.reset("main")
        writer.add(**step())
        with pytest.raises(StaleEpoch, match=r"emptied.* 50 rows .* gone.* new writer") as e:
            writer.flush()
        assert (e.value.stored_through, e.value.in_doubt + e.value.lost) == (50, 1)
        writer.close()  # which does not say it again


def test_items_that_failed_for_good_are_told(served):
    """Given items at rows that close episodes. Expect a warning of them by flush, once."""
    writer = served.writer("main")
    writer.add(**step(terminated=True))
    with pytest.warns(ItemsFailed, match="1 items can never be drawn, of 1") as told:
        writer.create(np.array([0]), np.array([1]))
        state = writer.flush()
    assert state.items_failed == 1 and len(told) == 1 and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.flush()
        writer.close()


def test_a_vector_without_episode_ends_goes_through(served):
    """Given each mode handed over by its environment. Expect 40 steps of each without a word."""
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        envs = vector(mode)
        with served.writer("main", autoreset=envs) as writer:
            play(writer, envs, 40)
            state = writer.flush()
            assert state.items_failed == 0 and state.steps_stored > 100
    assert spec_from(vector(AutoresetMode.NEXT_STEP)).names == FLOATS.names
