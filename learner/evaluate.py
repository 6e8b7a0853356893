"""Greedy episodes of frozen weights: the judge of a checkpoint. Nothing here writes to replay.

Episode i of a purpose starts from the seed of (purpose, seed, i), so training ("train"), selection
("select", "confirm") and the final verdict ("evaluate") never share a start. All episodes run side
by side, each in an environment of its own, with one pass of the network a step. The first one can
be filmed. A greedy policy may go on for ever: a signal ends its episodes between two steps, and
STEPS_MAX ends those of an environment that has no time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import Env
from gymnasium.wrappers import TimeLimit

from learner.video import Film
from replay_server.returns import leaves
from replay_server.spec import Spec
from replay_server.stacking import FrameStack
from replay_server.training.actions import Actions, actions_of, greedy
from replay_server.training.contact import Stop
from replay_server.training.env_errors import EnvError, environments
from replay_server.training.envs import column_difference, make_env, seed_for
from replay_server.training.presets import Preset

SHOW_S = 1.0
STEPS_MAX = 100_000  # of an episode whose environment has no time limit


@dataclass(frozen=True)
class Verdict:
    """Returns and lengths of whole episodes, float64 and int64 [episodes]."""

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())


def actions_as_learned(settings: Preset, spec: Spec) -> Actions:
    """What the environment's actions are; EnvError where it is not that of `spec` any more."""
    name = settings.env
    with closing(make_env(name, protocol=settings.protocol)) as env:
        try:
            difference = column_difference(env, name, spec)
            actions = actions_of(env, settings.algorithm)
        except ValueError as error:
            raise EnvError(f"environment {name!r}: {error}") from error
    if difference:
        raise EnvError(
            f"the environment is not as in the checkpoint: {difference}; evaluate with the one "
            "that was learned, or train anew"
        )
    return actions


def has_time_limit(env: Env) -> bool:
    """Whether one of its wrappers ends its episodes after so many steps."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return True
        env = env.env
    return False


def expect_finite(env: str, value: Any, what: str) -> None:
    """EnvError where a number of it is none: no mean would be one, either."""
    if not np.isfinite(value).all():
        raise EnvError(f"environment {env!r} gave a number that is not finite: {what}")


class Sight:
    """What a network sees in each of `episodes` episodes, and what it does then."""

    def __init__(self, settings: Preset, spec: Spec, episodes: int, actions: Actions) -> None:
        self.env, self.spec, self.actions, self.episodes = settings.env, spec, actions, episodes
        self.stacks = {
            column.name: FrameStack(column, settings.stack, episodes)
            for column in spec.group("observation")
        }

    def see(self, observations: list[Any], at: np.ndarray, *, start: bool) -> None:
        """The newest observations of the episodes `at`, in that order; start: their first ones."""
        if not len(at):
            return
        mask = np.zeros(self.episodes, np.bool_)
        mask[at] = True
        with environments(self.env, "observation"):
            flat = [self.spec.flatten("observation", observation) for observation in observations]
            frames = {}
            for name, stack in self.stacks.items():
                shape = (self.episodes, *stack.column.shape)
                frames[name] = np.zeros(shape, stack.column.dtype)
                frames[name][at] = [leaf[name] for leaf in flat]
        for name, stack in self.stacks.items():
            expect_finite(self.env, frames[name], "observation")
            (stack.reset if start else stack.push)(frames[name], mask)

    def act(self, network: torch.nn.Module, at: np.ndarray) -> np.ndarray:
        """The network's greedy actions in the episodes `at`."""
        device = next(network.parameters()).device
        with torch.inference_mode():
            frames = {
                name: torch.from_numpy(stack.array[at]).to(device)
                for name, stack in self.stacks.items()
            }
            values = network(leaves("observation", frames)).cpu().numpy()
        return greedy(values, self.actions)


