"""Files of deploy/ that other programs read: units, environments, the container recipe."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from replay_server.__main__ import parser

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = ["replay-server", "replay-server-dpdk"]
INSTALLED = {
    "/opt/replay-server/bin/replay-server": "serve",
    "/opt/replay-server/lib/nic.sh": "nic",
}


def environment(unit: str) -> dict[str, str]:
    """The variables of a unit's environment file."""
    lines = (DEPLOY / f"{unit}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def commands(unit: str) -> list[list[str]]:
    """Every Exec line's words, its variables replaced as systemd does."""
    given, found = {"SERVICE_RESULT": "success", "EXIT_STATUS": "0"} | environment(unit), []
    for line in re.findall(r"^Exec\w+=\+?(.*)$", (DEPLOY / f"{unit}.service").read_text(), re.M):
        words = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda m: given[m[1] or m[2]], line)
        found.append(words.split())
    return found


def in_sdist() -> set[str]:
    """What building takes, as tests/package says it."""
    spec = importlib.util.spec_from_file_location("wanted", ROOT / "tests/package/wanted.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.in_sdist()


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_unit_runs_is_understood(unit, tmp_path):
    """Given the variables of its file. Expect serve to take the words, nic.sh to know the steps."""
    ran = []
    for program, *words in commands(unit):
        ran.append(INSTALLED[program])
        if INSTALLED[program] == "serve":
            given = vars(parser().parse_args(words))
            assert given["command"] == "serve" and given["file"].startswith("/etc/replay-server/")
            continue
        # An empty host: the words are understood, and the card or the pages are not there.
        done = subprocess.run(
            ["sh", str(DEPLOY / "nic.sh"), *words, "--root", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=30,
        )
        wanted = "is missing" if words[0] == "hugepages" else "there is no PCI device"
        assert done.returncode == 2 and wanted in done.stderr, done.stderr
    assert ran == (["serve"] if unit == "replay-server" else ["nic", "nic", "serve", "nic"])


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(unit, tmp_path):
    """Given systemd's own check. Expect no complaint, and an exposure of 3 of 10 at most."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("left out: no systemd-analyze here (apt-get install systemd)")
    text = (DEPLOY / f"{unit}.service").read_text()
    for program in INSTALLED:  # systemd wants them to be there
        text = text.replace(program, "/bin/true")
    path = tmp_path / f"{unit}.service"
    path.write_text(text)
    for words in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=30"]):
        done = subprocess.run(
            ["systemd-analyze", "--no-pager", *words, str(path)],
            env=os.environ | {"SYSTEMD_LOG_LEVEL": "warning"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout[-600:] + done.stderr
        assert unit not in done.stderr, done.stderr


def test_only_a_build_with_a_data_plane_starts_on_dpdk():
    """Given the DPDK unit. Expect the condition on _dpdk.so, no root, one card."""
    text = (DEPLOY / "replay-server-dpdk.service").read_text()
    assert re.search(r"^ConditionPathExistsGlob=\S+/_dpdk\.so$", text, re.M)
    assert re.search(r"^User=replay-server$", text, re.M)
    assert re.search(r"^LimitMEMLOCK=infinity$", text, re.M)
    assert re.search(r"^CapabilityBoundingSet=$", text, re.M)
    given = environment("replay-server-dpdk")
    assert given["REPLAY_URL"].endswith(f"?port={given['REPLAY_PORT']}")


def test_the_containers_recipe_takes_what_is_there():
    """Given its COPY lines and its command. Expect files of the checkout, and words serve knows."""
    text = (DEPLOY / "Containerfile").read_text()
    copied = [line.split() for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M)]
    assert copied and all(list(ROOT.glob(name)) for *names, _ in copied for name in names)
    build = {name.split("/")[0] for *names, _ in copied for name in names}
    needed = {name.split("/")[0] for name in in_sdist() if not name.endswith(".md")}
    assert needed - build == {"constraints.txt", "docs"}  # of which nothing is built
    words = re.findall(r'"([^"]*)"', re.search(r"^CMD (.*)$", text, re.M)[1])
    assert vars(parser().parse_args(words))["file"] in {words[-1] for words in copied}
    assert re.search(r"^USER replay-server$", text, re.M)
