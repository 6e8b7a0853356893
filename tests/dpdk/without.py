"""The built program on a host from which DPDK's package was removed: what doctor and serve say.

The libraries are hidden, not removed: a process in a mount namespace of its own sees their folder
without them (an overlay with whiteouts). Run by `make test-dpdk`, where the object is built.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from replay_server import Client

ROOT = Path(__file__).resolve().parents[2]
REPLAY = [sys.executable, "-m", "replay_server"]
HIDDEN = ("librte_", "dpdk")


@pytest.fixture(scope="module")
def without(tmp_path_factory) -> list[str]:
    """The beginning of a command that runs the rest where DPDK's libraries are not."""
    folders = sorted({path.parent for path in Path("/usr/lib").glob("*/librte_eal.so.*")})
    assert folders, "make test-dpdk installs DPDK"
    mounts = []
    for number, folder in enumerate(folders):
        whiteouts = tmp_path_factory.mktemp(f"whiteouts{number}")
        for path in folder.iterdir():
            if path.name.startswith(HIDDEN):
                os.mknod(whiteouts / path.name, stat.S_IFCHR, os.makedev(0, 0))
        mounts.append(f"mount -t overlay overlay -o lowerdir={whiteouts}:{folder} {folder}")
    command = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-ec"]
    command += ["\n".join([*mounts, 'exec "$@"']), "sh"]
    seen = subprocess.run([*command, "ls", *folders], capture_output=True, text=True)
    if seen.returncode:
        reason = f"a mount namespace cannot be had here: {seen.stderr.strip()}"
        assert not os.environ.get("CI"), reason
        pytest.skip(f"left out: {reason}")
    assert not [name for name in seen.stdout.split() if name.startswith(HIDDEN)]
    return command


def ran(command: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the package, to its end."""
    return subprocess.run(
        [*command, *REPLAY, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_doctor_says_what_is_missing_and_ends_in_udp(without):
    """Given the object, and none of the libraries it needs. Expect each named, what brings them,
    udp:// last; with them, none of that."""
    told = ran(without, "doctor").stdout.splitlines()
    assert told[-1] == "best URL for serve on this host: udp://127.0.0.1:7400"
    (lacks,) = [line for line in told if "_dpdk.so cannot be loaded" in line]
    assert "librte_eal.so" in lacks and "librte_ethdev.so" in lacks
    assert "apt-get install libdpdk-dev" in lacks
    assert any("DPDK's drivers are not installed" in line for line in told)
    advice = [line for line in told if line.startswith("advice: ")]
    assert not any("Traceback" in line for line in told)
    assert not any(f"dpdk://{host}" in line for line in advice for host in ("10.", "ADDRESS"))
    assert not any("cannot be loaded" in line for line in ran([], "doctor").stdout.splitlines())


def test_serve_dpdk_is_one_sentence_with_the_next_step(without):
    """Given a dpdk:// URL there. Expect exit code 2, the library by name, the command, udp://."""
    url = "dpdk://10.0.0.1:7400?vdev=net_ring"
    done = ran(without, "serve", "--env", "CartPole-v1", "--url", url)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    for words in ("librte_", "apt-get install libdpdk-dev", "udp://"):
        assert words in done.stderr, done.stderr


def test_serve_udp_still_runs(without):
    """Given serve udp:// there. Expect a server that answers, and a clean end."""
    command = [*without, *REPLAY, "serve", "--env", "CartPole-v1", "--url", "udp://127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stdout.readline, "")
        address = next(line.split()[2] for line in lines if line.startswith("serving at "))
        with Client(address) as client:
            assert client.stats().sessions == 1
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
