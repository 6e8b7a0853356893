"""A learner's run that is gone on with: what it takes over, and what it leaves as it was."""

from __future__ import annotations

import json

import pytest
from test_learner_safety import learn, served

from learner import checkpoint
from learner.__main__ import Program, parse_train
from replay_server.patience import Stop

assert served  # a fixture


def test_a_resumed_run_takes_the_options_given_anew(served, tmp_path):
    """Given a run of Adam, gone on from with another learning rate, then with another optimizer.
    Expect the rate in the next checkpoint; then one sentence, before any file is written."""
    assert learn(served.address, tmp_path, "--updates", "5").returncode == 0
    more = ("--resume", tmp_path, "--updates", "10", "--learning-rate", "0.01")
    ended = learn(served.address, tmp_path, *more)
    assert ended.returncode == 0, ended.stderr
    newest = checkpoint.latest(tmp_path / "checkpoints")
    assert json.loads(newest.read_text())["optimizer_groups"][0]["lr"] == 0.01
    config = (tmp_path / "config-learner.toml").read_bytes()
    ended = learn(served.address, tmp_path, "--resume", tmp_path, "--optimizer", "rmsprop")
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    assert "--optimizer rmsprop" in ended.stderr
    assert (tmp_path / "config-learner.toml").read_bytes() == config


@pytest.mark.parametrize(
    "given, said",
    [
        (("--hidden", "8"), "leave --hidden"),
        (("--n", "5"), "give both the same"),
        (("--gamma", "0.5", "--server", "udp://127.0.0.1:9", "--patience", "0.1"), "no server"),
    ],
)
def test_a_resume_that_starts_nothing_leaves_the_run_as_it_was(served, tmp_path, given, said):
    """Given a run, and a --resume that is refused: other nets, other windows, no server. Expect a
    sentence that says what to do, the run's options untouched, and a plain --resume to go on."""
    assert learn(served.address, tmp_path, "--updates", "5", "--hidden", "16").returncode == 0
    config = (tmp_path / "config-learner.toml").read_bytes()
    ended = learn(served.address, tmp_path, "--resume", tmp_path, "--updates", "10", *given)
    assert ended.returncode == 2 and said in ended.stderr, ended.stderr
    assert (tmp_path / "config-learner.toml").read_bytes() == config
    ended = learn(served.address, tmp_path, "--resume", tmp_path, "--updates", "10")
    assert ended.returncode == 0 and "learner step 5" in ended.stdout, ended.stderr
    ended = learn(served.address, tmp_path, "--resume", tmp_path, "--updates", "7")
    assert ended.returncode == 0 and "--updates 7 is the total" in ended.stdout, ended.stdout
    assert "of its time" not in ended.stdout


def test_a_resumed_judge_plays_other_episodes(served, tmp_path):
    """Given a run whose candidates were judged, gone on with. Expect episodes of none of them."""
    judged = ("--solve-at", "1000", "--evaluate-every", "5", "--hidden", "8")
    assert learn(served.address, tmp_path, "--updates", "10", *judged).returncode == 0
    args, settings = parse_train(["--resume", str(tmp_path), "--server", served.address])
    program = Program(args, settings, Stop())
    program.connect()
    assert program.learner.step == 10 and program.judge.candidates == 2
    program.close()
