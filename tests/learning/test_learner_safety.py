"""What a learner must survive, or end from with a sentence: numbers that are not finite, a full
disk, a folder that holds another run. The program runs as a person starts it."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from given import batch_from

from actor.__main__ import Program
from actor.__main__ import main as actor_main
from actor.inference import Inference
from deploy.table import table_for
from learner import checkpoint, optimizing
from learner.__main__ import Program as LearnerProgram
from learner.__main__ import main as learner_main
from learner.__main__ import parse_train
from learner.learner import Learner
from replay_server import Client, Column, MinSize, NStep, SamplesPerInsert, Server, Spec, Table
from replay_server.errors import RowsDropped
from replay_server.training import options
from replay_server.training.contact import Stop
from replay_server.training.envs import check_playable
from replay_server.training.networks import network_from
from replay_server.training.presets import CARTPOLE, changed
from replay_server.training.runs import Run
from replay_server.training.weights import WeightsError, to_bytes

SPEC = Spec(
    (
        Column("observation", np.float32, (4,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)
SETTINGS = changed(CARTPOLE, hidden=(8,), n=2)


def batch_of(rng, spoilt=None):
    """A batch of eight items as a Batch shows it; `spoilt`: this item's reward is NaN."""
    data = {
        "observation": rng.standard_normal((8, 2, 4)).astype(np.float32),
        "action": rng.integers(0, 2, (8, 1)),
        "reward": rng.standard_normal((8, 2)).astype(np.float32),
        "terminated": rng.random((8, 2)) < 0.2,
    }
    if spoilt is not None:
        data["reward"][spoilt, 0] = np.nan
    return batch_from(data, np.full(8, 2), np.ones(8))


def test_a_checkpoint_is_finite_or_not_written(tmp_path):
    """Given weights of NaN after good ones. Expect WeightsError, and the good one the newest."""
    checkpoint.save(tmp_path, "step-1", {"online/a": torch.ones(3)}, {"learner_step": 1})
    with pytest.raises(WeightsError, match="step-2 was not written: online/b is not finite"):
        wrong = {"online/a": torch.ones(3), "online/b": torch.tensor([1.0, torch.nan])}
        checkpoint.save(tmp_path, "step-2", wrong, {"learner_step": 2})
    assert checkpoint.latest(tmp_path).name == "step-1.json"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-1.json",
        "step-1.safetensors",
    ]


@pytest.mark.parametrize(("keep", "left"), [(0, 5), (2, 2), (9, 5)])
def test_old_checkpoints_go_and_solved_ones_stay(tmp_path, keep, left):
    """Given five checkpoints and a solved one. Expect the newest `keep` of the five, both files."""
    for step in range(5):
        tensors = {"online/a": torch.ones(1)}
        checkpoint.save(tmp_path, f"step-{step:09d}", tensors, {"learner_step": step})
    checkpoint.save(tmp_path, "solved-1", {"online/a": torch.ones(1)}, {"learner_step": 1})
    checkpoint.prune(tmp_path, keep)
    steps = sorted(path.stem for path in tmp_path.glob("step-*.json"))
    assert steps == [f"step-{step:09d}" for step in range(5 - left, 5)]
    assert sorted(path.stem for path in tmp_path.glob("step-*.safetensors")) == steps
    assert (tmp_path / "solved-1.json").exists() and (tmp_path / "solved-1.safetensors").exists()


# -- the program ----------------------------------------------------------------------------------


def fill(client, rows, spoilt=()):
    """Episodes of noise; the observations of `spoilt` rows hold a NaN."""
    rng = np.random.default_rng(7)
    with client.writer("main", finite_observations=False) as writer:
        for row in range(rows):
            observation = rng.standard_normal(4).astype(np.float32)
            observation[0] = np.nan if row in spoilt else observation[0]
            writer.add(
                observation=observation,
                action=int(rng.integers(2)),
                reward=1.0,
                terminated=row % 10 == 9,
                truncated=False,
                final_observation=np.zeros(4, np.float32),
            )


def learn(address, folder, *more, limit=None):
    """`learner train` until it ends by itself; `limit`: the most bytes of one of its files."""

    def limited():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "learner", "train", "--server", address, "--run", folder]
    command += ["--batch", "16", "--min-size", "50", "--no-tensorboard", *more]
    command += ["--checkpoint-seconds", "0.01", "--checkpoints-keep", "3"]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=60, preexec_fn=limited
    )


