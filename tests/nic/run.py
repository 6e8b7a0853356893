"""`make test-nic`: guests with emulated cards, two at a time, each in its own network namespace.

    python tests/nic/run.py IMAGE [CARD ...]

A namespace is the process's own (unshare): it has no name, touches nothing outside, and goes with
the last process in it. Without root a user namespace gives the same; where neither is allowed one
line says what is left out, and where CI is set that is a failure.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORACLES = ("tests/oracles/test_conformance.py", "tests/oracles/test_conformance_life.py")
SUITE = (*ORACLES, "tests/nic/cards.py")
CARDS = {"e1000e": SUITE, "virtio": SUITE, "vmxnet3": SUITE[-1:]}
CARDS["virtio-mq"] = ("tests/nic/queues.py",)
AT_ONCE, SECONDS = 2, 400
LEAVE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
# More than ten frames may wait in a unix socket, where that can be said.
PREPARE = "ip link set lo up; sysctl -qw net.unix.max_dgram_qlen=512 2> /dev/null;"


def left_out() -> str | None:
    """Why no guest can run here; None where they can."""
    tried = "ip tuntap add dev nic0 mode tap"
    done = subprocess.run([*LEAVE, "sh", "-c", tried], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    said = (done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1]
    return f"a network namespace with a TAP device is not to be had ({said}): run it as root"


def run(card: str, image: Path) -> tuple[bool, str]:
    """One guest's session; whether it passed, and what it printed."""
    environment = os.environ | {
        "NIC_CARD": card,
        "NIC_IMAGE": str(image),
        "PYTHONPATH": os.pathsep.join((".", "tests/support", "tests/nic")),
    }
    words = [sys.executable, "-m", "pytest", "-q", "-p", "over_card", "-p", "no:cacheprovider"]
    command = f"{PREPARE} exec timeout -k 5 {SECONDS} {shlex.join([*words, *CARDS[card]])}"
    begin = time.monotonic()
    done = subprocess.run(
        [*LEAVE, "sh", "-c", command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    head = f"== {card}, {time.monotonic() - begin:.0f} s"
    return done.returncode == 0, f"{head}\n{done.stdout}"


def run_answering(card: str, image: Path) -> tuple[bool, str]:
    """As run, and once more where the guest stopped answering: an emulated one's clock may stop
    (guest.py). A test that failed is not tried again."""
    passed, said = run(card, image)
    if passed or "its console said last" not in said or " failed" in said:
        return passed, said
    passed, again = run(card, image)
    return passed, f"{said}\n{card}: the guest stopped answering, a second one was started\n{again}"


def main() -> int:
    """Runs the cards named, or all; 1 where one failed."""
    image, cards = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(CARDS)
    if why := left_out():
        print(f"left out, real PCI drivers in a guest: {why}")
        return int(bool(os.environ.get("CI")))
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for card, (passed, said) in zip(
            cards, pool.map(lambda c: run_answering(c, image), cards), strict=True
        ):
            print(said, flush=True)
            failed += [] if passed else [card]
    said = f"FAILED: {', '.join(failed)}" if failed else "all passed"
    print(f"test-nic: {', '.join(cards)}: {said}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
