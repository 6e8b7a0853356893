"""Weights in one place: learners send gradients there and take the newest weights back.

    | number u64 | body |        both ways, little-endian; an answer has its question's number

A question's body is safetensors: "gradient/NAME" for each parameter, "loss", "q_mean". The answer's
is the newest weights as they are published, or empty and a sentence behind it, where the gradients
were refused. A question that comes twice is applied once and answered the same. Gradients are
applied one by one, as they come: a learner's are as old as its turn took (a parameter server, as
MSRL's policy Central).
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable

import safetensors.torch
import torch
import zmq
from safetensors import SafetensorError

from learner.dqn import Gradients, require_finite
from learner.learner import Learner
from replay_server.errors import ConfigError, ReplayError, Timeout
from replay_server.training.loop import Weights

HEAD = struct.Struct("<QB")
TAKEN, REFUSED = 0, 1
OF = "gradient/"
BYTES_MAX = 4 << 30
WAIT_S = 30.0
AGAIN_S, SLICE_MS = 1.0, 200
PLAYERS_MAX = 4096  # learners whose newest answer is kept
LOCAL = ("tcp://127.0.0.1:", "tcp://localhost:", "ipc://")


def packed(gradients: Gradients, names: list[str]) -> bytes:
    """The body of a question."""
    tensors = {OF + name: part for name, part in zip(names, gradients.of, strict=True)}
    tensors |= {"loss": gradients.loss, "q_mean": gradients.q_mean}
    return safetensors.torch.save({k: t.detach().cpu().contiguous() for k, t in tensors.items()})


def unpacked(body: bytes, parameters: dict[str, torch.Tensor]) -> Gradients:
    """The gradients of a body; ValueError where they are not of these parameters."""
    try:
        tensors = safetensors.torch.load(body)
    except SafetensorError as error:
        raise ValueError(f"no gradients: {error}") from error
    expected = {OF + name: p.shape for name, p in parameters.items()}
    expected |= {"loss": torch.Size(), "q_mean": torch.Size()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    wrong = sorted(n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n))
    if wrong:
        has, needs = found.get(wrong[0]), expected.get(wrong[0])
        raise ValueError(f"gradients of another network: {wrong[0]!r} is {has}, expected {needs}")
    device = next(iter(parameters.values())).device
    of = [tensors[OF + name].to(device, torch.float32) for name in parameters]
    none = torch.zeros(0, device=device)
    return Gradients(of, tensors["loss"].to(device), none, tensors["q_mean"].to(device), none)


class Central:
    """The `weights` of a learner's loop, kept elsewhere. stopped: ends each wait."""

    def __init__(self, url: str, learner: Learner, stopped: Callable[[], bool]) -> None:
        self.url, self.learner, self.stopped, self.number = url, learner, stopped, 0
        self.names = [name for name, _ in learner.online.named_parameters()]
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, BYTES_MAX)
        self.socket.setsockopt(zmq.ROUTING_ID, b"L" + os.urandom(16))
        self.socket.connect(url)

    def apply(self, gradients: Gradients) -> Weights:
        """Sends them; the newest weights. Timeout where nobody answers within WAIT_S; NotFinite
        where loss or gradient are: nothing is sent then."""
        with self.learner.naming_the_batch():
            require_finite(gradients, torch.nn.utils.get_total_norm(gradients.of))
        return self._ask(packed(gradients, self.names))

    def newest(self) -> Weights:
        """The newest weights, without gradients."""
        return self._ask(b"")

    def _ask(self, body: bytes) -> Weights:
        self.number += 1
        question = HEAD.pack(self.number, TAKEN) + body
        until, again_at = time.monotonic() + WAIT_S, 0.0
        while time.monotonic() < until and not self.stopped():
            if time.monotonic() >= again_at:
                self.socket.send(question)
                again_at = time.monotonic() + AGAIN_S
            if not self.socket.poll(SLICE_MS):
                continue
            answer = self.socket.recv()
            number, verb = HEAD.unpack_from(answer)
            if number != self.number:
                continue  # of a question that was given up
            if verb == REFUSED:
                raise ReplayError(f"{self.url}: {answer[HEAD.size :].decode(errors='replace')}")
            return answer[HEAD.size :]
        raise Timeout(f"nobody keeps weights at {self.url}: is that program running?")

    def close(self) -> None:
        """Gives the connection up."""
        self.socket.close()
        self.context.term()


class Kept:
    """The other end: weights that others' gradients are applied to. Serves at `url`."""

    def __init__(self, url: str, learner: Learner) -> None:
        if not url.startswith(LOCAL):
            raise ConfigError(f"--gradients {url}: other machines may reach it; say 127.0.0.1")
        self.learner = learner
        self.answered: dict[bytes, tuple[int, bytes]] = {}  # of each learner its newest
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, BYTES_MAX)
        try:
            self.socket.bind(url)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"--gradients {url}: {error}") from error
        self.address = self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()

    def turn(self, seconds: float) -> bool:
        """One question, if one comes within that time; whether weights changed."""
        if not self.socket.poll(int(seconds * 1000)):
            return False
        frames = self.socket.recv_multipart()
        if len(frames) != 2 or len(frames[1]) < HEAD.size:
            return False
        who, (number, _) = frames[0], HEAD.unpack_from(frames[1])
        last, answer = self.answered.get(who, (0, b""))
        step = self.learner.step
        if number != last:
            answer = self._answer(number, frames[1][HEAD.size :])
            self.answered.pop(who, None)
            self.answered[who] = (number, answer)
            while len(self.answered) > PLAYERS_MAX:
                self.answered.pop(next(iter(self.answered)))
        self.socket.send_multipart([who, answer])
        return self.learner.step > step

    def _answer(self, number: int, body: bytes) -> bytes:
        try:
            if body:
                parameters = dict(self.learner.online.named_parameters())
                self.learner.apply(unpacked(body, parameters))
        except ValueError as error:  # NotFinite among them
            return HEAD.pack(number, REFUSED) + str(error).encode()
        return HEAD.pack(number, TAKEN) + self.learner.weights()

    def close(self) -> None:
        """Serves no more."""
        self.socket.close()
        self.context.term()
