"""A session's share of a running server's time: measured by its own thread, over a real socket."""

from __future__ import annotations

import time

import protocol_client as spoken
from conformance import plain, plain_rows

from replay_server import Client, Server

ITEMS, FLOODS, EACH = 8192, 2, 500
BATCH_MAX = 65536  # so that no turn is refused for its items alone


def requests(session: spoken.Session, table: dict[str, int], first: int) -> list[bytes]:
    """EACH new requests for ITEMS items."""
    body = spoken.sample(table["epoch"], ITEMS, budget=1)
    made = []
    for id_ in range(first, first + EACH):
        session.packet += 1
        at = (session.connection, session.packet, table["number"])
        made.append(spoken.datagram(spoken.SAMPLE, id_, body, *at))
    return made


def test_who_floods_is_held_to_its_share_of_a_running_server():
    """Given two sessions that ask for one batch after the other and read none. Expect the server to
    drop what is beyond their share of its time, and a client beside them to be served."""
    with (
        Server([plain()], "udp://127.0.0.1:0", seed=1, batch_max=BATCH_MAX) as server,
        Client(server.address) as client,
    ):
        client.extend("main", plain_rows(1024))
        host, port = server.address.removeprefix("udp://").split(":")
        floods = [spoken.Session(host, int(port)) for _ in range(FLOODS)]
        tables = [session.table("main") for session in floods]
        until, first = time.monotonic() + 60.0, 1
        while server.counters()["drop_share"] == 0 and time.monotonic() < until:
            bursts = [requests(s, t, first) for s, t in zip(floods, tables, strict=True)]
            for together in zip(*bursts, strict=True):
                for session, request in zip(floods, together, strict=True):
                    session.socket.send(request)
            first += EACH
        assert server.counters()["drop_share"] > 0
        assert len(client.sample("main", 32).keys) == 32
        for session in floods:
            session.socket.close()
