"""The items that are inserted: real CartPole and Pong transitions, and made-up ones of any size.

    small      45 bytes: a CartPole transition, 4 float32 twice, action, reward, terminated
    atari      56 461 bytes: a Pong transition, two stacks of 4 frames of 84 x 84, and the rest
    bytes-N    N bytes: two observations of random bytes, action, reward, terminated
    flight     15 501 bytes: two stacks of 4 frames of 44 x 44, and the rest; made as it is learned

An item's action is its number in the pool in place of what was played. So every sampled item says
which one it is, and all its bytes can be held against the pool's: `wrong`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .peer import Columns
from .worlds import SIDE

COUNTS = {"small": 4096, "atari": 1024}
PLAIN_COUNT = 1024
CAPACITIES = {"small": 1 << 15, "atari": 2048}
STACK, FRAME = 4, (84, 84)
REST = {"action": ["<i8", []], "reward": ["<f4", []], "terminated": ["|b1", []]}
REST_BYTES = 13


def columns_of(item: str) -> dict[str, list[Any]]:
    """{column: [dtype, shape]} of a kind of item."""
    if item == "small":
        one: list[Any] = ["<f4", [4]]
    elif item == "atari":
        one = ["|u1", [STACK, *FRAME]]
    elif item == "flight":
        one = ["|u1", [STACK, SIDE, SIDE]]
    else:
        one = ["|u1", [(int(item.removeprefix("bytes-")) - REST_BYTES) // 2]]
    return {"observation": one, "next_observation": one, **REST}


def capacity_of(item: str) -> int:
    """Items of a table, a power of two: 32 768 at most, at least 2048."""
    if item in CAPACITIES:
        return CAPACITIES[item]
    fitting = (100 << 20) // int(item.removeprefix("bytes-"))
    return max(2048, min(1 << 15, 1 << (fitting.bit_length() - 1)))


def make(item: str, path: Path, seed: int) -> None:
    """Plays or draws a pool and writes it: the columns, and `ends`, bool [N], where an episode is
    over. The last item ends one."""
    maker = {"small": _cartpole, "atari": _pong}.get(item)
    rows = maker(seed) if maker else _plain(int(item.removeprefix("bytes-")), seed)
    count = len(rows["reward"])
    rows["action"] = np.arange(count, dtype=np.int64)
    rows["ends"][-1] = True
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path.with_suffix(".part.npz"), **rows)
    path.with_suffix(".part.npz").rename(path)


def load(path: str) -> tuple[Columns, np.ndarray]:
    """(columns [N], ends [N]) of a pool."""
    with np.load(path) as file:
        rows = {name: file[name] for name in file.files}
    ends = rows.pop("ends")
    return rows, ends


def wrong(items: Columns, pool: Columns) -> int:
    """How many of sampled items are not, byte for byte, what was inserted."""
    number = np.asarray(items["action"]).reshape(-1).astype(np.int64)
    count = len(number)
    known = (number >= 0) & (number < len(pool["action"]))
    bad = ~known
    at = np.where(known, number, 0)
    for name, column in pool.items():
        there = np.asarray(items[name]).reshape(count, -1)
        bad |= (there != column[at].reshape(count, -1)).any(axis=1)
    return int(bad.sum())


def _cartpole(seed: int) -> dict[str, np.ndarray]:
    import gymnasium

    env, random = gymnasium.make("CartPole-v1"), np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {name: [] for name in ("now", "then", "reward", "over", "ends")}
    now, _ = env.reset(seed=seed)
    for _ in range(COUNTS["small"]):
        then, reward, terminated, truncated, _ = env.step(int(random.integers(2)))
        for name, value in zip(
            rows, (now, then, reward, terminated, terminated or truncated), strict=True
        ):
            rows[name].append(value)
        now = env.reset()[0] if terminated or truncated else then
    return _columns(rows, np.float32)


def _pong(seed: int) -> dict[str, np.ndarray]:
    from replay_server.training.atari import AtariFrames

    env, random = AtariFrames("ALE/Pong-v5", 1), np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {name: [] for name in ("now", "then", "reward", "over", "ends")}
    begun, fresh = None, False
    frame, _ = env.reset(seed=seed)
    while len(rows["now"]) < COUNTS["atari"]:
        if begun is None:  # an episode's first stack: zeros, then its frame
            begun = np.zeros((STACK, *FRAME), np.uint8)
            begun[-1] = frame[0]
        frame, reward, terminated, truncated, _ = env.step(random.integers(6, size=1))
        if fresh:  # next-step mode: this was the reset
            begun, fresh = None, False
            continue
        then = np.concatenate([begun[1:], frame])
        over = bool(terminated[0] or truncated[0])
        for name, value in zip(
            rows, (begun, then, reward[0], bool(terminated[0]), over), strict=True
        ):
            rows[name].append(value)
        begun, fresh = then, over
    return _columns(rows, np.uint8)


def _columns(rows: dict[str, list[Any]], kind: Any) -> dict[str, np.ndarray]:
    return {
        "observation": np.array(rows["now"], kind),
        "next_observation": np.array(rows["then"], kind),
        "reward": np.array(rows["reward"], np.float32),
        "terminated": np.array(rows["over"], np.bool_),
        "ends": np.array(rows["ends"], np.bool_),
    }


def _plain(size: int, seed: int) -> dict[str, np.ndarray]:
    random, width = np.random.default_rng(seed), (size - REST_BYTES) // 2
    return {
        "observation": random.integers(0, 256, (PLAIN_COUNT, width), np.uint8),
        "next_observation": random.integers(0, 256, (PLAIN_COUNT, width), np.uint8),
        "reward": np.ones(PLAIN_COUNT, np.float32),
        "terminated": np.zeros(PLAIN_COUNT, np.bool_),
        "ends": np.zeros(PLAIN_COUNT, np.bool_),
    }
