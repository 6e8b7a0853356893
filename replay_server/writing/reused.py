"""Environments that write each observation into the same memory: vectors made with copy=False.

What `reset` or `step` returned is the observation of the step to come only until the next call of
`step`. A caller who keeps no copy hands in that of the step behind. Beside a `next_observation`
this is seen, since both are one memory then (`Autoreset._require_apart`); without one the
environment's own memory tells.
"""

from __future__ import annotations

from typing import Any

from ..spec import SpecError
from ..support.values import same_memory

NAMES = ("_observations", "observations")  # Gymnasium's SyncVectorEnv, AsyncVectorEnv
KEEP = (
    "keep what the action was chosen from, obs.copy(), copy.deepcopy(obs) where there are several, "
    "or make it with copy=True"
)


def buffer_of(env: Any) -> Any:
    """Where a vector made with copy=False writes its observations; None for every other one."""
    inner = getattr(env, "unwrapped", env)
    if getattr(inner, "copy", True) is not False:
        return None
    return next((getattr(inner, name) for name in NAMES if hasattr(inner, name)), None)


def require_kept(buffer: Any, observation: Any) -> None:
    """SpecError where the observation of a step is the environment's own memory."""
    if buffer is not None and same_memory(observation, buffer):
        raise SpecError(
            "observation is the environment's own memory, which step has written over by now (it "
            f"was made with copy=False): each row would hold that of the next; {KEEP}"
        )
