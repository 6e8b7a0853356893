"""A replay client in plain Python, written from PROTOCOL.md only: no extension, no numpy.

It rebuilds the worked examples (`examples()`), and speaks to a real server over a UDP socket:

    python tests/support/protocol_client.py 127.0.0.1 7400 main

opens a session, pushes steps, one of them in several pieces, and a duplicate, creates an item,
samples, asks for the same batch again, updates its priority. One request at a time; a request is
repeated up to `TRIES` times.
"""

from __future__ import annotations

import argparse
import secrets
import socket
import struct
from dataclasses import dataclass, field

MAGIC, VERSION, ANSWER, CHECKSUMS = 0x314C5052, 2, 0x80, 2
HELLO, OPEN, ECHO, CLOSE, PING, TABLE, WRITER, PUSH = range(1, 9)
SAMPLE, PULL, UPDATE, PUBLISH, BLOB, STATS, RESET = range(9, 16)
OK, BAD_VERSION, UNKNOWN_SESSION, ADDRESS_CHANGED = 0, 2, 8, 10
BLOCKED, EXISTS, WRONG_QUEUE = 23, 35, 53
END, ITEM, PRIORITY = 1, 2, 4
TRIES, TIMEOUT_S = 20, 0.5


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720), 0x1EDC6F41 reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def pad(data: bytes, multiple: int = 8) -> bytes:
    """`data` with zeros up to a multiple."""
    return data + bytes(-len(data) % multiple)


def datagram(
    op: int, id_: int, body: bytes, connection=0, packet=1, table=0, want=1, least=40
) -> bytes:
    """A whole datagram: headers, the body padded to `least` (a request's), the checksum."""
    body = pad(body)
    body += bytes(max(0, least - len(body)))
    outer = struct.pack("<IB3xQQ", MAGIC, VERSION, connection, packet)
    message = struct.pack("<BBHHHQ", op, 0, table, len(body), want, id_)
    crc = crc32c(outer + bytes(16) + message + body)
    return outer + struct.pack("<I12x", crc) + message + body


def round_up(size: int) -> int:
    """The next multiple of 8."""
    return (size + 7) // 8 * 8


def hello(mtu: int) -> bytes:
    """HELLO's body: version 2 alone, with checksums."""
    return struct.pack("<HHIQQ40x", VERSION, VERSION, mtu, CHECKSUMS, CHECKSUMS)


def open_session(cookie: int, mtu: int, budget: int, identity: bytes = b"") -> bytes:
    """OPEN's body: no key, so zeros from there on."""
    head = struct.pack("<QQQIHH", cookie, CHECKSUMS, CHECKSUMS, mtu, VERSION, budget)
    return head + struct.pack("<16s80x", identity)


def table_request(name: str) -> bytes:
    """TABLE's body: ask by name."""
    return struct.pack("<32s", name.encode())


def writer_request(streams: int) -> bytes:
    """WRITER's body."""
    return struct.pack("<H6x", streams)


def run(sequence, step, stream, data: bytes, flags=0, count=1, piece=0, piece_count=1) -> bytes:
    """A run header with its bytes: whole steps, or one piece."""
    head = struct.pack(
        "<QQHHHHHHI", sequence, step, stream, flags, count, piece, piece_count, 0, len(data)
    )
    return head + data


def create(step: int, stream: int, priority: float, flags=0) -> bytes:
    """One create of an item."""
    return struct.pack("<QdHHHH", step, priority, stream, flags, 0, 0)


def push(epoch: int, runs: list[bytes], creates: list[bytes]) -> bytes:
    """PUSH's body."""
    head = struct.pack("<QHHI", epoch, len(runs), len(creates), 0)
    return head + b"".join(runs) + b"".join(creates)


def sample(
    epoch: int, count: int, plan=0, mode=0, uniform=0, budget=8, keys=(), under_way=0
) -> bytes:
    """SAMPLE's body; mode 2 names the keys; under_way: bit i, the id 1 + i below is not done."""
    head = struct.pack("<QIIHBBHHQ", epoch, count, uniform, plan, mode, 0, budget, 0, under_way)
    return head + struct.pack(f"<{len(keys)}Q", *keys)


def pull(batch: int, first: int, count: int) -> bytes:
    """PULL's body."""
    return struct.pack("<QII", batch, first, count)


