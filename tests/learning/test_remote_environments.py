"""Environments that workers step: the same episodes as here, and what a broken worker means.

Oracle: Gymnasium's own vector in this process, with the same seeds and actions.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from workers import Worker, silent, verbs_of

from actor import env_wire
from actor.remote import EnvironmentsLost, RemoteVector
from actor.worker import Options
from replay_server import ConfigError
from replay_server.training.asking import HEAD
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_envs


@pytest.fixture
def workers():
    made = []

    def make(*counts, env="CartPole-v1"):
        made.extend(Worker(env, count) for count in counts)
        return made

    yield make
    for worker in made:
        worker.close()


def vector_of(workers, count, env="CartPole-v1"):
    return RemoteVector([worker.url for worker in workers], env, count)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1"])
def test_the_same_episodes_as_in_this_process(workers, env):
    """Given three environments at two workers, and three here; one seed each and 300 actions.
    Expect every observation, reward and end to be the same, over the ends of episodes."""
    here, there = make_envs(env, 3), vector_of(workers(1, 2, env=env), 3, env)
    rng = np.random.default_rng(5)
    first = [vector.reset(seed=[7, 8, 9])[0] for vector in (here, there)]
    same(*first)
    assert there.metadata["autoreset_mode"] == here.metadata["autoreset_mode"]
    ends = 0
    for _ in range(300):
        space = here.single_action_space
        if isinstance(space, spaces.Discrete):
            action = rng.integers(space.n, size=3)
        else:
            action = rng.uniform(space.low, space.high, (3, *space.shape)).astype(np.float32)
        one, other = here.step(action), there.step(action)
        same(one[0], other[0])
        for mine, theirs in zip(one[1:4], other[1:4], strict=True):
            assert np.array_equal(mine, theirs) and mine.dtype == theirs.dtype
        ends += int((one[2] | one[3]).sum())
    assert ends > 0
    here.close()
    there.close()


def bound():
    """A time of the clock by which an answer of this machine is there."""
    return time.monotonic() + 20.0


def same(one, other):
    leaves = env_wire.leaves_of(one), env_wire.leaves_of(other)
    assert leaves[0].keys() == leaves[1].keys()
    for name, array in leaves[0].items():
        assert np.array_equal(array, leaves[1][name]) and array.dtype == leaves[1][name].dtype


class Odd(gymnasium.Env):
    """Its infos name `lives` where its seed is odd, and `bonus` at each third step of it."""

    observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.odd, self.steps = bool(seed % 2), 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        infos = {"lives": 2 + self.steps} if self.odd else {}
        infos |= {"bonus": 0.5} if self.odd and self.steps % 3 == 0 else {}
        return np.zeros(1, np.float32), 1.0, False, False, infos


@pytest.fixture
def odd(monkeypatch):
    made = gymnasium.spec("CartPole-v1")
    made = dataclasses.replace(made, id="Odd-v0", entry_point=Odd, vector_entry_point=None)
    monkeypatch.setitem(gymnasium.registry, made.id, made)
    return made.id


def test_infos_of_some_environments_are_those_of_one_vector(workers, odd):
    """Given infos that two of four environments report, at two workers of which one never does.
    Expect names, values and masks as of the vector in this process."""
    here, there = make_envs(odd, 4), vector_of(workers(2, 2, env=odd), 4, odd)
    for vector in (here, there):
        vector.reset(seed=[2, 4, 5, 7])
    for step in range(1, 7):
        action = np.zeros(4, np.int64)
        mine, theirs = here.step(action)[4], there.step(action)[4]
        assert mine.keys() == theirs.keys() >= {"lives", "_lives"}
        assert ("bonus" in mine) == (step % 3 == 0)
        for name, values in mine.items():
            assert np.array_equal(values, theirs[name]), (step, name)
    here.close()
    there.close()


def test_a_worker_named_twice_is_refused(workers):
    """Given one address twice, whose environments would be two players'. Expect EnvError."""
    (worker,) = workers(2)
    with pytest.raises(EnvError, match=rf"{worker.url} stands twice"):
        vector_of([worker, worker], 4)


def test_a_worker_that_began_anew_is_lost_episodes_and_no_glued_ones(workers):
    """Given a worker that forgets its player in the midst of an episode. Expect EnvironmentsLost at
    the next step, and new episodes behind a reset."""
    (worker,) = workers(2)
    vector = vector_of([worker], 2)
    vector.reset(seed=[1, 2])
    vector.step(np.array([0, 1]))
    worker.begin_anew()
    with pytest.raises(EnvironmentsLost, match="begun anew"):
        vector.step(np.array([0, 1]))
    vector.reset(seed=[1, 2])
    assert vector.step(np.array([0, 1]))[1].tolist() == [1.0, 1.0]
    vector.close()


def test_two_players_of_one_worker(workers):
    """Given a second actor that asks for new episodes. Expect the first one refused for good, so
    that the two do not take them from each other in turn; and never a step of the other's."""
    made = workers(2)
    one, two = vector_of(made, 2), vector_of(made, 2)
    one.reset(seed=[1, 2])
    two.reset(seed=[3, 4])
    with pytest.raises(EnvError, match=r"another actor plays .* workers of its own") as refused:
        one.step(np.array([0, 1]))
    assert not isinstance(refused.value, EnvironmentsLost)
    assert two.step(np.array([0, 1]))[1].tolist() == [1.0, 1.0]
    one.close()
    two.close()


