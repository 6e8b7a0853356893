"""The edges of episodes: what is sampled is what the actor saw, byte for byte, and in every mode.

Episodes of every length from 1 to n + k, truncated and terminated, are played by the product's
actor with a network that writes down each stack it is fed. Items are then read back from the
server by key and by draw: obs and next_obs, cut out by the learner's function, must be the stacks
the network saw at t and at t + min(n, rows left). Where the rows of an item lie is worked out from
the script alone.

The second test stores the same script in all three autoreset modes and as a single environment,
through the writer, and reads every row back by its key, closing rows included.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from environments import Episode, ScriptedEnv, frame, scripted_action, scripted_rows
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from actor.actor import Actor
from actor.inference import Inference
from replay_server import Client, NStep, Row, Server, Table, spec_from
from replay_server.training.presets import CARTPOLE, changed
from replay_server.writing.autoreset import flags_from_infos, mode_of

COUNT = 3
SINGLE = "single"
names = itertools.count()


class Seen(torch.nn.Module):
    """Values of zero; every stack it is fed is written down under its newest frame."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.actions, self.fed = actions, {}

    def forward(self, observation):
        stacks = observation.numpy()  # [B, k, 3]
        for stack in stacks:
            before = self.fed.setdefault(stack[-1].tobytes(), stack.tobytes())
            assert before == stack.tobytes(), "one frame, two stacks"
        return torch.zeros(len(stacks), self.actions)


def served(table):
    """A server of this table whose time stands still between turns, and a client."""
    server = Server([table], f"loopback://edges-{next(names)}", seed=5, virtual_clock=True)
    return server, Client(server.address)


def places(who, script, rows):
    """(episode, step, length) of the first `rows` rows of environment `who`; step == length is the
    closing row."""
    found = []
    for episode in itertools.count():
        length = script[(who + episode) % len(script)].length
        found += [(episode, step, length) for step in range(length + 1)]
        if len(found) >= rows:
            return found[:rows]


def expected_items(who, script, rows, n):
    """{step number in the stream: (episode, step, m)} of every item that must exist."""
    walk, items = places(who, script, rows), {}
    for number, (episode, step, length) in enumerate(walk):
        m = min(n, length - step)
        if step < length and number + m < rows:
            items[number] = (episode, step, m)
    return items


def play_with_actor(envs, script, client, n, stack):
    """Every episode of the script at least once in each environment: (what was fed, ledger)."""
    actions = int(envs.single_action_space.n)
    network = Seen(actions)
    writer = client.writer("main", streams=COUNT, autoreset=envs)
    actor = Actor(
        envs=envs,
        spec=client.table("main").spec,
        inference=Inference(network),
        preset=changed(CARTPOLE, n=n, stack=stack, envs=COUNT),
        number=0,
        actors=1,
        seed=1,
        writer=writer,
    )
    keys = {}
    for _ in range(sum(episode.length + 1 for episode in script) + 2):
        actor.step()
        writer.flush()
        keys |= {(int(e["stream"]), int(e["step"])): int(e["key"]) for e in writer.ledger()}
    return network.fed, keys, writer


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("pad", ["zero", "first"])
@pytest.mark.parametrize(("stack", "n"), [(1, 1), (1, 3), (2, 1), (2, 3), (4, 1), (4, 3)])
def test_an_item_is_what_the_actor_fed_to_its_net(stack, n, pad, mode):
    """Given episodes that end at each length 1 .. n + k in both ways. Expect every item's obs and
    next_obs, by key and by draw, to be the bytes of the actor's stacks, and no item too many."""
    endings = [Episode(length, "truncated") for length in range(1, n + stack + 1)]
    endings += [Episode(length, "terminated") for length in range(n + stack, 0, -1)]
    script = tuple(endings)
    makers = [lambda who=who: ScriptedEnv(who, script) for who in range(COUNT)]
    envs = SyncVectorEnv(makers, autoreset_mode=mode)
    spec = spec_from(envs, pad=pad)
    table = Table("main", step=spec, plan=NStep(n, stack=stack), capacity=8192, streams=COUNT)
    server, client = served(table)
    with server, client:
        fed, keys, writer = play_with_actor(envs, script, client, n, stack)
        where = {}
        for who in range(COUNT):
            rows = sum(stream == who for stream, _ in keys)
            for number, place in expected_items(who, script, rows, n).items():
                where[keys[who, number]] = (who, *place)
        batch = client.get("main", sorted(where))
        assert batch.valid.all() and client.size("main") == len(where), "each window is one item"
        check_items(batch, where, fed, n, stack)
        drawn = client.sample("main", 1024, uniform=1.0)
        assert len(set(drawn.keys.tolist())) > len(where) // 2
        check_items(drawn, where, fed, n, stack)
        writer.close()
    envs.close()


