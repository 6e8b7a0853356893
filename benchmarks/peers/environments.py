"""A virtual environment for each peer, made once in build/peers/NAME, with what pip installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .roster import HERE, ROOT, Listed

FOLDER = ROOT / "build" / "peers"
DONE = "bench-peers.json"
SAID_EVERY_S = 10.0


class CannotInstall(Exception):
    """Why a peer's environment is not to be had, in a sentence."""


def python_of(row: Listed) -> str:
    """The interpreter of its environment."""
    if row.environment == HERE:
        return sys.executable
    return str(FOLDER / row.environment / "bin" / "python")


def install(row: Listed, say: Callable[[str], None]) -> dict[str, str]:
    """Makes the environment where it is not there; {package: version}. CannotInstall if it fails.

    Nothing is fetched again once the file DONE names the same packages.
    """
    if row.environment == HERE:
        return {}
    folder = FOLDER / row.environment
    done = folder / DONE
    if done.exists():
        kept = json.loads(done.read_text())
        if kept["packages"] == list(row.packages):
            return dict(kept["versions"])
    begin = time.monotonic()
    say(f"{row.name}: installing {' '.join(row.packages)} into {folder.relative_to(ROOT)}")
    base = _interpreter(row)
    if not (folder / "bin" / "python").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([base, "-m", "venv", str(folder)], row, folder, say, begin)
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    quiet = ["--disable-pip-version-check", "-q"]
    _run([*pip, "install", *quiet, *row.packages], row, folder, say, begin)
    versions = _versions(pip)
    done.write_text(json.dumps({"packages": list(row.packages), "versions": versions}))
    return versions


def _interpreter(row: Listed) -> str:
    """What makes the environment: this Python, or the version that a peer's wheels need."""
    if not row.python or sys.version.startswith(f"{row.python}."):
        return sys.executable
    found = shutil.which(f"python{row.python}")
    if found is None:
        raise CannotInstall(f"it needs Python {row.python}, which is not here")
    return found


def _run(
    command: Sequence[str], row: Listed, folder: Path, say: Callable[[str], None], begin: float
) -> None:
    """A command whose progress is the size of the folder; its last line where it fails."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True)
    reader.start()
    try:
        while True:
            try:
                process.wait(SAID_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                size = _megabytes(folder)
                say(f"{row.name}: {size} MB after {time.monotonic() - begin:.0f} s")
    except BaseException:
        process.kill()
        process.wait()
        raise
    reader.join()
    if process.returncode:
        said = [line.strip() for line in lines if line.strip()]
        errors = [line for line in said if "error" in line.lower()]
        raise CannotInstall((errors or said or ["pip failed in silence"])[-1])


def _megabytes(folder: Path) -> int:
    """What lies in a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:
            continue  # pip moves files while they are counted
    return total >> 20


def _versions(pip: Sequence[str]) -> dict[str, str]:
    """{package: version} of an environment."""
    listed = subprocess.run(
        [*pip, "list", "--format", "json", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {entry["name"]: entry["version"] for entry in json.loads(listed.stdout)}
