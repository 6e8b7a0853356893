"""replay_server.integrations.sb3 against Stable-Baselines3's own buffers: `make test-adapters`.

SB3's DQN plays scripted episodes into our buffer; each `add` also goes to SB3's own. Every
transition drawn from the server has to be one of SB3's, and all of them have to be drawn.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from environments import SCRIPT, ScriptedEnv
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common import buffers
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from replay_server import (
    Client,
    NStep,
    Server,
    ServerRestarted,
    SpecMismatch,
    Table,
    TableEmptied,
    Uniform,
    spec_from,
)
from replay_server.integrations.sb3 import ReplayServerBuffer


class Parts(gym.ObservationWrapper):
    """The scripted observation as a Dict of two."""

    def __init__(self, env):
        super().__init__(env)
        box = env.observation_space
        parts = {"who": spaces.Box(0, 1e6, (1,), box.dtype), "when": spaces.Box(0, 1e6, (2,))}
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation):
        return {"who": observation[:1], "when": observation[1:]}


class Twin(ReplayServerBuffer):
    """Ours, with SB3's own beside it as `own`."""

    def __init__(self, size, observation_space, action_space, own=None, **options):
        super().__init__(size, observation_space, action_space, **options)
        kind, more = own
        self.own = kind(size, observation_space, action_space, "cpu", self.n_envs, **more)

    def add(self, *arguments):
        super().add(*arguments)
        self.own.add(*arguments)


def model_of(envs, own=(buffers.ReplayBuffer, {}), policy="MlpPolicy", **options):
    options = {"own": own, "seed": 3, **options}
    return DQN(policy, envs, 1e-3, 4096, 10**6, replay_buffer_class=Twin,
               replay_buffer_kwargs=options, seed=1, device="cpu")  # fmt: skip


def vector(count, wrap=lambda env: env):
    return DummyVecEnv([lambda who=who: wrap(ScriptedEnv(who)) for who in range(count)])


def stored(own):
    """{observation: (action, reward, done, next observation)} of all that SB3's buffer holds."""
    rows = {}
    for at in range(own.pos):
        for env in range(own.n_envs):
            done = own.dones[at, env] * (1 - own.timeouts[at, env])
            facts = own.actions[at, env].tolist(), float(own.rewards[at, env]), float(done)
            key = tuple(own.observations[at, env].tolist())
            rows[key] = (*facts, own.next_observations[at, env].tolist())
    return rows


def drawn(buffer):
    """The same of 4 000 draws from the server."""
    rows = {}
    for _ in range(4):
        batch = buffer.sample(1000)
        for i, observation in enumerate(batch.observations.tolist()):
            facts = batch.actions[i].tolist(), batch.rewards[i].item(), batch.dones[i].item()
            rows[tuple(observation)] = (*facts, batch.next_observations[i].tolist())
    return rows


@pytest.mark.filterwarnings("error:stream")  # the writer would find a reset by itself, and warn
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("normalized", [False, True])
def test_every_transition_is_sb3s(count, normalized):
    """Given episodes that terminate and that are truncated, and a second `learn` that resets in
    mid-episode. Expect the very transitions of SB3's buffer but those of the newest step, whose
    next observation has not been acted on; dones where the episode terminated, not where it was
    truncated."""
    envs = vector(count)
    model = model_of(VecNormalize(envs) if normalized else envs)
    for _ in range(2):
        model.learn(20 * count)
    buffer = model.replay_buffer
    expected, found = stored(buffer.own), drawn(buffer)
    open_now = {tuple(row) for row in buffer.own.observations[buffer.own.pos - 1].tolist()}
    assert {key for key in expected if key not in found} <= open_now
    for key, row in found.items():
        assert row == expected[key], f"the transition of {key}"
    ends = [row[2] for row in found.values()]
    endings = {played.ending for played in SCRIPT}
    assert endings == {"terminated", "truncated"} and 0 < sum(ends) < len(ends)
    assert buffer.size() == len(found)
    buffer.close()


