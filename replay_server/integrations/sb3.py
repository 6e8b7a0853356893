"""A `replay_buffer_class` for Stable-Baselines3 whose transitions live in a replay server.

    from replay_server.integrations.sb3 import ReplayServerBuffer

    DQN("MlpPolicy", env, replay_buffer_class=ReplayServerBuffer)

starts a server inside the program; with replay_buffer_kwargs={"address": "udp://127.0.0.1:7400"}
the buffer is a client of the server there, whose table must have the columns of the environment.

How an end of an episode is stored. SB3 hands `add` a `done` that means terminated or truncated,
info["TimeLimit.truncated"] where it was the time limit alone, and a next_obs in which SB3 has
already put info["terminal_observation"] (`OffPolicyAlgorithm._store_transition`; with VecNormalize
it is the un-normalized one, which the info's is not, so the info's is not read here):

    terminated = done and not TimeLimit.truncated     the return ends
    truncated  = done and TimeLimit.truncated         the return bootstraps from next_obs

Draws are uniform, for SB3's DQN has no use for importance weights and reports no TD errors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np

from replay_server import (
    Client,
    ClosedError,
    NStep,
    Server,
    ServerRestarted,
    Table,
    TableEmptied,
    Uniform,
    spec_from,
)
from replay_server.integrations.served import expect_items, gamma_for

try:
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
    from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
except ImportError as error:
    raise ImportError(
        f"replay_server.integrations.sb3 needs Stable-Baselines3 ({error}): "
        "pip install 'replay-server[sb3]'"
    ) from error

TABLE = "main"


def of_the_buffer(method: Callable[..., Any]) -> Callable[..., Any]:
    """Where the buffer's writer ended with its server or table, the error says what to do with a
    buffer: nobody who uses one has a writer to open."""

    @wraps(method)
    def call(buffer: ReplayServerBuffer, *arguments: Any, **named: Any) -> Any:
        try:
            return method(buffer, *arguments, **named)
        except (ServerRestarted, TableEmptied, ClosedError) as error:
            if buffer.client.closed or not getattr(error, "happened", None):
                raise
            remedy = "call buffer.reset() once the server is back: it goes on with an empty buffer"
            error.args = (f"{error.happened}; {remedy}",)
            raise

    return call


class ReplayServerBuffer(ReplayBuffer):
    """The replay buffer of one off-policy algorithm, as `model.replay_buffer`.

    address   a running server; None: one of this program, on loopback://, with a table of
              `buffer_size` steps
    n_steps   of the return, with `gamma`; as the plan of the table says where the server runs
              elsewhere
    seed      of the draws of a server of this program
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        address: str | None = None,
        n_steps: int = 1,
        gamma: float | None = None,
        seed: int | None = None,
    ) -> None:
        if optimize_memory_usage:
            raise ValueError(
                "optimize_memory_usage=True is for SB3's own buffer: the server keeps every "
                "observation once anyway; leave it out"
            )
        if not handle_timeout_termination:
            raise ValueError(
                "handle_timeout_termination=False is for SB3's own buffer: the server keeps "
                "terminated and truncated apart anyway; leave it out"
            )
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        env = SimpleNamespace(observation_space=observation_space, action_space=action_space)
        spec = spec_from(env)
        self.server: Server | None = None
        if address is None:
            table = Table(
                TABLE, spec, NStep(n_steps), buffer_size, Uniform(), streams=n_envs, writers=1
            )
            if seed is None:  # SB3 seeds numpy's global state: DQN(..., seed=0) repeats its draws
                seed = int(np.random.randint(2**31))
            self.server = Server([table], seed=seed)
            address = self.server.address
        self.client = Client(address, specs={TABLE: spec})
        self.n_steps, self.gamma = n_steps, gamma_for(self.client, TABLE, n_steps, gamma)
        self.spec = spec
        self.writer = self.client.writer(TABLE, n_envs, autoreset="disabled")
        self._next_obs: Any = None
        self._drawable = False  # something was: the table is not empty
        self._open = np.zeros(n_envs, np.bool_)

    @of_the_buffer
    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """One step of all environments; see the file's first lines for how episodes end."""
        self._cut_where_reset(obs)
        done = np.asarray(done, np.bool_)
        timeouts = np.array([info.get("TimeLimit.truncated", False) for info in infos], np.bool_)
        self.writer.add_batch(
            observation=obs,
            action=np.reshape(action, (self.n_envs, *self.action_space.shape)),
            reward=np.asarray(reward, np.float32),
            terminated=done & ~timeouts,
            truncated=done & timeouts,
            next_observation=next_obs,
        )
        if done.any():  # SB3's environments reset themselves, wherever that leads
            self.writer.restart(done)
        self._next_obs, self._open = next_obs, ~done

    def _cut_where_reset(self, obs: Any) -> None:
        """Closes episodes that go on elsewhere than they stopped: `learn` resets at its start."""
        if self._next_obs is None:
            return
        now = self.spec.flatten("observation", obs)
        before = self.spec.flatten("observation", self._next_obs)
        moved = np.zeros(self.n_envs, np.bool_)
        for name in now:
            differs = np.asarray(now[name]) != np.asarray(before[name])
            moved |= differs.reshape(self.n_envs, -1).any(1)
        if (moved & self._open).any():
            self.writer.restart(moved & self._open, self._next_obs)

    @of_the_buffer
    def sample(self, batch_size: int, env: Any = None) -> Any:
        """ReplayBufferSamples of `batch_size` transitions; `env`, where given, normalizes them."""
        self.writer.flush()  # what was added is drawable, as it is in a buffer of one's own
        self._require_items()
        batch = self.client.sample(TABLE, batch_size)
        batch.data["reward"] = self._normalize_reward(batch["reward"], env)  # [B, n]
        found = batch.transitions(self.gamma)
        nested = isinstance(self.observation_space, spaces.Dict)
        kind = DictReplayBufferSamples if nested else ReplayBufferSamples
        one_step = batch["reward"].shape[1] == 1  # then SB3 discounts by itself
        return kind(
            observations=self._tensors(self._normalize_obs(found.observations, env)),
            actions=self.to_torch(_as_sb3(found.actions).reshape(batch_size, -1)),
            next_observations=self._tensors(self._normalize_obs(found.next_observations, env)),
            dones=self.to_torch((found.discounts == 0.0).astype(np.float32)[:, None]),
            rewards=self.to_torch(found.rewards[:, None]),
            discounts=None if one_step else self.to_torch(found.discounts[:, None]),
        )

    def _require_items(self) -> None:
        """ValueError where the server is this program's, and nothing can be drawn. What was added
        to an empty table is drawable at once, as in SB3's own: its windows end there, and the next
        step begins others."""
        if self._drawable or self.server is None:
            return
        if self._open.any() and not self.client.size(TABLE):
            self.writer.restart(self._open, self._next_obs)
            self.writer.flush()
            self._open = np.zeros(self.n_envs, np.bool_)
        expect_items(self.client, TABLE, "add a step first")
        self._drawable = True

    def _tensors(self, value: Any) -> Any:
        """[B, ...]; SB3 has numbers, those of Discrete spaces, as [B, 1]."""
        if isinstance(value, dict):
            return {name: self._tensors(part) for name, part in value.items()}
        return self.to_torch(value[:, None] if np.ndim(value) == 1 else value)

    @of_the_buffer
    def size(self) -> int:
        """Items that can be drawn now."""
        self.writer.flush()
        return self.client.size(TABLE)

    def reset(self) -> None:
        """Forgets every transition; also what to call where the server forgot them."""
        with suppress(ServerRestarted, TableEmptied):  # its rows are gone, as they are to be
            self.writer.close()
        self.client.reset(TABLE)
        self.writer = self.client.writer(TABLE, self.n_envs, autoreset="disabled")
        self._next_obs = None
        self._drawable = False
        self._open = np.zeros(self.n_envs, np.bool_)

    def close(self) -> None:
        """Ends the session, and the server where it is this program's."""
        self.writer.close()
        self.client.close()
        if self.server is not None:
            self.server.close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "the transitions live in the server and are not pickled; serve with a region "
            "(`replay-server serve FILE --region FOLDER`) to keep them over restarts"
        )


def _as_sb3(actions: np.ndarray) -> np.ndarray:
    """Actions of float64 as float32, as SB3's own buffer hands them out: its networks are."""
    return actions.astype(np.float32) if actions.dtype == np.float64 else actions
