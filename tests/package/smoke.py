"""What a freshly installed replay_server has to do, with nothing beside it but its dependencies.

    python -I tests/package/smoke.py

Imports the client and looks at what came along; pushes, samples and updates through a server on
each transport; runs the command line, a real `serve` and `stats` included. Prints a line for each
part and leaves with the first failure. Standard library, NumPy and replay_server only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

HEAVY = ("torch", "gymnasium", "zmq", "prometheus_client", "ale_py", "matplotlib", "scipy")
STEPS = 500
CONFIG = """
[server]
url = "udp://127.0.0.1:0"
seed = 9

[[table]]
name = "main"
capacity = 4096
columns = [{ name = "x", dtype = "float32", shape = [4] }]
"""
IMPORTED = """
import sys, time
before = set(sys.modules)
import numpy
started = time.perf_counter()
from replay_server import Batch, Client, Server, Table, spec_from
taken = time.perf_counter() - started
names = {name.split(".")[0] for name in set(sys.modules) - before}
foreign = sorted(name for name in names if name not in sys.stdlib_module_names)
print(round(1000 * taken), *foreign)
"""


def same(found: object, wanted: object, what: str) -> None:
    """Ends the program with a sentence where they differ; works under -O too."""
    if found != wanted:
        raise SystemExit(f"smoke: {what}: expected {wanted!r}, got {found!r}")


def run(*command: str, code: int = 0) -> str:
    """What a command prints, both streams; it has to leave with `code`."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    same(done.returncode, code, f"exit code of {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def imports_little() -> None:
    """The client's import brings numpy, cffi and itself."""
    for heavy in HEAVY:
        same(find_spec(heavy), None, f"{heavy} is not installed beside it")
    took, *foreign = run(sys.executable, "-I", "-c", IMPORTED).split()
    same(sorted(foreign), ["_cffi_backend", "numpy", "replay_server"], "what the import brought")
    print(f"  import: {took} ms after NumPy's own; brought {', '.join(foreign)}")


def stores_and_draws(url: str) -> None:
    """Pushed rows come back byte for byte; priorities go to the items they name."""
    from replay_server import Client, Column, Prioritized, Row, Server, Spec, Table

    step = Spec([Column("x", "float32", (4,))])
    table = Table("main", step=step, plan=Row(), capacity=4096, sampler=Prioritized(alpha=0.6))
    rows = np.arange(4 * STEPS, dtype=np.float32).reshape(STEPS, 4)
    with Server([table], url, seed=1) as server, Client(server.address) as client:
        keys = client.extend("main", {"x": rows})
        same(client.size("main"), STEPS, f"{url}: items stored")
        batch = client.sample("main", 64, beta=0.4, timeout=10.0)
        drawn = batch.data["x"].reshape(64, 4)
        same(np.array_equal(drawn, rows[(drawn[:, 0] / 4).astype(int)]), True, f"{url}: bytes")
        done = client.update_priorities("main", batch.keys, np.full(64, 2.0, np.float32))
        items = len(np.unique(batch.keys))  # one drawn twice is updated once
        same((done.applied, done.stale, done.unknown), (items, 0, 0), f"{url}: updates")
        same(bool(client.get("main", keys[:8]).valid.all()), True, f"{url}: rows by key")
    print(f"  {url.split(':')[0]}: {STEPS} rows stored, 64 drawn byte for byte, 64 updated")


def commands_answer() -> None:
    """`replay-server` and `python -m replay_server` teach; a missing extra is a sentence."""
    module = (sys.executable, "-I", "-m", "replay_server")
    script = str(Path(sys.executable).with_name("replay-server"))
    for command in ((), ("serve",), ("stats",), ("bench",)):
        same("usage:" in run(*module, *command, "--help"), True, f"{command} --help")
    same("serve" in run(script, "--help"), True, "replay-server --help")
    said = run(script, "demo", code=2).strip()
    same((len(said.splitlines()), "replay-server[train]" in said), (1, True), f"demo says {said!r}")
    print(f"  commands: --help of serve, stats and bench; demo without torch: {said!r}")


def serves_as_a_program() -> None:
    """A server of its own, asked for its counters, ended by SIGTERM."""
    module = (sys.executable, "-I", "-u", "-m", "replay_server")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "server.toml")
        file.write_text(CONFIG)
        server = subprocess.Popen((*module, "serve", str(file)), stdout=subprocess.PIPE, text=True)
        try:
            said = ""
            while not said.startswith("serving at "):
                said = server.stdout.readline()
                same(said != "", True, "`serve` says where it serves")
            same("sessions_opened" in run(*module, "stats", said.split()[2]), True, "stats")
            server.terminate()
            same(server.wait(30), 0, "exit code of serve after SIGTERM")
        finally:
            server.kill()
            server.wait()
    print("  serve and stats: a server answered and stopped at SIGTERM")


def main() -> int:
    import replay_server

    python = ".".join(map(str, sys.version_info[:3]))
    compilers = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
    print(f"Python {python}, NumPy {np.__version__}, uid {os.getuid()}, compilers {compilers}")
    print(f"  package: {Path(replay_server.__file__).parent.relative_to(sys.prefix)}")
    imports_little()
    for url in ("loopback://smoke", "udp://127.0.0.1:0"):
        stores_and_draws(url)
    commands_answer()
    serves_as_a_program()
    print("smoke: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
