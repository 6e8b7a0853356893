"""Double DQN on CartPole out of TorchRL's parts."""

import argparse

import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.envs import ExplorationType, GymEnv, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import set_exploration_type
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate

from replay_server.integrations.torchrl import ReplayServerBuffer

FRAMES_PER_BATCH, UPDATES_PER_BATCH, BATCH_SIZE = 50, 25, 128


def make_env(seed):
    env = GymEnv("CartPole-v1", categorical_action_encoding=True)
    env = TransformedEnv(env, RewardSum())
    env.append_transform(StepCounter())
    env.set_seed(seed)
    return env


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=20_000)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    env = make_env(args.seed)
    network = MLP(4, 2, num_cells=[120, 84], activation_class=torch.nn.ReLU)
    actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec)
    explore = EGreedyModule(
        env.action_spec, annealing_num_steps=args.total_timesteps // 3, eps_init=1.0, eps_end=0.05
    )
    collector = Collector(
        env,
        TensorDictSequential(actor, explore),
        frames_per_batch=FRAMES_PER_BATCH,
        total_frames=args.total_timesteps,
        auto_register_policy_transforms=True,
    )
    loss_module = DQNLoss(actor, delay_value=True, double_dqn=True)
    loss_module.make_value_estimator(gamma=0.99)
    target_updater = HardUpdate(loss_module, value_network_update_interval=125)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)
    buffer = ReplayServerBuffer(env, 20_000, batch_size=BATCH_SIZE, alpha=0.6, seed=args.seed)

    frames = 0
    for steps in collector:
        buffer.extend(steps)
        explore.step(steps.numel())
        frames += steps.numel()
        if frames < 1000:
            continue
        for _ in range(UPDATES_PER_BATCH):
            sample = buffer.sample()
            loss = loss_module(sample)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target_updater.step()
            buffer.update_tensordict_priority(sample)

    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        env = make_env(1_000 + args.seed)
        ends = [env.rollout(500, actor)["next", "episode_reward"][-1] for _ in range(20)]
    average_return = torch.stack(ends).mean().item()
    print(f"average return of 20 greedy episodes: {average_return:.1f}")
