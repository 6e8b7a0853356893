"""An algorithm is a file, a name and a row of traits: no program asks for one by its name."""

from __future__ import annotations

import re

from tracked import ROOT, tracked

from learner.algorithms import ALGORITHMS
from replay_server.training.presets import ONLY, TRAITS


def test_an_algorithm_has_traits_and_traits_an_algorithm():
    """Given both tables. Expect the same names; settings of Q values to be all such algorithms'."""
    assert set(ALGORITHMS) == set(TRAITS)
    assert {name for name, traits in TRAITS.items() if traits.values == "q"} == {
        *ONLY["huber_delta"]
    }
    assert {name for name, traits in TRAITS.items() if traits.on_policy} == {*ONLY["rollout"]}


def test_nobody_asks_for_a_name():
    """Given every source of the programs. Expect no comparison with an algorithm's name."""
    name = "|".join(TRAITS)
    asks = re.compile(rf"""(==|!=|\bin) \(?["']({name})["']""")
    assert asks.search('algorithm == "dqn"') and asks.search('algorithm in ("sac", "ppo")')
    paths = tracked("actor/*.py", "learner/*.py", "deploy/*.py", "replay_server/*.py")
    found = [path for path in paths if asks.search(path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in found] == []
