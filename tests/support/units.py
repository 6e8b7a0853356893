"""A systemd of its own for a unit of deploy/: in namespaces, with no other unit beside it.

    with Systemd("replay-server", folder) as systemd:
        systemd.call("start", "replay-server")
        systemd.until(ActiveState="active")

The unit's file is deploy's, unchanged. What is made up stands in drop-ins and below folder: /etc
has a few of this machine's files, /opt holds a wrapper of this checkout's Python as
/opt/replay-server/bin/replay-server, and deploy/nic.sh works on the made-up host in folder/tree
(hosts.py). Processes, mounts, network and control groups are the namespaces' own and go with them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANAGER = Path("/lib/systemd/systemd")
CONTROLLERS = {"name=systemd": "none,name=systemd", "devices": "devices", "pids": "pids"}
TARGETS = ("basic", "sysinit", "shutdown", "network-online", "multi-user")
KEPT_OF_ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "os-release")
MAJOR = 240  # of vfio's groups in this host: one that is left to local use
DEVICES = "Block devices:\n  7 loop\n\nCharacter devices:\n  1 mem\n  5 /dev/tty\n136 pts\n"
BOOT = """set -e
for place in {groups}; do mkdir $place; echo $$ > $place/cgroup.procs; done
exec unshare --pid --mount --cgroup --ipc --uts --net --fork --kill-child sh {folder}/inside
"""
INSIDE = """set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind {folder}/devices /proc/devices
mount --bind {folder}/etc /etc
mount --bind {folder}/opt /opt
{binds}
mount --bind {folder}/units /lib/systemd/system
mount -t tmpfs tmpfs /lib/systemd/system-generators
mkdir /opt/log; mount --bind {folder}/log /opt/log
mkdir /opt/tree; mount --bind {folder}/tree /opt/tree
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/tmp
mount -t tmpfs -o mode=755 tmpfs /dev
mkdir /dev/shm /dev/pts /dev/vfio
mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; mknod -m 666 /dev/full c 1 7
mknod -m 666 /dev/random c 1 8; mknod -m 666 /dev/urandom c 1 9; mknod -m 666 /dev/tty c 5 0
mknod -m 666 /dev/vfio/vfio c 10 196; mknod -m 600 /opt/tree/dev/vfio/7 c {major} 0
mount -t tmpfs tmpfs /dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts /dev/pts; ln -s pts/ptmx /dev/ptmx
touch /dev/kmsg; mount --bind /opt/log/manager /dev/kmsg
mount -t sysfs -o ro sysfs /sys
{cgroups}
ip link set lo up
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test {manager} --system \\
    --unit=multi-user.target --log-target=kmsg --show-status=0 < /dev/null
