"""The replay table a training run needs, said once: as a Table here, as TOML for `serve`."""

from __future__ import annotations

import json

import numpy as np

from replay_server import (
    Column,
    Fifo,
    MinSize,
    NStep,
    Prioritized,
    SamplesPerInsert,
    Sequence,
    ServerOptions,
    Spec,
    Table,
    spec_from,
)
from replay_server.training.presets import LOG_PROB, Preset

TABLE = "main"


def table_for(settings: Preset, in_turns: bool = False) -> Table:
    """The table of these settings, its spec taken from the environment. in_turns: nobody draws
    while actors play."""
    from replay_server.training.envs import make_env

    env = make_env(settings.env)
    if settings.on_policy:
        spec = spec_from(env, extras=[Column(LOG_PROB, np.dtype(np.float32))], pad=settings.pad)
        env.close()
        return _queue(settings, spec, in_turns)
    spec = spec_from(env, pad=settings.pad)
    env.close()
    ratio = settings.samples_per_insert
    limiter = (
        MinSize(settings.min_size)
        if ratio is None
        else SamplesPerInsert(ratio, settings.min_size, settings.limiter_buffer)
    )
    return Table(
        TABLE,
        step=spec,
        plan=NStep(settings.n, stack=settings.stack),
        capacity=settings.capacity,
        sampler=Prioritized(settings.alpha),
        limiter=limiter,
        writers=max(4, settings.actors + 2),
        streams=settings.envs,
    )


def _queue(settings: Preset, spec: Spec, in_turns: bool) -> Table:
    """Of segments, each drawn once."""
    return Table(
        TABLE,
        step=spec,
        plan=Sequence(settings.rollout, 1),
        capacity=settings.capacity,
        sampler=Fifo(settings.queue(in_turns)),
        writers=max(4, settings.actors + 2),
        streams=settings.envs,
    )


def needed(settings: Preset) -> dict[str, int]:
    """Options of a server that must be above their defaults for such a run."""
    options = {"sessions": 2 * settings.actors + 8, "records": settings.prefetch + 1}
    options["batch_max"] = settings.batch
    return {k: v for k, v in options.items() if v > getattr(ServerOptions, k)}


def server_toml(settings: Preset, *, url: str, seed: int, in_turns: bool = False) -> str:
    """The table as a configuration file of `replay-server serve`."""
    table = table_for(settings, in_turns)
    lines = ["[server]", f'url = "{url}"', f"seed = {seed}"]
    lines += [f"{k} = {v}" for k, v in needed(settings).items()]
    lines += ["", "[[table]]", f'name = "{TABLE}"']
    lines += _drawn_once(settings, table) if settings.on_policy else _drawn_often(settings)
    lines += [f"writers = {table.writers}", f"streams = {table.streams}", ""]
    return "\n".join(lines)


def _drawn_often(settings: Preset) -> list[str]:
    """The keys of a table of transitions."""
    lines = [f"env = {json.dumps(settings.env)}", f'pad = "{settings.pad}"']
    lines += [f"capacity = {settings.capacity}", f"alpha = {settings.alpha}"]
    lines += [f"plan = {{ n_step = {settings.n}, stack = {settings.stack} }}"]
    lines += [f"min_size = {settings.min_size}"]
    if settings.samples_per_insert is not None:
        lines += [f"samples_per_insert = {settings.samples_per_insert}"]
        lines += [f"error_buffer = {settings.limiter_buffer}"]
    return lines


def _drawn_once(settings: Preset, table: Table) -> list[str]:
    """The keys of a queue of segments, whose steps have one more column."""
    lines = ["columns = ["]
    for column in table.step:
        shape = list(column.shape)
        lines.append(
            f'    {{ name = "{column.name}", dtype = "{column.dtype}", shape = {shape}, '
            f'pad = "{column.pad}" }},'
        )
    lines += ["]", f"plan = {{ sequence = {settings.rollout}, n_step = 1 }}"]
    return [*lines, f"capacity = {settings.capacity}", f"fifo = {table.sampler.size}"]
