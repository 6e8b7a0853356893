"""An episode as a film: H.264 in an .mp4, one frame for the reset and one for each step.

Needs PyAV, which brings its own encoder, and an environment that renders; a screen is not needed.
Frames are written as they come, under another name that becomes the file's when the film is whole.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SUFFIX = ".mp4"
CODEC, QUALITY = "libx264", "20"  # constant rate factor: 0 lossless, 51 worst
FPS = 30  # of environments that do not say


class VideoError(ValueError):
    """A film that cannot be made, and what to do about it, in one sentence."""


class Film:
    """The film of one episode. `path`: the file, or a folder in which it is called episode-0.mp4.

    VideoError at once where the package is missing or the name is no film's.
    """

    def __init__(self, path: Path) -> None:
        if importlib.util.find_spec("av") is None:
            raise VideoError("--video needs the package av: pip install av")
        if path.suffix == "" or path.is_dir():
            path = path / f"episode-0{SUFFIX}"
        if path.suffix != SUFFIX:
            raise VideoError(f"--video {path}: films are {SUFFIX}; try {path.with_suffix(SUFFIX)}")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
        self.path, self.frames = path, 0
        self.beside = path.with_name(f".{path.name}.{os.getpid()}")
        self.container: Any = None
        self.stream: Any = None

    def add(self, env: gymnasium.Env) -> None:
        """What the environment, made with render_mode "rgb_array", shows now."""
        import av

        name = env.spec.id if env.spec else type(env).__name__
        try:
            picture = env.render()  # [height, width, 3] uint8
        except gymnasium.error.DependencyNotInstalled as error:
            raise VideoError(f"rendering {name} needs a package: {error}") from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise VideoError(f"{name} renders no pictures, so it cannot be filmed")
        even = np.pad(picture, [(0, side % 2) for side in picture.shape[:2]] + [(0, 0)], "edge")
        if self.container is None:
            self._open(even, float(env.metadata.get("render_fps") or FPS))
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24")
        self.container.mux(self.stream.encode(frame))
        self.frames += 1

    def _open(self, picture: np.ndarray, fps: float) -> None:
        import av

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.container = av.open(str(self.beside), "w", format="mp4")
        except OSError as error:
            raise VideoError(f"--video {self.path}: {error}") from error
        options = {"crf": QUALITY}
        self.stream = self.container.add_stream(CODEC, rate=round(fps), options=options)
        self.stream.height, self.stream.width = picture.shape[:2]
        self.stream.pix_fmt = "yuv420p"  # what every player plays

    def close(self, whole: bool = True) -> None:
        """Ends the film; one that is not whole is taken away."""
        if self.container is None:
            return
        self.container.mux(self.stream.encode())
        self.container.close()
        self.container = None
        if whole:
            os.replace(self.beside, self.path)
        else:
            self.beside.unlink()
