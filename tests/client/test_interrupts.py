"""Ctrl-C anywhere in the package: whoever catches it, as a notebook does, goes on with what it has.
A trace raises it where the interpreter looks for signals, so every such place has its turn. And
Ctrl-C while a program starts."""

from __future__ import annotations

import dis
import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import replay_server
from replay_server import Client, Column, NStep, Prioritized, Server, Spec, Table
from replay_server._native import lib

PACKAGE = str(Path(replay_server.__file__).parent)
SPEC = Spec(
    (
        Column("observation", np.float32, (2,)),
        Column("action", np.int64),
        Column("reward", np.float32),
        Column("terminated", np.bool_),
    )
)


HEARD_BEHIND = ("CALL", "RESUME", "JUMP_BACKWARD")  # where the interpreter looks for signals


def press():
    raise KeyboardInterrupt


def interrupted(at, call, handler=press, notes=None):
    """Where `handler` ran in `call`, behind its call number `at` within the package: what was
    called has ended, and what it returned is stored nowhere yet. None where it has fewer. `notes`:
    a list of what the interrupt has to say."""
    heard, where, last = 0, None, {}

    def step(frame, event, _):
        nonlocal heard, where
        frame.f_trace_opcodes = True
        if event == "return" and last.get(frame.f_back, "").startswith("CALL"):
            last[frame.f_back] = "RETURN"  # of Python's own functions: nothing is heard there, or
            # (with * and **) within the call, which a `finally` around it covers
        if event != "opcode" or where is not None:
            return step
        behind, last[frame] = (
            last.get(frame, "RESUME"),
            dis.opname[frame.f_code.co_code[frame.f_lasti]],
        )
        heard += behind.startswith(HEARD_BEHIND)
        if heard == at:
            where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            handler()
        return step

    def enter(frame, *_):
        ours, above = frame.f_code.co_filename.startswith(PACKAGE), frame
        while above is not None and above.f_code.co_name != "__del__":
            above = above.f_back  # what is raised below a __del__ reaches nobody
        return step if ours and above is None else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    except KeyboardInterrupt as error:
        assert where is not None
        if notes is not None:
            notes += getattr(error, "__notes__", [])
    finally:
        sys.settrace(before)
        last.clear()  # it keeps frames, and what they name
    return where


def places_left(client, usual=0):
    """How many requests the client can post at once, now: where fewer than `usual`, once what an
    error's traceback named is gone."""
    raw, tickets = client._link.raw, []
    while (ticket := lib.rp_link_ping(raw, 60_000_000_000)) > 0:
        tickets.append(ticket)
    for each in tickets:
        lib.rp_link_take(raw, each)
    if len(tickets) < usual:
        gc.collect()
        return places_left(client)
    return len(tickets)


