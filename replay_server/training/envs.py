"""Environments by name: vectors for acting, and seeds that never meet.

Seeds are built from (purpose, seed, index) in disjoint bit fields, so training, selection and the
final evaluation can never play the same episode start, whatever --seed was given (but for Atari,
where a hash of 31 bits is left of them: two starts meet with probability 2^-31):

    bit 56..   purpose      bit 24..55  seed      bit 0..23  environment or episode index
"""

from __future__ import annotations

import importlib
from contextlib import closing
from difflib import get_close_matches
from functools import partial

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from ..spec import Column, Spec, SpecError, spec_from
from ..support.arguments import nearest
from .actions import actions_of
from .agents import agent_of, is_joint, make_seat, make_task, seats_of
from .backends import check_backend, threads_for, vector_of
from .env_errors import EnvError, raised
from .presets import SEED_MAX, TORCH, TRAITS

TORCH_TASKS = ("CartPole-v1", "Pendulum-v1")
PURPOSES = ("train", "select", "confirm", "evaluate")
INDEX_MAX = (1 << 24) - 1


def seed_for(purpose: str, seed: int, index: int = 0) -> int:
    """A seed for environment (or episode) `index`; equal only for equal arguments."""
    if not 0 <= seed <= SEED_MAX or not 0 <= index <= INDEX_MAX:
        raise ValueError(f"seed {seed}, index {index}: at most {SEED_MAX} and {INDEX_MAX}")
    return PURPOSES.index(purpose) << 56 | seed << 24 | index


def is_atari(env_id: str) -> bool:
    """True for ids of ale-py's games; also for the old ids, so that the error names the new one."""
    return env_id.startswith("ALE/") or "NoFrameskip" in env_id or "Deterministic-" in env_id


def torch_task(env_id: str) -> str:
    """ "CartPole-v1" of "torch/CartPole-v1" (torch_envs.py); "" of other ids; EnvError where there
    is no such task."""
    if not env_id.startswith(TORCH):
        return ""
    name = env_id.removeprefix(TORCH)
    if name not in TORCH_TASKS:
        close = nearest(name, TORCH_TASKS)
        raise EnvError(f"no environment {env_id!r}; the nearest is {TORCH + close!r}")
    return name


def check_env(env_id: str) -> None:
    """EnvError where no environment has this id, with the nearest one that there is."""
    if is_atari(env_id):
        from .atari import rom_of

        rom_of(env_id)
        return
    if is_joint(env_id):
        make_task(env_id).close()
        return
    if torch_task(env_id):
        return
    module, _, name = env_id.rpartition(":")  # "module:Name-v0" registers itself when imported
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise EnvError(f"environment {env_id!r}: no module to import ({error})") from error
        except Exception as error:  # what a stranger's module does as it is imported
            raise EnvError(f"environment {env_id!r}: {raised(module, error)}") from error
    if not name:
        raise EnvError(f"environment {env_id!r} has no name; say one as CartPole-v1 or module:Name")
    if name not in gymnasium.registry:
        close = get_close_matches(name, sorted(gymnasium.registry), n=1)
        hint = f"the nearest is {close[0]!r}" if close else "no id that Gymnasium knows is like it"
        raise EnvError(f"no environment {env_id!r}; {hint}")


def envs_of(env_id: str) -> list[str]:
    """The seats of a task of several agents; else the environment alone."""
    if not is_joint(env_id) or agent_of(env_id):
        return [env_id]
    with closing(make_task(env_id)) as task:
        return seats_of(task, env_id)


def check_playable(env_id: str, algorithm: str = "dqn") -> None:
    """EnvError where there is no such environment, or none whose actions it can choose from."""
    check_env(env_id)
    if is_atari(env_id) and TRAITS[algorithm].values == "q":
        return
    if is_joint(env_id) and not agent_of(env_id):
        for seat in envs_of(env_id):
            check_playable(seat, algorithm)
        return
    env = make_env(env_id)
    try:
        actions_of(env, algorithm)
        spec_from(env)
    except ValueError as error:
        raise EnvError(f"environment {env_id!r}: {error}") from error
    finally:
        env.close()


