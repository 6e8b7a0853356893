"""A learner's run that is gone on with: what it takes over, and what it leaves as it was."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from test_learner_safety import SETTINGS, SPEC, batch_of, learn, served

from deploy.table import table_for
from learner import checkpoint
from learner.__main__ import Program, main, parse_train
from learner.learner import Learner
from replay_server import Server
from replay_server.training.contact import Stop
from replay_server.training.presets import changed, preset

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


@pytest.mark.parametrize("name", ["gradients", "turns"])
def test_a_learner_that_had_others_is_not_resumed_without_them_unasked(served, tmp_path, name):
    """Given a run whose learner kept weights for others, or took turns with actors, as its options
    say. Expect a --resume refused that says what to give; and with that the run to go on alone."""
    assert learn(served.address, tmp_path, "--updates", "5").returncode == 0
    config = tmp_path / "config-learner.toml"
    config.write_text(config.read_text().replace(f'{name} = ""', f'{name} = "tcp://127.0.0.1:9"'))
    ended = learn(served.address, tmp_path, "--resume", tmp_path, "--updates", "7")
    assert ended.returncode == 2 and f"or --{name} '' for one that" in ended.stderr, ended.stderr
    ended = learn(served.address, tmp_path, "--resume", tmp_path, "--updates", "7", f"--{name}", "")
    assert ended.returncode == 0 and "learner: step 7;" in ended.stdout, ended.stdout


def test_a_resumed_judge_plays_other_episodes(served, tmp_path):
    """Given a run whose candidates were judged, gone on with. Expect episodes of none of them."""
    judged = ("--solve-at", "1000", "--evaluate-every", "5", "--hidden", "8")
    assert learn(served.address, tmp_path, "--updates", "10", *judged).returncode == 0
    args, settings = parse_train(["--resume", str(tmp_path), "--server", served.address])
    program = Program(args, settings, Stop())
    program.connect()
    assert program.learner.step == 10 and program.judge.candidates == 2
    program.close()


def test_a_run_gone_on_with_elsewhere_holds_what_it_took_over(served, tmp_path):
    """Given --resume A --run B that is stopped before its first update. Expect B to go on by itself
    from A's step, with A's count of candidates, whatever --evaluate-every is now."""
    a, b = tmp_path / "a", tmp_path / "b"
    judged = ("--solve-at", "1000", "--evaluate-every", "5", "--hidden", "8")
    assert learn(served.address, a, "--updates", "10", *judged).returncode == 0
    more = ["--resume", str(a), "--run", str(b), "--updates", "50"]
    program = Program(*parse_train([*more, "--evaluate-every", "20"]), Stop())
    program.connect()
    program.log(None)  # as while it waits for a batch
    program.close()
    assert parse_train(more)[0].run == b  # it learned nothing: the same may be said again
    args, settings = parse_train(["--resume", str(b)])
    assert args.evaluate_every == 20
    program = Program(args, settings, Stop())
    program.connect()
    assert program.learner.step == 10 and program.judge.candidates == 2
    program.close()


NOBODY = ("--server", "udp://127.0.0.1:9", "--patience", "0.1")


@pytest.mark.parametrize("way", ["no server", "nothing to do", "other nets"])
def test_a_run_gone_on_with_elsewhere_that_starts_nothing_holds_what_it_took_over(
    served, tmp_path, way
):
    """Given --resume A --run B that ends before an update, and A gone since. Expect B to go on by
    itself from A's step."""
    a, b = tmp_path / "a", tmp_path / "b"
    assert learn(served.address, a, "--updates", "10", "--hidden", "8").returncode == 0
    given, code, said = {
        "no server": (("--updates", "20", *NOBODY), 2, "no server"),
        "nothing to do": (("--updates", "10"), 0, "nothing is left to do"),
        "other nets": (("--updates", "20", "--hidden", "16"), 2, "leave --hidden"),
    }[way]
    ended = learn(served.address, b, "--resume", a, *given)
    assert ended.returncode == code and said in ended.stdout + ended.stderr, ended.stderr
    a.rename(tmp_path / "gone")
    ended = learn(served.address, b, "--resume", b, "--updates", "15", "--hidden", "8")
    assert ended.returncode == 0 and "learner step 10" in ended.stdout, ended.stdout + ended.stderr
    assert checkpoint.latest(b / "checkpoints").stem == "step-000000015"