def play(address, folder, *more):
    """`replay-server actor` until it ends by itself."""
    command = [sys.executable, "-m", "actor", "--server", address, "--run", str(folder)]
    command += ["--env-steps", "200", "--no-tensorboard", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def served():
    """A table of CartPole's columns without a limiter."""
    columns = table_for(CARTPOLE).step
    table = Table("main", step=columns, plan=NStep(3), capacity=20_000, limiter=MinSize(50))
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        fill(client, 300)
        yield client


def test_a_run_is_not_begun_twice_and_keeps_few_checkpoints(served, tmp_path):
    """Given a run that ended. Expect its newest checkpoints only; another start without --resume
    refused, with --resume gone on from."""
    ended = learn(served.address, tmp_path, "--updates", "30")
    assert ended.returncode == 0, ended.stderr
    kept = sorted(path.stem for path in (tmp_path / "checkpoints").glob("step-*.json"))
    assert len(kept) == 3 and kept[-1] == "step-000000030"
    again = learn(served.address, tmp_path, "--updates", "30")
    assert again.returncode == 2
    assert f"go on with --resume {tmp_path}" in again.stderr and "Traceback" not in again.stderr
    resumed = learn(served.address, tmp_path, "--updates", "40", "--resume", tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed from step-000000030" in resumed.stdout + resumed.stderr


def test_a_learner_that_learned_nothing_leaves_its_folder_free(served, tmp_path, capsys):
    """Given a learner that met no server, and one without its device. Expect the same command to
    start again with the same folder, and to be refused once it has learned."""
    start = ["train", "--run", str(tmp_path), "--no-tensorboard", "--patience", "0"]
    for _ in range(2):
        assert learner_main([*start, "--server", "udp://127.0.0.1:9"]) == 2
        assert "no server answered" in capsys.readouterr().err
        assert learner_main([*start, "--device", "cud"]) == 2
        assert "device 'cud'; expected" in capsys.readouterr().err
    ended = learn(served.address, tmp_path, "--updates", "5")
    assert ended.returncode == 0, ended.stderr
    with pytest.raises(SystemExit):
        learner_main(start)
    assert f"go on with --resume {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gradients tcp://127.0.0.1:0 --central tcp://127.0.0.1:9", "a learner has one of them"),
        ("--central tcp://127.0.0.1:9", "--central: such learners are numbered: say --number 1"),
        ("--number 1", "--number 1: is for learners with --central"),
    ],
)
def test_a_learner_of_two_minds_is_refused(words, said, tmp_path, capsys):
    """Given options of which one takes another. Expect a sentence, and nothing begun."""
    with pytest.raises(SystemExit) as ended:
        learner_main(["train", "--run", str(tmp_path / "run"), *words.split()])
    assert ended.value.code == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_rank_that_cannot_meet_the_others_says_so(tmp_path):
    """Given WORLD_SIZE of a shell that torchrun left behind, and no address to meet at. Expect what
    it waits for, then one sentence that names the variable, and exit code 2."""
    command = [sys.executable, "-m", "replay_server", "learner", "train", "--run", str(tmp_path)]
    variables = {**os.environ, "WORLD_SIZE": "2", "RANK": "0"}
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        variables.pop(name, None)
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2, ended
    assert "WORLD_SIZE=2 makes this one of 2 learners" in ended.stdout
    assert "unset WORLD_SIZE for a learner of its own" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_full_disk_is_a_sentence(served, tmp_path):
    """Given files that cannot grow past 32 KiB, less than a checkpoint. Expect training to its end,
    one sentence there, exit code 2, and no half a checkpoint."""
    ended = learn(served.address, tmp_path, "--updates", "50", limit=32 << 10)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 2 and "File too large" in said and "Traceback" not in said, said
    folder = tmp_path / "checkpoints"
    assert str(tmp_path) in said.splitlines()[-1], said
    assert not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT], ids=["disk", "quota"])
