"""Continuous actions: an action is a column like any other, here float32[1] of Pendulum-v1.

The update is TD3's without its target noise: two critics, the lesser of both as target, and an
actor that follows the first. Returns are of three steps; Pendulum never terminates, so every
episode ends by its time limit and every target bootstraps, from the last observation too.

    python examples/continuous_actions.py
"""

import argparse
import copy

import gymnasium as gym
import numpy as np
import torch

from replay_server import Client, NStep, Server, Table, Uniform, spec_from

GAMMA, TAU, LIMIT = 0.98, 0.01, 2.0  # LIMIT: the largest torque


def net(inputs, outputs):
    layer, relu = torch.nn.Linear, torch.nn.ReLU
    return torch.nn.Sequential(layer(inputs, 64), relu(), layer(64, 64), relu(), layer(64, outputs))


class Agent:
    def __init__(self):
        self.actor, self.critics = net(3, 1), torch.nn.ModuleList([net(4, 1), net(4, 1)])
        self.targets = copy.deepcopy(torch.nn.ModuleList([self.actor, *self.critics]))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3, foreach=True)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=2e-3, foreach=True)

    def act(self, observations):
        with torch.no_grad():
            return LIMIT * torch.tanh(self.actor(torch.as_tensor(observations))).numpy()

    def update(self, data, with_actor):
        actor, *critics = self.targets
        with torch.no_grad():
            actions = LIMIT * torch.tanh(actor(data.next_observations))
            following = torch.cat([data.next_observations, actions], 1)
            value = torch.min(*(critic(following)[:, 0] for critic in critics))
            target = data.rewards + data.discounts * value
        taken = torch.cat([data.observations, data.actions], 1)
        loss = sum((critic(taken)[:, 0] - target).square().mean() for critic in self.critics)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if with_actor:
            chosen = LIMIT * torch.tanh(self.actor(data.observations))
            gain = self.critics[0](torch.cat([data.observations, chosen], 1)).mean()
            self.actor_optimizer.zero_grad()
            (-gain).backward()
            self.actor_optimizer.step()
            with torch.no_grad():
                online = [*self.actor.parameters(), *self.critics.parameters()]
                torch._foreach_lerp_(list(self.targets.parameters()), online, TAU)


def main(steps=6000, seed=1):
    """{what: number} of one run of `steps` steps."""
    torch.set_num_threads(1)  # the nets are small
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = gym.make_vec("Pendulum-v1", num_envs=4, vectorization_mode="sync")
    agent = Agent()
    table = Table("main", spec_from(envs), NStep(3), 20_000, Uniform())
    returns, running = [], np.zeros(envs.num_envs)
    with Server([table], seed=seed) as server, Client(server.address) as client:
        print("columns:", ", ".join(f"{c.name} {c.describe()}" for c in table.step))
        writer = client.writer("main", envs.num_envs, autoreset=envs)
        obs, _ = envs.reset(seed=seed)
        for step in range(steps // envs.num_envs):
            actions = agent.act(obs) + 0.3 * rng.standard_normal((envs.num_envs, 1))
            if step < 200:
                actions = rng.uniform(-LIMIT, LIMIT, (envs.num_envs, 1))
            actions = np.clip(actions, -LIMIT, LIMIT).astype(np.float32)
            result = envs.step(actions)
            writer.add_step(obs, actions, *result)
            obs, reward, _, truncated, _ = result
            running += reward
            returns += running[truncated].tolist()
            running[truncated] = 0.0
            for update in range(2 * (step > 200)):
                data = client.sample("main", 128).transitions(GAMMA, "cpu")
                agent.update(data, with_actor=update == 0)
        batch = client.sample("main", 256)
        served = server.counters()["items_sampled"]
    envs.close()
    bootstrapped = float((batch.transitions(GAMMA).discounts > 0.0).mean())
    first, last = float(np.mean(returns[:4])), float(np.mean(returns[-4:]))
    print(f"return of the first 4 episodes {first:.0f}, of the last 4 {last:.0f}")
    print(f"{served} items served, {bootstrapped:.0%} of the last batch bootstraps")
    return {"first": first, "last": last, "served": served, "bootstrapped": bootstrapped}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    main(**vars(parser.parse_args()))
