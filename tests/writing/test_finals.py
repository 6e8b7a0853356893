"""Last observations that are not the last: what the reset returned stands in their place."""

import re
import warnings

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import Autoreset
from test_autoreset import Counting, counting_vector

from replay_server import Client, NStep, Server, Table
from replay_server.spec import SpecError, spec_from


@pytest.mark.parametrize("own", [True, False], ids=["handed over", "named"])
@pytest.mark.parametrize("copy", [False, True], ids=["object", "copy"])
def test_who_resets_before_adding_is_told_and_stopped(own, copy):
    """Given a single environment whose next observation is the reset's already. Expect a warning
    that names this cause, and SpecError at the third end, of copies as of the object itself."""
    env, table = Counting(), Table("m", step=spec_from(Counting()), plan=NStep(1), capacity=256)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        writer, ends = client.writer("m", autoreset=env if own else None), 0
        told = "next_observation was the reset's already.*add each step before you reset"

        def play():
            nonlocal ends
            observation, _ = env.reset()
            while ends < 9:
                after, reward, terminated, truncated, infos = env.step(0)
                if truncated:
                    after, _ = env.reset()
                writer.add_step(observation, 0, after, reward, terminated, truncated, infos)
                ends += truncated
                observation = after.copy() if copy else after

        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            with pytest.raises(SpecError, match=told):
                play()
        assert ends == 3
        assert [bool(re.search(told, str(one.message))) for one in heard] == [True]
        writer.link.close(1.0)


@pytest.mark.parametrize("own", [True, False], ids=["handed over", "named"])
@pytest.mark.parametrize("given", ["infos", "infos alone", "none", "right"])
def test_a_final_observation_that_is_the_resets_is_found(own, given):
    """Given same-step environments, and next_observation handed in as the final one. Expect
    SpecError at the first end where infos has another; without infos, or without next_observation,
    a warning, and SpecError at the third end; nothing where it is what infos has."""
    envs = counting_vector(AutoresetMode.SAME_STEP)
    table = Table("m", step=spec_from(envs), plan=NStep(1), capacity=256)
    with Server([table], "loopback://") as server, Client(server.address) as client:
        writer, ends = client.writer("m", 3, autoreset=envs if own else "same-step"), 0

        def play():
            nonlocal ends
            observation, _ = envs.reset()
            for _ in range(12):
                after, reward, terminated, truncated, infos = envs.step(np.zeros(3, np.int64))
                final = after.copy()
                if given == "right" and truncated.any():
                    final[truncated] = np.stack(infos["final_obs"][truncated])
                writer.add_batch(
                    observation=observation,
                    action=np.zeros(3, np.int64),
                    reward=reward,
                    terminated=terminated,
                    truncated=truncated,
                    next_observation=None if given == "infos alone" else after,
                    infos=None if given == "none" else infos,
                    final_observation=final,
                )
                ends += truncated.any()
                observation = after

        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            if given == "right":
                play()
                assert ends == 6
            else:
                with pytest.raises(SpecError, match=r"final_observation.*is next_observation"):
                    play()
                assert ends == (0 if given == "infos" else 3)
        heard = ["is next_observation, the reset's" in str(one.message) for one in heard]
        assert heard == [True] * (given in ("none", "infos alone"))
        writer.link.close(1.0)


@pytest.mark.parametrize("said", ["named", "handed over", "one by itself"])
@pytest.mark.parametrize("given", ["infos", "no infos", "final_observation"])
def test_a_named_next_step_asks_for_infos(said, given):
    """Given next-step environments that are truncated, without rewards. Expect one warning at the
    first end without infos where the mode of a vector was named: were it wrong, nothing else would
    tell. None where infos or final_observation are given, nor of an environment handed over, nor of
    one by itself."""
    alone = said == "one by itself"
    envs = Autoreset(Counting()) if alone else counting_vector(AutoresetMode.NEXT_STEP)
    table = Table("m", step=spec_from(envs), plan=NStep(1), capacity=256)
    with (
        Server([table], "loopback://") as server,
        Client(server.address) as client,
        warnings.catch_warnings(record=True) as heard,
    ):
        warnings.simplefilter("always")
        mode = envs if said == "handed over" else "next-step"
        writer, ends = client.writer("m", 1 if alone else 3, autoreset=mode), 0
        add = writer.add if alone else writer.add_batch
        observation, _ = envs.reset()
        for _ in range(16):
            action = 0 if alone else np.zeros(3, np.int64)
            after, reward, terminated, truncated, infos = envs.step(action)
            assert not np.any(terminated) and (ends or not heard)
            ends += int(np.any(truncated))
            add(
                observation=observation,
                action=action,
                reward=0.0 * reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=after,
                infos=infos if given == "infos" else None,
                final_observation=after if given == "final_observation" else None,
            )
            asked = said == "named" and given == "no infos" and ends > 0
            assert len(heard) == asked
            observation = after
        writer.close()
    assert ends > 2
    assert all("hand infos in" in str(one.message) for one in heard)
