"""Several learners as one: each draws its share of a batch, gradients are averaged over all.

Started as torchrun starts programs (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT):

    torchrun --nproc-per-node 2 -m replay_server learner train --server ...

The joined batch is what one learner would have drawn: the loss is divided by its size, since each
rank divides by its share and the average divides by their number; importance weights are divided by
the largest of all ranks. So the ranks' networks stay one network, bit for bit. Rank 0 publishes,
judges and saves. Whoever stops says so at the next batch, and all stop at the same step.

Gradients go over gloo, or nccl where the nets are on GPUs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from learner.learner import Learner
from learner.optimizing import Gradients
from replay_server.errors import ConfigError, ReplayError
from replay_server.training.contact import Stop, Stopped
from replay_server.training.loop import Weights

WAIT = timedelta(minutes=30)  # for a rank that gets no batch
LEAVE_S = 3.0  # less than a fleet's grace
SLICE_S = 0.001


def rank_and_count() -> tuple[int, int]:
    """(which learner this is, of how many), as torchrun says; (0, 1) without it. ConfigError where
    the variables are no such numbers."""
    words = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK", "0")
    count, rank = (int(word) if word.isdecimal() else -1 for word in words)
    if count == 1 or "WORLD_SIZE" not in os.environ:
        return 0, 1  # a RANK alone is some other launcher's
    if not 0 <= rank < count:
        raise ConfigError(
            f"WORLD_SIZE={words[0]} RANK={words[1]}: expected a rank from 0, below the number, "
            "as torchrun sets them; unset both for a learner of its own"
        )
    return rank, count


def device_of_rank(device: str) -> str:
    """That of this rank where each on a host is to have a GPU of its own: LOCAL_RANK's, of those
    there are."""
    local = os.environ.get("LOCAL_RANK", "")
    if device != "cuda" or not local.isdecimal() or rank_and_count()[1] == 1:
        return device
    return f"cuda:{int(local) % max(torch.cuda.device_count(), 1)}"


def local_store(rank: int, count: int) -> dist.Store | None:
    """Where the ranks meet if that is this machine: torch's own store would listen at every address
    of it, and has no password. None: torch's, as MASTER_ADDR or torchrun's agent has it."""
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if agents or host not in ("127.0.0.1", "localhost") or not port.isdecimal():
        return None
    if rank:
        return dist.TCPStore("127.0.0.1", int(port), count, False, timeout=WAIT)
    with contextlib.ExitStack() as undone:
        listening = undone.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", int(port)))
        listening.listen()
        named = {"timeout": WAIT, "wait_for_workers": False, "master_listen_fd": listening.fileno()}
        store = dist.TCPStore("127.0.0.1", int(port), count, True, **named)
        listening.detach()  # it is the store's now
        undone.pop_all()
        return store


class Ended(ReplayError):
    """Another rank stopped, or is gone."""


class Replicas:
    """This rank among the others; the `weights` of a loop, around the learner's own."""

    def __init__(self, device: str, say: Callable[[str], None], stop: Stop) -> None:
        """Waits for the other ranks, which `say` gets a line of, until `stop`; ConfigError where
        the variables do not say where they meet. Stopped where it was told to stop before."""
        self.rank, self.count = rank_and_count()
        self.device, self.stop = device, stop
        self.learner: Learner | None = None
        say(
            f"learner: WORLD_SIZE={self.count} makes this one of {self.count} learners; it begins "
            "once all are there (unset it for a learner of its own)"
        )
        try:
            self._meet("nccl" if device.startswith("cuda") else "gloo")
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"the {self.count} learners of WORLD_SIZE do not meet: {error}; start them by "
                "torchrun, or unset WORLD_SIZE for a learner of its own"
            ) from error

    def _meet(self, backend: str) -> None:
        """All ranks are there. In a thread: no signal reaches one that waits in torch."""
        errors: list[BaseException] = []

        def meet() -> None:
            try:
                store = local_store(self.rank, self.count)
                dist.init_process_group(
                    backend, timeout=WAIT, store=store, rank=self.rank, world_size=self.count
                )
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=meet, daemon=True)
        thread.start()
        while thread.is_alive():
            if self.stop.wait(0.02):
                raise Stopped("stopped; the other learners were not there yet")
        if errors:
            raise errors[0]

    def share(self, batch: int) -> int:
        """Items of a batch that this rank draws; ConfigError where they cannot be equal."""
        if batch % self.count:
            near = max(batch // self.count, 1) * self.count
            raise ConfigError(
                f"a batch of {batch} does not divide among {self.count} learners: the nearest that "
                f"does is --batch {near}"
            )
        return batch // self.count

    def join(self, learner: Learner) -> None:
        """Begins with rank 0's weights, whatever this rank's are."""
        self.learner = learner
        learner.weights_of = self.weights_of
        for tensor in learner.algorithm.state_dict().values():
            self._all(dist.broadcast, tensor, src=0)

    def weights_of(self, batch: Any) -> np.ndarray:
        """float32 [B]: the batch's importance weights, divided by the largest of all ranks; Ended
        where one of them stops."""
        drawables = np.maximum(np.asarray(batch.drawables, np.float64), 1.0)
        odds = drawables * np.asarray(batch.probabilities)  # N P(i)
        least = self._least(odds.min(initial=np.inf, where=odds > 0.0))
        ratio = np.divide(least, odds, out=np.zeros_like(odds), where=odds > 0.0)
        return np.where(odds > 0.0, ratio ** self.learner.beta(), 0.0).astype(np.float32)

    def apply(self, gradients: Gradients) -> Weights:
        """The average over all ranks, applied to this rank's weights."""
        joined = torch.cat([tensor.reshape(-1) for tensor in gradients.of])
        self._all(dist.all_reduce, joined)
        joined /= self.count
        begin = 0
        for i, tensor in enumerate(gradients.of):
            gradients.of[i] = joined[begin : begin + tensor.numel()].view_as(tensor)
            begin += tensor.numel()
        self.learner.apply(gradients)
        return None

    def leave(self) -> None:
        """This rank stops: the others, who wait for it at their next batch, are told so."""
        if self.learner is not None:
            with contextlib.suppress(Ended):  # as it is to be
                self._least(np.inf, ends=True)

    def _least(self, number: float, ends: bool = False) -> float:
        """The least of all ranks' numbers; Ended where one of them ends."""
        both = torch.tensor([number, -float(ends)], dtype=torch.float64, device=self.device)
        self._all(dist.all_reduce, both, op=dist.ReduceOp.MIN)
        if both[1].item() < 0.0:
            raise Ended("another learner of this run has stopped")
        return both[0].item()

    def _all(self, operation: Any, *arguments: Any, **named: Any) -> None:
        """One operation of all ranks. Who was told to stop waits LEAVE_S for the others, who may be
        waiting for a batch."""
        until = None
        try:
            work = operation(*arguments, async_op=True, **named)
            for turn in itertools.count():
                if work.is_completed():
                    break
                time.sleep(min(turn * 1e-5, SLICE_S))
                if self.stop.asked and until is None:
                    until = time.monotonic() + LEAVE_S
                if until is not None and time.monotonic() > until:
                    raise Ended("stopped; the other learners did not come to their next batch")
            work.wait()
        except RuntimeError as error:
            raise Ended(f"another learner of this run is gone: {error}") from error

    def close(self) -> None:
        """Leaves the group."""
        dist.destroy_process_group()
