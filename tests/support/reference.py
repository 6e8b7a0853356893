"""What the server and the learner should compute, written again without them.

    Random, mass_of     the generator and the power, from the words of base/random.h and power.h
    Replay              a prioritized replay in this process: plain lists, one cumulative sum a draw
    solve               the values a one-hot linear net must reach, from recorded episodes
    power_constants     the coefficients of native/base/power_tables.h, read as data

Nothing of the project is imported. Python integers and float64 throughout; slow and small on
purpose: a few thousand steps.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

WORD = 1 << 64
ONE = 1 << 26


class Random:
    """xoshiro256++ seeded by SplitMix64; bounded draws by multiply, shift and reject."""

    def __init__(self, seed: int) -> None:
        self.state = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) % WORD
            z = seed
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
            self.state.append(z ^ (z >> 31))

    def next(self) -> int:
        a, b, c, d = self.state
        result = (_rotated((a + d) % WORD, 23) + a) % WORD
        c, d = c ^ a, d ^ b
        b, a = b ^ c, a ^ d
        c ^= (self.state[1] << 17) % WORD
        self.state = [a, b, c, _rotated(d, 45)]
        return result

    def below(self, bound: int) -> int:
        while True:
            product = self.next() * bound
            if product % WORD >= WORD % bound:
                return product // WORD


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) % WORD


def power_constants(header: Path) -> dict[str, list[list[int]]]:
    """{"log2": [6][16], "exp2": [5][16]} of the text of native/base/power_tables.h."""
    tables = {}
    for name, body in re.findall(r"rp_power_(\w+)\[.*?= \{(.*?)\n\};", header.read_text(), re.S):
        rows = re.findall(r"\{([^{}]*)\}", body)
        tables[name] = [[int(n, 16) for n in re.findall(r"0x[0-9a-f]+", row)] for row in rows]
    return tables


def mass_of(priority: float, alpha: float, constants: dict[str, list[list[int]]]) -> int:
    """priority^alpha * 2^26 as base/power.h specifies it, before any cut to the largest mass."""
    if priority == 0:
        return 0
    bits = struct.unpack("<Q", struct.pack("<d", priority))[0]
    exponent = (bits >> 52) - 1023
    fraction = bits % (1 << 52)
    if bits >> 52 == 0:  # subnormal: normalise
        shift = 53 - fraction.bit_length()
        exponent, fraction = -1022 - shift, (fraction << shift) - (1 << 52)
    r = ((exponent << 52) + fraction + (1 << 19)) >> 20
    e, x = r >> 32, r % (1 << 32)
    a = int(Fraction(alpha) * (1 << 48))
    logarithm = _polynomial(constants["log2"], x, signs=(1, 1, -1, -1, -1, -1))
    y = e * a + ((logarithm * a) >> 38)
    q = (y + (1 << 15)) >> 16
    shift = (q >> 32) + 26 - 39
    m = _polynomial(constants["exp2"], q % (1 << 32), signs=(1, 1, 1, 1, 1))
    return max(1, m << shift if shift >= 0 else (m + (1 << (-shift - 1))) >> -shift)


def _polynomial(table: list[list[int]], x: int, signs: tuple[int, ...]) -> int:
    """c0 +- u (c1 +- u (c2 ...)) with every product rounded down; u = w / 2^28."""
    segment, w = x >> 28, x % (1 << 28)
    value = table[-1][segment]
    for degree in range(len(table) - 2, -1, -1):
        value = table[degree][segment] + signs[degree + 1] * ((w * value) >> 28)
    return value


# -- the replay ----------------------------------------------------------------------------------


@dataclass
class Step:
    """One stored row and what stands around it."""

    stream: int
    number: int
    row: dict[str, np.ndarray]
    end: bool
    position: int  # rows before it in its episode
    is_item: bool = False
    removed: bool = False
    behind: int = 0
    ahead: int = 0
    window: dict[str, np.ndarray] | None = None  # as sampled; fixed once the item lives


@dataclass
class Batch:
    """What a draw gives; the fields a learner reads, by the names it knows."""

    data: dict[str, np.ndarray]
    weights: np.ndarray
    keys: np.ndarray
    masses: np.ndarray
    probabilities: np.ndarray
    behind: np.ndarray
    ahead: np.ndarray
    ages: np.ndarray
    total: int
    count: int


@dataclass
class Replay:
    """A FIFO ring of steps with prioritized items; every draw is one cumulative sum.

    offsets: {column: offsets relative to the anchor}. pads: {column: "zero" or "first"}.
    """

    capacity: int
    offsets: Mapping[str, tuple[int, ...]]
    pads: Mapping[str, str]
    alpha: float
    seed: int
    constants: dict[str, list[list[int]]]
    steps: dict[int, Step] = field(default_factory=dict)  # key -> step; only the living
    streams: dict[int, list[int]] = field(default_factory=dict)  # stream -> key of each number
    position: dict[int, int] = field(default_factory=dict)  # stream -> that of its next step

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.leaf = np.zeros(self.capacity, np.uint64)
        self.head = self.capacity  # the first generation is 1
        self.mass_max = (1 << 63) // self.capacity
        self.running_maximum = ONE
        flat = [offset for offsets in self.offsets.values() for offset in offsets]
        self.reach_behind, self.reach_ahead = max(0, -min(flat)), max(0, max(flat))

    def __len__(self) -> int:
        return int(np.count_nonzero(self.leaf))

    def append(self, stream: int, row: Mapping[str, Any], end: bool = False) -> int:
        """Store a step, overwriting the oldest; returns its key."""
        keys = self.streams.setdefault(stream, [])
        position = self.position.get(stream, 0)
        self.position[stream] = 0 if end else position + 1
        self._overwrite(self.head - self.capacity)
        self.steps[self.head] = Step(stream, len(keys), dict(row), end, position)
        keys.append(self.head)
        self.head += 1
        return self.head - 1

    def create(self, stream: int, number: int, priority: float | None = None) -> int:
        """Make the step an item; None takes the largest mass so far. Returns its key."""
        key = self.streams[stream][number]
        step = self.steps[key]
        assert not step.end and not step.is_item, "one item a step, none at a closing row"
        step.behind, step.ahead = self._around(step)
        step.is_item = True
        window = range(number - step.behind, number + step.ahead + 1)
        step.removed = any(self.streams[stream][i] not in self.steps for i in window)
        if not step.removed:
            self._set(key, self.running_maximum if priority is None else self._mass(priority))
        return key

    def sample(
        self, count: int, *, beta: float = 0.0, stratified: bool = False, uniform: int = 0
    ) -> Batch:
        """`count` draws. uniform: the share of uniform draws in units of 2^-32, 0xFFFFFFFF is 1."""
        cumulative = np.cumsum(self.leaf, dtype=np.uint64)
        total, positive = int(cumulative[-1]), np.flatnonzero(self.leaf)
        slots = []
        for i in range(count):
            if uniform:
                chance = self.random.next() >> 32
                if chance < uniform or uniform == 0xFFFFFFFF:
                    slots.append(int(positive[self.random.below(len(positive))]))
                    continue
            low, high = (i * total // count, (i + 1) * total // count) if stratified else (0, total)
            target = low + self.random.below(high - low) if high > low else min(low, total - 1)
            slots.append(int(np.searchsorted(cumulative, np.uint64(target), side="right")))
        return self._batch(slots, total, len(positive), beta, uniform)

    def pop(self, count: int) -> Batch:
        """A queue's draw: the `count` oldest items with a mass, which they have no more then."""
        there = np.flatnonzero(self.leaf).tolist()
        oldest = sorted(there, key=lambda slot: (slot - self.head) % self.capacity)[:count]
        batch = self._batch(oldest, int(self.leaf.sum()), len(there), 0.0, 0)
        self.leaf[oldest] = 0
        return batch

    def update(self, keys: Any, priorities: Any) -> tuple[int, int, int]:
        """(applied, stale, unknown); of one key's several priorities the last counts."""
        applied = stale = unknown = 0
        for key, priority in dict(zip(map(int, keys), map(float, priorities), strict=True)).items():
            step = self.steps.get(key)
            if key >= self.head or key < self.capacity or (step and not step.is_item):
                unknown += 1
            elif step is None or step.removed:
                stale += 1
            else:
                self._set(key, self._mass(priority))
                applied += 1
        return applied, stale, unknown

    def _mass(self, priority: float) -> int:
        return min(mass_of(priority, self.alpha, self.constants), self.mass_max)

    def _set(self, key: int, mass: int) -> None:
        self.leaf[key % self.capacity] = mass
        self.running_maximum = max(self.running_maximum, mass)

    def _overwrite(self, key: int) -> None:
        """The step is gone, and with it every item whose window holds it."""
        step = self.steps.pop(key, None)
        if step is None:
            return
        self.leaf[key % self.capacity] = 0
        for number in range(step.number + 1, step.number + self.reach_behind + 1):
            keys = self.streams[step.stream]
            other = self.steps.get(keys[number]) if number < len(keys) else None
            if other and other.is_item and number - other.behind <= step.number:
                other.removed = True
                self.leaf[keys[number] % self.capacity] = 0

    def _around(self, step: Step) -> tuple[int, int]:
        """(behind, ahead): rows of the episode on either side, at most the reach."""
        keys = self.streams[step.stream]
        ahead = 0
        while ahead < self.reach_ahead and not self.steps[keys[step.number + ahead]].end:
            ahead += 1
        return min(step.position, self.reach_behind), ahead

    def _batch(self, slots: list[int], total: int, count: int, beta: float, uniform: int) -> Batch:
        generation = (self.head - 1) // self.capacity * self.capacity
        keys = [
            generation + s - (self.capacity if generation + s >= self.head else 0) for s in slots
        ]
        items = [self.steps[key] for key in keys]
        for step in items:
            step.window = step.window or {c: self._window(c, step) for c in self.offsets}
        masses = self.leaf[slots]
        share = 1.0 if uniform == 0xFFFFFFFF else uniform / 2**32
        probabilities = (1 - share) * (masses.astype(np.float64) / float(total)) + share / count
        weights = (count * probabilities) ** -beta
        return Batch(
            data={c: np.stack([step.window[c] for step in items]) for c in self.offsets},
            weights=(weights / weights.max()).astype(np.float32),
            keys=np.array(keys, np.uint64),
            masses=masses,
            probabilities=probabilities,
            behind=np.array([step.behind for step in items], np.uint16),
            ahead=np.array([step.ahead for step in items], np.uint16),
            ages=np.array([self.head - 1 - key for key in keys], np.int64),
            total=total,
            count=count,
        )

    def _window(self, column: str, step: Step) -> np.ndarray:
        keys = self.streams[step.stream]
        rows = []
        for offset in self.offsets[column]:
            at = step.number + min(max(offset, -step.behind), step.ahead)
            value = np.asarray(self.steps[keys[at]].row[column])
            outside = offset < -step.behind and self.pads.get(column, "zero") == "zero"
            rows.append(np.zeros_like(value) if outside else value)
        return np.stack(rows)


