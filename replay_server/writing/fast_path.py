"""The quick way into a block: arrays that already are what the columns hold are laid down as given.

Most calls of an actor's loop look alike: one array a column, of the column's dtype and shape, and
no episode ends. For these a check of identity and one assignment a column is all there is to do.
Whatever else comes, such as lists, other dtypes, nested observations or extra columns, is DECLINED
and goes through Autoreset.rows, which converts it or says what is wrong with it. So this file may
refuse anything, and must never take what Autoreset.rows would store differently: compared by
tests/writing/test_block.py.

Casts that are allowed here are those of `spec.fitted` that cannot fail: a float64 reward in a
float32 column, and for one environment Python's own numbers. A step that holds a NaN or an infinity
once it is laid down is DECLINED too: the slow way then says where.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._native import lib
from .block import Block

is_finite = lib.rp_floats_finite
DECLINED, NO_END, ENDED = range(3)
PLAIN = ("observation", "action", "reward", "terminated")
BOOL = np.dtype(np.bool_)
FLAGS = frozenset((bool, np.bool_))
FLOATS = tuple(map(np.dtype, (np.float32, np.float64)))


class FastPath:
    """Writes single steps to the block's next place, without counting them."""

    __slots__ = (
        *("block", "usable", "quiet", "observation", "action", "reward", "terminated"),
        *("observation_dtype", "action_dtype", "reward_dtype", "reward_other", "reward_most"),
        *("observation_shape", "action_shape", "flags_shape", "action_types", "reward_types"),
        *("observation_types", "floats", "known", "root"),
    )

    def __init__(self, block: Block, single: bool, finite: list[str]) -> None:
        """`single`: steps come without the leading axis of environments. `finite`: columns in which
        NaN and infinities are refused."""
        spec, lead = block.spec, () if single else (block.streams,)
        self.block = block
        self.observation_dtype = self.observation_shape = None
        # the newest next observation, where it can be laid down as it is, and what owns its memory
        self.known: Any = None
        self.root: Any = None
        self.usable = set(spec.names) == set(PLAIN) and spec["terminated"].dtype == BOOL
        if not self.usable:
            return
        for name in PLAIN:
            column = block.columns[name]
            setattr(self, name, column[:, 0] if single else column)
        # the one object that numpy has for each dtype, so that `is` finds it
        self.observation_dtype = np.dtype(spec["observation"].dtype.str)
        self.action_dtype = np.dtype(spec["action"].dtype.str)
        self.reward_dtype = self.reward_other = np.dtype(spec["reward"].dtype.str)
        self.reward_most = float("inf")
        if self.reward_dtype in FLOATS:
            self.reward_other = np.dtype(np.float64)
            self.reward_most = float(np.finfo(self.reward_dtype).max)
        self.observation_shape = (*lead, *spec["observation"].shape)
        self.action_shape = (*lead, *spec["action"].shape)
        self.flags_shape = lead
        self.floats = block.floats([name for name in finite if name in PLAIN])
        self.quiet = bytes(block.streams)
        self.observation_types = self._scalar_types(spec["observation"])
        if spec["observation"].dtype == np.float32:
            self.observation_types -= {float, np.float64}  # of these it would keep less
        self.action_types = self._scalar_types(spec["action"])
        self.reward_types = self._scalar_types(spec["reward"])

    def _scalar_types(self, column: Any) -> frozenset[type]:
        """Types of Python and numpy scalars that this column holds as they are."""
        if column.shape:
            return frozenset()
        types = {column.dtype.type}
        if column.dtype in FLOATS:
            types |= {float, np.float64}
        if column.dtype == np.int64:
            types.add(int)
        return frozenset(types)

    def batch(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        known: bool = False,
    ) -> int:
        """One step of all environments: NO_END, or ENDED where some flag is set, or DECLINED.

        `known`: the observation was looked at, as what the step before led to.
        """
        array = np.ndarray
        if not (
            type(action) is array
            and type(reward) is array
            and type(terminated) is array
            and type(truncated) is array
            and (known or self._fits(observation))
            and action.dtype is self.action_dtype
            and (reward.dtype is self.reward_dtype or reward.dtype is self.reward_other)
            and terminated.dtype is truncated.dtype is BOOL
            and action.shape == self.action_shape
            and reward.shape == terminated.shape == truncated.shape == self.flags_shape
        ):
            return DECLINED
        at = self.block.steps
        self.observation[at] = observation
        self.action[at] = action
        try:
            self.reward[at] = reward
        except (FloatingPointError, RuntimeWarning):
            # where numpy raises, or warnings are errors: a float64 that float32 does not hold
            return DECLINED
        self.terminated[at] = terminated
        if self.floats is not None and not is_finite(self.floats, at):
            return DECLINED
        quiet = self.quiet
        return NO_END if terminated.tobytes() == quiet == truncated.tobytes() else ENDED

    def _fits(self, observation: Any) -> bool:
        return (
            type(observation) is np.ndarray
            and observation.dtype is self.observation_dtype
            and observation.shape == self.observation_shape
        )

    def single(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        known: bool = False,
    ) -> int:
        """One step of one environment without leading axis: NO_END, or DECLINED as above.

        The end of an episode is DECLINED too.
        """
        if not (
            type(terminated) in FLAGS
            and type(truncated) in FLAGS
            and not (terminated or truncated)
            and type(reward) in self.reward_types
            and -self.reward_most <= reward <= self.reward_most  # or numpy would warn first
            and (known or self._fits(observation) or type(observation) in self.observation_types)
        ):
            return DECLINED
        at = self.block.steps
        try:
            self.observation[at] = observation
            if type(action) in self.action_types or (
                type(action) is np.ndarray
                and action.dtype is self.action_dtype
                and action.shape == self.action_shape
            ):
                self.action[at] = action
            else:
                return DECLINED
            self.reward[at] = reward
        except (ArithmeticError, RuntimeWarning):  # a number that the column does not hold
            return DECLINED
        self.terminated[at] = False
        if self.floats is not None and not is_finite(self.floats, at):
            return DECLINED
        return NO_END