def test_a_question_asked_twice_is_one_step(workers):
    """Given a step whose question came twice, as behind a lost answer. Expect the same answer, and
    the episode one step on."""
    (worker,) = workers(1)
    here, vector = make_envs("CartPole-v1", 1), vector_of([worker], 1)
    here.reset(seed=[1])
    vector.reset(seed=[1])
    line = vector.workers[0]
    for _ in range(3):
        there = vector.step(np.array([1]))
        line.socket.send(line.question)
        again = env_wire.outcome_of(line.told(bound()), vector.single_observation_space, 1)
        mine = here.step(np.array([1]))
        assert np.array_equal(again.observation, there[0])
        assert np.array_equal(mine[0], there[0])
    here.close()
    vector.close()


@pytest.mark.parametrize(
    ("count", "env", "words"),
    [
        (3, "CartPole-v1", "the workers have 2 environments, and this actor 3: say --envs 2"),
        (2, "Acrobot-v1", "plays 'CartPole-v1' .* and this actor 'Acrobot-v1'"),
    ],
)
def test_workers_of_another_run_are_refused_at_the_first_call(workers, count, env, words):
    """Given workers with other environments, or of another number. Expect one sentence, at once."""
    with pytest.raises(EnvError, match=words):
        vector_of(workers(2), count, env)


def test_nobody_there_is_said_in_time():
    """Given an address where nobody serves. Expect EnvironmentsLost after the patience given."""
    said = "no answer from the environments at tcp://"
    with silent() as (url, _), pytest.raises(EnvironmentsLost, match=said):
        RemoteVector([url], "CartPole-v1", 2, patience=0.3)


def message(number, verb, body=b""):
    return HEAD.pack(number, verb) + body


HOSTILE = {
    "nothing": b"",
    "a head that is cut": b"\x01" * 8,
    "a verb that is none": message(1, 0x7A),
    "a step of no episode": message(1, env_wire.STEP, b"x"),
    "seeds that are text": message(1, env_wire.RESET, b"\xff" * 40),
    "seeds of another shape": message(
        1, env_wire.RESET, env_wire.packed({"seeds": np.zeros(9, np.int64)})
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_bytes_that_are_no_question_end_nothing(workers, case):
    """Given a stranger's bytes. Expect them refused or left unanswered, and the worker's player to
    play on."""
    (worker,) = workers(2)
    vector = vector_of([worker], 2)
    vector.reset(seed=[1, 2])
    verbs = verbs_of(worker.url, [HOSTILE[case]], message(2, env_wire.HELLO))
    assert verbs.pop(2) == env_wire.HELLO
    assert set(verbs.values()) <= {env_wire.REFUSED, env_wire.LOST}
    assert vector.step(np.array([0, 1]))[1].tolist() == [1.0, 1.0]
    vector.close()


def test_a_refusal_that_comes_again_is_the_same_refusal(workers):
    """Given actions that are refused, and the same question again. Expect the refusal once more,
    never what the step before was answered."""
    (worker,) = workers(2)
    vector = vector_of([worker], 2)
    vector.reset(seed=[1, 2])
    vector.step(np.array([0, 1]))
    line = vector.workers[0]
    for ask in (lambda: vector.step(np.array([0, 5])), lambda: line.told(bound())):
        with pytest.raises(EnvError, match="is not in Discrete"):
            ask()
        line.socket.send(line.question)
    vector.close()


@pytest.mark.parametrize(
    "actions",
    [np.array([0, 5]), np.array([0]), np.array([0.5, 0.5]), np.array([[0], [1]])],
    ids=["out of its space", "too few", "fractions", "of another shape"],
)
def test_actions_that_are_none_are_refused(workers, actions):
    """Given actions that the space does not have. Expect EnvError from the worker, which lives."""
    (worker,) = workers(2)
    vector = vector_of([worker], 2)
    vector.reset(seed=[1, 2])
    with pytest.raises(EnvError):
        vector.step(actions)
    assert vector.step(np.array([0, 1]))[1].tolist() == [1.0, 1.0]
    vector.close()


def test_a_step_that_takes_too_long_names_the_option(workers):
    """Given a worker that is silent in the midst of an episode. Expect the seconds it was given,
    and the option for an environment that needs more."""
    (worker,) = workers(1)
    vector = RemoteVector([worker.url], "CartPole-v1", 1, step_s=0.3)
    vector.reset(seed=[1])
    worker.ended.set()
    worker.thread.join()
    with pytest.raises(EnvironmentsLost, match=r"within 0.3 s .* --step-seconds"):
        vector.step(np.array([1]))
    vector.close()


@pytest.mark.parametrize("url", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:7500"])
def test_other_machines_are_served_only_where_it_is_said(url):
    """Given an address that other machines reach. Expect ConfigError without --insecure."""
    with pytest.raises(ConfigError, match="--insecure"):
        Options(serve=url)
    assert Options(serve=url, insecure=True).serve == url


def test_the_program_says_where_it_serves_and_ends_at_a_signal():
    """Given the command. Expect its address in a line, one step played, exit code 0 on SIGTERM."""
    command = [sys.executable, "-m", "replay_server", "environments", "--envs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            line = program.stdout.readline()
            assert line.startswith("serving at tcp://127.0.0.1:")
            vector = RemoteVector([line.split()[2].rstrip(":")], "CartPole-v1", 2)
            vector.reset(seed=[1, 2])
            assert vector.step(np.array([0, 1]))[1].tolist() == [1.0, 1.0]
            vector.close()
        finally:
            program.terminate()
        assert program.wait(20) == 0
