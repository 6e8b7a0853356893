"""The learning curve of a run folder as a picture: returns of actors and of greedy candidates."""

from __future__ import annotations

from pathlib import Path

from replay_server.runs import read_metrics


def draw_curve(folder: Path) -> Path:
    """Draws RUN/learning-curve.png from the metrics there; returns its path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    begin = None
    for path in sorted(folder.glob("actor-*.jsonl")):
        points = [
            (line["time"], line["charts/episodic_return"])
            for line in read_metrics(path)
            if line.get("charts/episodic_return") is not None
        ]
        if points:
            begin = points[0][0] if begin is None else min(begin, points[0][0])
            times, returns = zip(*points, strict=True)
            axes.plot([t - begin for t in times], returns, label=f"{path.stem}, all epsilons")
    greedy = [
        (line["time"], line["charts/greedy_return"])
        for line in read_metrics(folder / "learner.jsonl")
        if "charts/greedy_return" in line
    ]
    if greedy:
        begin = greedy[0][0] if begin is None else begin
        times, returns = zip(*greedy, strict=True)
        axes.plot([t - begin for t in times], returns, "o-", label="greedy, 20 episodes")
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
