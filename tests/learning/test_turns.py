"""Collecting and learning in turns: one is over when all have done their part, and counts once."""

from __future__ import annotations

import threading
import time

import pytest
from workers import silent

from replay_server import ConfigError, Timeout
from replay_server.training import turns
from replay_server.training.asking import HEAD, Asker
from replay_server.training.turns import DONE, GONE, STORED, Giving, Taking

BOUND_S = 20.0


@pytest.fixture
def giving():
    made = Giving("tcp://127.0.0.1:0", 2)
    yield made
    made.close()


def taking(giving, number):
    return Taking(giving.address, number, BOUND_S, lambda: False)


def test_a_turn_waits_for_all_actors_and_begins_for_all(giving):
    """Given two actors that store 3 and 5 rows a turn, over ten turns. Expect 8 each time, never
    before both are done, and neither to go on before the learner says so."""
    course = []

    def play(number, stored):
        end = taking(giving, number)
        for turn in range(10):
            course.append(("done", number, turn))
            end.done(stored)
            course.append(("on", number, turn))
        end.close()

    threads = [threading.Thread(target=play, args=pair) for pair in ((0, 3), (1, 5))]
    for thread in threads:
        thread.start()
    for turn in range(10):
        stored = None
        while stored is None:
            stored = giving.collected(0.05)
        assert stored == 8
        assert ("on", 0, turn) not in course and ("on", 1, turn) not in course
        giving.go()
    for thread in threads:
        thread.join(BOUND_S)
    assert len(course) == 40


def test_a_question_asked_again_counts_once(giving):
    """Given an actor whose question comes three times, before the turn ends and after it. Expect
    its rows counted once, and its late question answered without a turn of its own."""
    line, other = Asker(giving.address, name=b"actor-0"), taking(giving, 1)
    thread = threading.Thread(target=other.done, args=(5,))
    thread.start()
    line.ask(DONE, STORED.pack(3))
    line.socket.send(line.question)
    while (stored := giving.collected(0.05)) is None:
        pass
    assert stored == 8
    giving.go()
    assert line.answer(time.monotonic() + BOUND_S) == (DONE, b"")
    thread.join(BOUND_S)
    line.socket.send(line.question)
    assert giving.collected(0.3) is None, "the late question began a turn"
    assert line.answer(time.monotonic() + BOUND_S) == (DONE, b"")
    line.close()
    other.close()


def test_an_actor_that_is_started_again_takes_its_own_place(giving):
    """Given an actor that ends in the midst of a turn, and another start of it that is done. Expect
    the turn to have the rows of the second, and to wait for the other actor."""
    first = Asker(giving.address, name=b"actor-0")
    first.ask(DONE, STORED.pack(3))
    assert giving.collected(0.2) is None
    first.close()
    second, other = (Asker(giving.address, name=name) for name in (b"actor-0", b"actor-1"))
    second.ask(DONE, STORED.pack(4))
    assert giving.collected(0.3) is None
    other.ask(DONE, STORED.pack(5))
    while (stored := giving.collected(0.05)) is None:
        pass
    assert stored == 9
    second.close()
    other.close()


def test_the_turns_go_on_without_an_actor_that_left(giving):
    """Given an actor that leaves while a turn waits for it, twice in words, and comes back. Expect
    the turns of the other alone, then those of both."""
    stays, leaves = (Asker(giving.address, name=name) for name in (b"actor-0", b"actor-1"))

    def turn(*asked):
        for line, stored in asked:
            line.ask(DONE, STORED.pack(stored))
        while (stored := giving.collected(0.05)) is None:
            pass
        giving.go()
        for line, _ in asked:
            assert line.answer(time.monotonic() + BOUND_S) == (DONE, b"")
        return stored

    assert turn((stays, 3), (leaves, 5)) == 8
    stays.ask(DONE, STORED.pack(3))
    assert giving.collected(0.2) is None
    leaves.ask(GONE)
    leaves.socket.send(leaves.question)
    while (stored := giving.collected(0.05)) is None:
        pass
    assert stored == 3
    giving.go()
    assert leaves.answer(time.monotonic() + BOUND_S) == (GONE, b"")
    assert stays.answer(time.monotonic() + BOUND_S) == (DONE, b"")
    assert turn((stays, 4)) == 4
    leaves.ask(DONE, STORED.pack(5))
    assert giving.collected(0.2) is None
    assert turn((stays, 3)) == 8
    stays.close()
    leaves.close()


def test_a_learner_that_begins_again_awaits_nobody_who_has_left():
    """Given turns that begin anew, with an actor known to have played all its steps. Expect those
    of the other alone."""
    giving = Giving("tcp://127.0.0.1:0", 2, {1})
    stays = Asker(giving.address, name=b"actor-0")
    stays.ask(DONE, STORED.pack(3))
    while (stored := giving.collected(0.05)) is None:
        pass
    assert stored == 3
    stays.close()
    giving.close()


def test_rows_that_no_environments_have_are_no_turn(giving):
    """Given an actor that stored 2^64 - 1 rows, as it says: more updates than anybody makes. Expect
    no turn of it."""
    line = Asker(giving.address, name=b"actor-0")
    line.ask(DONE, STORED.pack((1 << 64) - 1))
    assert giving.collected(0.2) is None and giving.there == {}
    line.close()


def test_an_actor_leaves_where_nobody_hears_it(monkeypatch):
    """Given turns that nobody gives, and an actor told to stop. Expect it to say its last word and
    to go."""
    monkeypatch.setattr(turns, "LEAVE_S", 0.1)
    with silent() as (url, socket):
        end = Taking(url, 0, BOUND_S, lambda: True)
        end.leave()
        name, question = socket.recv_multipart()
        assert name == b"actor-0" and HEAD.unpack_from(question)[1] == GONE
        end.close()


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"x" * 500, HEAD.pack(1, DONE) + STORED.pack(2), HEAD.pack(1, DONE)]
)
@pytest.mark.parametrize("name", [b"actor-0", b"actor-2", b"stranger"])
def test_bytes_that_are_no_question_begin_no_turn(giving, data, name):
    """Given a stranger's bytes, or an actor's. Expect no turn."""
    line = Asker(giving.address, name=name)
    line.socket.send(data)
    assert giving.collected(0.2) is None
    line.close()


def test_a_learner_that_is_gone_is_said_in_time():
    """Given turns that nobody gives. Expect Timeout after the patience given, and at once where the
    actor is told to stop."""
    with silent() as (url, _):
        end = Taking(url, 0, 0.3, lambda: False)
        with pytest.raises(Timeout, match=f"the learner of the turns at {url} is silent"):
            end.done(1)
        end.stopped = end.line.stopped = lambda: True
        end.done(1)
        end.close()


@pytest.mark.parametrize("url", ["turns", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:none"])
def test_an_address_that_is_none_is_a_sentence(url):
    """Given words that are no address. Expect ConfigError that says what one is."""
    with pytest.raises(ConfigError, match=rf"{url}: .*; an address is tcp://HOST:PORT"):
        Taking(url, 0, BOUND_S, lambda: False)


@pytest.mark.parametrize("url", ["tcp://0.0.0.0:0", "tcp://127.0.0.1:none"])
def test_turns_are_given_on_this_machine_alone(url):
    """Given an address of other machines, or of no port. Expect ConfigError."""
    with pytest.raises(ConfigError, match="--turns"):
        Giving(url, 1)
