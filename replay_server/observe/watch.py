"""`stats URL --watch`: a server, live in a terminal, or as one line a look where there is none.

What is shown as a rate, a share or a quantile is of the time between two looks. A server that goes
away is reported, and looked for until Ctrl-C; one that came back anew starts the counting anew.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Mapping
from typing import TextIO

from .._native import Fact
from ..errors import ReplayError
from .snapshot import Buckets, EndpointSource, Look, ServerSource, TableLook

BAR = 24
OPERATIONS_FIRST = ("push", "sample", "pull", "update", "publish", "blob")
SESSION_ROWS = 16
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, REST, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# Counters of something that should not happen; the others are shown as rates.
BAD = ("drop_", "refused_", "cookie_refused", "sessions_refused", "sessions_expired")


class Between:
    """What happened from one look to the next; everything since the beginning before the first."""

    def __init__(self, look: Look, before: Look | None) -> None:
        if before is not None and before.incarnation != look.incarnation:
            before = None
        if before is not None and any(
            look.counters.get(name, 0) < value for name, value in before.counters.items()
        ):
            before = None  # the same tables, taken over by another process
        self.look, self.before = look, before
        self.seconds = look.at - before.at if before else 0.0

    def rate(self, name: str) -> float:
        """A counter's increase per second; 0 at the first look."""
        return self._per_second(self.look.counters, self.before and self.before.counters, name)

    def rate_text(self, name: str) -> str:
        """A counter's rate in words; at the first look there is none."""
        return number(self.rate(name)) if self.before else "-"

    def session_rate(self, place: str, name: str) -> float:
        """The increase per second of a session's number."""
        was = self.before and self.before.sessions.get(place, {})
        return self._per_second(self.look.sessions[place], was, name)

    def fact_rate(self, fact: Fact) -> float:
        """The increase per second of a number that the transport counts."""
        was = self.before and {old.full_name: old.value for old in self.before.facts}
        return self._per_second({fact.full_name: fact.value}, was, fact.full_name)

    def _per_second(
        self, now: Mapping[str, float], was: Mapping[str, float] | None, name: str
    ) -> float:
        if was is None or self.seconds <= 0.0:
            return 0.0
        return (now.get(name, 0.0) - was.get(name, 0.0)) / self.seconds

    def share(self, name: str, among: tuple[str, ...]) -> float | None:
        """A counter's increase as a share of all of theirs; None where nothing moved."""
        was = self.before.counters if self.before else {}
        moved = {n: self.look.counters[n] - was.get(n, 0) for n in among}
        total = sum(moved.values())
        return moved[name] / total if total else None

    def ratio(self, table: TableLook) -> float | None:
        """Draws of each item of the interval."""
        old = self._old(table)
        inserted = table.inserted - (old.inserted if old else 0)
        sampled = table.sampled - (old.sampled if old else 0)
        return sampled / inserted if inserted > 0 else None

    def drawn(self) -> float:
        """Items drawn per second. The counter items_sampled counts those read by keys too."""
        now, was = (
            {"drawn": sum(table.sampled for table in look.tables)} if look else None
            for look in (self.look, self.before)
        )
        return max(0.0, self._per_second(now or {}, was, "drawn"))  # a table emptied counts anew

    def ages(self, table: TableLook) -> Buckets:
        """Ages of what was drawn in the interval."""
        old = self._old(table)
        return minus(table.ages, old.ages if old else ())

    def times(self, operation: str) -> Buckets:
        """Times of the interval's requests."""
        return minus(
            self.look.times[operation], self.before.times.get(operation, ()) if self.before else ()
        )

    def waits(self, operation: str) -> Buckets:
        """Waits that ended in the interval."""
        return minus(
            self.look.waits[operation], self.before.waits.get(operation, ()) if self.before else ()
        )

    def _old(self, table: TableLook) -> TableLook | None:
        tables = self.before.tables if self.before else ()
        return next((old for old in tables if old.name == table.name), None)


def minus(now: Buckets, was: Buckets) -> Buckets:
    """What was added to a histogram; all of it where there was none."""
    if len(was) != len(now):
        return now
    return tuple((bound, n - w) for (bound, n), (_, w) in zip(now, was, strict=True))


def quantile(buckets: Buckets, share: float) -> float | None:
    """The value that this share of values is at most, straight within its bucket; None of none."""
    if not buckets or buckets[-1][1] <= 0:
        return None
    wanted = share * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, at_most in buckets:
        if at_most >= wanted:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / max(at_most - below, 1e-300)
        low, below = bound, at_most
    return low


# ---- words ----


