"""Ways to step environments side by side: as one after the other, for the same seeds."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import failing_apart
import numpy as np
import pytest

from actor import __main__ as actor_main
from actor import worker
from actor.env_wire import REFUSED, RESET, STEP, packed
from actor.worker import Options, served_by
from deploy import demo, together
from deploy.fleet import EXIT_ASKED_WRONG
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


@pytest.mark.parametrize("program", ["actor", "environments", "together"])
def test_a_program_whose_environments_died_may_be_started_again(monkeypatch, capsys, program):
    """Given each program that steps environments, and one of their processes gone, at once or as
    it plays. Expect an exit code other than that of one that was asked wrong."""

    def died(*_, **__):
        raise EnvironmentsDied("a process that steps it ended")

    main, at = {
        "actor": (actor_main.main, [(actor_main, "Program")]),
        "environments": (worker.main, [(worker, "served_by"), (worker, "turn")]),
        "together": (together.main, [(together, "LearnerProgram")]),
    }[program]
    for module, name in at:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, died)
            assert main([]) not in (0, EXIT_ASKED_WRONG)
    assert capsys.readouterr().err.count("a process that steps it ended") == len(at)


def test_a_worker_goes_on_behind_what_its_environment_raised():
    """Given environments side by side of which one raised in its step. Expect the next reset to
    begin new episodes, as where they are stepped one after the other."""
    options = Options(env="failing_apart:Once-v0", envs=2, backend="async")
    with closing(served_by(options)) as served:
        for number in range(2):
            asked = Question(b"me", 2 * number, RESET, packed({}), False)
            assert served.answers(asked)[0][1] == RESET
            actions = packed({"actions": np.zeros(2, np.int64)})
            _, verb, body = served.answers(Question(b"me", 2 * number + 1, STEP, actions, False))[0]
            assert verb == REFUSED and b"ZeroDivisionError" in body


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_an_environment_that_hangs_does_not_outlive_its_owner(how):
    """Given a program whose environment hangs in a process of its own, that closes, or is killed.
    Expect that process to end."""
    code = """if __name__ == "__main__":
        import numpy as np
        from replay_server.training.envs import make_envs
        envs = make_envs("failing_apart:Hanging-v0", 2, backend="async")
        envs.reset(seed=[1, 2])
        envs.step_async(np.zeros(2, np.int64))
        print(*(process.pid for process in envs.processes), flush=True)
        input()
        envs.close()
    """
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(failing_apart.__file__).parent)},
    )
    with program:
        children = [int(pid) for pid in program.stdout.readline().split()]
        program.kill() if how == "killed" else program.stdin.write("\n")
        program.stdin.close()
        assert program.wait(30) == (0 if how == "closed" else -signal.SIGKILL)
    until = time.monotonic() + 30
    while any(alive(pid) for pid in children) and time.monotonic() < until:
        time.sleep(0.01)
    assert len(children) == 2 and not any(alive(pid) for pid in children)


def alive(pid):
    """Whether it runs: one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
