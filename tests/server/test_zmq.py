"""`zmq+tcp://` beside the conformance suite: framing, keys, strangers at either end, and the end.

The other side is pyzmq itself, driven by hand: what stands on the wire is PROTOCOL.md's section 12.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zmq
from conformance import Place, plain, plain_rows
from until import until

from replay_server import (
    Client,
    Column,
    ConfigError,
    NotAuthorised,
    ReplayError,
    Row,
    Server,
    Spec,
    Table,
    Timeout,
    Uniform,
)
from replay_server.__main__ import EXIT_USAGE, main
from replay_server.errors import Insecure, TransportError
from replay_server.serving import zmq_transport

ROOT = Path(__file__).resolve().parents[2]
URL = "zmq+tcp://127.0.0.1:0"
NOBODY = "zmq+tcp://127.0.0.1:9"
PLACE = Place("zmq")


def golden(name: str) -> bytes:
    """A worked example of PROTOCOL.md."""
    text = (ROOT / "PROTOCOL.md").read_text()
    return bytes.fromhex(re.search(rf"```golden {name}\n(.*?)```", text, re.DOTALL)[1])


@contextmanager
def opened(kind: int, address: str | None = None, **options: object):
    """A socket of pyzmq, connected to a url of ours or bound to a free port."""
    with zmq.Context() as context, context.socket(kind) as made:
        made.linger, made.rcvtimeo, made.sndtimeo = 0, 5000, 5000
        for name, value in options.items():
            setattr(made, name, value)
        if address is None:
            made.bind("tcp://127.0.0.1:0")
        else:
            made.connect(address.removeprefix("zmq+"))
        yield made


def frames_of(dealer: zmq.Socket, count: int) -> list[bytes]:
    """The next `count` frames, in however many messages they come."""
    frames: list[bytes] = []
    while len(frames) < count:
        frames += dealer.recv_multipart()
    return frames


# -- what stands on the wire ---------------------------------------------------------------------


@pytest.mark.parametrize("packed", [(3,), (1, 1, 1), (2, 1)])
def test_every_frame_is_a_datagram(packed):
    """Given PROTOCOL.md's HELLO in one message or several. Expect a cookie for each, no more."""
    hello = golden("hello")
    with PLACE.served(plain()) as server, opened(zmq.DEALER, server.address) as dealer:
        for count in packed:
            dealer.send_multipart([hello] * count)
        for frame in frames_of(dealer, 3):
            assert frame[:4] == hello[:4] and len(frame) == 120
            assert frame[40] == 1 | 0x80 and frame[48:56] == hello[48:56]
        assert server.counters()["hellos"] == 3
        assert not dealer.poll(20)


def test_neighbours_leave_as_one_message():
    """Given three requests in one message. Expect their answers in one: they fit the bound."""
    with PLACE.served(plain()) as server, opened(zmq.DEALER, server.address) as dealer:
        dealer.send_multipart([golden("hello")] * 3)
        sizes = [len(dealer.recv_multipart())]
        while sum(sizes) < 3:
            sizes.append(len(dealer.recv_multipart()))
        assert sizes == [3]


# -- strangers at the server ---------------------------------------------------------------------


def test_strangers_are_dropped_and_counted():
    """Given junk, empty and oversized frames, a name of 29 bytes. Expect counts, no answer to junk;
    a name means nothing: a connection is its own address."""
    with (
        PLACE.pair(plain(), mtu=4096) as (server, client),
        opened(zmq.DEALER, server.address) as junk,
        opened(zmq.DEALER, server.address, identity=b"x" * 29) as named,
        opened(zmq.REQ, server.address) as asker,
    ):
        junk.send_multipart([b"", b"y" * 4104, b"GET / HTTP/1.1\r\n\r\n", b"z" * 4096])
        until(lambda: server.counters()["dropped_in"] == 2, "2 are dropped")
        named.send_multipart([golden("hello")] * 3)
        assert len(frames_of(named, 3)) == 3
        asker.send(golden("hello"))  # its empty delimiter is dropped, the rest is as good as any
        until(lambda: server.counters()["dropped_in"] == 3, "3 are dropped")
        until(lambda: server.counters()["hellos"] == 5, "5 hellos are heard")
        assert not junk.poll(0)
        counters = server.counters()
        assert counters["drop_size"] + counters["drop_magic"] == 2
        assert len(client.extend("main", plain_rows(10))) == 10


