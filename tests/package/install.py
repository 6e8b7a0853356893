"""Installs what `make wheel` built, as people will, and runs smoke.py where it was installed.

    python3 tests/package/install.py DIST

The wheel without any compiler and as a user without rights, on each Python found here; the sdist
and this source tree with a C compiler and no other program; the tree without one, whose one
sentence has to say so; each extra. Packages come from pip's usual index. A line for each part; the
first that fails ends the program. PYTHONS="python3.14 /opt/python" adds interpreters to try.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from tracked import ROOT, copy_tracked

SMOKE = Path(__file__).with_name("smoke.py")
MINORS = range(10, 15)
NOBODY = 65534
COMPILER = ("cc", "gcc", f"{platform.machine()}-linux-gnu-gcc", "as", "ld")
LIGHT = {"zmq": "zmq", "metrics": "prometheus_client", "atari": "ale_py"}
BOUND_S = 900
ASK = "import sys; print(sys.version_info[0], sys.version_info[1], sys.implementation.name)"


class Place:
    """A folder of a user without rights, who finds only the programs it is given."""

    def __init__(self, folder: Path, programs: tuple[str, ...] = ()) -> None:
        self.folder, self.uid = folder, NOBODY if os.getuid() == 0 else os.getuid()
        (folder / "bin").mkdir(parents=True)
        for program in filter(shutil.which, programs):
            (folder / "bin" / program).symlink_to(shutil.which(program))
        home = {name: str(folder) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
        compiler = {} if programs else {"CC": "/bin/false"}
        kept = {
            name: v for name, v in os.environ.items() if not name.startswith(("PYTHON", "VIRT"))
        }
        self.environment = kept | home | compiler | {"PATH": str(folder / "bin")}
        self.own()

    def own(self) -> None:
        """Everything in the folder is this user's."""
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, self.uid, -1, follow_symlinks=False)

    def run(self, *command: str | Path, code: int = 0) -> str:
        """What a command prints; its exit code has to be `code`."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=self.environment,
            user=self.uid if os.getuid() == 0 else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BOUND_S,
        )
        if done.returncode != code:
            words = " ".join(map(str, command))
            raise SystemExit(f"install: {words}: left with {done.returncode}\n{done.stdout}")
        return done.stdout

    def venv(self, python: str) -> Path:
        """A new environment's Python."""
        self.run(python, "-m", "venv", self.folder / "venv")
        return self.folder / "venv" / "bin" / "python"

    def reaches(self, python: str) -> bool:
        """Whether this user may run that interpreter at all."""
        try:
            self.run(python, "-c", "import venv, ensurepip")
        except (SystemExit, OSError):
            return False
        return True


def pip(place: Place, python: Path, *arguments: str | Path, code: int = 0) -> str:
    options = ("-qq", "--disable-pip-version-check", "--no-cache-dir")
    return place.run(python, "-m", "pip", *options, *arguments, code=code)


def pythons() -> dict[int, str]:
    """{minor: interpreter} of the CPythons from 3.10 on that are here; Debian's come first."""
    wanted = os.environ.get("PYTHONS", "").split()
    wanted += ["/usr/bin/python3", *(f"python3.{minor}" for minor in MINORS), sys.executable]
    wanted += sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python3")))
    found: dict[int, str] = {}
    for path in filter(None, map(shutil.which, wanted)):
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True)
        said = done.stdout.split()
        if done.returncode == 0 and said[0] == "3" and int(said[1]) >= 10 and said[2] == "cpython":
            found.setdefault(int(said[1]), path)
    return dict(sorted(found.items()))


def smoke(place: Place, python: Path) -> None:
    """Runs smoke.py, copied to where this user can read it."""
    shutil.copy(SMOKE, place.folder)
    place.own()
    print(place.run(python, "-I", place.folder / SMOKE.name), end="", flush=True)


def wheel_everywhere(wheel: Path, base: Path) -> None:
    """No compiler, no rights: the wheel, on each Python."""
    found = pythons()
    for minor, python in found.items():
        place = Place(base / f"wheel-3.{minor}")
        if not place.reaches(python):
            print(f"Python 3.{minor}: lies where a user without rights cannot read; as uid 0 here")
            place.uid = os.getuid()
        inside = place.venv(python)
        pip(place, inside, "install", "--only-binary", ":all:", wheel)
        smoke(place, inside)
    for minor in sorted(set(MINORS) - set(found)):
        print(f"Python 3.{minor}: not tried, there is none here")


def sources_with_a_compiler(sdist: Path, base: Path, python: str) -> None:
    """A C compiler and Python's headers are enough; without one a sentence says so."""
    place = Place(base / "sdist", COMPILER)
    inside = place.venv(python)
    pip(place, inside, "install", sdist)
    smoke(place, inside)
    print(f"sdist: installs with {', '.join(COMPILER)} and no other program", flush=True)
    tree = base / "tree"
    copy_tracked(tree / "src", ":!tests")
    place = Place(tree, COMPILER)
    pip(place, place.venv(python), "install", tree / "src")
    print("pip install .: the same", flush=True)
    for compiler in COMPILER:
        (tree / "bin" / compiler).unlink(missing_ok=True)
    shutil.rmtree(tree / "src" / "build", ignore_errors=True)
    said = pip(
        place,
        tree / "venv" / "bin" / "python",
        "install",
        "--force-reinstall",
        tree / "src",
        code=1,
    )
    told = re.findall(r"replay-server: its C core was not built, .+", said)
    if len(told) != 1 or "there is no C compiler" not in told[0] or "Traceback" in said:
        raise SystemExit(f"install: without a compiler it did not say so in one sentence:\n{said}")
    print(f"pip install . without a compiler: {told[0]!r}", flush=True)


def extras(wheel: Path, base: Path, python: str) -> None:
    """The light ones for real; [train] resolved against constraints.txt and not fetched."""
    place = Place(base / "extras")
    inside = place.venv(python)
    names = ",".join(LIGHT)
    pip(place, inside, "install", "--only-binary", ":all:", f"{wheel}[{names}]")
    for name, module in LIGHT.items():
        place.run(inside, "-I", "-c", f"import replay_server.client, {module}")
        print(f"[{name}]: {module} imports beside the client", flush=True)
    place.uid = os.getuid()  # whose pip may know more places to look than the user without rights
    environment = place.environment | {"HOME": str(Path.home())}
    place.environment = environment
    shutil.copy(ROOT / "constraints.txt", place.folder)
    pin = place.folder / "constraints.txt"
    said = place.run(
        inside,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--only-binary",
        ":all:",
        "-c",
        pin,
        f"{wheel}[train]",
    )
    would = re.search(r"Would install .*", said)
    if would is None or f"torch-{pin.read_text().split('==')[1].split()[0]}" not in would.group():
        raise SystemExit(
            f"install: [train] did not resolve to the torch of constraints.txt:\n{said}"
        )
    print("[train]: resolves to the torch of constraints.txt", flush=True)


def main() -> int:
    dist = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="replay-install-") as folder:
        base = Path(folder)
        base.chmod(0o755)
        wheel = Path(shutil.copy(next(dist.glob("*.whl")), base))
        sdist = Path(shutil.copy(next(dist.glob("*.tar.gz")), base))
        python = next(filter(Place(base / "ask").reaches, pythons().values()))
        wheel_everywhere(wheel, base)
        sources_with_a_compiler(sdist, base, python)
        extras(wheel, base, python)
    print("install: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
