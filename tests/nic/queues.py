"""Two queues of an emulated card are two shards of one host: the card spreads flows by its hash,
and a client whose datagrams come to the other shard's queue is told the port that lands right. Run
by run.py on virtio with mq=on,rss=on."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
from conformance import plain, plain_rows
from over_card import HOST, PORT, URL, numbers

from replay_server import Client
from replay_server.server import ServerOptions
from replay_server.serving.compiled import compile_tables

CLIENTS = 12


def test_each_client_lands_on_the_shard_it_speaks_to(host):
    """Given twelve clients, each for one of two shards. Expect its rows there and nowhere else;
    some to have been told of another port, once each: the card's hash was computed right."""
    config = compile_tables((plain(writers=CLIENTS),), ServerOptions(seed=7, sessions=16))
    urls = [URL.replace(f":{PORT}?", f":{PORT + shard}?") + "&queues=2" for shard in range(2)]
    host.serve(config, *urls)
    sent, moves = [0, 0], []
    with ExitStack() as stack:
        for i in range(CLIENTS):
            shard, rows = i % 2, plain_rows(20 + i, seed=i)
            address = f"udp://{HOST}:{PORT + shard}"
            client = stack.enter_context(Client(address, connect_timeout=30.0))
            keys = client.extend("main", rows, timeout=30.0)
            stored, valid = client.rows("main", keys)
            assert valid.all() and np.array_equal(stored["x"], rows["x"])
            sent[shard] += len(keys)
            assert client.size("main") == sent[shard]
            moves.append(client.counters()["rebinds"])
        host.shell(f": > /tmp/out; kill -USR1 {host.pid}")
        said = host.until(f"^end .*:{PORT + 1}")
    told = [numbers(part) for part in said.split("\nserving ")]
    assert [shard["steps_committed"] for shard in told] == sent
    assert [shard["sessions"] for shard in told] == [CLIENTS // 2] * 2
    refused = [shard.get("wrong_queue", 0) for shard in told]
    print("refused by each shard:", refused, "moves of each client:", moves)
    assert sum(refused) >= sum(moves) >= 1, "twelve flows on two queues, and none went wrong"
    assert max(moves) == 1
    assert host.kill("TERM").count("stopped udp://") == 2
