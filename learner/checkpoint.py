"""Checkpoints: NAME.safetensors with every tensor, NAME.json beside it with everything else.

The JSON is written last and names the tensors' SHA-256, so a checkpoint exists exactly when its
JSON does: a process killed in between leaves a tensor file that nothing points to. Both are
written under another name, flushed to disk, and renamed. Names hold the learner step, and files
are never rewritten; the oldest are deleted where a run keeps only some. What is not finite is not
written, so that the newest checkpoint is always one to go on from.

    tensors   "PART/..." for each part of the algorithm, as "online/..." and "target/...";
              "optimizer/<i>/<name>", "generator/torch"
    document  learner_step, counters, optimizer groups, whatever the run adds

No pickle: optimizer state is taken apart into tensors and numbers and put together again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from replay_server.training.weights import WeightsError, load_into

NAME_ONE = "name a run folder, or a checkpoint's JSON below RUN/checkpoints"


def save(folder: Path, name: str, tensors: Mapping[str, Tensor], document: dict[str, Any]) -> Path:
    """Write both files; returns the path of the JSON. `document` must be plain JSON.

    WeightsError where a tensor holds a NaN or an infinity, OSError where the disk is full: what is
    there already stays as it is.
    """
    for key, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise WeightsError(f"checkpoint {name} was not written: {key} is not finite")
    folder.mkdir(parents=True, exist_ok=True)
    whole = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    data = safetensors.torch.save(whole)
    sidecar = {**document, "tensors": f"{name}.safetensors", "sha256": _digest(data)}
    path = folder / f"{name}.json"
    _write(path.with_suffix(".safetensors"), data)
    try:
        _write(path, json.dumps(sidecar, indent=1, sort_keys=True).encode())
    except OSError:
        if not path.exists():  # tensors that nothing points to would keep the disk full
            path.with_suffix(".safetensors").unlink(missing_ok=True)
        raise
    return path


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, document) of the checkpoint whose JSON (or tensor file) is `path`.

    WeightsError when a file is missing, damaged, or the two do not belong together.
    """
    sidecar = Path(path).with_suffix(".json")
    try:
        return _whole(sidecar)
    except WeightsError as error:
        raise WeightsError(f"no checkpoint at {sidecar}: {error}; {NAME_ONE}") from error


def _whole(sidecar: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As `load`; the WeightsError says what is wrong, without advice."""
    try:
        document = json.loads(sidecar.read_bytes())
        tensors = sidecar.parent / Path(document["tensors"]).name
        data, digest = tensors.read_bytes(), document["sha256"]
    except OSError as error:
        which = "" if error.filename == str(sidecar) else f"{sidecar.stem}'s tensors: "
        raise WeightsError(f"{which}{error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError("it is not what a learner writes") from error
    if _digest(data) != digest:
        raise WeightsError(f"{tensors.name} is damaged: its SHA-256 is not the one stated")
    try:
        return safetensors.torch.load(data), document
    except SafetensorError as error:
        raise WeightsError(f"{tensors.name}: {error}") from error


def stated(document: Mapping[str, Any], name: str) -> Any:
    """The document's value of that name; WeightsError where it has none."""
    if name not in document:
        raise WeightsError(
            f"the checkpoint states no {name!r}: no learner of this version wrote it"
        )
    return document[name]


def prune(folder: Path, keep: int, saved: str = "", pattern: str = "step-*.json") -> None:
    """Deletes all but the `keep` newest, by name, that match; 0 keeps all.

    `saved` is what was written last, which stays: of damaged ones the names may be higher.
    """
    found = sorted(folder.glob(pattern), key=lambda sidecar: (sidecar.stem == saved, sidecar.stem))
    for sidecar in found[:-keep] if keep else []:
        delete(sidecar)


def make_room(folder: Path, pattern: str = "step-*.json") -> str | None:
    """Deletes one of several that match, damaged ones first, then the oldest; its name. None where
    there is but one, or no other than the one to go on from: that stays."""
    newest = latest(folder)
    others = sorted(each for each in folder.glob(pattern) if each != newest)
    if not others:
        return None
    gone = next((each for each in others if not _is_whole(each)), others[0])
    delete(gone)
    return gone.stem


def delete(sidecar: Path) -> None:
    """Both files of a checkpoint; the JSON goes first."""
    sidecar.unlink(missing_ok=True)
    sidecar.with_suffix(".safetensors").unlink(missing_ok=True)


def _is_whole(sidecar: Path) -> bool:
    return _first_whole([sidecar], lambda line: None) is not None


def latest(folder: Path, say: Callable[[str], None] = lambda line: None) -> Path | None:
    """The JSON of the whole checkpoint with the highest learner step in `folder`, or None.

    `say` gets a line for each one above it: those are damaged.
    """
    return _first_whole(_newest_first(folder, "*.json"), say)


def _newest_first(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern), key=lambda sidecar: (_step(sidecar), sidecar), reverse=True)


