"""Errors: every status becomes one that says what, why and what next, and can be pickled."""

from __future__ import annotations

import os
import pathlib
import pickle
import re
import subprocess
import sys
from importlib import metadata

import gymnasium
import numpy as np
import pytest
from conformance import ROWS, plain, plain_rows

import replay_server
from replay_server import Client, ConfigError, Server, Table, Timeout, UpdateResult, _native, errors
from replay_server.training.contact import describe
from replay_server.writer import KEPT


@pytest.mark.parametrize("name", [name for name in _native.STATUSES if name != "OK"])
def test_every_status_becomes_an_error_with_a_sentence(name):
    """Given each status. Expect a ReplayError that names what was done, and survives pickle."""
    with pytest.raises(errors.ReplayError) as caught:
        _native.check(-_native.NUMBERS[name], "doing this")
    error = caught.value
    assert error.status == name
    assert str(error).startswith("doing this: ")
    assert len(str(error)) > len("doing this: ") + 10
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_success_is_passed_on():
    """Given 0 or a count. Expect it back."""
    assert [_native.check(n, "x") for n in (0, 7, _native.PENDING)] == [0, 7, _native.PENDING]


def test_a_status_nobody_knows_is_still_an_error():
    """Given a number beyond the table. Expect an EngineError, not an IndexError."""
    with pytest.raises(errors.EngineError, match="unknown status"):
        _native.check(-9999, "doing this")


def test_values_are_attributes_and_in_the_sentence():
    """Given errors with values. Expect them as attributes, and in words."""
    blocked = errors.error_for("BLOCKED", "", "sampling", blocked=(12, "inserts"))
    assert (blocked.need, blocked.by) == (12, "inserts")
    assert "12 more items are created by writers" in str(blocked)
    one = errors.error_for("BLOCKED", "", "adding", blocked=(1, "samples"))
    assert "twice in a row" in str(errors.ShortBatch("sampling", 2))
    assert "twice" not in str(errors.ShortBatch("sampling", 2, once=True))
    assert "1 more item is sampled by learners" in str(one)
    lost = errors.error_for("SERVER_RESTARTED", "", "writing", loss=(5, 3, 2))
    assert (lost.stored_through, lost.in_doubt, lost.lost) == (5, 3, 2)
    counts = "5 rows that it had acknowledged are gone, 3 were sent and not answered, 2 were never"
    assert str(lost).startswith(
        f"writing: the server stopped or restarted, empty: {counts} sent; open a new"
    )
    expired = errors.error_for("SESSION_EXPIRED", "", "writing", loss=(5, 3, 2))
    assert isinstance(expired, errors.ServerRestarted) and "too long a silence" in str(expired)
    short = errors.error_for("SHORT_BATCH", "", "sampling", missing=4)
    assert short.missing == 4


@pytest.mark.parametrize("name", ["SERVER_RESTARTED", "SESSION_EXPIRED", "TIMEOUT", "BLOCKED"])
def test_who_watches_a_program_reads_what_happened_alone(name):
    """Given errors of a writer's call. Expect of each the counts and the reason, and nothing that
    only who writes the program can do."""
    sentence = _native.text(_native.lib.rp_status_sentence(_native.NUMBERS[name]))
    error = errors.error_for(name, sentence, f"flushing {KEPT}", loss=(5, 3, 2), blocked=(7, "x"))
    said = describe(error)
    assert said.startswith("flushing: ") and KEPT in str(error)
    assert not re.search(r";|open a new|this thread|kept|environment's", said), said
    assert describe(errors.ReplayError("as it is")) == "as it is"


def test_errors_are_what_they_look_like():
    """Given built-in meanings. Expect the built-in types to hold too."""
    assert issubclass(errors.Timeout, TimeoutError)
    assert issubclass(errors.LimiterBlocked, errors.Timeout)
    assert issubclass(errors.Insecure, PermissionError)
    assert issubclass(errors.SpecMismatch, ValueError)
    assert issubclass(errors.TransportError, OSError)


def test_every_error_and_warning_is_at_hand():
    """Given the classes that a caller catches or filters. Expect each in the package itself."""
    kinds = [
        kind for kind in vars(errors).values() if getattr(kind, "__module__", "") == errors.__name__
    ]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20 and kinds == [getattr(replay_server, k.__name__, None) for k in kinds]


def test_the_package_tells_its_version(monkeypatch):
    """Given a package that is installed, and one that is not. Expect the release, or that it is
    unknown."""
    monkeypatch.setattr(metadata, "version", {"replay-server": "1.2.3"}.__getitem__)
    assert replay_server.__version__ == "1.2.3"

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert replay_server.__version__ == "0+unknown"


def test_a_timeout_that_is_none_is_refused_as_other_options_are():
    """Given timeout=-1 for one call. Expect ConfigError."""
    with (
        Server([plain()], "loopback://") as server,
        Client(server.address) as client,
        pytest.raises(ConfigError, match="timeout is -1"),
    ):
        client.ping(timeout=-1)


