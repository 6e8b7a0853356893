"""A server from Python: protected mode, busy ports, refused memory, loopback names, stopping."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from conformance import plain, plain_rows

from replay_server import (
    Client,
    ClosedError,
    Column,
    ConfigError,
    Insecure,
    ReplayError,
    Server,
    Spec,
)
from replay_server.errors import EngineError
from replay_server.server import ServerOptions, memory_of


def test_only_this_machine_without_a_key():
    """Given addresses others can reach. Expect Insecure, which tells the way; --insecure serves."""
    for host in ("0.0.0.0", "[::]"):
        with pytest.raises(Insecure, match=r"insecure"):
            Server([plain()], f"udp://{host}:0")
    with Server([plain()], "udp://0.0.0.0:0", insecure=True) as server:
        port = server.address.rsplit(":", 1)[1]
        with Client(f"udp://127.0.0.1:{port}") as client:
            assert client.size("main") == 0


def test_a_busy_port_is_one_sentence():
    """Given a port in use, a loopback name in use. Expect an error that names the address, and who
    may have the port: a notebook's own server of before, too."""
    for url in ("udp://127.0.0.1:0", "zmq+tcp://127.0.0.1:0"):
        with Server([plain()], url) as server, pytest.raises(ReplayError) as told:
            Server([plain()], server.address)
        assert "127.0.0.1" in str(told.value) and "\n" not in str(told.value)
        assert "or by an earlier server of this one: close that" in str(told.value)
    with (
        Server([plain()], "loopback://taken") as server,
        pytest.raises(ReplayError, match="taken"),
    ):
        Server([plain()], server.address)
    with Server([plain()], "loopback://taken"):
        pass


@pytest.mark.parametrize(
    "url", ["", "udp://", "udp://127.0.0.1", "http://127.0.0.1:80", "udp://no.such.host.invalid:1"]
)
def test_wrong_urls_say_what_is_wrong(url):
    """Given addresses that are none. Expect a ReplayError for servers and clients alike."""
    for wrong in (lambda: Server([plain()], url), lambda: Client(url, timeout=0.2)):
        with pytest.raises(ReplayError) as told:
            wrong()
        assert "\n" not in str(told.value)


def test_refused_memory_is_one_sentence(tmp_path):
    """Given a table of more memory than there are addresses, a file in no folder. Expect errors."""
    wide = Spec((Column("x", np.uint8, (1 << 20,)),))
    huge = plain(capacity=(1 << 31) - 1, step=wide)
    assert memory_of([huge], ServerOptions()) >= 1 << 50
    for wrong in (
        lambda: Server([huge], "loopback://"),
        lambda: Server([plain()], "loopback://", region=str(tmp_path / "none" / "region")),
    ):
        with pytest.raises(ReplayError) as told:
            wrong()
        assert "\n" not in str(told.value)


def test_memory_is_told_before_it_is_taken():
    """Given a table. Expect the size foretold to be the size taken, growing with capacity."""
    small, large = plain(capacity=4096), plain(capacity=65536)
    options = ServerOptions(weights_max=0)
    with Server([small], options=options) as server:
        assert server.memory == memory_of([small], options)
    grown = memory_of([large], options) - memory_of([small], options)
    assert grown >= (65536 - 4096) * (small.step.record_size + 8)


def test_options_come_by_name_or_as_one_object():
    """Given both, or an unknown name. Expect to be told."""
    with pytest.raises(ConfigError, match="either"):
        Server([plain()], "loopback://", options=ServerOptions())
    with pytest.raises(ConfigError, match="no option"):
        Server([plain()], "loopback://", colour="red")


def test_the_same_seed_draws_the_same():
    """Given two servers of one seed, one of another. Expect equal draws, and others."""

    def draws(seed):
        with Server([plain()], seed=seed) as server, Client(server.address) as client:
            first = client.extend("main", plain_rows(100))[0]
            return (client.sample("main", 32).keys - first).tolist()

    assert draws(5) == draws(5) != draws(6)
    with Server([plain()]) as one, Server([plain()]) as two:
        assert one.seed != two.seed


def test_a_server_stops_while_clients_wait():
    """Given a client that waits for items. Expect close to return and the client to be told."""
    server = Server([plain()], "udp://127.0.0.1:0")
    client, ended = Client(server.address), []

    def wait():
        with pytest.raises(ReplayError):
            client.sample("main", 4, timeout=1.0)
        ended.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    while server.counters()["samples_blocked"] == 0:
        threading.Event().wait(0.005)
    server.close()
    server.close()
    thread.join(20.0)
    assert ended == [True]
    client.close(timeout=0.1)
    with pytest.raises(ClosedError):
        _ = server.address


