"""What a release is made by: workflows, forms and the citation, against their published schemas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from replay_server import _native
from replay_server.support.toml import tomllib

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
SCHEMAS = {
    "github-workflows": sorted((ROOT / ".github/workflows").glob("*.yml")),
    "github-issue-forms": [form for form in FORMS if form.stem != "config"],
    "github-issue-config": [form for form in FORMS if form.stem == "config"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}


def judged(schema: str, files: list[Path]) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    return subprocess.run([*command, *map(str, files)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_files_fit_their_schema(schema):
    """Given the files of one kind. Expect the schema that their readers publish to hold."""
    assert SCHEMAS[schema]
    done = judged(schema, SCHEMAS[schema])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_that_does_not_fit_is_found(schema, tmp_path):
    """Given a file of each kind with a word that no reader knows. Expect it named."""
    text = SCHEMAS[schema][0].read_text()
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(text + "\nno_such_word: true\n")
    done = judged(schema, [wrong])
    assert done.returncode == 1 and "no_such_word" in done.stdout + done.stderr


def test_every_job_ends_some_day():
    """Given the workflows. Expect a time-out for each job."""
    files = SCHEMAS["github-workflows"]
    done = judged("github-workflows", files)
    assert done.returncode == 0
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    command += ["custom.github-workflows-require-timeout", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_the_version_is_one():
    """Given pyproject.toml. Expect its version in the core, CITATION.cff and CHANGELOG.md."""
    assert _native.VERSION == VERSION
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert VERSION in (ROOT / "CHANGELOG.md").read_text()
