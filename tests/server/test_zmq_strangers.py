"""What a stranger on TCP can do to a `zmq+tcp://` server: ZMTP 3 spoken by hand, wrong on purpose.

The server is a process of its own where its memory is looked at.
"""

from __future__ import annotations

import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import protocol_client as spoken
import pytest
from conformance import Place, plain, plain_rows

from replay_server import Client
from replay_server.__main__ import main

PLACE = Place("zmq")
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
MORE, LONG, COMMAND = 1, 2, 4
ATTACK_BYTES, GROWTH_KIB_MAX = 300 << 20, 32 << 10


def frame(flags: int, body: bytes) -> bytes:
    """A frame of ZMTP."""
    if len(body) > 255:
        return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def dialled(address: str) -> socket.socket:
    host, port = re.fullmatch(r"zmq\+tcp://([\d.]+):(\d+).*", address).groups()
    made = socket.create_connection((host, int(port)), timeout=20.0)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def received(peer: socket.socket, count: int) -> bytes:
    said = b""
    while len(said) < count and (more := peer.recv(count - len(said))):
        said += more
    return said


def introduced(address: str) -> socket.socket:
    """A connection that has shaken hands."""
    peer = dialled(address)
    peer.sendall(GREETING)
    assert received(peer, 64)[:12] == b"\xff" + bytes(8) + b"\x7f\x03\x00"
    peer.sendall(READY)
    assert received(peer, 30)[3:8] == b"READY"
    return peer


def is_ended(peer: socket.socket) -> bool:
    """Whether the other end hangs up; what it still says is read."""
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


