"""Reverb (dm-reverb 0.14), set up as its README and `rate_limiters` pages show.

A `Table` with a `Prioritized` selector, FIFO remover, `MinSize(1)`; a `Server` on a free port.
Items go in by a `trajectory_writer`, one step each, and its `flush`, which returns when the server
has confirmed all of them. With the option `frames` an item is a trajectory over the last five
frames, so each frame is sent and stored once. `sample` is `client.sample`; `ahead` a
`TrajectoryDataset` with `batch` and `prefetch`, its `max_in_flight_samples_per_worker` twice the
batch, as the README advises for small items. Reverb compresses what it stores. It has no importance
weights of its own: they are computed from each sample's probability and the table's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import reverb

from .peer import ALPHA, BETA, Columns, Peer, Sampled, Serving, Setting
from .pool import STACK, load

NAME = "items"


def signature(setting: Setting) -> dict[str, Any]:
    """Of one sampled item, as TensorFlow specs."""
    import tensorflow as tf

    def spec(name: str, lead: list[int]) -> Any:
        dtype = tf.as_dtype(setting.dtype(name))
        return tf.TensorSpec([*lead, *setting.shape(name)], dtype, name)

    if setting.options.get("frames"):
        frames = tf.TensorSpec([STACK + 1, *setting.shape("observation")[1:]], tf.uint8, "frames")
        others = {name: spec(name, [1]) for name in setting.columns if "observation" not in name}
        return {"frames": frames, **others}
    return {name: spec(name, [1]) for name in setting.columns}


def serve(setting: Setting) -> Serving:
    """A server of this process."""
    table = reverb.Table(
        name=NAME,
        sampler=reverb.selectors.Prioritized(ALPHA),
        remover=reverb.selectors.Fifo(),
        max_size=setting.capacity,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature(setting),
    )
    server = reverb.Server([table], port=None)
    return Serving(f"127.0.0.1:{server.port}", server.stop)


def connect(setting: Setting, address: str) -> Peer:
    """A client."""
    kind = Frames if setting.options.get("frames") else Plain
    return kind(setting, address)


def weights_of(probabilities: np.ndarray, size: int) -> np.ndarray:
    """(N P)^-beta over the largest."""
    raw = (max(size, 1) * np.maximum(probabilities, 1e-30)) ** -BETA
    return raw / raw.max()


class Plain(Peer):
    """One step is one item."""

    keep = 1

    def __init__(self, setting: Setting, address: str) -> None:
        self.setting, self.address = setting, address
        self.client = reverb.Client(address)
        self.writer = self.client.trajectory_writer(num_keep_alive_refs=self.keep)

    def insert(self, items: Columns) -> None:
        names = list(items)
        for i in range(len(items["action"])):
            self.writer.append({name: items[name][i] for name in names})
            history = self.writer.history
            trajectory = {name: history[name][-1:] for name in names}
            self.writer.create_item(NAME, priority=1.0, trajectory=trajectory)
        self.writer.flush()

    def sample(self, batch: int) -> Sampled:
        as_items = {"emit_timesteps": False, "unpack_as_table_signature": True}
        got = list(self.client.sample(NAME, batch, **as_items))
        data = [sample.data for sample in got]
        items = self.items({name: np.stack([row[name] for row in data]) for name in data[0]})
        infos = [sample.info for sample in got]
        keys = np.array([info.key for info in infos], np.uint64)
        probabilities = np.array([info.probability for info in infos])
        return Sampled(items, keys, weights_of(probabilities, infos[0].table_size))

    def items(self, rows: Columns) -> Columns:
        """What is sampled, [B, 1, *shape], as items."""
        return {name: rows[name][:, 0] for name in self.setting.columns}

    def ahead(self, batch: int, depth: int) -> Iterator[Sampled]:
        dataset = reverb.TrajectoryDataset.from_table_signature(
            self.address, NAME, max_in_flight_samples_per_worker=2 * batch
        )
        for got in dataset.batch(batch).prefetch(depth).as_numpy_iterator():
            keys, sizes = np.asarray(got.info.key), np.asarray(got.info.table_size)
            weights = weights_of(np.asarray(got.info.probability), int(sizes.flat[0]))
            yield Sampled(self.items(got.data), keys.reshape(batch, -1)[:, 0], weights)

    def update(self, keys: Any, priorities: np.ndarray) -> None:
        pairs = zip(keys.tolist(), priorities.tolist(), strict=True)
        self.client.mutate_priorities(NAME, updates=dict(pairs))

    def close(self) -> None:
        self.writer.close()


class Frames(Plain):
    """Each frame sent and stored once; an item refers to five of them."""

    keep = STACK + 1

    def __init__(self, setting: Setting, address: str) -> None:
        super().__init__(setting, address)
        _, self.ends = load(setting.pool)
        self.after = -1  # the number of the item that goes on the episode

    def insert(self, items: Columns) -> None:
        numbers = items["action"].tolist()
        for i, number in enumerate(numbers):
            if number != self.after:  # a new episode: the frames of its first stack
                self.writer.end_episode()
                for frame in items["observation"][i]:
                    self.writer.append({"frame": frame}, partial_step=False)
            self.writer.append(
                {
                    "frame": items["next_observation"][i][-1],
                    "action": items["action"][i],
                    "reward": items["reward"][i],
                    "terminated": items["terminated"][i],
                }
            )
            history = self.writer.history
            trajectory = {"frames": history["frame"][-STACK - 1 :]}
            trajectory |= {name: history[name][-1:] for name in ("action", "reward", "terminated")}
            self.writer.create_item(NAME, priority=1.0, trajectory=trajectory)
            self.after = -1 if self.ends[number] else number + 1
        self.writer.flush()

    def items(self, rows: Columns) -> Columns:
        frames = rows["frames"]
        rest = {name: rows[name][:, 0] for name in ("action", "reward", "terminated")}
        return {"observation": frames[:, :-1], "next_observation": frames[:, 1:], **rest}
