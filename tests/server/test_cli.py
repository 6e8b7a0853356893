"""The command line: what it prints before it serves, how it stops, what it says to a mistake."""

from __future__ import annotations

import argparse
import dataclasses
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conformance import plain

from replay_server import Client, Prioritized, Server, Table, _native, errors
from replay_server.__main__ import EXIT_HOST, EXIT_USAGE, ServeArgs, main, parser
from replay_server.server import ServerOptions
from replay_server.support.toml import tomllib

NO_CORE = "; the cores this process may use are 0" if _native.PINS else ", and no thread is pinned"

ROOT = Path(__file__).resolve().parents[2]
# Each command, and a file of its tests.
TESTS = {
    "serve": "server/test_cli.py",
    "stats": "server/test_cli.py",
    "bench": "host/test_bench.py",
    "doctor": "host/test_doctor.py",
    "keygen": "server/test_zmq.py",
    "demo": "learning/test_programs.py",
    "run": "plans/test_fleet.py",
    "environments": "learning/test_remote_environments.py",
    "together": "plans/test_plan.py",
    "actor": "learning/test_programs.py",
    "learner": "learning/test_programs.py",
}
CONFIG = """
[server]
url = "udp://127.0.0.1:0"
seed = 9
weights_max = 1_000_000

[[table]]
name = "main"
capacity = 4096
columns = [{ name = "x", dtype = "float32", shape = [4] }]
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "server.toml"
    path.write_text(CONFIG)
    return path


def command(*arguments):
    return [sys.executable, "-u", "-m", "replay_server", *map(str, arguments)]


def run(*arguments):
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_what_then_serves_then_stops(config, number):
    """Given a config. Expect table, memory, address in that order; one line and 0 at a signal."""
    process = subprocess.Popen(
        command("serve", config), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        table, memory, serving = (process.stdout.readline() for _ in range(3))
        assert "'main': 4,096 steps of 16 bytes (x)" in table
        assert memory.startswith("taking ") and "MiB" in memory
        assert memory.strip().endswith("; 2.9 MiB of them only as weights are published")
        assert serving.startswith("serving at udp://127.0.0.1:") and "(seed 9)" in serving
        with Client(serving.split()[2]) as client:
            client.extend("main", {"x": [[1.0, 2.0, 3.0, 4.0]] * 5})
        process.send_signal(number)
        rest, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert rest.splitlines() == [rest.strip()] and "5 steps stored" in rest


def test_options_win_over_the_file(config):
    """Given --seed and --url. Expect those, and not the file's."""
    process = subprocess.Popen(
        command("serve", config, "--seed", 4, "--url", "udp://127.0.0.1:0?mtu=9000"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        assert "(seed 4)" in lines[2]
        with Client(lines[2].split()[2], mtu=9000) as client:
            assert client.limits["mtu"] == 9000
    finally:
        process.terminate()
        process.wait(30)


def test_mistakes_are_one_sentence_and_code_two(config, tmp_path):
    """Given a broken config, no key beyond this machine, odd words. Expect a sentence and 2; given
    a busy port, too much memory: what another moment may mend. Expect a sentence and 1."""
    broken = tmp_path / "broken.toml"
    broken.write_text("[server]\nport = 1\n")
    huge = tmp_path / "huge.toml"
    huge.write_text(CONFIG.replace("4096", "2_000_000_000").replace("[4]", "[250_000]"))
    with Server([plain()], "udp://127.0.0.1:0") as server:
        for arguments, said in (
            (("serve", broken), "port"),
            (("serve", tmp_path / "none.toml"), "No such file"),
            (("serve",), "--env"),
            (("serve", config, "--url", server.address), server.address.split("//")[1]),
            (("serve", config, "--url", "udp://0.0.0.0:0"), "insecure"),
            (("serve", huge), ""),
            (
                ("serve", config, "--metrcs", "127.0.0.1:0"),
                "no option --metrcs; the nearest is --metrics",
            ),
            (("stats", "udp://127.0.0.1:9", "--wach"), "the nearest is --watch"),
            (("learner", "trian", "--run", tmp_path), "no command 'trian'; the nearest is train"),
            (("learner", "--run", tmp_path), "say what it is to do: train, evaluate or judge"),
            (("learner", "train", "--hidden", "[64, 64]"), "expected numbers as in 64,64"),
            (
                ("learner", "evaluate", "--sede", "1"),
                "replay-server learner evaluate: no option --sede",
            ),
            (("actor", "--run", config), f"{config} is a file, and a run needs a folder"),
            (("stats", "udp://127.0.0.1:9", "--timeout", "0.2"), ""),
        ):
            done = run(*arguments)
            host = server.address in arguments or huge in arguments
            assert done.returncode == (EXIT_HOST if host else EXIT_USAGE), (arguments, done.stderr)
            assert said in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    done = run("serve", config, "--url", "tcp://127.0.0.1:1")
    assert done.returncode == EXIT_USAGE and "no such transport" in done.stderr, done.stderr
    assert "taking" not in done.stdout, "no memory is spoken of where nothing can be served"
    for more, said in (
        (("--url", "udp://0.0.0.0:0"), "serving on udp://0.0.0.0:0: other hosts could reach it"),
        (("--core", "100000"), f"core is 100000{NO_CORE}"),
        (("--region", ""), "region is ''; expected a folder"),
        (("--region", broken), "broken.toml: a file; a region is a folder: name another"),
        (("--compile", tmp_path / "t.bin", "--shards", "2"), "--shards is not kept by --compile"),
    ):
        done = run("serve", config, *more)
        assert done.returncode == EXIT_USAGE and said in done.stderr, done.stderr
        assert done.stdout == "" and done.stderr.count("--insecure") <= 1, done.stderr


def test_stats_prints_what_moved(capsys):
    """Given a server that answered. Expect its counters that are not zero, in words."""
    with Server([plain()], "udp://127.0.0.1:0") as server:
        assert main(["stats", server.address]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("sessions_opened") and "sessions opened" in line for line in lines)
    assert not any(" 0 " in line for line in lines)


def test_help_teaches(capsys):
    """Given --help. Expect examples, and a sentence for each option."""
    for arguments in (["--help"], ["serve", "--help"], ["stats", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
    out = capsys.readouterr().out
    for arguments in (["actor"], ["learner", "train"], ["learner", "evaluate"], ["demo"]):
        with pytest.raises(SystemExit):
            main([*arguments, "--help"])
    programs = capsys.readouterr().out
    assert not re.search(r"(--|  )[\w-]+ (str|int|float|Path|integers)\b", out + programs)
    for words in ("--server URL", "--url URL", "--run FOLDER", "--table NAME", "--hidden N,N"):
        assert words in out + programs, words
    assert "replay-server serve deploy/server.toml" in out
    assert "--insecure" in out and "without a key" in out and "--watch" in out
    assert "--idle-ms" in out


def test_every_command_has_a_page_and_a_test():
    """Given the commands of the program. Expect each in the list of tests here, in that of the
    pages' checks, on a page of the manual, and in the module's own words."""
    sys.path.append(str(ROOT / "tests/docs"))
    from commands import COMMANDS

    (choices,) = (
        action.choices
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    pages = "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    head = sys.modules["replay_server.__main__"].__doc__
    assert set(choices) == TESTS.keys() == set(COMMANDS)
    for name in choices:
        assert f'"{name}"' in (ROOT / "tests" / TESTS[name]).read_text(), name
        assert re.search(rf"replay-server {name}\b", pages), name
        assert re.search(rf"^    (\w+, )*{name}\b", head, re.MULTILINE), name


@pytest.mark.parametrize(
    "words", [(), ("demo",), ("actor",), ("learner", "train"), ("learner", "evaluate")]
)
def test_every_command_tells_its_version(words):
    """Given --version to each command. Expect one line with the version, exit code 0."""
    done = run(*words, "--version")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"replay-server \d+\.\d+\S*\n", done.stdout)


def test_a_table_without_a_file_has_the_defaults_of_a_table():
    """Given the defaults that `serve --help` shows. Expect those of Table and Prioritized."""
    fields = Table.__dataclass_fields__
    assert ServeArgs.alpha == Prioritized().alpha
    assert ServeArgs.capacity == fields["capacity"].default
    assert ServeArgs.writers == fields["writers"].default


# Where a default is worked out, or is easier to read in another unit: what the page says of it.
WORKED_OUT = {
    "seed": "drawn",
    "mtu": "the url's",
    "sessions_per_address": "three quarters",
    "receive_budget": "half the port",
    "weights_max": "64 MiB",
}


def as_the_page_says(name: str, value: object) -> str:
    if name in WORKED_OUT:
        assert value in (0, None, 64 << 20)
        return WORKED_OUT[name]
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ") if value >= 10_000 else str(value)
    return f'`"{value}"`' if value else "none"


def test_pages_and_sentences_say_the_defaults_of_a_server():
    """Given the table of docs/operations.md, deploy/server.toml, and who else names a default.
    Expect each option of ServerOptions in the table with its default, and the same elsewhere."""
    defaults = {f.name: f.default for f in dataclasses.fields(ServerOptions)}
    page = (ROOT / "docs/operations.md").read_text()
    _, rows = page.split("| field | default | what it is |")
    told = {}
    for fields, texts in re.findall(
        r"^\| (`.+?) \| (.+?) \| ", rows.split("\n\n")[0], re.MULTILINE
    ):
        names, words = re.findall(r"\w+", fields), texts.split(", ")
        told |= zip(names, words if len(words) > 1 else words * len(names), strict=True)
    assert told == {name: as_the_page_says(name, value) for name, value in defaults.items()}
    shown = tomllib.loads((ROOT / "deploy/server.toml").read_text())["server"]
    named = ("sessions", "idle_ms", "batch_max", "weights_max")
    assert {name: shown[name] for name in named} == {name: defaults[name] for name in named}
    assert shown["sessions_per_address"] == defaults["sessions"] * 3 // 4
    idle_ms = defaults["idle_ms"]
    assert f"\nidle_ms = {idle_ms:_} " in page
    assert f"`idle_ms` ({idle_ms // 1000} s)" in (ROOT / "docs/sessions.md").read_text()
    assert f"idle_ms ({idle_ms // 1000} s by default)" in errors._WAIT
    (option,) = (field for field in dataclasses.fields(ServeArgs) if field.name == "idle_ms")
    assert f"given up; {idle_ms} if neither says it" in option.metadata["help"]
