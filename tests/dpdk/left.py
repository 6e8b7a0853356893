"""What a server over AF_XDP leaves: on its interface if it is killed, in its process at its end, or
where it does not start.

Run by `make test-dpdk`, as root.
"""

from __future__ import annotations

import os
import re
import resource
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conformance import plain
from interfaces import PROCESS, used
from losses import attach, bpf
from namespaces import inside, leaked_mbufs, the_pair
from until import until
from veth import KINDS, WAIT_S, ip

from replay_server import ReplayError, Server
from replay_server.observe.xdp import LEFT, with_xdp

MAP_CREATE, PROG_GET_FD_BY_ID, ARRAY = 0, 13, 2
MOST_FILES = 24  # that a server's start needs
FILES = 256  # that this process may have open where they are few
URL = "dpdk://198.18.5.9:7400?vdev=net_af_xdp,iface=xa"


def test_a_server_that_was_killed_starts_again_without_a_word():
    """Given a server over AF_XDP that is killed, which leaves the interface as its driver set it.
    Expect doctor to say so, as often as it looks, and the next one to serve, without take=on."""
    command = the_pair().server.inside([sys.executable, "-c", PROCESS, "server", URL])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with used("nothing"):
        with subprocess.Popen(command, **pipes) as server:
            assert server.stdout.readline() == "opened\n"
            server.kill()
        with inside(the_pair().server):
            until(lambda: dict(with_xdp())["xa"] == LEFT, "its queue is let go of")
            assert {dict(with_xdp())["xa"] for _ in range(10)} == {LEFT}  # a look takes nothing
        Server((plain(),), f"{URL}&probe=off", insecure=True).close()


def files() -> Counter[str]:
    """This process's open files, by what they are."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            found[Path(f"/proc/self/fd/{number}").readlink().name.split(":[")[0]] += 1
        except OSError:  # the folder's own
            continue
    return found


def test_a_device_leaves_no_file_in_its_process():
    """Given servers over AF_XDP one after another, in one process.
    Expect as many files of each kind behind each of them, programs and maps too."""
    with used("nothing"):
        Server((plain(),), f"{URL}&probe=off", insecure=True).close()  # what DPDK itself keeps
        before = files()
        for _ in range(3):
            Server((plain(),), f"{URL}&probe=off", insecure=True).close()
            assert files() == before


def number_of(file: int) -> str:
    """The kernel's, of a program or a map of BPF; "": it is closed, or another file."""
    try:
        about = Path(f"/proc/self/fdinfo/{file}").read_text()
    except OSError:
        return ""
    found = re.search(r"(prog|map)_id:\t(\d+)", about)
    return found.group() if found else ""


def test_maps_that_other_threads_make_meanwhile_stay_open():
    """Given maps of BPF that this process had, and a thread that makes some all the while a server
    starts. Expect each of them open when the server is gone."""
    made: dict[int, str] = {}
    over = threading.Event()

    def keep_making() -> None:
        while not over.wait(0.002):
            file = bpf(MAP_CREATE, struct.pack("=IIII", ARRAY, 4, 8, 4))
            made[file] = number_of(file)

    other = threading.Thread(target=keep_making)
    try:
        with used("nothing"):
            other.start()
            until(lambda: len(made) > 3, "some are there before")
            before = len(made)
            server = Server((plain(),), f"{URL}&probe=off", insecure=True)
            over.set()
            other.join(WAIT_S)
            server.close()
        assert len(made) > before and all(made.values())
        assert {file: number_of(file) for file in made} == made
    finally:
        over.set()
        other.join(WAIT_S)
        for file in made:
            if number_of(file) == made[file]:
                os.close(file)


