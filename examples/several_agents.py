"""Several agents: each is a stream of one writer, and all learn from one table.

Two agents stand on a ring of cells. Both see their own cell, the other's and who they are, and both
get +1 when they meet. Agent 1 can move only every other step, so it pays to know who one is. An
extra column, `agent`, says whose step an item is; an item never mixes the steps of two agents, for
a window stays within its stream.

    python examples/several_agents.py
"""

import argparse

import numpy as np
import torch

from replay_server import Client, Column, NStep, Prioritized, Server, Spec, Table, priority_from_td

AGENTS, CELLS, LIMIT, GAMMA = 2, 9, 8, 0.9
SPEC = Spec(
    (
        Column("observation", np.float32, (2 * CELLS + AGENTS,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
        Column("agent", np.uint8),
    )
)


class Ring:
    """Both agents act at once: reset() and step(actions) give arrays with an axis [AGENTS]."""

    def __init__(self, rng):
        self.rng = rng

    def observe(self):
        cells, own = np.eye(CELLS, dtype=np.float32)[self.at], np.eye(AGENTS, dtype=np.float32)
        return np.concatenate([cells, cells[::-1], own], 1)  # [AGENTS, 2 * CELLS + AGENTS]

    def reset(self):
        self.at, self.time = self.rng.choice(CELLS, AGENTS, replace=False), 0
        return self.observe()

    def step(self, actions):
        able = np.array([True, self.time % 2 == 0])
        self.at = (self.at + np.where(able, actions - 1, 0)) % CELLS  # -1, 0 or +1
        self.time += 1
        met = bool(self.at[0] == self.at[1])
        over = np.full(AGENTS, met), np.full(AGENTS, self.time == LIMIT and not met)
        return self.observe(), np.full(AGENTS, float(met)), *over


def main(steps=5000, seed=1):
    """{what: number} of one run of `steps` steps of both agents."""
    torch.set_num_threads(1)  # the nets are small
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    layers = [torch.nn.Linear(SPEC["observation"].shape[0], 64), torch.nn.ReLU()]
    online = torch.nn.Sequential(*layers, torch.nn.Linear(64, 3))
    target = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3, foreach=True)
    ring, who, met = Ring(rng), np.arange(AGENTS), []
    table = Table("main", SPEC, NStep(2), 10_000, Prioritized(0.6))
    with Server([table], seed=seed) as server, Client(server.address) as client:
        writer = client.writer("main", streams=AGENTS, autoreset="disabled")
        obs = ring.reset()
        for step in range(steps):
            with torch.no_grad():
                greedy = online(torch.from_numpy(obs)).argmax(1).numpy()
            explore = rng.random(AGENTS) < 1.0 - 1.5 * step / steps
            actions = np.where(explore, rng.integers(3, size=AGENTS), greedy)
            result = ring.step(actions)
            writer.add_step(obs, actions, *result, agent=who)
            obs, reward, terminated, truncated = result
            if terminated[0] or truncated[0]:
                met.append(reward[0])
                obs = ring.reset()
                writer.restart()  # it may start, by chance, where the last one ended
            if step > 300 and step % 3 == 0:
                batch = client.sample("main", 64)
                data = batch.transitions(GAMMA, "cpu")
                if step % 150 == 0:
                    target.load_state_dict(online.state_dict())
                with torch.no_grad():
                    value = target(data.next_observations).max(1).values
                q = online(data.observations).gather(1, data.actions[:, None])[:, 0]
                td = data.rewards + data.discounts * value - q
                optimizer.zero_grad()
                (data.weights * td.square()).mean().backward()
                optimizer.step()
                client.update_priorities("main", batch, priority_from_td(td))
        stored, last = writer.flush().steps_stored, client.sample("main", 512)
        served = server.counters()["items_sampled"]
    agents = last["agent"][:, 0]  # [B]
    own = last["observation"][:, :, -AGENTS:].argmax(2)  # [B, 2]: who saw o_t, and o_{t+m}
    mixed = int((own != agents[:, None]).sum())
    share = np.bincount(agents, minlength=AGENTS) / len(agents)
    early, late = float(np.mean(met[:50])), float(np.mean(met[-50:]))
    print(f"the agents met in {early:.0%} of the first 50 episodes, {late:.0%} of the last 50")
    print(f"{stored} rows stored, {served} items served; of the last 512, by agent:", share)
    print(f"{mixed} of them mix two agents")
    return {"first": early, "last": late, "served": served, "mixed": mixed, "share": share}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    main(**vars(parser.parse_args()))
