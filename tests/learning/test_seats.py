"""Tasks of several agents: what each seat sees is the task's own, and what a lone one means.

Oracle: the task itself, stepped here with the same seeds and actions.
"""

from __future__ import annotations

import threading
import time
from functools import partial

import numpy as np
import pytest
from pairs import Pair
from test_remote_environments import same
from workers import Worker, verbs_of

from actor import env_wire
from actor.env_wire import asker_of
from actor.remote import EnvironmentsLost, RemoteVector
from actor.seats import Joint
from actor.worker import Options, served_by
from replay_server.training.agents import make_seat, make_task, seats_of
from replay_server.training.asking import HEAD, Question
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import check_env, check_playable, make_env, make_envs

TASK = "agents:pairs"
AGENTS = ("left", "right")
BOUND_S = 20.0


@pytest.fixture
def worker():
    made = Worker(TASK, 3)
    yield made
    made.close()


def seat_of(worker, agent, **named):
    return RemoteVector([worker.url], f"{TASK}#{agent}", 3, **named)


def at_once(*calls):
    """What these return, or the exceptions that they raise, all called at the same time."""
    found = [None] * len(calls)

    def call(i):
        try:
            found[i] = calls[i]()
        except EnvError as error:
            found[i] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    return found


def stepping(seat):
    """New episodes, and a first step of them, as an actor comes to it."""
    seat.reset()
    while True:
        try:
            return seat.step(np.zeros(3, int))
        except EnvironmentsLost:
            seat.reset()


def as_batch(items):
    """A batch of one agent's observations."""
    if isinstance(items[0], dict):
        return {name: np.stack([each[name] for each in items]) for name in items[0]}
    return np.stack(items)


def test_each_agent_sees_its_part_of_the_task(worker):
    """Given three copies of a task at a worker, and three here; one seed each, and 60 random
    actions. Expect of both seats every observation, reward and end to be the task's, and a reset
    in the step behind an end."""
    seats, tasks = {agent: seat_of(worker, agent) for agent in AGENTS}, [Pair() for _ in range(3)]
    seeds, rng = [4, 5, 6], np.random.default_rng(1)
    seen = [task.reset(seed)[0] for task, seed in zip(tasks, seeds, strict=True)]
    of = {"left": seeds, "right": [0, 0, 0]}  # those of the first agent count
    begun = at_once(*(partial(seats[a].reset, seed=of[a]) for a in AGENTS))
    for agent, (observation, _) in zip(AGENTS, begun, strict=True):
        same(observation, as_batch([each[agent] for each in seen]))
    ends, cuts, over = 0, 0, [False] * 3
    for _ in range(60):
        actions = {a: rng.integers(seats[a].single_action_space.n, size=3) for a in AGENTS}
        there = at_once(*(partial(seats[a].step, actions[a]) for a in AGENTS))
        seen, rewards, flags = [], np.zeros((2, 3)), np.zeros((2, 2, 3), bool)
        for i, task in enumerate(tasks):
            if over[i]:
                seen.append(task.reset()[0])
                over[i] = False
                continue
            now, reward, *ended, _ = task.step({a: actions[a][i] for a in AGENTS})
            seen.append(now)
            for at, agent in enumerate(AGENTS):
                rewards[at, i] = reward[agent]
                flags[at, :, i] = [flag[agent] for flag in ended]
            over[i] = flags[0, :, i].any()
        for at, agent in enumerate(AGENTS):
            observation, reward, terminated, truncated, _ = there[at]
            same(observation, as_batch([each[agent] for each in seen]))
            assert np.array_equal(reward, rewards[at])
            assert np.array_equal(np.stack([terminated, truncated]), flags[at])
        ends, cuts = ends + flags[0, 0].sum(), cuts + flags[0, 1].sum()
    assert ends > 0 and cuts > 0
    for seat in seats.values():
        seat.close()


