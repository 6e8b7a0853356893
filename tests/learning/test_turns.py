"""Collecting and learning in turns: one is over when all have done their part, and counts once."""

from __future__ import annotations

import threading

import pytest
import zmq

from replay_server import ConfigError, Timeout
from replay_server.training.turns import MESSAGE, Giving, Taking

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
    with zmq.Context() as context, context.socket(zmq.DEALER) as line:
        line.setsockopt(zmq.LINGER, 0)
        line.setsockopt(zmq.ROUTING_ID, b"actor-0")
        line.connect(giving.address)
        other = taking(giving, 1)
        thread = threading.Thread(target=other.done, args=(5,))
        thread.start()
        for _ in range(2):
            line.send(MESSAGE.pack(77, 3))
        while (stored := giving.collected(0.05)) is None:
            pass
        assert stored == 8
        giving.go()
        assert MESSAGE.unpack(line.recv())[0] == 77
        thread.join(BOUND_S)
        line.send(MESSAGE.pack(77, 3))
        assert giving.collected(0.3) is None, "the late question began a turn"
        assert MESSAGE.unpack(line.recv())[0] == 77
        other.close()


@pytest.mark.parametrize("data", [b"", b"\x01", b"x" * 500, MESSAGE.pack(1, 2)])
def test_bytes_that_are_no_question_begin_no_turn(giving, data):
    """Given a stranger's bytes. Expect no turn, and one for the actors behind them."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(giving.address)
        stranger.send(data)
        assert giving.collected(0.2) is None


def test_a_learner_that_is_gone_is_said_in_time():
    """Given turns that nobody gives. Expect Timeout after the patience given, and at once where the
    actor is told to stop."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as silent:
        silent.setsockopt(zmq.LINGER, 0)
        url = f"tcp://127.0.0.1:{silent.bind_to_random_port('tcp://127.0.0.1')}"
        end = Taking(url, 0, 0.3, lambda: False)
        with pytest.raises(Timeout, match=f"the learner of the turns at {url} is silent"):
            end.done(1)
        end.stopped = lambda: True
        end.done(1)
        end.close()


@pytest.mark.parametrize("url", ["tcp://0.0.0.0:0", "tcp://127.0.0.1:none"])
def test_turns_are_given_on_this_machine_alone(url):
    """Given an address of other machines, or of no port. Expect ConfigError."""
    with pytest.raises(ConfigError, match="--turns"):
        Giving(url, 1)