def check_items(batch, where, fed, n, stack):
    """Every item of the batch against the stacks that were fed."""
    cut = batch.transitions(0.99)
    for i, key in enumerate(batch.keys.tolist()):
        who, episode, step, m = where[key]
        place = f"environment {who}, episode {episode}, step {step}, {m} ahead"
        assert batch.ahead[i] == m, place
        assert batch.behind[i] == min(step, stack - 1), place
        obs, next_obs = cut.observations[i], cut.next_observations[i]
        assert obs.tobytes() == fed[frame(who, episode, step).tobytes()], place
        assert next_obs.tobytes() == fed[frame(who, episode, step + m).tobytes()], place
        rewards = [100.0 * episode + step + j for j in range(m)]
        assert batch.data["reward"][i, :m].tolist() == rewards, place


# -- every mode ----------------------------------------------------------------------------------


def actions_for(observation):
    """The scripted action of each observation [B, 3]: a function of the place."""
    return np.array([scripted_action(int(o[1]) - 1, int(o[2]) - 1) for o in observation])


def store_vector(envs, writer, calls):
    """Plays the script with scripted actions through `add_batch`."""
    observation, _ = envs.reset()
    for _ in range(calls):
        action = actions_for(observation)
        after, reward, terminated, truncated, infos = envs.step(action)
        writer.add_batch(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=after,
            infos=infos,
            life_lost=flags_from_infos("life_lost", infos, COUNT),
        )
        observation, over = after, terminated | truncated
        if mode_of(envs) == "disabled" and over.any():
            observation, _ = envs.reset(options={"reset_mask": over})
            writer.restart(over)
        yield


def store_single(env, writer, calls):
    """The same with one environment, through `add`."""
    observation, _ = env.reset()
    for _ in range(calls):
        action = actions_for(observation[None])[0]
        after, reward, terminated, truncated, info = env.step(action)
        writer.add(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=after,
            life_lost=info["life_lost"],
        )
        observation = env.reset()[0] if terminated or truncated else after
        yield


def rows_read_back(client, keys):
    """{key's place: row} as tuples of Python numbers, each read by its key."""
    rows, valid = client.rows("main", list(keys.values()))
    assert valid.all(), "an acknowledged row is not there"
    found = {}
    for i, place in enumerate(keys):
        values = [rows[name][i].item() for name in ("action", "reward", "terminated")]
        found[place] = (tuple(rows["observation"][i]), *values)
    return found


def stored_rows(mode, who):
    """What the server holds after 40 calls of `step`: [(observation, action, reward, terminated)]
    of each stream."""
    if mode == SINGLE:
        envs, streams = ScriptedEnv(who), 1
    else:
        makers = [lambda i=i: ScriptedEnv(i) for i in range(COUNT)]
        envs, streams = SyncVectorEnv(makers, autoreset_mode=AutoresetMode(mode)), COUNT
    server, client = served(Table("main", step=spec_from(envs), plan=Row(), capacity=8192))
    keys = {}
    with server, client, client.writer("main", streams=streams, autoreset=envs) as writer:
        store = store_single if mode == SINGLE else store_vector
        for _ in store(envs, writer, calls=40):
            writer.flush()
            keys |= {(int(e["stream"]), int(e["step"])): int(e["key"]) for e in writer.ledger()}
        found = rows_read_back(client, keys)
    envs.close()
    streams = sorted({stream for stream, _ in found})
    return [
        [found[stream, step] for step in range(sum(s == stream for s, _ in found))]
        for stream in streams
    ]


@pytest.mark.parametrize("mode", [*(mode.value for mode in AutoresetMode), SINGLE])
def test_every_mode_stores_the_same_rows(mode):
    """Given one script in three autoreset modes and as single environments. Expect the server to
    hold the script's rows, each episode closed by its last observation, and nothing made up."""
    if mode == SINGLE:
        streams = [stored_rows(mode, who)[0] for who in range(COUNT)]
    else:
        streams = stored_rows(mode, who=None)
    assert len(streams) == COUNT
    for who, stored in enumerate(streams):
        expected = [row[:4] for row in scripted_rows(who, 40)]
        assert len(stored) >= 40, "40 calls store 40 rows, or closing rows in place of some"
        assert stored == expected[: len(stored)], f"environment {who}"