# -- values --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """One episode as it was played: T steps and the last state, or an open one without it."""

    states: tuple[int, ...]  # T + 1; T where it is still open
    actions: tuple[int, ...]  # T
    rewards: tuple[float, ...]
    cuts: tuple[bool, ...]  # terminated or a life lost at this step


def solve(
    episodes: list[Recorded], states: int, actions: int, gamma: float, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """(Q, visits), both [states, actions]: Q where every entry is the mean of its own targets.

    The target of step t walks forward until n steps are done, the return is cut, or the episode is
    over; unless it was cut it adds the discounted largest Q of the state it stands on. Iterated to
    convergence; entries never visited stay 0. Steps of an open episode count where n more states
    are known.
    """
    targets = []  # (state, action, sum of rewards, discount, state of the bootstrap)
    for episode in episodes:
        length = len(episode.actions)
        is_open = len(episode.states) == length
        for t in range(length - n if is_open else length):
            total, discount, at, cut = 0.0, 1.0, t, False
            while at < length and at < t + n and not cut:
                total += discount * episode.rewards[at]
                discount *= gamma
                cut = episode.cuts[at]
                at += 1
            where = (episode.states[t], episode.actions[t])
            targets.append((*where, total, 0.0 if cut else discount, episode.states[at]))
    state, action, total, discount, after = (np.array(part) for part in zip(*targets, strict=True))
    visits = np.zeros((states, actions))
    np.add.at(visits, (state, action), 1)
    q = np.zeros((states, actions))
    while True:
        sums = np.zeros((states, actions))
        np.add.at(sums, (state, action), total + discount * q.max(1)[after])
        better = sums / np.maximum(visits, 1)
        if np.abs(better - q).max() < 1e-12:
            return better, visits
        q = better
