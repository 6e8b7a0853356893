"""A flag that a signal handler may set, whatever its thread is doing at that moment.

A `threading.Event` is not one. Its `set` takes the lock that `wait` takes, and a handler runs in
the main thread between two of its instructions: where it meets that thread inside `wait`, it waits
for a lock that its own thread holds, for ever. `SimpleQueue.put` is documented as reentrant.
"""

from __future__ import annotations

import queue


class StopFlag:
    """Set once, by a handler or a thread; any number of threads may wait for it."""

    def __init__(self) -> None:
        self._asked = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Sets it; from the second time on nothing changes."""
        self._asked = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._asked

    def wait(self, seconds: float) -> bool:
        """Waits, `seconds` at most; whether it was set."""
        try:
            self._wake.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return self._asked
        self._wake.put(None)  # for whoever waits next
        return True
