"""A file that grows by whole records: each is written whole, or nothing of it stays.

A disk that fills up takes a part of a write and raises nothing. That part is cut off again, so that
the next record does not stand behind a fragment. Several programs may append to one file: a lock
is held over each write, since only the last bytes of a file can be cut off. Without locks (some
network file systems) a record of another program can be cut off with the fragment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room: of the disk, a user, one file


class RecordFile:
    """The open file; made where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, record: bytes) -> None:
        """The whole record at the end; OSError, which names the file, and nothing of it else."""
        done = 0
        with self._locked():
            try:
                while done < len(record):  # a write takes a byte at least, or raises
                    done += os.write(self.file, record[done:])
            except OSError as error:
                self._cut(done)
                raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _cut(self, written: int) -> None:
        """Takes away what this program wrote last, where nobody wrote behind it."""
        end = os.lseek(self.file, 0, os.SEEK_CUR)
        if written and end == os.fstat(self.file).st_size:
            os.ftruncate(self.file, end - written)

    def end_line(self) -> None:
        """A line break where the last line has none: a kill or a crash cut it short."""
        size = os.fstat(self.file).st_size
        if size and os.pread(self.file, 1, size - 1) != b"\n":
            self.append(b"\n")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with contextlib.suppress(OSError):  # a file system without locks is taken as it is
            fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file."""
        os.close(self.file)
