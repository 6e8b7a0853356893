"""Whether an episode that begins where the one before it ended is a mistake, or right.

A caller that resets before it adds the step hands in the reset's observation as the final one. An
environment that nobody resets, or that resets itself unknown to the writer, goes on with its final
observation. In both cases each episode begins with the final observation of the one before.
Identity of objects proves nothing: callers copy, and environments hand out their own memory.

Some environments begin where they ended, and are right: one that always shows the same, one that
ends where all episodes begin, one with few places. So an end counts against the caller only where
both hold: the final observation is not what the action was chosen from; and it is no known start,
which is an observation that was handed in first, or that began an episode without being the final
one before it. With few places, a start equals a final observation by chance now and then.
Observations with floats, or of EXACT_BYTES, are taken never to be equal by chance, until a start
comes back. Of others, an end counts only as long as no episode at all began elsewhere.

    exact          the first such end is warned of, AGAIN_MAX in a row are refused
    few places     warned of at once where the mode was named, else after AGAIN_MAX; refused where
                   all environments together had FEW_MAX, too
    a known start  a hint, never more: at once where the mode was named, else after FEW_MAX
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ..errors import Once
from ..spec import Column, SpecError
from .finals import bytes_of

EXACT_BYTES = 64
AGAIN_MAX, FEW_MAX = 3, 8  # ends in a row after which an environment went on where it ended
STARTS_MAX = 1024
HINT = (
    "the environment ended, and the next step was given its final observation again: perhaps "
    "nobody reset it, or next_observation was the reset's already (add each step before you "
    "reset); hand an environment that resets itself over: client.writer(..., autoreset=env); if it "
    "starts there by chance, ignore this or call writer.restart()"
)
AGAIN = (
    "environment {i} ended, and the next step was given its final observation again: nobody reset "
    "it, or it resets itself and the mode {mode!r} is not its own, or next_observation was the "
    "reset's already: add each step before you reset; made-up steps would be stored and items run "
    "from one episode into the next: hand the environment over (client.writer(..., "
    "autoreset=env)), or name its mode; where it was reset and starts there, say so: "
    "writer.restart(mask)"
)
RESETS = (
    "environment {i} ended, and the next step was given its final_observation: that is "
    "next_observation, the reset's; hand in infos as step returned them, or the last observation "
    "before the reset; where it starts there, ignore this"
)


def keys_of(rows: Mapping[str, np.ndarray]) -> list[int]:
    """One number for each row of {column: [E, *shape]}, the same for the same bytes."""
    parts = [bytes_of(column) for column in rows.values()]
    return [hash(b"".join(part.tobytes() for part in row)) for row in zip(*parts, strict=True)]


class Starts:
    """The starts of one writer. `own`: the environment said its mode, not the caller."""

    def __init__(self, observations: Iterable[Column], count: int, mode: str, own: bool) -> None:
        columns = list(observations)
        self._few = not any(column.dtype.kind == "f" for column in columns)
        self._few &= sum(column.size for column in columns) < EXACT_BYTES
        self._mode_from_env, self._mode = own, mode
        self._met: dict[int, bool] = {}  # the newest starts by key; True: a known one
        self._again = np.zeros(count, np.int64)  # ends in a row that spoke
        self._alike = 0  # ends after which some environment went on where it ended, and had moved
        self._elsewhere, self._warn_once = False, Once()  # some episode began elsewhere

    @property
    def unknown(self) -> bool:
        """Whether no start is known yet."""
        return not self._met

    def begin(self, observed: Mapping[str, np.ndarray]) -> None:
        """The observations that the first actions are chosen from: {column: [B, *shape]}."""
        self._met = dict.fromkeys(keys_of(observed)[:STARTS_MAX], True)

    def look(
        self,
        which: np.ndarray,
        begun: Mapping[str, np.ndarray],
        closing: Mapping[str, np.ndarray],
        equal: np.ndarray,
        known: np.ndarray,
        moved: np.ndarray,
    ) -> None:
        """The environments `which` [E] ended with `closing` and go on with `begun`: {column: [E,
        *shape]}. SpecError where that is no chance, with nothing changed; or one warning.

        Bool [E]: whether these are equal, the final one is known, and the last step moved.
        """
        if self._few and self._elsewhere:
            return  # no end speaks any more
        keys, alike, apart = keys_of(begun), known & equal, known & ~equal
        few = self._few or any(key in self._met for key in keys)
        elsewhere = self._elsewhere or bool(apart.any())
        again, count = self._again[which], self._alike + int((alike & moved).sum())
        if alike.any():
            start = [self._met.get(key, False) for key in keys_of(closing)]
            spoke = alike & moved & ~np.array(start)
            again = again + spoke
            worst = int(np.argmax(np.where(spoke, again, 0)))
            if not (few and elsewhere) and spoke[worst]:
                least = AGAIN_MAX if few and self._mode_from_env else 1
                every = int(self._again.sum() + spoke.sum())
                sure = again[worst] >= AGAIN_MAX and not (few and every < FEW_MAX)
                sentence = self._sentence(int(which[worst]))
                if sure:
                    raise SpecError(sentence)
                if again[worst] >= least:
                    self._warn_once(sentence)
            elif not elsewhere and (not self._mode_from_env or count >= FEW_MAX):
                i = int(which[np.argmax(alike)])
                self._warn_once(HINT if self._mode == "single" else self._sentence(i))
        self._again[which] = np.where(apart, 0, again)
        self._few, self._elsewhere, self._alike = few, elsewhere, count
        for key, other in zip(keys, ~equal, strict=True):
            self._met[key] = self._met.pop(key, False) or bool(other)
        while len(self._met) > STARTS_MAX:
            del self._met[next(iter(self._met))]

    def _sentence(self, i: int) -> str:
        return (RESETS if self._mode == "same-step" else AGAIN).format(i=i, mode=self._mode)
