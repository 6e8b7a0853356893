"""A scripted environment stores the same rows in every autoreset mode and as a single Env.

What must be stored is written from the script alone (environments.scripted_rows). The script mixes
lengths from 1 up, both endings, and lives lost at the first, middle and last step of an episode.
"""

import copy
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from environments import ScriptedEnv, scripted_action, scripted_rows
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from replay_server import Client, NStep, Server, Table
from replay_server.spec import Column, SpecError, spec_from
from replay_server.writing.autoreset import OPEN, TERMINATED, Autoreset, flags_from_infos, mode_of

COUNT = 5
STEPS = 60


class Recorder:
    """Stands in for a writer: appends rows to streams in the order a writer would."""

    def __init__(self, count):
        self.streams = [[] for _ in range(count)]

    def append(self, rows):
        for row, stream in enumerate(rows.streams):
            values = [rows.columns[c][row] for c in ("action", "reward", "terminated")]
            observation = tuple(rows.columns["observation"][row])
            self.streams[stream].append((observation, *(v.item() for v in values), ""))
        endings = dict(zip(rows.streams, rows.ending, strict=True))
        for row, stream in enumerate(rows.ended_streams):
            end = "terminated" if endings[stream] == TERMINATED else "truncated"
            observation = tuple(rows.closing["observation"][row])
            self.streams[stream].append((observation, 0, 0.0, False, end))


def actions_for(observation):
    """Given observations [B, 3]. The scripted action of each, from what the observation says."""
    return np.array([scripted_action(int(o[1]) - 1, int(o[2]) - 1) for o in observation])


def play_vector(envs):
    reset = Autoreset(spec_from(envs), mode_of(envs), envs.num_envs)
    recorder = Recorder(envs.num_envs)
    observation, _ = envs.reset()
    for _ in range(STEPS):
        action = actions_for(observation)
        after, reward, terminated, truncated, infos = envs.step(action)
        recorder.append(
            reset.rows(
                observation=observation,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=after,
                infos=infos,
                life_lost=flags_from_infos("life_lost", infos, envs.num_envs),
            )
        )
        observation = after
        over = terminated | truncated
        if mode_of(envs) == "disabled" and over.any():
            observation, _ = envs.reset(options={"reset_mask": over})
            reset.restart(over)
    envs.close()
    return recorder.streams


def play_single(who):
    env = ScriptedEnv(who)
    reset = Autoreset(spec_from(env), mode_of(env))
    recorder = Recorder(1)
    observation, _ = env.reset()
    for _ in range(STEPS):
        action = int(actions_for(observation[None])[0])
        after, reward, terminated, truncated, info = env.step(action)
        recorder.append(
            reset.rows(
                observation=observation,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=after,
                life_lost=info["life_lost"],
            )
        )
        observation = after
        if terminated or truncated:
            observation, _ = env.reset()
    return recorder.streams[0]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_every_vector_mode_stores_the_scripted_rows(mode):
    """Given scripted environments in each mode of resetting. Expect the rows of the script stored,
    and none that a reset made up."""
    makers = [lambda who=who: ScriptedEnv(who) for who in range(COUNT)]
    for who, stored in enumerate(play_vector(SyncVectorEnv(makers, autoreset_mode=mode))):
        expected = scripted_rows(who, STEPS)
        assert len(stored) >= STEPS // 2
        assert stored == expected[: len(stored)], f"environment {who}"


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_environments_in_processes_store_the_same(mode):
    """Given the same in processes of their own. Expect the same rows."""
    makers = [lambda who=who: ScriptedEnv(who) for who in range(2)]
    envs = AsyncVectorEnv(makers, autoreset_mode=AutoresetMode(mode))
    for who, stored in enumerate(play_vector(envs)):
        assert stored == scripted_rows(who, STEPS)[: len(stored)], f"environment {who}"


def test_a_single_environment_stores_the_scripted_rows():
    """Given one scripted environment that is reset by hand. Expect the rows of the script."""
    for who in range(COUNT):
        stored = play_single(who)
        assert stored == scripted_rows(who, STEPS)[: len(stored)], f"environment {who}"


