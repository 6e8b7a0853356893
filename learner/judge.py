"""When a run counts as solved, and how well it plays then: the same judge for all ways of running.

A run is solved where frozen weights reach the mark over 20 greedy episodes ("select"), then over 20
others ("confirm"), then over 100 more ("evaluate"), whose mean is the result. The 100 are for tasks
whose returns vary much: there one of many candidates gets through the first 40 by luck. Each
candidate plays episodes of its own. No purpose shares a start with another, or with training
(`seed_for`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from learner import checkpoint
from learner.evaluate import Evaluation, Verdict, actions_as_learned
from learner.learner import Learner
from learner.video import Film
from replay_server.spec import Spec
from replay_server.training.contact import Stop
from replay_server.training.presets import Preset
from replay_server.training.runs import Run

EPISODES = {"select": 20, "confirm": 20, "evaluate": 100}  # by purpose, in order
NEWEST, REACHED = "the newest weights", "what reached the mark"  # what is judged, in words


def save(
    learner: Learner, spec: Spec, seed: int, folder: Path, name: str, candidates: int = 0
) -> Path:
    """A checkpoint that `evaluate` and `--resume` understand; the path of its JSON.

    candidates: those judged up to now.
    """
    tensors, state = learner.state()
    document = {
        **state,
        "preset": dataclasses.asdict(learner.preset),
        "spec": json.loads(spec.to_json()),
        "seed": seed,
        "candidates": candidates,
    }
    return checkpoint.save(folder / "checkpoints", name, tensors, document)


def restored(tensors: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[Preset, Spec, Learner]:
    """The settings, table and learner of a checkpoint (checkpoint.load); WeightsError or EnvError
    where it is none of this version, or of another environment."""
    preset, spec = (checkpoint.stated(state, name) for name in ("preset", "spec"))
    given = {
        field.name: checkpoint.stated(preset, field.name)
        for field in dataclasses.fields(Preset)
        if field.name in preset or field.default is dataclasses.MISSING
    }
    settings = Preset(**{**given, "hidden": tuple(given["hidden"])})
    spec = Spec.from_json(json.dumps(spec))
    actions = actions_as_learned(settings, spec)
    learner = Learner(spec=spec, actions=actions, preset=settings, seed=0)
    learner.restore(tensors, state)
    return settings, spec, learner


def evaluate(
    path: Path,
    episodes: int,
    seed: int,
    *,
    film: Film | None = None,
    show: Callable[[str], None] | None = None,
    stop: Stop | None = None,
    say: Callable[[str], None] = print,
) -> Verdict | None:
    """Greedy episodes of the checkpoint's network; `film` takes the first of them. None where
    `stop` was asked before they ended; `say` gets what they were cut off at (Evaluation)."""
    settings, spec, learner = restored(*checkpoint.load(path))
    evaluation = Evaluation(settings, spec, episodes=episodes, film=film, stop=stop, say=say)
    whole = False
    try:
        verdict = evaluation.run(learner.acting, "evaluate", seed, show=show)
        whole = verdict is not None
        return verdict
    finally:
        evaluation.close()
        if film is not None:
            film.close(whole)


def tried(
    mark: float,
    number: int,
    play: Callable[[str, int, int], Verdict | None],
    keep: Callable[[], Any],
    run: Run,
    step: int,
) -> dict[str, Any] | None:
    """What a summary says of candidate `number`, from 0, if it reaches the mark for each purpose
    and is kept; else None, also where it was asked to stop. play: (purpose, how many episodes, the
    first one's number) -> these, or None; keep: writes its checkpoint, and says where. Its mean
    return of the first purpose is logged at `step`."""
    found: dict[str, Verdict] = {}
    begun_at = 0.0
    for purpose, count in EPISODES.items():
        begun_at = time.time()
        verdict = play(purpose, count, number * count)
        if verdict is None:
            return None
        found[purpose] = verdict
        if purpose == "select":
            run.log(step, **{"charts/greedy_return": verdict.mean})
        if not mark <= verdict.mean < math.inf:  # nor where it is no number
            if purpose == "evaluate":
                run.say(
                    f"{run.name} step {step} reached the mark of {mark:g} twice over "
                    f"{EPISODES['select']} episodes, and {verdict.mean:.1f} over {count} more: "
                    "training goes on"
                )
            return None
    try:
        kept = keep()
    except OSError as error:
        run.say(
            f"{run.name} step {step} reached the mark, and its checkpoint cannot be written "
            f"({error}): training goes on to another one; make room"
        )
        return None
    return {
        "event": "solved",
        "solved_at": begun_at,  # of the last episodes: those before had decided most
        "select_mean": found["select"].mean,
        "confirm_mean": found["confirm"].mean,
        "eval_return_mean": found["evaluate"].mean,
        "eval_return_min": float(found["evaluate"].returns.min()),
        "eval_episodes": EPISODES["evaluate"],
        "checkpoint": kept,
    }


class Judge:
    """Tries candidates as training goes on; keeps its environments. Writes into `run`'s folder."""

    def __init__(
        self,
        settings: Preset,
        spec: Spec,
        *,
        mark: float,
        seed: int,
        run: Run,
        show: Callable[[str], None],
        stop: Stop | None = None,
        candidates: int = 0,
    ) -> None:
        """`show` and the run's metrics get how far a verdict is.

        stop: once asked, no verdict is reached any more.
        candidates: those that the run had before, whose episodes are not played again.
        """
        self.settings, self.spec, self.mark, self.seed = settings, spec, mark, seed
        self.run, self.show = run, show
        self.candidates, self.stop = candidates, stop
        self.said = False  # that an environment has no time limit
        self.evaluation = Evaluation(
            settings, spec, episodes=EPISODES["select"], stop=stop, say=self._say_once
        )

    def verdict_on(self, learner: Learner) -> dict[str, Any] | None:
        """What the run's summary says if these weights solve it, and are kept; else None, also
        where it was asked to stop."""
        number = self.candidates
        self.candidates += 1

        def play(purpose: str, count: int, first: int) -> Verdict | None:
            if purpose == "evaluate":
                return self._last_of(learner, count, first)
            show = self._looking if purpose == "select" else self._report
            return self.evaluation.run(learner.acting, purpose, self.seed, first, show)

        def keep() -> Path:
            name, count = f"solved-{learner.step}", self.candidates
            return save(learner, self.spec, self.seed, self.run.folder, name, count)

        verdict = tried(self.mark, number, play, keep, self.run, learner.step)
        if verdict is not None:
            kept = str(verdict["checkpoint"])
            verdict = {**verdict, "learner_step": learner.step, "checkpoint": kept}
            self.run.event(**verdict)
        return verdict

    def _last_of(self, learner: Learner, count: int, first: int) -> Verdict | None:
        """The last episodes of a candidate, or None where it was asked to stop."""
        self._report(f"0 of {count} episodes ended")
        last = Evaluation(
            self.settings, self.spec, episodes=count, stop=self.stop, say=self._say_once
        )
        with closing(last):
            return last.run(learner.acting, "evaluate", self.seed, first, self._report)

    def _looking(self, far: str) -> None:
        self._report(far, NEWEST)

    def _report(self, far: str, what: str = REACHED) -> None:
        self.show(f"judging {what}: {far}")
        self.run.event(event="judging", what=what, far=far)

    def _say_once(self, sentence: str) -> None:
        """Each kind of evaluation says it once: of them, the first."""
        if not self.said:
            self.said = True
            self.run.say(sentence)

    def close(self) -> None:
        """Closes the environments."""
        self.evaluation.close()
