"""The real wandb, offline: a run is begun, logged and ended without network (make test-wandb)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from replay_server.training.runs import Run


def main() -> int:
    """Exit code 0 where wandb's own file holds the scalars' names."""
    os.environ["WANDB_MODE"] = "offline"
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), "learner", {"seed": 1, "hidden": (128, 128)}, wandb=True)
        for step in (10, 20):
            run.log(step, **{"losses/td": 1.0 / step, "replay/size": step})
        run.close()
        [written] = Path(folder).glob("wandb/offline-run-*/*.wandb")
        data = written.read_bytes()
    missing = [name for name in ("losses/td", "replay/size", "hidden") if name.encode() not in data]
    print(f"wandb offline: {len(data)} bytes; missing: {missing or 'nothing'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