def _step(sidecar: Path) -> int:
    """The learner step of a checkpoint; of one whose JSON is damaged the one in its name."""
    try:
        return int(json.loads(sidecar.read_bytes())["learner_step"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return int((re.findall("[0-9]+", sidecar.stem) or ["-1"])[-1])


def _first_whole(sidecars: list[Path], say: Callable[[str], None]) -> Path | None:
    """The first of them to continue from; `say` gets a line for each damaged one before it."""
    damaged = []
    for sidecar in sidecars:
        try:
            _, document = _whole(sidecar)
            if type(document.get("learner_step")) is not int:
                raise WeightsError("it states no learner step")
        except WeightsError as error:
            damaged.append(f"{sidecar} is passed over: {error}")
            continue
        for line in damaged:
            say(f"{line}; {sidecar.name} is taken instead")
        return sidecar
    return None


def origins(folder: Path) -> list[tuple[int, str | None]]:
    """Of each checkpoint of `folder` the learner step, and the run it was taken over from; None: it
    was learned here."""
    found: list[tuple[int, str | None]] = []
    for sidecar in folder.glob("*.json"):
        try:
            origin = json.loads(sidecar.read_bytes()).get("taken_from")
        except (OSError, ValueError, AttributeError):
            origin = None
        found.append((_step(sidecar), origin))
    return found


def of(path: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """The checkpoint that `path` means: itself, or a run folder's newest solved one, or newest.

    WeightsError where a run folder has none, and for a file of another kind. `say` gets a line
    for each damaged one that comes before it.
    """
    if not path.is_dir():
        if path.suffix not in (".json", ".safetensors"):
            raise WeightsError(f"{path} is no checkpoint; {NAME_ONE}")
        return path
    folder = path / "checkpoints"
    solved = _newest_first(folder, "solved-*.json")
    others = [sidecar for sidecar in _newest_first(folder, "*.json") if sidecar not in solved]
    found = _first_whole(solved + others, say)
    if found is None:
        raise WeightsError(f"no whole checkpoint in {folder}; train first, or {NAME_ONE}")
    return found


def training_tensors(
    algorithm: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, document) from which `restore_training` continues bit for bit; copies.

    Includes torch's global generator. The document holds what of the optimizer is not a tensor.
    """
    state = optimizer.state_dict()
    tensors = {
        f"{part}/{name}": tensor
        for part, module in algorithm.named_children()
        for name, tensor in module.state_dict().items()
    }
    for i, entries in state["state"].items():
        for name, value in entries.items():
            tensors[f"optimizer/{i}/{name}"] = torch.as_tensor(value)
    tensors["generator/torch"] = torch.get_rng_state()
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    return copies, {"optimizer_groups": copy.deepcopy(state["param_groups"])}


def restore_training(
    tensors: Mapping[str, Tensor],
    document: Mapping[str, Any],
    algorithm: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> None:
    """The inverse of `training_tensors`.

    WeightsError, with nothing changed, where another optimizer wrote it, or where the networks do
    not fit.
    """
    groups = stated(document, "optimizer_groups")
    if any(set(group) != set(optimizer.param_groups[0]) for group in groups):
        raise WeightsError(
            f"the checkpoint is another optimizer's, not one of {type(optimizer).__name__}: go on "
            "with the optimizer it was made with, or begin another run"
        )
    for name, module in algorithm.named_children():
        load_into(module, part(tensors, name))
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in part(tensors, "optimizer").items():
        i, entry = name.split("/", 1)
        state.setdefault(int(i), {})[entry] = tensor.clone()  # load_state_dict may keep it
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    torch.set_rng_state(tensors["generator/torch"])


def part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors below "name/", without that prefix."""
    return {k[len(name) + 1 :]: t for k, t in tensors.items() if k.startswith(name + "/")}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    """All of `data` under `path`, or nothing."""
    part_path = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(part_path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part_path, path)
    except OSError as error:
        error.filename = str(path)
        part_path.unlink(missing_ok=True)
        raise
