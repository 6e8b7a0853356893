"""Ways to step environments side by side: as one after the other, for the same seeds."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from actor.env_wire import RESET, STEP, packed
from actor.worker import Options, served_by
from deploy import demo
from replay_server.training.asking import Question
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError, EnvironmentsDied
from replay_server.training.envs import make_envs


def played(env_id, backend, steps, count=3):
    """What `count` environments gave, a list of arrays a step."""
    envs = make_envs(env_id, count, backend=backend)
    rng = np.random.default_rng(5)
    found = [[envs.reset(seed=[11 + i for i in range(count)])[0]]]
    for _ in range(steps):
        actions = rng.integers(0, envs.single_action_space.n, count)
        observation, reward, terminated, truncated, infos = envs.step(actions)
        lost = infos.get("life_lost", np.zeros(count, np.bool_))
        found.append([observation, reward, terminated, truncated, lost])
    envs.close()
    return found


@pytest.mark.parametrize(("env_id", "steps"), [("CartPole-v1", 60), ("ALE/Breakout-v5", 150)])
def test_side_by_side_is_as_one_after_the_other(env_id, steps):
    """Given three environments, their seeds, and random actions past ends of episodes. Expect each
    observation, reward, end and lost life alike, byte for byte."""
    plain, beside = (played(env_id, backend, steps) for backend in ("sync", "async"))
    for step, (mine, theirs) in enumerate(zip(plain, beside, strict=True)):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"step {step}")
    ends = np.array([step[2] | step[3] | step[4] for step in plain[1:]])
    assert ends.any(), "no episode ended, and no life was lost"


def test_a_backend_that_cannot_be_had_is_one_sentence(capsys):
    """Given EnvPool where it is not installed, tensors in processes, and a typo. Expect what to
    do."""
    with pytest.raises(EnvError, match="one tensor, stepped as one: leave --backend async away"):
        make_envs("torch/CartPole-v1", 2, backend="async")
    with pytest.raises(EnvError, match="one task, stepped as one: leave --backend async away"):
        served_by(Options(env="agents:pairs", backend="async"))
    with pytest.raises(EnvError, match="no --backend 'envpol'; the nearest is 'envpool'"):
        served_by(Options(backend="envpol"))
    if importlib.util.find_spec("envpool") is None:
        with pytest.raises(
            EnvError, match=r"not installed: pip install 'replay-server\[envpool\]'"
        ):
            make_envs("CartPole-v1", 2, backend="envpool")
        with pytest.raises(SystemExit, match="2"):  # before anything starts
            demo.main(["--backend", "envpool"])
        assert "needs EnvPool, which is not installed" in capsys.readouterr().err


def test_who_steps_them_side_by_side_hears_ctrl_c():
    """Given a program that watches for Ctrl-C and makes such environments, in its main thread and
    in another one. Expect it to hear the signal still."""
    with Stop() as stop:
        make_envs("CartPole-v1", 2, backend="async").close()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: make_envs("CartPole-v1", 2, backend="async").close()).result()
        signal.raise_signal(signal.SIGINT)
        assert stop.asked


@pytest.mark.parametrize("call", ["step", "reset", "close"])
def test_a_process_that_is_killed_is_said_so(call):
    """Given environments of which a process is killed. Expect a sentence that says what happened,
    of a kind that their program is started again for, and closing to end at once."""
    envs = make_envs("CartPole-v1", 2, backend="async")
    envs.reset(seed=[1, 2])
    envs.processes[1].kill()
    envs.processes[1].join()
    if call != "close":
        with pytest.raises(EnvironmentsDied, match=r"'CartPole-v1': a process .* \(exit code -9\)"):
            envs.step(np.zeros(2, np.int64)) if call == "step" else envs.reset()
    envs.close()
    assert not any(process.is_alive() for process in envs.processes)


def test_a_worker_whose_process_is_killed_ends():
    """Given a worker that an actor asks for a step after one of its processes was killed. Expect it
    to end as a program that may be started again, with that sentence."""
    options = Options(envs=2, backend="async")
    served = served_by(options)
    served.answers(Question(b"me", 1, RESET, packed({}), False))
    served.environments.envs.processes[0].kill()
    served.environments.envs.processes[0].join()
    actions = packed({"actions": np.zeros(2, np.int64)})
    with pytest.raises(EnvironmentsDied, match="was it killed"):
        served.answers(Question(b"me", 2, STEP, actions, False))
    served.close()


def test_ctrl_c_ends_a_worker_of_environments_side_by_side():
    """Given such a program that serves. Expect it and its processes to end at a terminal's Ctrl-C,
    which all of them are sent."""
    command = [sys.executable, "-m", "replay_server", "environments", "--backend", "async"]
    program = subprocess.Popen(
        [*command, "--envs", "2"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert program.stdout.readline().startswith("serving at")
        os.killpg(program.pid, signal.SIGINT)
        assert program.wait(30) == 0
        until = time.monotonic() + 30
        with pytest.raises(ProcessLookupError):  # none of its group is left
            while time.monotonic() < until:
                os.killpg(program.pid, 0)
                time.sleep(0.01)
    finally:
        program.kill()
        program.stdout.close()
