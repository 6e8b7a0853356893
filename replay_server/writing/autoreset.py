"""From what an environment returns to the rows that are stored, for every autoreset mode.

Gymnasium's vector environments end an episode in one of three ways, and say which in
`autoreset_mode`, of their own or of their metadata. What `step` returns for one that just ended:

    mode        observation      final observation        the next call of step
    next-step   the final one    the observation itself   ignores the action, returns the reset's
                                                          observation: a made-up row, never stored
    same-step   the reset's      infos["final_obs"]       is an ordinary step
    disabled    the final one    the observation itself   is an ordinary step; the caller has reset
                                                          that environment in between

A single `Env` is "disabled" with one environment and no leading axis (mode "single"); inside
`gymnasium.wrappers.Autoreset` it is "next-step", with one environment.

A mode that is not the environment's joins the end of one episode to the start of the next, and the
rows look right. So what contradicts the mode is an error:

  * final observations in `infos` where the mode has none, or none where the mode has them (also
    where there are no infos at all);
  * an episode that ends in a step that nobody took;
  * where the caller named the mode: a reward for such a step.

A caller that named next-step and hands in no infos at an end is warned once, since nothing else may
contradict the mode. The call after an end is checked too: in next-step mode its observation is the
final one. In the modes that leave resets to the caller it is another one, unless episodes may begin
there (starts.py). Final observations handed in beside a same-step vector are checked (finals.py).

Whatever the mode, what is stored is the same. An episode of T steps is T + 1 rows in one stream:

    row t < T   observation o_t, action a_t, reward r_t, terminated d_t     (d_t cuts returns)
    row T       observation o_T, everything else zero; the end bit           (the closing row)

`d_t` is the environment's `terminated`, or a lost life where the caller says so: it may be true
inside an episode. After a termination the closing row is all zeros where the final observation is
not known. After a truncation it is needed to bootstrap, so it is an error where it is missing.

`Autoreset` keeps one bit per environment (is the next call a made-up one?) and, for one call, the
closing rows of what just ended: it does no I/O and knows no server. What it returns, `Rows`, is
what a writer appends: all of `columns`, one row to each stream in `streams`; then, for each stream
in `ended_streams`, the closing row and the end of the episode. `closing` holds observation columns
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Once
from ..spec import (
    ALWAYS_FINITE,
    Column,
    Spec,
    SpecError,
    array_of,
    fitted,
    flags_of,
    require_finite,
)
from ..support.values import odd_pair, same_memory
from .finals import bytes_of, finals_in, is_per_environment, require_final
from .reused import KEEP, require_kept
from .starts import Starts

MODES = ("next-step", "same-step", "disabled", "single")
GYMNASIUM_MODES = {"NextStep": "next-step", "SameStep": "same-step", "Disabled": "disabled"}
OPEN, TERMINATED, TRUNCATED = 0, 1, 2
WRAPPERS_MAX = 64
FRESH_CALLS = 8
UNSEEN = (
    "an environment ended and no infos were given: in the mode 'next-step' hand infos in, as step "
    "returned them, or hand the environment over (client.writer(..., autoreset=envs)): without "
    "infos a wrong mode cannot be seen, and items would run from one episode into the next"
)


@dataclass(frozen=True)
class Rows:
    """The rows to append after one call of `step`. S streams took a real step, E of them ended.

    streams        int64 [S], rising: the environments that took a step
    columns        {column: [S, *shape]} for every column of the spec: the rows of these steps
    ending         uint8 [S]: 0 where the episode goes on after this row, 1 terminated, 2 truncated
    ended_streams  int64 [E], rising: the streams whose `ending` is not 0
    closing        {observation column: [E, *shape]}: their closing rows, in the same order
    started        bool [B]: environments whose next observation to act on is the first of an
                   episode: reset their frame stacks there (modes "disabled" and "single": once you
                   have reset the environment)
    """

    streams: np.ndarray
    columns: dict[str, np.ndarray]
    ending: np.ndarray
    ended_streams: np.ndarray
    closing: dict[str, np.ndarray]
    started: np.ndarray


def is_vector(env: Any) -> bool:
    """Whether `env` is a Gymnasium VectorEnv; SpecError where it is no environment of Gymnasium."""
    if isinstance(env, type):
        raise SpecError(f"autoreset={env.__name__} is a class: hand over the environment you step")
    if hasattr(env, "single_observation_space"):
        return True
    if hasattr(env, "num_envs") or not hasattr(env, "step"):
        raise SpecError(
            f"autoreset={type(env).__name__} is neither a Gymnasium Env nor a VectorEnv; say how "
            f"its episodes follow each other: one of {', '.join(MODES)}"
        )
    return False


def resets_itself(env: Any) -> bool:
    """Whether gymnasium.wrappers.Autoreset is among the wrappers of a single Env."""
    layer, seen = env, 0
    while layer is not None and seen < WRAPPERS_MAX:
        for kind in type(layer).__mro__:
            if kind.__name__ == "Autoreset" and kind.__module__.startswith("gymnasium."):
                return True
        layer, seen = getattr(layer, "env", None), seen + 1
    return False


def mode_of(env: Any) -> str:
    """The autoreset mode of a Gymnasium Env or VectorEnv: "next-step", "same-step", "disabled", or
    "single" for an Env. SpecError where a VectorEnv does not say its mode."""
    if not is_vector(env):
        return "next-step" if resets_itself(env) else "single"
    # The environment's own word first: ale-py writes metadata into a dict that all vectors share.
    stated = getattr(getattr(env, "unwrapped", env), "autoreset_mode", None)
    stated = stated or (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    if stated is None:
        raise SpecError(
            "the vector environment does not say its autoreset_mode, as those of Gymnasium 1.1 and "
            "newer do; one of 1.0 goes in as it is with autoreset='next-step', one of 0.29 with "
            "'same-step'"
        )
    name = str(getattr(stated, "value", stated))
    if name not in GYMNASIUM_MODES:
        names = ", ".join(GYMNASIUM_MODES)
        raise SpecError(f"metadata['autoreset_mode'] is {stated!r}; expected one of {names}")
    parts = getattr(getattr(env, "unwrapped", env), "envs", None) or ()
    if name == "Disabled" and any(map(resets_itself, parts)):
        raise SpecError(
            "the vector environment leaves resets to its caller (autoreset_mode Disabled), but "
            "gymnasium.wrappers.Autoreset inside it resets too: take the wrapper away"
        )
    return GYMNASIUM_MODES[name]


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
    """Turns calls of `step` into `Rows`; one object for each environment or vector.

    spec      the table's columns
    mode      "next-step", "same-step", "disabled" or "single"
    count     B, the number of environments
    finite_observations  True: NaN and infinities are refused in observations too, and not only in
              rewards and actions
    own       True: the environment itself said its mode, so it takes more starts that look wrong
              until one is an error

    Raises SpecError where mode and count do not go together.
    """

    def __init__(
        self,
        spec: Spec,
        mode: str,
        count: int = 1,
        *,
        finite_observations: bool = True,
        own: bool = False,
    ) -> None:
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
        self.observations = spec.group("observation")
        self.finite_observations = finite_observations
        groups = ALWAYS_FINITE + (("observation",) if finite_observations else ())
        self.finite = [column.name for name in groups for column in spec.group(name)]
        self.leading = mode != "single"  # callers give the axis of environments; for messages
        self.made_up = np.zeros(count, np.bool_)
        self.any_made_up = False
        # (environments [E], their closing rows, whether these were given, whether they differ from
        # the observations before) of the last call, until the next one was looked at
        self.closed: tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray] | None = None
        self._mode_from_env, self._starts = own, Starts(self.observations, count, mode, own)
        self._warn_once = Once()
        # {column: (its leaf, bytes)} where the observation's memory was the next one's as well
        self._shared: dict[str, tuple[Any, bytes]] = {}
        self._partly = False  # not all of it: a goal may be written over by a reset
        self.fresh = FRESH_CALLS  # calls that are looked at closely, odd or not
        self.buffer: Any = None  # the environment's own, see reused.py

    def restart(self, mask: np.ndarray | None = None) -> None:
        """Reports that the caller reset environments (`mask`: bool [B]; None: all).

        Their next step is a real one. This makes no closing row for an episode that was open:
        `cut` does.
        """
        others = ~self._chosen(mask)
        if self._partly:
            self._shared = {}
        still = self.made_up & others
        if self.closed is not None:
            which, closing, known, moved = self.closed
            left, self.closed = others[which], None
            if left.any():
                kept = {name: rows[left] for name, rows in closing.items()}
                self.closed = (which[left], kept, known[left], moved[left])
        self.made_up = still  # a new array: the old one was handed out
        self.any_made_up = bool(still.any())

    def _chosen(self, mask: np.ndarray | None) -> np.ndarray:
        """`mask` as bool [B], all for None; SpecError for indices: they look like flags."""
        return np.ones(self.count, np.bool_) if mask is None else flags_of(mask, self.count)

    def cut(self, mask: np.ndarray, final_observation: Any) -> Rows:
        """Closing rows alone: the open episodes of `mask`, bool [B], end here, as truncated.

        final_observation: with the leading axis [B], nested as in the space; None: zeros.
        """
        unknown = mask & (final_observation is None)
        return Rows(
            streams=np.zeros(0, np.int64),
            columns={c.name: np.zeros((0, *c.shape), c.dtype) for c in self.spec},
            ending=np.zeros(0, np.uint8),
            ended_streams=np.flatnonzero(mask),
            closing=self._closing(mask, unknown, None, None, final_observation)[0],
            started=mask,
        )

    def rows(
        self,
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
        looked: bool = False,
    ) -> Rows:
        """The rows of one call of `step`; SpecError comes before anything is changed.

        observation, action  what the action was chosen from, and the action
        reward, terminated, truncated, next_observation, infos  what `step` returned
        final_observation  used in place of what next_observation and infos say; only the entries of
                  ended environments are read
        life_lost  bool [B]: cuts the return too, and not the episode
        extras    {column: [B, *shape]}: the table's own columns
        looked    internal: `_require_apart` and `_look` are done

        All have the leading axis [B], nested as in the spaces; none in mode "single".
        """
        self.spec._require_names(extras or (), self.extras)
        if not looked and (self.fresh or odd_pair(observation, next_observation)):
            self._require_apart(observation, next_observation)
        if not looked and self.closed is not None:
            self._look(observation)
        terminated = self._flags("terminated", terminated)
        truncated = self._flags("truncated", truncated)
        cuts = terminated if life_lost is None else terminated | self._flags("life_lost", life_lost)
        reward = self._batched(array_of("reward", reward))
        given = {"reward": reward, "terminated": cuts, **self._extras(extras)}
        given |= self._columns("observation", observation)
        given |= self._columns("action", action)

        columns = {c.name: self._fitted(c, given[c.name]) for c in self.spec}
        taken = np.flatnonzero(~self.made_up)
        for name in self.finite:
            column = columns[name][taken] if self.any_made_up else columns[name]
            require_finite(name, column, taken, self.leading)
        real, ended, closing = self._ends(
            terminated, truncated, next_observation, infos, final_observation, observation, reward
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

    def _ends(
        self,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_observation: Any,
        infos: Mapping[str, Any] | None,
        final_observation: Any,
        observation: Any,
        reward: Any,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """(real, ended, closing) of the flags bool [B]: the environments whose step is real, those
        whose episode ended (bool [B] each), and the closing rows {column: [E, *shape]}.

        `observation`: what the actions were chosen from. Only this method changes what the next
        call is; a SpecError comes before the change.
        """
        real = ~self.made_up
        over = terminated | truncated
        ended = over & real
        if over.any():
            self._contradicted(ended, over & self.made_up, infos, final_observation)
            unseen = self.mode == "next-step" and self.leading and not self._mode_from_env
            if unseen and infos is None and final_observation is None:
                self._warn_once(UNSEEN)
        if self.any_made_up and not self._mode_from_env:
            self._require_unrewarded(reward)
        finals = (next_observation, infos, final_observation)
        closing, known = self._closing(ended, terminated, *finals)
        some = True in ended.tolist()
        if some and self._partly:
            self._shared = {}
        if self.mode == "next-step":
            self.made_up, self.any_made_up = ended, some
        given = finals_in(infos) if some and self.mode == "same-step" else None
        if given and final_observation is not None and next_observation is not None:
            others = self._finals(ended, ended, infos[given])
            begun = self._observed(next_observation)
            require_final(ended, closing, *others, begun)
        elif some and (self.mode != "same-step" or final_observation is not None):
            which, before = np.flatnonzero(ended), self._observed(observation)
            moved = np.zeros(len(which), np.bool_)
            for name, rows in closing.items():
                moved |= (bytes_of(before[name][which]) != bytes_of(rows)).any(1)
            self.closed = (which, closing, known, moved)
        return real, ended, closing

    def _go_back(self, made_up: np.ndarray) -> None:
        """Goes back to before the newest call, which was cut off and will be made again."""
        self.made_up, self.any_made_up, self.closed = made_up, bool(made_up.any()), None

    def _look(self, observation: Any) -> None:
        """Checks the mode by the observation that the call after an end was given.

        SpecError where the mode is not the environment's, with nothing changed. A closing
        row in zeros, for a final observation that was not given, proves nothing; given zeros do.
        """
        which, closing, known, moved = self.closed
        seen = self._observed(observation)
        equal = np.ones(len(which), np.bool_)
        for name, rows in closing.items():
            equal &= (bytes_of(seen[name][which]) == bytes_of(rows)).all(1)
        if self.mode != "next-step":
            begun = {name: rows[which] for name, rows in seen.items()}
            self._starts.look(which, begun, closing, equal, known, moved)
        elif (known & ~equal).any():
            i = which[np.argmax(known & ~equal)]
            raise SpecError(
                f"environment {i} ended, and the next step was not given its final observation: "
                "the mode 'next-step' is not this environment's, or its arrays are overwritten by "
                "step (copy=False); a real step would be lost: hand the environment over "
                "(client.writer(..., autoreset=envs)), or name its mode; where you reset it by "
                "hand, say so: writer.restart(mask)"
            )
        self.closed = None

    def _require_apart(self, observation: Any, next_observation: Any) -> None:
        """SpecError where both are the same memory: that of an environment with copy=False, or one
        that writes over its own list; and where the next one has not the shape of an observation.

        At once where all of a vector environment handed over is. Elsewhere it may be a constant,
        until what is there changes.
        """
        if next_observation is not None:
            try:
                self._observed(next_observation)
            except SpecError as error:  # raised here, and not only at the episode's end
                raise SpecError(f"next_observation: {error}") from error
        else:
            require_kept(self.buffer, observation)
        try:
            if self._starts.unknown:
                self._starts.begin(self._observed(observation))
            flat = self.spec.flatten("observation", observation)
            after = self.spec.flatten("observation", next_observation)
            same = [name for name in flat if same_memory(flat[name], after[name])]
            found = {name: (flat[name], array_of(name, flat[name]).tobytes()) for name in same}
        except SpecError:  # no observation: refused where it is used
            return
        before, self._shared, self._partly = self._shared, found, len(same) < len(flat)
        wrong = self._mode_from_env and self.leading and not self._partly
        for name, (leaf, seen) in found.items():
            then, was = before.get(name, (None, seen))
            wrong |= seen != was and same_memory(then, leaf)
        if wrong:
            raise SpecError(
                "observation and next_observation are the same memory, which step writes over (an "
                f"environment made with copy=False): each row would hold that of the next; {KEEP}"
            )
        self.fresh = FRESH_CALLS if same else max(0, self.fresh - 1)

    def _contradicted(
        self,
        ended: np.ndarray,
        ended_twice: np.ndarray,
        infos: Mapping[str, Any] | None,
        final_observation: Any,
    ) -> None:
        """SpecError where what `step` returned shows that the mode is not the environment's."""
        given, wrong = finals_in(infos), ""
        if ended_twice.any():
            i = int(np.argmax(ended_twice))
            wrong = f"environment {i} ended again in the step in which it should have been reset"
        elif given and (
            self.mode == "next-step" or (self.mode != "same-step" and final_observation is None)
        ):
            wrong = f"infos holds {given!r}, which only same-step environments give"
        elif self.mode == "same-step" and final_observation is None and given is None:
            i = int(np.argmax(ended))
            if isinstance(infos, list):
                raise SpecError(
                    "infos is a list, as DictInfoToList makes it: hand in the dict that the "
                    "vector itself returns, or final_observation"
                )
            wrong = f"environment {i} ended and infos holds no 'final_obs'"
            if infos is None:
                raise SpecError(
                    f"environment {i} ended and neither infos nor final_observation was given: in "
                    "the mode 'same-step' next_observation is the reset's, and the final one lies "
                    "there alone; hand in infos as step returned them, or final_observation"
                )
        if wrong:
            raise SpecError(
                f"{wrong}: the mode {self.mode!r} is not this environment's, and the items would "
                "run from one episode into the next; hand the environment over "
                "(client.writer(..., autoreset=envs)), or name its mode"
            )

    def _require_unrewarded(self, reward: Any) -> None:
        """SpecError where a step that nobody took has a reward: the caller named a wrong mode."""
        rewards = self._batched(array_of("reward", reward)).reshape(self.count, -1)
        wrong = self.made_up & (np.isfinite(rewards) & (rewards != 0)).any(1)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise SpecError(
                f"environment {i} ended, and the step after it has the reward {rewards[i, 0]}: in "
                "the mode 'next-step' nobody takes that step and its reward is 0, so the mode is "
                "not this environment's, and a real step would be lost: hand the environment over "
                "(client.writer(..., autoreset=envs)), or name its mode; where only a wrapper adds "
                "to every reward, hand in 0 there"
            )

    def _shown(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape as the caller gave it."""
        return shape if self.leading else shape[1:]

    def _fitted(self, column: Column, array: Any) -> np.ndarray:
        """`array` as the column stores it; SpecError where it cannot."""
        expected, got = (self.count, *column.shape), np.shape(array)
        if got != expected:
            raise SpecError(
                f"column {column.name!r}: expected shape {self._shown(expected)}, "
                f"got {self._shown(got)}"
            )
        return fitted(column, array, self.count)

    def _batched(self, value: Any) -> np.ndarray:
        """With the leading axis [B]."""
        array = np.asarray(value)
        return array[None] if self.mode == "single" else array

    def _flags(self, name: str, value: Any) -> np.ndarray:
        if name == "truncated" and isinstance(value, Mapping):
            raise SpecError(
                "truncated is a dict: step returned four values, as old Gym's did; Gymnasium's "
                "returns five, with truncated ahead of info"
            )
        flags = self._batched(array_of(name, value))
        if flags.shape != (self.count,) or flags.dtype != np.bool_:
            number = flags.shape == (self.count,) and flags.dtype.kind in "iuf"
            raise SpecError(
                f"{name}: expected bool {self._shown((self.count,))}, got {flags.dtype} "
                f"{self._shown(flags.shape)}" + number * f"; say {name} != 0"
            )
        return flags

    def _columns(self, name: str, value: Any) -> dict[str, np.ndarray]:
        pair = type(value) is tuple and len(value) == 2 and isinstance(value[1], Mapping)
        if pair and name == "observation" and name not in self.spec.tuples:
            raise SpecError("observation: reset returns (obs, info), say obs, _ = env.reset()")
        flat = self.spec.flatten(name, value)
        return {c: self._batched(array_of(c, leaf)) for c, leaf in flat.items()}

    def _observed(self, value: Any) -> dict[str, np.ndarray]:
        """{observation column: [B, *shape]}, as it holds them."""
        flat = self._columns("observation", value)
        return {c.name: self._fitted(c, flat[c.name]) for c in self.observations}

    def _extras(self, extras: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
        return {name: self._batched(array_of(name, extras[name])) for name in self.extras}

    def _closing(
        self,
        ended: np.ndarray,
        terminated: np.ndarray,
        next_observation: Any,
        infos: Mapping[str, Any] | None,
        final_observation: Any,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """{observation column: [E, *shape]} of the environments in `ended`, and bool [E]: whose
        were given; the others are zeros."""
        if True not in ended.tolist():
            none = {c.name: np.zeros((0, *c.shape), c.dtype) for c in self.observations}
            return none, np.zeros(0, np.bool_)
        if final_observation is None and self.mode == "same-step":
            given = finals_in(infos)
            final_observation = infos[given] if given else None
        elif final_observation is None:
            final_observation = next_observation
        closing, known = self._finals(ended, terminated, final_observation)
        if self.finite_observations:
            for name, rows in closing.items():
                require_finite(name, rows, np.flatnonzero(ended), self.leading)
        return closing, known

    def _finals(
        self, ended: np.ndarray, terminated: np.ndarray, finals: Any
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """`_closing` for one value `finals`, which holds the final observations."""
        if is_per_environment(finals):
            return self._closing_one_by_one(ended, terminated, finals)
        given = {name: rows[ended] for name, rows in self._observed(finals).items()}
        return given, np.ones(int(ended.sum()), np.bool_)

    def _closing_one_by_one(
        self, ended: np.ndarray, terminated: np.ndarray, finals: Any
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """`_closing` for a sequence with one nested observation, or None, for each environment."""
        columns, which = self.observations, ended.nonzero()[0].tolist()
        known = np.zeros(len(which), np.bool_)
        closing = {c.name: np.zeros((len(which), *c.shape), c.dtype) for c in columns}
        for row, i in enumerate(which):
            final = None if finals is None else finals[i]
            if final is None and not terminated[i]:
                raise SpecError(
                    f"environment {i} was truncated and its final observation is missing "
                    f"(mode {self.mode!r}); a truncated return bootstraps from it"
                )
            if final is not None:
                known[row] = True
                flat = self.spec.flatten("observation", final)
                for c in columns:
                    value = array_of(c.name, flat[c.name])
                    if value.shape != c.shape:
                        raise SpecError(
                            f"column {c.name!r}: expected shape {c.shape}, got {value.shape}"
                        )
                    closing[c.name][row] = fitted(c, value[None], 1)[0]
        return closing, known