def make_env(
    env_id: str, render_mode: str | None = None, *, protocol: str = "sticky"
) -> gymnasium.Env:
    """One environment, or EnvError. `protocol` is for Atari, see atari.py."""
    check_env(env_id)
    if is_atari(env_id):
        from .atari import AtariGame

        return AtariGame(env_id, protocol=protocol)
    if is_joint(env_id):
        return make_seat(env_id)
    env_id = torch_task(env_id) or env_id  # one of them is Gymnasium's
    return _made(env_id) if render_mode is None else _drawn(env_id, render_mode)


def _made(env_id: str) -> gymnasium.Env:
    return _make(env_id)  # no render_mode: a constructor need not take one


def _drawn(env_id: str, render_mode: str) -> gymnasium.Env:
    try:
        return _make(env_id, render_mode=render_mode)
    except EnvError as error:
        if "unexpected keyword argument 'render_mode'" not in str(error):
            raise
        raise EnvError(
            f"environment {env_id!r} draws no pictures: its constructor takes no render_mode; "
            "leave out --video"
        ) from error


def _make(env_id: str, **named: str) -> gymnasium.Env:
    try:
        return gymnasium.make(env_id, **named)
    except gymnasium.error.Error as error:
        raise EnvError(f"environment {env_id!r}: {error}") from error
    except Exception as error:  # what a stranger's constructor does
        raise EnvError(f"environment {env_id!r}: {raised('its constructor', error)}") from error


def make_envs(
    env_id: str,
    count: int,
    *,
    protocol: str = "sticky",
    device: str = "cpu",
    backend: str = "sync",
) -> VectorEnv:
    """`count` environments in Gymnasium's next-step mode; or EnvError. device: where those of
    torch_envs.py are stepped. backend: see backends.py."""
    check_env(env_id)
    check_backend(backend, env_id)
    if is_atari(env_id) and backend != "envpool":
        from .atari import AtariFrames

        threads = 1 if backend == "sync" else threads_for(count)
        return AtariFrames(env_id, count, protocol=protocol, threads=threads)
    if is_joint(env_id):
        make_seat(env_id).reset()  # says where it is played
    if name := torch_task(env_id):
        from .torch_envs import TorchVector

        return TorchVector(name, count, device)
    return vector_of(backend, env_id, partial(make_env, env_id, protocol=protocol), count, protocol)


def seed_of_life(seed: int, life: int) -> int:
    """The seed of a program's start number `life`: no life repeats another's episodes."""
    return seed if life == 0 else int(np.random.SeedSequence([seed, life]).generate_state(1)[0])


def train_seeds(seed: int, actor: int, count: int) -> list[int]:
    """The reset seeds of actor number `actor`, one an environment."""
    return [seed_for("train", seed, actor * count + i) for i in range(count)]


def check_columns(env: gymnasium.Env | VectorEnv, env_id: str, spec: Spec, table: str) -> None:
    """SpecError where `spec` does not hold this environment's observations and actions.

    Its rows would not fit, and no network that learns from the table would play it.
    """
    if difference := column_difference(env, env_id, spec):
        raise SpecError(
            f"table {table!r}: {difference}; say with --env which environment the table is for, or "
            "with --table which one holds this environment's steps"
        )


def column_difference(env: gymnasium.Env | VectorEnv, env_id: str, spec: Spec) -> str:
    """The first column of `spec` that does not hold this environment's observations or actions, and
    what it makes; "" where all do. Narrower numbers of the same kind are fine."""
    made = spec_from(env)
    for group in ("observation", "action"):
        ours = {column.name: column for column in made.group(group)}
        theirs = {column.name: column for column in spec.group(group)}
        for name in sorted(ours.keys() | theirs.keys()):
            stored, played = theirs.get(name), ours.get(name)
            if stored is None or played is None or not _holds(stored, played):
                there, here = _shape(stored), _shape(played)
                return f"column {name!r} is {there} there, and {env_id!r} makes {here}"
    return ""


def _holds(stored: Column, played: Column) -> bool:
    kind = np.can_cast(played.dtype, stored.dtype, casting="same_kind")
    return stored.shape == played.shape and kind


def _shape(column: Column | None) -> str:
    return "none" if column is None else f"{column.dtype.name}{list(column.shape)}"


def generator(purpose: str, seed: int, index: int = 0) -> np.random.Generator:
    """The NumPy generator of `seed_for`'s seed."""
    return np.random.default_rng(seed_for(purpose, seed, index))
