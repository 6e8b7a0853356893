"""What `make test` says at its end: which proofs ran, and on which transports.

One thread of torch in every test: the nets are small, and threads that wait for each other on a
busy machine make a test of two seconds one of a minute.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from typing import Any

import torch

torch.set_num_threads(1)
# A shell starts background jobs with SIGINT ignored, and every program under test would inherit it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROOFS = {
    "test_tabular": "tabular: values learned through the server",
    "test_edges": "edges: every stack and every autoreset mode",
    "test_lockstep": "lock-step: the server against plain lists, bit for bit",
    "test_sampling": "sampling statistics",
    "test_programs": "the three programs, killed and restarted",
    "test_protocol": "PROTOCOL.md: layouts, golden bytes, a client in plain Python",
    "test_tidy": "house rules",
}


def proof_of(nodeid: str) -> str:
    """Which line of the summary a test counts for."""
    file = nodeid.split("::", 1)[0].rsplit("/", 1)[-1].removesuffix(".py")
    if file.startswith("test_conformance"):
        transport = re.search(r"\[(loopback|udp|zmq|dpdk-[a-z0-9_]+)", nodeid)
        return f"conformance on {transport.group(1)}" if transport else "conformance"
    if nodeid.startswith("tests/adapters/"):
        return "the buffers of other libraries"
    for prefix, name in PROOFS.items():
        if file.startswith(prefix):
            return name
    return "units of the Python face, the actor and the learner"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each proof: how many tests passed, failed, were skipped; then why skipped."""
    if hasattr(terminalreporter.config, "workerinput"):
        return  # one of several that share the tests: who gathers them tells
    counts: dict[str, Counter] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            counts.setdefault(proof_of(report.nodeid), Counter())[outcome] += 1
    terminalreporter.section("what was shown")
    for name in sorted(counts):
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts[name].items())
        terminalreporter.write_line(f"{name}: {said}")
        if name.startswith("conformance on") and "SHOWN" in os.environ:
            with open(os.environ["SHOWN"], "a") as shown:  # `make test` runs the suite in turns
                shown.write(f"{name}: {said}\n")
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"{report.nodeid}: {reason}")