def update(epoch: int, entries: list[tuple[int, float]]) -> bytes:
    """UPDATE's body: (key, priority) pairs."""
    pairs = b"".join(struct.pack("<Qd", key, priority) for key, priority in entries)
    return struct.pack("<QII", epoch, len(entries), 0) + pairs


def publish(blob: bytes, offset: int, piece: int) -> bytes:
    """PUBLISH's body: the piece of `blob` at `offset`."""
    head = struct.pack("<QQII", len(blob), offset, piece, crc32c(blob))
    return head + blob[offset : offset + piece]


def blob_request(kind: int, version=0, first=0, count=1) -> bytes:
    """BLOB's body: kind 1 a table's spec, 2 weights."""
    return struct.pack("<QIIH6x", version, first, count, kind)


def examples() -> list[tuple[str, bytes]]:
    """The worked examples of PROTOCOL.md, section 11."""
    return [*_handshake(), *_tables(), *_pushes(), *_draws(), *_blobs(), *_refusals()]


SESSION, EPOCH, NONCE = 0x1122334455667001, 0x5151515151515151, 0x0102030405060708
COOKIE, INCARNATION = 0xC0C1C2C3C4C5C6C7, 0xD0D1D2D3D4D5D6D7
FIRST_ANSWER = 0xE0E1E2E3E400  # the number before that of the first answer


def _asked(op: int, id_: int, body: bytes, packet: int, want: int = 1) -> bytes:
    """A request of the example session."""
    return datagram(op, id_, body, SESSION, packet, want=want)


def _answer(op, id_, asked, packet, rest=b"", status=OK, connection=SESSION, weights=0) -> bytes:
    """An answer of the example server to the request with packet number `asked`."""
    head = struct.pack("<QQHHI", INCARNATION, weights, status, 8, 100000)
    number = FIRST_ANSWER + packet
    return datagram(op | ANSWER, id_, head + rest, connection, number, want=asked, least=0)


def _handshake() -> list[tuple[str, bytes]]:
    cookie = struct.pack("<QIHHH6xQQ", COOKIE, 1400, 2, 2, 2, CHECKSUMS, CHECKSUMS)
    opened = struct.pack("<QIIIHHHHIQ48x", SESSION, 1400, 30000, 64, 8, 64, 1, 32, 4096, CHECKSUMS)
    opening = open_session(COOKIE, 1400, 64, b"actor 7")
    return [
        ("hello", datagram(HELLO, NONCE, hello(1400))),
        ("hello_answer", _answer(HELLO, NONCE, 1, 1, cookie, connection=0)),
        ("open", datagram(OPEN, NONCE, opening, packet=2)),
        ("open_answer", _answer(OPEN, NONCE, 2, 2, opened)),
        ("echo", _asked(ECHO, 1, struct.pack("<Q", COOKIE), 3)),
        ("echo_answer", _answer(ECHO, 1, 3, 3)),
        ("ping", _asked(PING, 2, b"", 4)),
        ("ping_answer", _answer(PING, 2, 4, 4)),
    ]


def _tables() -> list[tuple[str, bytes]]:
    info = struct.pack(
        "<32sQQQQQQddddIIIIIIHHHHI28x",
        *(b"main", EPOCH, 64, 0, 0, 0, 1, 0.0, 0.0, 0.0, 1.0),
        *(64, 0, 16, 200, 0x01020304, 2, 0, 1, 0, 0, 16),
    )
    granted = struct.pack("<QQIHH", EPOCH, 0, 4, 1, 2)
    return [
        ("table", _asked(TABLE, 1, table_request("main"), 5)),
        ("table_answer", _answer(TABLE, 1, 5, 5, info)),
        ("writer", _asked(WRITER, 1, writer_request(1), 6)),
        ("writer_answer", _answer(WRITER, 1, 6, 6, granted)),
    ]


