"""Initial priorities: the last n + 1 rows of each environment, and the |TD| of what becomes ready.

An item at step t is ready once row t+n of its stream is stored, or its episode has ended: `Ready`
names these. The actor knows Q of every row it acted on. When row t+n is pushed, Q(o_t) and
Q(o_{t+n}) are both known, and the priority needs no extra pass of the network. Only a final
observation, which is never acted on, is passed once more. When new weights arrive, the few rows in
the window are passed again (`held`, `renew`), so that each priority is that of the present net.

The priority is |G + gamma^m max Q(o_{t+m}) - Q(o_t, a_t)|: the learner's |TD| with the actor's net
in both roles of double Q.

Rows are counted along a stream from 0, closing rows included, as the writer counts them.

Memory: for each environment a ring of n + 1 rows, stacks included. Owned by the actor's loop.
Where the table draws uniformly, or no network here gives Q, `Alike` stands in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replay_server import Ready
from replay_server.returns import n_step_targets
from replay_server.writing.autoreset import Rows


class Alike:
    """Nothing is held: new items get the largest priority of the table so far."""

    def push(self, rows: Rows, stacks: Mapping[str, np.ndarray], values: np.ndarray) -> None:
        """As Window's."""

    def items(self, ready: Ready) -> Ready:
        """Of what became ready, what items are made of: all of it."""
        return ready

    def priorities(self, ready: Ready, rows: Rows, final: Any) -> None:
        """As Window's: none of their own."""

    def held(self) -> dict[str, np.ndarray]:
        """As Window's."""
        return {}

    def renew(self, values: np.ndarray) -> None:
        """As Window's."""


class Window(Alike):
    """The rows still needed of B environments; see above."""

    def __init__(self, count: int, n: int, gamma: float, reward_clip: float | None = None) -> None:
        self.count, self.n, self.gamma, self.reward_clip = count, n, gamma, reward_clip
        self.next_step = np.zeros(count, np.int64)  # of each stream, closing rows included
        ring = (count, n + 1)
        self.action = np.zeros(ring, np.int64)
        self.reward = np.zeros(ring, np.float32)
        self.terminated = np.zeros(ring, np.bool_)
        self.q_taken = np.zeros(ring, np.float32)
        self.q_best = np.zeros(ring, np.float32)
        self.stacks: dict[str, np.ndarray] = {}

    def push(self, rows: Rows, stacks: Mapping[str, np.ndarray], q: np.ndarray) -> None:
        """The rows of one step of all environments.

        stacks: {column: [B, k, *shape]} the network was fed, q [B, A] what it gave.
        """
        s = rows.streams
        at = self.next_step[s] % (self.n + 1)
        if not self.stacks:
            self.stacks = {
                name: np.zeros((self.count, self.n + 1, *stack.shape[1:]), stack.dtype)
                for name, stack in stacks.items()
            }
        for name, stack in stacks.items():
            self.stacks[name][s, at] = stack[s]
        action = rows.columns["action"]
        self.action[s, at] = action
        self.reward[s, at] = rows.columns["reward"]
        self.terminated[s, at] = rows.columns["terminated"]
        self.q_taken[s, at] = q[s, action]
        self.q_best[s, at] = q[s].max(1)
        self.next_step[s] += 1
        self.next_step[rows.ended_streams] += 1  # the closing row

    def priorities(self, ready: Ready, rows: Rows, q_final: np.ndarray | None) -> np.ndarray:
        """|TD| float64 [K] of what became ready by `rows`, the newest.

        q_final [E, A]: what the network gives for the final observations of rows.ended_streams.
        """
        streams, steps, ahead = ready.streams, ready.steps, ready.ahead
        following = steps + ahead
        best = self._row(self.q_best, streams, following)
        if q_final is not None:
            final, ended = np.zeros(self.count, np.float32), np.zeros(self.count, np.bool_)
            final[rows.ended_streams], ended[rows.ended_streams] = q_final.max(1), True
            closes = ended[streams] & (following == self.next_step[streams] - 1)
            best = np.where(closes, final[streams], best)
        every = streams[:, None], steps[:, None] + np.arange(self.n)  # behind m never looked at
        reward = self._row(self.reward, *every)
        if self.reward_clip is not None:
            reward = reward.clip(-self.reward_clip, self.reward_clip)
        terminated = self._row(self.terminated, *every)
        returns, discounts, _ = n_step_targets(reward, terminated, ahead, self.gamma)
        td = returns + discounts * best - self._row(self.q_taken, streams, steps)
        return np.abs(td).astype(np.float64)

    def held(self) -> dict[str, np.ndarray]:
        """The stacks of every held row, {column: [R, k, *shape]}; empty before the first."""
        rows = self.count * (self.n + 1)
        return {name: s.reshape(rows, *s.shape[2:]) for name, s in self.stacks.items()}

    def renew(self, q: np.ndarray) -> None:
        """q [R, A]: what new weights give for `held`."""
        rows = self.count * (self.n + 1)
        self.q_best[:] = q.max(1).reshape(self.q_best.shape)
        self.q_taken[:] = q[np.arange(rows), self.action.ravel()].reshape(self.q_taken.shape)

    def _row(self, ring: np.ndarray, streams: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return ring[streams, steps % (self.n + 1)]
