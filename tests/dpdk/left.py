"""What a server over AF_XDP leaves: on its interface if it is killed, in its process at its end.

Run by `make test-dpdk`, as root.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from conformance import plain
from interfaces import PROCESS, used
from namespaces import inside, the_pair
from veth import until

from replay_server import Server
from replay_server.observe.xdp import LEFT, with_xdp

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
