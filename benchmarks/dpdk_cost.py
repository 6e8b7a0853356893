"""What the server spends on a datagram and an item, and how much of 40 GbE one core should serve.

Counts instructions: callgrind, from the server's receive burst to its last send, over net_ring, in
one process with its client (tests/dpdk/bench_dpdk.c); two runs of different length, so that what
comes before the requests falls out. callgrind's processor has no AVX-512: the tree is drawn by the
portable code there. Beside it the time the same turns take without callgrind: a core's own figure,
into which a second core's caches do not enter.

On paper: a core that runs PAPER_HZ * PAPER_IPC instructions a second. Line rate counts what
Ethernet adds to a frame (24 bytes: preamble, checksum, gap).

    make bench-dpdk

Builds are compared device by device, in turns, by the medians of several rounds, with the
processor's own counter of instructions: those of turns that brought something, the kernel's left
out. A build is a bench_dpdk, with the object that it loads behind a colon. net_af_packet needs
root: a cable between two interfaces is made in a network namespace that goes with the program.

    python benchmarks/dpdk_cost.py BEFORE:OBJECT build/bench_dpdk --devices net_memif,net_af_packet
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

PAPER_HZ, PAPER_IPC = 3.0e9, 2.0
LINE_BITS = 40e9
HEADERS, ON_WIRE = 42, 24  # Ethernet, IPv4 and UDP in front of a datagram; beside a frame
SHORT, LONG = 40, 240  # requests, multiples of 8
WORKLOADS = (  # name, mtu: the nearest to frames of 64, 1500 and 9000 bytes
    ("ping", 1400),
    ("push 1 small step", 1400),
    ("push 64 small steps", 1456),
    ("sample 32 small items", 1456),
    ("push 8 frames", 1456),
    ("sample 32 frames", 1456),
    ("push 8 frames", 8952),
    ("sample 32 frames", 8952),
)


DEVICES = {  # the server's words behind ?, its client's, and what makes the device
    "net_ring": ("vdev=net_ring", "vdev=net_ring", ""),
    "net_memif": (
        "vdev=net_memif,role=server,socket={folder}/memif",
        "vdev=net_memif,role=client,socket={folder}/memif",
        "",
    ),
    "net_af_packet": (
        "vdev=net_af_packet,iface=rp-near",
        "vdev=net_af_packet,iface=rp-far,ip=10.0.0.2",
        "ip link add rp-near type veth peer name rp-far;"
        "for end in near far; do sysctl -qw net.ipv6.conf.rp-$end.disable_ipv6=1;"
        " ip link set rp-$end mtu 9000 up; done;",
    ),
}
COMPARED = (  # those whose cost is the datagrams', not the rows'
    ("ping", 1400),
    ("push 8 frames", 1456),
    ("sample 32 frames", 1456),
    ("push 8 frames", 8952),
    ("sample 32 frames", 8952),
)
REQUESTS = 960  # of a compared run


@dataclass(frozen=True)
class Load:
    """What is asked of a server, and over what."""

    workload: str
    mtu: int
    device: str = "net_ring"


@dataclass(frozen=True)
class Passed:
    """What a run's requests were made of."""

    ns: int
    datagrams_in: int
    datagrams_out: int
    bytes_in: int
    bytes_out: int
    items: int
    instructions: int  # by the processor's counter; 0: it has none here

    @property
    def outward(self) -> bool:
        """The fuller direction is the one a line is filled in."""
        return self.bytes_out > self.bytes_in

    @property
    def datagrams(self) -> int:
        """Those of the fuller direction."""
        return self.datagrams_out if self.outward else self.datagrams_in


