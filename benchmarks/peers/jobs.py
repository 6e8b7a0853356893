"""The work, and one measurement of it: which orders go to which workers, what is counted beside."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .learn import TASKS
from .peer import Setting
from .pool import capacity_of, columns_of
from .processes import PeerFailed, Process, wire_bytes
from .roster import Listed

FILL_BATCH = {"atari": 64}
FILL_BATCH_PLAIN = 256
INSERT_BATCH = {"small": 256, "atari": 64}
START_S, FILL_S, ANSWER_S, CLOSE_S = 180.0, 300.0, 120.0, 10.0
WRITER = {"batch": 32, "pace": 0.05}  # beside a learner that waits: 640 items a second
LEARN_S, LEARN_CAPACITY = 120.0, {"small": 1 << 14, "flight": 1 << 13}
SMALL_SHARE = 8  # a table of which memory is compared has an eighth of the items
STEP_CALLS = 8  # steps that a learner takes at least


@dataclass(frozen=True)
class Job:
    """A row of work. kind: insert, sample, ahead, update, mixed or wait; step: seconds."""

    kind: str
    batch: int
    writers: int = 1
    step: float = 0.0

    @property
    def name(self) -> str:
        """For people."""
        if self.kind == "insert":
            by = f", {self.writers} writers" if self.writers > 1 else ""
            return f"insert {self.batch} acknowledged{by}"
        return {
            "sample": f"sample {self.batch} in turn",
            "ahead": f"sample {self.batch}, 4 ahead",
            "update": f"update {self.batch}",
            "mixed": f"mixed: sample and update {self.batch} beside a writer",
            **{name: f"{task.name} learned" for name, task in TASKS.items()},
            "wait": f"learner of {self.batch}, step {self.step * 1e3:g} ms",
        }[self.kind]

    def fits(self, row: Listed) -> bool:
        """Whether a row has this work: in one process nobody writes beside the learner."""
        return row.served or (self.kind != "mixed" and self.writers == 1)


def jobs_of(item: str, quick: bool, full: bool) -> list[Job]:
    """The grid of an item: small for a trial, the default, or all of it."""
    many = INSERT_BATCH.get(item, 256)
    if quick:
        return [
            Job("insert", many),
            Job("sample", 32),
            Job("ahead", 256),
            Job("update", 32),
            Job("mixed", 256),
            Job("wait", 256, step=0.01),
        ]
    batches = (32, 256, 512) if full else (32, 512)
    jobs = [Job("insert", 1), Job("insert", many)]
    jobs += [Job("insert", many, writers) for writers in ((4, 16, 32) if full else (4,))]
    jobs += [Job("sample", batch) for batch in batches]
    jobs += [Job("ahead", batch) for batch in (batches if full else (512,))]
    jobs += [Job("update", batch) for batch in batches]
    jobs += [Job("mixed", batch) for batch in (batches if full else (512,))]
    return jobs + [Job("wait", 256, step=step) for step in (0.001, 0.01, 0.1)]


@dataclass
class Done:
    """One measurement. times: seconds a call [N]; items and seconds of these calls; processor
    seconds and bytes over lo of all_items: those of warm calls and of a writer beside are among
    them; inserted: that writer's; wrong of checked items."""

    times: np.ndarray
    items: int
    seconds: float
    client_cpu_s: float
    server_cpu_s: float
    wire: int
    checked: int
    wrong: int
    inserted: int = 0
    all_items: int = 0
    steps: int = 0
    reached: bool = True

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.seconds if self.seconds else 0.0


