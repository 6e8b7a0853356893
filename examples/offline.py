"""Offline data: arrays (s, a, r, s', terminated, truncated) go in by `add`, transitions come out.

A data set of random play is made first. The steps are stored in the order they were played, each
with its next observation, so that n-step windows end where episodes do. What is learned from it is
the value of random play, which the data set's own returns give too.

Where a data set goes on after a time-out from the same state, nobody having reset it, say
writer.restart() after each row that ends an episode: else the next row looks like a mistake.

Rows in no order (--shuffled) are episodes of one step: 64 streams take 64 of them with each call,
which is a hundred times quicker than one by one. Windows of more than one step they cannot have.

    python examples/offline.py
    python examples/offline.py --shuffled
"""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch

from replay_server import Client, NStep, Server, Table, Uniform, spec_from

GAMMA = 0.95
STREAMS = 64


def random_play(env, steps, seed):
    """{column: array [steps, ...]}, as data sets of others hold it."""
    rows = []
    obs, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(steps):
        action = env.action_space.sample()
        following, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, following, terminated, truncated))
        obs = env.reset()[0] if terminated or truncated else following
    names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
    return {name: np.array(part) for name, part in zip(names, zip(*rows, strict=True), strict=True)}


def return_at_starts(data):
    """The mean discounted return of the episodes that ended."""
    returns, total, factor = [], 0.0, 1.0
    for reward, over in zip(data["reward"], data["terminated"] | data["truncated"], strict=True):
        total, factor = total + factor * reward, factor * GAMMA
        if over:
            returns.append(total)
            total, factor = 0.0, 1.0
    return float(np.mean(returns))


def store_in_order(client, data, order):
    """Rows as they were played, one by one."""
    with client.writer("main") as writer:
        for i in order:
            writer.add(**{name: part[i] for name, part in data.items()})


def store_in_no_order(client, data, order):
    """Each row ends its episode: where it did not terminate, its return goes on behind the cut."""
    data = {**data, "truncated": ~data["terminated"]}
    whole = len(order) - len(order) % STREAMS
    for rows in (order[:whole].reshape(-1, STREAMS), order[whole:][None]):
        if rows.size:
            with client.writer("main", rows.shape[1], autoreset="disabled") as writer:
                for which in rows:
                    writer.add_batch(**{name: part[which] for name, part in data.items()})
                    writer.restart()  # the next row of each stream is another episode's


def main(steps=20_000, updates=1500, seed=1, shuffled=False):
    """{what: number} of one run."""
    torch.set_num_threads(1)  # the net is small
    torch.manual_seed(seed)
    env = gym.make("CartPole-v1")
    data = random_play(env, steps, seed)
    starts = torch.as_tensor(np.array([env.reset()[0] for _ in range(200)]))
    value = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(value.parameters(), lr=3e-3)
    order, store, n = np.arange(steps), store_in_order, 3
    if shuffled:
        order, store, n = np.random.default_rng(seed).permutation(steps), store_in_no_order, 1
    # an episode's last observation takes a place too
    table = Table("main", spec_from(env), NStep(n), 2 * steps + 1000, Uniform())
    with Server([table], seed=seed) as server, Client(server.address) as client:
        begin = time.perf_counter()
        store(client, data, order)
        took = time.perf_counter() - begin
        print(f"{steps} steps stored in {took:.2f} s, {steps / took:,.0f} a second")
        for _ in range(updates):
            batch = client.sample("main", 256).transitions(GAMMA, "cpu")
            with torch.no_grad():
                goal = batch.rewards + batch.discounts * value(batch.next_observations)[:, 0]
            loss = (value(batch.observations)[:, 0] - goal).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stored = client.size("main")
    learned, measured = float(value(starts).mean().detach()), return_at_starts(data)
    print(
        f"value of random play at its start: learned {learned:.1f}, by the data set {measured:.1f}"
    )
    return {"stored": stored, "learned": learned, "measured": measured}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shuffled", action="store_true", help="store the rows in no order")
    main(**vars(parser.parse_args()))