class NestedEnv(ScriptedEnv):
    """The scripted environment with its observation split into a dict with a tuple in it."""

    def __init__(self, who):
        super().__init__(who)
        box = spaces.Box(0, 1e6, (1,), np.float32)
        pair = spaces.Tuple((box, spaces.Box(0, 1e6, (2,), np.float32)))
        self.observation_space = spaces.Dict({"pair": pair})

    def reset(self, **arguments):
        observation, info = super().reset(**arguments)
        return {"pair": (observation[:1], observation[1:])}, info

    def step(self, action):
        observation, *rest = super().step(action)
        return {"pair": (observation[:1], observation[1:])}, *rest


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_nested_final_observations_are_found(mode):
    """Given nested observations in each mode. Expect the last one of each episode, not that of the
    reset."""
    envs = SyncVectorEnv([lambda w=w: NestedEnv(w) for w in range(3)], autoreset_mode=mode)
    reset = Autoreset(spec_from(envs), mode_of(envs), 3)
    observation, _ = envs.reset()
    finals = {0: [], 1: [], 2: []}
    for _ in range(20):
        action = np.zeros(3, np.int64)
        after, reward, terminated, truncated, infos = envs.step(action)
        rows = reset.rows(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=after,
            infos=infos,
        )
        for row, stream in enumerate(rows.ended_streams):
            parts = [rows.closing[f"observation/pair/{i}"][row] for i in range(2)]
            finals[stream].append(tuple(np.concatenate(parts)))
        observation = after
        if mode == AutoresetMode.DISABLED and (terminated | truncated).any():
            observation, _ = envs.reset(options={"reset_mask": terminated | truncated})
    for who, seen in finals.items():
        expected = [row[0] for row in scripted_rows(who, 30) if row[4]]
        assert len(seen) >= 3 and seen == expected[: len(seen)]


def one_step(mode, count=2, **changes):
    space = spaces.Box(0, 1, (3,), np.float32)
    env = gymnasium.Env()
    env.observation_space, env.action_space = space, spaces.Discrete(2)
    reset = Autoreset(spec_from(env, extras=changes.pop("columns", ())), mode, count)
    arguments = {
        "observation": np.ones((count, 3), np.float32),
        "action": np.ones(count, np.int64),
        "reward": np.ones(count),
        "terminated": np.array([True] + [False] * (count - 1)),
        "truncated": np.zeros(count, np.bool_),
        "next_observation": np.full((count, 3), 7, np.float32),
    }
    return reset, reset.rows(**(arguments | changes))


def test_same_step_needs_to_be_told_how_an_episode_ended():
    """Given an end in mode same-step, without infos and final_observation. Expect SpecError: of a
    next-step environment every made-up step would be stored, and nothing else would tell."""
    with pytest.raises(SpecError, match=r"environment 0 ended and neither infos nor final"):
        one_step("same-step")


def test_a_termination_without_final_observation_closes_with_zeros():
    """Given a termination that brings no final observation. Expect the episode to be closed by
    zeros, which no target reads."""
    _, rows = one_step("same-step", final_observation=np.array([None, None]))
    assert rows.ended_streams.tolist() == [0] and not rows.closing["observation"].any()
    assert rows.ending.tolist() == [TERMINATED, OPEN]


def test_a_truncation_without_final_observation_is_refused():
    """Given a truncation that brings no final observation. Expect SpecError that names the
    environment."""
    flags = {"terminated": np.zeros(2, np.bool_), "truncated": np.array([False, True])}
    flags["final_observation"] = np.array([None, None])
    with pytest.raises(SpecError, match="environment 1 was truncated and its final observation"):
        one_step("same-step", **flags)


def test_batched_final_observations_are_accepted():
    """Given final observations as one array, in infos or by name. Expect the row of the one that
    ended."""
    final = np.full((2, 3), 5, np.float32)
    for arguments in [{"infos": {"final_obs": final}}, {"final_observation": final}]:
        _, rows = one_step("same-step", **arguments)
        assert rows.closing["observation"].tolist() == [[5, 5, 5]]


def test_a_reset_by_hand_makes_the_next_step_real():
    """Given an end after which the next step would be made up, and a reset by hand. Expect no step
    to be taken for made up."""
    reset, _ = one_step("next-step", infos={})
    assert reset.made_up.tolist() == [True, False]
    reset.restart(np.array([True, False]))
    assert not reset.made_up.any()


