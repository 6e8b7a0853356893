"""Every plan learns: each preset under each plan that ships, to a bound over 100 greedy episodes.

`python tests/programs/plans_learn.py` (make learn-plans) runs `replay-server run` once for each
preset, plan and seed, and prints a line for each; with --engine ray on Ray, but for gpu-only, which
is one process. The bound is held by the mean return of the 100 episodes that a solved checkpoint
plays behind the two rounds that chose it. A run below its bound, or not solved within its minutes,
makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from deploy.plan import ENGINES, load, shipped

BOUNDS = {"cartpole": 475.0, "pendulum": -250.0, "cartpole-ppo": 475.0}
HEAD = ("preset", "plan", "seed", "return", "least", "seconds", "steps", "updates")


def run(
    preset: str, plan: str, engine: str, seed: int, minutes: float, folder: Path
) -> dict[str, Any]:
    """The summary of one run; RuntimeError with its last lines where it ended otherwise."""
    command = [sys.executable, "-m", "replay_server", "run", "--preset", preset, "--plan", plan]
    command += ["--seed", str(seed), "--minutes", str(minutes), "--run", str(folder)]
    command += ["--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-8:]
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}:\n" + "\n".join(lines)
        )
    return json.loads((folder / "summary.json").read_text())


def row_of(summary: dict[str, Any]) -> tuple[str, ...]:
    """What is printed of a run; "-" where it was not solved."""
    if not summary["solved"]:
        return ("-", "-", "-", f"{summary['env_steps']:.0f}", str(summary["learner_steps"]))
    return (
        f"{summary['eval_return_mean']:.1f}",
        f"{summary['eval_return_min']:.1f}",
        f"{summary['train_seconds']:.1f}",
        f"{summary['env_steps']:.0f}",
        str(summary["learner_steps"]),
    )


def main() -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", choices=BOUNDS, default=list(BOUNDS))
    parser.add_argument("--plans", nargs="+", choices=shipped())
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--minutes", type=float, default=6.0, help="Longest time of a run.")
    args = parser.parse_args()
    alone = [name for name in shipped() if load(name).transport == "loopback"]
    plans = [name for name in shipped() if args.engine != "ray" or name not in alone]
    widths = (12, 22, 4, 8, 8, 8, 8, 8)
    failed = 0
    print("  ".join(f"{word:{width}}" for word, width in zip(HEAD, widths, strict=True)))
    for preset in args.presets:
        for plan in args.plans or plans:
            for seed in args.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    summary = run(
                        preset, plan, args.engine, seed, args.minutes, Path(folder) / "run"
                    )
                good = summary["solved"] and summary["eval_return_mean"] >= BOUNDS[preset]
                failed += not good
                row = (preset, plan, str(seed), *row_of(summary))
                cells = zip(row, widths, strict=True)
                print("  ".join(f"{c:{w}}" for c, w in cells) + "  below" * (not good), flush=True)
    bounds = ", ".join(f"{preset} {BOUNDS[preset]:g}" for preset in args.presets)
    print(f"bounds: {bounds}; {failed} runs below" if failed else f"all reached: {bounds}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