def test_a_full_disk_costs_the_oldest_checkpoint(tmp_path, monkeypatch, full):
    """Given a disk, or a user's share of one, with room for two checkpoints. Expect the oldest to
    make room for each further one; where the only one is left, its own error, and that one kept."""
    learner = Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=3)
    args = SimpleNamespace(run=tmp_path, seed=3, checkpoints_keep=10)
    said = []
    progress = SimpleNamespace(say=said.append)
    program = SimpleNamespace(learner=learner, spec=SPEC, args=args, progress=progress)
    program.judge, program.candidates = None, 0
    folder, room, real = tmp_path / "checkpoints", [2], checkpoint._write

    def write(path, data):
        if len(list(folder.glob("*.json"))) >= room[0]:
            raise OSError(full, "No space left on device", str(path))
        real(path, data)

    monkeypatch.setattr(checkpoint, "_write", write)
    for step in range(4):
        LearnerProgram.save(program, f"step-{step}")
    assert sorted(path.stem for path in folder.glob("*.json")) == ["step-2", "step-3"]
    assert len(said) == 2 and "deleted the oldest" in said[0]
    room[0] = 0
    with pytest.raises(OSError, match="No space left"):
        LearnerProgram.save(program, "step-4")
    assert [path.stem for path in folder.glob("*.json")] == ["step-3"]


def test_evaluate_says_what_it_judges(served, tmp_path, capsys):
    """Given a run that is not solved, and one that began nothing. Expect a sentence each."""
    assert learn(served.address, tmp_path, "--updates", "5", "--hidden", "8").returncode == 0
    assert learner_main(["evaluate", str(tmp_path), "--episodes", "1"]) == 0
    told = capsys.readouterr().out
    assert "no whole solved checkpoint yet: judging step-000000005" in told, told
    assert "step-000000005.json: mean return" in told


def test_a_checkpoint_of_another_optimizer_is_refused_with_nothing_changed():
    """Given Adam's state for a learner with RMSprop. Expect WeightsError, and its weights kept."""
    wrote = Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=3)
    wrote.learn(batch_of(np.random.default_rng(3)))
    other = Learner(spec=SPEC, actions=2, preset=changed(SETTINGS, optimizer="rmsprop"), seed=4)
    before = other.weights()
    with pytest.raises(WeightsError, match="another optimizer"):
        other.restore(*wrote.state())
    assert other.weights() == before


def test_a_steady_gradient_leaves_rmsprops_weights_finite():
    """Given gradients that do not change, whose variance is rounded to below 0 at times. Expect
    finite weights, and the very ones of torch where nothing was rounded."""
    settings = changed(SETTINGS, optimizer="rmsprop")
    for seed in range(5):
        torch.manual_seed(seed)
        steady, gradient = torch.nn.Linear(50, 1), torch.randn(1, 50)
        optimizer = optimizing.optimizer_from(settings, steady)
        for _ in range(500):
            steady.weight.grad, steady.bias.grad = gradient.clone(), torch.tensor([0.37 + seed])
            optimizer.step()
        assert all(torch.isfinite(part).all() for part in steady.parameters()), f"seed {seed}"
    ours, theirs = torch.nn.Linear(50, 1), torch.nn.Linear(50, 1)
    theirs.load_state_dict(ours.state_dict())
    pair = [(ours, optimizing.optimizer_from(settings, ours))]
    options = {"lr": settings.learning_rate, "eps": settings.optimizer_epsilon}
    pair.append((theirs, torch.optim.RMSprop(theirs.parameters(), 0.95, 0.95, centered=True)))
    pair[1][1].param_groups[0].update(options)
    for _ in range(50):
        gradient = torch.randn(1, 50)
        for network, optimizer in pair:
            network.weight.grad, network.bias.grad = gradient.clone(), gradient[0, :1].clone()
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight) and torch.equal(ours.bias, theirs.bias)


def test_weights_that_are_not_finite_are_not_published():
    """Given a net with a NaN. Expect WeightsError that names tensor and step."""
    learner = Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=3)
    learner.step = 7
    name, tensor = next(iter(learner.acting.state_dict().items()))
    tensor.view(-1)[0] = np.nan
    with pytest.raises(WeightsError, match=f"learner step 7: {name!r} is not finite"):
        learner.weights()


def test_an_actor_refuses_weights_that_are_not_finite():
    """Given bytes with a NaN, of somebody else's making. Expect WeightsError, its own kept."""
    network = network_from("mlp", SPEC, 2, stack=1, hidden=(8,), states=0, seed=3)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    spoilt = {name: torch.full_like(tensor, np.inf) for name, tensor in before.items()}
    document = {"learner": json.dumps({"learner_step": 5})}
    with pytest.raises(WeightsError, match=r"learner step 5: .* is not finite"):
        Inference(network).load(safetensors.torch.save(spoilt, document))
    assert all(torch.equal(before[name], part) for name, part in network.state_dict().items())