def test_extra_columns_travel_and_wrong_input_names_the_column():
    """Given an extra column, and input that lacks one, has one too many, or a wrong shape or dtype.
    Expect it in the rows, and SpecError that names what is wrong."""
    cost = (Column("cost", np.dtype(np.float32)),)
    _, rows = one_step("disabled", columns=cost, extras={"cost": np.array([3.0, 4.0])})
    assert rows.columns["cost"].tolist() == [3.0, 4.0]
    for changes, words in [
        ({"columns": cost}, "`cost` is missing: this table stores it"),
        ({"extras": {"cost": np.zeros(2)}}, "no column 'cost'; there are observation, action"),
        ({"reward": np.zeros(3)}, "column 'reward': expected shape \\(2,\\), got \\(3,\\)"),
        ({"terminated": np.zeros(2)}, "terminated: expected bool \\(2,\\), got float64"),
        ({"truncated": np.zeros(2, np.uint8)}, "got uint8 \\(2,\\); say truncated != 0"),
        ({"terminated": np.zeros(3, np.uint8)}, "got uint8 \\(3,\\)$"),
        ({"life_lost": np.zeros(3, np.bool_)}, "life_lost: expected bool \\(2,\\)"),
        ({"observation": np.zeros((2, 4), np.float32)}, "column 'observation': expected shape"),
    ]:
        with pytest.raises(SpecError, match=words):
            one_step("disabled", **changes)


