"""Sends a run's scalars to Weights & Biases, where --wandb asks for it and the package is there.

Each program is a run of its own there, in a group named after the run folder. What wandb's own
environment variables say holds; WANDB_MODE=offline writes below RUN/wandb and needs no network.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError

PROJECT = "replay-server"


def require_wandb() -> None:
    """ConfigError with the command that installs it, where wandb is missing."""
    if importlib.util.find_spec("wandb") is None:
        raise ConfigError(
            "--wandb needs the package wandb: pip install wandb, or leave --wandb out "
            "(metrics.jsonl and TensorBoard's files are written without it)"
        )


class WandbRun:
    """One program's run at wandb."""

    def __init__(self, folder: Path, name: str, arguments: Mapping[str, Any]) -> None:
        require_wandb()
        import wandb

        try:
            self.run = wandb.init(
                project=PROJECT,
                group=folder.name,
                name=f"{folder.name}/{name}",
                job_type=name,
                config=dict(arguments),
                dir=str(folder),
                settings={"console": "off"},  # the output stays the terminal's
            )
        except wandb.Error as error:
            said = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"wandb did not start: {said}; WANDB_MODE=offline needs no account and no network"
            ) from error

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """The scalars of one step."""
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        """Ends the run there."""
        self.run.finish()
