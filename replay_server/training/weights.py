"""Network weights as bytes: safetensors with a learner step inside. No pickle anywhere.

What the learner publishes and the actors pull is one safetensors file in memory. Its metadata has a
single entry, "learner", a JSON object with at least "learner_step": one entry, because the order of
several is not fixed and equal weights must give equal bytes.

    | u64 header size | JSON header: tensors, {"__metadata__": {"learner": ...}} | tensor bytes |

Bytes that come from elsewhere are checked before use: WeightsError says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

HEADER_SIZE_MAX = 1 << 20
METADATA_KEY = "learner"


class WeightsError(ValueError):
    """Bytes that are not weights, or weights of another network."""


def to_bytes(
    tensors: Mapping[str, Tensor], learner_step: int, extra: Mapping[str, Any] | None = None
) -> bytes:
    """Named tensors (a state_dict) and the learner step; equal arguments give equal bytes.

    WeightsError where one is not finite: every actor would play by it.
    """
    require_finite(tensors, learner_step)
    document = json.dumps({**(extra or {}), "learner_step": learner_step}, sort_keys=True)
    whole = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    return safetensors.torch.save(whole, {METADATA_KEY: document})


def from_bytes(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, document with "learner_step"); WeightsError on anything `to_bytes` cannot make."""
    document = metadata_of(data)
    try:
        return safetensors.torch.load(bytes(data)), document
    except SafetensorError as error:
        raise WeightsError(f"not weights: {error}") from error


def require_finite(tensors: Mapping[str, Tensor], learner_step: int) -> None:
    """WeightsError naming the first tensor with a NaN or an infinity, and the step."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise WeightsError(
                f"weights of learner step {learner_step}: {name!r} is not finite; go on from the "
                "newest checkpoint with a smaller learning rate or a larger optimizer epsilon"
            )


def metadata_of(data: bytes) -> dict[str, Any]:
    """The document alone, without reading a tensor."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(HEADER_SIZE_MAX, len(data) - 8):
        raise WeightsError(f"not weights: a header of {size} bytes in {len(data)} bytes")
    try:
        document = json.loads(json.loads(bytes(data[8 : 8 + size]))["__metadata__"][METADATA_KEY])
        step = document["learner_step"]
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"weights without a learner step: {error!r}") from error
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise WeightsError(f"learner_step is {step!r}; expected a count")
    return document


def load_into(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy `tensors` into `network`; WeightsError naming what does not fit, before any copy."""
    mine = network.state_dict()
    for name, tensor in mine.items():
        if name not in tensors:
            raise WeightsError(f"weights lack {name!r} {list(tensor.shape)}")
        if tensors[name].shape != tensor.shape or tensors[name].dtype != tensor.dtype:
            got = tensors[name]
            raise WeightsError(
                f"weights of {name!r}: expected {tensor.dtype} {list(tensor.shape)}, "
                f"got {got.dtype} {list(got.shape)}"
            )
    for name in tensors:
        if name not in mine:
            raise WeightsError(f"weights hold {name!r}, which this network has not")
    network.load_state_dict(dict(tensors))