def test_a_frame_beyond_any_mtu_ends_the_connection():
    """Given a frame of 1 MiB. Expect it never to reach the server, which goes on."""
    with PLACE.pair(plain()) as (server, client):
        with opened(zmq.DEALER, server.address) as giant:
            monitor = giant.get_monitor_socket(zmq.Event.DISCONNECTED)
            giant.send(bytes(1 << 20))
            assert monitor.poll(5000)
            giant.disable_monitor()
        assert server.counters()["dropped_in"] == 0
        assert len(client.extend("main", plain_rows(10))) == 10


def test_a_peer_that_does_not_read_loses_and_is_counted():
    """Given answers nobody takes. Expect drops that are counted, and others to be served."""
    hello = golden("hello")
    with (
        PLACE.pair(plain()) as (server, client),
        opened(zmq.DEALER, server.address, rcvhwm=1, rcvbuf=4096, sndhwm=0) as deaf,
    ):

        def ask() -> None:
            for _ in range(64):
                deaf.send_multipart([hello] * 64)

        until(lambda: server.counters()["dropped"] > 0, "answers are dropped", act=ask)
        assert len(client.extend("main", plain_rows(10))) == 10


# -- strangers at the client ---------------------------------------------------------------------


def test_nobody_there_is_said(monkeypatch):
    """Given a closed port. Expect Timeout that says so; an open one that is silent, the other."""
    with pytest.raises(Timeout, match="nobody accepts connections there; is the server running"):
        Client(NOBODY, timeout=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"zmq+tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Timeout, match="did not finish the handshake"):
            Client(address, timeout=0.2)


@pytest.mark.parametrize("kind", [zmq.ROUTER, zmq.REP, zmq.DEALER])
def test_another_zeromq_program_is_told_apart(kind):
    """Given a ZeroMQ socket that is no replay server. Expect Timeout that asks whether it is."""
    said = "takes connections but does not answer; is it a replay server"
    with opened(kind) as other, pytest.raises(Timeout, match=said):
        Client("zmq+" + other.last_endpoint.decode(), timeout=0.3)


def test_a_server_that_answers_nonsense_is_not_believed():
    """Given a ROUTER that echoes, and sends frames of any size. Expect drops, then Timeout."""
    stop = threading.Event()

    def answer(router: zmq.Socket) -> None:
        while not stop.is_set():
            if router.poll(10):
                sender, *frames = router.recv_multipart()
                router.send_multipart([sender, *frames, b"", b"x" * 65504, b"y" * 7])

    with opened(zmq.ROUTER) as router:
        thread = threading.Thread(target=answer, args=(router,))
        thread.start()
        try:
            with pytest.raises(Timeout, match="does not answer"):
                Client("zmq+" + router.last_endpoint.decode(), timeout=0.5)
        finally:
            stop.set()
            thread.join()


def test_a_client_leaves_no_socket_to_the_collector():
    """Given a client that closes, after its server or before. Expect no warning of a socket that
    nobody closed."""
    for first in ("server", "client"):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            server = Server([plain()], URL)
            client = Client(server.address)
            ends = [server.close, partial(client.close, 0.2)]
            for close in ends if first == "server" else reversed(ends):
                close()
            del client
            gc.collect()
        assert [str(told.message) for told in warned] == [], first


# -- keys ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Folder of a server's keys and of two clients'."""
    folder = tmp_path_factory.mktemp("keys")
    assert main(["keygen", str(folder), "--clients", "actor,learner"]) == 0
    return folder


def mine(keys: Path, name: str = "actor") -> dict[str, str]:
    return {
        "curve_server_key": str(keys / "server.key"),
        "curve_secret_key": str(keys / f"{name}.key_secret"),
    }


@contextmanager
def guarded(keys: Path, url: str = URL):
    with PLACE.served(
        plain(),
        url=url,
        curve_secret_key=str(keys / "server.key_secret"),
        curve_clients=str(keys / "clients"),
    ) as server:
        yield server


def test_with_the_right_keys_all_is_as_without(keys):
    """Given clients with keys, one pickled. Expect rows in and out, and no secret in the pickle."""
    with guarded(keys) as server, Client(server.address, **mine(keys)) as client:
        client.extend("main", plain_rows(50))
        pickled = pickle.dumps(client)
        secret = (keys / "actor.key_secret").read_text().split('secret-key = "')[1][:40]
        assert secret.encode() not in pickled
        with pickle.loads(pickled) as other, Client(server.address, **mine(keys, "learner")) as b:
            assert other.size("main") == b.size("main") == 50
            assert len(other.sample("main", 8)) == 8


def test_with_keys_the_largest_datagrams_pass_both_ways(keys):
    """Given weights of many sizes about that of a datagram and far above it, rows and a batch of
    such sizes. Expect all of them back, byte for byte: a message with keys is longer."""
    rng = np.random.default_rng(2)
    spec = Spec((Column("x", np.uint8, (1000,)),))
    table = Table("main", spec, Row(), 1024, sampler=Uniform())
    secret, clients = str(keys / "server.key_secret"), str(keys / "clients")
    with (
        PLACE.served(table, url=URL, curve_secret_key=secret, curve_clients=clients) as server,
        Client(server.address, **mine(keys)) as client,
    ):
        for size in (1000, 65_000, 65_200, 65_300, 65_400, 65_507, 66_000, 70_820, 1_000_000):
            weights = rng.bytes(size)
            version = client.publish_weights(weights, timeout=10.0)
            assert client.pull_weights(timeout=10.0) == (version, weights)
        rows = rng.integers(0, 256, (500, 1000)).astype(np.uint8)
        written = client.extend("main", {"x": rows})
        batch = client.get("main", written)
        assert np.array_equal(batch.data["x"][:, 0], rows)


def test_keys_are_found_in_the_environment(keys, monkeypatch):
    """Given the two variables. Expect every program's Client to use them."""
    monkeypatch.setenv(zmq_transport.SERVER_KEY, str(keys / "server.key"))
    monkeypatch.setenv(zmq_transport.SECRET_KEY, str(keys / "learner.key_secret"))
    with guarded(keys) as server, Client(server.address) as client:
        assert client.size("main") == 0
        assert main(["stats", server.address]) == 0


def test_wrong_keys_are_refused_and_say_what_to_do(keys, tmp_path):
    """Given a stranger's, another server's, no key. Expect NotAuthorised, and no session at all."""
    main(["keygen", str(tmp_path / "other")])
    stranger = mine(keys) | {"curve_secret_key": str(tmp_path / "other" / "client.key_secret")}
    impostor = mine(keys) | {"curve_server_key": str(tmp_path / "other" / "server.key")}
    with guarded(keys) as server:
        with pytest.raises(NotAuthorised, match="does not know this client's key: put its public"):
            Client(server.address, timeout=5.0, **stranger)
        with pytest.raises(NotAuthorised, match=r"other/server\.key this server's public key"):
            Client(server.address, timeout=0.4, **impostor)
        with pytest.raises(ReplayError, match="wants keys"):
            Client(server.address, timeout=0.4)
        assert server.counters()["hellos"] == 0
    with PLACE.served(plain()) as server:
        with pytest.raises(NotAuthorised, match="does it serve with keys at all"):
            Client(server.address, timeout=0.4, **mine(keys))
        assert server.counters()["hellos"] == 0


def test_bytes_on_the_wire_are_sealed(keys):
    """Given a guarded server and a plain DEALER. Expect no answer to a right datagram."""
    with guarded(keys) as server, opened(zmq.DEALER, server.address, sndtimeo=200) as dealer:
        with suppress(zmq.Again):  # once the handshake has failed there is no way out
            dealer.send(golden("hello"))
        assert not dealer.poll(200)
        assert server.counters()["hellos"] == 0


def test_half_a_key_is_a_sentence(keys, tmp_path):
    """Given one of two keys, wrong files, keys for UDP. Expect ConfigErrors, nothing open."""
    secret, clients = str(keys / "server.key_secret"), str(keys / "clients")
    public, client_public = str(keys / "server.key"), str(keys / "clients" / "actor.key")
    none, empty = str(tmp_path / "no"), tmp_path / "empty"
    empty.write_text("")
    half = f"{public} is the public half of a key and holds no secret one; give {secret}"
    for url, options, said in (
        (URL, {"curve_secret_key": secret}, "given without curve_clients"),
        (URL, {"curve_clients": clients}, "given without curve_secret_key"),
        ("udp://127.0.0.1:0", {"curve_secret_key": secret, "curve_clients": clients}, "zmq"),
        (URL, {"curve_secret_key": public, "curve_clients": clients}, half),
        (URL, {"curve_secret_key": none, "curve_clients": clients}, f"is no file {none};"),
        (URL, {"curve_secret_key": str(empty), "curve_clients": clients}, "no key file"),
        (URL, {"curve_secret_key": secret, "curve_clients": none}, f"is no folder {none};"),
        (URL, {"curve_secret_key": secret, "curve_clients": str(tmp_path)}, "no public keys"),
    ):
        with pytest.raises(ConfigError, match=said):
            Server([plain()], url, **options)
    for name, path, said in (
        ("curve_server_key", none, f"curve_server_key: there is no file {none};"),
        ("curve_secret_key", none, f"curve_secret_key: there is no file {none};"),
        ("curve_secret_key", client_public, f"{client_public} is the public half .* give "),
        ("curve_secret_key", client_public, f"give {keys / 'actor.key_secret'}"),
    ):
        with pytest.raises(ConfigError, match=said):
            Client(NOBODY, **mine(keys) | {name: path})
    for options in ({"curve_server_key": str(keys / "server.key")}, {"curve_secret_key": secret}):
        with pytest.raises(ConfigError, match="is given without"):
            Client(NOBODY, **options)
    with pytest.raises(ConfigError, match="CURVE keys are for zmq"):
        Client("udp://127.0.0.1:9", **mine(keys))
    assert not zmq_transport._open


def test_a_client_is_added_to_a_server_that_has_its_key(tmp_path):
    """Given keys of a server and a client, then keygen for another. Expect both to get in."""
    assert main(["keygen", str(tmp_path), "--clients", "actor"]) == 0
    before = (tmp_path / "server.key_secret").read_bytes()
    assert main(["keygen", str(tmp_path), "--clients", "actor2"]) == 0
    assert (tmp_path / "server.key_secret").read_bytes() == before
    with guarded(tmp_path) as server:
        for name in ("actor", "actor2"):
            with Client(server.address, **mine(tmp_path, name)) as client:
                assert client.size("main") == 0


def test_keygen_overwrites_nothing(keys, capsys):
    """Given a folder with keys, wrong names. Expect a sentence; secrets only their owner reads."""
    for arguments, said in (
        ([str(keys), "--clients", "new,actor"], "exists already"),
        ([str(keys / "more"), "--clients", "a,a"], "every name once"),
        ([str(keys / "more"), "--clients", "../a"], "no name of letters"),
    ):
        assert main(["keygen", *arguments]) == EXIT_USAGE
        assert said in capsys.readouterr().err
    assert not (keys / "more").exists() and not (keys / "new.key_secret").exists()
    for path in keys.rglob("*.key_secret"):
        assert path.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in (keys / "clients").iterdir()) == [
        "actor.key",
        "learner.key",
    ]


