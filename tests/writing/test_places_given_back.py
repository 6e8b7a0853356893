"""A writer that a reset of its table ended, and the place that it held."""

from __future__ import annotations

import gymnasium
import pytest

from replay_server import Client, ClosedError, NStep, Server, Table, TableEmptied, spec_from


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
