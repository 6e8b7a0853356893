"""A writer that a reset of its table ended, and the place that it held."""

from __future__ import annotations

import gymnasium
import pytest

from replay_server import (
    Client,
    ClosedError,
    NStep,
    RowsDropped,
    Server,
    Table,
    TableEmptied,
    spec_from,
)


@pytest.mark.parametrize("url", ["loopback://", "udp://127.0.0.1:0"])
def test_the_next_writer_has_the_place_of_the_one_that_ended(url):
    """Given a table with one place, reset again and again, and a caller who keeps each writer that
    ended. Expect another one to be opened each time, and the ended one to be closed then."""
    env = gymnasium.make("CartPole-v1")
    table = Table("m", spec_from(env), NStep(1), 1000, writers=1, streams=1)
    with Server([table], url) as server, Client(server.address) as client:
        ended = []
        for _ in range(3):
            writer = client.writer("m", autoreset=env)
            observation, _ = env.reset(seed=1)
            writer.add_step(observation, 0, *env.step(0))
            writer.flush()
            client.reset("m")
            with pytest.raises(TableEmptied, match="open a new writer"):
                writer.add_step(observation, 0, *env.step(0))
                writer.flush()
            assert not writer.closed
            ended.append(writer)
        client.writer("m", autoreset=env).close()
        assert all(writer.closed for writer in ended)
        with pytest.raises(ClosedError):
            ended[0].flush()


@pytest.mark.parametrize("url", ["loopback://", "udp://127.0.0.1:0"])
def test_one_that_was_not_told_yet_gives_its_place_back_too(url):
    """Given a table with one place, and a reset of which its writer has not heard, with a row in
    it that nobody stored. Expect the next writer to be opened, and a warning that counts the row;
    a writer of another table to go on."""
    env = gymnasium.make("CartPole-v1")
    tables = [Table(name, spec_from(env), NStep(1), 1000, writers=1, streams=1) for name in "mn"]
    with Server(tables, url) as server, Client(server.address) as client:
        writer, other = (client.writer(name, autoreset=env) for name in "mn")
        observation, _ = env.reset(seed=1)
        client.reset("m")
        writer.add_step(observation, 0, *env.step(0))
        with pytest.warns(RowsDropped, match="the table was emptied under a writer with 1 of its"):
            client.writer("m", autoreset=env).close()
        assert writer.closed and not other.closed
        observation, _ = env.reset(seed=1)
        other.add_step(observation, 0, *env.step(0))
        other.close()
