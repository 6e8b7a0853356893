"""From sampled windows to what an update needs: n-step returns, discounts and next observations.

Two facts of an item decide its target, `terminated` and `ahead`:

    m = min(n, ahead)                        rows that follow t in its episode, at most n
    j = the first i < m with terminated[t+i]    a cut return: the end of a life or of the episode
    G = sum of gamma^i r[t+i] over i <= min(j, m-1)
    target = G                               if j exists
           = G + gamma^m Q(o[t+m])           otherwise: also at a truncation, where m < n

Works on NumPy arrays and on torch tensors alike, on the device they are on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import ConfigError
from .spec import MASKED
from .stacking import stacks_from_frames
from .support.values import HUGE, real

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Transitions:
    """B transitions; the target of each is `rewards + discounts * Q(next_observations)`.

    observations, next_observations  [B, *shape]: o_t and o_{t+m}, where m = min(n, ahead);
                       [B, k, *shape] where the plan stacks k frames; {leaf: array} where the space
                       is a Dict or a Tuple
    actions            [B, *shape]; {leaf: array} where the space is a Dict or a Tuple
    rewards            float32 [B]: the discounted return over the m steps
    discounts          float32 [B]: gamma^m; 0 where a termination cut the return
    weights            float32 [B]: importance weights, for the loss
    """

    observations: Any
    actions: Any
    rewards: Any
    discounts: Any
    next_observations: Any
    weights: Any


def n_step_targets(reward: Any, terminated: Any, ahead: Any, gamma: float) -> tuple[Any, Any, Any]:
    """(G_t [B], discount_t [B], m [B]): the target is G_t + discount_t * Q(o_{t+m}).

    reward      float32 [B, n]
    terminated  bool [B, n]; both arrays, or both tensors
    ahead       integers [B], at least 1, as batch.ahead has them
    gamma       discount of one step, 0 to 1

    m is min(n, ahead). discount_t is gamma^m, or 0 where a termination cut the return. Entries of
    reward and terminated at m and after it are not used. ConfigError where an argument is not as
    said; the numbers of an `ahead` on a GPU are not checked, since that would wait for the GPU.
    """
    gamma = real("gamma", gamma, 0.0, 1.0)
    _require_alike(reward, terminated)
    if "bool" not in str(terminated.dtype):
        raise ConfigError(f"terminated is {terminated.dtype}: expected bool; say terminated != 0")
    if len(reward.shape) != 2 or tuple(terminated.shape) != tuple(reward.shape):
        raise ConfigError(
            f"reward {tuple(reward.shape)}, terminated {tuple(terminated.shape)}: expected [B, n] "
            "alike, one number a step; take a further axis away, such as by reward[..., 0]"
        )
    n = reward.shape[1]
    if n < 1:
        raise ConfigError("reward has 0 steps an item: expected [B, n] with n of at least 1")
    m = _rows_ahead(reward, ahead, n)
    if isinstance(reward, np.ndarray):
        library: Any = np
        powers: Any = np.array([gamma**i for i in range(n + 1)], np.float32)
        steps: Any = np.arange(n)
    else:
        import torch

        library = torch
        powers = torch.tensor(
            [gamma**i for i in range(n + 1)], dtype=torch.float32, device=reward.device
        )
        steps = torch.arange(n, device=reward.device)
    inside = steps < m[:, None]  # [B, n]
    cut = terminated & inside  # [B, n]
    used = inside & (cut.cumsum(1) == cut)  # [B, n]: no cut strictly before
    return_t = library.where(used, reward * powers[:n], 0.0).sum(1)
    discount_t = library.where(cut.any(1), 0.0, powers[m])
    return return_t, discount_t, m


def _require_alike(reward: Any, terminated: Any) -> None:
    """ConfigError where they are not two arrays or two tensors, or reward holds no real numbers."""
    if any(isinstance(each, np.ma.MaskedArray) for each in (reward, terminated)):
        raise ConfigError(f"reward or terminated is {MASKED}")
    kinds = [_library(each) for each in (reward, terminated)]
    if not kinds[0] or kinds[0] != kinds[1]:
        raise ConfigError(
            f"reward is of {type(reward).__name__}, terminated of {type(terminated).__name__}: "
            "expected NumPy arrays both, or torch tensors both; convert them with np.asarray or "
            "torch.as_tensor"
        )
    if kinds[0] == "torch":
        real_numbers = not reward.is_complex() and "bool" not in str(reward.dtype)
    else:
        real_numbers = reward.dtype.kind in "iuf"
    if not real_numbers:
        raise ConfigError(f"reward is {reward.dtype}: expected real numbers, such as float32")


def _library(value: Any) -> str:
    """Whose array it is: "numpy", "torch" or ""; found without importing torch."""
    if isinstance(value, np.ndarray):
        return "numpy"
    return "torch" if hasattr(value, "detach") and hasattr(value, "is_complex") else ""


def _rows_ahead(reward: Any, ahead: Any, n: int) -> Any:
    """min(n, ahead) as int64 [B], of the kind of `reward` [B, n] and where that is."""
    count, numbers = len(reward), ahead
    if _library(ahead) == "torch":
        whole = not (ahead.is_floating_point() or ahead.is_complex())
        whole = whole and "bool" not in str(ahead.dtype)
        numbers = ahead if "uint64" in str(ahead.dtype) else ahead.long()
        known = numbers if ahead.device.type == "cpu" else None
        if isinstance(reward, np.ndarray) or "uint64" in str(ahead.dtype):
            known = numbers = ahead.detach().cpu().numpy()  # torch clamps no uint64
    else:
        try:
            known = numbers = np.asarray(ahead)
        except ValueError:  # rows of several lengths
            known = numbers = np.zeros(0, np.object_)
        whole = numbers.dtype.kind in "iu" or (numbers.size == 0 and count == 0)
    fits = whole and tuple(numbers.shape) == (count,)
    if not fits or (known is not None and count and known.min() < 1):
        raise ConfigError(
            f"ahead is {ahead!r}: expected whole numbers of at least 1, one an item [{count}], as "
            "batch.ahead has them"
        )
    if _library(numbers) == "torch":
        return numbers.clamp(max=n).to(reward.device)
    numbers = np.minimum(numbers, n).astype(np.int64)  # in this order: uint64 may pass int64
    if isinstance(reward, np.ndarray):
        return numbers
    import torch

    return torch.as_tensor(numbers, device=reward.device)


def transitions_of(
    batch: Any, gamma: float, device: Any = None, reward_clip: float | None = None
) -> Transitions:
    """The work of `Batch.transitions`, which documents the arguments."""
    gamma = real("gamma", gamma, 0.0, 1.0)
    if reward_clip is not None:
        reward_clip = real("reward_clip", reward_clip, 0.0, HUGE)
    if device is not None:
        check_device(device, False)
    ahead = _require_transitions(batch)
    data, weights = {n: part for n, part in batch.data.items() if _is_used(n)}, batch.weights
    if device is not None or not all(isinstance(part, np.ndarray) for part in data.values()):
        data = {name: tensor_of(part, device, name) for name, part in data.items()}
        weights = tensor_of(weights, next(iter(data.values())).device)
    reward, terminated = data["reward"], data["terminated"] != 0
    if reward_clip is not None:
        reward = reward.clip(-reward_clip, reward_clip)
    rewards, discounts, _ = n_step_targets(reward, terminated, ahead, gamma)
    observations, following = _observations(data, ahead)
    actions = {name: part[:, 0] for name, part in data.items() if _is_of("action", name)}
    return Transitions(
        observations=leaves("observation", observations),
        actions=leaves("action", actions),
        rewards=rewards.astype(np.float32) if isinstance(rewards, np.ndarray) else rewards.float(),
        discounts=discounts,
        next_observations=leaves("observation", following),
        weights=weights,
    )


def _observations(data: dict[str, Any], ahead: np.ndarray) -> tuple[dict, dict]:
    """The observation columns at t and at t+m."""
    now, following, n = {}, {}, data["reward"].shape[1]
    for name, frames in data.items():
        if not _is_of("observation", name):
            continue
        if frames.shape[1] == 1:
            now[name], following[name] = frames[:, 0], data["next_" + name][:, 0]
        elif frames.shape[1] == 2:
            now[name], following[name] = frames[:, 0], frames[:, 1]
        else:
            stack = frames.shape[1] - n
            now[name], following[name] = stacks_from_frames(frames, ahead, n, stack)
    return now, following


def tensor_of(part: Any, device: Any = None, name: str = "") -> Any:
    """A tensor, in shared memory where possible. uint16 and wider become int64, which torch can
    count with; ConfigError for what int64 does not hold, with the column's name."""
    import torch

    if isinstance(part, np.ndarray) and part.dtype.kind == "u" and part.dtype.itemsize > 1:
        if part.dtype.itemsize == 8 and part.size and part.max() > INT64_MAX:
            of = f"column {name!r}: " if name else ""
            raise ConfigError(
                f"{of}{part.max()} is beyond int64, torch's widest integer to count with: take the "
                "batch without device=, or keep such numbers as two columns of uint32"
            )
        part = part.astype(np.int64)
    return torch.as_tensor(part, device=device)