class Episodes:
    """Environments side by side, and the sight by which they are played; close them.

    limited: whether their episodes are sure to end. stop: ends what is under way. say: gets a
    sentence, once, where STEPS_MAX ended episodes.
    """

    def __init__(
        self,
        name: str,
        envs: list[Env],
        sight: Any,
        *,
        limited: bool,
        film: Film | None = None,
        stop: Stop | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.name, self.envs, self.sight, self.limited = name, envs, sight, limited
        self.film, self.stop, self.say, self.told = film, stop, say, False

    def run(
        self,
        network: Any,
        purpose: str,
        seed: int,
        first: int = 0,
        show: Callable[[str], None] | None = None,
    ) -> Verdict | None:
        """Episodes first, first + 1, ... of `purpose`, greedily, to their ends; None where it was
        asked to stop before. network: what the sight acts by.

        show: gets how far it is, now and then.
        """
        count = len(self.envs)
        if not self._reset([seed_for(purpose, seed, first + i) for i in range(count)]):
            return None
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        alive = np.arange(count)
        begin = shown = time.monotonic()
        while len(alive):
            actions = self.sight.act(network, alive)
            going, observations = [], []
            for i, action in zip(alive, actions, strict=True):
                if self._asked():
                    return None
                if show is not None and time.monotonic() - shown >= SHOW_S:
                    shown = time.monotonic()
                    show(
                        f"{count - len(alive)} of {count} episodes ended, the others at "
                        f"step {lengths.max()}, {lengths.sum() / (shown - begin):.0f} steps/s"
                    )
                with environments(self.name, "step"):
                    observation, reward, terminated, truncated, _ = self.envs[i].step(action)
                    reward = float(reward)
                expect_finite(self.name, reward, "reward")
                returns[i] += reward
                lengths[i] += 1
                self._look(i)
                if not (terminated or truncated):
                    going.append(i)
                    observations.append(observation)
            alive = np.array(going, np.int64)
            if len(alive) and not self.limited and lengths.max() >= STEPS_MAX:
                self._tell(len(alive))
                break
            self.sight.see(observations, alive, start=False)
        return Verdict(returns, lengths)

    def _asked(self) -> bool:
        """Looked at before each step of an environment: one step may take long."""
        return self.stop is not None and self.stop.asked

    def _reset(self, seeds: list[int]) -> bool:
        """Every environment at its start; False where it was asked to stop before."""
        observations = []
        for env, seed in zip(self.envs, seeds, strict=True):
            if self._asked():
                return False
            with environments(self.name, "reset"):
                observations.append(env.reset(seed=seed)[0])
        self.sight.see(observations, np.arange(len(self.envs)), start=True)
        self._look()
        return True

    def _tell(self, going: int) -> None:
        """That `going` episodes were ended here, the first time."""
        if not self.told:
            self.told = True
            self.say(
                f"environment {self.name!r} has no time limit, and {going} of {len(self.envs)} "
                f"greedy episodes went on after {STEPS_MAX:,} steps: they are judged as if they "
                "had ended there; give it a limit (gymnasium.wrappers.TimeLimit, or "
                "max_episode_steps where it is registered)"
            )

    def _look(self, episode: int = 0) -> None:
        """One more frame of the film, where this is the episode that is filmed."""
        if self.film is not None and episode == 0:
            self.film.add(self.envs[0])

    def close(self) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()


class Evaluation(Episodes):
    """Of one agent: environments kept for several evaluations of one kind."""

    def __init__(
        self,
        settings: Preset,
        spec: Spec,
        *,
        episodes: int,
        film: Film | None = None,
        stop: Stop | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        name, protocol = settings.env, settings.protocol
        envs: list[Env] = [make_env(name, protocol=protocol) for _ in range(episodes)]
        if film is not None:
            envs[0].close()
            envs[0] = make_env(name, "rgb_array", protocol=protocol)
        sight = Sight(settings, spec, episodes, actions_of(envs[0], settings.algorithm))
        limited = has_time_limit(envs[0])
        super().__init__(name, envs, sight, limited=limited, film=film, stop=stop, say=say)
