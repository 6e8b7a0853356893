"""A wire between a guest's card and a TAP device of this network namespace, frame by frame.

    python tests/nic/relay.py FOLDER INTERFACE

FOLDER/card and FOLDER/wire are the unix datagram sockets of QEMU's `-netdev dgram`. Lines on
standard input are answered by a line each:

    faults SEED LOSS REORDER CORRUPT    shares of the IPv4 frames, both ways; all 0: none
    counts                              frames to the card and from it; those lost and moved, both
                                        ways; those bent to the card and from it

Faults are drawn from SEED, a generator for each direction. A frame that is moved leaves behind the
two that follow it. ARP is left alone: a bent answer would be believed.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import socket
import struct
import sys
from collections.abc import Callable

FRAME_BYTES, BURST = 65536, 64
SET_INTERFACE, TAP, NO_HEADER = 0x400454CA, 0x0002, 0x1000
IPV4 = b"\x08\x00"
BEHIND = 2


def open_tap(name: str) -> int:
    """A new TAP device's descriptor."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, SET_INTERFACE, struct.pack("16sH22x", name.encode(), TAP | NO_HEADER))
    return tap


class Direction:
    """One way of the wire: what is done to frames before they are handed to `send`."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send, self.held, self.passed_since = send, b"", 0
        self.frames = self.lost = self.moved = self.bent = 0
        self.faults(0, 0.0, 0.0, 0.0)

    def faults(self, seed: int, loss: float, reorder: float, corrupt: float) -> None:
        """From now on; a frame that is held leaves first."""
        self.release()
        self.random, self.loss, self.reorder = random.Random(seed), loss, reorder
        self.corrupt = corrupt

    def release(self) -> None:
        held, self.held = self.held, b""
        if held:
            self.send(held)

    def take(self, frame: bytes) -> None:
        """A frame that came in at this direction's beginning."""
        self.frames += 1
        if frame[12:14] == IPV4:
            if self.random.random() < self.loss:
                self.lost += 1
                return
            if self.random.random() < self.corrupt:
                self.bent += 1
                bent = bytearray(frame)
                bent[self.random.randrange(len(bent))] ^= 1 << self.random.randrange(8)
                frame = bytes(bent)
            if not self.held and self.random.random() < self.reorder:
                self.moved += 1
                self.held, self.passed_since = frame, 0
                return
        self.send(frame)
        self.passed_since += 1
        if self.passed_since >= BEHIND:
            self.release()


class Relay:
    """Both directions, and the lines that change them."""

    def __init__(self, folder: str, interface: str) -> None:
        self.card = f"{folder}/card"
        self.wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.wire.bind(f"{folder}/wire")
        self.wire.setblocking(False)
        self.tap = open_tap(interface)
        self.inward, self.outward = Direction(self.to_card), Direction(self.to_tap)

    def to_card(self, frame: bytes) -> None:
        """Waits while the guest's queue is full, a second at most; without a guest it is lost."""
        for _ in range(2):
            try:
                self.wire.sendto(frame, self.card)
                return
            except BlockingIOError:
                select.select([], [], [], 0.0005)
            except OSError:
                return

    def to_tap(self, frame: bytes) -> None:
        try:
            os.write(self.tap, frame)
        except OSError:
            return  # too short for a frame, or the interface is down

    def drain(self, read: Callable[[], bytes], direction: Direction) -> None:
        for _ in range(BURST):
            try:
                direction.take(read())
            except BlockingIOError:
                return

    def command(self, words: list[str]) -> str:
        """The answer to one line."""
        if words[0] == "faults":
            for i, direction in enumerate((self.inward, self.outward)):
                direction.faults(2 * int(words[1]) + i, *map(float, words[2:]))
            return "done"
        both = (self.inward, self.outward)
        told = [direction.frames for direction in both]
        told += [sum(getattr(d, name) for d in both) for name in ("lost", "moved")]
        told += [direction.bent for direction in both]
        return " ".join(map(str, told))

    def run(self) -> None:
        """Until standard input ends."""
        while True:
            ready, _, _ = select.select([0, self.wire, self.tap], [], [], 0.02)
            if not ready:
                self.inward.release()
                self.outward.release()
            if self.tap in ready:
                self.drain(lambda: os.read(self.tap, FRAME_BYTES), self.inward)
            if self.wire in ready:
                self.drain(lambda: self.wire.recv(FRAME_BYTES), self.outward)
            if 0 in ready:
                line = sys.stdin.readline()
                if not line:
                    return
                print(self.command(line.split()), flush=True)


if __name__ == "__main__":
    Relay(sys.argv[1], sys.argv[2]).run()
