"""The networks that actors play by.

    mlp      every column flattened and joined, hidden layers with ReLU; for vectors
    nature   the three convolutions of Mnih et al. 2015, 512 units; one uint8 image column, / 255
    linear   one weight for each state and action, no bias; one Discrete column: a table

For dqn `mlp` and `nature` end in a dueling head (Wang et al. 2016), Q = V + A - mean A: one value
an action, [B, A]. For sac and ppo `mlp` ends in the numbers of a distribution of actions
(actions.py). Observations are what `Batch.transitions` gives: [B, *shape], or [B, k, *shape] of k
stacked frames; {leaf: tensor} where the space is a Dict or a Tuple. `acting_network` builds one
from a preset, the same at actor and learner, which both know the environment; weights travel as
safetensors (weights.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor, nn

from ..returns import leaves
from ..spec import Column, Spec, SpecError
from .actions import Actions, Bounds
from .presets import Preset

KINDS = ("mlp", "nature", "linear")
SIDE_LEAST = 36  # the least side that three convolutions without padding leave a pixel of


class Dueling(nn.Module):
    """Features [B, F] -> [B, A]; `hidden` > 0 puts one hidden layer into both streams."""

    def __init__(self, features: int, actions: int, hidden: int = 0) -> None:
        super().__init__()
        self.value = _stream(features, hidden, 1)
        self.advantage = _stream(features, hidden, actions)

    def forward(self, features: Tensor) -> Tensor:
        advantage = self.advantage(features)  # [B, A]
        return self.value(features) + advantage - advantage.mean(1, keepdim=True)


def _stream(features: int, hidden: int, outputs: int) -> nn.Module:
    if hidden == 0:
        return nn.Linear(features, outputs)
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


Observations = Tensor | dict[str, Tensor]


class Joined(nn.Module):
    """Observation columns, flattened and joined: float32 [B, width]. It has no parameters."""

    def __init__(self, columns: tuple[Column, ...], stack: int) -> None:
        super().__init__()
        self.widths = leaves("observation", {c.name: stack * prod(c.shape) for c in columns})
        self.width = sum(self.widths.values()) if isinstance(self.widths, dict) else self.widths

    def forward(self, observation: Observations) -> Tensor:
        if isinstance(self.widths, dict):
            parts = [_flat(observation[leaf], width) for leaf, width in self.widths.items()]
            return torch.cat(parts, 1)
        return _flat(observation, self.widths)


def _flat(part: Tensor, width: int) -> Tensor:
    return part.reshape(len(part), width).float()


def layers_of(width: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Hidden layers with ReLU: [B, width] -> [B, hidden[-1]]."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers)


class Mlp(nn.Module):
    """Flattened observation columns -> hidden layers -> a head, made of its features' number."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        stack: int,
        hidden: tuple[int, ...],
        head: Callable[[int], nn.Module],
    ) -> None:
        super().__init__()
        self.joined = Joined(columns, stack)
        self.trunk = layers_of(self.joined.width, hidden)
        self.head = head((self.joined.width, *hidden)[-1])

    def forward(self, observation: Observations) -> Tensor:
        return self.head(self.trunk(self.joined(observation)))


