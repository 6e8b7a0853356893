"""replay-serve, the program without Python, over UDP: the same server, from a compiled config."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cffi
import numpy as np
import pytest
from conformance import FRAMES, plain, plain_rows, table

from replay_server import Client, NStep, SamplesPerInsert, Server
from replay_server._native import ffi, lib
from replay_server.server import Config, ServerOptions, memory_of
from replay_server.serving.compiled import compile_tables

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/replay-serve"
ANY = "udp://127.0.0.1:0"
CARD_URL = "dpdk://10.0.0.1:7400?vdev=net_af_packet,iface=nothing0"


@pytest.fixture(scope="module", autouse=True)
def program():
    subprocess.run(["make", "-s", str(PROGRAM.relative_to(ROOT))], cwd=ROOT, check=True)


@pytest.fixture
def config(tmp_path) -> Path:
    """One plain table, seed 5."""
    return written(tmp_path / "tables.bin", plain(), seed=5)


def written(path: Path, *tables, **options) -> Path:
    path.write_bytes(compile_tables(tables, ServerOptions(**options)))
    return path


HEADER = ROOT / "native/appliance/compiled.h"
KEPT_APART = {"magic", "version", "bytes", "crc", "flags", "reserved", "name"}


def struct_of(name: str) -> cffi.FFI:
    """A structure of compiled.h, laid out as a compiler does."""
    (found,) = re.findall(rf"^struct {name} {{.*?^}};", HEADER.read_text(), re.M | re.S)
    layout = cffi.FFI()
    layout.cdef(found.replace("RP_NAME_BYTES", str(32)))
    return layout


def test_the_header_and_the_compiler_of_configs_agree_field_by_field():
    """Given a value of its own in each field. Expect each under its name in compiled.h's words."""
    numbers = dict(sessions=31, sessions_per_address=7, batch_max=256, records=9, mtu=1400)
    numbers |= dict(receive_budget=131, idle_ms=30_001, lapse_ms=103, weights_max=1 << 21)
    limiter = SamplesPerInsert(2.5, 1011, error_buffer=(977.0, 3011.0))
    made = table(plan=NStep(2), capacity=5000, writers=3, streams=5, window=70, limiter=limiter)
    options = ServerOptions(**numbers, seed=17)
    config = Config((made,), options, 17)  # owns what config.raw points to
    written, raw = compile_tables([made], options), config.raw
    at = 0
    for name, given in (("rp_compiled_head", raw), ("rp_compiled_table", raw.tables[0])):
        layout = struct_of(name)
        size = layout.sizeof(f"struct {name}")
        held = layout.from_buffer(written[at : at + size])
        read = layout.cast(f"struct {name} *", held)
        fields = [field for field, _ in layout.typeof(read).item.fields if field not in KEPT_APART]
        values = {field: getattr(given, field) for field in fields}
        assert {field: getattr(read, field) for field in fields} == values
        assert len(set(values.values())) >= len(values) - 1, "two may be alike by chance"
        at += size


