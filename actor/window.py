"""Initial priorities: the last n + 1 rows of each environment, and the |TD| of what completes.

An item at step t is complete once row t+n of its stream is stored, or its episode has ended. The
actor knows Q of every row it acted on, so the priority costs no extra pass of the network: Q(o_t)
and Q(o_{t+n}) are both at hand when row t+n is pushed. Only a final observation, which is never
acted on, is passed once more. When new weights arrive, `refresh` passes the few rows that are held
again, so that a priority is always by the present net.

Rows are counted along a stream from 0, closing rows included: that number, with the stream, names
an item towards the writer. What `push` returns is sorted by (stream, step).

Memory: for each environment a ring of n + 1 rows, stacks included. Owned by the actor's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from learner.dqn import initial_priorities
from replay_server.writing.autoreset import Rows


@dataclass(frozen=True)
class Ready:
    """Items whose window is complete: int64 [K] streams and steps, float64 [K] |TD|."""

    streams: np.ndarray
    steps: np.ndarray
    priorities: np.ndarray


class Window:
    """The rows still needed of B environments; see above."""

    def __init__(self, count: int, n: int, gamma: float, reward_clip: float | None = None) -> None:
        self.count, self.n, self.gamma, self.reward_clip = count, n, gamma, reward_clip
        self.next_step = np.zeros(count, np.int64)  # of each stream, closing rows included
        self.length = np.zeros(count, np.int64)  # rows of the open episode
        ring = (count, n + 1)
        self.action = np.zeros(ring, np.int64)
        self.reward = np.zeros(ring, np.float32)
        self.terminated = np.zeros(ring, np.bool_)
        self.q_taken = np.zeros(ring, np.float32)
        self.q_best = np.zeros(ring, np.float32)
        self.stacks: dict[str, np.ndarray] = {}

    def push(
        self,
        rows: Rows,
        stacks: Mapping[str, np.ndarray],
        q: np.ndarray,
        q_final: np.ndarray | None = None,
    ) -> Ready:
        """The rows of one step of all environments, and what became complete by them.

        stacks: {column: [B, k, *shape]} the network was fed, q [B, A] what it gave. q_final [E, A]:
        the same for the final observations of rows.ended_streams.
        """
        self._store(rows, stacks, q)
        s = rows.streams
        full = s[self.length[s] > self.n]
        streams, back = [full], [np.full(len(full), self.n)]
        ahead, best = [np.full(len(full), self.n)], [self._row(self.q_best, full, 0)]
        for e, stream in enumerate(rows.ended_streams):
            held = int(min(self.length[stream], self.n))
            streams.append(np.full(held, stream))
            back.append(np.arange(held))  # rows before the last one of the episode
            ahead.append(np.arange(held) + 1)
            best.append(np.full(held, q_final[e].max(), np.float32))
        ready = self._ready(*(np.concatenate(part) for part in (streams, back, ahead, best)))
        self.length[rows.ended_streams] = 0
        self.next_step[rows.ended_streams] += 1  # the closing row
        return ready

    def refresh(self, network: Callable[[dict[str, np.ndarray]], np.ndarray]) -> None:
        """Q of every held row by new weights; network: {column: [R, k, *shape]} -> [R, A]."""
        if not self.stacks:
            return
        rows = self.count * (self.n + 1)
        q = network({name: s.reshape(rows, *s.shape[2:]) for name, s in self.stacks.items()})
        self.q_best[:] = q.max(1).reshape(self.q_best.shape)
        self.q_taken[:] = q[np.arange(rows), self.action.ravel()].reshape(self.q_taken.shape)

    def _store(self, rows: Rows, stacks: Mapping[str, np.ndarray], q: np.ndarray) -> None:
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
        self.length[s] += 1

    def _row(self, ring: np.ndarray, streams: np.ndarray, back: np.ndarray | int) -> np.ndarray:
        """The entries `back` rows before the newest row of each stream."""
        return ring[streams, (self.next_step[streams] - 1 - back) % (self.n + 1)]

    def _ready(
        self, streams: np.ndarray, back: np.ndarray, ahead: np.ndarray, best: np.ndarray
    ) -> Ready:
        steps = self.next_step[streams] - 1 - back
        order = np.lexsort((steps, streams))
        streams, back, ahead, best = (part[order] for part in (streams, back, ahead, best))
        window = back[:, None] - np.arange(self.n)  # [K, n]; below 0 is behind m, never looked at
        s = streams[:, None]
        priorities = initial_priorities(
            torch.from_numpy(self._row(self.q_taken, streams, back)),
            torch.from_numpy(self._row(self.reward, s, window)),
            torch.from_numpy(self._row(self.terminated, s, window)),
            torch.from_numpy(ahead.astype(np.int64)),
            torch.from_numpy(best),
            self.gamma,
            self.reward_clip,
        )
        return Ready(streams, steps[order], priorities.numpy().astype(np.float64))
