"""Several learners that are one: two processes over gloo against one learner with the joined batch.

Oracle: one learner that is given both shares as one batch, its importance weights computed here by
their definition over the whole.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rank as ranks
import safetensors.torch
import torch

from deploy.launch import free_port
from learner.replicas import Replicas, device_of_rank, local_store, rank_and_count
from replay_server import ConfigError

ROOT = Path(__file__).resolve().parents[2]
UPDATES = 20


def started(rank, port, path):
    """One rank, as torchrun starts it."""
    settings = {"RANK": f"{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    settings |= {"MASTER_PORT": f"{port}", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, ranks.__file__, str(rank), str(path), str(UPDATES)]
    env = {**os.environ, **settings}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def weights_by_definition(batch, beta):
    """w_i = (N P(i))^-beta / max w (Schaul et al. 2015, 3.4)."""
    weights = (batch.drawables * batch.probabilities) ** -beta
    return (weights / weights.max()).astype(np.float32)


def test_two_learners_are_one_with_the_joined_batch(tmp_path):
    """Given two ranks with networks of their own at first, and shares of unequal importance. Expect
    both to end with the same bytes, and with what one learner makes of the joined batches; each
    item's priority to be its |TD|; and the rank that goes on told that the other stopped."""
    port, files = free_port(), [tmp_path / "0", tmp_path / "1"]
    programs = [started(rank, port, path) for rank, path in enumerate(files)]
    said = [program.communicate(timeout=120)[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0]
    assert "another learner of this run has stopped" in said[0]
    one = ranks.learner_of(seed=0)
    one.weights_of = lambda batch: weights_by_definition(batch, one.beta())
    expected = [one.learn(batch)[1] for batch in ranks.batches((0, 1), UPDATES)]
    found = [safetensors.torch.load_file(path) for path in files]
    for name, tensor in one.acting.state_dict().items():
        mine, other = (part[f"net/{name}"] for part in found)
        assert torch.equal(mine, other)
        assert torch.allclose(mine, tensor, rtol=1e-4, atol=1e-6)
    for rank in (0, 1):
        share = np.concatenate([np.split(priorities, 2)[rank] for priorities in expected])
        assert found[rank]["priorities"].numpy() == pytest.approx(share, rel=1e-3, abs=1e-5)


def test_a_batch_that_does_not_divide_is_refused():
    """Given three learners and a batch of 128. Expect ConfigError with the nearest that does."""
    three = Replicas.__new__(Replicas)
    three.count = 3
    with pytest.raises(ConfigError, match=r"128 does not divide among 3 .* --batch 126"):
        three.share(128)
    assert three.share(126) == 42


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "1"}, (0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "2", "WORLD_SIZE": "2"}, None),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None),
        ({"RANK": "0", "WORLD_SIZE": "0"}, None),
        ({"RANK": "0", "WORLD_SIZE": "two"}, None),
    ],
)
def test_a_launchers_variables(monkeypatch, variables, expected):
    """Given what launchers set. Expect a rank of several only where both say so, and ConfigError
    with both where they are no rank of a world."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if expected is None:
        with pytest.raises(ConfigError, match=r"WORLD_SIZE=.* RANK=.*; unset both"):
            rank_and_count()
    else:
        assert rank_and_count() == expected


def test_each_rank_of_a_host_has_its_gpu(monkeypatch):
    """Given two GPUs and three ranks. Expect theirs in turn; a device that is named stays, and so
    does that of a learner of its own."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    for local, expected in (("0", "cuda:0"), ("1", "cuda:1"), ("2", "cuda:0")):
        monkeypatch.setenv("LOCAL_RANK", local)
        assert device_of_rank("cuda") == expected
        assert device_of_rank("cpu") == "cpu" and device_of_rank("cuda:1") == "cuda:1"
    monkeypatch.delenv("WORLD_SIZE")
    assert device_of_rank("cuda") == "cuda"


def test_a_rank_that_waits_for_others_ends_at_a_signal(tmp_path):
    """Given one rank of two, alone. Expect exit code 0 on Ctrl-C, and a sentence."""
    command = [sys.executable, "-u", "-m", "replay_server", "learner", "train"]
    variables = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    variables |= {"MASTER_PORT": str(free_port()), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, "--run", str(tmp_path)],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            said = [program.stdout.readline() for _ in range(2)]
            assert "makes this one of 2 learners" in said[1]
            program.send_signal(signal.SIGINT)
            assert program.wait(30) == 0
            assert "the other learners were not there yet" in program.stdout.read()
        finally:
            program.kill()


def test_ranks_of_this_machine_listen_to_it_alone(monkeypatch):
    """Given a rank that meets the others on this machine. Expect the store at that address alone,
    where torch's own listens at all; and torch's own where the others are elsewhere."""
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    store = local_store(0, 2)
    store.set("key", "value")
    assert local_store(1, 2).get("key") == b"value"
    listening = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in (Path("/proc/net") / table).read_text().splitlines()
        if f":{port:04X}" in line.split()[1] and line.split()[3] == "0A"
    ]
    assert listening == [f"0100007F:{port:04X}"]
    for name, value in (
        ("MASTER_ADDR", "192.0.2.1"),
        ("MASTER_PORT", "none"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert local_store(0, 2) is None