def test_a_region_file_survives_its_server(tmp_path):
    """Given a region in a file. Expect the next server to take over table, sessions, weights."""
    path = str(tmp_path / "region")
    with Server([plain()], "udp://127.0.0.1:0", region=path, seed=3) as server:
        assert not server.attached
        address, incarnation = server.address, server.incarnation
        client = Client(address)
        keys = client.extend("main", plain_rows(50))
        assert client.publish_weights(b"weights") == 1
    with Server([plain()], address, region=path, seed=3) as server:
        assert server.attached and server.incarnation == incarnation
        assert client.size("main") == 50
        assert client.get("main", keys).valid.all()
        assert client.pull_weights() == (1, b"weights")
        client.close()


def test_a_region_lies_where_the_bytes_of_its_path_say(tmp_path):
    """Given a folder whose name is no UTF-8. Expect a region there."""
    folder = tmp_path / os.fsdecode(b"r\xff")
    folder.mkdir()
    for attached in (False, True):
        with Server([plain()], "loopback://", region=folder / "region") as server:
            assert server.attached is attached


@pytest.mark.parametrize("published", [1, 2, 3, 4])
def test_weights_of_a_server_that_came_back_empty_are_newer(published):
    """Given version 3 pulled, and a server that came back empty and was given fewer versions, as
    many, or more. Expect its newest by the client that pulled 3, once, and by one that was only
    told of 3; None by one that has the newest, and of a server that has no weights yet."""
    with Server([plain()], "udp://127.0.0.1:0") as server, Client(server.address) as learner:
        address, client = server.address, Client(server.address)
        for version in (1, 2, 3):
            assert learner.publish_weights(b"before") == version
        assert client.pull_weights() == (3, b"before")
        assert client.pull_weights(newer_than=3) is None
    with Server([plain()], address), client, Client(address) as learner, Client(address) as told:
        assert client.pull_weights(newer_than=3) is None
        for version in range(1, published + 1):
            assert learner.publish_weights(b"%d" % version) == version
        newest = (published, b"%d" % published)
        assert client.pull_weights(newer_than=3) == newest
        assert client.pull_weights(newer_than=published) is None
        assert told.pull_weights(newer_than=3) == (None if published == 3 else newest)
        assert told.pull_weights(newer_than=published) is None
        assert client.weights_version == published


def test_a_region_is_verified_on_demand(tmp_path):
    """Given a dead server's region with one bit of one step turned. Expect verify=True to refuse it
    by table, count and key, a whole one to be served, and the damaged one too where nobody asks."""
    path = tmp_path / "region"
    options = {"region": str(path), "seed": 3, "idle_ms": 60_000}
    with Server([plain()], "udp://127.0.0.1:0", **options) as server:
        client = Client(server.address)
        keys = client.extend("main", plain_rows(50))
        address = server.address
        client.close()
    with Server([plain()], address, verify=True, **options) as server:
        assert server.attached
    steps = path / "table0.steps"
    stored = bytearray(steps.read_bytes())
    size = plain().step.record_size
    stored[(int(keys[7]) % plain().capacity) * size + 3] ^= 16
    steps.write_bytes(stored)
    with pytest.raises(EngineError, match=rf"table main: 1 of 50 steps .* key {int(keys[7])};"):
        Server([plain()], address, verify=True, **options)
    with Server([plain()], address, **options) as server:
        assert server.attached


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda state: state[:4096], "shorter than the one that was created: start with a new one"),
        (lambda state: bytes(8) + state[8:], "never made whole: start with a new one"),
        (
            lambda state: state[:8] + bytes(8) + state[16:],
            "laid out by another build or is damaged: serve it with the build that made it, or "
            "name another region",
        ),
    ],
)
def test_a_region_that_is_refused_says_once_what_to_do(tmp_path, damage, said):
    """Given a region's state cut short, without its mark, or of another layout. Expect a sentence
    that ends in its remedy, and no second one behind it."""
    path = tmp_path / "region"
    with Server([plain()], "loopback://", region=str(path), seed=3):
        pass
    state = path / "state"
    state.write_bytes(damage(state.read_bytes()))
    with pytest.raises(EngineError) as refused:
        Server([plain()], "loopback://", region=str(path), seed=3)
    assert str(refused.value).endswith(said) and refused.value.status == "BAD_REGION"
