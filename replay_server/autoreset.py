"""From what an environment returns to the rows that are stored, for every autoreset mode.

Gymnasium's vector environments end an episode in one of three ways, and say which in
`autoreset_mode`, their own or their metadata's. What `step` returns for one that just ended:

    mode        observation      final observation        the next call of step
    next-step   the final one    the observation itself   ignores the action, returns the reset's
                                                          observation: a made-up row, never stored
    same-step   the reset's      infos["final_obs"]       is an ordinary step
    disabled    the final one    the observation itself   is an ordinary step; the caller has reset
                                                          that environment in between

A single `Env` is "disabled" with one environment and no leading axis (mode "single").

Whatever the mode, what is stored is the same. An episode of T steps is T + 1 rows in one stream:

    row t < T   observation o_t, action a_t, reward r_t, terminated d_t     (d_t cuts returns)
    row T       observation o_T, everything else zero; the end bit           (the closing row)

`d_t` is the environment's `terminated`, or a lost life where the caller says so: it may be true
inside an episode. A closing row after a termination whose final observation is not known is all
zeros; after a truncation the final observation is needed to bootstrap, so its lack is an error.

`Autoreset` keeps one bit per environment (is the next call a made-up one?) and nothing else: it
does no I/O and knows no server. What it returns, `Rows`, is what a writer appends: all of
`columns`, one row to each stream in `streams`; then, for each stream in `ended_streams`, the
closing row and the end of the episode. `closing` holds observation columns only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .spec import Spec, SpecError, fitted

MODES = ("next-step", "same-step", "disabled", "single")
OPEN, TERMINATED, TRUNCATED = 0, 1, 2


@dataclass(frozen=True)
class Rows:
    """The rows to append after one call of `step`. S streams took a real step, E of them ended.

    streams        int64 [S], rising: which environments took a step
    columns        {column: [S, *shape]}, every column of the spec: the steps' rows
    ending         uint8 [S]: OPEN, TERMINATED or TRUNCATED, after this row
    ended_streams  int64 [E], rising: streams[ending != OPEN]
    closing        {observation column: [E, *shape]}: the closing rows, same order
    started        bool [B]: whose next observation to act on is the first of an episode; frame
                   stacks are reset there (mode disabled and single: once the caller has reset it)
    """

    streams: np.ndarray
    columns: dict[str, np.ndarray]
    ending: np.ndarray
    ended_streams: np.ndarray
    closing: dict[str, np.ndarray]
    started: np.ndarray


def mode_of(env: Any) -> str:
    """The mode of a Gymnasium Env or VectorEnv; SpecError where a VectorEnv does not say."""
    if not hasattr(env, "single_observation_space"):
        return "single"
    # The environment's own word first: ale-py writes metadata into a dict that all vectors share.
    stated = getattr(getattr(env, "unwrapped", env), "autoreset_mode", None)
    stated = stated or (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    name = str(getattr(stated, "value", stated))
    modes = {"NextStep": "next-step", "SameStep": "same-step", "Disabled": "disabled"}
    if name not in modes:
        raise SpecError(
            f"metadata['autoreset_mode'] is {stated!r}; expected one of {', '.join(modes)}"
        )
    return modes[name]


def flags_from_infos(name: str, infos: Mapping[str, Any], count: int) -> np.ndarray:
    """The bool [count] that each environment's own step reported as info[`name`]; else False.

    In same-step mode `infos` of an ended environment comes from its reset, and what its last step
    said is under "final_info": read there, or a life lost with the last step is missed.
    """
    flags = np.zeros(count, np.bool_)
    _read_flags(flags, name, infos)
    if "final_info" in infos:
        flags[np.asarray(infos.get("_final_info", np.ones(count)), np.bool_)] = False
        _read_flags(flags, name, infos["final_info"])
    return flags


def _read_flags(flags: np.ndarray, name: str, infos: Mapping[str, Any]) -> None:
    if name in infos:
        present = np.asarray(infos.get("_" + name, np.ones(len(flags))), np.bool_)
        flags[present] = np.asarray(infos[name])[present].astype(np.bool_)


class Autoreset:
    """Turns calls of `step` into rows; one object per environment (vector), one owner."""

    def __init__(self, spec: Spec, mode: str, count: int = 1) -> None:
        if mode not in MODES:
            raise SpecError(f"autoreset mode {mode!r}; expected one of {MODES}")
        if count < 1 or (mode == "single" and count != 1):
            raise SpecError(f"{count} environments in mode {mode!r}")
        self.spec = spec
        self.mode = mode
        self.count = count
        self.extras = tuple(
            c.name
            for c in spec
            if c.name not in ("reward", "terminated")
            and c not in spec.group("observation")
            and c not in spec.group("action")
        )
        self._observations = spec.group("observation")
        self.made_up = np.zeros(count, np.bool_)
        self.any_made_up = False

    def restart(self, mask: np.ndarray | None = None) -> None:
        """The caller has called `reset` (on those in `mask`): their next step is real.

        An episode that was open there has no closing row from here; the writer cuts it.
        """
        still = np.zeros_like(self.made_up)
        if mask is not None:
            still = self.made_up & ~np.asarray(mask, np.bool_)
        self.made_up = still  # a new array: the old one was handed out
        self.any_made_up = bool(still.any())

    def cut(self, mask: np.ndarray, final_observation: Any) -> Rows:
        """Only closing rows: the open episodes of `mask` [B] end here, as truncated."""
        none = np.zeros(self.count, np.bool_)
        return Rows(
            streams=np.zeros(0, np.int64),
            columns={c.name: np.zeros((0, *c.shape), c.dtype) for c in self.spec},
            ending=np.zeros(0, np.uint8),
            ended_streams=np.flatnonzero(mask),
            closing=self._closing(mask, none, None, None, final_observation),
            started=mask,
        )

    def rows(
        self,
        *,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any = None,
        infos: Mapping[str, Any] | None = None,
        final_observation: Any = None,
        life_lost: Any = None,
        extras: Mapping[str, Any] | None = None,
    ) -> Rows:
        """The rows of one call of `step`.

        observation, action: what the action was chosen from, and the action. reward, terminated,
        truncated, next_observation, infos: what `step` returned. All with the leading axis [B],
        nested as in the spaces; without it in mode "single". final_observation, where given, is
        used in place of what next_observation and infos say; only entries of ended environments are
        read. life_lost [B]: also cuts the return, not the episode. extras: the user's own columns.
        Raises SpecError naming column, expected and got, before anything changes.
        """
        terminated = self._flags("terminated", terminated)
        truncated = self._flags("truncated", truncated)
        cuts = terminated if life_lost is None else terminated | self._flags("life_lost", life_lost)
        given = {"reward": self._batched(reward), "terminated": cuts, **self._extras(extras)}
        given |= self._columns("observation", observation)
        given |= self._columns("action", action)

        columns = {c.name: fitted(c, given[c.name], self.count) for c in self.spec}
        real, ended, closing = self.ends(
            terminated, truncated, next_observation, infos, final_observation
        )
        ending = np.where(terminated, TERMINATED, np.where(truncated, TRUNCATED, OPEN))
        return Rows(
            streams=np.flatnonzero(real),
            columns={name: column[real] for name, column in columns.items()},
            ending=ending[real].astype(np.uint8),
            ended_streams=np.flatnonzero(ended),
            closing=closing,
            started=~real if self.mode == "next-step" else ended,
        )

    def ends(
        self,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_observation: Any,
        infos: Mapping[str, Any] | None,
        final_observation: Any,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Of flags bool [B]: whose step is real, whose episode ended, {column: [E, *shape]}.

        The one place that changes what the next call is; SpecError before it does.
        """
        real = ~self.made_up
        ended = (terminated | truncated) & real
        closing = self._closing(ended, terminated, next_observation, infos, final_observation)
        if self.mode == "next-step":
            self.made_up = ended
            self.any_made_up = True in ended.tolist()
        return real, ended, closing

    def _batched(self, value: Any) -> np.ndarray:
        array = np.asarray(value)
        return array[None] if self.mode == "single" else array

    def _flags(self, name: str, value: Any) -> np.ndarray:
        flags = self._batched(value)
        if flags.shape != (self.count,) or flags.dtype != np.bool_:
            raise SpecError(
                f"{name}: expected bool {(self.count,)}, got {flags.dtype} {flags.shape}"
            )
        return flags

    def _columns(self, name: str, value: Any) -> dict[str, np.ndarray]:
        return {c: self._batched(leaf) for c, leaf in self.spec.flatten(name, value).items()}

    def _extras(self, extras: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
        given = dict(extras or {})
        missing = [name for name in self.extras if name not in given]
        unknown = [name for name in given if name not in self.extras]
        if missing or unknown:
            raise SpecError(f"extra columns: expected {list(self.extras)}, got {list(given)}")
        return {name: self._batched(value) for name, value in given.items()}

    def _closing(
        self,
        ended: np.ndarray,
        terminated: np.ndarray,
        next_observation: Any,
        infos: Mapping[str, Any] | None,
        final_observation: Any,
    ) -> dict[str, np.ndarray]:
        """{observation column: [E, *shape]} of the environments in `ended`."""
        if True not in ended.tolist():
            return {c.name: np.zeros((0, *c.shape), c.dtype) for c in self._observations}
        if final_observation is None and self.mode == "same-step":
            final_observation = (infos or {}).get("final_obs")
        elif final_observation is None:
            final_observation = next_observation
        if not _is_per_environment(final_observation):
            flat = self._columns("observation", final_observation)
            return {c.name: fitted(c, flat[c.name], self.count)[ended] for c in self._observations}
        return self._closing_one_by_one(ended, terminated, final_observation)

    def _closing_one_by_one(
        self, ended: np.ndarray, terminated: np.ndarray, finals: Any
    ) -> dict[str, np.ndarray]:
        """The same from a sequence with one nested observation, or None, for each environment."""
        columns, which = self._observations, ended.nonzero()[0].tolist()
        closing = {c.name: np.zeros((len(which), *c.shape), c.dtype) for c in columns}
        for row, i in enumerate(which):
            final = None if finals is None else finals[i]
            if final is None and not terminated[i]:
                raise SpecError(
                    f"environment {i} was truncated and its final observation is missing "
                    f"(mode {self.mode!r}); a truncated return bootstraps from it"
                )
            if final is not None:
                flat = self.spec.flatten("observation", final)
                for c in columns:
                    closing[c.name][row] = fitted(c, np.asarray(flat[c.name])[None], 1)[0]
        return closing


def _is_per_environment(final_observation: Any) -> bool:
    """True for None and for Gymnasium's object array with one entry an environment."""
    if final_observation is None:
        return True
    return isinstance(final_observation, np.ndarray) and final_observation.dtype == np.object_