class OnDevice:
    """A tensor on a GPU, as far as it matters here: numpy cannot take it before it is copied."""

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def __array__(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def detach(self):
        return self

    def cpu(self):
        return torch.from_numpy(self.array)


def test_flags_and_masks_may_lie_on_a_gpu():
    """Given flags and a restart's mask there, as vector environments on a GPU return them. Expect
    the rows of the same flags here, and the same environment restarted."""
    none, first = np.zeros(2, np.bool_), np.array([True, False])
    flags = {"terminated": OnDevice(first), "truncated": OnDevice(none)}
    reset, rows = one_step("next-step", infos={}, **flags)
    assert rows.ended_streams.tolist() == [0] and reset.made_up.tolist() == [True, False]
    reset.restart(OnDevice(first))
    assert not reset.made_up.any()


@pytest.mark.parametrize("kind", [gymnasium.Env, gymnasium.vector.VectorEnv, ScriptedEnv])
def test_a_class_is_no_environment(kind):
    """Given the class in place of what steps. Expect SpecError: its mode would be a guess."""
    with pytest.raises(SpecError, match=f"{kind.__name__} is a class: hand over"):
        mode_of(kind)


def test_a_vector_environment_that_does_not_say_its_mode_is_refused():
    """Given a vector environment that does not say how it resets. Expect SpecError with how to say
    it."""
    envs = SyncVectorEnv([lambda: ScriptedEnv()])
    envs.metadata, envs.autoreset_mode = {}, None
    with pytest.raises(SpecError, match=r"autoreset_mode.* 1.1 .*='next-step'.*'same-step'"):
        mode_of(envs)
    envs.close()


class Counting(gymnasium.Env):
    """Episodes of two steps whose observations are (episode, step), never zero, all different."""

    def __init__(self, kind=np.float32):
        self.observation_space = spaces.Box(0, 10_000, (2,), kind)
        self.action_space, self.episode, self.at = spaces.Discrete(2), 0, 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.at = self.episode + 1, 1
        return self._seen(), {}

    def step(self, action):
        self.at += 1
        return self._seen(), 1.0, False, self.at == 3, {}

    def _seen(self):
        return np.array([self.episode, self.at], self.observation_space.dtype)


def play_with(env, mode, resets=False, seen=lambda observation: observation):
    """One writer told `mode`; what it stored, or raises. `seen`: what is kept of observations."""
    vector = hasattr(env, "num_envs")
    table = Table("m", step=spec_from(env), plan=NStep(1), capacity=256)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        writer = client.writer("m", env.num_envs if vector else None, autoreset=mode)
        observation = seen(env.reset()[0])
        try:
            for _ in range(12):
                action = np.zeros(env.num_envs, np.int64) if vector else 0
                after, reward, terminated, truncated, infos = env.step(action)
                writer.add_step(observation, action, after, reward, terminated, truncated, infos)
                observation = seen(after)
                if resets and np.any(terminated | truncated):
                    mask = {"reset_mask": terminated | truncated} if vector else None
                    observation = seen(env.reset(options=mask)[0])
            writer.flush()
        finally:
            writer.link.close(1.0)
        return client.size("m")


def counting_vector(mode):
    return SyncVectorEnv([Counting] * 3, autoreset_mode=mode)


def test_made_up_steps_are_never_stored_as_real_ones():
    """Given environments that reset themselves and a writer that is told they do not. Expect a
    warning at the first made-up step and SpecError after some."""
    for env, mode in [
        (counting_vector(AutoresetMode.NEXT_STEP), "disabled"),
        (gymnasium.wrappers.Autoreset(Counting()), None),
    ]:
        with (
            pytest.warns(UserWarning, match="was given its final observation again"),
            pytest.raises(SpecError, match="was given its final observation again"),
        ):
            play_with(env, mode)


def test_one_end_that_nobody_reset_is_a_warning():
    """Given one end after which nobody resets. Expect a warning, and the rest stored."""
    with pytest.warns(UserWarning, match="was given its final observation again"):
        assert play_with(Counting(), None) == 11


def test_real_steps_are_never_lost_as_made_up_ones():
    """Given environments reset by hand and a writer that is told they reset in the next step.
    Expect SpecError."""
    with pytest.raises(SpecError, match="was not given its final observation"):
        play_with(counting_vector(AutoresetMode.DISABLED), "next-step", resets=True)


def test_the_right_modes_go_on_after_an_end():
    """Given writers that are told the mode their environments have. Expect every real step
    stored."""
    assert play_with(counting_vector(AutoresetMode.NEXT_STEP), "next-step") == 3 * 8
    assert play_with(counting_vector(AutoresetMode.DISABLED), "disabled", resets=True) == 3 * 12
    assert play_with(Counting(), None, resets=True) == 12


def test_equal_integers_are_a_warning_because_they_may_be_equal_by_right():
    """Given whole numbers that are equal across an end. Expect one warning, and the steps
    stored."""
    with pytest.warns(UserWarning, match="was given its final observation again") as told:
        assert play_with(Counting(np.int64), None) == 11
    assert len(told) == 1


def test_a_restart_says_that_the_environment_starts_where_it_ended():
    """Given an observation equal to the last one of an episode, with and without a restart. Expect
    a warning without it alone."""
    same = np.full((2, 3), 7, np.float32)
    reset, _ = one_step("disabled", next_observation=same)
    with pytest.warns(UserWarning, match="environment 0 ended"):
        reset._look(same)
    reset, _ = one_step("disabled", next_observation=same)
    reset.restart(np.array([True, False]))
    assert reset.closed is None


class Frames(Counting):
    """The same as frames of 64 bytes."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (8, 8), np.uint8)

    def _seen(self):
        return np.full((8, 8), 16 * self.episode + self.at, np.uint8)


class Places(Counting):
    """The same as one number; episode 0 is the first."""

    def __init__(self, start=None):
        super().__init__()
        self.observation_space, self.start = spaces.Discrete(1000), start

    def _seen(self):
        if self.start is not None and self.episode > 1:
            return np.int64(self.start + self.at % 2)
        return np.int64(10 * self.episode + self.at)


def test_numbers_that_always_go_on_as_they_ended_are_no_chance():
    """Given places, small integers, that go on after every end as they ended. Expect SpecError at
    the third end of one, as of frames; and no word where they begin where they end by right."""
    with (
        pytest.warns(UserWarning, match="was given its final observation again"),
        pytest.raises(SpecError, match="was given its final observation again"),
    ):
        play_with(SyncVectorEnv([Places] * 3, autoreset_mode=AutoresetMode.NEXT_STEP), "disabled")
    envs = SyncVectorEnv([lambda: Places(5)] * 3, autoreset_mode=AutoresetMode.DISABLED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert play_with(envs, "disabled", True) == 3 * 12


class Bandit(gymnasium.Env):
    """Episodes of one step that all look the same."""

    observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.ones(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), 1.0, True, False, {}


def test_equal_frames_several_ends_in_a_row_are_no_chance():
    """Given frames, which are integers, that go on after an end as they ended. Expect SpecError at
    the third, as of floats: a warning, and wrong items for ever, it was."""
    with (
        pytest.warns(UserWarning, match="was given its final observation again"),
        pytest.raises(SpecError, match="was given its final observation again"),
    ):
        play_with(SyncVectorEnv([Frames] * 3, autoreset_mode=AutoresetMode.NEXT_STEP), "disabled")


class Walk(Counting):
    """Episodes of two steps that end where all of them start, after a step elsewhere."""

    def _seen(self):
        return np.array([1, self.at % 2], np.float32)


def test_a_caller_who_resets_is_never_stopped_by_a_start_that_is_an_end():
    """Given single environments that always look the same, or start where they end, and a caller
    who resets them. Expect all twelve steps: with one warning, a hint, where the mode was named,
    and without any where the environment was handed over."""
    for kind in (Bandit, Walk):
        with pytest.warns(
            UserWarning, match="^the environment .* nobody reset it, or next_o"
        ) as told:
            assert play_with(kind(), "single", resets=True) == 12
        assert len(told) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert play_with(kind(), kind(), resets=True) == 12


@pytest.mark.parametrize("seen", [lambda observation: observation, np.copy], ids=["same", "copy"])
def test_who_resets_itself_and_is_named_single_is_refused(seen):
    """Given a single environment that resets itself, named "single", and its observations handed
    on as they are or as copies. Expect the error: values tell, and not objects."""
    with (
        pytest.warns(UserWarning, match="nobody reset it, or it resets itself"),
        pytest.raises(SpecError, match="nobody reset it, or it resets itself"),
    ):
        play_with(gymnasium.wrappers.Autoreset(Counting()), None, seen=seen)


def test_a_handed_over_environment_that_nobody_resets_is_told_of():
    """Given an environment that was handed over and that nobody resets. Expect a warning with both
    reasons there may be."""
    with pytest.warns(UserWarning, match="nobody reset it, or it resets itself"):
        play_with(Counting(), Counting())


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_observations_that_step_writes_over_are_refused(mode):
    """Given an environment with copy=False, its arrays kept as they are, a view of them, and a
    copy. Expect SpecError at the first step, or at the first end, and every row of the last."""

    def made():
        return SyncVectorEnv([Counting] * 3, copy=False, autoreset_mode=mode)

    resets = mode == AutoresetMode.DISABLED
    for seen in (lambda observation: observation, lambda observation: observation[:]):
        envs = made()
        with pytest.raises(SpecError, match=r"copy=False\).*obs\.copy\(\)"):
            play_with(envs, envs, resets, seen)
    envs = made()
    assert play_with(envs, envs, resets, np.copy) >= 3 * 8


def test_one_environment_that_writes_over_its_observation_is_refused():
    """Given an Env that returns the same array each time. Expect SpecError once it has changed."""

    class InPlace(Counting):
        seen = np.zeros(2, np.float32)

        def _seen(self):
            self.seen[:] = self.episode, self.at
            return self.seen

    for mode in (InPlace(), None):
        with pytest.raises(SpecError, match=r"copy=False\).*obs\.copy\(\)"):
            play_with(InPlace(), mode, True)
        assert play_with(InPlace(), mode, True, np.copy) == 12


class Over(Counting):
    """Writes over its own list, which it hands out as it is or as a part of an observation."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.list, self.goal = kind, [0.0, 0.0], np.zeros(2, np.float32)
        if kind != "list":
            self.observation_space = spaces.Dict(
                {"at": self.observation_space, "goal": self.observation_space}
            )

    def reset(self, *, seed=None, options=None):
        self.goal[:] = self.episode
        return super().reset(seed=seed)

    def _seen(self):
        self.list[:] = self.episode, self.at
        at = list(self.list) if self.kind == "goal" else self.list
        goal = self.goal.copy() if self.kind == "part" else self.goal
        return at if self.kind == "list" else {"at": at, "goal": goal}


@pytest.mark.parametrize("kind", ["list", "all", "part"])
@pytest.mark.parametrize("own", [True, False], ids=["handed over", "named"])
def test_a_list_that_step_writes_over_is_refused(kind, own):
    """Given an Env that returns its own list, or a dict with it, new each time, where another entry
    never changes or is new too. Expect SpecError, as for an array; of copies every row."""
    mode = Over(kind) if own else "single"
    with pytest.raises(SpecError, match=r"the same memory.*obs\.copy\(\)"):
        play_with(Over(kind), mode, True)
    assert play_with(Over(kind), mode, True, copy.deepcopy) == 12


def test_what_only_a_reset_writes_over_is_taken():
    """Given a goal in memory of its own, which resets write over. Expect every row: what was handed
    in was stored before."""
    assert play_with(Over("goal"), Over("goal"), True) == 12


def test_an_object_that_comes_back_unchanged_is_taken():
    """Given an Env whose observation is the same object while nothing moves, and another one where
    something did. Expect every row."""

    class Standing(Counting):
        memory, seen = None, ()

        def _seen(self):
            now = self.episode, self.at // 2
            if now != self.seen:
                self.memory, self.seen = np.array(now, np.float32), now
            return self.memory

        def step(self, action):
            return *super().step(action)[:3], self.at == 9, {}

    assert play_with(Standing(), Standing(), True) == 11  # the newest is of an open episode
