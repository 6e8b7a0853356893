"""`extend` of one table is not stopped by another's limiter, and takes rows of any size, priorities
beside them."""

from __future__ import annotations

import numpy as np
import pytest

from replay_server import (
    Client,
    Column,
    LimiterBlocked,
    Row,
    RowsDropped,
    SamplesPerInsert,
    Server,
    Spec,
    Table,
)

ROW = 8192  # bytes: a datagram each


@pytest.mark.parametrize("first", ["held", "open"])
def test_a_table_that_is_held_back_stops_no_other(first):
    """Given a table whose limiter holds its rows back, and more of them than the client has room
    for. Expect another table's rows stored meanwhile, whichever of the two was written first."""
    step, limiter = Spec([Column("x", "uint8", (ROW,))]), SamplesPerInsert(1, 1, error_buffer=10)
    tables = [
        Table("held", step=step, plan=Row(), capacity=16384, limiter=limiter),
        Table("open", step=step, plan=Row(), capacity=16384),
    ]
    rows = {"x": np.ones((600, ROW), np.uint8)}
    some = {"x": rows["x"][:50]}
    with Server(tables, "udp://127.0.0.1:0") as server:
        client = Client(server.address)
        if first == "open":
            assert len(client.extend("open", some)) == 50
        with pytest.raises(LimiterBlocked) as held:
            client.extend("held", rows, timeout=2.0)
        assert 100 < held.value.taken < 600
        for _ in range(3):
            assert len(client.extend("open", some)) == 50
        with pytest.warns(RowsDropped, match="not known to be stored"):
            client.close(0.0)


@pytest.mark.parametrize(("mtu", "largest"), [(512, 408), (1400, 1296), (8960, 8856)])
def test_rows_that_fill_a_datagram_have_priorities(mtu, largest):
    """Given rows as large as a datagram takes, a little smaller and larger. Expect them stored with
    the priorities given and without, and read back as they were."""
    for size in range(largest - 16, largest + 17, 8):
        table = Table("own", step=Spec([Column("x", "uint8", (size,))]), plan=Row(), capacity=4096)
        rows = np.random.default_rng(size).integers(0, 256, (8, size), np.uint8)
        with (
            Server([table], f"udp://127.0.0.1:0?mtu={mtu}") as server,
            Client(server.address) as client,
        ):
            for priorities in (None, np.arange(1.0, 9.0), None):
                keys = client.extend("own", {"x": rows}, priorities=priorities)
                back, valid = client.rows("own", keys)
                assert valid.all() and np.array_equal(back["x"], rows)
