"""Small files, folders and links of sysfs and procfs; what cannot be read is empty or None."""

from __future__ import annotations

import os
from pathlib import Path


def text(path: Path) -> str:
    """A small file's text, stripped; "" where it cannot be read. Bytes that are no UTF-8 are kept,
    as in names of files, by surrogates."""
    try:
        return os.fsdecode(path.read_bytes().strip())
    except OSError:
        return ""


def lines(path: Path) -> list[list[str]]:
    """Its lines as their words; other blanks than ASCII's are part of a name."""
    rows = os.fsencode(text(path)).split(b"\n")
    return [[os.fsdecode(word) for word in row.split()] for row in rows]


def number(path: Path, base: int = 10) -> int | None:
    """A file's number, or None."""
    try:
        return int(text(path), base)
    except ValueError:
        return None


def names(folder: Path) -> list[str]:
    """What lies in a folder, sorted; nothing where there is none."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def link_name(path: Path) -> str:
    """The last part of what a link points to; "" where there is none."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""