def run(build: str, load: Load, requests: int, *before: str) -> tuple[Passed, str]:
    """One run, and all it printed."""
    program, _, dpdk_object = build.partition(":")
    server, client, make = DEVICES[load.device]
    with tempfile.TemporaryDirectory() as folder:
        urls = [
            f"dpdk://10.0.0.1:7400?{words.format(folder=folder)}&mtu={load.mtu}"
            for words in (server, client)
        ]
        command = [*before, program, "cost", load.workload, str(requests), *urls]
        if make:
            command = ["unshare", "--net", "sh", "-ec", f'{make} exec "$@"', "sh", *command]
        environment = dict(os.environ)
        if dpdk_object:
            environment["REPLAY_DPDK"] = dpdk_object
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=environment, check=False
        )
    told = re.search(r"^cost\t(.*)$", done.stdout, re.MULTILINE)
    if done.returncode or told is None:
        raise SystemExit(f"{' '.join(command)}: rc {done.returncode}\n{done.stderr}")
    return Passed(*map(int, told.group(1).split("\t"))), done.stderr


def collect(build: str, load: Load, requests: int) -> tuple[int, Passed]:
    """Instructions of the server's turns, what comes before the requests included."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ("valgrind", "--tool=callgrind", "--toggle-collect=rp_server_turn")
        out = f"--callgrind-out-file={folder}/out"
        passed, said = run(build, load, requests, *valgrind, out)
    return int(re.search(r"Collected : (\d+)", said).group(1)), passed


def instructions(build: str, load: Load) -> tuple[float, Passed]:
    """Of the server's turns, for LONG - SHORT requests; what passed then."""
    more, _ = collect(build, load, LONG)
    less, _ = collect(build, load, SHORT)
    passed, _ = run(build, load, LONG - SHORT)
    return more - less, passed


def compare(builds: list[str], devices: list[str], rounds: int) -> None:
    """Prints a line for each device and workload: the medians of each build, in turns."""
    print(f"{'device':14} {'workload':18} {'mtu':>5}  instr/datagram, ns/datagram of each build")
    for device in devices:
        for workload, mtu in COMPARED:
            ran: dict[str, list[Passed]] = {build: [] for build in builds}
            for _ in range(rounds):
                for build in builds:
                    passed, _ = run(build, Load(workload, mtu, device), REQUESTS)
                    ran[build].append(passed)
            told = (
                f"{statistics.median(one.instructions / one.datagrams for one in some):8.0f}"
                f" {statistics.median(one.ns / one.datagrams for one in some):7.0f}"
                for some in ran.values()
            )
            print(f"{device:14} {workload:18} {mtu:5} {'  |'.join(told)}", flush=True)


def tell(build: str) -> None:
    """Prints the table of one build, over net_ring."""
    print(
        f"{'workload':22} {'frame':>6} {'instr/datagram':>15} {'instr/item':>11}"
        f" {'ns/datagram':>12} {'paper 40GbE':>11} {'timed 40GbE':>12}"
    )
    for workload, mtu in WORKLOADS:
        load = Load(workload, mtu)
        spent, passed = instructions(build, load)
        timed, _ = run(build, load, 4 * LONG)
        size = (passed.bytes_out if passed.outward else passed.bytes_in) / passed.datagrams
        bits = (size + HEADERS + ON_WIRE) * 8
        each = spent / passed.datagrams
        ns = timed.ns / timed.datagrams
        paper = PAPER_HZ * PAPER_IPC / each * bits / LINE_BITS
        per_item = f"{spent / passed.items:11.0f}" if passed.items else f"{'-':>11}"
        print(
            f"{workload:22} {size + HEADERS:6.0f} {each:15.0f} {per_item} {ns:12.0f}"
            f" {paper:11.0%} {1e9 / ns * bits / LINE_BITS:12.0%}",
            flush=True,
        )
    print(
        f"paper: {PAPER_HZ / 1e9:g} GHz, {PAPER_IPC:g} instructions a cycle. No datagram of this "
        f"protocol fits a frame of 64 bytes: the smallest is the ping's."
    )


def main() -> None:
    """Tells of one build, or compares several."""
    parser = argparse.ArgumentParser(description="what the server spends on a datagram")
    parser.add_argument("builds", nargs="+", help="PROGRAM[:OBJECT]; two or more: compared")
    parser.add_argument("--devices", default="net_memif,net_af_packet", help="where compared")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ.setdefault("REPLAY_DPDK", str(Path("replay_server/_dpdk.so").resolve()))
    if len(args.builds) == 1:
        tell(args.builds[0])
    else:
        compare(args.builds, args.devices.split(","), args.rounds)


if __name__ == "__main__":
    main()
