"""The files of this tree: those that git tracks, and new ones, as they are in the working tree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked(*patterns: str) -> list[Path]:
    """Those that git's `patterns` name; all without any."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for path in map(ROOT.joinpath, listed.stdout.split("\0")) if path.is_file()]


def copy_tracked(target: Path, *patterns: str) -> None:
    """Copies them below `target`."""
    for path in tracked(*patterns):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
