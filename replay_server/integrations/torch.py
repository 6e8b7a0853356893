"""A PyTorch dataset whose batches a replay server draws.

    from replay_server.integrations.torch import ReplayDataset

    dataset = ReplayDataset("udp://127.0.0.1:7400", "main", 256, gamma=0.99)
    for batch in DataLoader(dataset, batch_size=None, num_workers=2):
        value = net(batch["observations"])

A batch is a dict of tensors of the same shapes each time, which torch.compile and the workers of a
DataLoader take as they are. The dataset is a url and options: every iterator, and so every worker,
has a session of its own, opened at its first batch and closed at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from replay_server import Batch, Client, ConfigError
from replay_server.batch import checked_beta, checked_count
from replay_server.returns import tensor_of
from replay_server.support.values import HUGE, real

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError(
        f"replay_server.integrations.torch needs torch ({error}): "
        "pip install 'replay-server[train]'"
    ) from error


class ReplayDataset(IterableDataset):
    """Batches of one table, without end; take as many as the training needs.

    url         of the server, as Client takes it
    table       its name
    batch       items of each batch: with DataLoader(batch_size=None) one batch each
    gamma       discount: a batch has `Batch.transitions`: observations, actions, rewards,
                discounts, next_observations, weights; None: the columns of the plan, as
                `Batch.as_dict` has them, and weights
    reward_clip as in `Batch.transitions`
    beta, plan, stratified, uniform, prefetch, timeout  as in `Client.batches`

    Each batch also has "keys", int64 [B], for update_priorities(table, batch["keys"].numpy(), ...).
    Tensors are copies on the CPU, the caller's for good.
    """

    def __init__(
        self,
        url: str,
        table: str,
        batch: int,
        *,
        gamma: float | None = None,
        reward_clip: float | None = None,
        beta: float = 0.4,
        plan: int | str = 0,
        stratified: bool = False,
        uniform: float = 0.0,
        prefetch: int = 4,
        timeout: float | None = None,
    ) -> None:
        if gamma is not None:
            gamma = real("gamma", gamma, 0.0, 1.0)
        if reward_clip is not None:
            reward_clip = real("reward_clip", reward_clip, 0.0, HUGE)
        self.url, self.table, self.batch = url, table, checked_count(batch)
        beta = beta if callable(beta) else checked_beta(beta)
        self.gamma, self.reward_clip = gamma, reward_clip
        self.options: dict[str, Any] = {"beta": beta, "plan": plan, "stratified": stratified}
        self.options |= {"uniform": uniform, "prefetch": prefetch, "timeout": timeout}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if callable(self.options["beta"]) and get_worker_info() is not None:
            raise ConfigError(
                "beta is a function, and a worker has its own copy of what it reads: give a "
                "number, or num_workers=0"
            )
        with (
            Client(self.url) as client,
            client.batches(self.table, self.batch, copy=True, **self.options) as drawn,
        ):
            for batch in drawn:
                yield self._tensors(batch)

    def _tensors(self, batch: Batch) -> dict[str, Any]:
        keys = {"keys": torch.from_numpy(np.asarray(batch.keys).astype(np.int64))}
        taken = {"weights", "keys"} & batch.data.keys()
        if self.gamma is None and taken:
            raise ConfigError(
                f"table {self.table!r} has a column {min(taken)!r}, and so does each batch here: "
                "name the column otherwise"
            )
        if self.gamma is None:
            columns = {name: tensor_of(part) for name, part in batch.as_dict().items()}
            return columns | {"weights": tensor_of(batch.weights)} | keys
        found = batch.transitions(self.gamma, "cpu", self.reward_clip)
        return vars(found) | keys