def test_a_resumed_learner_takes_its_decay_from_its_options():
    """Given a checkpoint of one decay and a learner of another. Expect the learner's own."""
    learners = [
        Learner(spec=SPEC, actions=2, preset=changed(SETTINGS, **options), seed=3)
        for options in (
            {"optimizer": "rmsprop", "rmsprop_decay": 0.95},
            {"optimizer": "rmsprop", "rmsprop_decay": 0.5},
        )
    ]
    learners[0].learn(batch_of(np.random.default_rng(3)))
    learners[1].restore(*learners[0].state())
    assert [group["alpha"] for group in learners[1].optimizer.param_groups] == [0.5]


def test_another_n_than_the_tables_is_refused_at_connect(served, tmp_path):
    """Given a table of NStep(3), a learner and an actor of n = 5. Expect both numbers, code 2."""
    learner = learn(served.address, tmp_path / "l", "--updates", "5", "--n", "5")
    actor = play(served.address, tmp_path / "a", "--n", "5")
    for ended in (learner, actor):
        assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
        assert "n = 3" in ended.stderr and "n = 5" in ended.stderr, ended.stderr


def test_another_environment_than_the_tables_publishes_nothing(served, tmp_path):
    """Given a table of CartPole's steps, a learner and an actor told Acrobot. Expect one sentence
    with the column and both shapes, code 2, and neither weights nor steps on the server."""
    served.ping()
    before, steps = served.weights_version, served.stats().counters["steps_committed"]
    ended = learn(served.address, tmp_path / "l", "--updates", "5", "--env", "Acrobot-v1")
    played = play(served.address, tmp_path / "a", "--env", "Acrobot-v1")
    for program in (ended, played):
        assert program.returncode == 2 and "Traceback" not in program.stderr, program.stderr
        assert "'observation' is float32[4] there" in program.stderr, program.stderr
        assert "'Acrobot-v1' makes float32[6]" in program.stderr and "--env" in program.stderr
    served.ping()
    assert served.weights_version == before
    assert served.stats().counters["steps_committed"] == steps


@pytest.mark.parametrize("program", ["actor-0", "learner"])
def test_a_program_of_a_run_is_not_started_beside_itself(served, tmp_path, program):
    """Given an actor, or a learner, of a run that lives. Expect a second one refused by its
    process id, with what to say instead, before it writes anything; started once that one ended."""
    alive = Run(tmp_path, program, {}, tensorboard=False)
    lines = (tmp_path / "metrics.jsonl").read_bytes()
    start = play if program == "actor-0" else learn
    more = ("--no-ledger",) if program == "actor-0" else ("--updates", "5")
    second = start(served.address, tmp_path, *more)
    assert second.returncode == 2 and "Traceback" not in second.stderr, second.stderr
    assert f"runs already (process {os.getpid()})" in second.stderr, second.stderr
    assert ("--actors 2 --number 1;" in second.stderr) == (program == "actor-0")
    other = Run(tmp_path, "actor-1", {}, tensorboard=False)
    second = start(served.address, tmp_path, *more)
    assert ("--actors 3 --number 2;" in second.stderr) == (program == "actor-0"), second.stderr
    other.close()
    (tmp_path / "metrics.jsonl").write_bytes(lines)
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines
    assert not (tmp_path / f"config-{program}.toml").exists()
    alive.close()
    third = start(served.address, tmp_path, *more)
    assert third.returncode == 0, third.stderr


def test_an_actor_that_is_held_back_stops_when_it_is_asked_to(
    tmp_path, monkeypatch, capsys, recwarn
):
    """Given no learner, a limiter that holds the actor back, a signal then. Expect code 0, and a
    sentence with what was not let in."""
    monkeypatch.setattr("actor.__main__.WEIGHTS_WAIT_S", 0.0)
    real = Program.say

    def say(program, sentence):
        real(program, sentence)
        if "held back by the table's limiter" in sentence:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Program, "say", say)
    limiter = SamplesPerInsert(8.0, 64, 600.0)
    table = Table("main", step=SPEC, plan=NStep(3), capacity=20_000, limiter=limiter)
    with Server([table], "udp://127.0.0.1:0") as server:
        assert actor_main(["--run", str(tmp_path), "--server", server.address]) == 0
    told = capsys.readouterr()
    assert re.search(r"actor 0: stopped; \d+ rows were not let in by the limiter", told.out)
    assert told.err == ""
    assert [str(each.message) for each in recwarn if each.category is RowsDropped] == []


