"""Last observations that are not the last: what the reset returned stands in their place."""

import re
import warnings

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
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
@pytest.mark.parametrize("given", ["infos", "none", "right"])
def test_a_final_observation_that_is_the_resets_is_found(own, given):
    """Given same-step environments, and next_observation handed in as the final one. Expect
    SpecError at the first end where infos has another; without infos a warning, and SpecError at
    the third end; nothing where it is what infos has."""
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
                    next_observation=after,
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
        assert heard == [True] * (given == "none")
        writer.link.close(1.0)
