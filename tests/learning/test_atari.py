"""Atari frames: what is played, what is stored of it, and that stacks are what the actor saw.

Oracles: the emulator itself, stepped frame by frame, with the maximum and the shrinking done in
NumPy; ale-py's own stacks of four; ale-py's own life_loss_info. Games are real, seeds are fixed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
import pong
import pytest
import torch
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from deploy.demo import parsed
from deploy.table import server_toml, table_for
from replay_server import Autoreset, FrameStack, mode_of, spec_from
from replay_server.returns import n_step_targets
from replay_server.serving.config import atari_spec, load
from replay_server.training.atari import AtariFrames, AtariGame, seed_of
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import make_env, make_envs
from replay_server.training.presets import preset, preset_for
from replay_server.writing.autoreset import TERMINATED, TRUNCATED

ROOT = Path(__file__).resolve().parents[2]
SEED = 11


def theirs(game: str, count: int, **changes) -> AtariVectorEnv:
    """ale-py's vector environment with the same settings, but for the changes."""
    settings = {
        "stack_num": 1,
        "reward_clipping": False,
        "use_fire_reset": False,
        "repeat_action_probability": 0.25,
        "num_threads": 1,
    }
    return AtariVectorEnv(game, count, **(settings | changes))


def seeds_of(count: int) -> tuple[list[int], np.ndarray]:
    """(what ours takes, what ale-py then gets)."""
    given = [SEED + i for i in range(count)]
    return given, np.array([seed_of(seed) for seed in given], np.int32)


def weights(source: int, target: int) -> np.ndarray:
    """[target, source]: how much of each cell of a line lies in each cell of a shorter one."""
    edges, cells = np.arange(target + 1) * source / target, np.arange(source)
    low, high = np.maximum(edges[:-1, None], cells), np.minimum(edges[1:, None], cells + 1)
    return np.maximum(high - low, 0.0) * target / source


HIGH, WIDE = weights(210, 84), weights(160, 84)


class Emulator:
    """The game as the console plays it: one frame at a time, at its own size."""

    def __init__(self, game: str, seed: int, repeat: float, noops: int) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", repeat)
        self.ale.loadROM(roms.get_rom_path(game))
        self.ale.reset_game()
        for _ in range(noops):
            self.ale.act(ale_py.Action.NOOP)
        self.actions = self.ale.getMinimalActionSet()

    def step(self, action: int) -> tuple[np.ndarray, float]:
        """Four frames: (the maximum of the last two, the sum of the rewards)."""
        reward, screens = 0.0, []
        for _ in range(4):
            reward += self.ale.act(self.actions[action])
            screens.append(self.ale.getScreenGrayscale().reshape(210, 160))
        return np.maximum(screens[2], screens[3]), reward


@pytest.mark.parametrize(
    ("game", "protocol", "repeat"),
    [("Pong", None, 0.25), ("MsPacman", "sticky", 0.25), ("MsPacman", "apex", 0.0)],
)
def test_a_step_is_four_frames_the_last_two_pooled_and_shrunk(game, protocol, repeat):
    """Given the emulator with the same seed. Expect its frames, pooled and shrunk, and its raw
    rewards: actions stick by default, and with protocol apex they do not."""
    chosen = {} if protocol is None else {"protocol": protocol}
    envs = make_envs(f"ALE/{game}-v5", 1, **chosen)
    given, seeds = seeds_of(1)
    _, infos = envs.reset(seed=given)
    rom = {"Pong": "pong", "MsPacman": "ms_pacman"}[game]
    console = Emulator(rom, int(seeds[0]), repeat, int(infos["episode_frame_number"][0]))
    rng, rewards, different = np.random.default_rng(3), [], 0
    for _ in range(80):
        action = int(rng.integers(len(console.actions)))
        frames, reward, *_ = envs.step(np.array([action]))
        screen, raw = console.step(action)
        assert frames.shape == (1, 84, 84) and frames.dtype == np.uint8
        assert np.abs(frames[0] - HIGH @ screen.astype(float) @ WIDE.T).max() <= 1.0
        assert reward[0] == raw
        rewards.append(raw)
        different += int((screen != console.ale.getScreenGrayscale().reshape(210, 160)).any())
    assert different > 0, "the maximum of two frames was never another than the last frame"
    assert game == "Pong" or max(rewards) >= 10.0, "rewards are raw"
    envs.close()


