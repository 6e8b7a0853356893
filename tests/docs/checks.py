"""README and docs/ hold what they say: `make test-docs`. Not part of `make test`.

bad_pages.py shows that each check can fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import counted, wrong_commands
from pages import (
    blocks_of,
    code_of,
    dead_links,
    missing_pages,
    run,
    too_long,
    unnamed,
    wide_lines,
)

import replay_server

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHERS = [ROOT / f"{name}.md" for name in ("ARCHITECTURE", "PROTOCOL", "CONTRIBUTING")]
OTHERS += [ROOT / "native/dpdk" / f"{name}.md" for name in ("DECISIONS", "NOTES")]
OTHERS += [ROOT / "deploy" / "LATENCY.md", *sorted((ROOT / "examples").rglob("README.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]
NOT_RUN_MOST = 0


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_python_of_a_page_runs(page, tmp_path):
    """Given the Python blocks of a page as one program. Expect it to end without an error."""
    assert run(page, ROOT, tmp_path) == []


def test_blocks_that_are_not_run_are_counted(capsys):
    """Given all pages. Expect every Python block to run, but those whose reason is printed."""
    reasons = [f"{name_of(p)}: {why}" for p in WITH_CODE for why in code_of(p.read_text())[1]]
    blocks = [b for p in WITH_CODE for b in blocks_of(p.read_text()) if b.language == "python"]
    with capsys.disabled():
        ran = len(blocks) - len(reasons)
        print(f"\nPython blocks: {len(blocks)}, run {ran}, not run {len(reasons)}", *reasons)
    assert len(blocks) >= 12 and len(reasons) <= NOT_RUN_MOST


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name_of)
def test_links_lead_somewhere(page):
    """Given the relative links and anchors of a page. Expect a file or heading for each."""
    assert dead_links(page, ROOT) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_there(page):
    """Given the command lines of a page. Expect each command, option, target and file."""
    assert wrong_commands(page, ROOT) == []


def test_commands_were_looked_at(capsys):
    """Given all pages. Expect many commands, or the check looked past them."""
    count = sum(map(counted, PAGES))
    with capsys.disabled():
        print(f"\ncommand lines: {count} on {len(PAGES)} pages")
    assert count > 100


def test_pages_fit():
    """Given README and docs/. Expect README short, and no line too wide to read."""
    assert too_long(ROOT / "README.md") == []
    assert [line for page in PAGES for line in wide_lines(page)] == []


def test_the_index_has_every_page():
    """Given docs/. Expect each page in a toctree and behind a link of the index."""
    assert missing_pages(ROOT / "docs") == []


def test_the_reference_has_every_name():
    """Given what replay_server exports. Expect the API page to name each, once, and no other."""
    assert unnamed(ROOT / "docs" / "api.md", replay_server.__all__) == []


def test_the_built_pages_have_every_name():
    """Given the pages as built. Expect each public name to be a place one can link to."""
    built = (ROOT / "build" / "docs" / "api.html").read_text()
    lost = [name for name in replay_server.__all__ if f'id="replay_server.{name}"' not in built]
    assert lost == []