def _require_transitions(batch: Any) -> np.ndarray:
    """The batch's `ahead` as int64 [B], on the host, so that no GPU is waited for. ConfigError
    where the items are no transitions."""
    data, what = batch.data, f"plan {batch.plan!r} of table {batch.table!r} holds"
    groups = {name.split("/")[0] for name in data if "/" in name} & {"observation", "action"}
    for name in ("observation", "action", "reward", "terminated"):
        if name not in data and name not in groups:
            raise ConfigError(
                f"{what} no transitions: there is no column {name!r}, and each transition has one; "
                "name the table's columns so, as spec_from(env) does"
            )
    steps = {name: part.shape[1] for name, part in data.items()}
    now = [name for name in data if _is_of("observation", name)]
    if any(steps[name] == 1 for name in now):
        if {*steps.values()} == {1} and all("next_" + name in data for name in now):
            return np.ones(len(data["reward"]), np.int64)  # each row says what it leads to
        raise ConfigError(
            f"{what} no transitions: it has one observation an item; give the table plan=NStep(n), "
            "or rows that have next_observation too"
        )
    if any(steps[name] != 1 for name in data if _is_of("action", name)):
        raise ConfigError(
            f"{what} sequences, which are no transitions: take the columns of batch.data, or give "
            "the table plan=NStep(n)"
        )
    if batch.layout is not None:
        _require_n_step(batch)
    ahead = np.asarray(batch.ahead).astype(np.int64)
    if (ahead < 1).any():
        raise ConfigError("an item with ahead = 0 has no next observation; was it read with get?")
    return ahead