def number(value: float) -> str:
    """12,345; 1.23 M; 0.4."""
    for unit, name in ((1e9, " G"), (1e6, " M")):
        if value >= unit:
            return f"{value / unit:.2f}{name}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def size(value: float) -> str:
    """Bytes, in units of 1000."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.0f} B"


def seconds(value: float | None) -> str:
    """3.1 us; 12 ms; 4.0 s."""
    if value is None:
        return "-"
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value * 1e9:.0f} ns"


def bar(share: float, width: int = BAR) -> str:
    """A share of 0 to 1 as a bar."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return "[" + "#" * filled + "." * (width - filled) + "]"


def ratio_text(between: Between, table: TableLook) -> str:
    """How often items are drawn, beside what was asked for."""
    now = between.ratio(table)
    text = "ratio -" if now is None else f"ratio {now:.2f}"
    overall = table.sampled / table.inserted if table.inserted else 0.0
    target = f"target {table.target:g}" if table.target else "no target"
    return f"{text}, {overall:.2f} in all, {target}"


# ---- the view ----


def view(look: Look, before: Look | None) -> list[str]:
    """The lines of the live view."""
    between = Between(look, before)
    lines = [
        f"{look.server}   {look.sessions_open} session{'s' * (look.sessions_open != 1)}   "
        f"weights {look.weights_version}   " + time.strftime("%H:%M:%S"),
        "",
        *rates(between),
        *drops(between),
        "",
    ]
    for table in look.tables:
        lines += table_lines(between, table)
    lines += held(between)
    if not look.detailed:
        note = "times, ages, sessions: serve with --metrics, and watch http://HOST:PORT/metrics"
        return [*lines, "", note]
    return [*lines, "", *time_lines(between), "", *session_lines(between)]


def rates(between: Between) -> list[str]:
    """Steps, items, draws, updates and bytes per second."""
    rate = between.rate
    stale = between.share(
        "priorities_stale", ("priorities_applied", "priorities_stale", "priorities_unknown")
    )
    steps = rate("steps_committed")
    per_step = f"   {rate('bytes_in') / steps:,.0f} bytes in per step" if steps else ""
    return [
        f"steps/s {number(steps):>10}   items/s {number(rate('items_created')):>10}   "
        f"drawn/s {number(between.drawn()):>10}",
        f"updates/s {number(rate('priorities_applied')):>8}   "
        f"stale {'-' if stale is None else f'{stale:.1%}':>12}   "
        f"weights/s {number(rate('weights_published')):>8}",
        f"in {size(rate('bytes_in')) + '/s':>15}   "
        f"{number(rate('datagrams_in')):>8} datagrams/s{per_step}",
        f"out {size(rate('bytes_out')) + '/s':>14}   "
        f"{number(rate('datagrams_out')):>8} datagrams/s",
    ]


def drops(between: Between) -> list[str]:
    """What was dropped or refused, in all and just now."""
    rows = []
    for name, value in between.look.counters.items():
        if value and name.startswith(BAD):
            rows.append(f"  {name} {number(value)} ({number(between.rate(name))}/s)")
    facts = between.look.facts
    for fact in facts:
        if fact.value and fact.kind != "level":
            now = number(between.fact_rate(fact))
            text = f"  {fact.full_name} {number(fact.value)} ({now}/s)  {fact.sentence}"
            rows.append(text.rstrip())
    levels = [f"{fact.name} {number(fact.value)}" for fact in facts if fact.kind == "level"]
    now = [f"transport: {', '.join(levels)}"] if levels else []
    return ["drops and refusals" if rows else "drops and refusals: none", *rows, *now]


def held(between: Between) -> list[str]:
    """Which side was held back in the interval, and whether any client could release it. A client
    that waits asks again each half second, and each request counts."""
    sides = (
        ("pushes_blocked", "writers", "samples", "learners are slower", "nobody samples"),
        ("samples_blocked", "learners", "steps_committed", "writers are slower", "nobody adds"),
    )
    return [
        f"{who} are held back by the limiter: {slower if between.rate(other) else nobody}"
        for asked, who, other, slower, nobody in sides
        if between.rate(asked)
    ]


def table_lines(between: Between, table: TableLook) -> list[str]:
    """A table's size, ratio, ages, and who waits."""
    share = table.items / table.capacity
    lines = [
        f"{table.name} {bar(share)} {table.items:,.0f} items, room for {table.capacity:,.0f} steps",
        f"  {ratio_text(between, table)}"
        + (f"   {number(table.waiting)} requests held back" if table.waiting is not None else ""),
    ]
    ages = between.ages(table)
    if (middle := quantile(ages, 0.5)) is not None:
        late = quantile(ages, 0.99) or 0.0
        lines.append(f"  age when drawn: p50 {number(middle)}, p99 {number(late)} steps")
    return lines


def time_lines(between: Between) -> list[str]:
    """Requests per second and quantiles of their time at the server."""
    lines = [f"{'request':<12} {'per s':>10} {'p50':>10} {'p99':>10}"]
    names = [name for name in OPERATIONS_FIRST if name in between.look.times]
    names += [name for name in between.look.times if name not in names]
    for name in names:
        lines += _times(name, between.times(name), between.seconds)
    for name in between.look.waits:
        lines += _times(f"{name} held", between.waits(name), between.seconds)
    return lines if len(lines) > 1 else [*lines, "none since the last look"]


def _times(name: str, buckets: Buckets, elapsed: float) -> list[str]:
    count = buckets[-1][1] if buckets else 0
    if not count:
        return []
    rate = number(count / elapsed) if elapsed else "-"
    middle, late = seconds(quantile(buckets, 0.5)), seconds(quantile(buckets, 0.99))
    return [f"{name:<12} {rate:>10} {middle:>10} {late:>10}"]


def session_lines(between: Between) -> list[str]:
    """The busiest open sessions, by bytes."""
    look = between.look
    places = [place for place in look.sessions if place in look.silences or place == "other"]

    def traffic(place: str) -> float:
        rate = between.session_rate
        return rate(place, "bytes_in") + rate(place, "bytes_out")

    places.sort(key=traffic, reverse=True)
    columns = ("requests", "steps", "items", "bytes_in", "bytes_out", "refused", "dropped")
    lines = [f"{'session':<8}" + "".join(f"{name + '/s':>12}" for name in columns) + "  silent"]
    for place in places[:SESSION_ROWS]:
        rates = {name: between.session_rate(place, name) for name in columns}
        cells = [(size if "bytes" in name else number)(rate) for name, rate in rates.items()]
        silent = seconds(look.silences.get(place)) if place in look.silences else ""
        lines.append(f"{place:<8}" + "".join(f"{cell:>12}" for cell in cells) + f"  {silent}")
    if len(places) > SESSION_ROWS:
        lines.append(f"and {len(places) - SESSION_ROWS} more")
    return lines


def line(look: Look, before: Look | None) -> str:
    """One look as one line, for logs."""
    between = Between(look, before)
    bad = sum(value for name, value in look.counters.items() if name.startswith(BAD))
    bad += sum(fact.value for fact in look.facts if fact.is_drop)
    tables = "; ".join(
        f"{t.name} {t.items:,.0f}/{t.capacity:,.0f} {ratio_text(between, t)}" for t in look.tables
    )
    return (
        f"{time.strftime('%H:%M:%S')} steps/s {between.rate_text('steps_committed')} "
        f"drawn/s {number(between.drawn()) if before else '-'} "
        f"updates/s {between.rate_text('priorities_applied')} sessions {look.sessions_open} "
        f"weights {look.weights_version} dropped or refused {number(bad)} | "
        + " | ".join([tables, *held(between)])
    )


# ---- the loop ----


class Screen:
    """Where looks go: redrawn in place on a terminal, else a line each."""

    def __init__(self, output: TextIO) -> None:
        self.output, self.live, self.last = output, output.isatty(), [""]

    def __enter__(self) -> Screen:
        self._write(ENTER if self.live else "")
        return self

    def __exit__(self, *_: object) -> None:
        """Back to the terminal as it was, the last look left on it."""
        if self.live:
            self._write(LEAVE + "\n".join(self.last) + "\n")

    def show(self, look: Look, before: Look | None) -> None:
        """One look."""
        if self.live:
            self._draw(view(look, before))
        else:
            self._write(line(look, before) + "\n")

    def report(self, sentence: str) -> None:
        """Something that went wrong; the view stays, with the sentence above it."""
        if self.live:
            self._draw([sentence, *self.last[1:]])
        else:
            self._write(f"{time.strftime('%H:%M:%S')} {sentence}\n")

    def _draw(self, lines: list[str]) -> None:
        self.last = lines
        columns, rows = shutil.get_terminal_size()
        shown = [text[:columns] for text in lines[: rows - 1]]
        self._write(HOME + "".join(text + REST + "\r\n" for text in shown) + BELOW)

    def _write(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()


def watch(
    source: ServerSource | EndpointSource, interval: float, output: TextIO = sys.stdout
) -> int:
    """Looks again and again until KeyboardInterrupt; the first look has to succeed."""
    wake = threading.Event()  # never set: a wait that Ctrl-C ends
    before: Look | None = None
    look, away = source.look(), False
    try:
        with Screen(output) as screen:
            while True:
                if look is not None:
                    screen.show(look, before)
                    before, away = look, False
                wake.wait(interval)
                try:
                    look = source.look()
                except ReplayError as error:
                    if not away:
                        screen.report(f"{error}; looking for it again every {interval:g} s")
                    look, away = None, True
    finally:
        source.close()
