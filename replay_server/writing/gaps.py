"""Where a writer's steps do not go on: it ends open episodes there, so that no item spans the gap.

Three things make a gap:

    a reset that nobody reported            following.py finds it
    a next observation that is not finite   the step after it is refused for it
    a step that was not taken               `add` raised, and the caller went on with another one

A call that raises is usually made again. But a reward that is a NaN stays one, and a loop that does
not wait for its limiter leaves the step out. Then the next call goes on behind that step: what the
environments did in it counts, although no row tells of it. Who ended in it is being reset now, and
who was reset in it begins an episode. So `Untaken` keeps the newest step that was not taken, and
says what the next call is, by its observation:

    that of the step                    it is made again, and nothing happened
    the one that the step led to        the step was left out: open episodes end before it
    another one, or it is not known     so they do here; and who may be in its reset is left out
                                        once more: that costs one step, and joins nothing
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..spec import SpecError, array_of
from ..support.values import same_memory
from .writers import NOT_TAKEN, note_taken

if TYPE_CHECKING:
    from ..writer import Writer
    from .autoreset import Autoreset

Observed = dict[str, np.ndarray]  # {observation column: [B, *shape]}


class Left(NamedTuple):
    """A step that was not taken; None where that could not be read."""

    made_up: np.ndarray  # bool [B]: environments that were reset in it
    over: np.ndarray  # bool [B]: those whose episode ended in it, or where not `sure` may have
    sure: bool
    begin: Observed | None  # what its actions were chosen from
    led_to: Observed | None


class Untaken:
    """The newest step of a writer that was not taken. `gap`: open episodes end before the next one;
    `waits`: they do, or it is to be compared with what is kept here. `written`: what the newest
    step that was taken led to is not known, or in memory that those left out wrote to."""

    def __init__(self, autoreset: Autoreset) -> None:
        self._autoreset = autoreset
        self._left: Left | None = None
        self.gap = self.waits = self.written = False

    def note(self, observation: Any, before: Any, terminated: Any, truncated: Any, to: Any) -> None:
        """A step was not taken; `before`: the next observation of the one before it, or None."""
        begin, over = self._read(observation), self._over(terminated, truncated)
        written = _is_written(self._autoreset, before, to)
        self.waits, self.written = True, self.written or written
        if self._left is not None and (begin is None or over is None):
            # of this one too little is known: the next call is compared with the older one, but
            # who ended since, nobody knows
            self._left = self._left._replace(over=np.ones_like(self._left.over), sure=False)
            return
        if not written:
            begin = self._mended(begin, self._read(before))
        ended = np.ones(self._autoreset.count, np.bool_) if over is None else over
        made_up, led_to = self._autoreset.made_up, self._read(to)
        self._left = Left(made_up, ended, over is not None, begin, led_to)

    def forget(self, mask: np.ndarray | None) -> None:
        """The caller reset these environments (bool [B]; None: all): their next step is real."""
        if self._left is not None:
            left, others = self._left, ~self._autoreset._chosen(mask)
            self._left = left._replace(made_up=left.made_up & others, over=left.over & others)

    def decide(self, observation: Any, reward: Any, terminated: Any, truncated: Any) -> None:
        """Says what the next call is: `gap`, and who is reset in it. One that cannot be read
        changes nothing: it will be refused."""
        left, begin, over = self._left, self._read(observation), self._over(terminated, truncated)
        if left is None or begin is None or over is None:
            return
        mended = self._autoreset.finite_observations
        same, on = (_alike(begin, to, over, mended) for to in (left.begin, left.led_to))
        ended = left.over
        if left.led_to is None:
            again, left_out = bool(same.all()), False
        elif (same & on).all():  # nothing moves: an end that is not said again was left out
            left_out = bool((ended & ~over).any())
            again = not left_out
        else:
            again = bool((same & ~on).any() and not (on & ~same).any())
            left_out = bool((on & ~same).any() and not (same & ~on).any())
        self._left, self.gap = None, self.gap or not again
        self.waits = self.gap
        if again:
            self.written = False
            return
        unsure = (left.made_up | ended) & ~over & ~self._rewarded(reward, left.sure)
        known = on if left_out and left.sure else np.zeros_like(on)
        made_up = np.where(known, ended, unsure)
        self._autoreset._go_back(made_up & (self._autoreset.mode == "next-step"))

    def _read(self, observation: Any) -> Observed | None:
        """A copy of the observation, as its columns hold it; None where it is none."""
        if observation is None:
            return None
        try:
            seen = self._autoreset._observed(observation)
        except Exception:  # of whatever was handed in: it is refused elsewhere
            return None
        return {name: np.array(rows) for name, rows in seen.items()}

    def _mended(self, seen: Observed | None, before: Observed | None) -> Observed | None:
        """`seen`, with what is refused there as not finite as it was before; all of it, where it
        could not be read."""
        if seen is None or before is None:
            return seen or before
        if not self._autoreset.finite_observations:
            return seen
        return {
            name: np.where(np.isfinite(rows), rows, before[name])
            if rows.dtype.kind == "f"
            else rows
            for name, rows in seen.items()
        }

    def _over(self, terminated: Any, truncated: Any) -> np.ndarray | None:
        """Bool [B]: whose episode ends by these flags; None where they are none."""
        try:
            flags = self._autoreset._flags
            return flags("terminated", terminated) | flags("truncated", truncated)
        except Exception:
            return None

    def _rewarded(self, reward: Any, sure: bool) -> np.ndarray:
        """Bool [B]: environments that took this step, as its reward says: in a reset it is 0, but
        where some wrapper adds to it, so only where the caller named the mode. A NaN is a reward
        where it is `sure` who ended before."""
        autoreset = self._autoreset
        try:
            rewards = autoreset._batched(array_of("reward", reward)).reshape(autoreset.count, -1)
            taken = (rewards != 0) & (sure | np.isfinite(rewards))
            return taken.any(1) & (not autoreset._mode_from_env)
        except Exception:
            return np.zeros(autoreset.count, np.bool_)


def _alike(one: Observed, other: Observed | None, lead: np.ndarray, mended: bool) -> np.ndarray:
    """Bool [B], as `lead`: environments whose observations are equal. Where NaNs are refused
    (`mended`) what is not finite in `other` may be finite now; of nothing else nobody knows."""
    alike, known = np.full_like(lead, other is not None), np.full_like(lead, not mended)
    for name, rows in (other or {}).items():
        finite = np.isfinite(rows) if rows.dtype.kind == "f" else np.ones_like(rows, np.bool_)
        equal = (one[name] == rows) | ((one[name] != one[name]) & (rows != rows))
        alike &= (equal | ~finite & mended).reshape(len(alike), -1).all(1)
        known |= finite.reshape(len(alike), -1).any(1)
    return alike & known


def close_gap(writer: Writer, observation: Any, next_observation: Any, said: tuple) -> None:
    """For a step behind one that was not taken; `said`: its reward and its two flags."""
    untaken, last = writer._untaken, writer._last
    untaken.decide(observation, *said)
    if not untaken.gap:
        return
    if writer._held:  # the anchors may not have counted the newest step
        writer._drain(writer.timeout, f"adding {NOT_TAKEN}")
    written = untaken.written or _is_written(writer._rows, last, next_observation)
    end_before(writer, writer._anchors.length > 0, written)
    untaken.gap = untaken.waits = untaken.written = False


def end_before(writer: Writer, mask: np.ndarray, written: bool) -> None:
    """Ends open episodes, bool [B], before a step that was not taken, as truncated, at what the
    newest one led to; without the items that lead there where that is not known."""
    last = writer._last
    unknown = mask & (writer._following.spoilt(last) | written)
    for cut, final in ((unknown, None), (mask & ~unknown, last)):
        cut &= writer._anchors.length > 0
        if cut.any():
            rows = writer._rows.cut(cut, final)
            writer._put(rows, int(final is not None), "ending episodes")


def require_led_to(writer: Writer, cut: np.ndarray, final_observation: Any) -> None:
    """SpecError where open episodes, bool [B], are to end elsewhere than the newest step led to. In
    memory that each step writes over nobody knows any more."""
    apart = writer._following._apart(cut, final_observation, writer._last, writer._before)
    if apart.any():
        raise SpecError(
            f"final_observation of stream {np.argmax(apart)} is not what its newest step led to: "
            "hand in the last observation that step returned, not the one that reset did"
        )


def _is_written(autoreset: Autoreset, last: Any, next_observation: Any) -> bool:
    """Whether it is not known what `last` was: not given, no observation, or in memory that step
    wrote over since."""
    spec = autoreset.spec
    try:
        autoreset._observed(last)
        if next_observation is None:  # nothing was written
            return False
        was, written = (spec.flatten("observation", o) for o in (last, next_observation))
        return any(same_memory(leaf, written[name]) for name, leaf in was.items())
    except SpecError:
        return True


def cut_off(writer: Writer, error: BaseException, taken: bool, next_observation: Any) -> None:
    """Ctrl-C within `add`: it is not known which step comes next, so that one is compared."""
    writer._following.odd = writer._following.zeros
    if taken:
        writer._last = None
        with suppress(Exception):  # a copy, since the same step may be added again
            writer._last = deepcopy(next_observation)
    note_taken(error, taken)


def look_at(writer: Writer, observation: Any, next_observation: Any, now: float) -> None:
    """Cuts the episodes that this step, which is not added yet, does not continue."""
    if writer._held:  # the anchors may not have counted the newest step
        writer._drain(writer.timeout, f"adding {NOT_TAKEN}")
    following, last = writer._following, writer._last
    cut = following.cuts(observation, last, next_observation, writer._anchors)
    if cut is not None:
        writer._restart(cut, last)
        following.odd = following.odd - cut  # where that raises, this call comes again
    writer._look = now + following.pause


def give_up(writer: Writer, observation: Any, error: SpecError) -> None:
    """This step was refused: ends the episodes that it continues with a NaN or infinity."""
    spoilt = writer._following.spoilt(observation) & writer._following.spoilt(writer._last)
    if end_unfinished(writer, spoilt):
        raise SpecError(
            f"{error}; the next_observation of the step before had it too: the episode ends "
            "before that step; reset the environment, and go on with what reset returns"
        ) from error


def end_unfinished(writer: Writer, mask: np.ndarray) -> bool:
    """Ends open episodes of `mask` without the items that lead to their last observation."""
    cut = mask & (writer._anchors.length > 0)
    if cut.any():
        writer._put(writer._rows.cut(cut, None), 0, "ending episodes")
        writer._rows.restart(cut)
    return bool(cut.any())