class Serving:
    """A replay-serve and its lines."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.address, self.seed = self.served()

    def line(self) -> str:
        return self.process.stdout.readline()

    def served(self) -> tuple[str, int]:
        """From its line: where it serves, and the seed."""
        line = self.line()
        assert "serving at udp://127.0.0.1:" in line, line
        words = line.split("serving at ")[1].split()
        return words[0], int(words[2].rstrip(")"))

    def told(self, begin: str) -> dict[str, int]:
        """Its counters, from the line that begins like this to the last of them."""
        assert (line := self.line()).startswith(begin), line
        numbers = {}
        while not (line := self.line()).startswith("end udp://"):
            name, number, *sentence = line.split()
            assert sentence
            numbers[name] = int(number)
        return numbers

    def counters(self) -> dict[str, int]:
        self.process.send_signal(signal.SIGUSR1)
        return self.told("serving udp://")

    def ended(self, number: int) -> dict[str, int]:
        """What it tells when it is stopped by this signal; nothing follows, and 0."""
        self.process.send_signal(number)
        counters = self.told("stopped udp://")
        assert self.process.communicate(timeout=30) == ("", None) and not self.process.returncode
        return counters


@contextmanager
def serving(*words: object) -> Iterator[Serving]:
    with subprocess.Popen(
        [str(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Serving(process)
        finally:
            process.kill()


def test_it_serves_what_python_serves(tmp_path):
    """Given two tables and a seed, served by both. Expect the same facts, draws and counters."""
    limiter = SamplesPerInsert(2.0, min_size=40, error_buffer=4000.0)
    plans = {"near": NStep(1, stack=4), "far": NStep(5)}
    tables = (plain(limiter=limiter), table(FRAMES, plans, capacity=512))
    object.__setattr__(tables[1], "name", "frames")
    config = written(tmp_path / "tables.bin", *tables, seed=11, sessions=4)
    rows, priorities = plain_rows(300), np.exp(np.random.default_rng(1).uniform(-3, 3, 300))
    seen = []
    with serving(config, ANY) as native, Server(tables, ANY, seed=11, sessions=4) as python:
        assert native.seed == 11
        for server in (native, python):
            with Client(server.address) as client:
                first = client.extend("main", rows, priorities)[0]
                batches = [client.sample("main", 32) for _ in range(5)]
                facts = [client.table(name, spec=None) for name in ("main", "frames")]
            told = [(t.spec, t.plans, t.capacity, t.ahead) for t in facts]
            drawn = [
                ((b.keys - first).tolist(), b.masses.tolist(), b["x"].tobytes()) for b in batches
            ]
            counters = server.counters()
            names = ("steps_committed", "items_sampled", "samples", "sessions_opened")
            seen.append((told, drawn, [counters[name] for name in names]))
        assert seen[0] == seen[1] and seen[0][2] == [300, 160, 5, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_tells_what_it_counted_and_stops(config, number):
    """Given rows, then SIGUSR1, then a signal that ends. Expect its counters twice, then 0."""
    with serving("--core", 0, config, ANY) as server:
        with Client(server.address) as client:
            client.extend("main", plain_rows(20))
        assert server.counters()["steps_committed"] == 20
        assert server.ended(number)["steps_committed"] == 20


def test_each_url_is_a_server_of_its_own(config):
    """Given two URLs. Expect two addresses, and rows at one of them only."""
    with serving(config, ANY, ANY) as server:
        other, _ = server.served()
        with Client(server.address) as client, Client(other) as empty:
            client.extend("main", plain_rows(7))
            assert (client.size("main"), empty.size("main")) == (7, 0)


def test_a_hangup_serves_the_config_as_it_is_now(config):
    """Given SIGHUP with a wrong config, then a new one. Expect nothing changed; then new tables."""
    good, address = config.read_bytes(), f"udp://127.0.0.1:{free_port()}"
    with serving(config, address) as server:
        with Client(address) as client:
            client.extend("main", plain_rows(9))
            config.write_bytes(good[:-1])
            server.process.send_signal(signal.SIGHUP)
            assert server.counters()["steps_committed"] == 9
            assert client.size("main") == 9
        written(config, plain(capacity=8192), seed=6)
        server.process.send_signal(signal.SIGHUP)
        assert server.told("stopped")["steps_committed"] == 9
        assert server.served() == (address, 6)
        with Client(address) as client:
            assert client.table("main").capacity == 8192 and client.size("main") == 0


def test_a_hangup_with_what_this_host_cannot_serve_keeps_what_is_served(config):
    """Given SIGHUP with tables larger than this machine. Expect nothing changed.

    Then with tables that only opening refuses, the process being limited. Expect the old config.
    """
    address = f"udp://127.0.0.1:{free_port()}"
    with serving(config, address) as server, Client(address) as client:
        client.extend("main", plain_rows(9))
        written(config, plain(capacity=1_000_000_000), seed=6)
        server.process.send_signal(signal.SIGHUP)
        assert server.counters()["steps_committed"] == 9 and client.size("main") == 9
        written(config, plain(capacity=8192), seed=6, sessions=2048, records=1)
        server.process.send_signal(signal.SIGHUP)
        assert server.told("stopped")["steps_committed"] == 9
        assert server.served() == (address, 6)
        room = (100 << 20) + 4096 * int(
            Path(f"/proc/{server.process.pid}/statm").read_text().split()[0]
        )
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (room, room))
        written(config, plain(capacity=1 << 22), seed=7)
        server.process.send_signal(signal.SIGHUP)
        server.told("stopped")
        assert server.served() == (address, 6)  # the one before
        assert server.counters()["sessions"] == 0
        server.ended(signal.SIGTERM)


def test_a_reader_that_is_gone_ends_nothing(config):
    """Given a stdout that its reader closed, then SIGUSR1. Expect it to serve, then 0."""
    with serving(config, ANY) as server, Client(server.address) as client:
        client.extend("main", plain_rows(9))
        server.process.stdout.close()
        server.process.send_signal(signal.SIGUSR1)
        assert client.size("main") == 9
        server.process.send_signal(signal.SIGHUP)  # its lines have no reader either
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_a_full_pipe_holds_nothing_up(config):
    """Given a stdout that nobody reads, and more lines than it holds. Expect all signals heard.

    Once it is read again, expect the missing lines counted.
    """
    with serving(config, ANY) as server:
        out = server.process.stdout
        fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 4096)
        status = Path(f"/proc/{server.process.pid}/status")
        for _ in range(20):
            server.process.send_signal(signal.SIGUSR1)
            while int(status.read_text().split("ShdPnd:")[1].split()[0], 16):
                select.select([], [], [], 0.01)  # until it is heard
        os.set_blocking(out.fileno(), False)
        seen = os.read(out.fileno(), 1 << 16)
        assert b"lines_dropped" not in seen
        server.process.send_signal(signal.SIGUSR1)
        while b"lines_dropped" not in seen:
            assert select.select([out], [], [], 30.0)[0], seen
            seen += os.read(out.fileno(), 1 << 16)
        server.process.send_signal(signal.SIGUSR1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def free_port() -> int:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_killed_one_is_followed_in_its_region(config, tmp_path):
    """Given kill -9 and the same region. Expect every row again, by its key."""
    region, rows = tmp_path / "region", plain_rows(50)
    with serving("--region", region, config, ANY) as server, Client(server.address) as client:
        keys = client.extend("main", rows)
        server.process.kill()
        server.process.wait(30)
    with serving("--region", region, config, ANY) as server, Client(server.address) as client:
        stored, valid = client.rows("main", keys)
        assert valid.all() and np.array_equal(stored["x"], rows["x"])
        server.process.send_signal(signal.SIGHUP)  # an attached region keeps its tables
        assert server.counters()["sessions"] >= 1


def test_seeds_are_drawn_where_none_is_given(tmp_path):
    """Given no seed. Expect two runs to tell different ones."""
    config = written(tmp_path / "tables.bin", plain())
    with serving(config, ANY) as one, serving(config, ANY) as other:
        assert one.seed != other.seed and max(one.seed, other.seed) < 2**63


def test_mistakes_are_one_sentence_and_code_two(config, tmp_path):
    """Given wrong words, files and addresses. Expect one line each that says what would do."""
    cut = tmp_path / "cut.bin"
    cut.write_bytes(config.read_bytes()[:-4])
    bent = bytearray(config.read_bytes())
    bent[100] ^= 1
    (tmp_path / "bent.bin").write_bytes(bent)
    for words, said in (
        ((), "a compiled config and an address"),
        ((config,), "a compiled config and an address"),
        (("--core", "first", config, ANY), "number of a core"),
        (("--core", 900, config, ANY), "no thread can be started on core 900"),
        (("--forse", config, ANY), "--forse: no such option"),
        ((config, ANY, "--core"), "--core: no such option, or its value is missing"),
        (("--busy", "-xy", config, ANY), "-x: no such option"),
        ((tmp_path / "none.bin", ANY), "No such file"),
        ((tmp_path, ANY), "Is a directory"),
        ((ROOT / "pyproject.toml", ANY), "--compile FILE writes one"),
        ((cut, ANY), "copy it again"),
        ((tmp_path / "bent.bin", ANY), "checksum"),
        ((config, "udp://0.0.0.0:0"), "key"),
        ((config, "tcp://127.0.0.1:0"), "udp"),
        (("--region", tmp_path / "region", config, ANY, ANY), "one program for each"),
        (("--region", "", config, ANY), "its folder's name is empty"),
        ((config, f"{CARD_URL},queues=4"), "queues=4, and 1 with these options"),
        ((config, f"{CARD_URL}&queues=2", f"{CARD_URL}"), "queues=2, and 1 with these options"),
        ((config, *[f"{CARD_URL},queues=2"] * 3), "queues=2, and 3 with these options"),
        ((config, *[f"{CARD_URL},queues=2"] * 2), "nothing0"),
    ):
        done = subprocess.run(
            [PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=30
        )
        assert (done.returncode, done.stdout) == (2, ""), (words, done)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


PCI_URL = "dpdk://10.0.0.1:7400?port=0000:03:00.0,queues=2"


@pytest.mark.parametrize(
    ("urls", "is_short"),
    [
        (
            (
                f"{CARD_URL},queues=2",
                "dpdk://10.0.0.1:7401?queues=2&iface=nothing0,vdev=net_af_packet",
            ),
            0,
        ),
        ((f"{CARD_URL}&queues=2", f"{CARD_URL},queues=2"), 0),
        ((f"{CARD_URL}&queues=2", f"{CARD_URL}&queues=2&probe=off"), 1),
        ((f"{CARD_URL}&queues=2", f"{CARD_URL}1&queues=2"), 1),
        ((f"{CARD_URL}&queues=2", CARD_URL.replace("packet", "packet0") + "&queues=2"), 0),
        ((PCI_URL, "dpdk://10.0.0.1:7401?queues=2,port=3:0.0"), 0),
        ((PCI_URL, "dpdk://10.0.0.1:7401?queues=2,port=3:0.1"), 1),
        (("dpdk://10.0.0.1:7400?vdev=net_ring,queues=2",), 0),
        (("udp://127.0.0.1:0?queues=2",), 0),
    ],
)
def test_servers_of_a_device_are_counted_by_their_options_as_they_are_read(config, urls, is_short):
    """Given URLs whose options say the same in other words or another order, URLs that differ, and
    devices without queues. Expect a missing server told of those that differ alone."""
    command = [PROGRAM, str(config), *urls]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert ("with these options" in done.stderr) == bool(is_short), done.stderr


def test_what_another_moment_may_mend_is_code_one(config):
    """Given a second address whose port is taken. Expect one sentence, and 1; nothing counted."""
    with serving(config, ANY) as server:
        words = [PROGRAM, str(config), ANY, server.address]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "the port is taken" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1 and "stopped" not in done.stdout


def test_a_region_beyond_the_limit_of_files_is_one_sentence(config, tmp_path):
    """Given ulimit -f below a region's files. Expect one sentence, and 1: no signal."""
    words = [PROGRAM, "--region", str(tmp_path / "region"), str(config), ANY]
    limited = ["sh", "-c", 'ulimit -f 100 && exec "$@"', "sh", *map(str, words)]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "File too large" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1


