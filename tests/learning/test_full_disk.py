"""A disk that fills up while programs run: metrics and checkpoints are left out and told, and no
program ends of it, but for a learner's last checkpoint.

The disk is a limit on the size of this process's files (RLIMIT_FSIZE): a write up to it is taken
in part, as a full disk takes it, and the next one is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_runs import series

from deploy.table import table_for
from learner import checkpoint, program
from learner import judge as solved
from learner.learner import Learner
from replay_server import Client, MinSize, NStep, Server, Table
from replay_server.training import record_file
from replay_server.training.presets import CARTPOLE
from replay_server.training.progress import Progress
from replay_server.training.record_file import RecordFile
from replay_server.training.runs import METRICS, Run, read_metrics

LIMIT = 1 << 20  # bytes of a file, beyond every checkpoint of these programs


@contextlib.contextmanager
def room(size):
    """No file of this process grows beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def lines_of(folder):
    """Every line of the metrics; ValueError where one is broken."""
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


@pytest.mark.parametrize("left", [0, 1, 40])
def test_metrics_that_a_full_disk_does_not_take_are_left_out_and_told(tmp_path, left):
    """Given room for a part of a line, three lines long, then room again. Expect no error, no
    fragment in the file, one sentence at the first of them and one with their number after."""
    said = []
    run = Run(tmp_path, "learner", {}, tensorboard=False, say=said.append)
    run.begin()
    run.log(1, **{"replay/size": 1})
    with room((tmp_path / METRICS).stat().st_size + left):
        for step in (2, 3):
            run.log(step, **{"replay/size": step})
        run.event(event="solved")
        assert run.lines_missing == 3
    assert (
        len(said) == 1 and f"cannot be written ([Errno 27] File too large: '{tmp_path}" in said[0]
    )
    for step in (5, 6):
        run.log(step, **{"replay/size": step})
    run.close()
    lines = lines_of(tmp_path)
    assert [line.get("step", line.get("event")) for line in lines] == ["began", 1, 5, "missing", 6]
    assert lines[3]["lines"] == 3
    assert len(said) == 2 and "written again; 3 lines are missing" in said[1]


def test_a_run_that_ends_on_a_full_disk_says_how_many_lines_are_missing(tmp_path):
    """Given a disk that stays full. Expect the number at the end."""
    said = []
    run = Run(tmp_path, "actor-0", {}, tensorboard=False, say=said.append)
    with room(10):
        run.log(1, **{"replay/size": 1})
        run.close()
    assert len(said) == 2 and said[1].startswith("actor-0: 1 line is missing in")
    assert (tmp_path / METRICS).read_bytes() == b""


@pytest.mark.parametrize("left", [0, 1, 30])
def test_tensorboard_reads_on_behind_what_a_full_disk_did_not_take(tmp_path, left):
    """Given an event file that takes a part of a record. Expect TensorBoard to read every other."""
    said = []
    run = Run(tmp_path, "learner", {}, say=said.append)
    run.log(1, **{"replay/size": 1})
    with room(run.events.path.stat().st_size + left):
        run.log(2, **{"replay/size": 2})
    run.log(3, **{"replay/size": 3})
    run.close()
    assert len(said) == 2 and "1 line is missing" in said[1]
    assert series(tmp_path / "tensorboard" / "learner")["replay/size"] == [(1, 1.0), (3, 3.0)]