def test_an_actor_stopped_after_its_server_says_what_was_not_acknowledged(
    tmp_path, monkeypatch, capsys
):
    """Given a server that ends, a step after it, then a signal. Expect code 0, and how many steps
    nobody acknowledged."""
    monkeypatch.setattr("actor.__main__.WEIGHTS_WAIT_S", 0.0)
    table = Table("main", step=SPEC, plan=NStep(3), capacity=20_000)
    server = Server([table], "udp://127.0.0.1:0")

    def log(program):
        server.close()
        program.actor.step()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Program, "log", log)
    assert actor_main(["--run", str(tmp_path), "--server", server.address]) == 0
    told = capsys.readouterr()
    last = told.out.strip().splitlines()[-1]
    assert re.search(r"actor 0: stopped; [1-9]\d* rows were not acknowledged: ", last), told.out
    assert told.err == ""


def test_an_actor_stopped_with_its_server_says_what_the_limiter_held(tmp_path, monkeypatch, capsys):
    """Given an actor that the limiter holds back, a server that ends, and a signal. Expect code 0,
    what was not let in, and no advice for who writes programs."""
    monkeypatch.setattr("actor.__main__.WEIGHTS_WAIT_S", 0.0)
    limiter = SamplesPerInsert(8.0, 64, 600.0)
    table = Table("main", step=SPEC, plan=NStep(3), capacity=20_000, limiter=limiter)
    server, real = Server([table], "udp://127.0.0.1:0"), Program.say

    def say(program, sentence):
        real(program, sentence)
        if "held back by the table's limiter" in sentence:
            server.close()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Program, "say", say)
    assert actor_main(["--run", str(tmp_path), "--server", server.address]) == 0
    told = capsys.readouterr()
    last = told.out.strip().splitlines()[-1]
    assert re.search(r"actor 0: stopped; [1-9]\d* rows were not let in by the limiter", last)
    assert "open another" not in told.out and "call it again" not in told.out, told.out
    assert told.err == ""


def gap(parse, program_of, folder, again, capsys):
    """What a program says that meets a server, works, and meets it `again` after a gap."""
    described = Table("main", step=SPEC, plan=NStep(3), capacity=20_000, limiter=MinSize(5))
    server = Server([described], "udp://127.0.0.1:0")
    words = ["--run", str(folder), "--server", server.address, "--no-tensorboard", "--hidden", "8"]
    program = program_of(*parse(words), Stop())
    try:
        program.connect()
        with Client(server.address) as client:
            fill(client, 30)
        yield program
        if again == "empty":
            url = server.address
            server.close()
            server = Server([described], url)
        program.close_client()
        capsys.readouterr()
        program.connect()
        yield capsys.readouterr().out.strip()
    finally:
        program.close()
        server.close()


AGAIN = {
    "empty": (
        "actor 0: the server is back, and empty: 8 rows it acknowledged are gone; 3 more were on "
        "their way and are not sent again",
        "learner: the server is back, and empty: the 30 items it last held are gone; the "
        "weights are published there anew, and training goes on from learner step 0 once actors "
        "have brought new items",
    ),
    "the same": (
        "actor 0: the server answers again, and holds the 8 rows it acknowledged; 3 more were on "
        "their way and are not sent again",
        "learner: the server answers again, and has kept what it held: 30 items",
    ),
}


@pytest.mark.parametrize("again", AGAIN)
def test_after_a_gap_actor_and_learner_say_what_the_server_still_has(
    tmp_path, monkeypatch, capsys, again
):
    """Given a server that comes back empty, or is the same. Expect one line of each program that
    says so and counts."""
    monkeypatch.setattr("actor.__main__.WEIGHTS_WAIT_S", 0.0)

    def actor(words):
        return options.parse(options.Actor, "actor", "actor", "", words, check_playable)

    steps = gap(actor, Program, tmp_path, again, capsys)
    program = next(steps)
    program.actor.step()
    program.actor.writer.flush()
    state = program.actor.writer.state()
    monkeypatch.setattr(
        program.actor.writer, "state", lambda: dataclasses.replace(state, unacknowledged=3)
    )
    program.count_lost()
    assert next(steps) == AGAIN[again][0]
    steps.close()

    steps = gap(parse_train, LearnerProgram, tmp_path, again, capsys)
    program = next(steps)
    program.log(None)
    assert next(steps) == AGAIN[again][1]
    steps.close()


