"""Weights in one place: a learner that sends gradients, against one that applies its own.

Oracle: the same learner alone, with the same batches.
"""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
import rank as ranks
import safetensors.torch
import torch
from workers import silent, verbs_of

from actor.remote import RemoteVector
from learner.central import GRADIENTS, REFUSED, Central, Kept, packed
from learner.optimizing import NotFinite
from replay_server import ConfigError, ReplayError
from replay_server.training.asking import HEAD
from replay_server.training.contact import NoServer, Stopped
from replay_server.training.env_errors import EnvError
from replay_server.training.loop import learn

UPDATES = 20


class Place:
    """Weights kept by a thread of this process."""

    def __init__(self, name="cartpole"):
        self.name = name
        self.learner, self.ended = ranks.learner_of(5, name), threading.Event()
        self.kept = Kept("tcp://127.0.0.1:0", self.learner)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        torch.set_num_threads(1)
        while not self.ended.is_set():
            question = self.kept.question(0.02)
            if question is not None:
                self.kept.turn(question)

    def close(self):
        self.ended.set()
        self.thread.join()
        self.kept.close()


@pytest.fixture
def place(request):
    place = Place(getattr(request, "param", "cartpole"))
    yield place
    place.close()


def joined(place, seed=1):
    """A learner whose weights are kept there, with what it began with taken over."""
    learner = ranks.learner_of(seed, place.name)
    central = Central(place.kept.address, learner, lambda: False)
    learner.load(central.newest())
    return learner, central


@pytest.mark.parametrize("place", ["cartpole", "pendulum"], indirect=True)
def test_one_learner_is_what_it_would_be_alone(place):
    """Given a learner that sends its gradients, and one with the same first weights and the same
    noise that applies its own. Expect the same weights of all nets, the same priorities."""
    learner, central = joined(place)
    learner.algorithm.load_state_dict(place.learner.algorithm.state_dict())
    alone = ranks.learner_of(5, place.name)
    given = ranks.Given(ranks.batches((0,), UPDATES))
    for update, batch in enumerate(ranks.batches((0,), UPDATES)):
        torch.manual_seed(update)
        learn(given, learner, central)
        torch.manual_seed(update)
        _, priorities = alone.learn(batch)
        assert np.array_equal(given.priorities[-1], priorities)
        mine = learner.algorithm.state_dict()
        for name, tensor in alone.algorithm.state_dict().items():
            assert torch.equal(mine[name], tensor), (update, name)
        for each in (learner, place.learner):  # what is logged of them is what was learned
            for scalar, value in alone.update.scalars().items():
                assert each.update.scalars()[scalar] == pytest.approx(value, rel=1e-5), scalar
    assert learner.step == place.learner.step == UPDATES
    central.close()


def test_each_gradient_of_each_learner_is_applied_once(place):
    """Given two learners in turn, one of which asks each question twice. Expect as many steps as
    gradients, and both at the newest weights."""
    (one, first), (two, second) = joined(place, 1), joined(place, 2)
    batches = list(ranks.batches((0,), UPDATES))
    for batch in batches:
        learn(ranks.Given(iter([batch])), one, first)
        first.line.socket.send(first.line.question)  # as if its answer were lost
        assert first.line.answer(time.monotonic() + 20.0)[0] == GRADIENTS
        learn(ranks.Given(iter([batch])), two, second)
    assert place.learner.step == two.step == 2 * len(batches)
    first.close()
    second.close()


def test_a_gradient_that_is_not_finite_is_never_sent(place):
    """Given a batch with a NaN. Expect NotFinite that names its keys, and no step there."""
    learner, central = joined(place)
    batch = next(ranks.batches((0,), 1))
    batch.data["reward"][5, 0] = np.nan
    with pytest.raises(NotFinite, match=r"learner step 1: .* keys \[105\]"):
        learn(ranks.Given(iter([batch])), learner, central)
    assert place.learner.step == 0
    central.close()


def body(**tensors):
    return safetensors.torch.save(tensors)