def test_a_resume_elsewhere_that_started_nothing_may_be_said_again(served, tmp_path):
    """Given --resume A --run B that met no server. Expect the same command to start, and --resume
    of another run into B to be refused: B holds what A learned."""
    a, other, b = tmp_path / "a", tmp_path / "other", tmp_path / "b"
    for run, seed in ((a, "1"), (other, "2")):
        more = ("--updates", "10", "--hidden", "8", "--seed", seed)
        assert learn(served.address, run, *more).returncode == 0
    again = ("--resume", a, "--updates", "20")
    assert learn(served.address, b, *again, *NOBODY).returncode == 2
    ended = learn(served.address, b, "--resume", other, "--updates", "20")
    assert ended.returncode == 2 and "would be mixed" in ended.stderr, ended.stderr
    ended = learn(served.address, b, *again)
    assert ended.returncode == 0 and "learner step 10" in ended.stdout, ended.stderr


def test_a_run_gone_on_with_has_its_own_options_in_a_folder_that_learned_nothing(served, tmp_path):
    """Given a false start in B with other options, then --resume A --run B that meets no server.
    Expect --resume B to go on with A's; and --resume A --run B as well, once A has pruned what B
    took over."""
    a, b = tmp_path / "a", tmp_path / "b"
    begun = ("--gamma", "0.97", "--hidden", "8", "--checkpoints-keep", "1")
    assert learn(served.address, a, "--updates", "10", *begun).returncode == 0
    assert learn(served.address, b, "--seed", "7", "--hidden", "16", *NOBODY).returncode == 2
    again = ("--resume", a, "--updates", "30", "--gamma", "0.5")
    assert learn(served.address, b, *again, *NOBODY).returncode == 2
    args, settings = parse_train(["--resume", str(b)])
    assert (args.run, args.seed, settings.gamma, settings.hidden) == (b, 1, 0.97, (8,))
    assert learn(served.address, a, "--resume", a, "--updates", "20").returncode == 0
    ended = learn(served.address, b, *again)
    assert ended.returncode == 0 and "learner step 20" in ended.stdout, ended.stderr
    assert parse_train(["--resume", str(b)])[1].gamma == 0.5


def test_a_full_disk_keeps_the_checkpoint_to_go_on_from(tmp_path):
    """Given a damaged checkpoint above a whole one, and an older one. Expect room made of the
    damaged one, then of the oldest, then of none."""
    for step in (100, 400, 500):
        checkpoint.save(tmp_path, f"step-{step:09d}", {}, {"learner_step": step})
    (tmp_path / "step-000000500.safetensors").write_bytes(b"x")
    gone = [checkpoint.make_room(tmp_path) for _ in range(3)]
    assert gone == ["step-000000500", "step-000000100", None]
    assert [path.stem for path in tmp_path.iterdir()] == ["step-000000400"] * 2


@pytest.mark.parametrize("lacks", ["optimizer_groups", "preset", "spec", "learning_rate"])
def test_a_checkpoint_of_another_version_is_one_sentence(served, tmp_path, capsys, lacks):
    """Given a checkpoint that does not state what this version needs. Expect to be told so."""
    assert learn(served.address, tmp_path, "--updates", "10", "--hidden", "8").returncode == 0
    sidecar = checkpoint.latest(tmp_path / "checkpoints")
    document = json.loads(sidecar.read_text())
    del (document if lacks in document else document["preset"])[lacks]
    sidecar.write_text(json.dumps(document))
    assert main(["evaluate", str(tmp_path), "--episodes", "1"]) == 2
    assert f"states no {lacks!r}" in capsys.readouterr().err
    if lacks == "optimizer_groups":
        ended = learn(served.address, tmp_path, "--resume", tmp_path, "--updates", "20")
        assert ended.returncode == 2 and f"states no {lacks!r}" in ended.stderr, ended.stderr


