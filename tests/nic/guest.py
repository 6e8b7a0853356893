"""A QEMU guest with one emulated card, driven by a shell on its second serial port.

    with Guest("e1000e", folder, image) as guest:
        guest.shell("nic.sh bind 0000:00:02.0")

Plain software emulation, no hardware help, one thread: with several a guest's timer may
stop on a busy machine (QEMU 7.2). The card's wire is a pair of unix datagram sockets,
folder/card and folder/wire, a frame each. A guest that ends, or does not answer in time, is an
error that shows what its console said last; it never outlives
who started it, nor its own time.
"""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

ADDRESS, MAC = "0000:00:02.0", "02:00:00:00:00:07"
READY_S, ANSWER_S, LIFE_S = 90.0, 30.0, 400
IOMMU = "intel-iommu,intremap=on,caching-mode=on"
CARDS = {  # how QEMU makes it, the kernel's modules for it, and the driver that takes the card
    "e1000e": ("e1000e", "e1000e", "e1000e"),
    "vmxnet3": ("vmxnet3", "vmxnet3", "vmxnet3"),
    "virtio": (
        "virtio-net-pci,disable-legacy=on,iommu_platform=on",
        "virtio_net,virtio_pci",
        "virtio-pci",
    ),
}
CARDS["virtio-mq"] = (f"{CARDS['virtio'][0]},mq=on,rss=on,vectors=6", *CARDS["virtio"][1:])


class GuestError(AssertionError):
    """A command in the guest failed."""


class GuestGone(GuestError):
    """The guest has ended, or its shell does not answer any more."""


class Guest:
    """See above. `image`: where image.py made vmlinuz and initramfs; tap: the card
    has two queues, on a TAP device of this name, which QEMU makes."""

    def __init__(self, card: str, folder: Path, image: Path, tap: str = "") -> None:
        self.card, self.folder = card, folder
        device, modules, _ = CARDS[card]
        kernel = "console=ttyS0 quiet panic=-1 no_timer_check"  # time stands still here at times
        kernel += " intel_iommu=on iommu=pt"
        wire = "dgram,local.type=unix,local.path={0}/card,remote.type=unix,remote.path={0}/wire"
        if tap:
            wire = f"tap,ifname={tap},queues=2,vnet_hdr=off,script=no,downscript=no"
        words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"]
        words += ["-no-reboot", "-machine", "q35", "-accel", "tcg,thread=single"]
        words += ["-cpu", "Nehalem", "-m", "640", "-kernel", f"{image}/vmlinuz"]
        words += ["-initrd", f"{image}/initramfs", "-append", f"{kernel} modules={modules}"]
        words += ["-device", IOMMU, "-netdev", f"{wire.format(folder)},id=wire"]
        words += ["-device", f"{device},netdev=wire,addr=2,mac={MAC}"]
        words += ["-serial", f"file:{folder}/console"]
        words += ["-chardev", f"socket,id=shell,path={folder}/shell,server=on,wait=off"]
        words += ["-serial", "chardev:shell"]
        self.said = (folder / "qemu").open("wb")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "timeout", "-s", "KILL", str(LIFE_S), *words],
            stdin=subprocess.DEVNULL,
            stdout=self.said,
            stderr=self.said,
        )
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.settimeout(0.2)

    def __enter__(self) -> Guest:
        try:
            self._until(lambda: (self.folder / "shell").exists(), READY_S, "a socket")
            self.line.connect(str(self.folder / "shell"))
            self._until(lambda: "guest: ready" in self.console(), READY_S, "its first process")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.line.close()
        self.process.terminate()  # timeout passes it on
        self.process.wait(30)
        self.said.close()

    def console(self) -> str:
        """What the kernel and its first process said, and QEMU itself."""
        files = (self.folder / "console", self.folder / "qemu")
        return "".join(file.read_text(errors="replace") for file in files if file.exists())

    def _gone(self, what: str) -> GuestGone:
        last = "\n".join(self.console().splitlines()[-25:])
        return GuestGone(f"guest with {self.card}: {what}; its console said last:\n{last}")

    def _until(self, condition: Any, seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise self._gone(f"ended with {self.process.returncode}")
            if time.monotonic() > until:
                raise self._gone(f"no {what} within {seconds:.0f} s")
            time.sleep(0.05)

    def shell(self, command: str, seconds: float = ANSWER_S, code: int | None = 0) -> str:
        """What a shell command in the guest printed; an error where it ends with another code."""
        self.line.sendall(f'{{ {command}\n}} < /dev/null; echo "@@ended $?"\n'.encode())
        told, until = "", time.monotonic() + seconds
        while not (end := re.search(r"@@ended (\d+)\r?\n", told)):
            try:
                got = self.line.recv(65536)
            except TimeoutError:
                got = None
            if got == b"" or self.process.poll() is not None:
                raise self._gone(f"ended during `{command[:80]}`")
            if time.monotonic() > until:
                raise self._gone(f"`{command[:80]}` took over {seconds:.0f} s: {told}")
            told += (got or b"").decode(errors="replace")
        told = told[: end.start()]
        if code is not None and int(end[1]) != code:
            raise GuestError(f"`{command[:80]}` ended with {end[1]}: {told}")
        return told

    def put(self, path: str, data: bytes) -> None:
        """Writes a file in the guest."""
        text = base64.encodebytes(data).decode()
        self.shell(f"base64 -d > {path} <<'@@'\n{text}@@")