def _require_n_step(batch: Any) -> None:
    """ConfigError where the plan's offsets are not those of an NStep(n, stack)."""
    offsets = batch.layout.resolved.offsets
    n = len(offsets["reward"])
    wanted = {"reward": tuple(range(n)), "terminated": tuple(range(n))}
    wanted |= {name: (0,) for name in offsets if name.split("/")[0] == "action"}
    for name, taken in offsets.items():
        if name.split("/")[0] == "observation":  # with stack=k: 1-k to n
            wanted[name] = (0, n) if taken[0] >= 0 else tuple(range(taken[0], n + 1))
    for column, steps in wanted.items():
        if offsets[column] != steps:
            raise ConfigError(
                f"plan {batch.plan!r} of table {batch.table!r} holds no transitions: "
                f"{column!r} is taken at {offsets[column]}, an n-step transition with {n} rewards "
                f"needs {steps}; give the table plan=NStep(n), or take the columns of batch.data"
            )


def _is_of(group: str, column: str) -> bool:
    return column == group or column.startswith(group + "/")


def _is_used(column: str) -> bool:
    """Whether transitions are made of it; what else a batch has stays where it is."""
    whole, following = column in ("reward", "terminated"), column.removeprefix("next_")
    return whole or _is_of("observation", following) or _is_of("action", column)


def leaves(group: str, columns: dict[str, Any]) -> Any:
    """The columns of a group as `Transitions` has them: one array; for a Dict or Tuple space
    {leaf: array}, where the leaf of "observation/a/0" is "a/0"."""
    return columns.get(group, {name[len(group) + 1 :]: part for name, part in columns.items()})


def check_device(device: Any, pin: bool) -> None:
    """ConfigError where torch cannot put batches on `device`, or page-lock memory for it."""
    if device is None and not pin:
        return
    try:
        import torch
    except ImportError as error:
        asked = "pin=True" if device is None else f"device {device!r}"
        raise ConfigError(
            f"{asked} needs torch ({error}): pip install 'replay-server[train]', or leave it out"
        ) from error
    try:
        kind = "cpu" if device is None else torch.device(device).type
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"device {device!r}: {str(error).splitlines()[0]}") from error
    if (kind == "cuda" or pin) and not torch.cuda.is_available():
        asked = "pin=True" if kind != "cuda" else f"device {str(device)!r}"
        raise ConfigError(
            f"{asked}: torch {torch.__version__} sees no GPU here; leave it out, or give "
            "device='cpu'"
        )
