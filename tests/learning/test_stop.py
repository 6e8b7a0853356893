"""A signal ends a program between two steps, a second one at once: whoever set the flag before."""

from __future__ import annotations

import os
import signal

import pytest

from replay_server.training.contact import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("over", [False, True], ids=["running", "at its own end"])
def test_the_second_signal_is_the_one_that_ends_at_once(number, over):
    """Given a program that runs, and one that has set its flag itself since its work is done.
    Expect the first signal to be a flag, the second KeyboardInterrupt, and the handlers that were
    there before put back."""
    before = signal.getsignal(number)
    with Stop() as stop:
        if over:
            stop.event.set()
        os.kill(os.getpid(), number)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
