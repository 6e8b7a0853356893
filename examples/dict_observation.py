"""Dict observations: a robot on a board sees where it is and, apart, which lamp is lit.

Each entry of a Dict (or Tuple) space is a column of its own, of its own dtype and shape; batches
come back as dicts with the same keys. A small double DQN learns to walk to the lit lamp.

    python examples/dict_observation.py
"""

import argparse

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from replay_server import Client, NStep, Prioritized, Server, Table, priority_from_td, spec_from

GAMMA, BOARD = 0.95, 5
LAMPS = ((0, 0), (0, BOARD - 1), (BOARD - 1, 0), (BOARD - 1, BOARD - 1))
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))


class Lamps(gym.Env):
    """Four moves; +1 at the lit lamp, which ends the episode; 12 steps at most."""

    def __init__(self):
        position = spaces.Box(0, BOARD - 1, (2,), np.float32)
        lamps = spaces.MultiBinary(len(LAMPS))
        self.observation_space = spaces.Dict({"position": position, "lamps": lamps})
        self.action_space = spaces.Discrete(4)

    def observe(self):
        lit = np.eye(len(LAMPS), dtype=np.int8)[self.lamp]
        return {"position": np.array(self.at, np.float32), "lamps": lit}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.lamp = [BOARD // 2, BOARD // 2], int(self.np_random.integers(len(LAMPS)))
        self.left = 12
        return self.observe(), {}

    def step(self, action):
        self.left -= 1
        self.at = np.clip(np.add(self.at, MOVES[action]), 0, BOARD - 1).tolist()
        found = tuple(self.at) == LAMPS[self.lamp]
        return self.observe(), float(found), found, self.left == 0 and not found, {}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(2 + len(LAMPS), 64)
        self.values = torch.nn.Linear(64, 4)

    def forward(self, observation):
        parts = [observation["position"] / (BOARD - 1), observation["lamps"].float()]
        return self.values(torch.relu(self.hidden(torch.cat(parts, 1))))


def main(steps=6000, seed=1):
    """{what: number} of one run."""
    torch.set_num_threads(1)  # the nets are small
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env, online, target = Lamps(), Network(), Network()
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3, foreach=True)
    table = Table("main", spec_from(env), NStep(2), 10_000, Prioritized(0.6))
    found = []
    with Server([table], seed=seed) as server, Client(server.address) as client:
        print("columns:", ", ".join(f"{c.name} {c.describe()}" for c in table.step))
        writer = client.writer("main", autoreset=env)
        obs, _ = env.reset(seed=seed)
        for step in range(steps):
            action = int(rng.integers(4))
            if rng.random() > 1.0 - 1.5 * step / steps:
                state = {name: torch.as_tensor(part)[None] for name, part in obs.items()}
                action = int(online(state).argmax())
            result = env.step(action)
            writer.add_step(obs, action, *result)
            obs, reward, terminated, truncated, _ = result
            if terminated or truncated:
                found.append(reward)
                obs, _ = env.reset()
            if step > 500 and step % 4 == 0:
                batch = client.sample("main", 64)
                data = batch.transitions(GAMMA, "cpu")  # observations: {"position", "lamps"}
                if step % 200 == 0:
                    target.load_state_dict(online.state_dict())
                with torch.no_grad():
                    best = online(data.next_observations).argmax(1, keepdim=True)
                    value = target(data.next_observations).gather(1, best)[:, 0]
                q = online(data.observations).gather(1, data.actions[:, None])[:, 0]
                td = data.rewards + data.discounts * value - q
                optimizer.zero_grad()
                (data.weights * td.square()).mean().backward()
                optimizer.step()
                client.update_priorities("main", batch, priority_from_td(td))
        served = server.counters()["items_sampled"]
    first, last = np.mean(found[:50]), np.mean(found[-50:])
    print(f"lamp found in {first:.0%} of the first 50 episodes, {last:.0%} of the last 50")
    print(f"{served} items served")
    return {"first": first, "last": last, "served": served}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    main(**vars(parser.parse_args()))