@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_stacks_of_single_frames_are_ale_pys_own_stacks(game):
    """Given ale-py stacking by four, and ours by FrameStack from single frames, zeros behind the
    start. Expect equal bytes at every step, over the starts of many episodes."""
    envs = AtariFrames(f"ALE/{game}-v5", 2, frames_max=120)
    stacked = theirs(game.lower(), 2, stack_num=4, max_num_frames_per_episode=120)
    given, seeds = seeds_of(2)
    spec = spec_from(envs)
    assert spec == atari_spec() and spec.record_size == 7072
    autoreset, stack = Autoreset(spec, mode_of(envs), 2), FrameStack(spec["observation"], 4, 2)
    observation, _ = envs.reset(seed=given)
    expected, _ = stacked.reset(seed=seeds)
    stack.reset(observation)
    rng, starts, actions = np.random.default_rng(5), 0, int(envs.single_action_space.n)
    for _ in range(100):
        assert np.array_equal(stack.array, expected)
        action = rng.integers(actions, size=2)
        following, reward, terminated, truncated, infos = envs.step(action)
        expected, _, _, _, _ = stacked.step(action)
        rows = autoreset.rows(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=following,
            infos=infos,
        )
        if rows.started.any():
            stack.reset(following, rows.started)
        stack.push(following, ~rows.started)
        observation, starts = following, starts + int(rows.started.sum())
    assert starts >= 6
    envs.close()


