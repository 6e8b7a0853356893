"""Every check of pages.py and commands.py finds what it is for: a bad page for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import counted, wrong_commands
from pages import (
    code_of,
    dead_links,
    missing_pages,
    run,
    slugs_of,
    too_long,
    unnamed,
    wide_lines,
)

ROOT = Path(__file__).resolve().parents[2]


def page_of(folder, text, name="page.md"):
    page = folder / name
    page.write_text(text)
    return page


def test_python_that_fails_is_found_by_its_line(tmp_path):
    """Given two blocks of which the second uses the first, and then a name of nobody's. Expect the
    line on the page; a block marked as not to be run is left out, with its reason."""
    good = "# A\n\n```python\na = 1\n```\n\nwords\n\n```python\nprint(a)\n```\n"
    assert run(page_of(tmp_path, good), ROOT, tmp_path) == []
    (told,) = run(page_of(tmp_path, good.replace("print(a)", "print(b)")), ROOT, tmp_path)
    assert told == "page.md:10: its Python ends with: NameError: name 'b' is not defined"
    marked = good.replace("print(a)", "print(b)").replace(
        "words\n", "<!-- not run: needs a network card -->\n"
    )
    assert run(page_of(tmp_path, marked), ROOT, tmp_path) == []
    assert code_of(marked)[1] == ["needs a network card"]
    assert (
        code_of(marked.replace(": needs a network card", ""))[1] == []
    )  # without a reason it runs


def test_a_warning_of_ours_is_an_error(tmp_path):
    """Given a block that warns. Expect it found."""
    text = "```python\nimport warnings\nwarnings.warn('look', UserWarning)\n```\n"
    (told,) = run(page_of(tmp_path, text), ROOT, tmp_path)
    assert told == "page.md:3: its Python ends with: UserWarning: look"


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("other.md", "there is no other.md"),
        ("page.md#no-such", "no heading there is #no-such"),
        ("#two-words-", "no heading there is #two-words-"),
        ("../../..", "that is outside of the tree"),
    ],
)
def test_a_dead_link_is_found(tmp_path, link, told):
    """Given a link to no file, no heading, or out of the tree. Expect its sentence."""
    text = f"# Two words!\n\nSee [this]({link}).\n"
    assert dead_links(page_of(tmp_path, text), tmp_path) == [f"page.md:3: {link}: {told}"]


def test_living_links_and_code_are_no_dead_links(tmp_path):
    """Given links that work, of another host, and code that looks like one. Expect nothing."""
    text = "# Two words!\n\n[a](page.md#two-words) [b](#two-words) [c](https://x.org/y.md#z)\n"
    text += "\n`[d](nowhere.md)`\n\n```sh\n[e](nowhere.md)\n```\n"
    assert dead_links(page_of(tmp_path, text), tmp_path) == []
    assert slugs_of("# A `b` c\n## A b c\n```\n# no\n```\n") == {"a-b-c", "a-b-c-1"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("make demoo", "there is no target demoo"),
        ("make demo TRANSPROT=udp", "no makefile reads TRANSPROT="),
        ("python -m replay_server serv FILE", "replay_server has no command serv"),
        ("python -m replay_server serve FILE --sed 7", "replay_server serve has no option --sed"),
        ("a=1 && .venv/bin/python -m actor --rnu x", "actor has no option --rnu"),
        ("python -m learner training", "learner has no command training"),
        ("python -m learner evaluate x --solve-at 1", "learner evaluate has no option --solve-at"),
        ("replay-server stats URL --watches", "replay_server stats has no option --watches"),
        ("serve FILE \\\n    --shard 2", "replay_server serve has no option --shard"),
        ("sh deploy/nic.sh bnid 0000:03:00.0", "nic.sh has no command bnid"),
        ("cat deploy/no.toml", "there is no deploy/no.toml"),
    ],
)
def test_a_wrong_command_is_found_in_a_block_and_between_backticks(tmp_path, line, told):
    """Given a command line with a slip. Expect it found."""
    (found,) = wrong_commands(page_of(tmp_path, f"words\n\n```sh\n{line}\n```\n"), ROOT)
    assert found.endswith(told)
    if "\n" not in line:
        (found,) = wrong_commands(page_of(tmp_path, f"words `{line}` words\n"), ROOT)
        assert found.startswith("page.md:1: ") and found.endswith(told)


def test_an_option_of_nobody_is_found(tmp_path):
    """Given options between backticks. Expect that of no program found."""
    (found,) = wrong_commands(page_of(tmp_path, "`--insecure`, `--insecuer` and `--force`\n"), ROOT)
    assert found == "page.md:1: --insecuer: no program has an option --insecuer"


def test_commands_that_are_right_are_counted(tmp_path):
    """Given commands of ours and of others. Expect ours counted, and nothing found."""
    text = "```sh\nmake demo SEED=3   # words --with an option\npip install --no-such x\n"
    text += "REPLAY_X=1 python -m actor --run a\n```\n`replay-server doctor --json`\n"
    page = page_of(tmp_path, text)
    assert wrong_commands(page, ROOT) == [] and counted(page) == 3


def test_what_is_too_long_or_too_wide_is_found(tmp_path):
    """Given 151 lines, and lines of 101 columns. Expect them found, but tables and links."""
    page = page_of(tmp_path, "a\n" * 150)
    assert too_long(page) == []
    assert too_long(page_of(tmp_path, "a\n" * 151)) == ["page.md: 151 lines; at most 150"]
    wide = "a" * 101
    text = f"{wide}\n{wide[1:]}\n| {wide} |\n[a](b.md) {wide}\n"
    assert wide_lines(page_of(tmp_path, text)) == ["page.md:1: 101 columns; at most 100"]


def test_a_page_that_the_index_lacks_is_found(tmp_path):
    """Given a page in no toctree, one behind no link, and one behind its file's. Expect the two."""
    index = "[a](a.md) [c](../C.md)\n\n```{toctree}\n:hidden:\n\nb\nc\n```\n"
    page_of(tmp_path, index, "index.md")
    for name in ("a", "b"):
        page_of(tmp_path, "# A\n", f"{name}.md")
    page_of(tmp_path, "```{include} ../C.md\n```\n", "c.md")
    told = ["a.md: in no toctree of index.md", "b.md: index.md has no link to it"]
    assert missing_pages(tmp_path) == told


def test_a_name_that_the_reference_lacks_is_found(tmp_path):
    """Given a reference of A twice and Z, of a package of A and B. Expect three sentences."""
    text = "".join(f".. autoclass:: replay_server.{name}\n" for name in "AAZ")
    told = ["B is missing", "Z is no public name", "A stands twice"]
    assert unnamed(page_of(tmp_path, text), ["A", "B"]) == [f"page.md: {each}" for each in told]
