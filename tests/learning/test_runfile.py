"""run.toml: what is read, what wins, what is refused, and that the resolved copy says the same."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from replay_server import ConfigError
from replay_server.training import options, presets, runfile
from replay_server.training.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
FILE = """
preset = "cartpole"
seed = 3
learning-rate = 1e-3
hidden = [64, 32]
clip_norm = "none"
minutes = 2
solve_at = 480

[learner]
updates = 20_000
batch = 64

[actor]
number = 2
"""


def everyone(env_id, algorithm):
    """Stands for replay_server.training.envs.check_env where no environment is asked for."""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return path


def parsed(cls, program, *argv):
    return options.parse(cls, program, program, "A program.", list(map(str, argv)), everyone)


def test_each_program_takes_its_own(file):
    """Given one file for three. Expect shared options everywhere, sections where they belong."""
    train, learning = parsed(options.Train, "learner", "--config", file)
    actor, acting = parsed(options.Actor, "actor", "--config", file)
    demo, _ = parsed(options.Demo, "demo", "--config", file)
    assert (train.seed, actor.seed, demo.seed) == (3, 3, 3)
    assert (train.updates, train.solve_at, actor.number, demo.minutes) == (20_000, 480.0, 2, 2.0)
    assert (learning.batch, acting.batch) == (64, PRESETS["cartpole"].batch)
    for settings in (learning, acting):
        assert (settings.learning_rate, settings.hidden) == (1e-3, (64, 32))
        assert settings.clip_norm is None


def test_flags_win_over_the_file_and_the_file_over_the_preset(file):
    """Given one value three ways. Expect flag, then section, then shared, then preset."""
    args, settings = parsed(
        *(options.Train, "learner", "--config", file, "--seed", 7, "--batch", 16),
        *("--clip-norm", "2.5"),
    )
    assert (args.seed, settings.batch, settings.clip_norm) == (7, 16, 2.5)
    assert (args.updates, settings.learning_rate) == (20_000, 1e-3)
    assert settings.n == PRESETS["cartpole"].n


def test_the_resolved_copy_says_the_same(file, tmp_path):
    """Given options from file and flags. Expect them all again from the copy, and nothing else."""
    given = ["--config", file, "--batch", 16, "--run", tmp_path / "run", "--reward-clip", "0.5"]
    first = parsed(options.Train, "learner", *given)
    options.begin_run("learner", "learner train", *first).close()
    copy = tmp_path / "run" / "config-learner.toml"
    assert parsed(options.Train, "learner", "--config", copy) == first
    text = copy.read_text()
    for name in (*runfile.saved(first[0]), *vars(first[1])):
        assert f"\n{name} = " in text, f"{name} is not in the copy"
    assert "replay-server learner train --config" in text and "commit " in text
    from learner import checkpoint  # here: all else does without torch and the compiled core
    from learner.__main__ import parse_train

    checkpoint.save(tmp_path / "run" / "checkpoints", "step-000000001", {}, {"learner_step": 1})
    again, settings = parse_train(["--resume", str(tmp_path / "run"), "--n", "5"])
    assert (settings.n, settings.batch, again.updates) == (5, 16, 20_000)
    assert again.run == again.resume == tmp_path / "run"


def test_an_option_has_one_type_everywhere():
    """Given the programs' options. Expect one name to mean one type, or a copy of one program's
    could not be read by the others."""
    types: dict[str, set[str]] = {}
    for classes in options.PROGRAMS.values():
        for cls in classes:
            for field in dataclasses.fields(cls):
                types.setdefault(field.name, set()).add(str(field.type))
    assert {name: each for name, each in types.items() if len(each) > 1} == {}


MISTAKES = [
    ("lr = 1", "no option 'lr'; the nearest is 'learning_rate'"),
    ("learning_rat = 1", "no option 'learning_rat'; the nearest is 'learning_rate'"),
    ("learning_rate = 'fast'", 'learning_rate is "fast"; expected a number'),
    ("batch = 2.5", "batch is 2.5; expected an integer"),
    ("batch = true", "batch is true; expected an integer"),
    ("life_loss = 1", "life_loss is 1; expected true or false"),
    ("env = 4", "env is 4; expected a text"),
    ("hidden = [64, 'a']", "expected integers such as [128, 128]"),
    ("gamma = 'none'", 'gamma is "none"; expected a number'),
    ("clip_norm = 'no'", 'expected a number, or "none"'),
    ("batch = 0", "batch is 0; expected at least 1"),
    ("batch = 65_537", "batch is 65537; expected at most 65,536"),
    ("hidden = [0]", "hidden is [0]; expected sizes of at least 1"),
    ("hidden = [64, -4]", "hidden is [64, -4]; expected sizes of at least 1"),
    ("seed = -1", "seed is -1; expected a whole number from 0 to 4,294,967,295"),
    ("evaluate_every = 0", "evaluate_every is 0; expected a whole number of at least 1"),
    ("solve_at = nan", "solve_at is nan; expected a number that is finite"),
    ("checkpoint_seconds = -1.0", "checkpoint_seconds is -1.0; expected a number from 0"),
    ("patience = nan", "patience is nan; expected a number from 0"),
    ("checkpoints_keep = -1", "checkpoints_keep is -1; expected a whole number of at least 0"),
    ("learning_rate = nan", "learning_rate is nan; expected a number above 0"),
    ("clip_norm = -1.0", "clip_norm is -1.0; expected a number above 0"),
    ("learning_rate = 1e39", "learning_rate is 1e+39; expected a number above 0, 3.4e+38 at most"),
    ("reward_clip = inf", "reward_clip is inf; expected a number above 0, 3.4e+38 at most"),
    ("hidden = [16_385]", "hidden is [16385]; expected sizes of at least 1, 16,384 at most"),
    ("alpha = nan", "alpha is nan; expected 0 to 8"),
    ("alpha = -1.0", "alpha is -1.0; expected 0 to 8"),
    ("mark = nan", "mark is nan; expected -3.40282e+38 to 3.40282e+38"),
    ("beta_steps = -5", "beta_steps is -5; expected at least 0"),
    ("states = -1", "states is -1; expected at least 0"),
    ("gamma = 1.5", "gamma is 1.5; expected 0 to 1"),
    ("preset = 'cartpol'", "no preset 'cartpol'; the nearest is 'cartpole'"),
    ("optimizer = 'adamw'", "no optimizer 'adamw'; the nearest is 'adam'"),
    ("pull-every = 1\npull_every = 2", "pull_every stands there twice"),
    ("resume = 'x'", "no option 'resume'"),
    ("[lerner]\nupdates = 1", "no section [lerner]; the nearest is [learner]"),
    ("[learner]\nupdate = 1", "no option 'update' in [learner]; the nearest is 'updates'"),
    ("[learner]\nminutes = 1", "no option 'minutes' in [learner]"),
    ("[demo]\nminuts = 1", "no option 'minuts' in [demo]; the nearest is 'minutes'"),
    ("[batch]\nx = 1", "'batch' is an option, not a section"),
    ("= 1", "not TOML"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_is_one_sentence(tmp_path, capsys, text, said):
    """Given a typo or a wrong type, also in another program's section. Expect it named, code 2."""
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        parsed(options.Train, "learner", "--config", path)
    lines = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2 and len(lines) == 1, lines
    assert said in lines[0]


