"""All writer places of a table are taken: what is said, and who waits for one.

A program that was killed keeps its place until the server gives its silent session up (idle_ms).
So an actor that is started again waits that long; a living writer's place is never freed.
"""

from __future__ import annotations

import re

import pytest
from environments import ChainEnv
from test_programs import OPTIONS, SETTINGS, Programs

from deploy.table import server_toml
from replay_server import Client, NoRoom, NStep, Server, Table, spec_from
from replay_server.training.contact import Stop, Stopped, writer_of
from replay_server.training.presets import changed

PATIENCE_S = 600.0
IDLE_MS = 8000  # longer than an actor takes to start, so that it finds its place still taken


@pytest.fixture
def client():
    """A client of a server whose table has one writer place."""
    table = Table("main", step=spec_from(ChainEnv()), plan=NStep(1), capacity=1000, writers=1)
    with (
        Server([table], "udp://127.0.0.1:0", idle_ms=2000) as server,
        Client(server.address) as made,
    ):
        yield made


def test_the_place_of_a_writer_that_goes_is_taken_over(client):
    """Given a place that another writer holds until the wait is told. Expect one line, with what
    is waited for and for how long, and then the place."""
    holder, said = client.writer("main"), []

    def say(sentence):
        said.append(sentence)
        holder.close()

    writer = writer_of(client, "main", PATIENCE_S, Stop(), say)
    writer.add(observation=0, action=0, reward=1.0, terminated=True, truncated=False)
    assert writer.flush().items_created == 1
    assert said == [
        "the only writer place of table 'main' is taken; waiting up to 7 s for one: that of a "
        "program that was killed is free after 2 s (idle_ms)"
    ]


def test_a_place_that_stays_taken_ends_the_wait(client, monkeypatch):
    """Given a living writer that says nothing. Expect NoRoom once the time of a dead one's place,
    or the program's patience, is over; the writer still has its place."""
    monkeypatch.setattr("replay_server.training.contact.PLACE_MARGIN_S", 0.1)
    with client.writer("main") as holder:
        for patience, advice in ((0.0, "after 2 s: wait longer"), (PATIENCE_S, "stop an actor")):
            with pytest.raises(NoRoom) as error:
                writer_of(client, "main", patience, Stop(), lambda _: None)
            words = rf"is taken, and none was free within [\d.]+ s; .*{advice}.*, or .*writers"
            assert re.search(words, str(error.value)), error.value
            assert error.value.status == "NO_WRITER_FREE"
        holder.add(observation=0, action=0, reward=1.0, terminated=True, truncated=False)


def test_a_signal_ends_the_wait(client):
    """Given a stop that is asked for while it waits. Expect Stopped, with what it waited for."""
    stop = Stop()
    with client.writer("main"), pytest.raises(Stopped, match=r"writer place .* is taken"):
        writer_of(client, "main", PATIENCE_S, stop, lambda _: stop.event.set())


def test_the_library_says_who_frees_a_place(client):
    """Given no place. Expect it refused at once, in words that tell of the dead and the living."""
    with client.writer("main"), pytest.raises(NoRoom, match=r"killed .* idle_ms"):
        client.writer("main")


def test_a_killed_actor_is_started_again_where_all_places_are_taken(tmp_path):
    """Given three places and three actors, one killed and started again at once. Expect it to
    go on, in its own place, and the others not to have stopped."""
    programs = Programs(tmp_path)
    settings = changed(SETTINGS, steps_per_update=None, actors=3)
    toml = server_toml(settings, url=programs.address, seed=1)
    toml = re.sub(r"writers = \d+", "writers = 3", toml).replace(
        "[server]", f"[server]\nidle_ms = {IDLE_MS}"
    )
    (tmp_path / "server.toml").write_text(toml)
    common = ["--server", programs.address, "--run", str(tmp_path), *OPTIONS, "--actors", "3"]
    common += ["--env-steps", "1000000000"]

    def start(number):
        programs.start(f"actor-{number}", "actor", "--number", str(number), *common)

    try:
        programs.start_server()
        with Client(programs.address) as client:
            client.publish_weights(b"of no use")  # or each waits for a learner
        for number in range(3):
            start(number)
        for number in range(3):
            programs.grow(f"actor-{number}", "step", by=100)
        programs.kill("actor-1")
        start(1)
        programs.until(
            lambda: (
                "start 2 of this run" in programs.said("actor-1")
                or programs.running["actor-1"].ended() is not None
            ),
            "the actor is let in again",
        )
        assert programs.running["actor-1"].ended() is None, programs.said("actor-1")
        for number in range(3):
            programs.grow(f"actor-{number}", "step", by=100)
        assert programs.counters()["sessions_expired"] == 2, "its client's and its writer's"
    finally:
        programs.close()
