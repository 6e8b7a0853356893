"""What has to be in a wheel and in an sdist, and nothing else: read off the source tree."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("actor", "learner", "deploy")
ENGINE = "replay_server/_engine.abi3.so"


def files(folder: str, *patterns: str) -> set[str]:
    """Files of the checkout, relative to its root."""
    found = (path for pattern in patterns for path in (ROOT / folder).glob(pattern))
    return {path.relative_to(ROOT).as_posix() for path in found}


def in_wheel() -> set[str]:
    """The package, its compiled core, and below it the programs with their configurations."""
    package = files("replay_server", "**/*.py", "py.typed") | {ENGINE}
    programs = {name for folder in PROGRAMS for name in files(folder, "**/*.py")}
    programs |= files("deploy", "*.toml", "plans/*.toml", "*.html", "*.json", "*.sh")
    return package | {f"replay_server/_programs/{name}" for name in programs}


def in_sdist() -> set[str]:
    """All that building takes, and the documents."""
    wanted = files("native", "**/*.c", "**/*.h", "**/*.py") | files(
        "replay_server", "**/*.py", "py.typed"
    )
    wanted |= {name for folder in PROGRAMS for name in files(folder, "**/*.py")}
    wanted |= files("deploy", "**/*.toml", "**/*.json", "**/*.yml", "*.html") | files(".", "*.md")
    wanted |= files("deploy", "*.sh", "*.service", "*.env", "*.md", "Containerfile")
    wanted |= files("docs", "*.md", "*.py", "static/*.css", "images/*.png")
    built = {"setup.py", "pyproject.toml", "MANIFEST.in", "constraints.txt", "LICENSE"}
    return wanted | built