@dataclass
class Opened:
    """A row at work on one kind of item: its processes, what is stored, bytes a stored item."""

    row: Listed
    item: str
    server: Process | None = None
    clients: list[Process] = field(default_factory=list)
    item_memory: float = 0.0
    without: set[str] = field(default_factory=set)

    @property
    def holder(self) -> Process:
        """The process that has the table."""
        return self.server or self.clients[0]

    @property
    def processes(self) -> list[Process]:
        """All of them, clients first."""
        return [*self.clients, *([self.server] if self.server else [])]

    def cpu_s(self) -> float:
        """Seconds of processor that they have taken so far."""
        return sum(process.cpu_s() for process in self.processes)

    def close(self) -> None:
        """Ends its processes."""
        self.wake()
        for process in self.processes:
            process.close(CLOSE_S)

    def learn(self, job: Job, seed: int) -> Done:
        """A task through this row's empty table."""
        cpu, served, wire = self.counted(self.clients)
        order = {"kind": job.kind, "batch": job.batch, "seconds": LEARN_S, "seed": seed}
        answer = self.clients[0].ask(2 * LEARN_S, do="measure", **order)
        after, served_after, wire_after = self.counted(self.clients)
        return Done(
            times=np.array(answer["times"]),
            items=answer["items"],
            seconds=answer["seconds"],
            client_cpu_s=after - cpu,
            server_cpu_s=served_after - served,
            wire=wire_after - wire,
            checked=0,
            wrong=0,
            all_items=answer["all_items"],
            steps=answer["steps"],
            reached=answer["reached"],
        )

    # -- one measurement --------------------------------------------------------------------------

    def measure(self, job: Job, seconds: float) -> Done | None:
        """`seconds` of a job; None where the row has no such work."""
        if not job.fits(self.row) or job.kind in self.without:
            return None
        self.wake()
        try:
            return self.measured(job, seconds)
        finally:
            self.rest()

    def rest(self) -> None:
        """Stops a row that polls without sleeping, so that it takes no core from the others."""
        self.signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Lets it go on."""
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """To all processes of a row that polls."""
        if self.row.spins:
            for process in self.processes:
                process.signal(number)

    def measured(self, job: Job, seconds: float) -> Done | None:
        """`measure` of a row that is awake."""
        used, orders = self.orders(job, seconds)
        used[0].ask(ANSWER_S, do="prepare", kind=job.kind, batch=job.batch)
        cpu, served, wire = self.counted(used)
        for process, order in zip(used, orders, strict=True):
            process.post(do="measure", **order)
        answers = [process.answer(ANSWER_S) for process in used]
        after, served_after, wire_after = self.counted(used)
        if "none" in answers[0]:
            self.without.add(job.kind)
            return None
        counted = answers if job.kind == "insert" else answers[:1]
        items = sum(answer["items"] for answer in counted)
        spent = max(answer["seconds"] for answer in counted)
        return Done(
            times=np.concatenate([answer["times"] for answer in counted]),
            items=items,
            seconds=spent,
            client_cpu_s=after - cpu,
            server_cpu_s=served_after - served,
            wire=wire_after - wire,
            checked=sum(answer["checked"] for answer in answers),
            wrong=sum(answer["wrong"] for answer in answers),
            inserted=sum(answer["items"] for answer in answers[len(counted) :]),
            all_items=sum(answer["all_items"] for answer in answers),
        )

    def orders(self, job: Job, seconds: float) -> tuple[list[Process], list[dict[str, Any]]]:
        """Which workers, and what each is to do."""
        one = {"kind": job.kind, "batch": job.batch, "seconds": seconds}
        if job.kind == "insert":
            return self.clients[: job.writers], [one] * job.writers
        if job.kind not in ("mixed", "wait"):
            return self.clients[:1], [one]
        seconds = max(seconds, STEP_CALLS * job.step)
        learn = {**one, "kind": "learn", "seconds": seconds, "step": job.step}
        write: dict[str, Any] = {"kind": "insert", "seconds": seconds, "warm": 0}
        write |= WRITER if job.kind == "wait" else {"batch": INSERT_BATCH.get(self.item, 256)}
        return (self.clients[:2], [learn, write]) if self.row.served else (self.clients, [learn])

    def counted(self, used: list[Process]) -> tuple[float, float, int]:
        """(clients' processor seconds, the server's, bytes over lo)."""
        clients = sum(process.cpu_s() for process in used)
        return clients, self.server.cpu_s() if self.server else 0.0, wire_bytes()


def open_row(
    row: Listed, item: str, pool: Path, writers: int, logs: Path, say: Callable[[str], None]
) -> Opened:
    """Starts server and clients and fills the table. PeerFailed where one does not.

    Memory of an item: what an empty table takes beyond an empty small one, an item between, and by
    how much it grows from an eighth full to full. Some stores take all of it at the beginning
    (`reserves`), others as items come.
    """
    whole, small = capacity_of(item), capacity_of(item) // SMALL_SHARE
    reserved = 0
    if row.reserves:
        little = start_row(row, item, pool, small, 1, logs)
        reserved = -little.holder.memory()
        little.close()
    begin = time.monotonic()
    opened = start_row(row, item, pool, whole, writers, logs)
    try:
        reserved += opened.holder.memory() if row.reserves else 0
        order = {"do": "fill", "batch": FILL_BATCH.get(item, FILL_BATCH_PLAIN)}
        opened.clients[0].ask(FILL_S, count=small, **order)
        grown = -opened.holder.memory()
        opened.clients[0].ask(FILL_S, count=whole - small, **order)
        grown += opened.holder.memory()
    except BaseException:
        opened.close()
        raise
    opened.item_memory = (reserved + grown) / (whole - small)
    opened.rest()
    say(f"{row.name}: {whole} {item} items in after {time.monotonic() - begin:.1f} s")
    return opened


def start_row(
    row: Listed, item: str, pool: Path, capacity: int, writers: int, logs: Path
) -> Opened:
    """Server and clients of an empty table. PeerFailed where one does not start."""
    opened = Opened(row, item)
    count = writers if row.served else 1
    options = {**row.options, "clients": count}
    setting = asdict(Setting(item, columns_of(item), capacity, str(pool), options))
    try:
        address = ""
        if row.served:
            opened.server = Process(row, "server", logs)
            answer = opened.server.ask(START_S, do="serve", setting=setting)
            address = answer["address"]
        opened.clients = [Process(row, f"client {number}", logs) for number in range(count)]
        for number, process in enumerate(opened.clients):
            own = {**setting, "options": {**options, "client": number}}
            process.post(do="connect", setting=own, address=address)
        for process in opened.clients:
            process.answer(START_S)
    except BaseException:
        opened.close()
        raise
    return opened


__all__ = ["LEARN_CAPACITY", "Done", "Job", "Opened", "PeerFailed", "jobs_of"]
__all__ += ["open_row", "start_row"]
