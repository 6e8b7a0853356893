"""The guests' one disk: an initramfs of busybox, kernel modules, DPDK's drivers and replay-serve.

    python tests/nic/image.py FOLDER

Packages are downloaded and unpacked below FOLDER, never installed. Writes FOLDER/vmlinuz and
FOLDER/initramfs, uncompressed: a guest without hardware help reads faster than it unpacks.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("vfio-pci", "vfio_iommu_type1", "uio_pci_generic", "e1000e", "vmxnet3")
MODULES += ("virtio_pci", "virtio_net")
DRIVERS = ("bus_pci", "bus_vdev", "mempool_ring", "net_e1000", "net_virtio", "net_vmxnet3")
BYTES_MAX = 30 << 20
NEWC = "070701" + "%08X" * 13


def packages(folder: Path) -> tuple[Path, Path]:
    """The unpacked kernel and busybox; downloaded where they are not there yet."""
    found = []
    for name in (kernel_package(), "busybox-static"):
        place = folder / name
        if not (place / "done").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            download(name, place)
            (package,) = place.glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", package, place], check=True)
            package.unlink()
            (place / "done").touch()
        found.append(place)
    return found[0], found[1]


def download(name: str, place: Path) -> None:
    """A package's file; where apt's lists are too old for it they are renewed, by root."""
    command = ["apt-get", "download", "-q", name]
    for again in (False, True):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if again or os.geteuid() != 0:
            raise SystemExit(f"{name} cannot be downloaded: {done.stderr.strip()[-300:]}")
        subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=True)


def kernel_package() -> str:
    """Debian's newest kernel for this machine, by its meta package."""
    words = ["apt-cache", "depends", "linux-image-amd64"]
    for again in (False, True):
        told = subprocess.run(words, capture_output=True, text=True).stdout
        if names := re.findall(r"Depends: (linux-image-[\w.+-]+)", told):
            return names[0]
        if not again and os.geteuid() == 0:
            subprocess.run(["apt-get", "update", "-q"], capture_output=True, check=True)
    raise SystemExit("apt knows no kernel (linux-image-amd64): apt-get update")


def modules(kernel: Path) -> dict[str, Path]:
    """Path in the guest of each module that is needed, and where it lies here."""
    (release,) = (kernel / "lib/modules").iterdir()
    files = {path.stem.replace("-", "_"): path for path in release.rglob("*.ko")}
    wanted, found = [name.replace("-", "_") for name in MODULES], {}
    while wanted:
        path = files.get(wanted.pop())
        if path and str(path.relative_to(kernel)) not in found:
            found[str(path.relative_to(kernel))] = path
            told = re.search(rb"\0depends=([^\0]*)", path.read_bytes())
            wanted += told[1].decode().replace("-", "_").split(",") if told else []
    return found


def libraries(programs: list[Path]) -> dict[str, Path]:
    """Every shared library these need, by the path under which it is looked for."""
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    if lost := re.findall(r"(\S+) => not found", told):
        raise SystemExit(f"not found here: {', '.join(lost)}")
    paths = set(re.findall(r"(?:=> |^\s+)(/\S+)", told, re.MULTILINE))
    threads = Path(next(path for path in paths if "/libc.so" in path)).with_name("libgcc_s.so.1")
    return {str(path).lstrip("/"): Path(path).resolve() for path in (*paths, threads)}


def contents(folder: Path, build: Path) -> dict[str, Path]:
    """Everything in the guest: its path there, and the file here."""
    kernel, busybox = packages(folder)
    (release,) = (kernel / "lib/modules").iterdir()
    serve, transport = build / "replay-serve", ROOT / "replay_server/_dpdk.so"
    plugins = sorted(Path("/usr/lib").glob("*-linux-gnu/dpdk/pmds-*"))[-1]
    drivers = [path for name in DRIVERS for path in plugins.glob(f"librte_{name}.so.*.*")]
    found = {
        "init": ROOT / "tests/nic/init.sh",
        "bin/busybox": next(path for path in busybox.glob("**/bin/busybox")),
        "bin/replay-serve": serve,
        "bin/_dpdk.so": transport,
        "bin/nic.sh": ROOT / "deploy/nic.sh",
        **{str(path).lstrip("/"): path for path in drivers},
        **libraries([serve, transport, *drivers]),
        **modules(kernel),
    }
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name, path in found.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("lib/modules"):
            shutil.copy(path, tree / name)
    for extra in ("modules.order", "modules.builtin"):
        shutil.copy(release / extra, tree / "lib/modules" / release.name / extra)
    program = found["bin/busybox"]
    subprocess.run([program, "depmod", "-b", tree, release.name], check=True)
    for path in (tree / "lib/modules" / release.name).glob("modules.*"):
        found[str(path.relative_to(tree))] = path
    shutil.copy(next((kernel / "boot").glob("vmlinuz-*")), folder / "vmlinuz")
    return found


def archive(found: dict[str, Path]) -> bytes:
    """The files as cpio's "newc" format, which kernels take as their first file system."""
    folders = {str(parent) for name in found for parent in Path(name).parents} - {"."}
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in sorted(folders)]
    first: dict[Path, str] = {}
    for name, path in found.items():
        if path in first:  # two names of one driver: loaded twice it would be two drivers
            entries.append((name, stat.S_IFLNK | 0o777, f"/{first[path]}".encode()))
        else:
            entries.append((name, stat.S_IFREG | 0o755, path.read_bytes()))
        first.setdefault(path, name)
    made = []
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        encoded = name.encode() + b"\0"
        numbers = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        head = (NEWC % numbers).encode() + encoded
        made += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]
    return b"".join(made)


def main() -> None:
    """Makes the image in the folder that is named."""
    folder = Path(sys.argv[1]).resolve()
    made = archive(contents(folder, folder.parent))
    if len(made) > BYTES_MAX:
        raise SystemExit(f"the image has {len(made):,} bytes, {BYTES_MAX:,} are the limit")
    (folder / "initramfs").write_bytes(made)
    print(f"guest image: {len(made) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