# -- addresses and what is missing ---------------------------------------------------------------


def test_addresses_beyond_this_machine_need_keys(keys):
    """Given 0.0.0.0. Expect Insecure without keys; with keys, or insecure in so many words, not."""
    everywhere = "zmq+tcp://0.0.0.0:0"
    with pytest.raises(Insecure, match="give curve_secret_key, or say insecure"):
        Server([plain()], everywhere)
    with guarded(keys, everywhere) as server:
        near = server.address.replace("0.0.0.0", "127.0.0.1")
        with Client(near, **mine(keys)) as client:
            assert client.size("main") == 0
    with PLACE.served(plain(), url=everywhere, insecure=True) as server:
        assert server.address.startswith("zmq+tcp://0.0.0.0:")


def test_ipv6():
    """Given [::1]. Expect the same service there."""
    with PLACE.pair(plain(), url="zmq+tcp://[::1]:0") as (server, client):
        assert server.address.startswith("zmq+tcp://[::1]:")
        assert len(client.extend("main", plain_rows(10))) == 10


def test_wrong_addresses_are_sentences():
    """Given urls that cannot be. Expect one sentence, nothing left open."""
    with PLACE.served(plain()) as server:
        with pytest.raises(TransportError, match="the port is taken by another program"):
            Server([plain()], server.address)
        for url, said in (
            ("zmq+tcp://127.0.0.1", "HOST:PORT is expected"),
            ("zmq+tcp://127.0.0.1:1?mtu=9", "512 to 65504"),
            ("zmq+tcp://127.0.0.1:0", "needs the server's port"),
            ("zmq+tcp://no.such.host.invalid:1", "no such host"),
            ("zmq://127.0.0.1:1", "no such transport; this build has .*zmq"),
        ):
            with pytest.raises(ReplayError, match=said):
                Client(url, timeout=0.2)
    assert not zmq_transport._open


