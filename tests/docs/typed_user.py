"""A user's program, as a type checker reads it (typed.py); nobody runs it.

A line with "type: ignore" is a mistake that both checkers have to find: they also complain of an
ignore that ignores nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import assert_type

import replay_server
from replay_server import (
    Batch,
    Batches,
    Client,
    Column,
    Keys,
    MinSize,
    NStep,
    Prioritized,
    Ready,
    SamplesPerInsert,
    Server,
    Spec,
    Table,
    Transitions,
    UpdateResult,
    Writer,
    priority_from_td,
    spec_from,
)


def described(env: Any) -> Table:
    spec = spec_from(env, extras=[Column("logits", np.float32, (4,))])
    assert_type(spec, Spec)
    limiter = SamplesPerInsert(8.0, min_size=1000)
    return Table("main", spec, NStep(3), 100_000, Prioritized(0.6), limiter, writers=2)


def mistaken(env: Any, table: Table) -> None:
    Table("main", spec_from(env), capcity=1000)  # type: ignore[call-arg]
    Table("main", spec_from(env), capacity="many")  # type: ignore[arg-type]
    MinSize(item=5)  # type: ignore[call-arg]
    Prioritized("much")  # type: ignore[arg-type]
    Server([table], regoin="/tmp/r")  # type: ignore[call-arg]
    Server("main", "udp://127.0.0.1:0")  # type: ignore[arg-type]
    Server(table, idle_ms="30 s")  # type: ignore[arg-type]
    Client("udp://127.0.0.1:7400", tiemout=1.0)  # type: ignore[call-arg]


def written(client: Client, env: Any) -> None:
    with client.writer("main", autoreset=env) as writer:
        assert_type(writer, Writer)
        observation, _ = env.reset()
        ready = writer.add_step(observation, 0, *env.step(0))
        assert_type(ready, Ready)
        writer.flush()
        writer.flush(timeuot=1.0)  # type: ignore[call-arg]
    keys = client.extend("rows", {"x": np.zeros((4, 2), np.float32)}, np.ones(4))
    assert_type(keys, Keys)


def learned(client: Client) -> None:
    batch = client.sample("main", 512, beta=0.4)
    assert_type(batch, Batch)
    assert_type(batch.keys, Keys)
    transitions = batch.transitions(0.99)
    assert_type(transitions, Transitions)
    priorities = priority_from_td(np.abs(batch.weights))
    updated = client.update_priorities("main", batch, priorities)
    assert_type(updated, UpdateResult)
    client.sample("main", 512, betta=0.4)  # type: ignore[call-arg]
    client.sampel("main", 512)  # type: ignore[attr-defined]
    with client.batches("main", 512, prefetch=2) as batches:
        assert_type(batches, Batches)
        for each in batches:
            assert_type(each, Batch)
            break


def shared(client: Client) -> None:
    version = client.publish_weights(b"bytes of a network")
    assert_type(version, int)
    assert_type(client.size("main"), int)
    assert_type(client.can_sample("main", 512), bool)
    assert_type(replay_server.__version__, str)


def served(env: Any) -> None:
    with Server([described(env)], "udp://127.0.0.1:0", seed=1) as server:
        assert_type(server.address, str)
        with Client(server.address) as client:
            written(client, env)
            learned(client)
