"""One line that says how far a program is: on a terminal it stays in place, elsewhere it is printed
now and then.

    with Progress() as progress:
        progress.show("12000 steps, 900/s, 0:45 left")    as often as there is news
        progress.say("the server is back")                a line that stays
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from .record_file import FULL

PLAIN_S = 5.0  # between two lines where nobody can see a line change


class Progress:
    """The line of one program. `every_s`: seconds between lines where the output is no terminal."""

    def __init__(self, output: TextIO | None = None, every_s: float = PLAIN_S) -> None:
        self.output = sys.stdout if output is None else output
        self.live = self.output.isatty()
        self.every_s, self.at, self.drawn = every_s, float("-inf"), False

    def show(self, text: str) -> None:
        """The newest state; a terminal shows each, a file one in `every_s` seconds."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self._print(f"\r\x1b[K{text[:width]}")
            self.drawn = True
        elif time.monotonic() - self.at >= self.every_s:
            self.at = time.monotonic()
            self._print(f"{text}\n")

    def say(self, sentence: str) -> None:
        """A line that stays; what was shown makes room for it."""
        self._clear()
        self._print(f"{sentence}\n")

    def close(self) -> None:
        """Takes the line away, so that what follows begins at the margin."""
        self._clear()

    def _clear(self) -> None:
        if self.drawn:
            self._print("\r\x1b[K")
            self.drawn = False

    def _print(self, text: str) -> None:
        """Shows it at once. What a full disk does not take (output to a file) ends no program."""
        try:
            print(text, end="", file=self.output, flush=True)
        except OSError as error:
            if error.errno not in FULL:
                raise

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def left(remaining: float, rate: float) -> str:
    """How long `remaining` takes at `rate` a second, in words."""
    if rate <= 0.0:
        return "no end in sight"
    return f"{clock(remaining / rate)} left"


def clock(seconds: float) -> str:
    """1:05, 2:03:04."""
    whole = int(seconds + 0.5)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
