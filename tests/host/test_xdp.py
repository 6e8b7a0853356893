"""Whose XDP program is on an interface, where the kernel is made up: doctor changes nothing."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from replay_server.observe import xdp
from replay_server.observe.doctor import examine, lines
from replay_server.observe.host import read_host
from replay_server.observe.netlink import IFLA_IFNAME, IFLA_LINKINFO, IFLA_XDP

KIND = struct.pack("=HH", 9, 1) + b"veth\0\0\0\0"
PROGRAM = struct.pack("=HHB3xHHI", 5, 2, 1, 8, 4, 77)


@pytest.mark.parametrize(
    ("kind", "taken", "whose"),
    [(KIND, True, xdp.USED), (KIND, False, xdp.LEFT), (b"", False, xdp.MAYBE)],
    ids=("used", "left", "a card's"),
)
def test_the_queues_of_a_card_are_not_asked_for(monkeypatch, tmp_path, kind, taken, whose):
    """Given AF_XDP's program on a veth pair's end and on a card, whose driver may start a queue
    again that is asked for. Expect the first one's queues asked for, and the card's left alone;
    doctor to say of it what is to be done if nothing runs there."""
    asked = []
    link = {IFLA_IFNAME: b"eth1\0", IFLA_LINKINFO: kind, IFLA_XDP: PROGRAM}
    monkeypatch.setattr(xdp, "links", lambda: iter([(7, link)]))
    monkeypatch.setattr(xdp, "_name", lambda _: xdp.OWN)
    monkeypatch.setattr(xdp, "_is_taken", lambda *which: bool(asked.append(which)) or taken)
    assert xdp.with_xdp() == (("eth1", whose),)
    assert bool(asked) == bool(kind)
    host = dataclasses.replace(read_host(tmp_path), with_xdp=xdp.with_xdp())
    monkeypatch.setattr("replay_server.observe.doctor.read_host", lambda *_: host)
    told = "\n".join(lines(examine(tmp_path)))
    assert ("if none runs there" in told) == (whose == xdp.MAYBE)
