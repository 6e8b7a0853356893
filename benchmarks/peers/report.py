"""Tables and plots of `make bench-peers`, from its JSON lines.

    python -m benchmarks.peers.report FILE.jsonl [--page docs/benchmarks-peers.md]

With --page the part of that page between its two marks is written anew, and its pictures in
images/ beside it. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import DISAGREE, grid
from benchmarks.pages import replaced

from .learn import TASKS
from .peer import Setting
from .pool import columns_of

APART = ("wait", *TASKS)  # what has tables of its own
WIDE = 3  # pictures side by side
LABEL_GAP = 1.22  # names in a picture of shares, as a factor
BUSY = 0.25  # of a core, taken by others before the first round
Line = dict[str, Any]


def page(head: Line, lines: Sequence[Line]) -> str:
    """All of it as Markdown."""
    notes: list[str] = []
    parts = [said(head), *ratios(lines), *felt(lines), *learned(lines), *memory(lines)]
    for item in items(lines):
        parts += work(item, [line for line in lines if line["item"] == item], notes)
    if notes:
        parts += ["### Where meanings differ", ""]
        parts += [f"- **{number}** {note}." for number, note in enumerate(notes, 1)]
    return "\n".join(map(wrapped, "\n".join(parts).rstrip().splitlines())) + "\n"


def wrapped(line: str) -> str:
    """Text within 100 columns; rows of tables stay as they are."""
    if line.startswith(("|", "#")) or not line:
        return line
    behind = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 100, subsequent_indent=behind, break_long_words=False)


def items(lines: Sequence[Line]) -> list[str]:
    """Kinds of items that are inserted and sampled, in the order of the run."""
    return list(dict.fromkeys(line["item"] for line in lines if line["kind"] not in TASKS))


def said(head: Line) -> str:
    """Machine, versions, load, and who has no figures."""
    load = ", ".join(f"{value:g}" for value in head["load"])
    after = ", ".join(f"{value:g}" for value in head["load_after"])
    revision = f" Revision {head['revision']}." if "revision" in head else ""
    text = [
        f"- Machine: {head['machine']}. Python {head['python']}. Seed {head['seed']}.{revision}",
        f"- Load of the machine: {load} before, {after} after. "
        f"A turn of a plain loop took {head['spin_ns']:g} ns. Pinning: {head['pinning']}.",
        f"- {head['rounds']} rounds of {head['seconds']:g} s a job, peers in turn. "
        f"Bytes are those of {head['wire']}.",
        "- Versions: " + ", ".join(versions(head)) + ". `redis` is redis-py.",
    ]
    others = head.get("others", {})
    text += [
        f"- Others took {busy:.0%} of a core before the rounds of {of}."
        for of, busy in others.items()
    ]
    if max(others.values(), default=0.0) > BUSY:
        text.append("- **Provisional**: other work had the cores. Small differences are noise.")
    for item, shares in head.get("idle", {}).items():
        told = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        if told:
            text.append(f"- Idle, of a core, beside all others ({item}): {told}.")
    if head.get("interrupted"):
        text.append("- **Interrupted**: not all rounds were measured.")
    text += [
        f"- **{name}** has no or not all figures: {why}" for name, why in head["missing"].items()
    ]
    return "\n".join(text) + "\n"


NAMED = ("dm-reverb", "tensorflow", "ray", "cpprb", "torchrl", "torch", "TransferQueue", "redis")
NAMED += ("hiredis", "pyzmq", "stable_baselines3", "numpy")


def versions(head: Line) -> Iterator[str]:
    """Ours and the peers', where they were installed."""
    yield f"replay-server {head['versions']['replay-server']}"
    for environment, listed in head["environments"].items():
        there = {name.lower().replace("-", "_"): value for name, value in listed.items()}
        own = [(name, there.get(name.lower().replace("-", "_"))) for name in NAMED]
        got = [f"{name} {value}" for name, value in own if value]
        if got:
            yield f"{environment} ({'; '.join(got)})"


# ---- ratios ----


def by_latency(line: Line) -> bool:
    """Whether one asks and waits: then the median call is compared, else the rate."""
    return line["kind"] == "sample" or (line["kind"] == "insert" and line["batch"] == 1)


def better(lines: Sequence[Line]) -> Line | None:
    """The best of lines of one job."""
    if not lines:
        return None
    if by_latency(lines[0]):
        return min(lines, key=lambda line: line["p50_us"])
    return max(lines, key=lambda line: line["rate"])


def figure(line: Line | None) -> str:
    """Name and value of the best."""
    if line is None:
        return "–"
    value = f"p50 {micro(line['p50_us'])}" if by_latency(line) else f"{short(line['rate'])}/s"
    return f"{line['peer']}: {value}{mark(line)}"


