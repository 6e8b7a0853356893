"""The command lines of a page, held against the programs' own --help and the makefiles.

Looked at are blocks without a language or of `sh`, and what stands between backticks: a line that
begins with a program of ours, a word of `python -m replay_server` with what follows it, `make`,
an option by itself, and a path of the tree.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pages import SPAN, blocks_of, prose_of

SHELL = ("", "sh")
COMMANDS = ("serve", "stats", "bench", "doctor", "keygen", "demo", "run", "actor")
COMMANDS += ("learner", "environments", "together")
MODULES = {"replay_server": COMMANDS, "actor": (), "learner": ("train", "evaluate")}
MODULES |= {"deploy": ("demo", "run")}
OPTION = re.compile(r"^--[a-z][a-z-]*")
FOLDERS = (
    "actor",
    "benchmarks",
    "deploy",
    "docs",
    "examples",
    "learner",
    "native",
    "replay_server",
    "tests",
)
PATH = re.compile(rf"^(?:{'|'.join(FOLDERS)})/[\w./-]*\w$")
BUILT = ("replay_server/_dpdk.so",)
NIC = ("status", "hugepages", "bind", "unbind")


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """(number, command line) of a page; lines that go on with a backslash are one."""
    for block in blocks_of(text):
        if block.language in SHELL:
            joined = ""
            for i, line in enumerate(block.lines):
                joined += line
                if joined.endswith("\\"):
                    joined = joined[:-1]
                    continue
                yield block.number + i, joined
                joined = ""
    for number, line in prose_of(text):
        for span in SPAN.findall(line):
            yield number, span


def words_of(line: str) -> list[list[str]]:
    """The commands of a line, each in words without what sets its environment."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list(lexer)
    except ValueError:  # a quote that nothing closes: no command
        return []
    found: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", "||", ";", "|", "&"):
            found.append([])
        elif found[-1] or not re.match(r"^[A-Z_]+=", word):
            found[-1].append(word)
    return [command for command in found if command]


@cache
def options_of(*words: str) -> frozenset[str]:
    """The options that `python -m WORDS --help` tells; empty where it is no command."""
    here = {"COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", *words, "--help"],
        cwd=root,
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = frozenset(re.findall(r"(?<![\w-])--[a-z][a-z-]*", done.stdout))
    return found if done.returncode == 0 else frozenset()


@cache
def makefiles(root: Path) -> str:
    """All of them as one text."""
    made = [root / "Makefile", *root.glob("tests/**/*.mk"), *root.glob("benchmarks/**/*.mk")]
    return "\n".join(path.read_text() for path in made)


def targets_of(root: Path) -> set[str]:
    """What `make` can be told by name."""
    rules = re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", makefiles(root), re.MULTILINE)
    return {name for rule in rules for name in rule.split()}


def wrong_make(words: list[str], root: Path) -> str:
    for word in words:
        name, equals, _ = word.partition("=")
        if equals and not re.search(rf"\$[({{]{name}\b", makefiles(root)):
            return f"no makefile reads {name}="
        if not equals and not word.startswith("-") and word not in targets_of(root):
            return f"there is no target {word}"
    return ""


def wrong_options(module: str, words: list[str]) -> str:
    """What is wrong with `python -m module words`."""
    command = [module]
    subcommands = MODULES[module]
    if words and subcommands:
        if words[0].startswith("-"):
            words = [*words]
        elif words[0] not in subcommands:
            return f"{module} has no command {words[0]}"
        else:
            command, words = [module, words[0]], words[1:]
            if command[1] in MODULES and module == "replay_server":
                return wrong_options(command[1], words)
            if command in (["replay_server", "demo"], ["replay_server", "run"]):
                command = ["deploy", command[1]]
    known = options_of(*command)
    for word in words:
        option = OPTION.match(word)
        if option and option[0] not in known and option[0] != "--help":
            return f"{' '.join(command)} has no option {option[0]}"
    return ""


def known_anywhere(root: Path) -> frozenset[str]:
    """Every option of the programs, of nic.sh and of the examples."""
    programs = [("replay_server", word) for word in ("serve", "stats", "bench", "doctor", "keygen")]
    programs += [("actor",), ("learner", "train"), ("learner", "evaluate"), ("deploy", "demo")]
    found = frozenset().union(*(options_of(*words) for words in programs))
    texts = [root / "deploy" / "nic.sh", *root.glob("examples/*.py")]
    return found.union(*(re.findall(r"--[a-z][a-z-]*", path.read_text()) for path in texts))


def wrong_command(words: list[str], root: Path) -> str:
    """What is wrong with one command of a page, or ""."""
    program = words[0].rsplit("/", 1)[-1]
    if words[0] == "make":
        return wrong_make(words[1:], root)
    if program in ("python", "python3") and words[1:2] == ["-m"] and words[2:3]:
        if words[2] in MODULES:
            return wrong_options(words[2], words[3:])
    elif program == "replay-server":
        return wrong_options("replay_server", words[1:])
    elif words[0] in COMMANDS and len(words) > 1:
        return wrong_options("replay_server", words)
    elif words[0] == "sh" and words[1:2] == ["deploy/nic.sh"]:
        if words[2] not in NIC:
            return f"nic.sh has no command {words[2]}"
    elif (option := OPTION.match(words[0])) and option[0] not in known_anywhere(root):
        return f"no program has an option {option[0]}"
    return ""


def wrong_commands(page: Path, root: Path) -> list[str]:
    """The page's command lines that name no command, option, target or file that there is."""
    wrong = []
    for number, line in lines_of(page.read_text()):
        for words in words_of(line):
            if told := wrong_command(words, root):
                wrong.append(f"{page.name}:{number}: {line.strip()}: {told}")
            for word in words:
                if PATH.match(word) and word not in BUILT and not (root / word).exists():
                    wrong.append(f"{page.name}:{number}: there is no {word}")
    return wrong


def counted(page: Path) -> int:
    """How many commands of ours a page has."""
    ours = ("make", "replay-server", *COMMANDS)
    commands = [words for _, line in lines_of(page.read_text()) for words in words_of(line)]
    return sum(
        words[0] in ours or (words[1:2] == ["-m"] and words[2:3] and words[2] in MODULES)
        for words in commands
    )
