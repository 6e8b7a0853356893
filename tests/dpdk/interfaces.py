"""dpdk:// on interfaces of the kernel's that somebody else uses: who is refused, and goes on.

The interfaces are of a pair of network namespaces, other programs processes: `make test-dpdk`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from conformance import plain, plain_rows
from hosts import Tree, tree_of_xa
from losses import attach
from namespaces import INTERFACE, SERVER, inside, leaked_mbufs, the_pair
from neighbours import PROCESS, url_of
from test_nic import CARD, SCRIPT
from until import until
from veth import (
    PORT,
    URL,
    WAIT_S,
    datagram,
    facts,
    ip,
    mac_of,
    raw,
    server_mac,
    serving,
)

from replay_server import Client, ReplayError, Server
from replay_server.observe.doctor import examine

TAP = "dpdk://{ip}:7400?vdev=net_tap,iface={name}"
UNSEEN = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"]


@pytest.fixture(autouse=True)
def at_the_client() -> None:
    """This thread is in the client's namespace."""
    the_pair()


def told(what: str, url: str, *before: str) -> str:
    """What a process at the server's end says that opens a server or a client, and goes."""
    command = [*before, sys.executable, "-c", PROCESS, what, url]
    done = subprocess.run(
        the_pair().server.inside(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def xdp_there() -> str:
    """Of the server's interface."""
    with inside(the_pair().server):
        shown = ip("-d", "link", "show", INTERFACE)
    return next((line.strip() for line in shown.splitlines() if "prog/xdp" in line), "")


def xdp_off() -> None:
    with inside(the_pair().server):
        ip("link", "set", INTERFACE, "xdp", "off")


def served(client: Client, seed: int) -> bool:
    rows = plain_rows(100, seed)
    return bool(client.get("main", client.extend("main", rows)).valid.all())


# -- AF_XDP's program ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "url", "before", "says"),
    [
        ("server", url_of("af_xdp", "198.18.0.8"), (), "already, and AF_XDP"),
        ("client", url_of("af_xdp", "198.18.0.50", ",ip=198.18.0.51"), (), "already, and AF_XDP"),
        ("server", url_of("af_packet", "198.18.0.8"), (), "over AF_XDP, which takes every frame"),
        ("server", url_of("af_xdp", "198.18.0.8"), UNSEEN, "has queue 0 .* over AF_XDP"),
    ],
    ids=("a server", "a client", "raw sockets", "one that sees no lock"),
)
def test_a_second_process_is_refused_and_the_first_goes_on(what, url, before, says):
    """Given a server over AF_XDP, and another process on its interface at another address. Expect
    that one refused, the program of the first still there, and its client served."""
    with serving("af_xdp"), Client(URL, timeout=WAIT_S) as client:
        program = xdp_there()
        assert program and served(client, 1)
        assert re.search(says, told(what, url, *before))
        assert xdp_there() == program
        assert served(client, 2)


def test_a_server_over_raw_sockets_is_not_made_deaf():
    """Given a server over af_packet. Expect one over AF_XDP, at another address, to be refused."""
    with serving("af_packet"), Client(URL, timeout=WAIT_S) as client:
        assert "already, and AF_XDP" in told("server", url_of("af_xdp", "198.18.0.8"))
        assert xdp_there() == "" and served(client, 1)


def test_a_program_of_somebody_elses_stays():
    """Given an XDP program that is none of AF_XDP's. Expect a server over AF_XDP refused with its
    name, the program still there, and doctor not to advise that it be removed."""
    attach(the_pair().server, INTERFACE, "firewall")
    try:
        program, before = xdp_there(), leaked_mbufs()
        says = rf"{INTERFACE} has an XDP program of another kind, firewall, .*another interface"
        with inside(the_pair().server):
            with pytest.raises(ReplayError, match=says):
                Server((plain(),), url_of("af_xdp"), insecure=True)
            advice = [line for line in examine().advice if "XDP" in line]
        assert xdp_there() == program and "firewall" in program and leaked_mbufs() == before
        says = "AF_XDP would replace it, and is refused there"
        assert advice == [f"{INTERFACE} has an XDP program, firewall: {says}"]
    finally:
        xdp_off()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_server_whose_program_goes_ends(how):
    """Given a server whose XDP program is removed, and one whose is replaced. Expect it to end with
    a sentence that says so, within a look or two, and what replaced it to stay."""
    with serving("af_xdp") as server, Client(URL, timeout=2) as client:  # it waits so at its end
        assert served(client, 1)
        xdp_off()
        if how == "replaced":
            attach(the_pair().server, INTERFACE, "firewall")
        until(lambda: server.lost != "", "it is told")
        assert f"the XDP program of {INTERFACE}" in server.lost
    assert ("firewall" in xdp_there()) == (how == "replaced")
    xdp_off()


# As RestrictNamespaces=yes of a unit has it, by a filter: unshare(CLONE_NEWNET) is not permitted.
NO_NAMESPACES = """
import ctypes, struct
def op(code, jt, jf, k):
    return struct.pack("<HBBI", code, jt, jf, k)
UNSHARE, NEWNET, REFUSE, LET = {"x86_64": 272, "aarch64": 97}[__import__("platform").machine()], \
    0x40000000, 0x00050001, 0x7FFF0000
steps = [op(0x20, 0, 0, 0), op(0x15, 0, 3, UNSHARE), op(0x20, 0, 0, 16), op(0x45, 0, 1, NEWNET),
         op(0x06, 0, 0, REFUSE), op(0x06, 0, 0, LET)]
code = ctypes.create_string_buffer(b"".join(steps), 8 * len(steps))
program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
assert libc.unshare(NEWNET) == -1
"""


def test_what_replaced_our_program_stays_where_no_namespace_is_to_be_had():
    """Given a server that may make no network namespace, as in a hardened unit, and whose program
    is replaced. Expect the other program to stay when it ends."""
    command = [sys.executable, "-c", NO_NAMESPACES + PROCESS, "server", url_of("af_xdp")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(the_pair().server.inside(command), **pipes) as server:
        assert server.stdout.readline() == "opened\n"
        xdp_off()
        attach(the_pair().server, INTERFACE, "firewall")
        server.communicate(timeout=60)
    assert server.returncode == 0 and "firewall" in xdp_there()
    xdp_off()


def test_doctor_advises_nothing_against_a_server_that_runs():
    """Given a server over AF_XDP. Expect not a word of its program."""
    with serving("af_xdp"), inside(the_pair().server):
        assert not any("XDP program" in line for line in examine().advice)


# -- raw sockets ---------------------------------------------------------------------------------


def test_servers_of_one_process_number_hear_all_that_is_theirs():
    """Given two servers over raw sockets on one interface, each process 1 of its own, as containers
    that share a network have it. Expect every client heard, from whatever port it comes."""
    alone = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", PROCESS, "server"]
    with ExitStack() as both:
        for address in (SERVER, "198.18.0.8"):
            command = the_pair().server.inside([*alone, url_of("af_packet", address)])
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            server = both.enter_context(subprocess.Popen(command, **pipes))
            both.callback(server.stdout.read)  # until its process is gone too
            both.callback(server.kill)
            assert server.stdout.readline() == "opened\n"
        for address in (SERVER, "198.18.0.8"):
            for _ in range(12):
                with Client(f"udp://{address}:{PORT}", timeout=WAIT_S) as client:
                    assert client.size("main") == 0


def test_what_the_kernel_sends_there_is_not_received():
    """Given datagrams that the kernel beside a server sends on its interface, and one that comes.
    Expect the server to have seen the last one alone."""
    with serving("af_packet") as server, raw() as send:
        before, mine = facts(server), mac_of(INTERFACE)
        with inside(the_pair().server):
            ip("neigh", "replace", "198.18.0.2", "lladdr", mine.hex(":"), "dev", INTERFACE)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(100):
                    sender.sendto(b"?", ("198.18.0.2", 9))
        send(bytes(datagram(mine, server_mac(), 9)))
        until(lambda: facts(server)["closed_port"] > before["closed_port"], "what came")
        assert facts(server)["foreign_mac"] < before["foreign_mac"] + 100


# -- names ---------------------------------------------------------------------------------------


def test_an_interface_by_its_other_name_is_the_same():
    """Given a server, and a second name of its interface. Expect a server at the same address on
    that name refused, and in the first one's own process too."""
    with inside(the_pair().server):
        ip("link", "property", "add", "dev", INTERFACE, "altname", "other0")
    url = url_of("af_packet").replace(INTERFACE, "other0")
    try:
        with serving("af_packet"):
            assert f"has {SERVER} on {INTERFACE} already" in told("server", url)
            with (
                inside(the_pair().server),
                pytest.raises(ReplayError, match="open in this process"),
            ):
                Server((plain(),), url, insecure=True)
    finally:
        with inside(the_pair().server):
            ip("link", "property", "del", "dev", INTERFACE, "altname", "other0")


AS_NOBODY = """
import ctypes, os, struct
import conformance, replay_server
ctypes.CDLL(os.path.dirname(replay_server.__file__) + "/_dpdk.so")
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(8, 1, 0, 0, 0)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
rights = 1 << 12 | 1 << 13
sets = struct.pack("6I", rights, rights, 0, 0, 0, 0)
assert libc.capset(struct.pack("II", 0x20080522, 0), sets) == 0
"""


def test_one_user_sees_its_own_locks_whatever_the_environment():
    """Given two servers of one user at one address, the first with a folder from a unit. Expect the
    second refused."""
    command = [sys.executable, "-c", AS_NOBODY + PROCESS, "server", url_of("af_packet")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    words = the_pair().server.inside(command)
    env = {k: v for k, v in os.environ.items() if k not in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR")}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        os.chown(folder, 65534, 65534)
        of_unit = env | {"RUNTIME_DIRECTORY": folder}
        first = stack.enter_context(subprocess.Popen(words, env=of_unit, **pipes))
        try:
            assert first.stdout.readline() == "opened\n"
            done = subprocess.run(
                words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            )
            assert f"process {first.pid} has {SERVER} on" in done.stdout, done
        finally:
            first.kill()


# -- taps ----------------------------------------------------------------------------------------


def test_a_tap_that_is_there_is_left_alone():
    """Given a tap that somebody made, and one that another process serves on. Expect servers there
    refused, the first to stay, and the second's client served."""
    with inside(the_pair().server):
        ip("tuntap", "add", "vmtap0", "mode", "tap")
        before = ip("link", "show", "vmtap0")
    assert "an interface vmtap0 already" in told(
        "server", TAP.format(ip="198.18.1.9", name="vmtap0")
    )
    with inside(the_pair().server):
        assert ip("link", "show", "vmtap0") == before
        ip("link", "del", "vmtap0")
    with serving("tap", "", "rtap0", "198.18.1.1"), inside(the_pair().server):
        ip("addr", "add", "198.18.1.2/24", "dev", "rtap0")
        ip("link", "set", "rtap0", "up")
        with Client(f"udp://198.18.1.1:{PORT}", timeout=WAIT_S) as client:
            assert served(client, 1)
            url = TAP.format(ip="198.18.1.7", name="rtap0")
            assert "an interface rtap0 already" in told("server", url)
            assert served(client, 2)


# -- an interface that this host uses ------------------------------------------------------------


def test_an_interface_without_mac_addresses_is_refused():
    """Given lo, whose frames are no Ethernet's. Expect one sentence, and nothing served there."""
    said = told("server", "dpdk://10.9.9.9:7400?vdev=net_af_packet,iface=lo,mtu=1400")
    assert "lo is no Ethernet interface (a tunnel, or lo)" in said and "serving at" not in said


def test_an_interface_that_the_host_uses_is_not_taken():
    """Given an interface with an address, with a default route, and below others. Expect
    AF_XDP refused with what it carries; and once it has none of these, to serve."""
    url = url_of("af_xdp").replace(",take=on", "")
    with inside(the_pair().server):

        def says(what: str) -> None:
            pattern = f"{what}, and AF_XDP takes every frame that comes there: .*take=on"
            with pytest.raises(ReplayError, match=pattern):
                Server((plain(),), url, insecure=True)

        says(f"{INTERFACE} carries a route")
        ip("route", "add", "default", "via", "198.18.0.2")
        says(f"{INTERFACE} carries the default route")
        ip("addr", "flush", "dev", INTERFACE)
        try:
            ip("addr", "add", "198.18.0.1/32", "dev", INTERFACE)
            says(f"{INTERFACE} carries an address")
            ip("addr", "flush", "dev", INTERFACE)
            ip("link", "add", "up0", "link", INTERFACE, "type", "macvlan")
            says(f"up0 stands on {INTERFACE}")
            ip("link", "del", "up0")
            ip("link", "add", "up0", "type", "bridge")
            ip("link", "set", INTERFACE, "master", "up0")
            says(f"up0 stands on {INTERFACE}")
            ip("link", "del", "up0")
            Server((plain(),), url, insecure=True).close()
        finally:
            ip("addr", "add", "198.18.0.1/24", "dev", INTERFACE)


# What is done with xa, which is up, its other end xb beside it (of `sh`; `ip netns add "$C"` is
# done), and what each of the three says: AF_XDP's look, doctor's, nic.sh's. "": it is free.
LISTENS = """
import socket, struct, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
if sys.argv[1] == "capture":
    joined = struct.pack("=iHH8x", socket.if_nametoindex("xa"), 1, 0)  # PACKET_MR_PROMISC
    packets.setsockopt(263, 1, joined)
else:
    packets.bind(("xa", 3))
print("listens", flush=True)
sys.stdin.read()
"""
ABOVE, DEFAULT = "made xa promiscuous", "xa carries the default route"
GROUP = (
    "ip -6 nexthop add id 1 dev xb; ip -6 nexthop add id 2 dev xa; ip nexthop add id 10 group 1/2"
)
COMPATIBLE = Path("/proc/sys/net/ipv4/nexthop_compat_mode")
NUMBERS = f"echo 0 > {COMPATIBLE}"  # a route then names a next hop so, and no interface
USES = {
    "nothing": ("", "", ""),
    "its own switch": ("ip link set xa promisc on", "", ""),
    "down, with an address": ("ip addr add 198.18.5.1/24 dev xa; ip link set xa down", "", ""),
    "the other end in use": ("ip addr add 198.18.5.1/24 dev xb", "", ""),
    "an address of its link alone": ("ip addr add fe80::5/64 dev xa", "", ""),
    "a group of IPv6's": ("ip -6 route add ff05::/16 dev xa table 100", "", ""),
    "a container's macvlan that is down": (
        'ip link add mv0 link xa type macvlan mode bridge; ip link set mv0 netns "$C"',
        "",
        "",
    ),
    "an address": (
        "ip addr add 198.18.5.1/32 dev xa",
        "xa carries an address",
        "xa carries the address 198.18.5.1",
    ),
    "a label": (
        "ip addr add 198.18.5.1/32 dev xa label xapub",
        "xa carries an address",
        "xa carries the address 198.18.5.1",
    ),
    "a label behind its name": (
        "ip addr add 198.18.5.1/32 dev xa label xa:pub",
        "xa carries an address",
        "xa carries the address 198.18.5.1",
    ),
    "an address of IPv6": (
        "ip addr add fd00::5/128 dev xa nodad",
        "xa carries a",
        "xa carries the ",
    ),
    "a route": (
        "ip route add 198.18.9.0/24 dev xa",
        "xa carries a route",
        "xa carries the route to 198.18.9.0/255.255.255.0",
    ),
    "the default route": (
        "ip route add default dev xa metric 9; ip addr add 198.18.5.1/24 dev xa",
        DEFAULT,
        DEFAULT,
    ),
    "a second next hop": ("ip route add default nexthop dev xb nexthop dev xa", DEFAULT, DEFAULT),
    "another table": ("ip route add default dev xa table 100", DEFAULT, DEFAULT),
    "another table's route": (
        "ip route add 198.18.9.0/24 dev xa table 100",
        "xa carries a route",
        "xa carries the route to 198.18.9.0/",
    ),
    "a table of the host's own": ("ip route add local 198.18.5.7 dev xa table local", "", ""),
    "a group of next hops": (f"{GROUP}; ip -6 route add default nhid 10", DEFAULT, DEFAULT),
    "a group by its number": (
        f"{GROUP}; {NUMBERS}; ip -6 route add default nhid 10",
        DEFAULT,
        DEFAULT,
    ),
    "a next hop by its number": (
        f"ip nexthop add id 3 dev xa; {NUMBERS}; ip route add 198.18.9.0/24 nhid 3 table 100",
        "xa carries a route",
        "xa carries the route to 198.18.9.0/",
    ),
    "another's next hop by its number": (
        f"ip nexthop add id 3 dev xa; ip nexthop add id 4 dev xb; {NUMBERS}"
        "; ip route add default nhid 4",
        "",
        "",
    ),
    "filters of tc": (
        "tc qdisc add dev xa clsact",
        *["qdisc of tc is on xa"] * 2,
    ),
    "filters of tc, an older way": (
        "tc qdisc add dev xa ingress",
        *["qdisc of tc is on xa"] * 2,
    ),
    "another's filters": ("tc qdisc add dev xb clsact", "", ""),
    "a VLAN": ("ip link add link xa name xv type vlan id 5", "xv stands on xa", "xv stands on xa"),
    "a vxlan": (
        "ip link add xv type vxlan id 5 dev xa dstport 4789",
        "xv stands on xa",
        "xv stands on xa",
    ),
    "a macvlan on a container's of its number": (
        'ip -n "$C" link add name xc index "$N" type veth peer name xd'
        '; ip -n "$C" link add mv0 link xc type macvlan; ip -n "$C" link set mv0 netns "$S"',
        "",
        "",
    ),
    "a macvlan": (
        "ip link add mv0 link xa type macvlan mode bridge; ip link set mv0 up",
        "mv0 stands on xa",
        "mv0 stands on xa",
    ),
    "a container's macvlan": (
        'ip link add mv0 link xa type macvlan mode bridge; ip link set mv0 netns "$C"'
        '; ip -n "$C" link set mv0 up',
        ABOVE,
        ABOVE,
    ),
    "a bridge": (
        "ip link add xbr type bridge; ip link set xa master xbr",
        "xbr stands on xa",
        "xbr stands on xa",
    ),
    "a raw socket": ("", "xa carries another process's raw socket", "has a raw socket on xa"),
    "a capture": ("", ABOVE, ABOVE),
}
DOCTOR = """
from pathlib import Path
from replay_server.observe.interfaces import lost_with
print("; ".join(lost_with(Path("/"), "xa")))
"""


@contextmanager
def used(use: str) -> Iterator[None]:
    """The server's namespace with xa, used so."""
    other = f"{the_pair().server.namespace}-other"
    names = os.environ | {"C": other, "S": the_pair().server.namespace}
    made = "ip link add xa type veth peer name xb; ip link set xa up; ip link set xb up"
    made += "; N=$(ip -o link show xa | cut -d: -f1)"
    with inside(the_pair().server), ExitStack() as stack:
        ip("netns", "add", other)
        stack.callback(ip, "netns", "del", other)
        stack.callback(subprocess.run, ["ip", "link", "del", "xbr"], capture_output=True)
        stack.callback(ip, "link", "del", "xa")
        stack.callback(COMPATIBLE.write_text, COMPATIBLE.read_text())
        done = ["sh", "-ec", f"{made}; {USES[use][0]}"]
        made = subprocess.run(done, env=names, capture_output=True, text=True, timeout=WAIT_S)
        if re.search("Unknown device type|Specified qdisc kind is unknown", made.stderr):
            pytest.skip(f"left out: this kernel makes no such thing as {use}")
        assert made.returncode == 0, made.stderr
        if use in ("a raw socket", "a capture"):
            words = [sys.executable, "-c", LISTENS, use.split()[1]]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            listener = stack.enter_context(subprocess.Popen(words, **pipes))
            assert listener.stdout.readline() == "listens\n"
        yield


def said_by_script(tree: Tree) -> str:
    """What deploy/nic.sh finds of xa, the interface of a card in that tree."""
    command = ["sh", str(SCRIPT), "bind", CARD, "--dry-run", "--root", str(tree.root)]
    done = subprocess.run(
        the_pair().server.inside(command), capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == (2 if done.stderr else 0), done
    return done.stderr


@pytest.mark.parametrize("use", USES)
def test_one_rule_is_asked_by_all_three(use, tmp_path):
    """Given an interface that is used in some way. Expect AF_XDP's look, doctor's and nic.sh's to
    say it, each in its words; and of one that is free, AF_XDP to serve and the others nothing."""
    _, look, others = USES[use]
    tree = tree_of_xa(tmp_path)
    url = f"dpdk://198.18.5.9:{PORT}?vdev=net_af_xdp,iface=xa&probe=off"
    with used(use):
        words = the_pair().server.inside([sys.executable, "-c", DOCTOR])
        told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=WAIT_S)
        said = said_by_script(tree)
        assert others in told.stdout and bool(told.stdout.strip()) == bool(others)
        assert others in said and bool(said) == bool(others)
        if look:
            with pytest.raises(ReplayError, match=f"{look}.*, and AF_XDP takes every frame"):
                Server((plain(),), url, insecure=True)
        else:
            Server((plain(),), url, insecure=True).close()


# Refuses one kind of netlink's questions, with an errno; and has procfs tell of a PPPoE session.
KERNEL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
ssize_t send(int file, const void *data, size_t size, int flags)
{
    const char *refused = getenv("REFUSED");
    struct nlmsghdr head = {0};
    memcpy(&head, data, size < sizeof head ? size : sizeof head);
    if (refused && head.nlmsg_len == size && head.nlmsg_type == atoi(refused)) {
        errno = getenv("ERRNO") ? atoi(getenv("ERRNO")) : EPERM;
        return -1;
    }
    return sendto(file, data, size, flags, NULL, 0);
}
FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
    const char *sessions = strstr(path, "/net/pppoe") ? getenv("SESSIONS") : NULL;
    return real(sessions ? sessions : path, mode);
}
FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }
"""
SESSIONS = "Id       Address              Device\n00000100 00:11:22:33:44:55     {}\n"
UNTOLD = "the kernel does not tell what it carries"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ("REFUSED=22", UNTOLD),  # RTM_GETADDR
        ("REFUSED=26", UNTOLD),  # RTM_GETROUTE
        ("REFUSED=38", UNTOLD),  # RTM_GETQDISC
        ("REFUSED=38 ERRNO=95", "opened"),  # of a kernel without CONFIG_NET_SCHED
        ("xa", "xa carries a PPPoE session"),
        ("xb", "opened"),
    ],
)
def test_a_kernel_that_does_not_tell_is_no_free_interface(changed, says, tmp_path):
    """Given one that refuses to list addresses, routes, or qdiscs, or has no qdiscs; and one with
    a PPPoE session there, or elsewhere. Expect AF_XDP refused with that, and to serve beside the
    last, and where there are no qdiscs."""
    library = tmp_path / "kernel.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=KERNEL, text=True, check=True)
    (tmp_path / "sessions").write_text(SESSIONS.format(changed))
    env = ["env", f"LD_PRELOAD={library}", f"SESSIONS={tmp_path / 'sessions'}"]
    url = f"dpdk://198.18.5.9:{PORT}?vdev=net_af_xdp,iface=xa&probe=off"
    with used("nothing"):
        assert says in told("server", url, *env, *(changed.split() if "=" in changed else []))


def test_a_raw_socket_of_our_own_is_no_use_of_others():
    """Given one that this very process has there. Expect AF_XDP to serve beside it."""
    with used("nothing"), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as own:
        own.bind(("xa", 3))
        url = f"dpdk://198.18.5.9:{PORT}?vdev=net_af_xdp,iface=xa&probe=off"
        Server((plain(),), url, insecure=True).close()