def ratios(lines: Sequence[Line]) -> list[str]:
    """Best of ours behind a transport beside the best peer behind a network."""
    rows = []
    for item, job in jobs(lines):
        here = [line for line in lines if (line["item"], line["job"]) == (item, job)]
        if here[0]["kind"] in APART:
            continue
        network = [line for line in here if line["where"] == "network"]
        theirs = better([line for line in network if not line["ours"]])
        for frames in (False, True):
            kind = [line for line in network if line["ours"] and line["frames"] == frames]
            mine = better(kind)
            if mine is None or theirs is None:
                continue
            rival = (
                theirs
                if frames
                else better([line for line in network if not line["ours"] and not line["frames"]])
            )
            said_kind = f"{item}, native frames" if frames else item
            asleep = better([line for line in kind if line["equal"]])
            row = [said_kind, job, ratio(asleep, rival), ratio(mine, rival)]
            rows.append([*row, figure(mine), figure(rival)])
    if not rows:
        return []
    head = [
        "item",
        "work",
        "equal",
        "best",
        "best of ours behind a transport",
        "best peer behind a network",
    ]
    return ["### Ratios", "", *grid(head, rows), "", CAPTION_RATIOS, ""]


CAPTION_RATIOS = (
    "Above 1 ours is faster. Both ends of most peers sleep between calls: *equal* is the best of "
    "ours that sleeps too and goes through a socket; *best* may poll on two cores or go through "
    "shared memory of this host, as its name says. Where one asks and waits, medians of a call are "
    "compared, else rates; ≈: rates whose intervals overlap. Rows of native frames stand beside "
    "the best of all peers, those that store frames once too. In *mixed* the writer is as fast as "
    "it can be: look at what it stored meanwhile. "
    f"(!): its rounds disagree by {DISAGREE} or more."
)


def ratio(mine: Line | None, theirs: Line | None) -> str:
    """How many times better ours is."""
    if mine is None or theirs is None:
        return "–"
    latency = by_latency(mine)
    value = theirs["p50_us"] / mine["p50_us"] if latency else mine["rate"] / theirs["rate"]
    text = f"{value:.2g}" if value < 10 else f"{value:.0f}"
    apart = mine["rate_low"] > theirs["rate_high"] or mine["rate_high"] < theirs["rate_low"]
    return ("" if latency or apart else "≈ ") + (f"**{text}**" if value < 1 else text)


def jobs(lines: Sequence[Line]) -> list[tuple[str, str]]:
    """(item, job), in a fixed order."""
    order = ("insert", "sample", "ahead", "update", "mixed", "wait", *TASKS)
    known = items(lines)
    keyed = sorted(
        (line for line in lines if line["item"] in known),
        key=lambda line: (
            known.index(line["item"]),
            order.index(line["kind"]),
            line["writers"],
            line["step_ms"],
            line["batch"],
        ),
    )
    return list(dict.fromkeys((line["item"], line["job"]) for line in keyed))


# ---- a learner, memory, all work ----


def felt(lines: Sequence[Line]) -> list[str]:
    """What a learner feels: the share of its time that it waits."""
    out = []
    for item in items(lines):
        waits = [line for line in lines if line["item"] == item and line["kind"] == "wait"]
        if not waits:
            continue
        steps = sorted({line["step_ms"] for line in waits})
        rows = []
        for name in dict.fromkeys(line["peer"] for line in waits):
            own = {line["step_ms"]: line for line in waits if line["peer"] == name}
            shares = [share(own.get(step)) for step in steps]
            first = next(iter(own.values()))
            rows.append((first, [name, first["where"], *shares]))
        rows.sort(key=lambda pair: (pair[0]["where"] != "network", pair[0]["waited"]))
        head = ["buffer", "where", *(f"step of {step:g} ms" for step in steps)]
        out += [f"### What a learner feels: {item}", "", *grid(head, [row for _, row in rows])]
        out += ["", CAPTION_FELT, ""]
    return out


CAPTION_FELT = (
    "Share of its time that a learner of batch 256 waits for its batch and for its priorities to "
    "be taken, with the interval over rounds. It sleeps through its step, as one whose GPU works. "
    "Behind a network a writer stores 640 items a second meanwhile; in one process nobody writes."
)


def learned(lines: Sequence[Line]) -> list[str]:
    """How long one learner takes to a score of each task with each buffer."""
    out = []
    for kind, task in TASKS.items():
        runs = [line for line in lines if line["kind"] == kind]
        if not runs:
            continue
        head = ["buffer", "where", "seconds", "reached", "waits", "steps", "ms a step"]
        rows = [learned_row(line) for line in sorted(runs, key=median_seconds)]
        out += [f"### Seconds to a {task.name} score", "", *grid(head, rows), ""]
        out += [CAPTION_LEARNED.format(**vars(task)), ""]
    return out


