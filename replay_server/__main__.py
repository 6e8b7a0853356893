"""`replay-server`, or `python -m replay_server`: serve tables, or look at a server that does.

    serve [FILE]    serves what a server.toml describes; options on the command line win
    stats ADDRESS   prints the counters of a running server; --watch: a live view of it
    bench           prints how fast all of this is on this machine; --json FILE: writes it too;
                    --ladder: the same work over every transport, beside the paper's result T1
    doctor          says what this host can carry the server over, and what it lacks; --json too
    keygen FOLDER   makes the key files with which zmq+tcp:// servers know their clients
    demo, run, actor, learner    the training programs (programs.py); they need the extra [train]
    environments, together       what `run` starts beside them (docs/plans.md)

Exit codes: 0 stopped or done; 1 this host does not give what is asked for now (a port in use, no
free memory or hugepage), or the network card was taken away: starting again may help; 2 something
about the request is wrong, and would be the next time, or no server answers there. One sentence
says which. 130: Ctrl-C while it was starting.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from .support.interrupts import INTERRUPTED, import_quietly, run

import_quietly(__name__)

from .bench.ladder_cases import CASES
from .support.arguments import Parser, add_options, option
from .training.programs import PROGRAMS, run_program

EXIT_HOST, EXIT_USAGE = 1, 2
HOST_REFUSES = ("SYSTEM", "NO_MEMORY", "DISK_FULL")  # statuses that another moment may mend
WITHOUT_FILE = ("env", "n_step", "stack", "capacity", "alpha", "min_size", "writers")
EXAMPLES = """examples:
  replay-server serve deploy/server.toml
  replay-server serve deploy/server.toml --url udp://127.0.0.1:7401 --seed 7
  replay-server serve --env CartPole-v1 --n-step 3 --capacity 100000
  replay-server serve deploy/server.toml --url udp://127.0.0.1:7400 --shards 2
  replay-server serve deploy/server.toml --metrics 127.0.0.1:9464
  replay-server stats udp://127.0.0.1:7400 --watch
  replay-server stats http://127.0.0.1:9464/metrics --watch --interval 2
  replay-server serve deploy/server.toml \\
      --url 'dpdk://10.0.0.1:7400?vdev=net_memif,role=server,socket=/run/replay.memif'
  replay-server bench --json figures.json
  replay-server bench --ladder --quick --json ladder.json --plot ladder.png
  replay-server doctor
  replay-server keygen keys --clients actor,learner
  replay-server serve deploy/server.toml --url zmq+tcp://0.0.0.0:7400 \\
      --curve-secret-key keys/server.key_secret --curve-clients keys/clients