def test_a_fragment_is_cut_off_before_another_program_can_write(tmp_path, monkeypatch):
    """Given a write that is taken in part. Expect no other program to get the file until the
    fragment is gone: it would be cut off with it."""
    file = RecordFile(tmp_path / "lines")
    other = os.open(tmp_path / "lines", os.O_RDWR)
    held = []

    def write(descriptor, record, real=os.write):
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(len(record))
        if len(held) == 1:
            return real(descriptor, record[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record_file.os, "write", write)
    with pytest.raises(OSError, match=r"No space left on device: .*lines"):
        file.append(b"a record of ours\n")
    assert held == [17, 12] and os.fstat(other).st_size == 0
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    file.close()


def test_a_line_that_a_kill_cut_short_takes_no_other_with_it(tmp_path):
    """Given a run whose last line is half there. Expect the next life to begin a line of its own,
    and the life after it to know of both."""
    for life in range(3):
        run = Run(tmp_path, "learner", {}, tensorboard=False)
        assert run.life == life
        run.begin()
        run.log(1, **{"replay/size": life})
        run.close()
        with open(tmp_path / METRICS, "a") as file:
            file.write('{"time": 1.0, "prog')
    assert [line["replay/size"] for line in read_metrics(tmp_path) if "step" in line] == [0, 1, 2]


def test_a_progress_line_that_a_full_disk_does_not_take_ends_nothing(tmp_path):
    """Given an output to a full disk. Expect no error; any other error is told."""
    full = os.open("/dev/full", os.O_WRONLY)
    progress = Progress(os.fdopen(full, "w", closefd=False), every_s=0.0)
    progress.show("1 of 3")
    progress.say("the server is back")
    os.dup2(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT), full)  # there is room again
    progress.say("room again")
    assert (tmp_path / "log").read_text().endswith("room again\n")
    os.close(full)
    reader, writer = os.pipe()
    os.close(reader)
    gone = os.fdopen(writer, "w", closefd=False)
    with pytest.raises(BrokenPipeError):
        Progress(gone).say("nobody reads this")
    os.dup2(os.open(os.devnull, os.O_WRONLY), writer)
    gone.close()
    os.close(writer)


# -- the programs ---------------------------------------------------------------------------------

LIMITED = """
import importlib, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
program = importlib.import_module(sys.argv[2])
for name in ("actor.__main__", "learner.program"):  # whichever it is, it logs all the time
    importlib.import_module(name).LOG_S = 0.0
sys.exit(program.main(sys.argv[3:]))
"""


@pytest.fixture(scope="module")
def address():
    """A table of CartPole's columns with enough to draw."""
    columns = table_for(CARTPOLE).step
    table = Table("main", step=columns, plan=NStep(3), capacity=20_000, limiter=MinSize(50))
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        with client.writer("main") as writer:
            for row in range(100):
                writer.add(
                    observation=np.zeros(4, np.float32),
                    action=row % 2,
                    reward=1.0,
                    terminated=False,
                    truncated=False,
                )
        yield server.address


