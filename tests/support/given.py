"""Batches of columns made up by a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from replay_server import Batch
from replay_server.batch import keys_of
from replay_server.returns import Transitions


def batch_from(data: dict[str, np.ndarray], ahead: Any, weights: Any) -> Batch:
    """A batch of data {column: [B, steps, *shape]}, ahead and weights [B], keys from 100 on."""
    count = len(ahead)
    unknown = np.zeros(count, np.uint64)
    return Batch(
        data=data,
        weights=np.asarray(weights, np.float32),
        keys=keys_of(np.arange(100, 100 + count, dtype=np.uint64)),
        probabilities=np.ones(count) / count,
        masses=unknown,
        totals=unknown,
        drawables=unknown,
        ages=unknown,
        behind=unknown,
        ahead=np.asarray(ahead),
        valid=np.ones(count, np.bool_),
        table="main",
        plan="default",
    )


def transitions(data: dict, ahead: Any, weights: Any, gamma: float, **options: Any) -> Transitions:
    """Those of such a batch, as torch tensors on the CPU."""
    return batch_from(data, ahead, weights).transitions(gamma, "cpu", **options)