def _pushes() -> list[tuple[str, bytes]]:
    whole = run(0, 0, 0, bytes(range(32)), count=2)
    pieces = [
        run(2, 2, 0, bytes(range(32 + 8 * i, 40 + 8 * i)), piece=i, piece_count=2) for i in (0, 1)
    ]

    def pushed(through: int, key: int, committed: int, creates: bytes) -> bytes:
        head = struct.pack("<QQHHI", through, 0, 1, len(creates), 0)
        return head + struct.pack("<QHHI", key, committed, 0, 0) + pad(creates)

    return [
        ("push_run", _asked(PUSH, 1, push(EPOCH, [whole], [create(0, 0, 0.5)]), 7, want=4)),
        ("push_run_answer", _answer(PUSH, 1, 7, 7, pushed(2, 64, 2, bytes([OK])))),
        ("push_piece_0", _asked(PUSH, 2, push(EPOCH, [pieces[0]], []), 8)),
        ("push_piece_0_answer", _answer(PUSH, 2, 8, 8, pushed(2, 66, 0, b""))),
        ("push_piece_1", _asked(PUSH, 3, push(EPOCH, [pieces[1]], []), 9)),
        ("push_piece_1_answer", _answer(PUSH, 3, 9, 9, pushed(3, 66, 1, b""))),
    ]


def _draws() -> list[tuple[str, bytes]]:
    half = 1 << 25
    keyed = sample(EPOCH, 2, mode=2, keys=(64, 65), under_way=1 << 63 | 1)
    batch = struct.pack("<IIII16x", 0, 1, 1288, 2)
    batch += struct.pack("<QQQIIIIQ", EPOCH, half, 67, 1, 1, 16, 0, 64)
    batch += struct.pack("<QQHHI", 64, half, 0, 0, 0) + bytes(range(16))
    return [
        ("sample", _asked(SAMPLE, 1, sample(EPOCH, 1), 10)),
        ("sample_answer", _answer(SAMPLE, 1, 10, 10, batch)),
        ("sample_keys", _asked(SAMPLE, 2, keyed, 11)),
        ("pull", _asked(PULL, 1, pull(1, 0, 1), 12)),
        ("update", _asked(UPDATE, 1, update(EPOCH, [(64, 2.0), (65, 0.0)]), 13)),
        ("update_answer", _answer(UPDATE, 1, 13, 11, struct.pack("<IIII", 1, 0, 1, 0))),
    ]


def _blobs() -> list[tuple[str, bytes]]:
    weights = b"sixteen bytes ok"
    blob = struct.pack("<QQIIII", 1, 16, crc32c(weights), 0, 1, 1288) + weights
    stats = struct.pack("<IIIIQQ", 0, 2, 79, 1, 16, 15)
    epoch = struct.pack("<Q", 0x6161616161616161)
    return [
        ("publish", _asked(PUBLISH, 1, publish(weights, 0, 16), 14)),
        ("publish_answer", _answer(PUBLISH, 1, 14, 12, struct.pack("<QQ", 0, 1), weights=1)),
        ("blob", _asked(BLOB, 1, blob_request(2), 15)),
        ("blob_answer", _answer(BLOB, 1, 15, 13, blob, weights=1)),
        ("stats", _asked(STATS, 1, struct.pack("<II", 0, 2), 16)),
        ("stats_answer", _answer(STATS, 1, 16, 14, stats, weights=1)),
        ("reset", _asked(RESET, 1, struct.pack("<Q", EPOCH), 17)),
        ("reset_answer", _answer(RESET, 1, 17, 15, epoch, weights=1)),
        ("close", _asked(CLOSE, 3, b"", 18)),
        ("close_answer", _answer(CLOSE, 3, 18, 16, weights=1)),
    ]


def _refusals() -> list[tuple[str, bytes]]:
    def named(packet: int, port: int) -> bytes:
        return struct.pack("<QIHH", SESSION, packet, port, 0)

    moved = struct.pack("<QII", COOKIE, 4, 0)
    spoken = struct.pack("<QIHHH6xQQ", 0, 0, 0, 2, 2, CHECKSUMS, CHECKSUMS)
    waits = struct.pack("<IIQ", 1, 1, 7)
    nobody = {"connection": 0, "weights": 1}
    return [
        ("wrong_queue", _answer(PING, 2, 4, 0xE5, named(4, 50001), WRONG_QUEUE, **nobody)),
        ("unknown_session", _answer(CLOSE, 3, 18, 0xE6, named(18, 0), UNKNOWN_SESSION, **nobody)),
        ("address_changed", _answer(PING, 2, 4, 17, moved, ADDRESS_CHANGED, weights=1)),
        ("blocked", _answer(SAMPLE, 1, 10, 18, waits, BLOCKED, weights=1)),
        ("bad_version", _answer(HELLO, NONCE, 1, 19, spoken, BAD_VERSION, **nobody)),
    ]


