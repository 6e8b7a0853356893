"""Shows that the tests can fail: each known bug, in a copy, has to be caught by its named test.

A known bug is a unified diff, `tests/known_bugs/NAME.patch`, that opens with two comment lines, or
with as many pairs of them as there are tests that have to find it:

    # test: the shell command, run in the copy's root, that has to fail
    # expects: a text its output has to contain: the assertion that catches the bug, or several of
                which one has to be there (A | B): a simulator's seed meets whichever comes first

Each test first runs on the tree as it is and has to pass there; each bug gets a new copy, with the
extension of the tree as it is: the test of a bug in the core builds its own. Prints a table; the
exit code is 1 if a bug was not caught, or not at its named assertion.

    python tests/known_bugs/run.py [--directory tests/canaries] [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from tracked import ROOT, copy_tracked

TIMEOUT_S = 600
BUILD = "python setup.py -q build_ext --inplace"
EXTENSION = "replay_server/_engine*.so"


@dataclass(frozen=True)
class KnownBug:
    """One known bug: its diff, the test that has to fail, and the text that names the catch."""

    name: str
    patch: Path
    test: str
    expects: str


def read_bug(patch: Path) -> list[KnownBug]:
    """The bug a patch file describes, once for each test that has to find it; exits with a sentence
    where its header is incomplete."""
    fields = {"test": [], "expects": []}
    for line in patch.read_text().splitlines():
        if not line.startswith("#"):
            break
        key, _, value = line[1:].partition(":")
        fields[key.strip()].append(value.strip())
    tests, expected = fields["test"], fields["expects"]
    if not tests or len(tests) != len(expected):
        raise SystemExit(f"{patch.name}: each `# test:` has an `# expects:`, and there is one")
    return [KnownBug(patch.stem, patch, *pair) for pair in zip(tests, expected, strict=True)]


def run_test(test: str, root: Path) -> tuple[int, str]:
    """Runs the command in `root`, with Python finding that tree's packages first."""
    environment = os.environ | {"PYTHONPATH": f"{root}:{root}/tests/support"}
    try:
        done = subprocess.run(
            ["bash", "-c", test],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        return 124, output if isinstance(output, str) else output.decode(errors="replace")
    return done.returncode, done.stdout


def judge(bug: KnownBug, scratch: Path, clean: Path) -> tuple[bool, str, str]:
    """Patches the bug in; returns (caught as named, what happened, the output)."""
    root = Path(tempfile.mkdtemp(prefix=bug.name, dir=scratch))
    copy_tracked(root)
    for built in clean.glob(EXTENSION):
        shutil.copy2(built, root / built.relative_to(clean))
    applied = subprocess.run(
        ["git", "apply", "-p1", str(bug.patch)], cwd=root, capture_output=True, text=True
    )
    if applied.returncode != 0:
        return False, "STALE", applied.stderr
    code, output = run_test(bug.test, root)
    shutil.rmtree(root)
    if code == 0:
        return False, "NOT CAUGHT", output
    if not any(text in output for text in bug.expects.split(" | ")):
        return False, "ELSEWHERE", output
    return True, "caught", output


def main() -> int:
    """Judges every chosen bug and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="bugs to run; all if none is named")
    parser.add_argument("--directory", default="tests/known_bugs", help="where the patches lie")
    args = parser.parse_args()
    patches = sorted((ROOT / args.directory).glob("*.patch"))
    bugs = [bug for patch in patches for bug in read_bug(patch)]
    chosen = [bug for bug in bugs if not args.names or bug.name in args.names]
    if not chosen:
        raise SystemExit(f"no bug in {args.directory} matches {args.names or 'anything'}")
    passes_clean: dict[str, bool] = {}
    failures = 0
    print(f"{'known bug':36} {'result':10} {'seconds':>7}  caught at")
    with tempfile.TemporaryDirectory(prefix="known-bugs-") as scratch:
        clean = Path(scratch) / "clean"
        clean.mkdir()
        copy_tracked(clean)
        if any("pytest" in bug.test for bug in chosen):
            code, output = run_test(BUILD, clean)
            if code != 0:
                raise SystemExit(f"the extension does not compile\n{output[-2000:]}")
        for bug in chosen:
            begin = time.monotonic()
            if bug.test not in passes_clean:
                code, output = run_test(bug.test, clean)
                passes_clean[bug.test] = code == 0
                if code != 0:
                    print(f"without any bug this fails: {bug.test}\n{output[-2000:]}")
            caught, result, output = judge(bug, Path(scratch), clean)
            good = caught and passes_clean[bug.test]
            failures += not good
            seconds = time.monotonic() - begin
            print(f"{bug.name:36} {result:10} {seconds:7.1f}  {bug.expects}", flush=True)
            if not good:
                print(output[-2000:])
    print(f"{len(chosen) - failures} caught, {failures} not")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