def step_of(number):
    """Step `number` of an episode that never ends: it leads to the next number."""
    seen = np.array([[7, number], [7, number + 1]], np.float32)
    step = {"action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    return {"observation": seen[0], "next_observation": seen[1], **step}


@pytest.fixture
def client():
    """A client of a table that holds 200 steps."""
    table = Table("main", SPEC, NStep(1), 4096, Prioritized(1.0))
    with Server([table]) as server, Client(server.address, timeout=5) as client:
        with client.writer("main") as writer:
            for number in range(200):
                writer.add(**step_of(number))
        yield client


@pytest.mark.parametrize("prefetch", [1, 3])
def test_batches_go_on_after_an_interrupt(client, prefetch):
    """Given an interrupt behind each call in next. Expect whole batches from then on, each in
    memory of its own, and as many under way as before."""
    at, where = 0, ""
    while where is not None:
        at += 1
        with client.batches("main", 16, prefetch=prefetch, keep=2) as batches:
            next(batches)
            where = interrupted(at, lambda it=batches: next(it))
            held = []
            for _ in range(prefetch + 3):
                batch = next(batches)
                seen = batch["observation"][:, :, 1]
                assert (seen[:, 0] + 1 == seen[:, 1]).all(), where
                held = [*held[-1:], (batch, seen.copy())]
                for each, copy in held:
                    assert np.array_equal(each["observation"][:, :, 1], copy), where
    assert at > 30


CALLS = {
    "sample": lambda client: client.sample("main", 16),
    "update": lambda client: client.update_priorities("main", [0, 1], [1.0, 1.0]),
    "get": lambda client: client.get("main", [0, 1]),
    "size": lambda client: client.size("main"),
    "look up": lambda client: client.table("main", timeout=5.0),
    "stats": lambda client: client.stats(),
    "ping": lambda client: client.ping(),
    "publish": lambda client: client.publish_weights(b"12345678"),
    "pull": lambda client: client.pull_weights(),
    "batches": lambda client: client.batches("main", 16, prefetch=3).close(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_interrupt_leaves_no_request_under_way(client, call):
    """Given an interrupt behind each call that a client's method makes. Expect it to hold as many
    places as before: nothing goes on that nobody takes, or writes to memory that is gone."""
    call(client)
    free, at, where = places_left(client), 0, ""
    assert free > 16
    while where is not None:
        at += 1
        where = interrupted(at, lambda: call(client))
        assert places_left(client, free) == free, where
    assert at > 5


@pytest.mark.parametrize("prefetch", [1, 3])
def test_an_interrupted_next_holds_no_more_than_its_prefetch(client, prefetch):
    """Given next() of batches that is interrupted at each place in turn. Expect no request left
    behind: at most one place a batch ahead is taken, and none once all is closed."""
    with client.batches("main", 16, prefetch=prefetch, keep=2) as batches:
        next(batches)
        free, at, where = places_left(client), 0, ""
        while where is not None:
            at += 1
            where = interrupted(at, lambda: next(batches))
            for _ in range(prefetch):  # one that was not posted again is when its turn comes
                next(batches)
                assert places_left(client) >= free, where
            assert places_left(client) == free, where
        assert at > 10
    assert places_left(client) == free + prefetch


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("again", [False, True], ids=["left out", "made again"])
def test_anchors_name_the_rows_they_are_after_an_interrupt(ends, again):
    """Given an interrupt behind each call in add, in or at the end of an episode, the step made
    again or left out. Expect priorities given to anchors by their numbers on the very rows."""
    at, where = 0, ""
    while where is not None:
        at += 1
        table = Table("main", SPEC, NStep(1), 4096, Prioritized(1.0), writers=1)
        with Server([table]) as server, Client(server.address, timeout=5) as client:
            writer = client.writer("main")
            for number in range(5):
                writer.add(**step_of(number))
            writer.flush()
            last = step_of(5) | {"truncated": ends}
            where = interrupted(at, lambda it=writer, last=last: it.add(**last))
            if again and where is not None:
                writer.add(**last)
            for number in range(100, 130):
                ready = writer.add(**step_of(number))
                writer.create(ready.streams, ready.steps, [float(number)] * len(ready))
            writer.flush()
            batch = client.sample("main", 1000, uniform=1.0)
            seen, given = batch["observation"][:, 0, 1], batch.masses / 2**26
            late = (seen >= 100) & (seen < 129)
            assert len(set(seen[late])) == 29, where
            assert np.allclose(given[late], seen[late] + 1), where
            writer.close()
    assert at > 20


@pytest.mark.parametrize("silent", [False, True], ids=["goes on", "reset"])
@pytest.mark.parametrize("ends", [False, True], ids=["in", "at the end"])
@pytest.mark.parametrize("again", [False, True], ids=["left out", "made again"])
@pytest.mark.filterwarnings("ignore:stream 0")
def test_nothing_is_stored_after_an_interrupt_that_no_step_did(ends, again, silent):
    """Given an interrupt behind each call in add, in or ending an episode, or where a reset was
    not said, and the step made again or left out. Expect every transition to lead where its step
    did, and the interrupt's note to say whether the step is there."""
    at, where, took = 0, "", set()
    with (
        Server([Table("main", SPEC, NStep(1), 4096)], "loopback://") as server,
        Client(server.address) as client,
    ):
        while where is not None:
            at, notes = at + 1, []
            writer = client.writer("main")
            for number in range(5):
                writer.add(**step_of(number))
            number = 50 if silent else 5
            last = step_of(number) | {"truncated": ends}
            where = interrupted(at, lambda it=writer, last=last: it.add(**last), notes=notes)
            if again and where is not None:
                writer.add(**last)
            for later in range(100, 104) if ends else range(number + 1, number + 5):
                writer.add(**step_of(later))
            writer.flush()
            batch = client.get("main", writer.ledger()["key"])
            seen = batch["observation"][batch.valid & (batch.ahead > 0)][:, :, 1]
            assert (seen[:, 0] + 1 == seen[:, 1]).all(), where
            taken = np.count_nonzero(seen[:, 0] == number) - (again and where is not None)
            assert taken in (0, 1), where
            for note in notes:
                assert ("was taken" in note, "was not taken" in note) == (taken == 1, taken == 0)
            took.add((taken, bool(notes)))
            writer.close()
    assert at > 20
    assert sys.version_info < (3, 11) or {(0, True), (1, True)} <= took


@pytest.mark.filterwarnings("ignore:table 'main'. create_items for items that exist")
def test_items_exist_once_after_an_interrupt():
    """Given an interrupt behind each call in create_items, which is made again. Expect each item
    once, counted once, and the interrupt's note to say whether the items were taken."""
    at, where, took = 0, "", set()
    table = Table("main", SPEC, NStep(1), 1 << 14, Prioritized(1.0))
    with Server([table], "loopback://") as server, Client(server.address) as client:
        while where is not None:
            at, notes = at + 1, []
            before = server.counters()["items_created"]
            with client.writer("main") as writer:
                for number in range(3):
                    writer.create_items(writer.add(**step_of(number)))
                ready = writer.add(**step_of(3))

                def create(it=writer, ready=ready):
                    it.create_items(ready, [5.0])

                where = interrupted(at, create, notes=notes)
                for note in notes:
                    assert ("were taken" in note) != ("were not taken" in note)
                    took.add("were taken" in note)
                if where is not None:
                    create()
                state = writer.flush()
                count = server.counters()["items_created"] - before
                assert (count, state.items_posted, state.items_created) == (3, 3, 3), where
    assert at > 20
    assert sys.version_info < (3, 11) or took == {False, True}


def held():
    """How many threads and descriptors this process has."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", ["server", "client"])
@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "zmq+tcp://127.0.0.1:0", "loopback://"])
def test_an_interrupt_while_one_is_opened_or_closed_leaves_nothing_open(kind, url):
    """Given an interrupt behind each call that opens and closes a server, or a client, and whoever
    catches it keeping the error, as a notebook does, and closing what was made. Expect no thread
    and no descriptor to be left, and another one to open at the same address at once."""
    table = Table("main", SPEC, NStep(1), 64)
    with Server([table], url) as server:
        address = server.address
        Client(address, specs={"main": SPEC}).close()

    def opened():
        try:
            if kind == "server":
                made.append(Server([table], address))
            else:
                made.append(Client(address, specs={"main": SPEC}))
            made[0].close()
        except KeyboardInterrupt as error:
            kept.append(error)
            raise

    at, where = 0, ""
    with Server([table], address) if kind == "client" else nullcontext():
        usual = held()  # before any client: the far end of a closed one stays open for a moment
        while where is not None:
            at, made, kept = at + 1, [], []
            where = interrupted(at, opened)
            assert bool(kept) == (where is not None)
            for each in made:
                each.close()
            until = time.monotonic() + 10.0
            while held() != usual and time.monotonic() < until:
                continue  # a thread that was joined is on the system's list for a moment
            assert held() == usual, where
            made = []
            opened()
    assert at > 20


STARTED = {
    "actor": (["actor"], "torch"),
    "learner": (["learner", "train"], "numpy"),
    "evaluate": (["learner", "evaluate", "."], "torch"),
    "demo": (["deploy", "demo"], "numpy"),
    "stats": (["replay_server", "stats", "udp://127.0.0.1:9"], "numpy"),
    "one command": (["replay_server", "actor"], "torch"),
    "serve": (["replay_server", "serve", "--env", "CartPole-v1"], "numpy"),
    "installed": ([str(Path(sys.executable).with_name("replay-server")), "serve"], "numpy"),
}


@pytest.mark.parametrize(("command", "module"), STARTED.values(), ids=STARTED)
@pytest.mark.parametrize("ignored", [False, True], ids=["heard", "ignored"])
def test_an_interrupt_while_a_program_imports_ends_it_without_a_word(
    tmp_path, command, module, ignored
):
    """Given SIGINT from within an import. Expect exit code 130 and no traceback; where the program
    was started to ignore it, the import to go on."""
    late = "import os, signal, sys\nos.kill(os.getpid(), signal.SIGINT)\nprint('went on')\n"
    (tmp_path / f"{module}.py").write_text(late + "sys.stdout.flush()\nos._exit(7)\n")
    started = [] if Path(command[0]).is_absolute() else [sys.executable, "-m"]
    done = subprocess.run(
        [*started, *command],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(PACKAGE).parent}"},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    expected = (7, "went on\n", "") if ignored else (130, "", "")
    assert (done.returncode, done.stdout, done.stderr) == expected


AT_LINE = """
import signal, sys

def step(frame, event, _):
    global lines
    if event == "line":
        lines += 1
        if lines == at:
            signal.raise_signal(signal.SIGINT)
    return step
"""  # SIGINT at the at-th line that sys.settrace(enter) has it see

WAITED = """
from replay_server.__main__ import main
from replay_server.training.contact import Stop

lines, waits = 0, ("threading.py", "stopping.py")

def enter(frame, *_):
    inside = frame.f_code.co_name == "wait" and frame.f_code.co_filename.endswith(waits)
    return step if inside else None

def rest():
    with Stop() as stop:
        while not stop.wait(0.01):
            pass

for call in (rest, lambda: main(["serve", "--env", "CartPole-v1", "--url", "udp://127.0.0.1:0"])):
    for at in range(1, 9):
        lines = 0
        sys.settrace(enter)
        ended = call()
        sys.settrace(None)
        assert not ended, ended
"""


def test_a_signal_within_a_wait_for_signals_ends_it():
    """Given SIGINT at each line of the wait of serve, and of the training programs. Expect an end:
    a handler that takes a lock of that wait would wait for its own thread."""
    done = subprocess.run(
        [sys.executable, "-c", AT_LINE + WAITED], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("stopped udp://") == 8


WITHIN = """
import gc, importlib.util, os, pathlib, tempfile
import numpy as np
from replay_server import Client, Column, Server, Spec, Table
from replay_server.serving.zmq_transport import keygen

table, lines = Table("r", Spec((Column("x", np.int64),))), 0
pyzmq = os.path.dirname(importlib.util.find_spec("zmq").origin)
keys = pathlib.Path(tempfile.mkdtemp())
keygen(keys, ["me"])
files = {"curve_secret_key": str(keys / "server.key_secret")}
files["curve_clients"] = str(keys / "clients")
makes = ("socket", "__init__", "get_monitor_socket", "start", "stop", "close", "term", "run")

def enter(frame, *_):
    code = frame.f_code
    return step if code.co_filename.startswith(pyzmq) and code.co_name in makes else None

def held():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

signal.signal(signal.SIGINT, signal.default_int_handler)
with Server(table, "zmq+tcp://127.0.0.1:0") as server:
    address, usual, kept = server.address, held(), []
    guarded = lambda: Server(table, "zmq+tcp://127.0.0.1:0", **files)
    for opened in (lambda: Client(address), guarded):
        opened().close()
        at, ended = 0, False
        while not ended:
            at, lines = at + 1, 0
            sys.settrace(enter)
            try:
                made = opened()
                ended = True
            except KeyboardInterrupt as error:
                kept.append(error)  # as a notebook does, and its traceback all that was made
            sys.settrace(None)
            if ended:
                made.close()
        print("places", at > 40)
    del made, kept
    gc.collect()
    while held() != usual:
        pass
"""


def test_an_interrupt_within_pyzmq_waits_for_no_socket():
    """Given Ctrl-C at each line in which pyzmq makes a socket, for a client and for the guard of a
    server with keys, and a caller that keeps the error. Expect each call to end: a context that
    does not know its socket would wait for it, without end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_LINE + WITHIN],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "places True\n" * 2), done.stderr