@dataclass(frozen=True)
class Answer:
    """An accepted answer: its header's fields and what follows the answer header."""

    op: int
    id: int
    connection: int
    status: int
    incarnation: int
    rest: bytes


def parse(data: bytes) -> Answer:
    """Checks an answer as PROTOCOL.md says, in its order; ValueError names what is wrong."""
    if len(data) < 80 or len(data) % 8:
        raise ValueError("length")
    magic, version, connection, _packet, crc = struct.unpack_from("<IB3xQQI", data)
    if magic != MAGIC:
        raise ValueError("magic")
    if version != VERSION:
        raise ValueError("version")
    if crc32c(data[:24] + bytes(16) + data[40:]) != crc:
        raise ValueError("checksum")
    op, _, _table, size, _echo, id_ = struct.unpack_from("<BBHHHQ", data, 40)
    if any(data[5:8]) or any(data[28:40]):
        raise ValueError("reserved")
    if len(data) != 56 + size or not op & ANSWER:
        raise ValueError("size or operation")
    incarnation, _weights, status, _credit, _lapse = struct.unpack_from("<QQHHI", data, 56)
    return Answer(op & ~ANSWER, id_, connection, status, incarnation, data[80:])


@dataclass
class Batch:
    """A sampled batch: what rp_batch tells, and (key, mass, behind, ahead, bytes) per item."""

    epoch: int
    total: int
    drawable: int
    items: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    datagrams: int = 0


class Session:
    """One session over UDP; requests go one at a time."""

    def __init__(self, host: str, port: int, mtu: int = 1400) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, port))
        self.mtu, self.connection, self.packet = mtu, 0, 0
        nonce = secrets.randbits(63) | 1
        answer = self.ask(HELLO, nonce, hello(mtu))
        cookie, self.mtu = struct.unpack_from("<QI", answer.rest)
        answer = self.ask(OPEN, nonce, open_session(cookie, self.mtu, 64))
        self.connection = struct.unpack_from("<Q", answer.rest)[0]

    def close(self) -> None:
        """Tells the server, then closes the socket."""
        self.ask(CLOSE, 1, b"")
        self.socket.close()

    def send(self, op: int, id_: int, body: bytes, table: int) -> None:
        """One transmission: a new packet number, whether it is a repeat or not."""
        self.packet += 1
        self.socket.send(datagram(op, id_, body, self.connection, self.packet, table))

    def receive(self, op: int, id_: int) -> Answer | None:
        """The next datagram if it answers this request; None on silence or anything else."""
        try:
            answer = parse(self.socket.recv(65536))
        except (TimeoutError, ValueError):
            return None
        return answer if (answer.op, answer.id) == (op, id_) else None

    def ask(self, op: int, id_: int, body: bytes, table: int = 0) -> Answer:
        """Repeats a request until it is answered; TimeoutError after TRIES."""
        for _ in range(TRIES):
            self.send(op, id_, body, table)
            answer = self.receive(op, id_)
            if answer is not None:
                if answer.status != OK:
                    raise ValueError(f"operation {op} was answered with status {answer.status}")
                return answer
        raise TimeoutError(f"operation {op} was not answered {TRIES} times")

    def table(self, name: str) -> dict[str, int]:
        """A table's number, epoch, step size and item size of plan 0."""
        rest = self.ask(TABLE, 1, table_request(name)).rest
        epoch, head = struct.unpack_from("<QQ", rest, 32)
        capacity, count, step_bytes = struct.unpack_from("<III", rest, 112)
        number, plans, behind, ahead, item_bytes = struct.unpack_from("<HHHHI", rest, 136)
        return {
            "number": number, "epoch": epoch, "head": head, "capacity": capacity, "count": count,
            "step_bytes": step_bytes, "plans": plans, "behind": behind, "ahead": ahead,
            "item_bytes": item_bytes,
        }  # fmt: skip

    def pushed(self, id_: int, body: bytes, table: int) -> tuple[list[tuple[int, int, int]], bytes]:
        """Sends a PUSH; returns (key, committed, lost) per run and the creates' statuses."""
        rest = self.ask(PUSH, id_, body, table).rest
        _through, _lost, runs, creates = struct.unpack_from("<QQHH", rest)
        done = [struct.unpack_from("<QHH", rest, 24 + 16 * i) for i in range(runs)]
        return done, rest[24 + 16 * runs : 24 + 16 * runs + creates]

    def batch(self, id_: int, body: bytes, table: int, count: int, item_bytes: int) -> Batch:
        """Draws, gathers the stream from its datagrams, pulls what is missing, takes it apart."""
        total = 48 + count * (24 + item_bytes)
        stream, missing = bytearray(total), None
        datagrams, got = 0, 0
        for _ in range(TRIES):
            if missing is None:
                self.send(SAMPLE, id_, body, table)
            else:
                self.send(PULL, id_, pull(id_, missing[0], 1), table)
            while missing is None or missing:
                answer = self.receive(SAMPLE, id_)
                if answer is None:
                    break
                if answer.status != OK:
                    raise ValueError(f"SAMPLE was answered with status {answer.status}")
                index, datagrams, payload, words = struct.unpack_from("<IIII", answer.rest)
                missing = list(range(datagrams)) if missing is None else missing
                begin = index * payload
                part = answer.rest[16 + 8 * words :][: min(payload, total - begin)]
                stream[begin : begin + len(part)] = part
                missing = [other for other in missing if other != index]
                got += 1
            if missing == []:
                return self.take_apart(bytes(stream), count, item_bytes, got)
        raise TimeoutError("the batch did not arrive")

    @staticmethod
    def take_apart(stream: bytes, count: int, item_bytes: int, datagrams: int) -> Batch:
        """The batch's byte stream as head and items."""
        epoch, total, _head, drawable = struct.unpack_from("<QQQI", stream)
        batch = Batch(epoch, total, drawable, datagrams=datagrams)
        for i in range(count):
            entry = struct.unpack_from("<QQHH", stream, 48 + 24 * i)
            begin = 48 + 24 * count + i * item_bytes
            batch.items.append((*entry, stream[begin : begin + item_bytes]))
        return batch