def of_dtype(name):
    """A body of one number of a dtype that not every version of torch or safetensors knows."""
    size = {"F4": 1, "F8_E8M0": 1, "F8_E5M2": 1, "C64": 8}[name]
    shape = [2] if name == "F4" else []
    head = json.dumps({"loss": {"dtype": name, "shape": shape, "data_offsets": [0, size]}})
    return len(head).to_bytes(8, "little") + head.encode() + bytes(size)


HOSTILE = {
    "no gradients": b"x" * 50,
    "of another network": body(loss=torch.zeros(()), q_mean=torch.zeros(())),
    "a scalar that nobody logs": lambda names: body(
        **{f"gradient/{name}": tensor for name, tensor in names.items()},
        **{name: torch.zeros(()) for name in ("loss", "q_mean", "td", "more/losses/none")},
    ),
    "NaN": None,
    "complex": lambda names: body(
        **{f"gradient/{name}": tensor for name, tensor in names.items()},
        loss=torch.zeros((), dtype=torch.complex64),
        q_mean=torch.zeros(()),
    ),
    **{name: of_dtype(name) for name in ("F4", "F8_E8M0", "F8_E5M2", "C64")},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_gradient_is_refused_and_changes_nothing(place, case):
    """Given bytes of a stranger. Expect a refusal, the weights as they were, and a learner that is
    served behind it."""
    learner, central = joined(place)
    before, whole = place.learner.weights(), central.newest()
    question = HOSTILE[case]
    if callable(question):
        question = question(dict(place.learner.algorithm.online.named_parameters()))
    if question is None:
        gradients = learner.gradients(next(ranks.batches((0,), 1)))
        gradients.of[0].fill_(float("nan"))
        question = packed(gradients, central.names, 0)
    with pytest.raises(ReplayError):
        central.ask(question)
    central.line.socket.send(central.line.question)
    assert central.line.answer(time.monotonic() + 20.0)[0] == REFUSED, "refused when it comes again"
    verbs = verbs_of(place.kept.address, [b"\x01"], HEAD.pack(7, GRADIENTS))
    assert verbs == {7: GRADIENTS}
    assert place.learner.weights() == before and central.newest() == whole
    central.close()


def test_target_nets_are_the_keepers_whenever_a_learner_comes(place):
    """Given two learners whose gradients come in turn, over copies of the target net (every 7
    steps), and a third one that begins between two copies. Expect all nets of each to be the
    keeper's behind each answer."""
    given, kept = ranks.Given(ranks.batches((0,), UPDATES)), place.learner
    parts = [joined(place, 1), joined(place, 2)]

    def like_the_keeper(learner):
        mine = learner.algorithm.state_dict()
        for name, tensor in kept.algorithm.state_dict().items():
            assert torch.equal(tensor, mine[name]), (learner.step, name)

    for update in range(UPDATES):
        if update == 10:
            parts.append(joined(place, 3))
            like_the_keeper(parts[2][0])
        learner, central = parts[update % 5 % len(parts)]  # whoever waits passes one copy by
        learn(given, learner, central)
        like_the_keeper(learner)
    assert kept.step == UPDATES > 2 * 7
    for _, central in parts:
        central.close()


def test_weights_that_nobody_keeps_are_said_in_time():
    """Given an address where nobody answers. Expect NoServer after the patience given, and Stopped
    where the learner is told to stop."""
    with silent() as (url, _):
        for stopped, kind in ((False, NoServer), (True, Stopped)):
            central = Central(url, ranks.learner_of(1), lambda told=stopped: told, patience=0.3)
            with pytest.raises(kind, match=url):
                central.newest()
            central.close()


@pytest.mark.parametrize("url", ["tcp://0.0.0.0:0", "tcp://127.0.0.1:none"])
def test_where_weights_cannot_be_kept_is_said(url):
    """Given an address of other machines, or of no port. Expect ConfigError."""
    with pytest.raises(ConfigError, match="--gradients"):
        Kept(url, ranks.learner_of(seed=1))


def test_who_is_no_learner_is_told_what_is_kept_here(place):
    """Given an actor that looks for workers at the address of weights. Expect EnvError that says
    what is there."""
    with pytest.raises(EnvError, match="weights are kept here"):
        RemoteVector([place.kept.address], "CartPole-v1", 2)
