"""A pytest plugin: servers of the conformance suite run in a guest, on an emulated card.

    NIC_CARD=e1000e NIC_IMAGE=build/nic pytest -p over_card tests/oracles/test_conformance.py

One guest lives as long as the session, one replay-serve in it as long as nobody kills it; each test
has it read a config of its own (SIGHUP), and stops it behind that (SIGSTOP: nobody answers). The
session runs in a network namespace without anything else (run.py): a TAP device is made there, and
whoever asks is the kernel. A guest that is gone ends the session at once.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import conformance
import pytest
from guest import ADDRESS, Guest, GuestError, GuestGone

from replay_server import ClosedError, Table
from replay_server._native import COUNTERS
from replay_server.server import ServerOptions
from replay_server.serving.compiled import compile_tables

CARD = os.environ["NIC_CARD"]
HOST, PORT, MINE = "10.77.0.1", 7400, "10.77.0.2"
TAP, PAGES = "nic0", 96
URL = f"dpdk://{HOST}:{PORT}?port={ADDRESS}"
OUT = "/tmp/out"
QUEUES = ("virtio-mq",)  # cards whose wire is QEMU's own, because the relay's has one queue


def raise_tap() -> None:
    """The TAP device gets this end's address; nobody but the test is to speak there."""
    ipv6 = Path(f"/proc/sys/net/ipv6/conf/{TAP}/disable_ipv6")
    if ipv6.exists():
        ipv6.write_text("1")
    for words in (f"addr add {MINE}/24 dev {TAP}", f"link set {TAP} up"):
        subprocess.run(["ip", *words.split()], check=True)


class Wire:
    """The relay's process: see relay.py."""

    def __init__(self, folder: Path) -> None:
        relay = str(Path(__file__).with_name("relay.py"))
        self.process = subprocess.Popen(
            [sys.executable, relay, str(folder), TAP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.say("counts")  # the interface is there once it answers
        raise_tap()

    def say(self, line: str) -> list[str]:
        """One line to the relay; the words of its answer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def faults(self, seed: int, loss: float = 0.0, reorder: float = 0.0, bent: float = 0.0) -> None:
        assert self.say(f"faults {seed} {loss} {reorder} {bent}") == ["done"]

    def counts(self) -> dict[str, int]:
        names = ("inward", "outward", "lost", "moved", "bent_inward", "bent_outward")
        return dict(zip(names, map(int, self.say("counts")), strict=True))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(30)


class Host:
    """The guest as a host with a card: bound by our script, served by replay-serve."""

    def __init__(self) -> None:
        self.place = tempfile.TemporaryDirectory(prefix="nic-")
        folder = Path(self.place.name)
        self.wire = None if CARD in QUEUES else Wire(folder)
        tap = TAP if CARD in QUEUES else ""
        self.guest = Guest(CARD, folder, Path(os.environ["NIC_IMAGE"]), tap)
        self.pid = 0

    def open(self) -> None:
        """Boots it, sets hugepages and binds the card."""
        self.guest.__enter__()
        if not self.wire:
            raise_tap()
        self.shell(f"sh /bin/nic.sh hugepages {PAGES}")
        self.shell(f"sh /bin/nic.sh bind {ADDRESS}")

    def close(self) -> None:
        self.guest.__exit__()
        if self.wire:
            self.wire.close()
        self.place.cleanup()

    def shell(self, command: str, **how: Any) -> str:
        """As Guest.shell; a guest that is gone ends everything."""
        try:
            return self.guest.shell(command, **how)
        except GuestGone as error:
            pytest.exit(str(error), 1)

    def until(self, pattern: str) -> str:
        """What replay-serve said, once a line has this or it has ended."""
        looks = f"until grep -q '{pattern}\\|^exit ' {OUT}; do usleep 20000; done"
        return self.shell(f"{looks}; cat {OUT}")

    def serve(self, config: bytes, *urls: str) -> str:
        """Has this served, in empty tables; what replay-serve said. Urls count at its start."""
        self.guest.put("/tmp/config", config)
        if self.pid:
            self.shell(f": > {OUT}; kill -HUP {self.pid}; kill -CONT {self.pid}")
        else:
            command = f"replay-serve --insecure /tmp/config {shlex.join(urls or (URL,))}"
            begins = f": > {OUT}; {{ {command}; echo exit $?; }} >> {OUT} 2>&1 &"
            begun = f"pidof replay-serve || grep ^exit {OUT}"
            self.shell(f"{begins}\nuntil {begun}; do usleep 20000; done")
            self.pid = int(self.shell("pidof replay-serve || echo 0"))
        said = self.until("serving at " if len(urls) < 2 else f"serving at .*:{PORT + 1}")
        if "exit " in said:
            self.pid = 0
            raise GuestError(f"replay-serve said: {said}")
        return said

    def kill(self, signal: str) -> str:
        """Sends it, waits for its end; what it said last."""
        self.shell(f": > {OUT}; kill -CONT {self.pid}; kill -{signal} {self.pid}")
        return self.ended()

    def ended(self) -> str:
        """What replay-serve said, once it has ended."""
        said = self.until("^exit ")
        self.pid = 0
        return said

    def counters(self) -> dict[str, int]:
        """What replay-serve has counted; 0 where it says nothing."""
        self.shell(f": > {OUT}; kill -USR1 {self.pid}")
        return dict.fromkeys(COUNTERS, 0) | numbers(self.until("^end "))


def numbers(said: str) -> dict[str, int]:
    """NAME NUMBER SENTENCE lines."""
    return {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)  \S", said, re.MULTILINE)}


class Served:
    """What tests use of a Server, of one in the guest."""

    def __init__(self, tables: Iterable[Table], url: str | None = None, **options: Any) -> None:
        self.closed = False
        self.address = f"udp://{HOST}:{PORT}"
        current().serve(compile_tables(tables, ServerOptions(**options)))

    def counters(self) -> dict[str, int]:
        if self.closed:
            raise ClosedError("this server is closed; open another one")
        return current().counters()

    @property
    def weights_version(self) -> int:
        return self.counters()["weights_version"]

    def close(self) -> None:
        """From now on nobody answers."""
        if not self.closed and current().pid:
            current().shell(f"kill -STOP {current().pid}")
        self.closed = True

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


_hosts: list[Host] = []


def current() -> Host:
    """This session's host."""
    return _hosts[0]


@pytest.fixture
def host() -> Host:
    return current()


def pytest_sessionstart() -> None:
    _hosts.append(Host())
    try:
        current().open()
    except GuestError as error:
        current().close()
        pytest.exit(str(error), 1)


def pytest_sessionfinish() -> None:
    while _hosts:
        _hosts.pop().close()


conformance.TRANSPORTS = {f"dpdk-{CARD}": URL}
conformance.OUTLIVES_ITS_SERVER = tuple(conformance.TRANSPORTS)
conformance.SERVERS = {f"dpdk-{CARD}": Served}