def median_seconds(line: Line) -> float:
    """Of its runs."""
    return statistics.median(line["seconds"])


def learned_row(line: Line) -> list[str]:
    """A buffer at a task."""
    seconds, steps = line["seconds"], line["steps"]
    took = f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
    each = statistics.median(s / n for s, n in zip(seconds, steps, strict=True))
    reached = f"{line['reached']} of {line['rounds']}"
    row = [line["peer"], line["where"], took, reached, f"{line['waited']:.0%}"]
    return [*row, short(statistics.median(steps)), f"{each * 1e3:.2f}"]


CAPTION_LEARNED = (
    "The same learner and actor in one process (`benchmarks/peers/learn.py`), a run a seed, the "
    "buffer empty at first: until the last {episodes} episodes scored {score:g} on average. "
    "Seconds depend on the luck of a seed; ms a step do not. Uniform buffers learn without "
    "priorities."
)


def share(line: Line | None) -> str:
    """A waiting share."""
    if line is None:
        return "–"
    return f"{line['waited']:.1%} ({line['waited_low']:.1%} to {line['waited_high']:.1%})"


def memory(lines: Sequence[Line]) -> list[str]:
    """Bytes of memory for a stored item."""
    rows, seen = [], items(lines)
    names = list(dict.fromkeys(line["peer"] for line in lines))
    for name in names:
        known = (line for line in lines if line["peer"] == name)
        own = {line["item"]: line["memory_bytes"] for line in known if line["memory_bytes"]}
        if not own:
            continue
        cells = [f"{own[item]:,.0f}" if item in own else "–" for item in seen]
        atari = own.get("atari")
        cells.append("–" if atari is None else f"{atari * 1e6 / (1 << 30):.1f}")
        rows.append((own.get("atari") or max(own.values()), [name, *cells]))
    rows.sort(key=lambda pair: pair[0])
    head = ["buffer", *(f"{item}, bytes an item" for item in seen), "GiB a million Atari steps"]
    caption = (
        "Memory of all processes of the server (in process: of the learner's), without files and "
        "libraries, an item: what an empty table takes beyond one of an eighth of the capacity, "
        "and by how much it grows from an eighth full to full. A few MiB of noise are about 100 "
        "bytes of a small item and 1,800 of an Atari item: figures below an item's own bytes are "
        "such noise. What a buffer takes once (memif's rings, perhaps Ray's store) is in it too, "
        "divided by 1,792 items, and does not grow to a million."
    )
    return ["### Memory", "", *grid(head, [row for _, row in rows]), "", caption, ""]


def work(item: str, lines: Sequence[Line], notes: list[str]) -> list[str]:
    """A table a job."""
    out = []
    for _, job in jobs(lines):
        here = sorted((line for line in lines if line["job"] == job), key=lambda x: -x["rate"])
        if here[0]["kind"] in APART:
            continue
        rows = [cells(line, notes) for line in here]
        head = ["buffer", "where", "p50", "p99", "p99.9", "items/s", "interval"]
        head += ["client CPU us/item", "server CPU us/item", "wire B/item"]
        if here[0]["kind"] == "mixed":
            head.append("stored/s meanwhile")
        out += [f"### {item}: {job}", "", *grid(head, rows), ""]
    return out


def cells(line: Line, notes: list[str]) -> list[str]:
    """A row of `work`; its footnotes are numbered."""
    for note in line["notes"]:
        if note not in notes:
            notes.append(note)
    numbers = ", ".join(str(notes.index(note) + 1) for note in line["notes"])
    row = [line["peer"] + (f" [{numbers}]" if numbers else ""), line["where"]]
    for name, least in (("p50", 1), ("p99", 100), ("p999", 1000)):
        row.append(micro(line[f"{name}_us"]) if line["calls"] >= least else "–")
    row += [short(line["rate"]) + mark(line)]
    row += [f"{short(line['rate_low'])} to {short(line['rate_high'])}"]
    row += [f"{line['client_cpu_us']:.3g}"]
    row += [f"{line['server_cpu_us']:.3g}" if line["where"] != "in process" else "–"]
    row += [f"{line['wire_bytes']:,.0f}" if line["wire_bytes"] >= 1 else "–"]
    if line["kind"] == "mixed":
        row.append(short(line["inserted_a_second"]))
    return row


def mark(line: Line) -> str:
    """Of rounds that disagree, or of one alone."""
    if line["rounds"] == 1:
        return " (1 round)"
    return " (!)" if line["spread"] >= DISAGREE else ""


def micro(value: float) -> str:
    """Microseconds, or ms and s where they are many."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} us"


def short(value: float) -> str:
    """A rate in three digits."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


# ---- plots ----


