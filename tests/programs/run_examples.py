"""Runs the training loops of examples/ in their own environments, and counts what they changed.

For each NAME: prints the diff from original.py to replay.py, which may add and remove at most
CHANGED_MAX lines; runs both scripts in build/examples/NAME (made by `make test-examples`); and
checks that

    both learned        the greedy return of each is LEARNED times that of a random policy
    alike               neither return is more than APART times the other
    through the server  its own counters have every step, and the items that were drawn

    python tests/programs/run_examples.py [--steps 20000] [--seed 1] [--diff-only] [NAME ...]
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("cleanrl_dqn", "sb3_dqn", "torchrl_dqn")
CHANGED_MAX = 10
LEARNED = 3.0
APART = 6.0
TIMEOUT_S = 3600
MARK = "RESULT "


def changes(before: list[str], after: list[str]) -> tuple[list[str], int, int]:
    """(the diff without context, lines added, lines removed); blank lines do not count."""
    diff = [
        line
        for line in difflib.unified_diff(before, after, n=0, lineterm="")
        if not line.startswith(("---", "+++"))
    ]
    counted = [line[0] for line in diff if not line.startswith("@@") and line[1:].strip()]
    return diff, counted.count("+"), counted.count("-")


def diff_of(name: str) -> tuple[list[str], int, int]:
    """`changes` from original.py to replay.py of an example."""
    folder = ROOT / "examples" / name
    scripts = ("original.py", "replay.py")
    return changes(*((folder / script).read_text().splitlines() for script in scripts))


def random_return(episodes: int = 100) -> float:
    """What random actions reach on CartPole."""
    import gymnasium

    env, total = gymnasium.make("CartPole-v1"), 0.0
    env.action_space.seed(0)
    for episode in range(episodes):
        env.reset(seed=episode)
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            over = terminated or truncated
    return total / episodes


def run_script(script: str, steps: int, seed: int) -> None:
    """Runs one script as a user would, in this process, and prints what it left behind."""
    sys.argv = [script, "--total-timesteps", str(steps), "--seed", str(seed)]
    sys.path[0] = str(Path(script).parent)
    left = runpy.run_path(script, run_name="__main__")
    result: dict[str, Any] = {"return": left["average_return"], "random": random_return()}
    buffer = getattr(left.get("model"), "replay_buffer", left.get("buffer"))
    server = left.get("server", getattr(buffer, "server", None))
    if server is not None:
        result["counters"] = server.counters()
    print(MARK + json.dumps(result), flush=True)


def output_of(name: str, *command: Any) -> str:
    """What a Python program prints in an example's environment; SystemExit where it fails."""
    python = ROOT / "build" / "examples" / name / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{name} has no environment in {python.parents[1]}: make test-examples")
    done = subprocess.run(
        [python, *map(str, command)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        what = f"{name}: {Path(str(command[0])).name} ended with {done.returncode}"
        raise SystemExit(f"{what}:\n{done.stdout[-4000:]}")
    return done.stdout


def result_of(name: str, script: str, steps: int, seed: int) -> dict[str, Any]:
    """What one script of an example left behind; see `run_script`."""
    path = ROOT / "examples" / name / script
    told = output_of(name, __file__, "--script", path, "--steps", steps, "--seed", seed)
    (found,) = (line for line in told.splitlines() if line.startswith(MARK))
    return json.loads(found.removeprefix(MARK))


def wrong(original: dict[str, Any], replay: dict[str, Any], steps: int) -> list[str]:
    """What is not as it should be, one sentence each."""
    found = []
    for name, result in (("original", original), ("replay", replay)):
        if result["return"] < LEARNED * result["random"]:
            found.append(
                f"{name} reached {result['return']:.0f}, less than {LEARNED:.0f} times "
                f"what a random policy reaches ({result['random']:.0f})"
            )
    low, high = sorted((original["return"], replay["return"]))
    if high > APART * low:
        found.append(f"original and replay are more than {APART:.0f} times apart")
    counters = replay["counters"]
    if counters["steps_committed"] < 0.98 * steps:  # the last steps may still be on their way
        found.append(f"the server stored {counters['steps_committed']} rows of {steps} steps")
    if counters["items_sampled"] < steps:
        found.append(f"the server served {counters['items_sampled']} items in {steps} steps")
    return found


def check(name: str, steps: int, seed: int, diff_only: bool) -> list[str]:
    """Prints one example's diff and its two runs; what was wrong."""
    diff, added, removed = diff_of(name)
    print(f"== {name}: {added} lines added, {removed} removed (at most {CHANGED_MAX})")
    print("\n".join(diff))
    if max(added, removed) > CHANGED_MAX:
        return [f"{name}: the diff is larger than {CHANGED_MAX} lines"]
    if diff_only:
        return []
    original = result_of(name, "original.py", steps, seed)
    replay = result_of(name, "replay.py", steps, seed)
    counters = replay["counters"]
    print(
        f"{name}: greedy return {original['return']:.1f} in process, {replay['return']:.1f} "
        f"through the server; random {replay['random']:.1f}; the server stored "
        f"{counters['steps_committed']} rows, served {counters['items_sampled']} items, "
        f"applied {counters['priorities_applied']} priorities",
        flush=True,
    )
    return [f"{name}: {sentence}" for sentence in wrong(original, replay, steps)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", default=[])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--diff-only", action="store_true")
    parser.add_argument("--script", help="run this one script here and print what it left behind")
    args = parser.parse_args()
    if args.script:
        run_script(args.script, args.steps, args.seed)
        return
    for name in args.names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, 1, 0.0)[0]
            parser.error(f"no example {name!r}; nearest is {near!r}, there are {', '.join(NAMES)}")
    found = []
    for name in args.names or NAMES:
        found += check(name, args.steps, args.seed, args.diff_only)
    print("\n".join(found) if found else "examples: all as they should be")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
