"""deploy/nic.sh against a made-up sysfs with a kernel in it, and doctor's commands carried out."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import hosts
import pytest
from apart import apart
from hosts import HOSTS, MLX5, NETWORKS, Tree

from replay_server.observe.doctor import AFTER, NOW, examine

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "nic.sh"
CARD = "0000:03:00.0"
SHELLS = {"sh": ["sh"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
NO_IOMMU = "enable_unsafe_noiommu_mode"
MODPROBE = """#!/bin/sh
echo "modprobe $*" >> {root}/programs
mkdir -p {root}/sys/module/$(echo $1 | tr - _)/parameters
case $1 in
vfio) [ -e {root}/without ] || echo N > {root}/sys/module/vfio/parameters/{switch} ;;
vfio-pci | uio_pci_generic)
    mkdir -p {root}/sys/bus/pci/drivers/$1
    [ -p {root}/sys/bus/pci/drivers/$1/unbind ] || mkfifo {root}/sys/bus/pci/drivers/$1/unbind ;;
esac
"""
MOUNT = """#!/bin/sh
echo "mount $*" >> {root}/programs
echo "hugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0" >> {root}/proc/mounts
"""


class Kernel:
    """What the kernel does when `unbind` and `drivers_probe` are written, in a thread.

    Both are named pipes here. stubborn: drivers that take no card, whatever the override says.
    """

    def __init__(self, tree: Tree, native: str, stubborn: str = "") -> None:
        self.root, self.native, self.stubborn = tree.root, native, stubborn
        self.pipes: dict[Path, int] = {}
        pci = tree.root / "sys/bus/pci"
        for folder in (pci / "drivers").iterdir():
            os.mkfifo(folder / "unbind")
        os.mkfifo(pci / "drivers_probe")
        self.programs = tree.root / "bin"
        self.programs.mkdir(exist_ok=True)
        for name, text in (("modprobe", MODPROBE), ("mount", MOUNT)):
            (self.programs / name).write_text(text.format(root=tree.root, switch=NO_IOMMU))
            (self.programs / name).chmod(0o755)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._turn, daemon=True)

    def __enter__(self) -> Kernel:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join(10)
        assert not self.thread.is_alive()
        for pipe in self.pipes.values():
            os.close(pipe)

    def _turn(self) -> None:
        pci = self.root / "sys/bus/pci"
        while not self.ended.is_set():
            for path in [*pci.glob("drivers/*/unbind"), pci / "drivers_probe"]:
                if path not in self.pipes:
                    self.pipes[path] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            ready, _, _ = select.select([*self.pipes.values()], [], [], 0.005)
            for path, pipe in self.pipes.items():
                if pipe in ready:
                    for address in os.read(pipe, 4096).decode().split():
                        self._change(address, path)

    def _change(self, address: str, path: Path) -> None:
        device = self.root / "sys/bus/pci/devices" / address
        if path.name == "unbind":
            assert os.readlink(device / "driver").endswith(path.parent.name)
            (device / "driver").unlink()
            return
        asked = (device / "driver_override").read_text().strip().replace("(null)", "")
        driver = asked or self.native
        folder = self.root / "sys/bus/pci/drivers" / driver
        if not (device / "driver").exists() and driver != self.stubborn and folder.is_dir():
            target = os.path.relpath(folder, device)
            (device / "driver").symlink_to(target)


@pytest.fixture
def tree(tmp_path) -> Tree:
    """A host with one i40e card in an IOMMU group, vfio-pci not loaded, no hugepages."""
    tree = Tree(tmp_path / "host", nodes={0: "0-1", 1: "2-3"})
    tree.nic(group="7")
    tree.installable("vfio-pci")
    tree.pages(2048, {0: 0, 1: 0})
    return tree


def call(tree: Tree, *words: str, shell: str = "sh") -> subprocess.CompletedProcess:
    """nic.sh with these words on this host, its modprobe and mount first."""
    usual = os.environ["PATH"]
    if shell == "busybox":  # and nothing but busybox, as on the barest host
        applets = tree.root.parent / "applets"
        if not applets.exists():
            applets.mkdir()
            subprocess.run(["busybox", "--install", "-s", str(applets)], check=True)
        usual = str(applets)
    path = f"{tree.root / 'bin'}:{usual}"
    return subprocess.run(
        [
            shutil.which(SHELLS[shell][0]),
            *SHELLS[shell][1:],
            str(SCRIPT),
            *words,
            "--root",
            str(tree.root),
        ],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=30,
    )


def driver(tree: Tree, card: str = CARD) -> str:
    link = tree.root / "sys/bus/pci/devices" / card / "driver"
    return os.path.basename(os.readlink(link)) if link.is_symlink() else ""


def contents(tree: Tree) -> dict[str, str]:
    """Every file and link below the root, pipes without their contents."""
    found = {}
    for path in sorted(tree.root.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = path.read_text()
    return found


def steps(done: subprocess.CompletedProcess) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("+")]


def test_an_interface_whose_name_is_a_pattern_is_asked_by_its_name(tmp_path, monkeypatch):
    """Given an interface d* in use, and a file dn where nic.sh is run. Expect the card refused."""
    tree = Tree(tmp_path / "host", nodes={0: "0-1"})
    tree.nic(group="7", interface="d*")
    tree.default_route("d*")
    tree.installable("vfio-pci")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dn").touch()
    done = call(tree, "bind", CARD)
    assert done.returncode == 2 and "d* carries the default route" in done.stderr, done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_bind_and_unbind_and_nothing_twice(tree, shell):
    """Given a card, bound twice and unbound twice. Expect the driver each time, no second step."""
    if not shutil.which(SHELLS[shell][0]):
        pytest.skip(f"left out: no {shell} here")
    with Kernel(tree, native="i40e"):
        done = call(tree, "bind", CARD, shell=shell)
        assert (done.returncode, driver(tree)) == (0, "vfio-pci"), done.stderr
        assert done.stdout.splitlines()[-1] == f"{CARD}: i40e -> vfio-pci"
        loaded = ["+ modprobe vfio_iommu_type1", "+ modprobe vfio-pci"]
        assert steps(done)[:2] == loaded and len(steps(done)) == 5
        before = contents(tree)
        done = call(tree, "bind", CARD, shell=shell)
        assert (done.returncode, steps(done), contents(tree)) == (0, [], before)
        done = call(tree, "unbind", CARD, shell=shell)
        assert (done.returncode, driver(tree)) == (0, "i40e"), done.stderr
        before = contents(tree)
        done = call(tree, "unbind", CARD, shell=shell)
        assert (done.returncode, steps(done), contents(tree)) == (0, [], before)


def test_a_dry_run_shows_the_same_steps_and_changes_nothing(tree):
    """Given --dry-run first. Expect the steps of the real run that follows, and no change."""
    with Kernel(tree, native="i40e"):
        for words in (["bind", CARD], ["hugepages", "8"], ["unbind", CARD]):
            before = contents(tree)
            dry = call(tree, *words, "--dry-run")
            assert dry.returncode == 0 and contents(tree) == before, dry.stderr
            real = call(tree, *words)
            assert real.returncode == 0 and steps(dry) == steps(real) != [], real.stderr


@pytest.mark.parametrize("network", NETWORKS)
def test_a_card_in_use_is_not_taken(tree, network):
    """Given a card that carries something, by itself or by what stands on it. Expect 2, one
    sentence that names it, no change; with --force a line for each thing that is cut. A free card
    is taken."""
    use, lost = NETWORKS[network]
    use(tree)
    before = contents(tree)
    for shell in (name for name, words in SHELLS.items() if shutil.which(words[0])):
        done = call(tree, "bind", CARD, "--dry-run", shell=shell)
        assert contents(tree) == before and done.returncode == (2 if lost else 0), done.stderr
        assert bool(steps(done)) is not bool(lost)
        if lost:
            assert f"{CARD} is in use: {lost}: take" in done.stderr, shell
            assert len(done.stderr.splitlines()) == 1
            forced = call(tree, "bind", CARD, "--dry-run", "--force", shell=shell)
            told = [f"! --force cuts: {line}" for line in lost.split("; ")]
            assert (forced.returncode, forced.stdout.splitlines()[: len(told)]) == (0, told)
            assert steps(forced)[-1].startswith(f"+ echo {CARD} > ")


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_by_its_name(tmp_path, name):
    """Given one of the hosts that doctor is asked about too, in each shell. Expect the exit code,
    what is said, and a dry run that changes nothing."""
    here, tree = HOSTS[name], Tree(tmp_path / "host")
    here.make(tree)
    before = contents(tree)
    for shell in (name for name, words in SHELLS.items() if shutil.which(words[0])):
        done = call(tree, *here.words, "--dry-run", shell=shell)
        assert done.returncode == here.code, done.stderr
        assert here.said in done.stdout + done.stderr, shell
        assert contents(tree) == before


def test_whose_group_it_is_by_name_and_by_number(tree):
    """Given a bound card whose group a user has. Expect that said of the name and of the number,
    and no step; of another user, a chown."""
    (tree.root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    device = tree.root / "sys/bus/pci/devices" / CARD
    (device / "driver").unlink()
    tree.link(f"sys/bus/pci/devices/{CARD}/driver", "sys/bus/pci/drivers/vfio-pci")
    for user in (pwd.getpwuid(os.geteuid()).pw_name, str(os.geteuid())):
        done = call(tree, "bind", CARD, "--user", user)
        assert steps(done) == [] and f"dev/vfio/7 is {user}'s" in done.stdout
    assert steps(call(tree, "bind", CARD, "--user", "4242", "--dry-run"))[0].startswith("+ chown")


NOBODY = 65534


def test_an_ordinary_user_is_told_so_and_nothing_changes():
    """Given a user who may write nothing. Expect of each command 1, one sentence that asks about
    root, and the host as it was."""
    if os.geteuid() != 0:
        pytest.skip("left out: only root can be another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        tree = Tree(Path(folder) / "host")
        tree.nic(group="7")
        tree.modules("vfio_iommu_type1")
        (tree.root / "sys/bus/pci/drivers/vfio-pci").mkdir()
        tree.nic("0000:04:00.0", driver="vfio-pci", interface="", group="8")
        tree.pages(2048, {0: 0})
        script = Path(folder) / "nic.sh"
        shutil.copy(SCRIPT, script)
        before = contents(tree)
        for words in (("bind", CARD), ("unbind", "0000:04:00.0"), ("hugepages", "8")):
            command = ["sh", str(script), *words, "--root", str(tree.root)]
            done = subprocess.run(command, user=NOBODY, capture_output=True, text=True, timeout=30)
            assert done.returncode == 1 and "are you root?" in done.stderr, done.stderr
            assert len(done.stderr.splitlines()) == 1 and contents(tree) == before
        command[2:5] = ["status", "--root", str(tree.root)]
        done = subprocess.run(command, user=NOBODY, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and f"{CARD} driver=i40e" in done.stdout


def test_an_address_without_a_route_is_found_by_ip(tree):
    """Given an IPv4 address that no route of the main table tells of. Expect what `ip` says."""
    said = "2: ens1    inet 10.9.8.7/32 scope global ens1\\\\       valid_lft forever"
    tree.ip(f'[ "$*" = "-o -4 addr show dev ens1" ] && echo "{said}"; exit 0')
    done = call(tree, "bind", CARD)
    assert done.returncode == 2 and "ens1 carries the address 10.9.8.7/32" in done.stderr


def test_a_host_whose_ip_does_not_tell_has_no_free_card(tree):
    """Given no `ip`, one that fails, and one that knows no routes. Expect no bind, and why."""
    for script in (None, "exit 1", "case $* in *route*) exit 2 ;; esac"):
        tree.ip(script or "")
        if script is None:
            (tree.root / "bin/ip").unlink()
        done = call(tree, "bind", CARD, "--dry-run")
        assert done.returncode == 2
        assert "the kernel does not say what ens1 carries: `ip` is missing" in done.stderr


REAL = """set -e
mount -t sysfs sysfs /sys
ip link add ens1 type veth peer name other
try() { sh {script} --root {root} bind {card} --dry-run 2>&1 | tail -n 1; }
ip link set ens1 up; try
ip addr add 10.1.2.3/23 dev ens1; try
ip addr flush dev ens1; ip addr add 10.1.2.3/32 dev ens1; try
ip link set ens1 down; try
ip addr flush dev ens1; ip link set ens1 up; ip -6 addr add fd00::5/64 dev ens1; try
ip -6 addr flush dev ens1; ip link add br0 type bridge; ip link set ens1 master br0; try
"""


def test_a_real_kernels_words(tmp_path):
    """Given an interface of a real kernel, in a namespace: up, with an address, with one that has
    no route, down, with IPv6, in a bridge. Expect it free, in use, in use, free, in use, in use."""
    tree = Tree(tmp_path)
    tree.nic(group="7")
    for name in ("sys/class/net", "proc/net"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "sys/class/net").symlink_to("/sys/class/net")
    (tmp_path / "proc/net").symlink_to("/proc/self/net")
    (tmp_path / "bin/ip").unlink()
    (tmp_path / "bin/ip").symlink_to(shutil.which("ip"))
    script = REAL.replace("{script}", str(SCRIPT)).replace("{card}", CARD)
    words = [*apart("--net", "--mount"), "sh", "-c", script.replace("{root}", str(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = [line.split(" in use: ")[-1].split(": take")[0] for line in done.stdout.splitlines()]
    free = f"+ echo {CARD} > {tmp_path}/sys/bus/pci/drivers_probe"
    assert told == [
        free,
        "ens1 carries the route to 10.1.2.0/255.255.254.0",
        "ens1 carries the address 10.1.2.3/32",
        free,
        "ens1 carries the route to fd00:0000:0000:0000:0000:0000:0000:0000/64",
        "br0 stands on ens1",
    ]


def test_a_virtual_function_is_free_beside_its_card(tree):
    """Given a card that carries the default route. Expect a free virtual function of it bound."""
    tree.virtual_function("0000:03:02.0", driver="iavf", interface="ens1v0", group="8")
    tree.default_route("ens1")
    assert call(tree, "bind", CARD, "--dry-run").returncode == 2
    assert call(tree, "bind", "0000:03:02.0", "--dry-run").returncode == 0


def test_what_is_refused_says_why(tree):
    """Given no such card, a disk, no IOMMU, odd words. Expect a sentence, 2, no step; given a
    Mellanox card, with the default route. Expect it left as it is, and 0: it is ready."""
    tree.nic("0000:04:00.0", kind="0x018000", driver="nvme", interface="")
    tree.nic("0000:05:00.0", ids=MLX5, driver="mlx5_core", interface="ens5")
    tree.default_route("ens5")
    tree.nic("0000:06:00.0", interface="ens6")
    wanted = {
        ("bind", "3:0.0"): "is no PCI address",
        ("bind", "0000:09:00.0"): "there is no PCI device",
        ("bind", "0000:04:00.0"): "is no network card",
        ("bind", "0000:06:00.0"): "intel_iommu=on",
        ("bind", CARD, "--driver", "nvme"): "expected vfio-pci",
        ("bind", CARD, "--forse"): "no option --forse",
        ("hugepages", "many"): "is no count",
        ("hugepages", "9999999999"): "is no count",
        ("hugepages", "8", "--size", "4"): "expected one such as 2M or 1G",
        ("hugepages", "8", "--size", "4K"): "no pages of 4K here",
        ("bind", CARD, "--user", "nobody-such"): "there is no user",
        ("hugepages", "8", "--node", "5"): "no such NUMA node",
        ("bnd", CARD): "no command",
    }
    before = contents(tree)
    for words, said in wanted.items():
        done = call(tree, *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
        assert len(done.stderr.splitlines()) == 1 and steps(done) == []
    done = call(tree, "bind", "0000:05:00.0")
    assert (done.returncode, steps(done)) == (0, [])
    assert "= 0000:05:00.0 works for DPDK under its kernel driver mlx5_core" in done.stdout
    assert contents(tree) == before


def test_a_card_that_vfio_does_not_take_goes_back(tree):
    """Given a vfio-pci that takes nothing. Expect 1, one sentence, and i40e again."""
    with Kernel(tree, native="i40e", stubborn="vfio-pci"):
        done = call(tree, "bind", CARD)
        assert done.returncode == 1 and "which has i40e again" in done.stderr
        assert len(done.stderr.splitlines()) == 1 and driver(tree) == "i40e"


@pytest.mark.parametrize("iommu", [True, False])
def test_a_driver_that_does_not_let_go_leaves_nothing_set(tree, iommu):
    """Given an `unbind` that the kernel refuses. Expect 1, the driver as it was, no override, and
    vfio without an IOMMU forbidden again."""
    if not iommu:
        (tree.root / "sys/bus/pci/devices" / CARD / "iommu_group").unlink()
    with Kernel(tree, native="i40e"):
        (tree.root / "sys/bus/pci/drivers/i40e").rename(tree.root / "gone")  # nothing to write to
        done = call(tree, "bind", CARD, *([] if iommu else ["--no-iommu"]))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "unbind does not take" in done.stderr and driver(tree) == "i40e"
    assert (tree.root / "sys/bus/pci/devices" / CARD / "driver_override").read_text() == "\n"
    switch = tree.root / f"sys/module/vfio/parameters/{NO_IOMMU}"
    assert iommu or switch.read_text() == "N\n"


def test_hugepages_are_set_where_asked_and_counted(tree):
    """Given a node, then a kernel that gives none. Expect pages there; then how many it gave."""
    with Kernel(tree, native="i40e"):
        assert call(tree, "hugepages", "16", "--node", "1").returncode == 0
        place = "devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
        counts = [(tree.root / "sys" / place.format(node)).read_text() for node in (0, 1)]
        assert counts == ["0", "16\n"]
        assert "mount -t hugetlbfs" in (tree.root / "programs").read_text()
        before = contents(tree)
        done = call(tree, "hugepages", "16", "--node", "1")
        assert (steps(done), contents(tree)) == ([], before)
        taken = tree.root / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
        taken.unlink()
        taken.symlink_to("/dev/null")
        done = call(tree, "hugepages", "16")
        assert done.returncode == 1 and "the kernel gave 0 of 16 hugepages" in done.stderr
        done = call(tree, "hugepages", "0", "--node", "1")
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 1


def test_hugepages_that_are_there_stay(tree):
    """Given 8192 pages, and 1024 asked for. Expect no step and 8192; given 512, Expect 1024."""
    tree.pages(2048, {0: 8192, 1: 0})
    place = tree.root / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    with Kernel(tree, native="i40e"):
        done = call(tree, "hugepages", "1024")
        assert (done.returncode, place.read_text()) == (0, "8192")
        assert "= 8192 hugepages of 2M are set" in done.stdout
        tree.pages(2048, {0: 512, 1: 0})
        done = call(tree, "hugepages", "1024")
        assert (done.returncode, place.read_text()) == (0, "1024\n"), done.stderr


GIVES_LESS = """#!/bin/sh
case $1 in
*/nr_hugepages) read -r n < "$1"; [ "$n" -le 5 ] || n=5; echo "$n" ;;
*) exec /bin/cat "$@" ;;
esac
"""


def test_hugepages_that_the_kernel_does_not_give_go_back(tree):
    """Given 3 pages, a kernel that has 5, and 16 asked for. Expect 1, both figures, and 3 again."""
    tree.pages(2048, {0: 3, 1: 0})
    place = tree.root / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    with Kernel(tree, native="i40e") as kernel:
        (kernel.programs / "cat").write_text(GIVES_LESS)
        (kernel.programs / "cat").chmod(0o755)
        done = call(tree, "hugepages", "16")
    assert (done.returncode, place.read_text()) == (1, "3\n")
    assert "the kernel gave 5 of 16 hugepages of 2M, and has all but 3 back" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_hugepages_leave_the_host_some_memory(tree):
    """Given hosts of several sizes. Expect as many pages as leave an eighth of its memory, within
    256 MiB and 2 GiB, and one more refused with that figure; in 1 GiB pages too, and on a node."""
    tree.pages(1 << 20, {0: 0, 1: 0})
    places = {
        (1024, 800): ("2M", 272),
        (4096, 3417): ("2M", 1452),
        (4096, 3584): ("1G", 3),
        (262144, 200000): ("2M", 98976),
        (512, 200): ("2M", 0),
        (512, 274): ("2M", 9),  # asked for as 09, which is no number of base eight
    }
    for (total, free), (size, most) in places.items():
        tree.memory(total, free)
        before = contents(tree)
        for shell in (name for name, words in SHELLS.items() if shutil.which(words[0])):
            done = call(tree, "hugepages", str(most + 1), "--size", size, shell=shell)
            assert (done.returncode, contents(tree)) == (2, before), done.stderr
            assert f"have to stay, so {most} at most" in done.stderr and steps(done) == []
            assert len(done.stderr.splitlines()) == 1
            words = ["hugepages", f"0{most}", "--size", size, "--node", "1", "--dry-run"]
            assert call(tree, *words, shell=shell).returncode == 0
    tree.memory(4096, 700)  # 100 more fit, beside those that are there
    tree.pages(2048, {0: 900, 1: 0})
    with Kernel(tree, native="i40e"):
        assert "so 994 at most" in call(tree, "hugepages", "995").stderr
        assert call(tree, "hugepages", "994").returncode == 0


def test_without_an_iommu_only_when_told(tree):
    """Given no IOMMU group and --no-iommu. Expect the kernel's switch set, then the bind."""
    (tree.root / "sys/bus/pci/devices" / CARD / "iommu_group").unlink()
    with Kernel(tree, native="i40e"):
        done = call(tree, "bind", CARD, "--no-iommu")
        assert (done.returncode, driver(tree)) == (0, "vfio-pci"), done.stderr
        switch = tree.root / f"sys/module/vfio/parameters/{NO_IOMMU}"
        assert switch.read_text() == "Y\n"
        tree.nic("0000:03:00.1", driver="vfio-pci", interface="")
        assert f"+ echo N > {switch}" not in steps(call(tree, "unbind", CARD, "--dry-run"))
        (tree.root / "sys/bus/pci/devices/0000:03:00.1/driver").unlink()
        assert call(tree, "unbind", CARD).returncode == 0
        assert (driver(tree), switch.read_text()) == ("i40e", "N\n")


