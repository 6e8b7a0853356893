"""The ball that only a stack can follow: what can be won with one frame, with two, and by whom.

That the Nature network learns it, through the server, in less than three minutes on one core, is
`make pixel`; that nothing is learned from stacks of one is `make pixel STACK=1`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from pixels import CELLS, GUESSES, SIDE, Flight, best_of_single_frames

from replay_server import spec_from
from replay_server.training import options, runfile
from replay_server.training.env_errors import EnvError
from replay_server.training.envs import check_env, check_playable, make_env, make_envs
from replay_server.training.networks import network_from

EPISODES = 400


def played(rule, episodes=EPISODES):
    """The share of episodes won by rule(frame before, frame now) -> answer."""
    env, won = Flight(), 0.0
    env.reset(seed=3)
    for _ in range(episodes):
        before = now = env.reset()[0]
        over = False
        while not over:
            following, reward, over, _, _ = env.step(rule(before, now))
            before, now = now, following
        won += reward
    return won / episodes


def column(frame):
    """Which cell of the ring the ball is in."""
    return int(np.flatnonzero(frame.any(0))[0]) * CELLS // SIDE


def test_two_frames_win_all_and_one_frame_half():
    """Given rules. Expect 1.0 for the one that looks at the motion; for every rule of one frame at
    most a half, by trying all of them, and about a half by playing the best and one at random."""
    moved = played(lambda before, now: (column(now) - column(before)) % CELLS == 1)
    assert moved == 1.0
    assert best_of_single_frames() == 0.5
    rng = np.random.default_rng(1)
    chance = 4 * np.sqrt(0.25 / EPISODES)
    assert played(lambda before, now: 1) == pytest.approx(0.5, abs=chance)
    assert played(lambda before, now: rng.integers(2)) == pytest.approx(0.5**GUESSES, abs=chance)


def test_a_frame_does_not_tell_the_direction():
    """Given the frames that can be seen at each step of both directions. Expect the same ones."""
    seen = {}
    for direction in (0, 1):
        env = Flight()
        for cell in range(CELLS):
            env.reset(seed=1)
            env.cell, env.height, env.direction = cell, 2, direction
            for step in range(GUESSES + 1):
                seen.setdefault((direction, step), Counter())[env.frame().tobytes()] += 1
                env.step(direction)
    for step in range(GUESSES + 1):
        assert seen[0, step] == seen[1, step] and len(seen[0, step]) == CELLS


def test_the_programs_find_it_by_its_name():
    """Given "pixels:Flight-v0" and pixel.toml beside. Expect vectors of frames, a network for them,
    and a run of frames stored once; a module that is not there is one sentence."""
    envs = make_envs("pixels:Flight-v0", 2)
    assert envs.reset(seed=[1, 2])[0].shape == (2, SIDE, SIDE)
    told = runfile.load(Path(__file__).parent / "pixel.toml", options.PROGRAMS)
    settings = options.resolved(options.Demo, told["demo"])[1]
    spec = spec_from(envs)
    assert spec["observation"].size == SIDE * SIDE and settings.stack == 4
    network = network_from("nature", spec, 2, stack=settings.stack, hidden=settings.hidden)
    assert sum(p.numel() for p in network.parameters()) > 100_000
    envs.close()
    env = make_env("pixels:Flight-v0", "rgb_array")
    env.reset(seed=1)
    assert env.render().shape == (SIDE, SIDE, 3)
    for wrong in ("pixls:Flight-v0", "pixels:Fligth-v0"):
        with pytest.raises(EnvError, match=wrong):
            check_env(wrong)


class Plain(gymnasium.Env):
    """An environment whose constructor takes a size, and no render_mode."""

    def __init__(self, size: int = 5) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)


def test_a_constructor_need_not_take_a_render_mode(monkeypatch):
    """Given an environment without one. Expect that it is made wherever no pictures are asked
    for, and where they are, one sentence."""
    monkeypatch.setitem(gymnasium.registry, "Plain-v0", None)  # forgotten again at the end
    monkeypatch.delitem(gymnasium.registry, "Plain-v0")
    gymnasium.register("Plain-v0", Plain)
    check_playable("Plain-v0")
    make_env("Plain-v0").close()
    make_envs("Plain-v0", 2).close()
    with pytest.raises(EnvError, match="takes no render_mode; leave out --video"):
        make_env("Plain-v0", "rgb_array")


class Difficult(gymnasium.Env):
    """An environment that only stands for what a stranger's may do."""

    def __init__(self, how: str, render_mode: str | None = None) -> None:
        if how == "raises":
            raise KeyError("no licence")
        text = gymnasium.spaces.Text(5)
        self.observation_space = text if how == "text" else gymnasium.spaces.Discrete(3)
        self.action_space = gymnasium.spaces.Discrete(2)


def test_an_environment_that_cannot_be_played_is_one_sentence(monkeypatch, tmp_path):
    """Given constructors and modules that raise, a space that no column holds, ids like none.
    Expect EnvError each, before anything is started."""
    (tmp_path / "unlicensed.py").write_text("raise RuntimeError('no key')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for how in ("raises", "text", "well"):
        name = f"Difficult{how}-v0"
        monkeypatch.setitem(gymnasium.registry, name, None)  # forgotten again at the end
        monkeypatch.delitem(gymnasium.registry, name)
        gymnasium.register(name, Difficult, kwargs={"how": how})
    check_playable("Difficultwell-v0")
    for env_id, words in {
        "Difficultraises-v0": "its constructor raised KeyError: 'no licence'",
        "Difficulttext-v0": "Text",
        "unlicensed:A-v0": "unlicensed raised RuntimeError: no key",
        "unheardof": "no id that Gymnasium knows is like it",
        "CartPol-v1": "the nearest is 'CartPole-v",
        "": "has no name",
        "pixels:": "has no name",
    }.items():
        with pytest.raises(EnvError, match=words):
            check_playable(env_id)
    with pytest.raises(EnvError, match="its constructor raised KeyError"):
        make_env("Difficultraises-v0", "rgb_array")
