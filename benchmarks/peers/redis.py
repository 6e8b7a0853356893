"""Redis 7 with sampling at the server by a Lua script, no persistence, no module.

An item is a string under its place in a ring; a sorted set has the places by priority^alpha. The
script `SAMPLE` draws places by rejection: a random place, kept with probability mass / largest
mass; then it returns the items: one round trip. redis-py with hiredis is the client. `ahead` writes
requests before the answers are read (Redis's page on pipelining).

Option `at`: "learner" draws at the learner instead, from a sum tree of its own, and fetches by
MGET. It knows its own inserts and updates alone, so it is shown and not counted.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import redis

from .arrays import NumpyReplay
from .peer import ALPHA, BETA, Columns, Peer, Sampled, Serving, Setting, packed, stacked

INSERT = """
local head = tonumber(redis.call('GET', 'head') or '0')
local capacity = tonumber(ARGV[1])
local largest = redis.call('ZREVRANGE', 'mass', 0, 0, 'WITHSCORES')[2] or '1'
for i = 2, #ARGV do
  local place = head % capacity
  redis.call('SET', 'i:' .. place, ARGV[i])
  redis.call('ZADD', 'mass', largest, place)
  head = head + 1
end
redis.call('SET', 'head', head)
return head
"""
SAMPLE = """
local want, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local count = math.min(tonumber(redis.call('GET', 'head') or '0'), capacity)
local largest = tonumber(redis.call('ZREVRANGE', 'mass', 0, 0, 'WITHSCORES')[2])
local names, places, masses = {}, {}, {}
while #places < want do
  local asked = {}
  for i = 1, want do asked[i] = math.random(0, count - 1) end
  local found = redis.call('ZMSCORE', 'mass', unpack(asked))
  for i = 1, want do
    local mass = tonumber(found[i])
    if #places < want and math.random() * largest < mass then
      places[#places + 1] = asked[i]
      masses[#masses + 1] = found[i]
      names[#names + 1] = 'i:' .. asked[i]
    end
  end
end
return {places, masses, redis.call('MGET', unpack(names))}
"""
UPDATE = """
local pairs_of = {}
for i = 1, #ARGV, 2 do
  pairs_of[#pairs_of + 1] = ARGV[i + 1]
  pairs_of[#pairs_of + 1] = ARGV[i]
end
return redis.call('ZADD', 'mass', 'XX', unpack(pairs_of))
"""
START_S = 20


def serve(setting: Setting) -> Serving:
    """redis-server as a child of this process."""
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError("there is no redis-server: apt-get install redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.05), START_S * 20)
    redis.Redis(port=port, retry=retry).ping()

    def close() -> None:
        process.terminate()
        process.wait(10)

    return Serving(f"127.0.0.1:{port}", close)


def connect(setting: Setting, address: str) -> Peer:
    """A client."""
    kind = AtLearner if setting.options.get("at") == "learner" else AtServer
    return kind(setting, int(address.rpartition(":")[2]))


class AtServer(Peer):
    """Scripts at the server."""

    def __init__(self, setting: Setting, port: int) -> None:
        self.setting, self.record = setting, setting.record
        self.redis = redis.Redis(port=port, socket_timeout=60.0)
        self.scripts = {
            name: self.redis.script_load(text)
            for name, text in (("insert", INSERT), ("sample", SAMPLE), ("update", UPDATE))
        }

    def insert(self, items: Columns) -> None:
        rows = packed(items, self.record)
        size = self.record.itemsize
        view = memoryview(rows.view(np.uint8).reshape(-1))
        records = [view[at : at + size] for at in range(0, len(view), size)]
        self.redis.evalsha(self.scripts["insert"], 0, self.setting.capacity, *records)

    def sample(self, batch: int) -> Sampled:
        asked = (self.scripts["sample"], 0, batch, self.setting.capacity)
        return self.of(self.redis.evalsha(*asked))

    def of(self, got: list[Any]) -> Sampled:
        """An answer of SAMPLE."""
        places, masses, rows = got
        raw = np.array([float(mass) for mass in masses]) ** -BETA
        keys = np.array(places, np.int64)
        return Sampled(stacked(rows, self.record), keys, raw / raw.max())

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled] | None:
        return self.asked_ahead(batch, depth)

    def asked_ahead(self, batch: int, depth: int) -> Iterator[Sampled]:
        """SAMPLE, `depth` under way on a connection of its own."""
        connection = self.redis.connection_pool.get_connection()
        asked = ("EVALSHA", self.scripts["sample"], 0, batch, self.setting.capacity)
        for _ in range(depth):
            connection.send_command(*asked)
        while True:
            got = connection.read_response()
            connection.send_command(*asked)
            yield self.of(got)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        masses = (priorities**ALPHA).tolist()
        flat = [value for pair in zip(keys.tolist(), masses, strict=True) for value in pair]
        self.redis.evalsha(self.scripts["update"], 0, *flat)

    def close(self) -> None:
        self.redis.close()


class AtLearner(AtServer):
    """Draws from a sum tree of its own, and fetches the items."""

    def __init__(self, setting: Setting, port: int) -> None:
        super().__init__(setting, port)
        self.tree = NumpyReplay(Setting(setting.item, {"action": ["<i8", []]}, setting.capacity))

    def insert(self, items: Columns) -> None:
        super().insert(items)
        self.tree.add({"action": items["action"]})

    def sample(self, batch: int) -> Sampled:
        keys, weights = self.tree.draw(batch)
        rows = self.redis.mget([f"i:{key}" for key in keys.tolist()])
        return Sampled(stacked(rows, self.record), keys, weights)

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled] | None:
        return None

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        self.tree.update_priorities(keys, priorities)
