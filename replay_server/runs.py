"""A run's folder, its metrics, and how long each phase of a loop takes.

    RUN/args-NAME.json      the resolved arguments of program NAME, seed and commit included
    RUN/NAME.jsonl          its metrics: one JSON object a line, "time" in seconds since 1970
    RUN/checkpoints/        the learner's
    RUN/summary.json        written by whoever judges the run

Several programs share one folder; each writes only files that carry its own name.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def commit() -> str:
    """The commit this code stands on, with "-dirty" where it was changed; "unknown" without git."""
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """The whole document under `path`, or nothing: written beside it and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    os.replace(beside, path)


class Run:
    """One program's part of a run folder. Lines are flushed as they are written."""

    def __init__(self, folder: Path, name: str, arguments: Mapping[str, Any]) -> None:
        self.folder, self.name = folder, name
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"args-{name}.json", {**arguments, "commit": commit()})
        self.file = open(folder / f"{name}.jsonl", "a", buffering=1)  # noqa: SIM115 (closed below)

    def log(self, **values: Any) -> None:
        """One line of metrics."""
        self.file.write(json.dumps({"time": time.time(), **values}) + "\n")

    def close(self) -> None:
        """Closes the metrics file."""
        self.file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a metrics file; a last line cut short by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Phases:
    """Seconds and times each phase of a loop took: `with phases("sample"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.begin = time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def shares(self) -> dict[str, float]:
        """{"phase/NAME": share of the time since the last call}; starts anew."""
        now = time.perf_counter()
        whole = max(now - self.begin, 1e-9)
        shares = {f"phase/{name}": spent / whole for name, spent in self.seconds.items()}
        self.seconds, self.begin = {}, now
        return shares