def test_normalization_is_applied_when_drawn():
    """Given VecNormalize. Expect draws through it to be its normalized raw draws."""
    envs = VecNormalize(vector(2))
    buffer = model_of(envs).learn(60).replay_buffer
    raw, normalized = {}, buffer.sample(50, env=envs)
    for observation, row in stored(buffer.own).items():
        raw[tuple(envs.normalize_obs(np.array(observation)).round(4).tolist())] = row[1]
    rewards = envs.normalize_reward(np.array(list(raw.values())))
    rewards = dict(zip(raw, rewards.round(4).tolist(), strict=True))
    for i, observation in enumerate(normalized.observations.numpy().astype(np.float64)):
        nearest = min(rewards, key=lambda key: np.abs(np.array(key) - observation).sum())
        assert np.abs(np.array(nearest) - observation).max() < 2e-4
        assert normalized.rewards[i].item() == pytest.approx(rewards[nearest], abs=2e-4)
    buffer.close()


def test_n_steps_are_sb3s():
    """Given n_steps=3. Expect SB3's NStepReplayBuffer's returns, dones and discounts."""
    gamma = 0.9
    own = (buffers.NStepReplayBuffer, {"n_steps": 3, "gamma": gamma})
    buffer = model_of(vector(1), own, n_steps=3, gamma=gamma).learn(50).replay_buffer
    batch = buffer.own._get_samples(np.arange(buffer.own.pos - 3))
    expected = {tuple(o): i for i, o in enumerate(batch.observations.tolist())}
    found, compared = buffer.sample(600), set()
    for i, observation in enumerate(found.observations.tolist()):
        if (j := expected.get(tuple(observation))) is None:
            continue
        compared.add(j)
        done = batch.dones[j].item()
        assert found.dones[i].item() == done
        assert found.rewards[i].item() == pytest.approx(batch.rewards[j].item(), rel=1e-5)
        if not done:
            assert found.discounts[i].item() == pytest.approx(batch.discounts[j].item())
            assert found.next_observations[i].tolist() == batch.next_observations[j].tolist()
    assert len(compared) == len(expected)
    buffer.close()


