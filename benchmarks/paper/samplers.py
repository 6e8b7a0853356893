"""Three ways to draw a prioritized batch from a server: by the server, by its keys, by the client.

    ServerSampler   the server draws and sends the items: one round trip
    KeySampler      the server draws keys, the client fetches the items at them: two round trips
    ClientSampler   the client draws from a tree of its own, and fetches the items: one round trip
                    a batch, and one before it to keep the tree fresh

All three have `sample(batch, beta)`, which returns the items as a `replay_server.Batch` and their
importance weights, float32 [B], and `update_priorities(items, priorities)`. What differs is where
the draw is.

The table ITEMS holds the items; several pairs of tables of one server have a number of their own
behind their names, `of`. INDEX holds a row of 8 bytes for each, its key in ITEMS, under the
item's priority: what KeySampler draws from, and where ClientSampler reads priorities of other
actors' items. `insert` writes both. ClientSampler's tree is this package's own engine, on a
loopback server in the client's process: the same code draws on both sides.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from replay_server import Batch, Client, Column, Prioritized, Server, Spec, Table, UpdateResult

ITEMS, INDEX, TREE = "items", "index", "tree"
ALPHA = 0.6
FETCH_MAX, AHEAD_MIN = 2048, 32  # keys of one request
MASS_UNIT = 2.0**26  # the mass of an item of priority 1
KEYED = Spec((Column("key", np.uint64),))
Drawn = tuple[Batch, np.ndarray]  # items, weights
_names = itertools.count()


def tables(item_bytes: int, capacity: int, writers: int = 4, of: str = "") -> list[Table]:
    """What a server of these samplers serves; writers: clients that insert."""
    spec = Spec((Column("item", np.uint8, (item_bytes,)),))
    return [
        Table(name, step=step, capacity=capacity, sampler=Prioritized(ALPHA), writers=writers)
        for name, step in ((ITEMS + of, spec), (INDEX + of, KEYED))
    ]


def insert(client: Client, items: np.ndarray, priorities: np.ndarray, of: str = "") -> None:
    """Stores uint8 [N, item_bytes] with their priorities, float64 [N], acknowledged; one inserter
    at a time, so that a row of INDEX goes when its item does."""
    keys = client.extend(ITEMS + of, {"item": items}, priorities=priorities)
    client.extend(INDEX + of, {"key": np.asarray(keys)}, priorities=priorities)


class ServerSampler:
    """The server draws, and sends what it drew: one round trip."""

    def __init__(self, client: Client, of: str = "") -> None:
        self.client, self.items = client, ITEMS + of

    def sample(self, batch: int, beta: float) -> Drawn:
        """`batch` items in proportion to priority^alpha."""
        items = self.client.sample(self.items, batch, beta=beta)
        return items, items.weights

    def update_priorities(self, items: Batch, priorities: np.ndarray) -> UpdateResult:
        """New priorities, float64 [B]; they count for the next draw."""
        return self.client.update_priorities(self.items, items, priorities)

    def close(self) -> None:
        """Nothing is its own."""


class KeySampler:
    """The server draws keys; the items at them come in a second round trip.

    Weights are those of the draw. An item that was overwritten in between is not `valid`.
    """

    def __init__(self, client: Client, of: str = "") -> None:
        self.client, self.items, self.index = client, ITEMS + of, INDEX + of
        self.drawn: np.ndarray | None = None  # the last draw's keys in INDEX

    def sample(self, batch: int, beta: float) -> Drawn:
        """`batch` items in proportion to priority^alpha."""
        drawn = self.client.sample(self.index, batch, beta=beta)
        self.drawn = np.array(drawn.keys)
        return self.client.get(self.items, drawn["key"][:, 0]), drawn.weights

    def update_priorities(self, items: Batch, priorities: np.ndarray) -> UpdateResult:
        """New priorities of the last batch, float64 [B]; they count for the next draw."""
        return self.client.update_priorities(self.index, self.drawn, priorities)

    def close(self) -> None:
        """Nothing is its own."""


class ClientSampler:
    """The client draws from a tree of its own and fetches the items at the keys it drew.

    Before each draw it fetches the rows and masses of INDEX that came since: another actor's
    priorities are known to the server alone. It asks for somewhat more rows than came last time, so
    one round trip brings them, and the first row that is not there yet says that these were all.
    `upkeep_rows` counts them.
    """

    def __init__(self, client: Client, of: str = "") -> None:
        self.client, self.items, self.index = client, ITEMS + of, INDEX + of
        self.upkeep_rows, self.ahead = 0, FETCH_MAX
        self.capacity = client.table(self.index).capacity
        spec = Spec((Column("slot", np.uint64),))
        tree = Table(TREE, step=spec, capacity=self.capacity, sampler=Prioritized(1.0))
        self.server = Server([tree], f"loopback://tree-{next(_names)}")
        self.local = Client(self.server.address)
        # a leaf for each slot of the table, never drawn while its mass is 0
        slots, masses = np.arange(self.capacity, dtype=np.uint64), np.zeros(self.capacity)
        self.leaves = np.array(self.local.extend(TREE, {"slot": slots}, priorities=masses))
        self.keys, self.places = np.zeros((2, self.capacity), np.uint64)  # by slot
        self.slots = np.zeros(0, np.uint64)  # of the last draw
        self.known = self._oldest()
        self.refresh()

    def _oldest(self) -> int:
        """The key of the oldest row that is there, or of the next one where there is none."""
        table = self.client.table(self.index)
        return table.head - min(table.inserted, table.capacity)

    def refresh(self) -> int:
        """Brings the tree up to date with the table; how many rows came."""
        first, asked, came = self.known, 0, 0
        while came == asked:  # at first, and whenever there may be more
            asked = self.ahead
            places = np.arange(self.known, self.known + asked, dtype=np.uint64)
            got = self.client.get(self.index, places)
            came = asked if got.valid.all() else int(np.argmin(got.valid))
            if came:
                self._take(got["key"][:came, 0], places[:came], got.masses[:came] / MASS_UNIT)
            elif (oldest := self._oldest()) > self.known:  # the table went round meanwhile
                gone = np.arange(max(self.known, oldest - self.capacity), oldest, dtype=np.uint64)
                for at in range(0, len(gone), FETCH_MAX):
                    part = gone[at : at + FETCH_MAX]
                    self._take(part, part, np.zeros(len(part)))
                self.known, asked = oldest, 0
        self.ahead = min(FETCH_MAX, max(AHEAD_MIN, 2 * (self.known - first)))
        self.upkeep_rows += self.known - first
        return self.known - first

    def _take(self, keys: np.ndarray, places: np.ndarray, masses: np.ndarray) -> None:
        """Rows into the tree, in the slots that the table has them in."""
        slots = places % np.uint64(self.capacity)
        self.keys[slots], self.places[slots] = keys, places
        self.local.update_priorities(TREE, self.leaves[slots], masses)
        self.known += len(places)

    def sample(self, batch: int, beta: float) -> Drawn:
        """`batch` items in proportion to priority^alpha."""
        self.refresh()
        drawn = self.local.sample(TREE, batch, beta=beta)
        self.slots = drawn["slot"][:, 0]
        return self.client.get(self.items, self.keys[self.slots]), drawn.weights

    def update_priorities(self, items: Batch, priorities: np.ndarray) -> UpdateResult:
        """At the server, for other learners and its region, and in the tree here."""
        masses = np.asarray(priorities, np.float64) ** ALPHA
        self.local.update_priorities(TREE, self.leaves[self.slots], masses)
        return self.client.update_priorities(self.index, self.places[self.slots], priorities)

    def close(self) -> None:
        """Ends the tree."""
        self.local.close()
        self.server.close()


SAMPLERS: dict[str, Any] = {
    "server": ServerSampler,
    "keys": KeySampler,
    "client": ClientSampler,
}