@pytest.mark.filterwarnings("error")
def test_a_learner_that_ends_after_its_server_says_no_more_than_that(served, tmp_path, capsys):
    """Given priorities under way when the server ends, and the learner with it. Expect no warning
    with a line of the program's source: the loss of contact was told."""
    table = Table("main", step=SPEC, plan=NStep(3), capacity=20_000, limiter=MinSize(5))
    server = Server([table], "udp://127.0.0.1:0")
    with Client(server.address) as client:
        fill(client, 30)
    words = ["--run", str(tmp_path), "--server", server.address, "--no-tensorboard"]
    program = LearnerProgram(*parse_train(words), Stop())
    program.connect()
    batch = program.client.sample("main", 4)
    server.close()
    program.client.update_priorities("main", batch, np.ones(4), wait=False)
    program.close_client()
    program.close()
    assert program.client is None and capsys.readouterr().err == ""


def test_weights_that_do_not_fit_are_left_out_and_told_once(tmp_path, capsys):
    """Given weights of three actions for an actor of two, published twice. Expect one sentence,
    the actor's own weights kept, both counted; then weights that fit taken."""
    settings, arguments = table_for(CARTPOLE), ["--run", str(tmp_path), "--no-tensorboard"]
    with Server([settings], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        arguments += ["--server", server.address, "--hidden", "8", "--envs", "1"]
        wrong = Learner(spec=SPEC, actions=3, preset=SETTINGS, seed=3).weights()
        client.publish_weights(wrong)
        args, chosen = options.parse(options.Actor, "actor", "actor", "", arguments, check_playable)
        program = Program(args, chosen, Stop())
        try:
            program.connect()
            own = to_bytes(program.actor.inference.network.state_dict(), 0)
            client.publish_weights(wrong)
            program.client.ping()
            program.actor.load(program.pull())
            assert to_bytes(program.actor.inference.network.state_dict(), 0) == own
            assert (program.version, program.refused, program.actor.learner_step) == (2, 2, -1)
            program.actor.step()
            client.publish_weights(Learner(spec=SPEC, actions=2, preset=SETTINGS, seed=3).weights())
            program.client.ping()
            program.actor.load(program.pull())
            assert (program.version, program.refused, program.actor.learner_step) == (3, 2, 0)
        finally:
            program.close()
    (told,) = (line for line in capsys.readouterr().out.splitlines() if "do not fit" in line)
    assert "weights 1 do not fit" in told and "plays on" in told, told
    assert "[3" in told and "[2" in told and "expected" in told, told


def test_a_nan_in_the_table_ends_the_learner_before_it_learns_it(served, tmp_path):
    """Given one observation of NaN among good ones. Expect a sentence that names keys, exit code 2,
    and a newest checkpoint that is finite."""
    fill(served, 100, spoilt=(50,))
    ended = learn(served.address, tmp_path, "--updates", "5000")
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    assert "nothing was learned from this batch: columns observation" in ended.stderr
    newest = checkpoint.latest(tmp_path / "checkpoints")
    if newest is not None:  # the very first batch may hold it
        tensors, document = checkpoint.load(newest)
        assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
        assert json.loads(newest.read_text())["learner_step"] == document["learner_step"]


def test_a_learner_that_is_not_alone_says_so_once():
    """Given versions of the server that rise by one, and then by more. Expect one sentence at the
    first that did; none behind a server that came back empty, be that seen before or not."""
    versions, said = iter([7, 8, 3, 4, 7, 9, 1, 2]), []
    program = SimpleNamespace(
        version=0,
        alone=True,
        leads=True,
        args=SimpleNamespace(server="udp://host:1"),
        progress=SimpleNamespace(say=said.append),
        client=SimpleNamespace(publish_weights=lambda _: next(versions)),
        learner=SimpleNamespace(weights=lambda: b""),
    )
    program.incarnation = 1
    for count, met in ((0, 1), (0, 1), (0, 2), (0, 2), (1, 2), (1, 2)):
        program.client.incarnation = met
        LearnerProgram.publish(program)
        program.incarnation = met
        assert len(said) == count
    program.version, program.alone = 0, True  # as is_another leaves the first of them
    LearnerProgram.publish(program)
    LearnerProgram.publish(program)
    assert len(said) == 1 and "another program publishes weights at udp://host:1" in said[0]