def plots(lines: Sequence[Line], folder: Path, prefix: str = "") -> list[Path]:
    """Two figures an item: rates of all work, and waiting shares; [] without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    made = []
    for item in items(lines):
        here = [line for line in lines if line["item"] == item]
        for draw, name in ((_rates, "rates"), (_waits, "waits")):
            figure_of = draw(item, here)
            if figure_of is not None:
                path = folder / f"{prefix}{name}-{item}.png"
                figure_of.savefig(path, dpi=120, bbox_inches="tight")
                made.append(path)
    return made


def said_item(item: str) -> str:
    """A kind of item with its size."""
    return f"{item} items ({Setting(item, columns_of(item), 1).item_bytes:,} bytes each)"


def colour(line: Line) -> str:
    """Ours, behind a network, others."""
    if line["ours"]:
        return "tab:blue"
    return "tab:orange" if line["where"] == "network" else "tab:gray"


def _rates(item: str, lines: Sequence[Line]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    apart = {line["job"] for line in lines if line["kind"] in APART}
    shown = [job for _, job in jobs(lines) if job not in apart]
    names = sorted({line["peer"] for line in lines}, reverse=True)
    rows = math.ceil(len(shown) / WIDE)
    picture = Figure(figsize=(12, rows * (0.2 * len(names) + 1.4)), layout="constrained")
    axes = picture.subplots(rows, WIDE, sharey=True, squeeze=False).ravel()
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    for axis, job in zip(axes, shown, strict=False):
        for line in (line for line in lines if line["job"] == job):
            at = names.index(line["peer"])
            axis.plot([line["rate_low"], line["rate_high"]], [at, at], color=colour(line))
            axis.plot(line["rate"], at, "o", color=colour(line), markersize=5)
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("items a second (log)", fontsize=8)
        axis.set_title(textwrap.fill(job, 40), fontsize=9)
        axis.grid(alpha=0.3, which="both")
    axes[0].set_yticks(range(len(names)), names)
    for axis in axes:
        axis.tick_params(labelsize=7)
    picture.suptitle(
        f"Rates of {said_item(item)}. Blue: ours; orange: peers behind a network; grey: in "
        "process, or not counted.\nOne machine for both ends: it shows software, not a network. "
        "Lines: intervals.",
        fontsize=9,
    )
    return picture


def apart_by(rising: Sequence[float], factor: float) -> list[float]:
    """Each value, or as much above it as it takes to be `factor` times the one before."""
    found: list[float] = []
    for value in rising:
        found.append(max(value, found[-1] * factor) if found else value)
    return found


def _waits(item: str, lines: Sequence[Line]) -> Any:
    from matplotlib.figure import Figure

    waits = [line for line in lines if line["kind"] == "wait"]
    if len({line["step_ms"] for line in waits}) < 2:
        return None
    picture = Figure(figsize=(8, 5))
    axis, begins = picture.subplots(), list[tuple[float, float, str]]()
    for name in dict.fromkeys(line["peer"] for line in waits):
        own = sorted((x for x in waits if x["peer"] == name), key=lambda x: x["step_ms"])
        style = {"color": colour(own[0]), "linestyle": "-" if own[0]["ours"] else "--"}
        steps, shares = [x["step_ms"] for x in own], [max(x["waited"], 1e-5) for x in own]
        axis.plot(steps, shares, marker="o", **style)
        begins.append((shares[0], steps[0], name))
    places = apart_by([share for share, _, _ in sorted(begins)], LABEL_GAP)
    for place, (share, step, name) in zip(places, sorted(begins), strict=True):
        axis.annotate(
            name,
            (step, share),
            (step / 2, place),
            fontsize=7,
            ha="right",
            va="center",
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": "gray"},
        )
    axis.set_ylim(top=1.5 * max(places))
    axis.set_xlim(left=min(step for _, step, _ in begins) / 5)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("the learner's step, ms (log)")
    axis.set_ylabel("share of its time that it waits (log)")
    axis.set_title(
        f"A learner of batch 256, {said_item(item)}: how long it waits for its buffer.\n"
        "Its step is a sleep; a learner that computes on these cores would wait longer.",
        fontsize=9,
    )
    axis.grid(alpha=0.3, which="both")
    return picture


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.report", description=__doc__)
    parser.add_argument("file", type=Path, help="JSON lines of a run")
    parser.add_argument("--page", type=Path, help="a page to write the tables into")
    args = parser.parse_args(argv)
    head, *lines = map(json.loads, args.file.read_text().splitlines())
    text = page(head, lines)
    place, prefix = args.file.parent, ""
    if args.page:
        args.page.write_text(replaced(args.page.read_text(), "figures", text))
        place, prefix = args.page.parent / "images", "peers-"
        place.mkdir(exist_ok=True)
    else:
        print(text)
    for path in plots(lines, place, prefix):
        print(f"plot: {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
