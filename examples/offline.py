"""Offline data: arrays (s, a, r, s', terminated, truncated) go in by `add`, transitions come out.

A data set of random play is made first. The steps are stored in the order they were played, each
with its next observation, so that n-step windows end where episodes do. What is learned from it is
the value of random play, which the data set's own returns tell too.

Where a data set goes on after a time-out from the same state, nobody having reset it, say
writer.restart() after each row that ends an episode: else the next row looks like a mistake.

    python examples/offline.py
"""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch

from replay_server import Client, NStep, Server, Table, Uniform, spec_from

GAMMA = 0.95


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


def main(steps=20_000, updates=1500, seed=1):
    """{what: number} of one run."""
    torch.set_num_threads(1)  # the net is small
    torch.manual_seed(seed)
    env = gym.make("CartPole-v1")
    data = random_play(env, steps, seed)
    starts = torch.as_tensor(np.array([env.reset()[0] for _ in range(200)]))
    value = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(value.parameters(), lr=3e-3)
    table = Table("main", spec_from(env), NStep(3), steps + 1000, Uniform())
    with Server([table], seed=seed) as server, Client(server.address) as client:
        begin = time.perf_counter()
        with client.writer("main") as writer:
            for i in range(steps):
                writer.add(**{name: part[i] for name, part in data.items()})
        print(f"{steps} steps stored in {time.perf_counter() - begin:.2f} s")
        for _ in range(updates):
            batch = client.sample("main", 256).transitions(GAMMA, "cpu")
            with torch.no_grad():
                goal = batch.rewards + batch.discounts * value(batch.next_observations)[:, 0]
            loss = (value(batch.observations)[:, 0] - goal).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stored = client.size("main")
    learned, told = float(value(starts).mean().detach()), return_at_starts(data)
    print(f"value of random play at its start: learned {learned:.1f}, by the data set {told:.1f}")
    return {"stored": stored, "learned": learned, "told": told}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    main(**vars(parser.parse_args()))
