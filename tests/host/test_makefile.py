"""What `make` compiles again: what includes a changed header, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OBJECTS = ("core/table/table.o", "core/base/crc32c.o")
NAMED = "core/drive/service.o"  # says the version


def make(build: Path, *words: str, objects: tuple[str, ...] = OBJECTS) -> str:
    """What make says of these objects in `build`."""
    command = ["make", "V=1", f"BUILD={build}", *words, *(f"{build}/{o}" for o in objects)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    build = tmp_path_factory.mktemp("build")
    make(build)
    return build


def again(build: Path, header: str) -> set[str]:
    """The objects that would be compiled again if this header changed."""
    said = make(build, "-n", "-W", header)
    return {name for name in OBJECTS if f"-o {build}/{name}" in said}


def test_a_changed_header_compiles_what_includes_it(build):
    """Given two built objects. Expect none made again for a benchmark's header or one that neither
    includes, one for the table's, both for one that both include."""
    assert again(build, "tests/native/bench_track.h") == set()
    assert again(build, "native/client/client.h") == set()
    assert again(build, "native/table/store.h") == {"core/table/table.o"}
    assert again(build, "native/base/crc32c.h") == {"core/table/table.o", "core/base/crc32c.o"}


def test_a_header_that_is_gone_stops_nothing(build):
    """Given notes of a header that was deleted since, as was the line that included it. Expect
    the object compiled anew."""
    notes = build / "core/table/table.o.d"
    kept = notes.read_text()
    try:
        notes.write_text(kept.replace("native/table/store.h", "native/table/gone.h"))
        assert "gone.h:" in notes.read_text()
        assert f"-o {build}/core/table/table.o" in make(build, "-n", "-W", "native/table/table.c")
    finally:
        notes.write_text(kept)


@pytest.mark.parametrize("kind", ["", "san/", "tsan/"])
def test_a_changed_version_reaches_the_core(tmp_path, kind):
    """Given an object that says the version, then a pyproject.toml that changed. Expect it compiled
    again, with the version that stands there."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    compiled = f"-o {tmp_path}/{kind}{NAMED}"
    make(tmp_path, objects=(kind + NAMED,))
    assert compiled not in make(tmp_path, "-n", objects=(kind + NAMED,))
    said = make(tmp_path, "-n", "-W", "pyproject.toml", objects=(kind + NAMED,))
    assert compiled in said and f"-DRP_VERSION={version.group(1)} " in said


def test_a_folder_named_like_notes_stops_nothing(build):
    """Given a package that was unpacked below the build, with its etc/init.d. Expect no word."""
    (build / "prometheus/etc/init.d").mkdir(parents=True)
    assert "up to date" in make(build)
