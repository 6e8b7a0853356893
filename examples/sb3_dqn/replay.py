"""Stable-Baselines3's DQN on CartPole, with the hyperparameters of RL Zoo scaled to 20 k steps."""

import argparse

import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from replay_server.integrations.sb3 import ReplayServerBuffer

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    args = parser.parse_args()

    model = DQN(
        "MlpPolicy",
        gym.make("CartPole-v1"),
        learning_rate=1e-3,
        buffer_size=20_000,
        replay_buffer_class=ReplayServerBuffer,
        replay_buffer_kwargs={"seed": args.seed},
        learning_starts=1000,
        batch_size=64,
        gamma=0.99,
        train_freq=2,
        gradient_steps=1,
        target_update_interval=250,
        exploration_fraction=0.3,
        exploration_final_eps=0.05,
        policy_kwargs={"net_arch": [120, 84]},
        seed=args.seed,
        device="cpu",
    )
    model.learn(total_timesteps=args.total_timesteps)

    env = Monitor(gym.make("CartPole-v1"))
    env.reset(seed=1_000 + args.seed)
    average_return, _ = evaluate_policy(model, env, n_eval_episodes=20)
    print(f"average return of 20 greedy episodes: {average_return:.1f}")
