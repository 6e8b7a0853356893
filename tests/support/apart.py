"""A namespace of its own for a test's command."""

from __future__ import annotations

import os
import subprocess

import pytest


def apart(*kinds: str) -> list[str]:
    """The command that runs another in new namespaces (unshare's options, `--net` first). Skips the
    test where only root may have one, or none is to be had; in CI as root the latter fails."""
    command = ["unshare", *kinds]
    if os.geteuid() != 0:
        pytest.skip("left out: namespaces need root")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    if tried.returncode:
        assert os.environ.get("CI") != "true", f"no namespaces here: {tried.stderr}"
        pytest.skip(f"left out: no namespaces here: {tried.stderr.strip()}")
    return command