def test_a_missing_package_is_named(keys, monkeypatch, capsys):
    """Given no pyzmq. Expect what, why and the command where it is needed: not at a server without
    keys, nor for other urls."""
    guarded_server = partial(
        Server,
        [plain()],
        URL,
        curve_secret_key=str(keys / "server.key_secret"),
        curve_clients=str(keys / "clients"),
    )
    monkeypatch.setitem(sys.modules, "zmq", None)
    Server([plain()], URL).close()
    for call in (lambda: Client(NOBODY), guarded_server):
        with pytest.raises(TransportError, match=r"pip install 'replay-server\[zmq\]', or use udp"):
            call()
    assert main(["stats", NOBODY]) == EXIT_USAGE
    assert "needs the package pyzmq" in capsys.readouterr().err
    with Place("udp").pair(plain()) as (_, client):
        assert client.size("main") == 0


def test_the_mtu_is_the_carriers_own_unless_said():
    """Given no mtu, the url's, the option's. Expect 65504, and what was said."""
    with PLACE.pair(plain()) as (_, client):
        assert client.limits["mtu"] == 65504
    with PLACE.served(plain(), url=URL + "?mtu=2048") as server:
        assert server.address.endswith("?mtu=2048")
        with Client(server.address) as client:
            assert client.limits["mtu"] == 2048
    with PLACE.pair(plain(), mtu=4096) as (_, client):
        assert client.limits["mtu"] == 4096