@pytest.mark.parametrize("damaged", [False, True])
def test_a_resume_without_a_whole_checkpoint_is_refused(tmp_path, capsys, damaged):
    """Given a run that met no server, and one whose checkpoint is damaged. Expect one sentence
    that says how to begin, here or elsewhere, and to be true."""
    start = ["--run", str(tmp_path / "a"), "--no-tensorboard", *NOBODY]
    assert main(["train", *start]) == 2
    if damaged:
        (tmp_path / "a" / "checkpoints").mkdir()
        (tmp_path / "a" / "checkpoints" / "step-000000007.json").write_text("{")
    capsys.readouterr()
    for more in ([], ["--run", str(tmp_path / "b")]):
        with pytest.raises(SystemExit) as ended:
            main(["train", "--resume", str(tmp_path / "a"), *more])
        (said,) = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2 and "no whole checkpoint" in said
        assert f"with --run {'a new folder' if damaged else tmp_path / 'a'}," in said
        assert not (tmp_path / "b").exists()
    if damaged:
        with pytest.raises(SystemExit):
            parse_train(start)
        said = capsys.readouterr().err
        assert "another folder with --run" in said and "--resume" not in said, said
    else:
        assert parse_train(start)[0].run == tmp_path / "a"


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
    ended = learn(served.address, tmp_path / "c", *more)
    assert ended.returncode == 0, ended.stderr
    assert checkpoint.latest(tmp_path / "c" / "checkpoints").stem == "step-000000009"


def test_a_file_is_taken_as_the_flags_are_where_a_run_is_gone_on_with(served, tmp_path, capsys):
    """Given a run gone on with by a file: another preset, the folder of a run that has learned, a
    new folder, none. Expect what the flags get: two refusals, that folder, the run's own."""
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    for run, updates in ((a, "6"), (b, "30")):
        assert learn(served.address, run, "--updates", updates, "--hidden", "8").returncode == 0
    file = tmp_path / "run.toml"
    resumed = ["--resume", str(a), "--config", str(file)]
    for text, said in (
        ('preset = "atari"', "was begun as 'cartpole'"),
        ('[learner]\npreset = "atari"', "was begun as 'cartpole'"),
        (f'run = "{b}"', "would be mixed"),
    ):
        file.write_text(text)
        with pytest.raises(SystemExit):
            parse_train(resumed)
        assert said in capsys.readouterr().err, text
    file.write_text(f'preset = "cartpole"\nrun = "{c}"\ngamma = 0.5')
    args, settings = parse_train(resumed)
    assert (args.run, args.preset, settings.gamma) == (c, "cartpole", 0.5)
    assert parse_train([*resumed, "--run", str(tmp_path / "d")])[0].run == tmp_path / "d"
    file.write_text('preset = ""')
    args, _ = parse_train(resumed)
    assert (args.run, args.preset) == (a, "cartpole")