def test_a_bound_card_keeps_what_it_was_bound_by(tree):
    """Given a group's file that cannot be given away. Expect 1, and nothing taken from under the
    card, which is bound by then."""
    (tree.root / "dev/vfio/7").unlink()
    with Kernel(tree, native="i40e"):
        done = call(tree, "bind", CARD, "--user", "4242")
        assert (done.returncode, driver(tree)) == (1, "vfio-pci"), done.stderr
        override = tree.root / "sys/bus/pci/devices" / CARD / "driver_override"
        assert "chown" in done.stderr and override.read_text() == "vfio-pci\n"


def test_a_card_stays_with_a_service_that_starts_again(tree):
    """Given how a service ended. Expect its card to stay where it starts again, and a sentence;
    where it was stopped, or has ended with wrong words, Expect the card back."""
    with Kernel(tree, native="i40e"):
        for result, status, stays in (
            ("exit-code", "1", True),
            ("signal", "KILL", True),
            ("exit-code", "", True),
            ("oom-kill", "2", True),
            ("exit-code", "2", False),
            ("success", "0", False),
        ):
            assert call(tree, "bind", CARD).returncode == 0
            done = call(tree, "unbind", CARD, "--after", result, "--status", status)
            assert done.returncode == 0, done.stderr
            assert (driver(tree) == "vfio-pci", steps(done) == []) == (stays, stays)
            assert (f"{CARD} stays: the service ended with {result}" in done.stdout) is stays