class NatureCnn(nn.Module):
    """One image column [H, W] or [H, W, C], uint8; k frames become k (or k*C) channels."""

    def __init__(self, column: Column, stack: int, actions: int, hidden: int = 512) -> None:
        super().__init__()
        self.column, self.stack = column, stack
        height, width, *rest = column.shape
        self.convolutions = nn.Sequential(
            nn.Conv2d(stack * prod(rest), 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            features = self.convolutions(torch.zeros(1, stack * prod(rest), height, width)).shape[1]
        self.head = Dueling(features, actions, hidden)

    def forward(self, observation: Observations) -> Tensor:
        frames = _only_part(observation, self.column)
        frames = frames.reshape(len(frames), self.stack, *self.column.shape)  # H, W or H, W, C
        if frames.dim() == 5:
            frames = frames.permute(0, 1, 4, 2, 3).flatten(1, 2)
        return self.head(self.convolutions(frames.float() / 255.0))


class OneHotLinear(nn.Module):
    """Q(s, a) = weight[a, s], all zero at first; the state is an integer column."""

    def __init__(self, column: Column, states: int, actions: int) -> None:
        super().__init__()
        self.column, self.states = column, states
        self.table = nn.Linear(states, actions, bias=False)
        nn.init.zeros_(self.table.weight)

    def forward(self, observation: Observations) -> Tensor:
        part = _only_part(observation, self.column)
        state = part.reshape(len(part), -1)[:, -1].long()  # [B]: of stacked states the newest
        try:
            chosen = nn.functional.one_hot(state, self.states)
        except RuntimeError as error:
            raise SpecError(
                f"{self.column.name!r}: states {int(state.min())} to {int(state.max())}, and the "
                f"linear network has places for 0 to {self.states - 1}; say more --states"
            ) from error
        return self.table(chosen.float())


def _only_part(observation: Observations, column: Column) -> Tensor:
    if isinstance(observation, dict):
        return observation[column.name.removeprefix("observation/")]
    return observation


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Weights made within are those of this seed; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def acting_network(preset: Preset, spec: Spec, actions: Actions, seed: int) -> nn.Module:
    """What actors of this preset play by. SpecError where the columns do not suit it."""
    if preset.values != "q":
        with seeded(seed):
            columns = spec.group("observation")
            # D means and D log deviations, or a logit of each action
            numbers = 2 * actions.size if isinstance(actions, Bounds) else actions
            return Mlp(columns, preset.stack, preset.hidden, lambda n: nn.Linear(n, numbers))
    return network_from(
        preset.network,
        spec,
        actions,
        stack=preset.stack,
        hidden=preset.hidden,
        states=preset.states,
        seed=seed,
    )


def network_from(
    kind: str,
    spec: Spec,
    actions: int,
    *,
    stack: int = 1,
    hidden: tuple[int, ...] = (128, 128),
    states: int = 0,
    seed: int | None = None,
) -> nn.Module:
    """The Q network `kind` for the observation columns of `spec`.

    `hidden`: layer sizes of mlp, or one size for the streams of nature. `states`: for linear.
    `seed`: the initial weights, leaving torch's global generator as it was. SpecError where the
    columns do not suit the kind.
    """
    columns = spec.group("observation")
    if kind not in KINDS:
        raise SpecError(f"network {kind!r}; expected one of {', '.join(KINDS)}")
    if actions < 1:
        raise SpecError(f"network {kind!r} needs at least one action, got {actions}")
    with seeded(seed):
        if kind == "mlp":
            return Mlp(columns, stack, hidden, lambda n: Dueling(n, actions))
        if kind == "nature":
            return NatureCnn(_image(columns), stack, actions, *hidden[:1])
        column = _only(kind, columns, ranks=(0,))
        if states < 1 or column.dtype.kind not in "iu":
            raise SpecError(f"network 'linear' needs an integer column and states, got {states}")
        return OneHotLinear(column, states, actions)


def _image(columns: tuple[Column, ...]) -> Column:
    """The one column of what nature takes, or SpecError."""
    column = _only("nature", columns, ranks=(2, 3))
    found = f"{column.name!r} is {column.dtype} {list(column.shape)}"
    if column.dtype != "uint8":
        raise SpecError(
            f"network 'nature' divides by 255 and takes uint8 images, {found}; "
            "let the environment give uint8, or take mlp"
        )
    if len(column.shape) == 3 and min(column.shape[1:]) >= SIDE_LEAST > column.shape[0]:
        raise SpecError(
            f"network 'nature' takes images [H, W] or [H, W, C], {found}: move its channels last"
        )
    if min(column.shape[:2]) < SIDE_LEAST:
        raise SpecError(
            f"network 'nature' needs images of {SIDE_LEAST} by {SIDE_LEAST} at least, {found}; "
            "take mlp, or enlarge them"
        )
    return column


def _only(kind: str, columns: tuple[Column, ...], ranks: tuple[int, ...]) -> Column:
    if len(columns) != 1 or len(columns[0].shape) not in ranks:
        shapes = ", ".join(f"{column.name} {list(column.shape)}" for column in columns)
        raise SpecError(f"network {kind!r} takes one column with {ranks} axes, got {shapes}")
    return columns[0]
