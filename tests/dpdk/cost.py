"""What the server spends on a datagram and an item, and how much of 40 GbE one core should serve.

Counts instructions: callgrind, from the server's receive burst to its last send, over net_ring, in
one process with its client (tests/dpdk/bench_dpdk.c); two runs of different length, so that what
comes before the requests falls out. callgrind's processor has no AVX-512: the tree is drawn by the
portable code there. Beside it the time the same turns take without callgrind: a core's own figure,
into which a second core's caches do not enter.

On paper: a core that runs PAPER_HZ * PAPER_IPC instructions a second. Line rate counts what
Ethernet adds to a frame (24 bytes: preamble, checksum, gap).

    make bench-dpdk
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


@dataclass(frozen=True)
class Passed:
    """What a run's requests were made of."""

    ns: int
    datagrams_in: int
    datagrams_out: int
    bytes_in: int
    bytes_out: int
    items: int


def run(program: Path, workload: str, requests: int, mtu: int, *before: str) -> tuple[Passed, str]:
    """One run, and all it printed."""
    command = [*before, str(program), "cost", workload, str(requests), str(mtu)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    told = re.search(r"^cost\t(.*)$", done.stdout, re.MULTILINE)
    if told is None:
        raise SystemExit(f"{' '.join(command)}: told nothing\n{done.stderr}")
    return Passed(*map(int, told.group(1).split("\t"))), done.stderr


def instructions(program: Path, workload: str, requests: int, mtu: int) -> int:
    """Of the server's turns, what comes before the requests included."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ("valgrind", "--tool=callgrind", "--toggle-collect=rp_server_turn")
        out = f"--callgrind-out-file={folder}/out"
        _, said = run(program, workload, requests, mtu, *valgrind, out)
    return int(re.search(r"Collected : (\d+)", said).group(1))


def main(program: Path) -> None:
    """Prints the table."""
    print(
        f"{'workload':22} {'frame':>6} {'instr/datagram':>15} {'instr/item':>11}"
        f" {'ns/datagram':>12} {'paper 40GbE':>11} {'timed 40GbE':>12}"
    )
    for workload, mtu in WORKLOADS:
        spent = instructions(program, workload, LONG, mtu)
        spent -= instructions(program, workload, SHORT, mtu)
        passed, _ = run(program, workload, LONG - SHORT, mtu)
        timed, _ = run(program, workload, 4 * LONG, mtu)
        # the fuller direction is the one a line is filled in
        outward = passed.bytes_out > passed.bytes_in
        datagrams = passed.datagrams_out if outward else passed.datagrams_in
        size = (passed.bytes_out if outward else passed.bytes_in) / datagrams + HEADERS
        bits = (size + ON_WIRE) * 8
        each = spent / datagrams
        ns = timed.ns / (timed.datagrams_out if outward else timed.datagrams_in)
        paper = PAPER_HZ * PAPER_IPC / each * bits / LINE_BITS
        per_item = f"{spent / passed.items:11.0f}" if passed.items else f"{'-':>11}"
        print(
            f"{workload:22} {size:6.0f} {each:15.0f} {per_item} {ns:12.0f}"
            f" {paper:11.0%} {1e9 / ns * bits / LINE_BITS:12.0%}",
            flush=True,
        )
    print(
        f"paper: {PAPER_HZ / 1e9:g} GHz, {PAPER_IPC:g} instructions a cycle. No datagram of this "
        f"protocol fits a frame of 64 bytes: the smallest is the ping's."
    )


if __name__ == "__main__":
    os.environ.setdefault("REPLAY_DPDK", str(Path("replay_server/_dpdk.so").resolve()))
    main(Path(sys.argv[1]))