class Wide(gym.Env):
    """Actions of float64, as dm_control's are."""

    observation_space = spaces.Box(-9, 9, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        seen = self.np_random.normal(size=3).astype(np.float32)
        return seen, float(np.sum(action)), self.steps == 7, False, {}


def test_actions_of_float64_are_learned_from():
    """Given a space of float64 actions. Expect SAC to train, on float32 as with SB3's buffer."""
    model = SAC("MlpPolicy", Wide(), learning_starts=20, replay_buffer_class=ReplayServerBuffer)
    model.learn(30)
    assert model.replay_buffer.sample(4).actions.dtype == torch.float32
    model.replay_buffer.close()


def test_several_steps_need_the_algorithms_gamma():
    """Given n_steps=3 here, or windows of 3 at a server elsewhere. Expect a sentence: returns would
    be discounted by another gamma; and one where the table has other windows."""
    spaces_of = Wide.observation_space, Wide.action_space
    with pytest.raises(ValueError, match="n_steps=3 without gamma"):
        ReplayServerBuffer(1000, *spaces_of, n_steps=3)
    spec = spec_from(Wide())
    for options, words in (
        ({}, "n_steps=3 without gamma"),
        ({"n_steps": 2, "gamma": 0.9}, "windows of 3: give n_steps=3"),
    ):
        table = Table("main", spec, NStep(3), 1000, Uniform())
        with Server([table], "udp://127.0.0.1:0") as server, pytest.raises(ValueError, match=words):
            ReplayServerBuffer(1000, *spaces_of, address=server.address, **options)


def test_dict_observations():
    """Given a Dict space. Expect DictReplayBufferSamples with SB3's next observations."""
    own = (buffers.DictReplayBuffer, {})
    envs = vector(2, Parts)
    buffer = model_of(envs, own, "MultiInputPolicy").learn(60).replay_buffer
    batch, own = buffer.sample(400), buffer.own
    for i in range(400):
        seen = [batch.observations[name][i].numpy() for name in ("who", "when")]
        row, env = next(
            (row, env)
            for row in range(own.pos)
            for env in range(2)
            if np.array_equal(own.observations["who"][row, env], seen[0])
            and np.array_equal(own.observations["when"][row, env], seen[1])
        )
        for name in ("who", "when"):
            following = own.next_observations[name][row, env]
            assert batch.next_observations[name][i].tolist() == following.tolist()
    buffer.close()


def test_a_server_elsewhere_must_have_these_columns():
    """Given a server with the environment's table, and one without. Expect draws there, and one
    sentence."""
    right, wrong = spec_from(ScriptedEnv()), spec_from(gym.make("CartPole-v1"))
    for columns, address in ((right, "loopback://sb3-right"), (wrong, "loopback://sb3-wrong")):
        with Server([Table("main", columns, NStep(1), 4096)], address) as server:
            if columns == wrong:
                with pytest.raises(SpecMismatch, match=r"observation: mine float32\[3\]"):
                    model_of(vector(1), address=address)
                continue
            buffer = model_of(vector(1), address=address).learn(30).replay_buffer
            assert len(buffer.sample(7).observations) == 7 and buffer.server is None
            assert server.counters()["items_sampled"] == 7
            with pytest.raises(TypeError, match="live in the server"):
                buffer.__getstate__()
            buffer.reset()
            assert buffer.size() == 0
            buffer.close()


def test_numbered_observations_have_sb3s_shape():
    """Given a Discrete observation space. Expect the shapes of SB3's own buffer, [B, 1]."""
    spaces_of = (spaces.Discrete(9), spaces.Discrete(2))
    ours = ReplayServerBuffer(64, *spaces_of, "cpu", seed=1)
    own = buffers.ReplayBuffer(64, *spaces_of, "cpu")
    for step in range(8):
        row = [np.array([step]), np.array([step + 1]), np.zeros(1, int), np.ones(1), np.zeros(1)]
        for buffer in (ours, own):
            buffer.add(*row, [{}])
    found, expected = ours.sample(4), own.sample(4)
    for name in ("observations", "next_observations", "actions", "rewards", "dones"):
        assert getattr(found, name).shape == getattr(expected, name).shape, name
    assert torch.equal(found.next_observations, found.observations + 1)
    ours.close()


class Lasting(gym.Env):
    """A reset goes on from the present state: only a time limit ends an episode."""

    observation_space, action_space = spaces.Box(-9, 9, (2,)), spaces.Discrete(2)
    state, steps = np.zeros(2, np.float32), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.state.copy(), {}

    def step(self, action):
        self.steps += 1
        self.state = self.state + np.float32(1 / 128)
        return self.state.copy(), 1.0, False, self.steps >= 10, {}


def test_an_environment_that_goes_on_behind_a_time_limit():
    """Given resets that return the last state. Expect SB3's own transitions, none of them
    terminated, and no word about resets that nobody made."""
    model = model_of(DummyVecEnv([Lasting]))
    model.learn(100)
    found, expected = drawn(model.replay_buffer), stored(model.replay_buffer.own)
    assert len(found) >= 99 and found == {key: expected[key] for key in found}
    model.replay_buffer.close()


def test_the_seed_of_the_algorithm_is_that_of_the_draws():
    """Given DQN(seed=3) twice and another seed, without one for the buffer. Expect the draws of
    the first two alike, and not those of the third."""
    found = []
    for seed in (3, 3, 4):
        model = DQN("MlpPolicy", vector(1), seed=seed, buffer_size=4096, learning_starts=10**6,
                    replay_buffer_class=ReplayServerBuffer, device="cpu")  # fmt: skip
        for step in range(50):
            obs = np.full((1, 3), step, np.float32)
            model.replay_buffer.add(obs, obs + 1, np.zeros(1, int), np.ones(1), np.zeros(1), [{}])
        found.append(model.replay_buffer.sample(64).observations[:, 0].tolist())
        model.replay_buffer.close()
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    "option", [{"optimize_memory_usage": True}, {"handle_timeout_termination": False}]
)
def test_options_of_sb3s_own_buffer_are_refused(option):
    """Given options that mean nothing here. Expect one sentence that says to leave them out."""
    env = ScriptedEnv()
    with pytest.raises(ValueError, match="leave it out"):
        ReplayServerBuffer(9, env.observation_space, env.action_space, **option)


