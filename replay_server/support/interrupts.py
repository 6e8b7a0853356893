"""Ctrl-C in a program: it ends with exit code 130 and no traceback, from its first import on.

    from replay_server.support.interrupts import import_quietly, run

    import_quietly(__name__)

    import torch  ...                           seconds, in which Ctrl-C is as good as at any time

    if __name__ == "__main__":
        sys.exit(run(main))

Where a module is imported, and not run, all of this does nothing. A program that is started to
ignore Ctrl-C (nohup, a job in the background of a script) goes on ignoring it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130  # a shell's exit code for the end by SIGINT


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def import_quietly(name: str) -> None:
    """Until `run`, Ctrl-C ends the process at once; `name`: the __name__ of whoever calls."""
    if name == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def run(main: Callable[[], int]) -> int:
    """main(), with Ctrl-C as Python has it; the exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return main()
    except KeyboardInterrupt:
        return INTERRUPTED
