"""Reading TOML on every Python: tomllib came with 3.11, before it there is tomli."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ..errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parsed(path: Path) -> dict[str, Any]:
    """The document in the file; ConfigError of one sentence where there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(error.strerror or error)) from error
    except (ValueError, RecursionError) as error:  # also of no text, and of 5,000 digits
        raise ConfigError(f"not TOML: {error}") from error