@contextmanager
def serving(*options: str):
    """(address, pid) of a server in a process of its own."""
    command = [sys.executable, "-m", "replay_server", "serve", "--env", "CartPole-v1"]
    command += ["--url", "zmq+tcp://127.0.0.1:0", "--capacity", "4096", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stdout.readline, "")
            said = next(line for line in lines if line.startswith("serving at"))
            yield said.split()[2], process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def resident_kib(pid: int) -> int:
    """The most memory the process has had since the last `forget_peak`."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def pour(peer: socket.socket, total: int) -> int:
    """Sends one endless message; how much of it was taken before the other end hung up."""
    piece, sent = frame(MORE, bytes(60_000)), 0
    try:
        while sent < total:
            peer.sendall(piece)
            sent += len(piece)
    except ConnectionError:
        pass
    return sent


def test_one_endless_message_does_not_grow_the_server():
    """Given a peer that shook hands and sends 300 MiB as one message. Expect the server's memory to
    grow by less than 32 MiB, and another client to be served meanwhile."""
    with serving() as (address, pid), Client(address) as client:
        client.ping()
        forget_peak(pid)
        before = resident_kib(pid)
        with introduced(address) as peer:
            half = pour(peer, ATTACK_BYTES // 2)
            client.ping()
            assert client.stats().counters["drop_magic"] > 0
            assert half + pour(peer, ATTACK_BYTES // 2) >= ATTACK_BYTES
        client.ping()
        assert resident_kib(pid) - before < GROWTH_KIB_MAX


@pytest.mark.parametrize("greets", [True, False])
def test_without_a_key_nobody_gets_that_far(tmp_path, greets):
    """Given a server with keys, and the same peer without. Expect the end, at no cost."""
    pytest.importorskip("zmq")
    assert main(["keygen", str(tmp_path / "keys"), "--clients", "actor"]) == 0
    keys = ["--curve-secret-key", str(tmp_path / "keys" / "server.key_secret")]
    keys += ["--curve-clients", str(tmp_path / "keys" / "clients")]
    mine = {
        "curve_server_key": str(tmp_path / "keys" / "server.key"),
        "curve_secret_key": str(tmp_path / "keys" / "actor.key_secret"),
    }
    with serving(*keys) as (address, pid), Client(address, **mine) as client:
        client.ping()
        forget_peak(pid)
        before = resident_kib(pid)
        with dialled(address) as peer:
            curve = GREETING.replace(b"NULL\0", b"CURVE")
            peer.sendall((GREETING + READY) if greets else curve)
            assert pour(peer, ATTACK_BYTES) < ATTACK_BYTES
        client.ping()
        assert resident_kib(pid) - before < GROWTH_KIB_MAX


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(64),
        GREETING.replace(b"\x7f\x03", b"\x7f\x01"),
        GREETING.replace(b"NULL", b"PLAIN"),
        GREETING + frame(0, b"no READY before it"),
        GREETING + frame(COMMAND, b"\x05ERROR\x00"),
        GREETING + READY + b"\x08\x00",
        GREETING + READY + b"\x02" + (1 << 20).to_bytes(8, "big"),
        GREETING + READY + b"\x02" + b"\xff" * 8,
    ],
)
def test_what_is_no_zmtp_of_ours_ends_the_connection(said):
    """Given a wrong greeting, command, flag or size. Expect the end, a count, and others served."""
    with PLACE.pair(plain()) as (server, client), dialled(server.address) as peer:
        peer.sendall(said)
        assert is_ended(peer)
        facts = {fact.name: fact.value for fact in server.stats().facts}
        assert facts["connections_ended"] == 1
        assert len(client.extend("main", plain_rows(10))) == 10


def test_a_heartbeat_is_answered_and_frames_may_come_in_any_pieces():
    """Given PINGs byte by byte, long frames cut anywhere. Expect PONGs with their context, in
    order; of PINGs that come together the newest has one, so the last of all has."""
    chance = random.Random(5)
    with PLACE.pair(plain()) as (server, client), introduced(server.address) as peer:
        said, pongs = b"", []
        for number in range(40):
            context = bytes([number]) * (number % 17)
            said += frame(COMMAND, b"\x04PING\x00\x0a" + context)
            said += frame(number % 2, bytes(chance.randrange(1, 70) * (1 + 90 * (number % 3))))
            pongs.append(frame(COMMAND, b"\x04PONG" + context))
        while said:
            cut = chance.randrange(1, 900)
            peer.sendall(said[:cut])
            said = said[cut:]
        heard = b""
        while not heard.endswith(pongs[-1]):
            heard += received(peer, 1)
        for pong in pongs:
            heard = heard.removeprefix(pong)
        assert heard == b""
        assert server.counters()["dropped_in"] == 0
        assert len(client.extend("main", plain_rows(10))) == 10


def test_places_are_for_those_who_shake_hands():
    """Given more silent connections than there are places. Expect a client to get one."""
    with PLACE.served(plain()) as server:
        silent = [dialled(server.address) for _ in range(260)]
        with Client(server.address) as client:
            client.extend("main", plain_rows(10))
            assert client.size("main") == 10
        for each in silent:
            each.close()


def test_who_shakes_hands_and_stays_silent_keeps_nobody_out():
    """Given as many silent connections as there are places, all with a handshake. Expect clients to
    get in, and to keep their connections while more strangers come."""
    with PLACE.served(plain()) as server:
        silent = [introduced(server.address) for _ in range(256)]
        with Client(server.address) as client, Client(server.address) as other:
            client.extend("main", plain_rows(10))
            silent += [introduced(server.address) for _ in range(256)]
            assert client.size("main") == other.size("main") == 10
            facts = {fact.name: fact.value for fact in server.stats().facts}
            assert facts["connections"] == 256 and facts["connections_displaced"] == 258
            assert server.counters()["sessions"] == 2
        for each in silent:
            each.close()


def asked(peer, op, number, body, connection=0, packet=1):
    """What a datagram of ours is answered with."""
    peer.sendall(frame(0, spoken.datagram(op, number, body, connection, packet)))
    flags, size = received(peer, 2)
    if flags & LONG:
        size = int.from_bytes(bytes([size]) + received(peer, 7), "big")
    return spoken.parse(received(peer, size))


def test_who_says_hello_and_opens_nothing_keeps_nobody_out():
    """Given as many strangers as there are places, all answered by the replay server. Expect
    clients to get in."""
    with PLACE.served(plain()) as server:
        strangers = [introduced(server.address) for _ in range(256)]
        for number, each in enumerate(strangers):
            assert asked(each, spoken.HELLO, number + 1, spoken.hello(1400)).status == spoken.OK
        with Client(server.address) as client, Client(server.address) as other:
            client.extend("main", plain_rows(10))
            assert client.size("main") == other.size("main") == 10
        for each in strangers:
            each.close()


@pytest.mark.parametrize("moves", [False, True])
def test_a_session_holds_one_connection(moves):
    """Given one session that is named from every place, or moved to each. Expect clients to get
    in, and the session where it is last to stay."""
    with PLACE.served(plain()) as server:
        peers = [introduced(server.address) for _ in range(256)]
        hello = asked(peers[0], spoken.HELLO, 1, spoken.hello(1400))
        opening = spoken.open_session(int.from_bytes(hello.rest[:8], "little"), 1400, 64)
        session = asked(peers[0], spoken.OPEN, 1, opening).connection
        for number, each in enumerate(peers[1:], 1):
            named = asked(each, spoken.PING, number, b"", session, 2 * number)
            assert named.status != spoken.OK
            if moves:
                echo = named.rest[:8]
                answer = asked(each, spoken.ECHO, number, echo, session, 2 * number + 1)
                assert answer.status == spoken.OK
        at = peers[-1 if moves else 0]
        with Client(server.address) as client, Client(server.address) as other:
            client.extend("main", plain_rows(10))
            assert client.size("main") == other.size("main") == 10
            assert asked(at, spoken.PING, 999, b"", session, 999).status == spoken.OK
        for each in peers:
            each.close()


def test_junk_behind_a_handshake_harms_nobody():
    """Given random bytes from 200 connections, by one seed. Expect the server to go on."""
    chance = random.Random(11)
    with PLACE.pair(plain()) as (server, client):
        for number in range(200):
            with dialled(server.address) as peer:
                said = GREETING + READY if number % 4 else chance.randbytes(80)
                said += b"".join(
                    frame(chance.randrange(9), chance.randbytes(chance.randrange(400)))
                    for _ in range(chance.randrange(5))
                )
                said += chance.randbytes(chance.randrange(3000))
                try:
                    peer.sendall(said)
                except ConnectionError:
                    continue
        assert len(client.extend("main", plain_rows(10))) == 10