def test_help_teaches():
    """Given --help. Expect every option, and where its config comes from."""
    done = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True)
    options = ("--busy", "--core", "--insecure", "--region", "--verify", "--compile")
    for word in (*options, "SIGHUP", "dpdk://"):
        assert word in done.stdout


def test_serve_compiles(tmp_path, capsys):
    """Given `serve FILE --compile`. Expect the file that compile_tables makes, and what runs it."""
    from replay_server.__main__ import main
    from replay_server.serving import config as configs

    made = tmp_path / "tables.bin"
    source = str(ROOT / "deploy/server.toml")
    assert main(["serve", source, "--compile", str(made), "--seed", "3"]) == 0
    assert f"replay-serve {made}" in capsys.readouterr().out
    loaded = configs.load(source)
    assert made.read_bytes()[:8] == b"RPTABLES" and len(loaded.tables) >= 1
    assert main(["serve", source, "--compile", str(tmp_path / "no/tables.bin")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_tables_of_all_urls_have_to_fit(tmp_path):
    """Given a table of 60 % of the memory there is. Expect one URL served, and two refused."""
    host = lib.rp_memory_most(ffi.new("const char *[1]"))
    small, large = (memory_of([plain(capacity=1 << n)], ServerOptions()) for n in (16, 20))
    capacity = int(0.6 * host * ((1 << 20) - (1 << 16)) / (large - small))
    config = written(tmp_path / "large.bin", plain(capacity=capacity))
    with serving(config, "udp://127.0.0.1:0") as server:
        server.ended(signal.SIGTERM)
    command = [str(PROGRAM), str(config), "udp://127.0.0.1:0", "udp://127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "the tables of 2 servers take" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_a_hangup_with_a_pipe_is_no_wait(config):
    """Given SIGHUP, and a config that became a pipe. Expect the old one kept, and SIGTERM heard."""
    with serving(config, "udp://127.0.0.1:0") as server:
        config.unlink()
        os.mkfifo(config)
        server.process.send_signal(signal.SIGHUP)
        assert server.counters()["sessions"] == 0
        server.ended(signal.SIGTERM)