def test_a_kernel_that_always_wants_an_iommu(tree):
    """Given --no-iommu and a vfio that knows no such switch. Expect a sentence with the other
    driver's name, 2, and the card where it was."""
    (tree.root / "sys/bus/pci/devices" / CARD / "iommu_group").unlink()
    tree.put("without")
    with Kernel(tree, native="i40e"):
        done = call(tree, "bind", CARD, "--no-iommu")
    assert (done.returncode, driver(tree)) == (2, "i40e"), done.stderr
    assert "CONFIG_VFIO_NOIOMMU" in done.stderr and "--driver uio_pci_generic" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_groups_other_card_is_told(tree):
    """Given a second function in the group, held by i40e. Expect it named, and the bind done."""
    tree.nic("0000:03:00.1", interface="ens3", group="7")
    with Kernel(tree, native="i40e"):
        done = call(tree, "bind", CARD)
    assert done.returncode == 0 and "0000:03:00.1 (i40e) shares IOMMU group 7" in done.stdout
    assert driver(tree, "0000:03:00.1") == "i40e"


def test_a_groups_disk_is_not_to_be_bound(tree):
    """Given a SATA controller in the group. Expect it named, and no word of binding it."""
    tree.nic("0000:00:1f.2", kind="0x010601", driver="ahci", interface="", group="7")
    told = call(tree, "bind", CARD, "--dry-run").stdout
    assert "! 0000:00:1f.2 (ahci) shares IOMMU group 7 and is no network card" in told
    assert "bound too" not in told


