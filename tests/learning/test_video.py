"""`learner evaluate RUN --video`: a film that plays, of the very episode that was judged."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from learner.__main__ import main
from learner.judge import evaluate, save
from learner.learner import Learner
from learner.video import Film, VideoError
from replay_server import spec_from
from replay_server.training.envs import make_env
from replay_server.training.presets import CARTPOLE


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with the checkpoint of a net that has learned nothing."""
    folder = tmp_path_factory.mktemp("run")
    env = make_env(CARTPOLE.env)
    spec = spec_from(env)
    env.close()
    learner = Learner(spec=spec, actions=2, preset=CARTPOLE, seed=1)
    save(learner, spec, 1, folder, "step-000000001")
    return folder


def frames_of(path: Path) -> tuple[list[np.ndarray], float]:
    """(every picture [height, width, 3], pictures a second), decoded as a player does."""
    import av

    with av.open(str(path)) as film:
        rate = float(film.streams.video[0].average_rate)
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)], rate


def test_the_film_shows_the_episode_that_was_judged(run, tmp_path, capsys):
    """Given a run folder and a name. Expect one picture for the reset and one a step, pictures
    that move, the environment's own pace, and the returns there are without a film."""
    path = tmp_path / "films" / "first.mp4"
    assert main(["evaluate", str(run), "--episodes", "3", "--seed", "5", "--video", str(path)]) == 0
    said = capsys.readouterr().out
    plain = evaluate(run / "checkpoints" / "step-000000001.json", 3, 5)
    frames, rate = frames_of(path)
    assert len(frames) == plain.lengths[0] + 1 and f"{len(frames)} frames" in said
    assert frames[0].shape == (400, 600, 3) and rate == 50.0
    moved = [np.abs(a.astype(int) - b).max() for a, b in pairwise(frames)]
    assert min(moved) > 30, "two pictures in a row show the same"
    assert f"mean return {plain.mean:.1f}" in said and f"return {plain.returns[0]:.0f}" in said
    assert os.listdir(path.parent) == ["first.mp4"]


def test_a_folder_is_a_place_for_films(run, tmp_path):
    """Given a folder. Expect the film in it under the episode's name."""
    assert main(["evaluate", str(run), "--episodes", "1", "--video", str(tmp_path / "films")]) == 0
    assert len(frames_of(tmp_path / "films" / "episode-0.mp4")[0]) > 5


def test_what_cannot_be_filmed_is_one_sentence(run, tmp_path, capsys, monkeypatch):
    """Given another suffix, no checkpoint, no package, no pictures. Expect a sentence, code 2 and
    no film, not even a part of one."""

    def said(*arguments: str) -> str:
        assert main(["evaluate", *arguments, "--episodes", "1"]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    film = str(tmp_path / "film.mp4")
    assert "try " in said(str(run), "--video", str(tmp_path / "film.gif"))
    assert "no whole checkpoint in" in said(str(tmp_path), "--video", film)
    with monkeypatch.context() as patched:
        patched.setattr("learner.video.importlib.util.find_spec", lambda name: None)
        assert "pip install av" in said(str(run), "--video", film)
    with monkeypatch.context() as patched:
        patched.setattr("gymnasium.envs.classic_control.CartPoleEnv.render", lambda env: None)
        assert "renders no pictures" in said(str(run), "--video", film)
    assert os.listdir(tmp_path) == []


def test_an_interrupted_film_is_taken_away(run, tmp_path, capsys, monkeypatch):
    """Given Ctrl-C at the third picture. Expect a sentence, code 130 and an empty folder."""
    whole, shown = Film.add, []

    def add(film: Film, env: object) -> None:
        shown.append(env)
        if len(shown) == 3:
            raise KeyboardInterrupt
        whole(film, env)

    monkeypatch.setattr(Film, "add", add)
    path = str(tmp_path / "film.mp4")
    assert main(["evaluate", str(run), "--episodes", "1", "--video", path]) == 130
    assert "interrupted" in capsys.readouterr().out and os.listdir(tmp_path) == []


def test_pictures_with_odd_sides_are_filmed_whole(tmp_path):
    """Given 5 x 7 pictures, and one that does not follow. Expect 6 x 8, nothing cut off; a film
    that is not whole is taken away."""

    class Env:
        spec = None
        metadata = {"render_fps": 10}  # noqa: RUF012

        def render(self) -> np.ndarray:
            return np.full((5, 7, 3), 200, np.uint8)

    film = Film(tmp_path / "odd.mp4")
    film.add(Env())
    film.close()
    frames, rate = frames_of(tmp_path / "odd.mp4")
    assert [frame.shape for frame in frames] == [(6, 8, 3)] and rate == 10.0
    assert abs(int(frames[0].mean()) - 200) < 5
    cut = Film(tmp_path / "cut.mp4")
    cut.add(Env())
    cut.close(whole=False)
    assert os.listdir(tmp_path) == ["odd.mp4"]
    with pytest.raises(VideoError, match=r"films are \.mp4"):
        Film(tmp_path / "film.avi")
