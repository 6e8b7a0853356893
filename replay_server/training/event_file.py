"""Scalars as a TensorBoard event file, written without any package.

A file is a sequence of records; each holds one `Event` in protobuf's encoding:

    u64 length | u32 masked CRC-32C of the length | Event | u32 masked CRC-32C of the Event
    Event   1: double wall_time   2: int64 step   3: string file_version   5: Summary
    Summary 1: Value, repeated    Value 1: string tag   2: float simple_value

The first Event names the version. Records are written whole and unbuffered, so that TensorBoard
shows a run as it goes, and a kill costs at most the last one. One that a full disk does not take
leaves nothing behind (record_file.py): a reader stops at a broken record. Tests read the files
back with TensorBoard's own reader. To look: `pip install tensorboard`, `tensorboard --logdir RUN`.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .._native import ffi, lib
from .record_file import RecordFile

VERSION = b"brain.Event:2"
DOUBLE, VARINT, BYTES, FLOAT = 1, 0, 2, 5  # protobuf's wire types
_numbers = itertools.count()  # two files of one process and second differ


def _varint(number: int) -> bytes:
    """A count in base 128, the lowest digits first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _varint(len(data)) + data


def _masked(data: bytes) -> bytes:
    """The checksum as records hold it: rotated and shifted, so that it can be summed itself."""
    crc = lib.rp_crc32c(0, ffi.from_buffer(data), len(data))
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + _masked(length) + event + _masked(event)


def _event(wall_time: float, step: int) -> bytes:
    head = struct.pack("<Bd", 1 << 3 | DOUBLE, wall_time)
    return head + _varint(2 << 3 | VARINT) + _varint(step)


class EventFile:
    """One event file in `folder`; a program that starts again begins another one there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"{int(now)}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        self.path = folder / f"events.out.tfevents.{name}"
        self.file = RecordFile(self.path)
        self.file.append(_record(_event(now, 0) + _bytes(3, VERSION)))

    def write(self, wall_time: float, step: int, values: Mapping[str, float]) -> None:
        """The scalars of one step (at least 0); OSError, and none of them, on a full disk."""
        summary = b""
        for tag, value in values.items():
            with np.errstate(over="ignore"):  # what no float32 holds is an infinity
                number = struct.pack("<B", 2 << 3 | FLOAT) + np.float32(value).tobytes()
            summary += _bytes(1, _bytes(1, tag.encode()) + number)
        self.file.append(_record(_event(wall_time, step) + _bytes(5, summary)))

    def close(self) -> None:
        """Closes the file."""
        self.file.close()