def played(envs, steps: int, *, lives: bool) -> tuple[list[list[tuple]], list[np.ndarray]]:
    """(rows of each stream with their ends, `Rows.ending` of each call) under scripted actions.

    An action is a function of stream, episode and step, so that both modes play the same game.
    """
    count, spec = envs.num_envs, atari_spec()
    autoreset = Autoreset(spec, mode_of(envs), count)
    stored: list[list[tuple]] = [[] for _ in range(count)]
    episode, step = np.zeros(count, int), np.zeros(count, int)
    given, seeds = seeds_of(count)
    ours = isinstance(envs, AtariFrames)
    frames_of = (lambda frames: frames) if ours else (lambda frames: frames[:, 0])
    observation, _ = envs.reset(seed=given if ours else seeds)
    endings = []
    for _ in range(steps):
        action = (7 * np.arange(count) + 3 * episode + step // 2) % 3 + 1
        following, reward, terminated, truncated, infos = envs.step(action)
        infos = {k: frames_of(v) if k == "final_obs" else v for k, v in infos.items()}
        rows = autoreset.rows(
            observation=frames_of(observation),
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=frames_of(following),
            infos=infos,
            life_lost=infos["life_lost"] if lives else None,
        )
        for i, stream in enumerate(rows.streams):
            columns = rows.columns
            stored[stream].append(tuple(columns[c.name][i].tobytes() for c in spec))
        for e, stream in enumerate(rows.ended_streams):
            stored[stream].append((rows.closing["observation"][e].tobytes(),))
        step[rows.streams] += 1
        step[rows.ended_streams], observation = 0, following
        episode[rows.ended_streams] += 1
        endings.append(rows.ending)
    return stored, endings


def test_both_autoreset_modes_store_the_same_rows():
    """Given ale-py in next-step and in same-step mode, both open at once. Expect the same rows:
    none is made up, none is missing, and each environment says its own mode."""
    ours = AtariFrames("ALE/Breakout-v5", 2, frames_max=800)
    mode = AutoresetMode.SAME_STEP
    same = theirs("breakout", 2, autoreset_mode=mode, max_num_frames_per_episode=800)
    following = theirs("breakout", 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    sync = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    said = [mode_of(envs) for envs in (ours, same, following, sync)]
    assert said == ["next-step", "same-step", "next-step", "next-step"]
    a, endings = played(ours, 420, lives=False)
    b, _ = played(same, 400, lives=False)
    kinds = np.concatenate(endings)
    assert (kinds == TERMINATED).any() and (kinds == TRUNCATED).any()
    for mine, other in zip(a, b, strict=True):
        whole = min(len(mine), len(other))
        assert whole > 350 and mine[:whole] == other[:whole]


def test_lives_lost_are_ale_pys_and_end_nothing():
    """Given ale-py's life_loss_info. Expect the same steps cut; the episode goes on."""
    envs = AtariFrames("ALE/Breakout-v5", 2)
    told = theirs("breakout", 2, life_loss_info=True)
    given, seeds = seeds_of(2)
    envs.reset(seed=given)
    told.reset(seed=seeds)
    rng, lost, ended = np.random.default_rng(1), 0, 0
    for _ in range(400):
        action = rng.integers(4, size=2)
        frames, _, terminated, truncated, infos = envs.step(action)
        expected, _, cut, _, _ = told.step(action)
        assert np.array_equal(frames, expected[:, 0])
        assert np.array_equal(infos["life_lost"] | terminated, cut)
        assert not (infos["life_lost"] & terminated).any() and not truncated.any()
        lost, ended = lost + int(infos["life_lost"].sum()), ended + int(terminated.sum())
    assert ended >= 2 and lost == 4 * ended + int((5 - infos["lives"])[~terminated].sum())


def test_a_life_lost_at_the_time_limit_is_still_the_end():
    """Given a time limit at the very step that loses a life. Expect a truncated episode whose
    return is cut, and no made-up row. (ale-py's life_loss_info tells of no ending there.)"""
    given, seeds = seeds_of(1)
    envs = AtariFrames("ALE/Breakout-v5", 1)
    envs.reset(seed=given)
    steps = 1
    while not envs.step(np.array([0 if steps > 1 else 1]))[4]["life_lost"][0]:
        steps += 1
    limited = AtariFrames("ALE/Breakout-v5", 1, frames_max=4 * steps)
    told = theirs("breakout", 1, life_loss_info=True, max_num_frames_per_episode=4 * steps)
    autoreset = Autoreset(atari_spec(), mode_of(limited), 1)
    observation, _ = limited.reset(seed=given)
    told.reset(seed=seeds)
    stored = 0
    for step in range(1, steps + 4):
        action = np.array([0 if step > 1 else 1])
        following, reward, terminated, truncated, infos = limited.step(action)
        _, _, theirs_ended, theirs_truncated, _ = told.step(action)
        rows = autoreset.rows(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=following,
            infos=infos,
            life_lost=infos["life_lost"],
        )
        stored += len(rows.streams)
        if step == steps:
            assert rows.ending.tolist() == [TRUNCATED] and rows.columns["terminated"].all()
            assert np.array_equal(rows.closing["observation"], following)
            assert theirs_ended[0] and not theirs_truncated[0]
        elif step == steps + 1:
            assert len(rows.streams) == 0 and rows.started.all()
        observation = following
    assert stored == steps + 2


def test_a_truncated_return_bootstraps_and_a_lost_life_does_not():
    """Given rows of real games, as columns of items with n = 3. Expect a discount of gamma^m for
    the last steps before a time limit, and 0 within three steps of a lost life."""
    envs = AtariFrames("ALE/Breakout-v5", 1, frames_max=400)
    rows, endings = played(envs, 101, lives=True)
    kinds = np.concatenate(endings)
    assert kinds[99] == TRUNCATED and len(kinds) == 100
    columns = [row for row in rows[0] if len(row) > 1]
    terminated = np.array([row[3] == b"\1" for row in columns])
    assert terminated.sum() >= 2 and not terminated[97:].any()
    ahead = torch.tensor([100 - t for t in range(100)])
    window = np.array([[terminated[min(t + i, 99)] for i in range(3)] for t in range(100)])
    _, discount, _ = n_step_targets(torch.zeros(100, 3), torch.from_numpy(window), ahead, 0.9)
    assert discount[97:].tolist() == pytest.approx([0.9**3, 0.9**2, 0.9])
    lives = np.flatnonzero(terminated)
    assert all(discount[t] == 0.0 for life in lives for t in range(life - 2, life + 1))
    assert float(discount[lives[0] + 1]) > 0.0, "the step behind a lost life starts anew"


SHORT = {
    "Pong, n = 3, zeros": {"steps": 1200, "frames_max": 240},
    "Breakout, n = 3, first": {"steps": 1500, "env": "ALE/Breakout-v5", "pad": "first", "envs": 3},
    "Breakout, n = 1": {"steps": 600, "env": "ALE/Breakout-v5", "n": 1, "frames_max": 96},
}


@pytest.mark.parametrize("name", SHORT)
def test_sampled_stacks_are_the_networks_inputs(name, capsys):
    """Given a game played by an Actor over UDP. Expect every item, drawn and fetched, to hold the
    stacks its network was fed, over the edges of episodes; and one new frame a step on the wire."""
    args = pong.Args(every=400, life_loss="Breakout" in name, **SHORT[name])
    report, said = pong.prove(args)
    with capsys.disabled():
        print("", *said, sep="\n  ")
    assert report.stacks_equal == 2 * (report.items_drawn + report.items_fetched)
    assert report.items_drawn >= 2 * pong.BATCH and report.episodes >= 2
    assert report.shorter >= (args.n - 1) * report.episodes
    assert (name == "Breakout, n = 3, first") == (report.cut > 0)
    fresh = report.push_bytes - report.resent_bytes
    assert 7072 < fresh / report.steps < 1.15 * 7072
    frames = args.stack + args.n
    assert frames < report.sample_bytes / report.items_fetched / 7056 < 1.3 * frames


def test_a_single_game_starts_from_its_seed():
    """Given the environment that judges. Expect the same game from the same seed, another else."""
    runs = []
    for seed in (2**57 + 3, 2**57 + 3, 2**57 + 4):
        env = make_env("ALE/Pong-v5", protocol="apex")
        assert isinstance(env, AtariGame)
        frames = [env.reset(seed=seed)[0]]
        frames += [env.step(2)[0] for _ in range(40)]
        runs.append(np.stack(frames))
        env.close()
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])


