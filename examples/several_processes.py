"""Several processes of your own: actors with the newest weights, a learner, and a clean end.

    python examples/several_processes.py --actors 2 --updates 300

A server with a limiter holds the actors back while the learner pauses: for an evaluation, a
checkpoint, or because it is done. So an actor's loop meets `LimiterBlocked`, and goes on: the
call that raised it has taken nothing, and is made again. The learner ends the run by an event.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import sys
import time
import warnings

import gymnasium
import numpy as np
import torch

from replay_server import (
    Client,
    LimiterBlocked,
    NStep,
    RowsDropped,
    SamplesPerInsert,
    Server,
    Table,
    priority_from_td,
    spec_from,
)

ENV, GAMMA, BATCH = "CartPole-v1", 0.99, 64


def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))


def add(writer, step, done):
    """Adds a step, however long the limiter holds it back; False where the run is over first."""
    while not done.is_set():
        try:
            writer.add_step(*step)
            return True
        except LimiterBlocked:
            pass  # the learner pauses: the step was not taken
    return False


def act(address, number, epsilon, done):
    """An actor: a client and a writer of its own, and the newest weights before each episode."""
    env, net, rng, version = gymnasium.make(ENV), network(), np.random.default_rng(number), 0
    torch.set_num_threads(1)
    with Client(address) as client:
        writer = client.writer("main", autoreset=env)
        while not done.is_set():
            if pulled := client.pull_weights(newer_than=version):
                version, weights = pulled
                net.load_state_dict(torch.load(io.BytesIO(weights), weights_only=True))
            obs, ended = env.reset(seed=int(rng.integers(1 << 30)))[0], False
            while not ended:
                action = int(net(torch.as_tensor(obs)).argmax())
                action = int(rng.integers(2)) if rng.random() < epsilon else action
                next_obs, reward, terminated, truncated, info = env.step(action)
                if not add(
                    writer, (obs, action, next_obs, reward, terminated, truncated, info), done
                ):
                    break
                obs, ended = next_obs, terminated or truncated
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RowsDropped)
            writer.close(0)  # what the limiter still holds back is given up: nobody will draw it


def publish(client, net):
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    client.publish_weights(file.getvalue())


def learn(client, updates, pause):
    """DQN, as short as it gets; the mean return of an episode is what the reader looks at."""
    net, target = network(), network()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    publish(client, net)
    for update in range(updates):
        batch = client.sample("main", BATCH, beta=0.4, timeout=60.0)
        data = batch.transitions(GAMMA, "cpu")
        with torch.no_grad():
            best = net(data.next_observations).argmax(1, keepdim=True)
            following = target(data.next_observations).gather(1, best)[:, 0]
            aim = data.rewards + data.discounts * following
        td = aim - net(data.observations).gather(1, data.actions[:, None])[:, 0]
        loss = (data.weights * td**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        client.update_priorities("main", batch, priority_from_td(td.detach()))
        if update % 20 == 0:
            publish(client, net)
            target.load_state_dict(net.state_dict())
        if update == updates // 2:
            time.sleep(pause)  # an evaluation, say: the actors are held back, and go on behind it


def main(actors=2, updates=300, pause=0.0):
    """{what: number} of one run."""
    spec = spec_from(gymnasium.make(ENV))
    limiter = SamplesPerInsert(8.0, min_size=500)
    table = Table("main", step=spec, plan=NStep(3), capacity=20_000, limiter=limiter)
    context = multiprocessing.get_context("spawn")  # a client does not outlive a fork
    done = context.Event()
    with Server([table], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        processes = [
            context.Process(target=act, args=(server.address, i, 0.4 ** (1 + 3 * i), done))
            for i in range(actors)
        ]
        for process in processes:
            process.start()
        try:
            learn(client, updates, pause)
        finally:
            done.set()
            for process in processes:
                process.join()
        info = client.table("main")
        ratio = info.sampled / info.inserted
        print(f"{info.inserted} items of {actors} actors, each drawn {ratio:.1f} times on average")
        codes = [process.exitcode for process in processes]
        print("exit codes of the actors:", codes)
        return {"items": info.inserted, "ratio": ratio, "codes": codes}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds, half-way")
    sys.exit(any(main(**vars(parser.parse_args()))["codes"]))  # 1: an actor did not end well
