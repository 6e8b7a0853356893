"""Does `make bench-track` find what it is for? A turn of the server that takes 10 % longer has to
end it with exit code 1; the same tree, five times, with 0.

    make bench-track-alarm [PAIRS=12]

The slow-down is planted into a copy of the tree: a turn goes on for a tenth of the time that it
took. Both sides are the tree as it lies here, so the only difference is the plant. What is compared
are rows of the server's turn; the threshold is bench-track's own, +3 %.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks.track import run

ROWS = "push_run push_single sample_32 sample_512 update ping"
TURN = "    uint32_t count = take_turn(&turn, now_ns);\n"
SLOW = """    unsigned long long begin = __builtin_ia32_rdtsc();
    uint32_t count = take_turn(&turn, now_ns);
    unsigned long long took = __builtin_ia32_rdtsc() - begin;
    while (__builtin_ia32_rdtsc() - begin < took + took / 10) {
    }
"""
UNCHANGED = 5


def copy(tree: Path, slow: bool) -> Path:
    """The core and its programs below `tree`; slow: with the plant."""
    shutil.rmtree(tree, ignore_errors=True)
    for part in ("native", "tests/native"):
        shutil.copytree(run.ROOT / part, tree / part)
    if slow:
        turn = tree / "native/server/server.c"
        text = turn.read_text()
        if text.count(TURN) != 1:
            raise SystemExit(f"{turn}: the plant does not fit any more: look for take_turn")
        turn.write_text(text.replace(TURN, SLOW))
    return tree


def main(argv: list[str] | None = None) -> int:
    """Six runs; 0 where the plant was found, and nothing else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.track.alarm", description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--build", type=Path, default=run.ROOT / "build/track")
    args = parser.parse_args(argv)
    folder = args.build.resolve()
    base, codes = copy(folder / "alarm-base", False), []
    for number in range(UNCHANGED + 1):
        slow = number == 0
        tree = copy(folder / "alarm", slow)
        print(
            f"run {number + 1}: {'a turn takes 10 % longer' if slow else 'unchanged'}", flush=True
        )
        words = ["--pairs", str(args.pairs), "--rows", ROWS, "--build", str(folder)]
        words += ["--beside", str(base), "--tree", str(tree), "--json", str(folder / "alarm.jsonl")]
        codes.append(run.main(words))
    print(f"exit codes: {codes[0]} of the planted tree, {codes[1:]} of the unchanged ones")
    return 0 if codes == [1] + [0] * UNCHANGED else 1


if __name__ == "__main__":
    sys.exit(main())
