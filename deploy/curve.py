"""The learning curve of a run folder as a picture: returns of actors and of greedy candidates."""

from __future__ import annotations

from pathlib import Path

from replay_server.training.runs import read_metrics

SHOWN = (
    ("charts/episodic_return", "all epsilons", "-"),
    ("charts/greedy_return", "greedy, 20 episodes", "o-"),
)


def draw_curve(folder: Path) -> Path:
    """Draws RUN/learning-curve.png from the metrics there; returns its path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    begin = None
    for program in sorted({line["program"] for line in read_metrics(folder)}):
        for name, label, style in SHOWN:
            lines = [line for line in read_metrics(folder, program) if line.get(name) is not None]
            if lines:
                begin = lines[0]["time"] if begin is None else begin
                times = [line["time"] - begin for line in lines]
                axes.plot(times, [line[name] for line in lines], style, label=f"{program}, {label}")
    axes.set_xlabel("seconds since the first episodes ended")
    axes.set_ylabel("mean return of an episode")
    axes.set_title(folder.name)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
    path = folder / "learning-curve.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