def test_doctors_commands_make_the_card_usable(tree, tmp_path):
    """Given a card that doctor calls usable after commands. Expect usable now, once they ran."""
    eal = hosts.compile_eal(tree.root / "usr/lib")
    folder = tree.root / "usr/lib/x/dpdk/pmds-23.0"
    hosts.compile_driver(folder, "net_i40e", eal)
    package = tmp_path / "package"
    hosts.compile_object(
        package / "_dpdk.so",
        "int rp_dpdk_object, rp_dpdk_takes_cards;",
        "-Wl,--no-as-needed",
        str(eal),
    )
    (nic,) = examine(tree.root, package).nics
    assert (nic.usable, len(nic.commands)) == (AFTER, 2)
    with Kernel(tree, native="i40e"):
        for command in nic.commands:
            shell, script, *words = command.split()
            assert (shell, Path(script)) == ("sh", SCRIPT)
            assert call(tree, *words).returncode == 0, command
            for nr in tree.root.glob("sys/**/nr_hugepages"):  # the kernel frees what it sets
                shutil.copy(nr, nr.with_name("free_hugepages"))
    report = examine(tree.root, package)
    assert report.nics[0].usable == NOW, report.nics[0].why
    assert report.url == f"dpdk://ADDRESS:7400?port={CARD}"