def test_priorities_for_keys_of_a_server_that_restarted_are_stale():
    """Given a client that only draws and updates, and a server that comes back empty in between.
    Expect its keys to count as stale."""
    server = Server([plain()], "udp://127.0.0.1:0")
    address = server.address
    with Client(address) as client:
        with Client(address) as writing:
            writing.extend("main", plain_rows(8))
        batch = client.sample("main", 8)
        server.close()
        with Server([plain()], address):
            result = client.update_priorities("main", batch, np.ones(8), timeout=20.0)
    assert (result.applied, result.stale) == (0, len(set(batch.keys.tolist())))


def test_queued_priorities_of_a_server_that_restarted_are_stale():
    """Given updates queued while the server is away, and one that comes back empty. Expect them to
    count as stale in flush, which raises nothing; nor does the end of `with`."""
    with Server([plain()], "udp://127.0.0.1:0") as server:
        address = server.address
        with Client(address, timeout=20.0) as client:
            client.extend("main", plain_rows(64))
            batch = client.sample("main", 32)
            count = len(set(batch.keys.tolist()))
            server.close()
            client.update_priorities("main", batch, np.ones(32), wait=False)
            with Server([plain()], address) as again:
                result = client.flush()
                assert (result.applied, result.unknown) == (0, 0) and result.stale in (count, 32)
                again.close()
                client.update_priorities("main", batch, np.ones(32), wait=False)
                with Server([plain()], address):
                    client.__exit__(None, None, None)


def test_queued_priorities_that_nobody_answers_are_counted_as_in_doubt():
    """Given updates queued while the server is away, and a flush that waits less long than they.
    Expect it to say that they stay queued; the flush in which their time is over says how many may
    not be set, and to call update_priorities again."""
    with (
        Server([plain()], "udp://127.0.0.1:0") as server,
        Client(server.address, timeout=2.0, connect_timeout=30.0) as client,
    ):
        client.extend("main", plain_rows(64), timeout=30.0)
        keys = client.sample("main", 32, timeout=30.0).keys
        count = len(set(keys.tolist()))
        server.close()
        client.update_priorities("main", keys, np.ones(32), wait=False)
        with pytest.raises(Timeout, match="they stay queued: call flush again"):
            client.flush(timeout=0.0)
        doubt = f"({count}|32) queued priorities may not be set: call update_priorities again, "
        with pytest.raises(Timeout, match=f"{doubt}once the server answers"):
            client.flush(timeout=60.0)
        assert client.flush(timeout=0.0) == UpdateResult()


def test_keys_that_lost_their_epoch_name_nothing_at_a_server_that_came_back():
    """Given keys that went through numpy and torch, and a server that comes back and is filled
    anew: its steps have the same numbers from the first on. Expect none of them touched, by a
    client that has seen it come back and by one that was opened then."""
    torch = pytest.importorskip("torch")
    with Server([plain()], "udp://127.0.0.1:0") as server, Client(server.address) as client:
        address = server.address
        client.extend("main", plain_rows(64))
        batch = client.sample("main", 32)
        lost = {
            "numpy": np.concatenate([batch.keys[:16], batch.keys[16:]]),
            "torch": torch.from_numpy(batch.keys.astype(np.int64)),
            "list": batch.keys.tolist(),
        }
        server.close()
        with Server([plain()], address), Client(address) as other:
            now = other.extend("main", plain_rows(64))
            client.sample("main", 8, timeout=20.0)  # one batch ahead: it has seen the new server
            for how, keys in lost.items():
                for each in (client, other):
                    result = each.update_priorities("main", keys, np.full(32, 50.0))
                    assert result.applied == 0 and result.stale + result.unknown > 0, how
                    assert not each.get("main", keys).valid.any(), how
            assert len(set(other.get("main", now).masses.tolist())) == 1


def test_keys_that_lost_their_epoch_name_nothing_in_another_table():
    """Given two tables filled alike, and keys of one that went through numpy, torch and a list.
    Expect none of them to change an item of the other, or to find one there."""
    torch = pytest.importorskip("torch")
    tables = [Table(name, step=ROWS, capacity=4096) for name in ("a", "b")]
    with Server(tables, "udp://127.0.0.1:0") as server, Client(server.address) as client:
        for table in ("a", "b"):
            stored = client.extend(table, plain_rows(64))
        keys = client.sample("a", 32).keys
        lost = {
            "numpy": np.concatenate([keys[:16], keys[16:]]),
            "view": np.asarray(keys),
            "torch": torch.from_numpy(keys.astype(np.int64)),
            "list": keys.tolist(),
        }
        for how, keys in lost.items():
            result = client.update_priorities("b", keys, np.full(32, 50.0))
            assert result.applied == 0 and result.stale + result.unknown > 0, how
            assert not client.get("b", keys).valid.any(), how
        assert len(set(client.get("b", stored).masses.tolist())) == 1


