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


def test_a_resume_that_has_nothing_to_do_changes_nothing(served, tmp_path):
    """Given a run whose --updates are done, resumed with a smaller number and another gamma.
    Expect a sentence, its options and its checkpoint as they were."""
    assert learn(served.address, tmp_path, "--updates", "10", "--hidden", "8").returncode == 0
    kept = {path: path.read_bytes() for path in sorted(tmp_path.glob("checkpoints/*"))}
    config = (tmp_path / "config-learner.toml").read_bytes()
    ended = learn(
        served.address, tmp_path, "--resume", tmp_path, "--updates", "5", "--gamma", "0.5"
    )
    assert ended.returncode == 0 and "nothing is left to do" in ended.stdout, ended.stderr
    assert (tmp_path / "config-learner.toml").read_bytes() == config
    assert {path: path.read_bytes() for path in sorted(tmp_path.glob("checkpoints/*"))} == kept


def test_what_is_learned_is_not_mixed_with_another_runs(served, tmp_path):
    """Given two runs that have learned. Expect --resume of one into the other refused, whoever
    names it; a new folder taken; a preset of other settings refused."""
    a, b = tmp_path / "a", tmp_path / "b"
    for run, updates in ((a, "6"), (b, "30")):
        assert learn(served.address, run, "--updates", updates, "--hidden", "8").returncode == 0
    more = ("--resume", a, "--updates", "9")
    ended = learn(served.address, b, *more)
    assert ended.returncode == 2 and "would be mixed" in ended.stderr, ended.stderr
    ended = learn(served.address, a, *more, "--preset", "atari")
    assert ended.returncode == 2 and "was begun as" in ended.stderr, ended.stderr
    args, _ = parse_train(["--resume", str(a), "--config", str(b / "config-learner.toml")])
    assert args.run == a
    ended = learn(served.address, tmp_path / "c", *more)
    assert ended.returncode == 0, ended.stderr
    assert checkpoint.latest(tmp_path / "c" / "checkpoints").stem == "step-000000009"


def test_the_checkpoint_just_written_stays(tmp_path):
    """Given more damaged checkpoints of higher steps than are kept. Expect the one that was written
    last to stay, and the oldest of them to go."""
    for step in range(100, 112):
        (tmp_path / f"step-{step:09d}.json").write_text("damaged")
    (tmp_path / "step-000000007.json").write_text("{}")
    checkpoint.prune(tmp_path, 10, "step-000000007")
    left = sorted(path.stem for path in tmp_path.glob("*.json"))
    assert left == ["step-000000007", *(f"step-{step:09d}" for step in range(103, 112))]