PROGRAMS = {
    "actor": ("actor.__main__", ["--env-steps", "200"]),
    "learner": ("learner.__main__", ["train", "--updates", "20", "--batch", "16", "--hidden", "8"]),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_full_disk_ends_neither_play_nor_training(address, tmp_path, program):
    """Given no room for a line of scalars. Expect the program to do all it was asked, one sentence
    at the first line, one at the end, and a file of whole lines."""
    module, options = PROGRAMS[program]
    other = json.dumps({"program": "other", "text": ""})
    text = other.replace('""', f'"{"x" * (LIMIT - len(other) - 300)}"') + "\n"
    (tmp_path / METRICS).write_text(text)
    command = [sys.executable, "-c", LIMITED, str(LIMIT), module, *options]
    command += ["--server", address, "--run", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert sum("metrics cannot be written" in line for line in said) == 1, said
    assert sum("missing in" in line for line in said) == 1, said
    assert [line.get("event") for line in lines_of(tmp_path)] == [None, "began", "finished"]
    if program == "learner":
        assert (tmp_path / "checkpoints" / "step-000000020.json").exists()


FULL_FOR_A_WHILE = """
import resource, sys
import learner.__main__ as program
begin, end, hard = int(sys.argv[1]), int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
between = program.Program.between_updates
def limited(self, update):
    step = self.learner.step
    room = 4096 if begin <= step < end else hard
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    between(self, update)
program.Program.between_updates = limited
sys.exit(program.main(sys.argv[3:]))
"""


def learn_on_a_disk_full_from(begin, end, address, folder):
    """A learner that writes a checkpoint after each of 20 updates, none of those from `begin`."""
    command = [sys.executable, "-c", FULL_FOR_A_WHILE, str(begin), str(end), "train"]
    command += ["--server", address, "--run", str(folder), "--updates", "20", "--batch", "16"]
    command += ["--hidden", "8", "--checkpoint-seconds", "0", "--checkpoints-keep", "0"]
    return subprocess.run(
        [*command, "--no-tensorboard"], capture_output=True, text=True, timeout=60
    )


def steps_kept(folder):
    """The learner steps of the checkpoints; no other file may lie there."""
    steps = sorted(int(path.stem[5:]) for path in (folder / "checkpoints").glob("*.json"))
    assert len(list((folder / "checkpoints").iterdir())) == 2 * len(steps)
    return steps


def test_checkpoints_that_a_full_disk_does_not_take_are_left_out(address, tmp_path):
    """Given a disk that is full between two of a learner's periods. Expect training to its end, the
    checkpoints before it kept, and a sentence at the first that is left out and at the next one."""
    done = learn_on_a_disk_full_from(5, 15, address, tmp_path)
    said = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    left_out = [line for line in said if "no checkpoint can be written" in line]
    assert len(left_out) == 1 and "step-000000005.safetensors" in left_out[0], said
    again = [line for line in said if "written again: step-000000015; 10 were left out" in line]
    assert len(again) == 1, said
    assert steps_kept(tmp_path) == [1, 2, 3, 4, *range(15, 21)]


@pytest.mark.parametrize("keep", [0, 3])
def test_a_full_disk_costs_no_checkpoint_that_is_to_be_kept(tmp_path, monkeypatch, keep):
    """Given room for two checkpoints and a third. Expect the oldest to go, by its name, where only
    some are kept; where all are, the third to be refused."""
    folder, said = tmp_path / "checkpoints", []

    def save(_, __, ___, run, name, candidates):
        if len(list(folder.glob("*.json"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        checkpoint.save(folder, name, {"w": torch.zeros(1)}, {"learner_step": 1})

    folder.mkdir()
    monkeypatch.setattr(program, "save", save)
    args = SimpleNamespace(run=tmp_path, seed=0, checkpoints_keep=keep)
    progress = SimpleNamespace(say=said.append)
    training = SimpleNamespace(args=args, learner=None, spec=None, progress=progress)
    training.judge, training.candidates = None, 0
    for number in (1, 2):
        program.Program.save(training, f"step-00000000{number}")
    with contextlib.nullcontext() if keep else pytest.raises(OSError, match="No space left"):
        program.Program.save(training, "step-000000003")
    assert steps_kept(tmp_path) == ([2, 3] if keep else [1, 2])
    assert [line.rsplit(", ")[-1] for line in said] == (["step-000000001"] if keep else [])


def test_a_last_checkpoint_that_a_full_disk_does_not_take_ends_with_2(address, tmp_path):
    """Given a disk that stays full. Expect all updates, the old checkpoints, one sentence of the
    first left out, one of the last, and exit code 2."""
    done = learn_on_a_disk_full_from(5, 99, address, tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.count("no checkpoint can be written") == 1, done.stdout
    assert "learner: step 20;" in done.stdout
    assert done.stderr.startswith("learner: no last checkpoint: [Errno 27] File too large: ")
    assert "step-000000020.safetensors" in done.stderr and done.stderr.count("\n") == 1
    assert steps_kept(tmp_path) == [1, 2, 3, 4]


def test_tensors_whose_document_a_full_disk_does_not_take_are_deleted(tmp_path, monkeypatch):
    """Given room for a checkpoint's tensors alone. Expect neither file: nothing points to the
    tensors, and they would keep the disk full; of a checkpoint that is there already, both."""
    tensors = {"online/weight": torch.zeros(3)}

    def write(path, data, real=checkpoint._write):
        if path.suffix == ".json":
            raise OSError(28, "No space left on device", str(path))
        real(path, data)

    checkpoint.save(tmp_path, "step-1", tensors, {"learner_step": 1})
    monkeypatch.setattr(checkpoint, "_write", write)
    for name in ("step-1", "step-2"):
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(tmp_path, name, tensors, {"learner_step": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1.json", "step-1.safetensors"]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1.json"


def test_a_solved_network_that_a_full_disk_does_not_take_is_not_the_end(tmp_path, monkeypatch):
    """Given a candidate that reaches the mark and cannot be written, then room. Expect a sentence
    and no verdict; of the next candidate, the verdict."""
    said, spec = [], table_for(CARTPOLE).step
    run = Run(tmp_path, "learner", {}, tensorboard=False, say=said.append)
    judge = solved.Judge(CARTPOLE, spec, mark=0.0, seed=1, run=run, show=said.append)
    learner = Learner(spec=spec, actions=2, preset=CARTPOLE, seed=1)
    monkeypatch.setitem(solved.EPISODES, "evaluate", 2)
    with room(10_000):
        assert judge.verdict_on(learner) is None
    assert sum("cannot be written ([Errno 27]" in line for line in said) == 1, said
    assert judge.verdict_on(learner)["eval_episodes"] == 2
    judge.close()
    run.close()