def test_who_begins_anew_takes_the_others_along(worker):
    """Given two seats that play, of which one begins anew while the other waits with its step.
    Expect the other one's episodes to be lost, and both to go on with new ones."""
    left, right = (seat_of(worker, agent) for agent in AGENTS)
    at_once(left.reset, right.reset)
    again = seat_of(worker, "right")  # as of an actor that was started again

    def goes_on():
        with pytest.raises(EnvironmentsLost, match="ask for new episodes"):
            left.step(np.zeros(3, int))
        return left.reset()

    assert all(len(each) == 2 for each in at_once(goes_on, again.reset))
    done = at_once(lambda: left.step(np.zeros(3, int)), lambda: again.step(np.zeros(3, int)))
    assert all(len(each) == 5 for each in done), done
    for seat in (left, right, again):
        seat.close()


def test_a_lone_seat_waits_as_long_as_it_may(worker):
    """Given one seat of two. Expect its reset, and later its step, to end by its own bounds, as an
    error that says who is silent; in between it plays, though its first question is still there."""
    left = seat_of(worker, "left", patience=0.3, step_s=0.3)
    with pytest.raises(EnvError, match=r"no answer .* within 0.3 s"):
        left.reset()
    right = seat_of(worker, "right")
    left.patience, left.step_s = BOUND_S, BOUND_S
    at_once(lambda: stepping(left), lambda: stepping(right))
    left.step_s = 0.3
    with pytest.raises(EnvironmentsLost, match=r"within 0.3 s"):
        left.step(np.zeros(3, int))
    left.close()
    right.close()


def asked(number, verb, **arrays):
    return HEAD.pack(number, verb) + (env_wire.packed(arrays) if arrays else b"")


def test_what_a_stranger_sends_is_refused(worker):
    """Given askers without a seat, with another's, with bodies that are none. Expect a refusal of
    each, and the two that play to go on."""
    left, right = (seat_of(worker, agent) for agent in AGENTS)
    at_once(left.reset, right.reset)
    told = verbs_of(
        worker.url,
        [asked(1, env_wire.RESET), HEAD.pack(2, env_wire.STEP) + b"\xff" * 40],
        asked(3, env_wire.HELLO),
    )
    assert set(told.values()) == {env_wire.REFUSED}  # its name begins with no agent's
    other = seat_of(worker, "left")
    with pytest.raises(EnvError, match="another actor plays left now"):
        other.step(np.zeros(3, int))
    with pytest.raises(EnvError, match="is not in Discrete"):
        left.step(np.full(3, 7))
    assert all(
        len(each) == 5
        for each in at_once(lambda: left.step(np.ones(3, int)), lambda: right.step(np.ones(3, int)))
    )
    for seat in (left, right, other):
        seat.close()


def test_a_step_that_is_asked_again_is_made_once(worker):
    """Given a seat whose every question comes three times. Expect the task to be one step on."""
    left, right = (seat_of(worker, agent) for agent in AGENTS)
    at_once(left.reset, right.reset)

    def thrice(seat):
        asker = seat.workers[0]
        asker.ask(env_wire.STEP, env_wire.packed({"actions": np.zeros(3, int)}))
        asker._send()
        asker._send()
        return asker.told(time.monotonic() + BOUND_S)

    for _ in range(2):
        at_once(lambda: thrice(left), lambda: thrice(right))
    ages = [task.age for task in worker.served.joint.tasks]
    assert ages == [2, 2, 2]  # no episode is shorter than three steps
    left.close()
    right.close()


