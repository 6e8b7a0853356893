"""DQN on CartPole in one file, in the manner of CleanRL: read it from top to bottom."""

import argparse
import random

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from buffer import ReplayBuffer


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--buffer-size", type=int, default=10_000)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--target-network-frequency", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--start-e", type=float, default=1.0)
    parser.add_argument("--end-e", type=float, default=0.05)
    parser.add_argument("--exploration-fraction", type=float, default=0.3)
    parser.add_argument("--learning-starts", type=int, default=1000)
    parser.add_argument("--train-frequency", type=int, default=2)
    return parser.parse_args()


class QNetwork(nn.Module):
    def __init__(self, envs):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(int(np.prod(envs.single_observation_space.shape)), 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, int(envs.single_action_space.n)),
        )

    def forward(self, x):
        return self.network(x)


def linear_schedule(start_e, end_e, duration, t):
    return max(end_e, start_e + (end_e - start_e) * t / duration)


def evaluate(network, env_id, episodes, seed, device):
    env, returns = gym.make(env_id), []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        returns.append(0.0)
        over = False
        while not over:
            with torch.no_grad():
                action = network(torch.Tensor(obs).to(device)).argmax().item()
            obs, reward, terminated, truncated, _ = env.step(action)
            returns[-1] += float(reward)
            over = terminated or truncated
    return float(np.mean(returns))


if __name__ == "__main__":
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(args.env_id) for _ in range(args.num_envs)],
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    envs.single_action_space.seed(args.seed)

    q_network = QNetwork(envs).to(device)
    target_network = QNetwork(envs).to(device)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    rb = ReplayBuffer(args.buffer_size, envs, device)

    obs, _ = envs.reset(seed=args.seed)
    for global_step in range(args.total_timesteps):
        # act
        duration = args.exploration_fraction * args.total_timesteps
        epsilon = linear_schedule(args.start_e, args.end_e, duration, global_step)
        if random.random() < epsilon:
            actions = np.array([envs.single_action_space.sample() for _ in range(envs.num_envs)])
        else:
            with torch.no_grad():
                actions = q_network(torch.Tensor(obs).to(device)).argmax(1).cpu().numpy()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)

        # store: where an episode ended, next_obs is already the next episode's
        real_next_obs = next_obs.copy()
        for i in np.flatnonzero(terminations | truncations):
            real_next_obs[i] = infos["final_obs"][i]
        rb.add(obs, real_next_obs, actions, rewards, terminations)
        obs = next_obs

        # learn
        if global_step > args.learning_starts and global_step % args.train_frequency == 0:
            data = rb.sample(args.batch_size)
            with torch.no_grad():
                target_max = target_network(data.next_observations).max(1).values
                td_target = data.rewards + args.gamma * (1 - data.dones) * target_max
            old_val = q_network(data.observations).gather(1, data.actions[:, None]).squeeze(1)
            loss = F.mse_loss(td_target, old_val)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if global_step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())

    envs.close()
    average_return = evaluate(q_network, args.env_id, 20, 1_000 + args.seed, device)
    print(f"average return of 20 greedy episodes: {average_return:.1f}")