DAMAGES = {
    "tensors": "step-000000020.safetensors is damaged: its SHA-256 is not the one stated",
    "no tensors": "step-000000020's tensors: No such file or directory",
    "document": "it is not what a learner writes",
    "no step": "it states no learner step",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_told_of(tmp_path, damage):
    """Given checkpoints of which the newest and an old one are damaged. Expect one line with the
    newest one's path, what is wrong with it, and which one is taken; the old one is not in it."""
    (tmp_path / "step-000000001.json").write_text("{")
    for step in (10, 20):
        checkpoint.save(tmp_path, f"step-{step:09d}", {}, {"learner_step": step})
    sidecar = tmp_path / "step-000000020.json"
    if damage == "tensors":
        sidecar.with_suffix(".safetensors").write_bytes(b"x")
    elif damage == "no tensors":
        sidecar.with_suffix(".safetensors").unlink()
    elif damage == "document":
        sidecar.write_text("{")
    else:
        document = json.loads(sidecar.read_text())
        sidecar.write_text(json.dumps({**document, "learner_step": None}))
    said = []
    assert checkpoint.latest(tmp_path, said.append) == tmp_path / "step-000000010.json"
    taken = "step-000000010.json is taken instead"
    assert said == [f"{sidecar} is passed over: {DAMAGES[damage]}; {taken}"]


def test_a_run_gone_on_with_says_once_that_its_newest_checkpoint_is_damaged(served, tmp_path):
    """Given such a run, gone on with elsewhere and where it is. Expect the line once each time."""
    a, b = tmp_path / "a", tmp_path / "b"
    assert learn(served.address, a, "--hidden", "8", "--updates", "10").returncode == 0
    damaged = a / "checkpoints" / "step-000000020.json"
    damaged.write_text("{")
    for run in (b, a):
        ended = learn(served.address, run, "--resume", a, "--updates", "10")
        assert ended.returncode == 0, ended.stderr
        (told,) = (line for line in ended.stdout.splitlines() if "passed over" in line)
        assert told.startswith(f"learner: {damaged} is passed over: "), told
        assert "resumed from step-000000010.json: learner step 10" in ended.stdout


def test_evaluate_tells_of_a_damaged_solved_checkpoint(served, tmp_path, capsys):
    """Given a solved checkpoint that is damaged, below the newest. Expect it told of, and the
    newest judged."""
    assert learn(served.address, tmp_path, "--hidden", "8", "--updates", "10").returncode == 0
    solved = tmp_path / "checkpoints" / "solved-5.json"
    solved.write_text("{}")
    assert main(["evaluate", str(tmp_path), "--episodes", "1"]) == 0
    said = capsys.readouterr().out
    why = "it is not what a learner writes; step-000000010.json is taken instead"
    assert f"evaluate: {solved} is passed over: {why}" in said, said
    assert "step-000000010.json: mean return" in said


def test_the_checkpoint_just_written_stays(tmp_path):
    """Given more damaged checkpoints of higher steps than are kept. Expect the one that was written
    last to stay, and the oldest of them to go."""
    for step in range(100, 112):
        (tmp_path / f"step-{step:09d}.json").write_text("damaged")
    (tmp_path / "step-000000007.json").write_text("{}")
    checkpoint.prune(tmp_path, 10, "step-000000007")
    left = sorted(path.stem for path in tmp_path.glob("*.json"))
    assert left == ["step-000000007", *(f"step-{step:09d}" for step in range(103, 112))]


def test_a_state_is_a_copy_of_its_own():
    """Given one learner's state restored by another, then both learning. Expect the state as it
    was, and both to go the same way: neither moves the other's moments."""
    rng = np.random.default_rng(7)
    batches = [batch_of(rng) for _ in range(8)]
    first = Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=3)
    for batch in batches[:3]:
        first.learn(batch)
    tensors, document = first.state()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    second = Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=4)
    second.restore(tensors, document)
    for batch in batches[3:]:
        losses = [learner.learn(batch)[0].loss for learner in (first, second)]
        assert losses[0] == losses[1]
    assert all(torch.equal(tensors[name], kept[name]) for name in kept)


def test_an_actor_whose_steps_are_played_says_what_to_do(tmp_path):
    """Given an actor's run that played all of its steps, begun again. Expect one sentence."""
    settings = changed(preset("cartpole"), env_steps=64)
    with Server([table_for(settings)], "udp://127.0.0.1:0") as server:
        words = ["--server", server.address, "--run", str(tmp_path), "--env-steps", "64"]
        command = [sys.executable, "-m", "replay_server", "actor", *words]
        told = [subprocess.run(command, capture_output=True, text=True) for _ in range(2)]
    assert [done.returncode for done in told] == [0, 0], told
    what = "--env-steps 64 is the total of all actors, and its share is played: nothing is left"
    assert what not in told[0].stdout and what in told[1].stdout