def test_a_draw_before_the_first_transition_is_refused():
    """Given learning_starts=0 and no step. Expect one sentence, not a wait that nothing ends."""
    env = vector(1)
    model = DQN("MlpPolicy", env, learning_starts=0, train_freq=1, device="cpu",
                replay_buffer_class=ReplayServerBuffer)  # fmt: skip
    assert model.replay_buffer.size() == 0
    with pytest.raises(ValueError, match=r"add a step first$"):
        model.replay_buffer.sample(4)
    model.replay_buffer.close()


@pytest.mark.parametrize("n_steps", [1, 3])
def test_the_first_steps_of_an_empty_buffer_are_drawable(n_steps, tmp_path):
    """Given a model that goes on with an empty buffer, at once and behind a reset, which draws
    behind each step. Expect it to go on as with SB3's own, and the returns that are cut there to be
    those of the steps that were there, bootstrapped."""
    named = {"n_steps": n_steps, "gamma": 0.9}
    model = DQN("MlpPolicy", vector(2), learning_starts=20, train_freq=1, device="cpu", seed=1,
                replay_buffer_class=ReplayServerBuffer, replay_buffer_kwargs=named)  # fmt: skip
    model.learn(40)
    model.save(tmp_path / "model")
    again = DQN.load(tmp_path / "model", env=model.get_env(), device="cpu")
    again.learn(10, reset_num_timesteps=False)
    assert again.num_timesteps == 50 and again.replay_buffer.size() > 0
    again.replay_buffer.reset()
    again.learn(10, reset_num_timesteps=False)
    buffer = again.replay_buffer
    buffer.reset()
    obs, following = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    buffer.add(obs, following, np.zeros(2, int), np.array([2.0, 2.0]), np.zeros(2, bool), [{}, {}])
    drawn = buffer.sample(16)
    assert (drawn.rewards == 2.0).all() and (drawn.dones == 0.0).all()
    assert (drawn.observations == 0.0).all() and (drawn.next_observations == 1.0).all()
    if n_steps > 1:
        assert np.allclose(drawn.discounts, 0.9)
    for each in (model, again):
        each.replay_buffer.close()


@pytest.mark.parametrize("happened", [TableEmptied, ServerRestarted])
def test_a_buffer_whose_server_forgot_it_goes_on_after_reset(happened):
    """Given a buffer whose table was reset by another client, or whose server restarted. Expect an
    error that names buffer.reset(), of add, size and sample, and a buffer that goes on after it."""
    env = ScriptedEnv()
    table = Table("main", spec_from(env), NStep(1), 1000, Uniform())
    seen = env.observation_space.sample()[None]
    step = seen, seen + 1, np.zeros((1, 1), np.int64), np.ones(1), np.zeros(1), [{}]
    server = Server([table], "udp://127.0.0.1:0")
    where = env.observation_space, env.action_space
    buffer = ReplayServerBuffer(1000, *where, device="cpu", address=server.address)
    buffer.add(*step)
    assert buffer.size() == 0
    if happened is TableEmptied:
        with Client(server.address) as other:
            other.reset("main")
    else:
        server.close()
        server = Server([table], server._address)
    for call in (lambda: [buffer.add(*step) for _ in range(300)], buffer.size):
        with pytest.raises(happened, match=r"are gone, .*; call buffer.reset\(\) once"):
            call()
    with pytest.raises(happened, match=r"call buffer.reset\(\)"):
        buffer.sample(1)
    buffer.reset()
    for _ in range(3):
        buffer.add(*step)
    assert buffer.size() == 2
    buffer.close()
    server.close()
