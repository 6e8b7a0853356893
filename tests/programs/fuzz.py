"""Fuzzes validator, server, client, the frame parser and what memif peers say and write; then shows
that the net is tight.

    python3 tests/programs/fuzz.py [--seconds 300] [--build build/fuzz] [--keep]
                                     [--only TARGET] [--runs N]

The time is split over the targets (tests/native/fuzz_*.c, libFuzzer with the address and
undefined-behaviour sanitizers). Then the inputs found are replayed in a build that counts lines:
wire, flow and server have to reach 90 %, and so do frame.c and memif.c. Last, overflows planted
behind a valid session, in an answer to a ping and behind a ring's slot (fuzz_*.patch in
tests/canaries) have to be found, from the same corpus, in a copy of the tree. With --only TARGET
all this is done of that target alone, with --runs too: so many executions, however long they take.
With --keep the corpus in tests/corpus is replaced by what now covers the same with fewer inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tracked import ROOT, copy_tracked

SHARES = {"packet": 0.04, "server": 0.5, "client": 0.3, "frame": 0.12, "memif": 0.04}  # of the time
PLANTS = {
    "server": "fuzz_overflow.patch",
    "frame": "fuzz_frame_overflow.patch",
    "memif": "fuzz_memif_overflow.patch",
}
PURE = {"frame": "frame.c", "memif": "memif.c"}  # below native/dpdk, by target
PLANT_SECONDS = 120
SERVER_FILES = (
    r"native/(protocol/(wire\.h|flow\.c)"
    r"|server/(server|serve|session|cookie|hosts|credit|wait)\w*\.c)$"
)
COVERED = {  # what the targets together have to reach, and where
    "wire, flow and server": (("packet", "server", "client"), re.compile(SERVER_FILES)),
    "the frame parser": (("frame",), re.compile(r"native/dpdk/frame\.c$")),
    "memif's messages and rings": (("memif",), re.compile(r"native/dpdk/memif\.[ch]$")),
}
COVERAGE_MIN = 90.0
FUZZER = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
COUNTING = ["-fprofile-instr-generate", "-fcoverage-mapping"]
INPUT_MAX = 4096


def build(root: Path, target: str, flags: list[str], output: Path, main: bool) -> None:
    """Compiles the core, one target and, with `main`, the replaying main into `output`."""
    rooms = ("base", "protocol", "table", "server", "client")
    core = sorted(path for room in rooms for path in (root / "native" / room).glob("*.c"))
    core += [root / "native/drive" / name for name in ("finite.c", "place.c")]
    if target in PURE:  # of the core it needs what fuzz_port.c does
        core = [p for p in core if p.name.startswith(("flow", "crc32c"))]
        core.append(root / "native/dpdk" / PURE[target])
    harness = ["fuzz_port.c", f"fuzz_{target}.c"] + (["fuzz_replay.c"] if main else [])
    sources = core + [root / "tests/native" / name for name in harness]
    output.parent.mkdir(parents=True, exist_ok=True)
    base = ["clang", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", f"-I{root / 'native'}"]
    subprocess.run(
        [*base, *flags, *map(str, sources), "-o", str(output), "-lpthread", "-lm"], check=True
    )


def fuzz(
    binary: Path, corpora: list[Path], seconds: int, logs: Path, runs: int = -1
) -> tuple[int, int, str]:
    """Runs a fuzzer; returns (executions, exit code, the log's tail)."""
    options = [f"-runs={runs}"] if runs > 0 else [f"-max_total_time={seconds}"]
    options += ["-print_final_stats=1", "-use_value_profile=1"]
    options += [f"-max_len={INPUT_MAX}", f"-artifact_prefix={logs}/", "-timeout=20"]
    done = subprocess.run(
        [str(binary), *options, *map(str, corpora)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stdout)
    return int(executed.group(1)) if executed else 0, done.returncode, done.stdout[-6000:]


def coverage(
    corpora: dict[str, Path], wanted: re.Pattern[str], build_directory: Path
) -> list[tuple[str, int, int]]:
    """Lines (file, covered, all) of the wanted files that replaying the inputs reaches."""
    profiles, binaries = [], []
    for target, corpus in corpora.items():
        binary = build_directory / f"cover_{target}"
        build(ROOT, target, COUNTING, binary, main=True)
        profile = build_directory / f"{target}.profraw"
        environment = os.environ | {"LLVM_PROFILE_FILE": str(profile)}
        kept = ROOT / "tests/corpus" / target
        subprocess.run([str(binary), str(corpus), str(kept)], check=True, env=environment)
        profiles.append(profile)
        binaries.append(binary)
    merged = build_directory / "all.profdata"
    subprocess.run(
        ["llvm-profdata", "merge", "-sparse", *map(str, profiles), "-o", str(merged)], check=True
    )
    objects = [str(binaries[0])] + [f"-object={binary}" for binary in binaries[1:]]
    exported = subprocess.run(
        ["llvm-cov", "export", "-summary-only", f"-instr-profile={merged}", *objects],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = []
    for entry in json.loads(exported.stdout)["data"][0]["files"]:
        if wanted.search(entry["filename"]):
            lines = entry["summary"]["lines"]
            rows.append((Path(entry["filename"]).name, lines["covered"], lines["count"]))
    return sorted(rows)


def plant_found(target: str, corpus: Path, seconds: int) -> bool:
    """Plants the target's overflow in a copy and fuzzes it there; true where it was found."""
    patch = ROOT / "tests/canaries" / PLANTS[target]
    with tempfile.TemporaryDirectory(prefix="fuzz-plant-") as scratch:
        root = Path(scratch) / "tree"
        root.mkdir()
        copy_tracked(root)
        subprocess.run(["git", "apply", "-p1", str(patch)], cwd=root, check=True)
        binary = Path(scratch) / f"fuzz_{target}"
        build(root, target, FUZZER, binary, main=False)
        copied = Path(scratch) / "corpus"
        shutil.copytree(corpus, copied)
        executed, code, log = fuzz(binary, [copied], seconds, Path(scratch))
        found = code != 0 and "AddressSanitizer" in log
        kind = re.search(r"ERROR: AddressSanitizer: (\S+)", log)
        print(
            f"planted overflow in {target}: {'found' if found else 'NOT FOUND'} after {executed} "
            f"executions ({kind.group(1) if kind else 'no report'})"
        )
        return found


def keep(target: str, binary: Path, corpus: Path) -> None:
    """Replaces the kept corpus by a smaller one that covers the same."""
    kept = ROOT / "tests/corpus" / target
    with tempfile.TemporaryDirectory() as scratch:
        fewer = Path(scratch) / "fewer"
        fewer.mkdir()
        command = [str(binary), "-merge=1", "-use_counters=0", str(fewer), str(corpus), str(kept)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(fewer, kept)


def main() -> int:
    """Fuzzes, counts, patches bugs in; the exit code is 1 where anything was found or missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--build", type=Path, default=ROOT / "build/fuzz")
    parser.add_argument("--keep", action="store_true", help="write what was found to tests/corpus")
    parser.add_argument("--only", choices=SHARES, help="fuzz this target alone")
    parser.add_argument("--runs", type=int, default=-1, help="executions, in place of seconds")
    args = parser.parse_args()
    if args.runs > 0 and not args.only:
        parser.error("--runs goes with --only TARGET")
    args.build.mkdir(parents=True, exist_ok=True)
    good, total, corpora = True, 0, {}
    for target, share in {args.only: 1.0}.items() if args.only else SHARES.items():
        binary = args.build / f"fuzz_{target}"
        build(ROOT, target, FUZZER, binary, main=False)
        corpora[target] = args.build / f"corpus_{target}"
        corpora[target].mkdir(exist_ok=True)
        kept = ROOT / "tests/corpus" / target
        kept.mkdir(parents=True, exist_ok=True)
        seconds = max(1, round(args.seconds * share))
        begin = time.monotonic()
        executed, code, log = fuzz(binary, [corpora[target], kept], seconds, args.build, args.runs)
        total += executed
        took = time.monotonic() - begin
        print(f"fuzz_{target}: {executed} executions in {took:.0f} s, exit code {code}", flush=True)
        if code != 0:
            good = False
            print(log)
        elif args.keep:
            keep(target, binary, corpora[target])
    print(f"executions: {total}; found: {'nothing' if good else 'see above'}")
    for what, (targets, wanted) in COVERED.items():
        if not set(targets) <= corpora.keys():
            continue
        rows = coverage({target: corpora[target] for target in targets}, wanted, args.build)
        for name, covered, count in rows:
            print(f"  {name:24} {covered:5} of {count:5} lines  {100 * covered / count:5.1f} %")
        reached = 100 * sum(row[1] for row in rows) / sum(row[2] for row in rows)
        print(f"line coverage of {what}: {reached:.1f} % (at least {COVERAGE_MIN:.0f})")
        good &= reached >= COVERAGE_MIN
    for target in corpora.keys() & PLANTS.keys() if (ROOT / ".git").exists() else ():
        corpus = ROOT / "tests/corpus" / target
        good &= plant_found(target, corpus, min(PLANT_SECONDS, args.seconds))
    print(f"fuzz: {'ok' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
