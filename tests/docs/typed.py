"""The package as type checkers see it: mypy --strict and pyright over a user's program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

USER = Path(__file__).with_name("typed_user.py")
IGNORED = USER.read_text().count("# type: ignore[")


def test_mypy_agrees():
    """Given the program, --strict. Expect no error, and none that is ignored for nothing."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(USER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_agrees(tmp_path):
    """Given the same. Expect no error, and as many found as are marked."""
    marked = tmp_path / "marked.py"
    settings = "# pyright: strict, reportUnnecessaryTypeIgnoreComment=true\n"
    settings += "# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false\n"
    marked.write_text(settings + USER.read_text())
    bare = tmp_path / "bare.py"
    bare.write_text(settings + USER.read_text().replace("# type: ignore", "# "))
    errors = []
    for path in (marked, bare):
        command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=300)
        told = json.loads(done.stdout)["generalDiagnostics"]
        errors.append([f"{e['range']['start']['line'] + 1}: {e['message']}" for e in told])
    assert errors[0] == []
    lines = {error.split(":")[0] for error in errors[1]}
    assert len(lines) == IGNORED > 8
