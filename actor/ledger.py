"""Compares the rows that the server acknowledged to an actor with the rows that it has.

The actor's half keeps the hash of every row it pushed until the server acknowledges it under a key,
then appends "key hash" to a file. The reader's half, `python -m actor.ledger FILE --server URL`,
asks the server for those keys and compares: a row that is gone must be older than the table's
capacity, or it is missing.

A row's hash is the first 16 hex digits of the SHA-256 of its columns, in the spec's order.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from actor.waiting_writer import WaitingWriter
from replay_server import Client, ConfigError, Ready, ReplayError, Spec
from replay_server.support.arguments import argument, option, parse
from replay_server.training.record_file import RecordFile
from replay_server.writing.autoreset import Rows

READ_AT_ONCE = 256


def row_hash(spec: Spec, columns: Mapping[str, Any], i: int) -> str:
    """The hash of row `i` of `columns` {name: [rows, *shape]}."""
    digest = hashlib.sha256()
    for column in spec:
        digest.update(np.ascontiguousarray(columns[column.name][i], column.dtype).tobytes())
    return digest.hexdigest()[:16]


class Ledger:
    """The actor's half: the file, and the writers that are watched for it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file: RecordFile | None = RecordFile(path)

    def watch(self, writer: WaitingWriter, spec: Spec) -> Watched:
        """`writer`, with every row it appends written down once it is acknowledged."""
        return Watched(writer, spec, self)

    def write(self, lines: str) -> None:
        """All of the lines. Where the disk takes none, says so once, and is left out from then on:
        what is written down stays true, and the actor goes on."""
        try:
            if self.file is not None:
                self.file.append(lines.encode())
        except OSError as error:
            print(f"actor: {error}: the ledger ends here, the actor goes on", file=sys.stderr)
            self.close()

    def close(self) -> None:
        """Closes the file."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


class Watched:
    """A writer that keeps the hash of each row until the server acknowledges the row."""

    def __init__(self, writer: WaitingWriter, spec: Spec, ledger: Ledger) -> None:
        self.writer, self.spec, self.ledger = writer, spec, ledger
        self.hashes: dict[tuple[int, int], str] = {}
        self.next_step = np.zeros(writer.streams, np.int64)

    def append(self, rows: Rows) -> Ready:
        """As WaitingWriter.append; closing rows are counted, not hashed."""
        for i, stream in enumerate(rows.streams.tolist()):
            place = stream, int(self.next_step[stream])
            self.hashes[place] = row_hash(self.spec, rows.columns, i)
        self.next_step[rows.streams] += 1
        self.next_step[rows.ended_streams] += 1
        return self.writer.append(rows)

    def create(self, streams: Any, steps: Any, priorities: Any = None) -> None:
        """As WaitingWriter.create."""
        self.writer.create(streams, steps, priorities)

    def send(self) -> None:
        """As WaitingWriter.send; then writes down what was acknowledged meanwhile."""
        self.writer.send()
        self._write_down()

    def state(self) -> Any:
        """As WaitingWriter.state."""
        return self.writer.state()

    def flush(self) -> None:
        """As WaitingWriter.flush; then writes down what was acknowledged."""
        self.writer.flush()
        self._write_down()

    @property
    def weights_version(self) -> int:
        """As WaitingWriter.weights_version."""
        return self.writer.weights_version

    def close(self, timeout: float | None = None) -> None:
        """As WaitingWriter.close."""
        self.writer.close(timeout)

    def _write_down(self) -> None:
        lines = []
        for step, key, stream, _ in self.writer.ledger().tolist():
            known = self.hashes.pop((stream, step), None)
            if known is not None:
                lines.append(f"{key} {known}\n")
        if lines:
            self.ledger.write("".join(lines))


@dataclass
class Args:
    """The reader's arguments."""

    file: Path = argument("Ledger written by an actor.")
    server: str = option("Address of the replay server.", "udp://127.0.0.1:7400", shown="URL")
    table: str = option("Table the rows went to.", "main")


def _entries(path: Path) -> list[list[str]]:
    """The whole lines of the file; ConfigError where one is no "key hash"."""
    lines = path.read_bytes().splitlines(keepends=True)
    entries = [line.split() for line in lines if line.endswith(b"\n")]
    for number, entry in enumerate(entries, 1):
        if len(entry) != 2 or not entry[0].isdigit() or int(entry[0]) >= 1 << 64:
            raise ConfigError(
                f"{path} is no ledger: its line {number} is not a key and a hash; give the file "
                "that an actor with --ledger wrote, RUN/NAME.ledger"
            )
    return [[part.decode(errors="replace") for part in entry] for entry in entries]


def compare(client: Client, table: str, path: Path) -> dict[str, int]:
    """Counts of acknowledged rows: equal, different, overwritten (older than the ring), missing."""
    info = client.table(table)
    entries = _entries(path)
    counts = {"acknowledged": len(entries), "equal": 0, "different": 0, "overwritten": 0}
    counts["missing"] = 0
    for begin in range(0, len(entries), READ_AT_ONCE):
        part = entries[begin : begin + READ_AT_ONCE]
        keys = np.array([int(key) for key, _ in part], np.uint64)
        rows, valid = client.rows(table, keys)
        head = client.table(table).head
        for i, (key, known) in enumerate(part):
            if valid[i]:
                same = row_hash(info.spec, rows, i) == known
                counts["equal" if same else "different"] += 1
            else:
                old = int(key) < head - info.capacity
                counts["overwritten" if old else "missing"] += 1
    return counts


def main(argv: list[str] | None = None) -> int:
    """Prints the counts; exit code 1 where anything acknowledged is missing or different."""
    args = parse(Args, __doc__.splitlines()[0], argv, "python -m actor.ledger")
    try:
        with Client(args.server) as client:
            counts = compare(client, args.table, args.file)
    except (ReplayError, OSError) as error:
        print(f"ledger: {error}", file=sys.stderr)
        return 2
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["different"] or counts["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