"""


@dataclass
class ServeArgs:
    """Options of `serve`; those not given leave what the file says, or the default."""

    url: str = option(
        "Where to serve: udp://HOST:PORT, zmq+tcp://HOST:PORT or dpdk://IP:PORT?vdev=... (past the "
        "kernel; `doctor` names the best for this host); port 0 takes any free one.",
        "",
        shown="URL",
    )
    seed: int = option(
        "Seed of the draws, 0 to 2^64 - 1 (of a run's programs: to 2^32 - 1); from the operating "
        "system if neither says one.",
        0,
    )
    insecure: bool = option(
        "Serve beyond this machine without a key: whoever reaches the port may read, overwrite and "
        "empty the tables.",
        False,
    )
    mtu: int = option("Largest datagram in bytes.", 0)
    curve_secret_key: str = option("zmq+tcp: file with the server's secret key.", "", shown="FILE")
    curve_clients: str = option(
        "zmq+tcp: folder of the public keys that are let in.", "", shown="FOLDER"
    )
    busy_poll: bool = option("The server's thread never sleeps.", False)
    core: int = option("Core that the server's thread is pinned to.", 0)
    shards: int = option("Servers beside each other, at this port and the next ones.", 1)
    region: str = option("Folder for the memory; taken over if it exists.", "", shown="FOLDER")
    verify: bool = option(
        "Compare every step of a region that is taken over with its checksum, and refuse a wrong "
        "one; reads all of the region.",
        False,
    )
    compile: Path | None = option("Serve nothing: write the tables for replay-serve there.", None)
    sessions: int = option("Clients at once; every writer is one.", 0)
    sessions_per_address: int = option(
        "Of these, what one other machine, or a memif link, may have; three quarters if neither "
        "says it.",
        0,
    )
    idle_ms: int = option(
        "Milliseconds of silence after which a client's session is given up; 30000 if neither "
        "says it.",
        0,
    )
    metrics: str = option(
        "HOST:PORT of an OpenMetrics endpoint, such as 127.0.0.1:9464.", "", shown="HOST:PORT"
    )
    metrics_insecure: bool = option("Serve the metrics beyond this machine, to anybody.", False)
    env: str = option("Without a file: one table `main` with this environment's columns.", "")
    n_step: int = option("With --env: items are n-step transitions.", 3)
    stack: int = option("With --env: frames in a stack.", 1)
    capacity: int = option("With --env: steps kept.", 100_000)
    alpha: float = option("With --env: priorities are raised to this power.", 0.6)
    min_size: int = option("With --env: items before the first draw.", 1000)
    writers: int = option("With --env: writers at once; every actor is one.", 4)


@dataclass
class StatsArgs:
    """Options of `stats`."""

    watch: bool = option("A live view with rates, until Ctrl-C; a line a look if piped.", False)
    interval: float = option("Seconds between two looks.", 1.0)
    timeout: float = option("Seconds to wait for the server.", 5.0)


@dataclass
class BenchArgs:
    """Options of `bench`."""

    json: Path | None = option("File for the rows, as a JSON list.", None)
    parts: str = option("Which: of tree,table,server,udp,loopback,python; empty means all.", "")
    items: int = option("Items in the tree and the table of the engine's figures.", 1_000_000)
    passes: int = option("How often the engine goes through its work.", 3)
    seconds: float = option("Time for each figure of a client.", 1.0)
    ladder: bool = option("Instead of all that: the same client work over every transport.", False)
    quick: bool = option("With --ladder: four sizes, frames of 1400 B, about a minute.", False)
    cases: str = option(
        f"With --ladder: which of {','.join(case.key for case in CASES)}; empty: all.", ""
    )
    budget: float = option("With --ladder: seconds it measures; 0: 360, or 48 if quick.", 0.0)
    seed: int = option("With --ladder: seed of the order of turns.", 1)
    plot: Path | None = option("With --ladder: the picture, or none.", Path("ladder.png"))


@dataclass
class DoctorArgs:
    """Options of `doctor`."""

    json: bool = option("One JSON object instead of lines.", False)
    root: Path = option("Where sys, proc, dev and usr of the host lie.", Path("/"))
    package: Path | None = option("Folder of this package's compiled objects.", None)
    drivers: Path | None = option("Folder of DPDK's librte_net_*.so; looked for if none.", None)
    uid: int | None = option("Look with the rights of this user; who runs it if none.", None)


@dataclass
class KeygenArgs:
    """Options of `keygen`."""

    clients: str = option("Names of the clients, separated by commas.", "client")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = Parser(
        prog="replay-server",
        description="An experience-replay memory server for actors and learners.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve the tables that a server.toml describes",
        description="Opens its address and memory, prints what it serves and takes, then serves "
        "until SIGINT or SIGTERM.",
    )
    serve.add_argument("file", nargs="?", metavar="FILE", help="a server.toml")
    add_options(serve, ServeArgs, keep_unset=True)
    stats = commands.add_parser(
        "stats",
        help="print the counters of a running server, or watch it",
        description="Asked at its own address a server reports its counters; with --watch its "
        "tables too, and at its metrics endpoint (serve --metrics) also times, waits, ages, and "
        "what each session does.",
    )
    stats.add_argument(
        "address",
        metavar="ADDRESS",
        help="such as udp://127.0.0.1:7400 or http://127.0.0.1:9464/metrics",
    )
    add_options(stats, StatsArgs)
    bench = commands.add_parser("bench", help="print how fast all of this is on this machine")
    add_options(bench, BenchArgs)
    doctor = commands.add_parser(
        "doctor",
        help="look at this host: what can carry the server, what is missing",
        description="Looks at processors, hugepages, IOMMU and network cards, at DPDK's drivers "
        "and at this build; says for each card what DPDK would need, and the best URL for serve "
        "last. It changes nothing.",
    )
    add_options(doctor, DoctorArgs)
    keygen = commands.add_parser(
        "keygen",
        help="make the keys of a zmq+tcp:// server and its clients",
        description="Writes FOLDER/server.key_secret and FOLDER/clients/ (for serve), and for "
        "each client FOLDER/server.key and FOLDER/NAME.key_secret. A server's key that is there "
        "is kept.",
    )
    keygen.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    add_options(keygen, KeygenArgs)
    for name, program in PROGRAMS.items():
        commands.add_parser(name, help=program.sentence, add_help=False)
    return top


def serve(given: dict[str, Any]) -> int:
    """Serves until a signal; prints what and how much first."""
    from .errors import ConfigError
    from .observe.metrics import Endpoint
    from .server import Server, memory_of
    from .serving import config
    from .serving.shards import shard_options
    from .support.stopping import StopFlag

    file = given.pop("file")
    alone = [name for name in WITHOUT_FILE if name in given]
    if file and alone:
        flags = ", ".join("--" + name.replace("_", "-") for name in alone)
        raise ConfigError(f"{flags}: for a table without a file; say it in {file}")
    loaded = config.load(file) if file else _from_options(given)
    named = {field.name for field in fields(loaded.options)}
    chosen = {name: value for name, value in given.items() if name in named}
    options = replace(loaded.options, **chosen)
    if given.get("compile"):
        if given.get("shards", 1) != 1:
            raise ConfigError(
                "--shards is not kept by --compile: leave it out, and give replay-serve one URL "
                "for each server"
            )
        return _compile(given["compile"], loaded.tables, options)
    shards = shard_options(options, given.get("shards", 1))
    memory = memory_of(loaded.tables, shards[0]) * len(shards)
    bare = replace(shards[0], weights_max=0)
    later = memory - len(shards) * memory_of(loaded.tables, bare)
    stop = StopFlag()
    watched = replace(loaded.metrics, **_metrics(given))
    endpoint = Endpoint(watched) if watched.address else None
    with endpoint or nullcontext(), ExitStack() as opened:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        servers = []
        for each in shards:
            server = opened.enter_context(Server(loaded.tables, options=each))
            if not servers:  # what is refused has taken nothing
                _print_tables(loaded.tables, shards[0].url, memory, later)
            servers.append(server)
            if server.attached:
                changes = f"; changed: {server.changes}" if server.changes else ""
                print(f"took over {each.region}: its tables are as they were{changes}", flush=True)
            print(f"serving at {server.address} (seed {server.seed})", flush=True)
        if endpoint:
            opened.enter_context(endpoint)  # closes before the servers, which it looks at
            endpoint.show(*servers)
            print(f"metrics at {endpoint.url}", flush=True)
        printed: set[str] = set()
        while not stop.wait(0.5) and not _lost(servers):
            _print_remarks(servers, printed)
        lost = _lost(servers)
        for server in servers:
            _print_end(server)
    if lost:
        print(f"replay-server: {lost}", file=sys.stderr)
    return EXIT_HOST if lost else 0


def _lost(servers: Sequence[Any]) -> str:
    """Why nobody will reach one of them again, its network card being gone; "" if they can."""
    return next((server.lost for server in servers if server.lost), "")


def _print_remarks(servers: Sequence[Any], printed: set[str]) -> None:
    """The servers' remarks for whoever runs them; each once, `printed` holds those before."""
    for remark in dict.fromkeys(server.remark for server in servers):
        if remark and remark not in printed:
            printed.add(remark)
            print(f"replay-server: {remark}", file=sys.stderr, flush=True)


