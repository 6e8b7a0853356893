"""Errors of environments: those that are not to be had, and what a stranger's code raises."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path


class EnvError(ValueError):
    """An environment that is not to be had, and what to do about it, in one sentence.

    exit_code: of the program that ends with it: asked wrong, so that it is not started again.
    """

    exit_code = 2


class EnvironmentsDied(EnvError):
    """A process that steps some of them ended: who plays them has to be started again."""

    exit_code = 1


def raised(what: str, error: Exception) -> str:
    """Who raised what, and in which line: it is the environment's author who can mend it."""
    at = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in at)
    return f"{what} raised {type(error).__name__}: {error}{where}"


@contextlib.contextmanager
def environments(env_id: str, what: str) -> Iterator[None]:
    """A stranger's code runs within: what its `what` ("step") raises is an EnvError; one that says
    so already is passed on."""
    try:
        yield
    except EnvError:
        raise
    except Exception as error:
        raise EnvError(f"environment {env_id!r}: {raised(f'its {what}', error)}") from error