"""
PROGRAM = """#!/bin/sh
export LD_LIBRARY_PATH={python}/lib PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1
case "$*" in *port=*) exec /bin/sh /opt/card "$@" ;; esac
exec {python}/bin/python3 -m replay_server "$@"
"""
NIC = """#!/bin/sh
[ "$1" = unbind ] && set -- "$@" --dry-run
exec sh /opt/replay-server/src/deploy/nic.sh "$@" --root /opt/tree
"""
# A server on a card: what it says of its group's file, and the end that the test has told it.
CARD = """echo "group: $( { exec 3<> /opt/tree/dev/vfio/7; } 2>&1)"
read -r told < /opt/tree/told
case $told in serve) echo serving; exec sleep 1000 ;; *) exit "$told" ;; esac
"""
MODPROBE = """#!/bin/sh
echo "modprobe $*"
echo "{major} vfio" >> /proc/devices
"""


def hierarchies() -> dict[str, Path]:
    """Where each hierarchy of control groups lies here, by what mounts it inside."""
    found, mine = {}, {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, place = line.split(":", 2)
        mine[names] = place
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found["cgroup2"] = Path(where) / mine.get("", "/").lstrip("/")
        for name in CONTROLLERS if kind == "cgroup" else ():
            if name in options.split(",") and name in mine:
                found[name] = Path(where) / mine[name].lstrip("/")
    return found


def left_out() -> str:
    """Why no systemd can be started here; "" where one can."""
    if os.geteuid() != 0:
        return "only root may start one"
    if not MANAGER.exists():
        return "no systemd here (apt-get install systemd)"
    places = [*hierarchies().values()]
    if not places or not all(os.access(place, os.W_OK) for place in places):
        return "control groups cannot be made here"
    command = ["unshare", "--pid", "--mount", "--cgroup", "--net", "--fork", "mount"]
    tried = subprocess.run([*command, "-t", "proc", "proc", "/proc"], capture_output=True)
    return "" if tried.returncode == 0 else "namespaces cannot be made here"


class Systemd:
    """See above. The user `replay-server` is there where `user` says so."""

    def __init__(self, unit: str, folder: Path, variables: dict[str, str], user: bool) -> None:
        self.unit, self.folder = unit, folder
        (folder / "log").mkdir()
        (folder / "log/manager").touch()
        self.said = folder / "log" / "unit"
        self.groups = {
            name: place / f"{unit}-{os.getpid()}" for name, place in hierarchies().items()
        }
        self._etc(variables, user)
        self._units()
        binds = self._opt()
        (folder / "devices").write_text(DEVICES)  # the kernel's own, as far as units need it
        inside = INSIDE.format(
            folder=folder, binds=binds, cgroups=self._cgroups(), manager=MANAGER, major=MAJOR
        )
        (folder / "inside").write_text(inside)

    def _etc(self, variables: dict[str, str], user: bool) -> None:
        etc = self.folder / "etc"
        (etc / "systemd/system").mkdir(parents=True)
        (etc / "replay-server").mkdir()
        if Path("/etc/alternatives").is_dir():
            shutil.copytree("/etc/alternatives", etc / "alternatives", symlinks=True)
        (etc / "machine-id").write_text("0" * 31 + "1\n")  # without, every unit is enabled
        for name in KEPT_OF_ETC:
            if Path("/etc", name).exists():
                shutil.copy(Path("/etc", name), etc)
        lines = (ROOT / f"deploy/{self.unit}.env").read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        self.environment(given | variables)
        if user:
            with (etc / "passwd").open("a") as file:
                file.write("replay-server:x:990:990::/:/usr/sbin/nologin\n")
            with (etc / "group").open("a") as file:
                file.write("replay-server:x:990:\n")

    def environment(self, given: dict[str, str]) -> None:
        """Writes the unit's .env anew."""
        text = "".join(f"{name}={value}\n" for name, value in given.items())
        (self.folder / f"etc/replay-server/{self.unit}.env").write_text(text)

    def rights(self, text: str) -> None:
        """Lines for the unit's [Service], as its comments tell an operator to write them."""
        folder = self.folder / f"units/{self.unit}.service.d"
        (folder / "rights.conf").write_text(f"[Service]\n{text}")
        self.call("daemon-reload")

    def _units(self) -> None:
        units = self.folder / "units"
        units.mkdir()
        for name in TARGETS:
            text = "[Unit]\n" if name == "shutdown" else "[Unit]\nDefaultDependencies=no\n"
            (units / f"{name}.target").write_text(text)
        shutil.copy(MANAGER.parent / "system/modprobe@.service", units)
        out = "[Service]\nStandardOutput=append:/opt/log/{0}\nStandardError=append:/opt/log/{0}\n"
        made = {
            self.unit: f"{out.format('unit')}CPUAffinity=\nRestartSec=100ms\n",
            "modprobe@": f"{out.format('modprobe')}ExecStart=\nExecStart=/opt/modprobe %I\n",
        }
        for name, text in made.items():
            (units / f"{name}.service.d").mkdir()
            (units / f"{name}.service.d/test.conf").write_text(text)
        shutil.copy(ROOT / f"deploy/{self.unit}.service", self.folder / "etc/systemd/system")

    def _opt(self) -> str:
        """Fills /opt; the commands that bind Python and this checkout into it."""
        opt, home = self.folder / "opt", Path(sys.base_prefix)
        paths = [Path(path) for path in sys.path if path.endswith("-packages")]
        places = {ROOT: "replay-server/src", home: "python"}
        places |= {path: f"replay-server/site-{number}" for number, path in enumerate(paths)}
        for place in places.values():
            (opt / place).mkdir(parents=True)
        names = [places[ROOT], *(places[path] for path in paths)]
        program = PROGRAM.format(python="/opt/python", path=":".join(f"/opt/{n}" for n in names))
        scripts = {
            "replay-server/bin/replay-server": program,
            "replay-server/lib/nic.sh": NIC,
            "replay-server/lib/python3/site-packages/replay_server/_dpdk.so": "",
            "card": CARD,
            "modprobe": MODPROBE.format(major=MAJOR),
        }
        for name, text in scripts.items():
            (opt / name).parent.mkdir(parents=True, exist_ok=True)
            (opt / name).write_text(text)
            (opt / name).chmod(0o755)
        return "\n".join(f"mount --bind '{path}' /opt/{place}" for path, place in places.items())

    def _cgroups(self) -> str:
        if [*self.groups] == ["cgroup2"]:
            return "mount -t cgroup2 cgroup2 /sys/fs/cgroup"
        told = ["mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup"]
        for name in self.groups:
            place = {"cgroup2": "unified", "name=systemd": "systemd"}.get(name, name)
            kind = "cgroup2" if name == "cgroup2" else f"cgroup -o {CONTROLLERS[name]}"
            told.append(f"mkdir /sys/fs/cgroup/{place}")
            told.append(f"mount -t {kind} cgroup /sys/fs/cgroup/{place}")
        return "\n".join(told)

    def __enter__(self) -> Systemd:
        groups = " ".join(f"'{place}'" for place in self.groups.values())
        said = (self.folder / "boot").open("wb")
        self.process = subprocess.Popen(
            ["sh", "-c", BOOT.format(groups=groups, folder=self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        try:
            self._wait(lambda: self.call("is-active", "multi-user.target") == "active", "boot")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()  # its child, the manager, is killed with it, and all else by the kernel
        self.process.wait(30)
        for place in self.groups.values():
            self._wait(lambda place=place: _removed(place), f"{place} to be empty")

    def _wait(self, condition, what: str, seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"no {what} within {seconds} s: {self.text()}")
            time.sleep(0.05)

    def text(self) -> str:
        """All that was said: by the unit, the manager, and what started that."""
        files = (self.said, self.folder / "log/manager", self.folder / "boot")
        return "\n".join(file.read_text(errors="replace") for file in files if file.exists())

    def _first(self) -> str:
        """The manager's process as this side numbers it; "" before there is one."""
        number = self.process.pid
        children = Path(f"/proc/{number}/task/{number}/children")
        found = children.read_text().split() if children.exists() else []
        return found[0] if found else ""

    def _enter(self, words: tuple[str, ...]) -> list[str]:
        namespaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup"]
        return ["nsenter", "--target", self._first() or "0", *namespaces, *words]

    def inside(self, *words: str) -> subprocess.CompletedProcess:
        """Runs a command in the namespaces, as root."""
        return subprocess.run(self._enter(words), capture_output=True, text=True, timeout=60)

    def _script(self, script: str) -> tuple[str, ...]:
        program = (self.folder / "opt/replay-server/bin/replay-server").read_text()
        begin = program.splitlines()[1]
        return ("sh", "-c", f'{begin}; exec /opt/python/bin/python3 -c "$0"', script)

    def python(self, script: str) -> str:
        """What a script prints that runs beside the unit, with this checkout."""
        done = self.inside(*self._script(script))
        assert done.returncode == 0, done.stderr + self.text()
        return done.stdout

    @contextmanager
    def beside(self, script: str) -> Iterator[None]:
        """A script runs beside the unit, from its first printed line until its input ends."""
        words = self._enter(self._script(script))
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline(), "it printed nothing"
                yield
            finally:
                process.stdin.close()
                process.wait(30)

    def call(self, *words: str) -> str:
        """What systemctl says."""
        if not self._first():
            return ""
        return self.inside("systemctl", *words).stdout.strip()

    def state(self) -> dict[str, str]:
        """The unit's properties that a test asks for."""
        names = "ActiveState,SubState,Result,NRestarts,MainPID,ExecMainStatus"
        told = self.call("show", self.unit, "--property", names)
        return dict(line.split("=", 1) for line in told.splitlines())

    def until(self, **wanted: str) -> dict[str, str]:
        """Waits until the unit's properties are these."""
        seen: dict[str, str] = {}

        def reached() -> bool:
            seen.clear()
            seen.update(self.state())
            return wanted.items() <= seen.items()

        try:
            self._wait(reached, f"{wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{seen}") from None
        return seen

    def until_said(self, text: str, times: int = 1) -> None:
        """Waits until the unit has printed this."""

        def count() -> int:
            return self.said.read_text().count(text) if self.said.exists() else 0

        self._wait(lambda: count() >= times, f"{text!r}, {times} times")

    def kill(self) -> None:
        """SIGKILL to the unit's main process."""
        number = self.state()["MainPID"]
        assert self.inside("kill", f"-{int(signal.SIGKILL)}", number).returncode == 0


def _removed(place: Path) -> bool:
    """Removes a control group with all below it; False while processes are in it."""
    try:
        for folder, _, _ in os.walk(place, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True
