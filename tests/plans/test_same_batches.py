"""One algorithm, many placements: in turns and with one seed, the learner gets the same batches
wherever the fragments are.

Oracle: the loop in one process (deploy/sync.py), whose own course test_lockstep.py proves.
"""

from __future__ import annotations

import hashlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import rank as ranks
import torch
from workers import Worker

from actor.__main__ import Program as ActorProgram
from deploy.sync import InTurn
from deploy.table import needed, table_for
from deploy.together import Acting, Beside
from learner.learner import Learner
from learner.program import Program as LearnerProgram
from replay_server import Server
from replay_server.training import options
from replay_server.training.contact import Stop
from replay_server.training.presets import changed, preset

SEED, UPDATES = 3, 60
CAPACITY = 5_000
SMALL = {
    "envs": 4,
    "batch": 32,
    "min_size": 200,
    "capacity": CAPACITY,
    "hidden": (16,),
    "target_every": 7,
    "publish_every": 1,
    "pull_every": 1,
    "push_batch": 16,
}
SETTINGS = {
    name: changed(preset(name), **SMALL) for name in ("cartpole", "pendulum", "cartpole-ppo")
}


@pytest.fixture
def seen(monkeypatch):
    """Digests of what each learner is given, batch by batch: slots, weights, every column. A key is
    a slot and the round of the ring; the first round is each server's own."""
    found = []

    def gradients(self, batch, real=Learner.gradients):
        digest = hashlib.sha256()
        slots = np.asarray(batch.keys) % CAPACITY
        for part in (slots, batch.weights, batch.ahead, *map(np.asarray, batch.data.values())):
            digest.update(np.ascontiguousarray(part).tobytes())
        found.append(digest.hexdigest())
        return real(self, batch)

    monkeypatch.setattr(Learner, "gradients", gradients)
    return found


def in_one_process(name, seen):
    """The loop as it stands: what its first batches were."""
    with InTurn(SETTINGS[name], SEED) as parts:
        for _, _ in zip(range(UPDATES), parts.turns(), strict=False):
            pass
    return seen[:UPDATES]


def served(settings):
    """The run's server, at an address of its own."""
    table = table_for(settings, in_turns=True)
    return Server([table], "udp://127.0.0.1:0", seed=SEED, **needed(settings))


def asked(cls, name, server, tmp_path, turns, **more):
    """The options of one of the programs."""
    return cls(
        preset=name,
        seed=SEED,
        run=tmp_path,
        tensorboard=False,
        server=server.address,
        turns=turns,
        patience=30.0,
        **more,
    )


def run_apart(name, tmp_path, seen, workers, together):
    """Actor and learner over UDP in turns: in threads here, each with its own client. `workers`:
    environments elsewhere. `together`: inference beside the learner."""
    torch.set_num_threads(1)
    settings, stop, (turns,) = SETTINGS[name], Stop(), free_urls(1)
    at = ",".join(worker.url for worker in workers)
    with served(settings) as server:
        train = asked(options.Train, name, server, tmp_path, turns, updates=UPDATES, device="cpu")
        play = asked(options.Actor, name, server, tmp_path, turns, environments=at)
        torch.manual_seed(SEED)
        learner = LearnerProgram(train, settings, stop)
        if together:
            actor = Acting(play, settings, stop, learner)
        else:
            actor = threading.Thread(target=played, args=(play, settings, stop))
        actor.start()
        try:
            learner.main()
        finally:
            stop.event.set()
            actor.join(20)
            learner.close()
    assert not actor.is_alive()
    assert learner.learner.step == UPDATES
    return list(seen)


def played(args, settings, stop):
    """The actor's program, until it is told to stop."""
    program = ActorProgram(args, settings, stop)
    try:
        program.main()
    finally:
        program.close()


def free_urls(count):
    """Addresses of this machine that nobody serves at."""
    from deploy.launch import free_port

    return [f"tcp://127.0.0.1:{free_port()}" for _ in range(count)]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("policy", ["single-learner-coarse", "environments", "single-learner-fine"])
def test_the_learner_gets_the_same_batches_under_each_policy(tmp_path, seen, name, policy):
    """Given the settings of one algorithm and a seed in one process, and apart as this policy has
    them. Expect the same batches, byte by byte, and the same weights of them, one after another."""
    expected, env = in_one_process(name, seen), SETTINGS[name].env
    seen.clear()
    remote = policy != "single-learner-coarse"
    workers = [Worker(env, 1), Worker(env, 3)] if remote else []
    try:
        found = run_apart(name, tmp_path, seen, workers, policy == "single-learner-fine")
    finally:
        for worker in workers:
            worker.close()
    assert len(set(expected)) == UPDATES
    assert found == expected


def test_inference_beside_a_learner_has_one_thread_of_torch(monkeypatch):
    """Given a learner of one thread of torch. Expect the actor's passes to have one, too: torch
    counts them for each thread of Python, and a small network is slower by many."""
    found = []
    monkeypatch.setattr(Acting, "play", lambda self: found.append(torch.get_num_threads()))
    acting = Acting(None, None, Stop(), SimpleNamespace(learner=object()))
    acting.start()
    acting.join(20)
    assert found == [1] and acting.error is None


def test_a_pass_of_the_network_waits_for_a_step_of_the_optimizer():
    """Given inference beside a learner whose weights are changing. Expect no values before that is
    over, then those of the weights behind it."""
    learner = ranks.learner_of(seed=1)
    beside, found = Beside(learner, in_turns=False), []
    observations = {"observation": np.ones((1, 1, 4), np.float32)}
    passing = threading.Thread(target=lambda: found.append(beside.values(observations)))
    with learner.guard:
        passing.start()
        passing.join(0.2)
        assert passing.is_alive() and found == []
        with torch.no_grad():
            for parameter in learner.acting.parameters():
                parameter.zero_()
    passing.join(20)
    assert np.array_equal(found[0], np.zeros((1, 2), np.float32))
