"""Atari games as they are stored: one new grey 84 x 84 frame a step, played by ale-py.

ale-py's own vector environment does the usual preprocessing in C++: each action for four frames of
the game, the maximum of the last two, shrunk to 84 x 84; up to 30 no-ops after a reset; at most
108 000 frames an episode, then it is truncated. Rewards stay raw: the learner clips, if at all.
Stacks are not its business (stack_num=1): replay_server/stacking.py makes them, for actor and
learner alike, and at an episode's start as ale-py would: behind zeros.

    protocol "sticky"   an action is repeated with probability 0.25 (Machado et al. 2018)
    protocol "apex"     it never is (Mnih et al. 2015, Horgan et al. 2018)

A lost life is reported in infos["life_lost"] and ends nothing. It is read from the count of lives.
With ale-py's life_loss_info a life that goes with the last step before the time limit looks as if
the game went on, and the reset's frame that follows would be stored as a step. With episodic_life
the frames behind a lost life are gone from the stack.
"""

from __future__ import annotations

import difflib
import re
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from .env_errors import EnvError
from .vectors import NextStepVector

FRAME = (84, 84)
STICKY = {"sticky": 0.25, "apex": 0.0}
FRAMES_MAX = 108_000  # half an hour of play


def rom_of(env_id: str) -> str:
    """ale-py's name of the game; EnvError that names the nearest id, or what to install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ale_py
    except ImportError as error:
        raise EnvError(
            f"{env_id} needs ale-py, which is not installed: pip install 'replay-server[atari]'"
        ) from error
    gymnasium.register_envs(ale_py)
    games = {
        name: str(spec.kwargs["game"])
        for name, spec in gymnasium.registry.items()
        if name.startswith("ALE/") and "game" in spec.kwargs
    }
    if env_id not in games:
        word = re.split(r"NoFrameskip|Deterministic|-", env_id.removeprefix("ALE/"))[0]
        like = difflib.get_close_matches(f"ALE/{word}-v5".lower(), map(str.lower, games), 1, 0.0)
        nearest = next(name for name in games if name.lower() == like[0])
        raise EnvError(f"there is no Atari game {env_id!r}; the nearest is {nearest!r}")
    return games[env_id]


def seed_of(seed: int) -> int:
    """A seed for ale-py, which takes 31 bits, from one of any size."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0]) & 0x7FFFFFFF


class AtariFrames(NextStepVector):
    """`count` games side by side, in next-step mode.

    Observations uint8 [count, 84, 84], rewards float64 [count], and in infos "lives" int32 and
    "life_lost" bool [count]. `reset` takes a seed for each game.
    """

    def __init__(
        self,
        env_id: str,
        count: int,
        *,
        protocol: str = "sticky",
        frames_max: int = FRAMES_MAX,
        threads: int = 1,
    ) -> None:
        game = rom_of(env_id)
        if protocol not in STICKY:
            raise EnvError(f"protocol {protocol!r}; expected one of {', '.join(STICKY)}")
        from ale_py.vector_env import AtariVectorEnv

        self.games = AtariVectorEnv(
            game,
            count,
            num_threads=threads,
            max_num_frames_per_episode=frames_max,
            repeat_action_probability=STICKY[protocol],
            img_height=FRAME[0],
            img_width=FRAME[1],
            grayscale=True,
            stack_num=1,
            frameskip=4,
            maxpool=True,
            noop_max=30,
            use_fire_reset=False,
            reward_clipping=False,
            episodic_life=False,
            life_loss_info=False,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
        actions = spaces.Discrete(int(self.games.single_action_space.n))
        super().__init__(spaces.Box(0, 255, FRAME, np.uint8), actions, count)
        self.lives = np.zeros(count, np.int32)

    def reset(
        self, *, seed: list[int] | int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seeds = self.seeds_of(seed)
        given = None if seeds is None else np.array([seed_of(s) for s in seeds], np.int32)
        frames, infos = self.games.reset(seed=given)
        self.lives = infos["lives"]
        return frames[:, 0], {**infos, "life_lost": np.zeros(self.num_envs, np.bool_)}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        frames, reward, terminated, truncated, infos = self.games.step(actions)
        # The last life ends the game, and in some games the count is 0 a while before that.
        lost = (infos["lives"] > 0) & (infos["lives"] < self.lives)
        self.lives = infos["lives"]
        return (
            frames[:, 0],
            reward.astype(float),
            terminated,
            truncated,
            infos | {"life_lost": lost},
        )


class AtariGame(gymnasium.Env):
    """One such game as a plain environment: for judging, where each game starts from its seed."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (as Gymnasium's)

    def __init__(self, env_id: str, *, protocol: str = "sticky") -> None:
        self.frames = AtariFrames(env_id, 1, protocol=protocol)
        self.observation_space = self.frames.single_observation_space
        self.action_space = self.frames.single_action_space
        self.shown = np.zeros(FRAME, np.uint8)

    def render(self) -> np.ndarray:
        """The frame that the network sees last, uint8 [84, 84, 3]."""
        return np.repeat(self.shown[:, :, None], 3, axis=2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        frames, infos = self.frames.reset(seed=None if seed is None else [seed])
        self.shown = frames[0]
        return frames[0], {name: value[0] for name, value in infos.items()}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        frames, reward, terminated, truncated, infos = self.frames.step(
            np.array([action], np.int64)
        )
        self.shown = frames[0]
        info = {name: value[0] for name, value in infos.items()}
        return frames[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info
