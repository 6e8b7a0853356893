"""The owner of a writer or of an iterator of batches: one thread, that makes one call at a time.

Its owner is that thread's number. A signal's handler runs within whatever its thread is doing, so
the number is negative while a call is under way. What stores it calls nothing in between:

    me = get_ident()
    if self._owner != me:
        claim(...)
    try:
        self._owner = -me
        ...
    finally:
        self._owner = me
"""

from __future__ import annotations

import threading

from ..errors import ConfigError


def refuse_within(what: str) -> ConfigError:
    """The error of a handler that calls `what` within a call of its thread."""
    return ConfigError(
        f"{what} is within a call already, and a signal's handler (or a callback) called it again: "
        "set a flag in the handler, and call it from the loop"
    )


def expect_free(owner: int | None, me: int, what: str, why: str) -> None:
    """ConfigError where `what` is another living thread's, and `why` that is so; or where this
    thread is within a call of it."""
    if owner == -me:
        raise refuse_within(what)
    # a thread that is being started has no number either
    owners = [each.name for each in threading.enumerate() if each.ident == abs(owner or 0)]
    if owner and owners:
        raise ConfigError(f"{what} belongs to thread {owners[0]!r}, {why}")
