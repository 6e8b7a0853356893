"""A writer that waits where others raise, and says so once.

The table's limiter holds an actor back while no learner samples. That may last minutes, and a new
session would not help. A call that times out has taken nothing, so to wait is to call again. A
server that acknowledges nothing is reported after QUIET_S and given up after SILENCE_S, whether the
writer still takes rows or not, so that the caller can connect anew. Waits are cut into slices,
between which a signal is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from actor.bounds import Ahead
from replay_server import LimiterBlocked, Ready, Timeout
from replay_server.training.contact import describe
from replay_server.writer import Writer
from replay_server.writing.autoreset import Rows
from replay_server.writing.writers import WriterState

SLICE_S = 0.5
QUIET_S = 1.0
SILENCE_S = 5.0
SAID_S = 60.0  # a limiter that holds back again and again is at work: it is said once so long


class WaitingWriter:
    """A writer for an actor. `stopped` ends each wait; `say` gets one sentence for a wait, and none
    for others within SAID_S.

    held: whether the limiter holds the newest call back, so that it is not taken yet.
    """

    def __init__(
        self,
        writer: Writer,
        wait_max_s: float,
        stopped: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self.writer, self.wait_max_s, self.stopped, self.say = writer, wait_max_s, stopped, say
        self.streams = writer.streams
        writer.timeout = SLICE_S
        self.heard, self.heard_at, self.said_quiet = (0, 0, False), time.monotonic(), False
        self.held, self.said_held = False, -SAID_S

    def append(self, rows: Rows) -> Ready:
        """As Writer.append, once everything before is taken."""
        return self._repeat(lambda: self.writer.append(rows))

    def create(self, streams: Any, steps: Any, priorities: Any = None) -> None:
        """As Writer.create, once everything before is taken."""
        self._repeat(lambda: self.writer.create(streams, steps, priorities))

    def send(self) -> None:
        """As Writer.send; Timeout where nothing is acknowledged any more."""
        self._repeat(self.writer.send)
        self._listen()

    def flush(self) -> None:
        """As Writer.flush."""
        self._repeat(self.writer.flush)

    def state(self) -> WriterState:
        """As Writer.state."""
        return self.writer.state()

    def ledger(self) -> Any:
        """As Writer.ledger."""
        return self.writer.ledger()

    @property
    def weights_version(self) -> int:
        """As Writer.weights_version."""
        return self.writer.weights_version

    def close(self, timeout: float | None = None) -> None:
        """As Writer.close."""
        self.writer.close(timeout)

    def _listen(self) -> None:
        """Notices that acknowledgements have stopped, long before the writer takes no more, and
        that more is taken than may be."""
        state, now = self.writer.state(), time.monotonic()
        Ahead(state.unacknowledged, state.unacknowledged_max, None, None).check()
        # The silence begins with the first row under way, not while there was nothing to answer.
        heard = state.steps_stored, state.items_created, state.unacknowledged > 0
        if heard != self.heard or state.need or not state.unacknowledged:
            self.heard, self.heard_at, self.said_quiet = heard, now, False
            return
        silence = now - self.heard_at
        sentence = f"{state.unacknowledged} rows are not acknowledged, none for {silence:.1f} s"
        if silence >= SILENCE_S:
            raise Timeout(f"{sentence}: is the server running?")
        if silence >= QUIET_S and not self.said_quiet:
            self.say(f"the server is silent: {sentence}")
            self.said_quiet = True

    def _repeat(self, call: Callable[[], Any]) -> Any:
        """`call` again and again until it does not time out, or it is time to give up.

        A call that times out has taken nothing, so repeating it does nothing twice.
        """
        begin = heard = time.monotonic()
        said = False
        while True:
            try:
                result = call()
                self.held = False
                return result
            except LimiterBlocked as blocked:
                heard, self.held = time.monotonic(), True
                if heard - begin >= self.wait_max_s or self.stopped():
                    raise
                if not said and heard - self.said_held >= SAID_S:
                    self.say(f"waiting: {describe(blocked)}")
                    self.said_held = heard
                said = True
            except Timeout:
                if time.monotonic() - heard >= SILENCE_S or self.stopped():
                    raise
