"""The installed command `replay-server`: the same as `python -m replay_server`.

A module of its own, since it has to mind Ctrl-C before it imports what the command needs.
"""

from .support.interrupts import import_quietly, run


def main() -> int:
    """Runs a command; its exit code."""
    import_quietly("__main__")
    from .__main__ import main as command

    return run(command)