def test_nothing_is_started_after_a_mistake(tmp_path):
    """Given a wrong file, a wrong flag, a wrong environment, to each program as a person starts
    it. Expect one sentence, code 2, and no run folder."""
    wrong = tmp_path / "run.toml"
    wrong.write_text("envs = 'eight'\n")
    cases = [
        (("actor", "--config", str(wrong)), "expected an integer"),
        (("learner", "train", "--bach", "3"), "no option --bach; the nearest is --batch"),
        (("deploy", "demo", "--env", "CartPole-v"), "the nearest is 'CartPole-v"),
        (("deploy", "demo", "--transport", "tcp"), "no transport 'tcp'; the nearest is 'udp'"),
        (("deploy", "demo", "--minutes", "-1"), "--minutes -1: say how long to learn at most"),
    ]
    for command, said in cases:
        run = tmp_path / "run"
        done = subprocess.run(
            [sys.executable, "-m", *command, "--run", str(run)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2 and said in done.stderr, (command, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1 and not run.exists()


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("learner", ("train", "--seed", "4294967296"), "seed is 4294967296; expected a whole"),
        ("learner", ("evaluate", ".", "--seed", "-1"), "seed is -1; expected a whole number"),
        ("learner", ("evaluate", ".", "--episodes", "0"), "episodes is 0; expected a whole"),
        ("actor", ("--seed", "-1"), "from 0 to 4,294,967,295"),
        ("actor", ("--number", "-1"), "number is -1; expected a whole number of at least 0"),
        ("deploy", ("demo", "--seed", "5000000000"), "from 0 to 4,294,967,295"),
        ("deploy", ("demo", "--hidden", "0"), "hidden is [0]; expected sizes of at least 1"),
        ("deploy", ("demo", "--minutes", "inf"), "--minutes inf: say how long to learn at most"),
        ("deploy", ("demo", "--config", "wrong.toml"), "number is -1; expected a whole number"),
    ],
)
def test_a_number_out_of_bounds_is_told_before_anything_starts(
    tmp_path, monkeypatch, capsys, program, words, said
):
    """Given a seed, or another number, that cannot be. Expect the same sentence from every program,
    code 2, and nothing written."""
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[actor]\nnumber = -1\n")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"{program}.__main__").main(list(words))
    lines = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2 and len(lines) == 1 and said in lines[0], lines
    assert list(tmp_path.iterdir()) == [wrong]


def test_the_largest_batch_is_the_protocols():
    """Given the bound of the option. Expect that of the compiled core."""
    from replay_server.batch import BATCH_MAX  # here: all else does without the compiled core

    assert presets.BATCH_MAX == BATCH_MAX


def test_every_kind_of_value_survives_a_file(tmp_path):
    """Given values that need care in TOML. Expect them back as they were."""
    values = {"run": 'a "b" \\ ä\n', "seed": -3, "hidden": (1, 2), "clip_norm": None}
    values |= {"learning_rate": 1e-07, "life_loss": True, "gamma": 1.0}
    path = tmp_path / "run.toml"
    runfile.write(path, "two\nlines", values, demo={"minutes": 1e9})
    read = runfile.load(path, options.PROGRAMS)
    assert read["learner"] == {**values, "run": Path(values["run"])}
    assert read["demo"]["minutes"] == 1e9 and "minutes" not in read["actor"]
    with pytest.raises(ConfigError, match="No such file"):
        runfile.load(tmp_path / "none", options.PROGRAMS)
