"""Lanes of environments: what is stored is what lock-step stores, whichever lane comes first.

Oracle: an actor with the same seeds whose environments are stepped all at once, in this process.
"""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path

import gated
import numpy as np
import pytest
import torch
from gated import GATE

from actor import __main__ as actor_main
from actor.actor import Actor
from actor.inference import Inference
from actor.lane_workers import LaneEnvironments, LaneVector, shares_of
from actor.lanes import LaneCollector
from deploy.sync import InTurn
from deploy.table import TABLE, table_for
from replay_server import Client, Server
from replay_server.training.actions import actions_of
from replay_server.training.env_errors import EnvError, EnvironmentsDied
from replay_server.training.envs import make_envs, train_seeds
from replay_server.training.networks import acting_network
from replay_server.training.presets import PRESETS

ENVS, SEED = 5, 3
GREEDY = {"epsilon_base": 0.0, "envs": ENVS}  # so that no generator's order matters


def settings_of(**changes):
    return dataclasses.replace(PRESETS["cartpole"], **{**GREEDY, **changes})


def played(settings, envs, steps):
    """What an actor stored by so many steps of each environment, stream by stream."""
    torch.manual_seed(SEED)
    table = table_for(settings)
    with Server([table], "loopback://lanes") as server, Client(server.address) as client:
        network = acting_network(settings, table.step, actions_of(envs, "dqn"), SEED)
        writer = Recorded(client.writer(TABLE, autoreset=envs, streams=ENVS))
        actor = Actor(
            envs=envs,
            spec=table.step,
            inference=Inference(network),
            preset=settings,
            number=0,
            actors=1,
            seed=SEED,
            writer=writer,
        )
        while min(writer.counts) < steps:
            actor.step()
        writer.flush()
    return writer.streams_of(steps), actor


class Recorded:
    """A writer that keeps what it is given, by stream."""

    def __init__(self, writer):
        self.writer = writer
        self.rows = [[] for _ in range(ENVS)]
        self.created = [[] for _ in range(ENVS)]
        self.counts = np.zeros(ENVS, np.int64)

    def append(self, rows):
        for i, stream in enumerate(rows.streams.tolist()):
            row = {name: column[i].copy() for name, column in rows.columns.items()}
            self.rows[stream].append((row, int(rows.ending[i])))
        for i, stream in enumerate(rows.ended_streams.tolist()):
            self.rows[stream].append(({k: c[i].copy() for k, c in rows.closing.items()}, -1))
        self.counts[rows.streams] += 1
        return self.writer.append(rows)

    def create(self, streams, steps, priorities=None):
        for stream, step, priority in zip(streams, steps, priorities, strict=True):
            self.created[stream].append((int(step), float(priority)))
        self.writer.create(streams, steps, priorities)

    def flush(self):
        self.writer.flush()

    def streams_of(self, steps):
        return [rows[:steps] for rows in self.rows], [made[: steps - 8] for made in self.created]


@pytest.mark.parametrize(("lanes", "ready"), [(1, 1), (2, 1), (5, 2), (3, 3)])
def test_each_stream_is_as_in_lock_step(lanes, ready):
    """Given five CartPoles in lanes, and a network that decides alone. Expect each stream's rows,
    closing rows, items and priorities to be those of all environments stepped at once."""
    steps = 120
    settings = settings_of()
    with closing(make_envs(settings.env, ENVS)) as envs:
        (plain, items), _ = played(settings, envs, steps)
    settings = settings_of(lanes=lanes, lanes_ready=ready)
    with closing(LaneVector(settings.env, ENVS, lanes)) as envs:
        (found, made), actor = played(settings, envs, steps)
    assert isinstance(actor.collector, LaneCollector) and actor.collector.episodes > 0
    for stream in range(ENVS):
        for (row, ending), (mine, end) in zip(plain[stream], found[stream], strict=True):
            assert ending == end and row.keys() == mine.keys()
            assert all(np.array_equal(row[name], mine[name]) for name in row)
        assert [step for step, _ in items[stream]] == [step for step, _ in made[stream]]
        mine = [priority for _, priority in made[stream]]
        assert np.allclose([priority for _, priority in items[stream]], mine, rtol=1e-5)


def test_a_slow_lane_holds_up_no_other(tmp_path, monkeypatch):
    """Given a lane whose step is not over before a file is there. Expect the others to go on until
    it is, and that lane behind it."""
    monkeypatch.setenv(GATE, str(tmp_path / "gate"))
    monkeypatch.setenv("PYTHONPATH", str(Path(gated.__file__).parent))
    settings = settings_of(env="gated:Gated-v0", lanes=ENVS, lanes_ready=1)
    with closing(LaneVector(settings.env, ENVS, ENVS)) as envs:
        lanes = LaneEnvironments(envs, 1)
        lanes.reset(train_seeds(SEED, 0, ENVS))
        taken = np.zeros(ENVS, np.int64)
        for _ in range(100):
            for lane, _ in lanes.step(np.zeros(len(lanes.ready), np.int64)):
                taken[lane] += 1
        assert taken[0] == 0 and taken[1:].min() > 0
        (tmp_path / "gate").touch()
        while taken[0] < 3:
            for lane, _ in lanes.step(np.zeros(len(lanes.ready), np.int64)):
                taken[lane] += 1
        assert taken.sum() < 100_000


def test_shares_are_even():
    """Given environments that do not divide. Expect shares that differ by one at most."""
    for envs in range(1, 20):
        for lanes in range(1, envs + 1):
            shares = shares_of(envs, lanes)
            assert sum(shares) == envs and max(shares) - min(shares) <= 1


def test_a_lane_that_is_killed_is_said_so():
    """Given a lane whose process is killed within a step. Expect that said, soon, and closing to
    end."""
    vector = LaneVector("CartPole-v1", 2, 2)
    with closing(vector):
        vector.reset_lanes([1, 2])
        vector.processes[1].kill()
        vector.processes[1].join()
        vector.send(1, np.zeros(1, np.int64))
        with pytest.raises(EnvironmentsDied, match="exit code -9"):
            vector.first([1], 1)


def test_what_no_lanes_can_be_is_one_sentence(capsys, tmp_path, monkeypatch):
    """Given an environment that there is not, and more lanes than there are. Expect sentences."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvError, match="CartPol"):
        LaneVector("CartPol-v1", 2, 2)
    with pytest.raises(
        ValueError, match=r"lanes is 6, and an actor has 5 .*: say --lanes 5 at most"
    ):
        settings_of(lanes=6)
    with pytest.raises(ValueError, match="lanes_ready is 3; expected at most --lanes, 2"):
        settings_of(lanes=2, lanes_ready=3)
    with pytest.raises(ValueError, match="ppo plays with the present weights alone"):
        dataclasses.replace(PRESETS["cartpole-ppo"], lanes=1)
    with pytest.raises(ValueError, match="leave --backend async away"):
        settings_of(lanes=2, backend="async")
    with pytest.raises(EnvError, match=r"here all goes in turn, .*: leave --lanes away"):
        InTurn(settings_of(lanes=2), seed=1)
    assert actor_main.main(["--lanes", "1", "--environments", "tcp://127.0.0.1:1"]) == 2
    assert "give one of them" in capsys.readouterr().err
