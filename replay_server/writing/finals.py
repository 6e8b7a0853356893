"""Final observations of same-step environments: where they lie, and whether they are final.

Such an environment resets in the step that ends an episode. Then `next_observation` is the reset's,
and the final one lies in `infos`. A caller that hands in next_observation as the final one, as
loops of other replay buffers do, would store transitions into the next episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..spec import SpecError

if TYPE_CHECKING:
    from .autoreset import Autoreset

FINALS = ("final_obs", "final_observation")  # in infos, by Gymnasium's release


def finals_in(infos: Mapping[str, Any] | None) -> str | None:
    """The name that final observations have in `infos`; None where there are none."""
    return next((name for name in FINALS if infos and name in infos), None)


def is_per_environment(final_observation: Any) -> bool:
    """True for None and for Gymnasium's object array with one entry an environment."""
    return final_observation is None or (
        isinstance(final_observation, np.ndarray) and final_observation.dtype == np.object_
    )


def require_said(autoreset: Autoreset, infos: Any, final_observation: Any) -> None:
    """SpecError where these are nothing of the kind, also at steps that end no episode: what is
    wrong there is wrong at the end too, and found hours earlier."""
    if not (infos is None or isinstance(infos, Mapping | list | tuple)):
        raise SpecError(
            f"infos is {infos!r:.100}; expected the dict that step returned, or leave it out"
        )
    try:
        if not is_per_environment(final_observation):
            autoreset._observed(final_observation)
        elif final_observation is not None and len(final_observation) != autoreset.count:
            raise SpecError(
                f"expected one for each of {autoreset.count}, got {len(final_observation)}"
            )
    except SpecError as error:
        raise SpecError(f"final_observation: {error}") from error


def bytes_of(rows: np.ndarray) -> np.ndarray:
    """[E, *shape] as bytes [E, K], so that equal means bit for bit."""
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)


def require_final(
    ended: np.ndarray,
    closing: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    in_infos: np.ndarray,
    begun: Mapping[str, np.ndarray],
) -> None:
    """SpecError where the final observations `closing` that the caller gave are the resets'.

    {column: [E, *shape]} of the environments `ended` [B], the same of what infos holds (`others`;
    `in_infos` [E]: where it does hold one), and [B, *shape] of next_observation.
    """
    which = np.flatnonzero(ended)
    resets, differs = np.ones(len(which), np.bool_), np.zeros(len(which), np.bool_)
    for name, rows in closing.items():
        final, other = bytes_of(rows), bytes_of(others[name])
        resets &= (final == bytes_of(begun[name][which])).all(1)
        differs |= (final != other).any(1)
    wrong = resets & in_infos & differs
    if wrong.any():
        raise SpecError(
            f"environment {which[np.argmax(wrong)]} ended, and its final_observation is "
            "next_observation, which is the reset's in the mode 'same-step'; infos holds another "
            "one: leave final_observation out, and infos is read"
        )
