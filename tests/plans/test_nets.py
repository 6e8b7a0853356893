"""What a plan says of a learner's nets reaches the program that has them, under every policy."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from deploy.launch import commands
from deploy.plan import NETS, POLICIES, Process, load
from deploy.sync import in_turn
from deploy.together import nets_of
from replay_server.training.options import Train

SAID = {"device": "cuda:1", "compile": True}


def test_what_a_plan_says_of_nets_is_a_learners_option():
    """Given the keys. Expect each in a plan's process, of the learner, of `together`, and of what
    runs all in one process; a value for each here."""
    assert set(SAID) == set(NETS)
    assert set(NETS) <= {field.name for field in dataclasses.fields(Process)}
    assert set(nets_of(Train)) == set(NETS)
    assert set(NETS) <= set(inspect.signature(in_turn).parameters)


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "gpu-only"])
def test_it_reaches_the_program_that_learns(policy, tmp_path):
    """Given a plan that says something of each. Expect it in the words of every program that has a
    learner's nets, and of no other."""
    plan = load(policy)
    changed = [
        dataclasses.replace(process, **SAID)
        if {"learner", "weights"} & {*process.fragments}
        else process
        for process in plan.processes
    ]
    plan = dataclasses.replace(plan, processes=tuple(changed))
    found = commands(plan, tmp_path, 8, "CartPole-v1", "sticky")
    learning = [c for c in found if c.kind in ("learner", "weights", "together")]
    assert learning
    for command in found:
        words = " ".join(command.words)
        there = "--device cuda:1" in words and "--compile" in words
        assert there == (command in learning), command