def test_wrong_input_is_one_sentence():
    """Given what a hand slips into. Expect a sentence that names it and what would do."""
    with (
        Server([plain()], "loopback://") as server,
        Client(server.address) as client,
        client.batches("main", 4) as batches,
    ):
        keys = client.extend("main", plain_rows(8))
        wrong = {
            "stratified is 'no'": lambda: client.sample("main", 4, stratified="no"),
            r"expected shape \(1,\), got 2.0": lambda: client.update_priorities(
                "main", keys[:1], 2.0
            ),
            r"expected shape \(8,\), got None": lambda: client.update_priorities(
                "main", keys, None
            ),
            "td: expected numbers": lambda: replay_server.priority_from_td("a"),
            "the lower bound comes first": lambda: replay_server.SamplesPerInsert(1, 10, (50, 5)),
            r"no table 'mian' at .*; there are 'main'": lambda: client.size("mian"),
            "the batch is of table 'main', not of 'other'": lambda: client.get(
                "other", client.sample("main", 2)
            ),
        }
        no_name = [
            lambda: client.sample(["main"], 2),
            lambda: client.rows(["main"], keys),
            lambda: client.extend(["main"], plain_rows(1)),
            lambda: client.batches(["main"], 2),
            lambda: client.update_priorities(["main"], keys, np.ones(8)),
        ]
        for act in no_name:
            with pytest.raises(errors.UnknownTable, match=r"table \['main'\]: expected a name"):
                act()
        with pytest.raises(errors.UnknownTable, match="the table itself: say 'main'"):
            client.sample(plain(), 2)
        with pytest.raises(errors.ConfigError, match="hand it over as autoreset=env"):
            client.writer("main", gymnasium.make("CartPole-v1"))
        for sentence, act in wrong.items():
            with pytest.raises(errors.ReplayError, match=sentence):
                act()
        for whole in (server, client.writer("main"), batches, client.table("main")):
            with pytest.raises(TypeError, match=r"(an open|an iterator|table) .*cannot be pickled"):
                pickle.dumps(whole)


def test_priorities_lost_with_their_client_are_told():
    """Given queued priorities and a client that is closed. Expect them set where the server
    answers, and where it has gone a warning with their number."""
    with Server([plain()], "udp://127.0.0.1:0") as server, Client(server.address) as other:
        client = Client(server.address)
        keys = client.extend("main", plain_rows(1000))
        client.update_priorities("main", keys, np.full(1000, 7.0), wait=False)
        client.close()
        assert len(set(other.get("main", keys[:100]).masses.tolist())) == 1
        assert (other.get("main", keys[:100]).masses != 1 << 32).all()
        client = Client(server.address)
        client.size("main")
        client._known("main", 5.0)
        server.close()
        client.update_priorities("main", keys, np.full(1000, 9.0), wait=False)
        with pytest.warns(RuntimeWarning, match="with 1000 queued priorities not known to be set"):
            client.close(0.1)


def test_a_forked_child_that_ends_makes_no_noise():
    """Given a client, a writer and batches in a `with`, and a child of fork that ends there, by
    sys.exit or by dropping them. Expect exit code 0 and no word."""
    script = """
import gc, os, sys
from conformance import plain, plain_rows
from replay_server import Client, Server
with Server([plain()], "udp://127.0.0.1:0") as server, Client(server.address) as client:
    client.extend("main", plain_rows(8))
    batches = client.batches("main", 4)
    writer = client.writer("main")
    next(batches)
    for way in ("exit", "drop"):
        if (child := os.fork()) == 0:
            if way == "exit":
                sys.exit(0)
            del batches, writer
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, way
    batches.close()
"""
    path = str(pathlib.Path(__file__).parents[1] / "support")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_numbers_that_no_float_holds_are_refused_in_a_sentence():
    """Given a priority, and a time-out of a close, that are none. Expect ConfigError."""
    with Server([plain()], "loopback://") as server, Client(server.address) as client:
        with pytest.raises(ConfigError, match=r"priorities: expected 1 numbers .*too large"):
            client.update_priorities("main", [1], [10**400])
        writer = client.writer("main")
        with pytest.raises(ConfigError, match="timeout is 'x'"):
            writer.close("x")
        writer.close()


@pytest.mark.parametrize("wait", [False, True])
def test_priorities_that_nobody_takes_wait_for_a_server(wait):
    """Given a server that is gone, and a queue of updates that fills. Expect what is told of every
    other call: that no answer came, not that less should be done at once."""
    with Server([plain()], "udp://127.0.0.1:0") as server:
        client = Client(server.address, timeout=0.5)
        client.extend("main", plain_rows(100))
        batch = client.sample("main", 64)
        server.close()
    with pytest.raises(Timeout, match="is the server running"):
        for _ in range(1000):
            client.update_priorities("main", batch, np.ones(64), wait=wait)
    client.close(0)