def converse(host: str, port: int, name: str) -> dict[str, object]:
    """The conversation of this file's first lines; returns what came back, for a test to judge."""
    session = Session(host, port)
    table = session.table(name)
    number, epoch, size = table["number"], table["epoch"], table["step_bytes"]
    granted = session.ask(WRITER, 1, writer_request(1), number).rest
    pieces_max = struct.unpack_from("<H", granted, 22)[0]
    last = 1 + table["ahead"]
    steps = [bytes((i * 7 + k) % 251 for i in range(size)) for k in range(last + 1)]
    whole = [push(epoch, [run(k, k, 0, steps[k])], []) for k in range(last)]
    first = [session.pushed(1 + k, body, number)[0][0] for k, body in enumerate(whole)]
    piece = round_up((size + pieces_max - 1) // pieces_max)
    piece_count = (size + piece - 1) // piece
    pieces = []
    for i in range(piece_count):
        part = steps[last][i * piece : (i + 1) * piece]
        cut = run(last, last, 0, part, flags=END, piece=i, piece_count=piece_count)
        pieces += session.pushed(20 + i, push(epoch, [cut], []), number)[0]
    again = session.pushed(40, whole[0], number)[0][0]
    _, made = session.pushed(41, push(epoch, [], [create(0, 0, 1.5)]), number)
    _, repeated = session.pushed(42, push(epoch, [], [create(0, 0, 9.0)]), number)
    item_bytes = table["item_bytes"]
    drawn = session.batch(1, sample(epoch, 4, budget=2), number, 4, item_bytes)
    same = session.batch(1, sample(epoch, 4, budget=2), number, 4, item_bytes)
    entries = [(drawn.items[0][0], 0.25), (first[1][0], 1.0)]
    rest = session.ask(UPDATE, 1, update(epoch, entries), number).rest
    later = session.batch(2, sample(epoch, 1), number, 1, item_bytes)
    session.close()
    return {
        "first": first, "pieces": pieces, "again": again, "made": list(made),
        "repeated": list(repeated), "drawn": drawn, "same": same, "steps": steps, "table": table,
        "updated": struct.unpack_from("<III", rest), "later": later,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("table")
    arguments = parser.parse_args()
    for key, value in converse(arguments.host, arguments.port, arguments.table).items():
        print(f"{key}: {str(value)[:160]}")