def _print_tables(tables: Sequence[Any], url: str, memory: int, later: int) -> None:
    """What is served, and the bytes it takes; `later` of them only as weights are published."""
    for table in tables:
        plans = ", ".join(f"{plan.name} {plan.plan}" for plan in table.layout.plans)
        limiter = "" if table.layout.fifo else f"; {table.limiter}"
        print(
            f"table {table.name!r}: {table.capacity:,} steps of {table.step.record_size:,} bytes "
            f"({', '.join(table.step.names)}); items {plans}; {table.sampler}{limiter}"
        )
    print(
        f"taking {memory / 2**20:,.1f} MiB for {url}; {later / 2**20:,.1f} MiB of them only as "
        "weights are published",
        flush=True,
    )


def _print_end(server: Any) -> None:
    """What it did, in its last moment."""
    counters = server.counters()
    print(
        f"stopped {server.address}: {counters['steps_committed']:,} steps stored, "
        f"{counters['items_sampled']:,} items sampled",
        flush=True,
    )


def _compile(path: Path, tables: Any, options: Any) -> int:
    """Writes what replay-serve, the program without Python, serves."""
    from .errors import ConfigError
    from .serving.compiled import compile_tables

    made = compile_tables(tables, options)
    try:
        path.write_bytes(made)
    except OSError as error:
        raise ConfigError(f"--compile {path}: {error.strerror}") from error
    print(f"wrote {path} ({len(made):,} bytes): replay-serve {path} {options.url}", flush=True)
    return 0