# -- life ----------------------------------------------------------------------------------------


def test_a_new_connection_is_the_same_session():
    """Given a connection lost and made anew. Expect ECHO to move the session: nothing is lost."""
    with PLACE.pair(plain()) as (server, client):
        keys = client.extend("main", plain_rows(100))
        carrier = client._link._carrier
        endpoint = bytes(carrier.socket.last_endpoint).rstrip(b"\0").decode()
        carrier.socket.disconnect(endpoint)
        carrier.socket.connect(endpoint)
        more = client.extend("main", plain_rows(100), timeout=20.0)
        assert int(more[0]) == int(keys[-1]) + 1 and more.epoch == keys.epoch
        counters = server.counters()
        assert counters["sessions_opened"] == counters["sessions"] == 1


def test_nothing_is_left_open():
    """Given servers and clients, opened and closed, some refused. Expect no descriptor more."""

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def one() -> None:
        with PLACE.pair(plain()) as (server, client), Client(server.address) as other:
            client.extend("main", plain_rows(10))
            with other.batches("main", 4) as batches:
                next(batches)
            for _ in range(2):
                client.close()
        with pytest.raises(Timeout):
            Client(NOBODY, timeout=0.05)

    one()
    before = descriptors()
    for _ in range(3):
        one()
    until(lambda: descriptors() <= before, "the descriptors are closed")
    assert not zmq_transport._open


PROGRAM = """
import sys, threading
from replay_server import Client, Server
from conformance import plain, plain_rows
server = Server([plain()], "zmq+tcp://127.0.0.1:0")
client = Client(server.address)
client.extend("main", plain_rows(100))
batches = client.batches("main", 16)
next(batches)
ring = [client]; ring.append(ring)
print("bye", flush=True)
"""


def test_a_program_may_just_end():
    """Given server, client and prefetch still open at the last line. Expect exit code 0."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests/support'}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "bye\n", "")


SERVED = """
[server]
url = "zmq+tcp://127.0.0.1:0"
curve_secret_key = "{keys}/server.key_secret"
curve_clients = "{keys}/clients"

[[table]]
name = "main"
capacity = 4096
columns = [{{ name = "x", dtype = "float64", shape = [4] }}]
"""


def test_serve_takes_keys_from_its_file_and_ends_by_a_signal(keys, tmp_path):
    """Given a server.toml with keys, then SIGINT. Expect rows in, exit code 0, a last line."""
    (tmp_path / "server.toml").write_text(SERVED.format(keys=keys))
    command = [sys.executable, "-m", "replay_server", "serve", str(tmp_path / "server.toml")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        try:
            lines = iter(process.stdout.readline, "")
            address = next(line.split()[2] for line in lines if line.startswith("serving at"))
            with Client(address, **mine(keys)) as client:
                assert len(client.extend("main", {"x": np.zeros((7, 4))})) == 7
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=20)[0]
        finally:
            process.kill()
    assert process.returncode == 0 and "7 steps stored" in said


def test_ctrl_c_ends_connecting():
    """Given SIGINT while nobody answers. Expect KeyboardInterrupt, nothing left open."""
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        Client(NOBODY, timeout=60.0)
    timer.join()
    assert not zmq_transport._open


def test_large_batches_and_weights_cross_whole():
    """Given rows and weights of many megabytes. Expect every byte, in both directions."""
    rng = np.random.default_rng(3)
    weights = rng.bytes(9_000_001)
    with PLACE.pair(plain(capacity=1 << 16), weights_max=16 << 20) as (_, client):
        rows = plain_rows(60_000)
        keys = client.extend("main", rows, timeout=20.0)
        batch = client.get("main", keys[::37], timeout=20.0)
        assert batch.valid.all() and np.array_equal(batch["x"][:, 0], rows["x"][::37])
        version = client.publish_weights(weights, timeout=20.0)
        assert client.pull_weights(timeout=20.0) == (version, weights)
