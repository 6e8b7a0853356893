"""Where the nets live: the GPU's path is the CPU's but for the name, and tested where one is."""

from __future__ import annotations

import numpy as np
import pytest
import rank as ranks
import torch

from learner.learner import Learner
from replay_server import Client, NStep, Prioritized, Server, Table
from replay_server.serving.config import atari_spec
from replay_server.training import device
from replay_server.training.device import DeviceError, device_from
from replay_server.training.presets import ATARI, changed

BATCH, STEPS = 16, 60
SETTINGS = changed(ATARI, batch=BATCH, hidden=(32,), n=3)


@pytest.fixture(scope="module")
def frames():
    """A server with two short episodes of noise in it."""
    table = Table(
        "main",
        step=atari_spec(),
        plan=NStep(3, stack=4),
        capacity=500,
        sampler=Prioritized(0.6),
        streams=1,
    )
    rng = np.random.default_rng(4)
    with Server([table], "udp://127.0.0.1:0", seed=4) as server, Client(server.address) as client:
        writer = client.writer("main", streams=1, autoreset="disabled")
        noise = rng.integers(0, 256, (STEPS + 1, 1, 84, 84)).astype(np.uint8)
        for t in range(STEPS):
            over = np.array([t % 30 == 29])
            writer.add_batch(
                observation=noise[t],
                action=np.array([t % 6]),
                reward=np.array([float(t)]),
                terminated=over & (t < 40),
                truncated=over & (t >= 40),
                next_observation=noise[t + 1],
            )
        writer.flush()
        yield client
        writer.close()


def learned(client, device, updates=4):
    """Losses, priorities and the online net's weights after some updates on `device`."""
    learner = Learner(spec=atari_spec(), actions=6, preset=SETTINGS, seed=1, device=device)
    said = []
    with client.batches("main", BATCH, beta=0.4, prefetch=2, device=device) as batches:
        for _ in range(updates):
            batch = batches.get(timeout=10.0)
            frame = batch.data["observation"]
            assert frame.device.type == torch.device(device).type and frame.dtype == torch.uint8
            update, priorities = learner.learn(batch)
            said.append((update.loss, priorities.copy(), batch.keys.copy()))
        pinned = batches._pin
    return said, {k: v.cpu() for k, v in learner.acting.state_dict().items()}, pinned


def test_names_of_devices():
    """Given names. Expect a device that is there, or one sentence with the valid ones."""
    assert device_from("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device_from("cpu") == "cpu"
    for wrong in ("gpu", "cudaa", "meta"):
        with pytest.raises(DeviceError, match="auto, cpu or cuda"):
            device_from(wrong)
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="sees no GPU here; take cpu"):
            device_from("cuda")


def test_on_the_cpu_batches_are_views_of_where_they_landed(frames):
    """Given batches on the CPU. Expect torch's view of the landing, and updates that go well."""
    said, weights, pinned = learned(frames, "cpu")
    assert not pinned and all(np.isfinite(loss) and loss > 0.0 for loss, _, _ in said)
    assert all(len(priorities) == BATCH for _, priorities, _ in said)
    assert all(torch.isfinite(value).all() for value in weights.values())
    with frames.batches("main", BATCH, prefetch=1, device="cpu") as batches:
        batch = batches.get(timeout=10.0)
        landing = batches._ring[-1].landing
        assert batch.data["observation"].data_ptr() == landing.data["observation"].ctypes.data


def test_on_a_gpu_the_same_batches_teach_the_same(frames):
    """Given a GPU. Expect pinned landings, tensors there, and of equal items the CPU's update."""
    if not torch.cuda.is_available():
        pytest.skip(f"no GPU here (torch {torch.__version__}): the CUDA path is not tested")
    said, _, pinned = learned(frames, "cuda", updates=8)
    assert pinned and all(np.isfinite(loss) and loss > 0.0 for loss, _, _ in said)
    keys = said[0][2]
    batch = frames.get("main", keys)
    on_cpu, on_gpu = (
        Learner(spec=atari_spec(), actions=6, preset=SETTINGS, seed=1, device=device).learn(batch)
        for device in ("cpu", "cuda")
    )
    assert on_gpu[1] == pytest.approx(on_cpu[1], rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_compiled_nets_learn_what_others_do(name, monkeypatch):
    """Given the same batches for a learner and for one whose nets are traced and differentiated
    ahead of time, as torch.compile does before it makes machine code. Expect the same losses, the
    same weights by the same names."""
    monkeypatch.setattr(device, "COMPILED", {"cpu": {"backend": "aot_eager"}})
    plain, compiled = (ranks.learner_of(3, name, compiled=c) for c in (False, True))
    traced = []
    for part in compiled.algorithm.children():
        part.register_forward_hook(lambda *_: traced.append(torch.compiler.is_compiling()))
    for update, batch in enumerate(ranks.batches((0,), 6)):
        for learner in (plain, compiled):
            torch.manual_seed(update)
            learner.learn(batch)
        assert compiled.update.loss == pytest.approx(plain.update.loss, rel=1e-5)
    mine, theirs = plain.algorithm.state_dict(), compiled.algorithm.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.allclose(mine[n], theirs[n], atol=1e-6) for n in mine)
    assert any(traced)
    plain.load(compiled.shared())


def test_a_machine_without_a_compiler_is_told(monkeypatch):
    """Given no C++ compiler. Expect a sentence before anything is learned."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match=r"torch.compile needs .*'no-such-compiler' is not there"):
        ranks.learner_of(3, compiled=True)