def test_a_file_of_the_program_that_this_process_had_stays_open():
    """Given the program that a killed server left, and a file of it in this process. Expect a
    server to take the program over, and that file to be open when it is gone."""
    command = the_pair().server.inside([sys.executable, "-c", PROCESS, "server", URL])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with used("nothing"):
        with subprocess.Popen(command, **pipes) as killed:
            assert killed.stdout.readline() == "opened\n"
            killed.kill()
        shown = re.search(r"prog/xdp id (\d+)", ip("-d", "link", "show", "xa"))
        file = bpf(PROG_GET_FD_BY_ID, struct.pack("=I", int(shown[1])))
        try:
            before = number_of(file)
            Server((plain(),), f"{URL}&probe=off", insecure=True).close()
            assert before == number_of(file) == f"prog_id:\t{shown[1]}"
        finally:
            os.close(file)


def test_a_file_of_the_program_that_this_process_opens_meanwhile_stays_open():
    """Given a server over AF_XDP, and files of its program that this process opens while it serves.
    Expect them open when the server is gone, and nothing else of it."""
    with used("nothing"):
        Server((plain(),), f"{URL}&probe=off", insecure=True).close()
        before = files()
        server = Server((plain(),), f"{URL}&probe=off", insecure=True)
        shown = re.search(r"prog/xdp id (\d+)", ip("-d", "link", "show", "xa"))
        program = struct.pack("=I", int(shown[1]))
        own = [bpf(PROG_GET_FD_BY_ID, program) for _ in range(3)]
        server.close()
        left = [number_of(file) for file in own]
        for file, number in zip(own, left, strict=True):
            if number:
                os.close(file)
        assert left == [f"prog_id:\t{shown[1]}"] * 3 and files() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_that_runs_out_of_files_anywhere_leaves_nothing(kind):
    """Given a process that may open 1, 2, 3, ... files more, of which each number ends a server's
    start elsewhere. Expect a refusal or a server, no file left, and a server after all of them."""
    url = URL.replace("net_af_xdp", f"net_{kind}") + "&probe=off"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    served, held = [], []
    with used("nothing"):
        Server((plain(),), url, insecure=True).close()  # what is opened once
        mbufs = leaked_mbufs()
        top = max(map(int, os.listdir("/proc/self/fd")))
        try:
            while not held or held[-1] < top:
                held.append(os.open("/dev/null", os.O_RDONLY))
            before = files()
            for more in range(1, MOST_FILES + 1):
                resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + more, hard))
                try:
                    Server((plain(),), url, insecure=True).close()
                    served.append(more)
                except ReplayError:
                    pass
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                assert files() == before, f"{more} files"
            assert 1 not in served and MOST_FILES in served
        finally:
            for file in held:
                os.close(file)
        Server((plain(),), url, insecure=True).close()
        assert leaked_mbufs() == mbufs


@contextmanager
def files_left(count: int) -> Iterator[None]:
    """This process may open so many files more, and no other one below them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def replace_program() -> str:
    """A firewall in the place of the server's program; what is there then."""
    ip("link", "set", "xa", "xdp", "off")
    attach(the_pair().server, "xa", "firewall")
    return ip("-d", "link", "show", "xa")


@pytest.mark.parametrize("count", range(4))
def test_a_server_that_ends_without_files_leaves_what_replaced_its_program(count):
    """Given a server over AF_XDP whose program somebody replaced by a firewall, and that ends while
    its process may open 0, 1, 2, 3 files more. Expect the firewall to stay, no mbuf and no file to
    be missing, and the next server to open once the firewall is gone."""
    with used("nothing"):
        Server((plain(),), f"{URL}&probe=off", insecure=True).close()
        before, mbufs = files(), leaked_mbufs()
        server = Server((plain(),), f"{URL}&probe=off", insecure=True)
        assert "firewall" in replace_program()
        with files_left(count):
            server.close()
        assert "firewall" in ip("-d", "link", "show", "xa")
        assert files() == before and leaked_mbufs() == mbufs
        ip("link", "set", "xa", "xdp", "off")
        Server((plain(),), f"{URL}&probe=off", insecure=True).close()