WRONG = {
    "ALE/Pnog-v5": "'ALE/Pong-v5'",
    "ALE/pong-v5": "'ALE/Pong-v5'",
    "ALE/Pong-v4": "'ALE/Pong-v5'",
    "BreakoutNoFrameskip-v4": "'ALE/Breakout-v5'",
    "ALE/Ms_Pacman-v5": "'ALE/MsPacman-v5'",
    "CartPole-v9": "v1",
}


@pytest.mark.parametrize("env_id", WRONG)
def test_a_game_that_does_not_exist_is_told_the_nearest(env_id):
    """Given the name of a game that does not exist. Expect EnvError with that name and the one that
    was probably meant."""
    with pytest.raises(EnvError) as refused:
        make_envs(env_id, 2)
    assert env_id in str(refused.value) and WRONG[env_id] in str(refused.value)


def test_a_protocol_that_does_not_exist_is_refused():
    """Given a misspelt protocol. Expect EnvError with those that there are."""
    with pytest.raises(EnvError, match="sticky, apex"):
        make_envs("ALE/Pong-v5", 2, protocol="sticki")


PROGRAMS = {
    "actor": (["actor"], True),
    "learner": (["learner", "train"], False),
    "demo": (["deploy", "demo"], False),
}
WITHOUT = "import sys, runpy; sys.modules['ale_py'] = None; runpy.run_module(sys.argv.pop(1), {}, "
WITHOUT += "'__main__', True)"


@pytest.mark.parametrize(("program", "missing"), PROGRAMS.values(), ids=PROGRAMS)
def test_the_programs_refuse_before_they_start(program, missing, tmp_path):
    """Given a mistyped game, or ale-py not installed. Expect one sentence, exit code 2, no run."""
    first = ["-c", WITHOUT] if missing else ["-m"]
    env_id = "ALE/Pong-v5" if missing else "ALE/Pnog-v5"
    command = [sys.executable, *first, *program, "--env", env_id]
    command += ["--run", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert ("pip install 'replay-server[atari]'" if missing else "'ALE/Pong-v5'") in done.stderr
    assert not (tmp_path / "run").exists()


def test_presets_fit_their_environments_and_the_server(tmp_path):
    """Given no preset but an environment. Expect the one for it; and of each Atari preset a
    server.toml that can be read, without ale-py, as the same table."""
    assert preset_for("", "ALE/Breakout-v5") == "atari" and preset_for("", "") == "cartpole"
    assert preset_for("apex-paper", "ALE/Pong-v5") == "apex-paper"
    args, settings, *_ = parsed(["--env", "ALE/Breakout-v5"])
    assert (args.preset, args.solve_at, settings.stack, settings.actors) == ("atari", None, 4, 1)
    assert parsed([])[0].solve_at == 490.0, "only CartPole has a mark to reach"
    for name in ("atari", "apex-paper"):
        settings = preset(name)
        (tmp_path / "server.toml").write_text(server_toml(settings, url="udp://[::1]:0", seed=1))
        read = load(tmp_path / "server.toml")
        made = table_for(settings)
        assert read.tables[0] == made
        assert read.options.records > settings.prefetch
        assert read.options.sessions >= 2 * settings.actors + 1 and made.writers > settings.actors
    assert preset("apex-paper").protocol == "apex" and preset("atari").protocol == "sticky"