def _metrics(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of MetricsOptions among the options given."""
    names = {"metrics": "address", "metrics_insecure": "insecure"}
    return {field: given[name] for name, field in names.items() if name in given}


def _from_options(given: dict[str, Any]) -> Any:
    """One table for one environment, without a file."""
    from .errors import ConfigError
    from .serving import config

    if "env" not in given:
        raise ConfigError("serve needs a server.toml, or --env NAME for one table")
    chosen = {name: given.get(name, getattr(ServeArgs, name)) for name in ("n_step", "stack")}
    section = {"name": "main", "env": given["env"], "plan": chosen}
    for name in ("capacity", "alpha", "min_size", "writers"):
        section[name] = given.get(name, getattr(ServeArgs, name))
    return config.from_document({"server": {"url": "udp://127.0.0.1:7400"}, "table": [section]})


def stats(args: dict[str, Any]) -> int:
    """Prints the counters of a server once, or watches it until Ctrl-C."""
    from .errors import ConfigError
    from .observe.snapshot import source_of
    from .observe.stats import lines
    from .observe.watch import watch

    if not 0.1 <= args["interval"] <= 3600.0:
        raise ConfigError(f"--interval is {args['interval']:g}; expected 0.1 to 3600 seconds")
    if not 0.0 < args["timeout"] <= 3600.0:
        raise ConfigError(f"--timeout is {args['timeout']:g}; expected above 0, 3600 s at most")
    source = source_of(args["address"], args["timeout"])
    if args["watch"]:
        return watch(source, args["interval"])
    look = source.look()
    counted = lines(look.counters, look.facts) or ["nothing has happened: every counter is 0"]
    print("\n".join(counted), flush=True)
    source.close()
    return 0


def keygen(args: dict[str, Any]) -> int:
    """Writes key files; says which goes where."""
    from .serving.zmq_transport import SECRET_KEY, SERVER_KEY, keygen

    folder, names = args["folder"], [name for name in args["clients"].split(",") if name]
    keygen(folder, names)
    print(
        f"serve --curve-secret-key {folder}/server.key_secret --curve-clients {folder}/clients\n"
        + "\n".join(
            f"client {name}: {SERVER_KEY}={folder}/server.key "
            f"{SECRET_KEY}={folder}/{name}.key_secret"
            for name in names
        )
    )
    return 0


def doctor(args: dict[str, Any]) -> int:
    """Prints what can carry a server here and what is missing, as this user would find it."""
    from .errors import ConfigError
    from .observe.doctor import as_json, examine, lines, shown

    root = args["root"]
    if not any((root / name).is_dir() for name in ("sys", "proc", "dev", "usr")):
        raise ConfigError(
            f"--root {root}: there is no sys, proc, dev or usr in it; give the folder in which "
            "those of a host lie, or leave it out for this host"
        )
    folders = None if args["drivers"] is None else [args["drivers"]]
    uid = os.geteuid() if args["uid"] is None else args["uid"]
    report = examine(root, args["package"], folders, uid)
    print(as_json(report) if args["json"] else "\n".join(map(shown, lines(report))), flush=True)
    return 0


def bench(args: dict[str, Any]) -> int:
    """Prints this machine's figures; with --ladder, of one work over every transport instead."""
    from .bench.machine import PARTS, bench

    if args["ladder"]:
        from .bench.ladder import course_of, ladder

        course = course_of(args["quick"], args["cases"], args["budget"], args["seed"])
        return ladder(course, args["json"], args["plot"])
    parts = tuple(part for part in args["parts"].split(",") if part) or PARTS
    return bench(parts, args["items"], args["passes"], args["seconds"], args["json"])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    from .errors import ReplayError
    from .spec import SpecError

    try:
        if argv and argv[0] in PROGRAMS:
            return run_program(argv[0], argv[1:])
        args = vars(parser().parse_args(argv))
        command = {
            "serve": serve,
            "stats": stats,
            "bench": bench,
            "doctor": doctor,
            "keygen": keygen,
        }[args.pop("command")]
        return command(args)
    except (ReplayError, SpecError) as error:
        print(f"replay-server: {error}", file=sys.stderr)
        return EXIT_HOST if getattr(error, "status", "") in HOST_REFUSES else EXIT_USAGE
    except KeyboardInterrupt:
        begins = argv and (argv[0] in PROGRAMS or argv[0] == "serve")  # once it serves it stops
        return INTERRUPTED if begins else 0
    except BrokenPipeError:
        # Python would write what is still buffered at exit, and fail with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("replay-server: nobody reads the output any more: stopped", file=sys.stderr)
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(run(main))
