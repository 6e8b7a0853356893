"""Weights in one place: learners send gradients there and take the newest weights back.

    "g"   gradient/NAME for each parameter, loss, q_mean, the mean td, more/SCALAR, and the learner
          step of the weights they were made with; or nothing
              -> the newest weights, and target nets that changed behind that step
              -> "!" and why not

Both ways it is safetensors (asking.py carries it). Gradients are applied one by one, as they come:
a learner's are as old as its turn took (a parameter server, as MSRL's policy Central).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import safetensors.torch
import torch
from safetensors import SafetensorError

from learner.learner import Learner
from learner.optimizing import Gradients, require_finite, trained, update_of
from replay_server.errors import ReplayError, Timeout
from replay_server.training import scalars
from replay_server.training.asking import ASKERS_MAX, Answerer, Asker, Question
from replay_server.training.contact import NoServer, Stopped
from replay_server.training.loop import Weights

GRADIENTS, REFUSED = b"g!"
OF, MORE = "gradient/", "more/"
ALWAYS = ("loss", "q_mean", "td")
WAIT_S = 30.0


def packed(gradients: Gradients, names: list[str], step: int) -> bytes:
    """The body of a question; step: of the weights they were made with."""
    tensors = {OF + name: part for name, part in zip(names, gradients.of, strict=True)}
    td = gradients.td.mean()
    tensors |= {"loss": gradients.loss, "q_mean": gradients.q_mean, "td": td}
    tensors |= {MORE + name: scalar for name, scalar in gradients.more.items()}
    tensors["step"] = torch.tensor(step)
    return safetensors.torch.save({k: t.detach().cpu().contiguous() for k, t in tensors.items()})


def unpacked(body: bytes, parameters: dict[str, torch.Tensor]) -> tuple[Gradients, int]:
    """The gradients of a body, and their step; ValueError where they are not such ones."""
    try:
        tensors = safetensors.torch.load(body)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:  # KeyError: of a dtype
        raise ValueError(f"no gradients: {error}") from error
    expected = {OF + name: (p.dtype, p.shape) for name, p in parameters.items()}
    more = [n for n in tensors if n.startswith(MORE) and scalars.known(n.removeprefix(MORE))]
    expected |= dict.fromkeys((*ALWAYS, *more), (torch.float32, torch.Size()))
    expected["step"] = torch.int64, torch.Size()
    found = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    wrong = sorted(n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n))
    if wrong:
        has, needs = found.get(wrong[0]), expected.get(wrong[0])
        raise ValueError(f"gradients of another network: {wrong[0]!r} is {has}, expected {needs}")
    device = next(iter(parameters.values())).device
    of = [tensors[OF + name].to(device) for name in parameters]
    loss, q_mean, td = (tensors[name].to(device) for name in ALWAYS)
    named = {name.removeprefix(MORE): tensors[name] for name in more}
    ones = torch.ones(1, device=device)
    return Gradients(of, loss, td[None], q_mean, ones, named), int(tensors["step"])


class Central:
    """The `weights` of a learner's loop, kept elsewhere. stopped: ends each wait; patience: seconds
    that one may last."""

    def __init__(
        self, url: str, learner: Learner, stopped: Callable[[], bool], patience: float = WAIT_S
    ) -> None:
        self.learner, self.line, self.patience = learner, Asker(url, stopped), patience
        self.names = list(trained(learner.algorithm))

    def apply(self, gradients: Gradients) -> Weights:
        """Sends them; the newest weights. NoServer where nobody answers for as long as `patience`;
        NotFinite where loss or gradient are: nothing is sent then."""
        with self.learner.naming_the_batch():
            norm = torch.nn.utils.get_total_norm(gradients.of)
            require_finite(gradients, norm)
        self.learner.update = update_of(gradients, norm)
        return self.ask(packed(gradients, self.names, self.learner.step))

    def newest(self) -> Weights:
        """The newest weights, without gradients."""
        return self.ask(b"")

    def ask(self, body: bytes) -> Weights:
        """What is answered; ReplayError where it is a refusal, Stopped where it was told to."""
        url = self.line.url
        self.line.ask(GRADIENTS, body)
        try:
            verb, answer = self.line.answer(time.monotonic() + self.patience)
        except Timeout as error:
            if self.line.stopped():
                raise Stopped(f"stopped; the weights at {url} had not answered") from error
            raise NoServer(
                f"nobody kept weights at {url} for {self.patience:g} s: start the learner with "
                "--gradients there, or wait longer (--patience)"
            ) from error
        if verb == REFUSED:
            raise ReplayError(f"{url}: {answer.decode(errors='replace')}")
        return answer

    def close(self) -> None:
        """Gives the connection up."""
        self.line.close()


class Kept:
    """The other end: weights that others' gradients are applied to. Serves at `url`."""

    def __init__(self, url: str, learner: Learner, insecure: bool = False) -> None:
        self.learner = learner
        self.line = Answerer(url, "--gradients", insecure=insecure)
        self.address = self.line.address
        self.refused: dict[bytes, str] = {}  # learners whose newest gradients were, and why

    def question(self, seconds: float) -> Question | None:
        """The next one, if one comes within that time."""
        question = self.line.question(seconds)
        if question is None or question.verb == GRADIENTS:
            return question
        self.line.answer(question, REFUSED, b"weights are kept here: learners have --central")
        return None

    def turn(self, question: Question) -> bool:
        """Answers one; whether weights changed. Gradients that come again were applied: they are
        answered with what is newest now."""
        step = self.learner.step
        made_at = self._take(question)
        if (why := self.refused.get(question.who)) is not None:
            self.line.answer(question, REFUSED, why.encode())
        else:
            self.line.answer(question, GRADIENTS, self.learner.shared(made_at))
        return self.learner.step > step

    def _take(self, question: Question) -> int:
        """Applies its gradients, unless they were before, or notes why not; the step of the weights
        that the asker has, -1 where it has none of these."""
        if not question.again:
            self.refused.pop(question.who, None)
        try:
            if not question.body:
                return -1
            gradients, made_at = unpacked(question.body, trained(self.learner.algorithm))
            if not question.again:
                self.learner.apply(gradients)
            return made_at
        except ValueError as error:  # NotFinite among them
            self.refused[question.who] = str(error)
            while len(self.refused) > ASKERS_MAX:
                self.refused.pop(next(iter(self.refused)))
            return -1

    def close(self) -> None:
        """Serves no more."""
        self.line.close()
