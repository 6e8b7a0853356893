"""Every refusal that a peer can meet in a session moves a counter of its own."""

from __future__ import annotations

import protocol_client as spoken
import pytest
from conformance import plain

from replay_server import Client, Server
from replay_server._native import STATUSES

TRAFFIC = {"datagrams_in", "datagrams_out", "bytes_in", "bytes_out", "turns"}
BLOB = bytes(range(200)) * 20
REFUSED = {  # operation, id, body, table: each refused in the session that `begun` leaves
    "a publication that a newer one replaced": (
        spoken.PUBLISH,
        1,
        spoken.publish(BLOB, 0, 1000),
        0,
        "FORGOTTEN",
    ),
    "weights that are not there": (spoken.BLOB, 1, spoken.blob_request(2, 7), 0, "NO_WEIGHTS"),
    "a spec of no table": (spoken.BLOB, 1, spoken.blob_request(1), 9, "UNKNOWN_TABLE"),
    "a sample of no table": (spoken.SAMPLE, 1, spoken.sample(0, 1), 9, "UNKNOWN_TABLE"),
    "a sample by no plan": (spoken.SAMPLE, 1, spoken.sample(0, 1, plan=9), 0, "UNKNOWN_PLAN"),
    "a sample of nothing": (spoken.SAMPLE, 1, spoken.sample(0, 0), 0, "BAD_ARGUMENT"),
    "a sample of an older epoch": (spoken.SAMPLE, 1, spoken.sample(5, 1), 0, "STALE_EPOCH"),
    "an update of an older epoch": (
        spoken.UPDATE,
        1,
        spoken.update(5, [(1, 1.0)]),
        0,
        "STALE_EPOCH",
    ),
    "an update of no table": (spoken.UPDATE, 1, spoken.update(0, [(1, 1.0)]), 9, "UNKNOWN_TABLE"),
    "an update ahead of its turn": (spoken.UPDATE, 3, spoken.update(0, [(1, 1.0)]), 0, "EARLY"),
    "a push without a writer": (
        spoken.PUSH,
        1,
        spoken.push(0, [], [spoken.create(1, 0, 1.0)]),
        0,
        "STALE_EPOCH",
    ),
    "a writer of no streams": (
        spoken.WRITER,
        1,
        spoken.writer_request(0),
        0,
        "BAD_ARGUMENT",
    ),
    "a table of no name": (spoken.TABLE, 1, spoken.table_request("nope"), 0, "UNKNOWN_TABLE"),
}


@pytest.fixture
def begun():
    """A session that is in the midst of its second publication, and its server."""
    with Server([plain()], "udp://127.0.0.1:0") as server, Client(server.address):
        host, port = server.address.removeprefix("udp://").split(":")
        session = spoken.Session(host, int(port))
        session.ask(spoken.PUBLISH, 2, spoken.publish(BLOB, 0, 1000))
        yield server, session
        session.close()


@pytest.mark.parametrize("refused", REFUSED)
def test_a_refusal_is_counted(begun, refused):
    """Given a request that is refused. Expect its status, and a counter that is not of traffic to
    have moved."""
    server, session = begun
    op, id_, body, table, status = REFUSED[refused]
    before = server.counters()
    session.send(op, id_, body, table)
    answer = spoken.parse(session.socket.recv(65536))
    after = server.counters()
    moved = {name for name in after if after[name] != before[name]} - TRAFFIC
    assert (answer.op, answer.status) == (op, STATUSES.index(status)) and moved, (
        answer.status,
        moved,
    )
