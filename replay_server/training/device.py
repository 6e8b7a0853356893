"""Where the learner's nets live. One path for CPU and GPU: only this name differs.

On a GPU, batches land in page-locked memory and are copied from there without waiting
(replay_server/batches.py); on the CPU the tensors are views of the landing.
"""

from __future__ import annotations

import os
import shutil

import torch
from torch import nn

COMPILED = {"cpu": {}, "cuda": {"mode": "reduce-overhead"}}  # that: CUDA graphs


class DeviceError(ValueError):
    """A device that is not there, in one sentence."""


def device_from(name: str) -> str:
    """ "cpu" or "cuda" (or "cuda:1"): `name`, or for "auto" a GPU where torch sees one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise DeviceError(f"device {name!r}; expected auto, cpu or cuda")
    count = torch.cuda.device_count()
    if device.type == "cuda" and 0 < count <= (device.index or 0):
        raise DeviceError(f"device {name!r}: there are {count} GPUs, the last is cuda:{count - 1}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"device {name!r}: torch {torch.__version__} sees no GPU here; take cpu")
    return name


def compile_nets(nets: nn.Module, device: str) -> None:
    """Each part of `nets` by torch.compile, at its first pass; names of weights stay. DeviceError
    where the machine has no compiler for that."""
    compiler = os.environ.get("CXX", "g++")
    if device == "cpu" and shutil.which(compiler) is None:
        raise DeviceError(
            f"torch.compile needs a C++ compiler, and {compiler!r} is not there: apt-get install "
            "g++, or leave --compile out"
        )
    for part in nets.children():
        part.compile(**COMPILED[device.partition(":")[0]])