def test_a_greeting_that_comes_again_is_answered_so():
    """Given a player whose greeting comes a second time: after it asked for new episodes, which are
    not there yet, and after these began. Expect a greeting each time, and no step."""
    seats = served_by(Options(env=TASK, envs=3))
    who = {agent: asker_of(agent) for agent in AGENTS}

    def ask(agent, number, verb, again=False):
        return seats.answers(Question(who[agent], number, verb, b"", again))

    ask("left", 1, env_wire.HELLO)
    assert ask("left", 2, env_wire.RESET) == []
    assert [verb for _, verb, _ in ask("left", 1, env_wire.HELLO, True)] == [env_wire.HELLO]
    assert {verb for _, verb, _ in ask("right", 1, env_wire.RESET)} == {env_wire.RESET}
    for again in (False, True):
        assert [verb for _, verb, _ in ask("left", 3, env_wire.HELLO, again)] == [env_wire.HELLO]
    seats.close()


def test_agents_have_to_end_together():
    """Given a task one of whose agents ends before the other. Expect the sentence that says so."""
    joint = Joint(f"{TASK}?leaver=true", 1)
    joint.reset([1])
    with pytest.raises(EnvError, match="left ended before the others, and all agents"):
        for _ in range(8):
            joint.step({agent: np.zeros(1, int) for agent in AGENTS})


@pytest.mark.parametrize(
    ("old", "said"), [("four", "step returned 4 values"), ("rewards", "no rewards of right")]
)
def test_a_step_that_is_not_pettingzoos(old, said):
    """Given a task whose step returns something else. Expect a sentence that says what."""
    joint = Joint(f"{TASK}?old={old}", 1)
    joint.reset([1])
    with pytest.raises(EnvError, match=said):
        joint.step({agent: np.zeros(1, int) for agent in AGENTS})


def test_agents_have_to_be_there_at_the_start():
    """Given a task whose first observations leave an agent out. Expect a sentence that says so."""
    with pytest.raises(EnvError, match="shows right nothing: all agents of a task are there"):
        Joint(f"{TASK}?fewer=true", 1).reset([1])


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("agents:no_such_module", "no module to import"),
        ("agents:", "environment 'agents:'"),
        ("agents:json", "module json has no parallel_env"),
        (f'{TASK}?names=["checkpoints","b"]', "not checkpoints or tensorboard"),
        (f'{TASK}?names=["../x","b"]', "each needs a name of its own"),
        (f'{TASK}?names=["a","a"]', "each needs a name of its own"),
        (f"{TASK}?lever=true", r"parallel_env raised TypeError.*'lever'"),
    ],
)
def test_a_task_that_is_none(env, said):
    """Given ids of no task. Expect one sentence that says why."""
    with pytest.raises(EnvError, match=said):
        check_env(env)


@pytest.mark.parametrize(
    ("text", "value"),
    [("True", True), ("false", False), ("None", None), ("3", 3), ("[1]", [1]), ("word", "word")],
)
def test_arguments_of_a_task(text, value):
    """Given an argument as JSON or Python writes it. Expect the task to get its value."""
    assert make_task(f"{TASK}?leaver={text}").leaver == value


def test_ids_of_seats():
    """Given a task. Expect the ids of its seats, their spaces, and a sentence for each misuse."""
    assert seats_of(make_task(TASK), TASK) == [f"{TASK}#left", f"{TASK}#right"]
    seat = make_env(f"{TASK}#right")
    assert seat.action_space.n == 4 and set(seat.observation_space) == {"age", "shown"}
    check_playable(TASK)
    with pytest.raises(EnvError, match=r"#left'.*needs a Box"):
        check_playable(TASK, "sac")
    with pytest.raises(EnvError, match="no agent 'rigt'; the nearest is 'right'"):
        make_seat(f"{TASK}#rigt")
    with pytest.raises(EnvError, match=f"say whose seat: {TASK}#left, for example"):
        make_env(TASK)
    for play in (seat.reset, lambda: seat.step(0), lambda: make_envs(f"{TASK}#left", 2)):
        with pytest.raises(EnvError, match=f"replay-server run --env '{TASK}'"):
            play()
    with pytest.raises(EnvError, match="leave out #left"):
        served_by(Options(env=f"{TASK}#left"))
