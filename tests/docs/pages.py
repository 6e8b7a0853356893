"""A Markdown page as the checks of README and docs/ see it: its code, links, headings and widths.

Each check takes pages and gives the problems it found, a sentence each with its place; none found
is an empty list. bad_pages.py shows every one of them finding what it is for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

COLUMNS, README_LINES, RUN_S = 100, 150, 300
FENCE = re.compile(r"^(`{3,})(.*)$")
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INCLUDE = re.compile(r"^```\{include\} (\S+)$", re.MULTILINE)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^\.\. auto\w+:: replay_server\.(\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, the number of its first line, why it is not run."""

    language: str
    lines: list[str]
    number: int
    not_run: str = ""


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    fence, language, lines, begin, said = "", "", [], 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if fence:
            if line == fence:
                found.append(Block(language, lines, begin, said))
                fence = said = ""
            else:
                lines.append(line)
        elif match:
            fence, language, lines, begin = match[1], match[2].strip(), [], number + 1
        elif reason := NOT_RUN.match(line):
            said = reason[1]
        elif line.strip():
            said = ""
    if fence:
        found.append(Block(language, lines, begin, said))
    return found


def prose_of(text: str) -> list[tuple[int, str]]:
    """(number, line) of what stands outside of the fenced blocks."""
    inside = {
        number
        for block in blocks_of(text)
        for number in range(block.number - 1, block.number + len(block.lines) + 1)
    }
    return [(n, line) for n, line in enumerate(text.splitlines(), 1) if n not in inside]


def code_of(text: str) -> tuple[str, list[str]]:
    """The Python blocks of a page as one script whose lines have the page's numbers; the reasons
    of those that are not run."""
    script, reasons = [""] * len(text.splitlines()), []
    for block in blocks_of(text):
        if block.language == "python" and block.not_run:
            reasons.append(block.not_run)
        elif block.language == "python":
            script[block.number - 1 : block.number - 1 + len(block.lines)] = block.lines
    return "\n".join(script) + "\n", reasons


def run(page: Path, root: Path, folder: Path) -> list[str]:
    """The page's Python, run as one program in `folder`; a warning of ours is an error."""
    script = folder / f"{page.stem}.py"
    script.write_text(code_of(page.read_text())[0])
    command = [sys.executable, "-W", "error::UserWarning", str(script)]
    environment = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S
        )
    except subprocess.TimeoutExpired:
        return [f"{page.name}: its Python runs for longer than {RUN_S} s"]
    if done.returncode == 0:
        return []
    lines = re.findall(rf"{script.name}\", line (\d+)", done.stderr)
    last = done.stderr.strip().splitlines()[-1:] or ["no word"]
    return [f"{page.name}:{lines[-1] if lines else '?'}: its Python ends with: {last[0]}"]


def slugs_of(text: str) -> set[str]:
    """The anchors that forges and MyST make of a page's headings."""
    found: set[str] = set()
    for _, line in prose_of(text):
        if heading := re.match(r"^#{1,6} (.+)$", line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            number, free = 0, slug
            while free in found:
                number += 1
                free = f"{slug}-{number}"
            found.add(free)
    return found


def dead_links(page: Path, root: Path) -> list[str]:
    """Relative links and anchors that lead nowhere, or out of the tree."""
    wrong = []
    text = page.read_text()
    for number, line in prose_of(text):
        for target in LINK.findall(SPAN.sub(lambda span: "" if "](" in span[0] else span[0], line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            place = f"{page.name}:{number}: "
            if not file.exists():
                wrong.append(f"{place}{target}: there is no {path}")
            elif not file.is_relative_to(root.resolve()):
                wrong.append(f"{place}{target}: that is outside of the tree")
            elif anchor and anchor not in slugs_of(file.read_text()):
                wrong.append(f"{place}{target}: no heading there is #{anchor}")
    return wrong


def wide_lines(page: Path) -> list[str]:
    """Lines of more than COLUMNS columns that are neither rows of a table nor hold a link."""
    return [
        f"{page.name}:{number}: {len(line)} columns; at most {COLUMNS}"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > COLUMNS and not line.startswith("|") and not LINK.search(line)
    ]


def too_long(page: Path, most: int = README_LINES) -> list[str]:
    """That a page has more lines than `most`."""
    count = len(page.read_text().splitlines())
    return [f"{page.name}: {count} lines; at most {most}"] if count > most else []


def missing_pages(folder: Path) -> list[str]:
    """Pages that the index has in no toctree, or that none of its links names."""
    index = (folder / "index.md").read_text()
    in_tree = {line for tree in TOCTREE.findall(index) for line in tree.split()}
    linked = set(LINK.findall(index))
    wrong = []
    for page in sorted(folder.glob("*.md")):
        if page.name != "index.md":
            ways = {page.name, *INCLUDE.findall(page.read_text())}
            if page.stem not in in_tree:
                wrong.append(f"{page.name}: in no toctree of index.md")
            if not ways & linked:
                wrong.append(f"{page.name}: index.md has no link to it")
    return wrong


def unnamed(page: Path, names: list[str]) -> list[str]:
    """Public names that the reference lacks, and what it names that is none."""
    there = NAMED.findall(page.read_text())
    wrong = [f"{page.name}: {name} is missing" for name in names if name not in there]
    wrong += [f"{page.name}: {name} is no public name" for name in there if name not in names]
    return wrong + [f"{page.name}: {n} stands twice" for n in names if there.count(n) > 1]
