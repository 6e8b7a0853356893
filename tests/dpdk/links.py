"""Several links of one process on one device of DPDK's, past the kernel of their network namespace.

A client, its writers and other clients of the same process share a device: opened and closed in any
order, from any thread, each driven by its own. A test starts its server in this process; what its
clients do is a function at the end of this file, run in a process of the other namespace.

    make test-dpdk-veth, as root
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from conformance import ROWS, SMALL, Episodes, plain_rows, table
from namespaces import INTERFACE, SERVER, inside, leaked_mbufs, on, the_pair
from reasons import checksum

from replay_server import Client, ForkedError, NStep, ReplayError, Server, Table
from replay_server.bench.namespaces import Pair

KINDS = ("af_packet", "af_xdp")
PORT, OWN = 7400, "198.18.0.9"  # of all links of the process in the client's namespace
ASKER = "198.18.0.77"  # nobody's: frames made by hand come from there
WAIT_S = 20.0


@contextmanager
def serving(kind: str) -> Iterator[Server]:
    """A server past the kernel, of a table of steps and one of plain rows."""
    plain = Table("plain", step=ROWS, capacity=1 << 16, writers=32)
    tables = table(plan=NStep(1)), plain
    url = f"dpdk://{SERVER}:{PORT}?{on(kind)}"
    with inside(the_pair().server):
        server = Server(tables, url, insecure=True, sessions=32)
    with server:
        yield server


def device(kind: str, more: str = "") -> str:
    """The URL of a client on a device of its own."""
    return f"dpdk://{SERVER}:{PORT}?{on(kind)},ip={OWN}{more}"


@contextmanager
def doing(what: str, *words: str, at: Pair | None = None) -> Iterator[subprocess.Popen]:
    """A function of this file, in a process of the client's namespace."""
    command = (at or the_pair()).client.inside([sys.executable, __file__, what, *words])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def done(what: str, *words: str) -> str:
    """What it printed; it ended well."""
    with doing(what, *words) as process:
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, printed
    return printed


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def test_an_actor_pushes_and_a_learner_samples_on_one_device(kind):
    """Given a client, its writer and another client of one process. Expect what the writer pushed
    to be stored, and drawn by both."""
    with serving(kind) as server:
        assert done("act_and_learn", device(kind)).split() == ["acted", "64", "64"]
        counters = server.counters()
        assert counters["steps_committed"] >= 300 and counters["sessions_opened"] == 3


def test_three_actors_and_a_learner_are_threads_of_one_process(kind):
    """Given three threads that play and push and one that learns, seven links on one device. Expect
    every row stored, batches drawn meanwhile, and nothing sent to a link that nobody has."""
    with serving(kind) as server:
        rows, drawn, closed = map(int, done("act_as_three", device(kind)).split())
        counters = server.counters()
        assert counters["steps_committed"] == rows > 3 * 4 * 200 and drawn >= 50 and closed == 0


def test_links_come_and_go_in_any_order_from_four_threads(kind):
    """Given clients and writers opened, used and closed at random by four threads. Expect each
    row where its thread put it, no session left, no mbuf missing and the device closed at last."""
    with serving(kind) as server:
        pushed, asked = map(int, done("come_and_go", device(kind), "11").split())
        counters = server.counters()
        assert counters["steps_committed"] == pushed > 0 and counters["items_sampled"] >= asked > 0
        assert counters["sessions_opened"] == counters["sessions_closed"]


def test_a_link_that_never_looks_costs_the_others_nothing(kind):
    """Given a link that asked for batches and does not look, on a device of few mbufs. Expect the
    other link to push and sample meanwhile, what was not looked at to be counted for the silent
    one alone, and it to have its batches once it looks."""
    with serving(kind):
        told = done("be_silent", device(kind, ",mbufs=64"))
        overflowed, others, drawn = map(int, told.split())
        assert overflowed > 0 and others == 0 and drawn == 4 * 500


def test_the_host_answers_once_however_many_links_it_has():
    """Given three links on a device. Expect one answer to each ARP question and each ping."""
    with serving("af_packet"), doing("look_on", device("af_packet"), "3") as process:
        assert process.stdout.readline().strip() == "looking"
        with inside(the_pair().server), raw_socket() as wire:
            mine = mac_of_here()
            wire.send(question(mine))
            _, its = answered(wire)
            for _ in range(ASKED):
                wire.send(question(mine))
            for number in range(ASKED):
                wire.send(ping(mine, its, number))
            answers = {"arp": 0, "echo": 0}
            while min(answers.values()) < ASKED:
                answers[answered(wire)[0]] += 1
            wire.send(ping(mine, its, ASKED))  # what comes before this one's answer is one too many
            while answered(wire)[0] != "echo":
                answers["arp"] += 1
        assert answers == {"arp": ASKED, "echo": ASKED}


WRONG = {
    "ip=198.18.0.10": "ip=198.18.0.9,mbufs=4095,mtu=1400 and no vlan=: say the same",
    f"ip={OWN},vlan=7": "no vlan=: say the same, or use another device",
    f"ip={OWN},mbufs=100": "mbufs=4095.*say the same",
    f"ip={OWN},mtu=1024": "mtu=1400.*say the same",
}


def test_links_that_cannot_share_are_told_why(kind):
    """Given links that disagree with those on the device, one too many, a server beside clients and
    clients beside a server. Expect a sentence each, and the links that are there to go on."""
    with serving(kind):
        other = next(name for name in KINDS if name != kind)
        told = done("disagree", kind, *WRONG, f"vdev={other}").splitlines()
        for line, sentence in zip(told, [*WRONG.values(), f"(net_{kind})"], strict=False):
            assert re.search(sentence, line) or sentence in line, line
        assert "16 links of this process share that device" in told[-4]
        assert "mbufs=8 is too few for 2 links" in told[-3]
        assert "clients of this process have that device open: serve in another" in told[-2]
        assert "that device is served in this process" in told[-1]
        assert len(told) == len(WRONG) + 5


def test_a_fork_has_none_of_its_parents_links(kind):
    """Given two links and a fork between their calls. Expect the child to be told so and to end in
    peace, and the parent to go on with both."""
    with serving(kind):
        assert done("fork", device(kind)).split() == ["forked", "forked", "ended", "0", "400"]


def test_a_device_that_goes_is_told_to_all_its_links(kind):
    """Given an interface that is deleted under two links and a writer. Expect each call under way
    and each later one to say so at once, and all to close."""
    with Pair() as pair:
        with inside(pair.server):
            server = Server(
                (table(plan=NStep(1)),), f"udp://{pair.server.address}:{PORT}", insecure=True
            )
        with (
            server,
            doing("lose", device(kind).replace(SERVER, pair.server.address), at=pair) as end,
        ):
            assert end.stdout.readline().strip() == "there"
            with inside(pair.client):
                subprocess.run(["ip", "link", "del", INTERFACE], check=True, timeout=WAIT_S)
            told, _ = end.communicate(timeout=2 * WAIT_S)
        assert told.split() == ["sampling", "pinging", "adding", "closed"], told


def test_a_server_whose_interface_is_deleted_says_so_and_ends(kind):
    """Given a server past the kernel and its interface deleted. Expect a sentence, no silence."""
    with Pair() as pair, doing("serve_on", kind, at=pair) as server:
        assert server.stdout.readline().strip() == "serving"
        with inside(pair.client):
            subprocess.run(["ip", "link", "del", INTERFACE], check=True, timeout=WAIT_S)
        told, _ = server.communicate(timeout=WAIT_S)
        assert told.startswith(f"the interface {INTERFACE} is gone"), told
        assert told.endswith("closed\n") and server.returncode == 0


@pytest.mark.parametrize("mbufs", [8, 200, 1500])
def test_every_mbuf_of_a_small_pool_carries_frames(kind, mbufs):
    """Given devices of few mbufs. Expect rows stored and drawn: none lies where the kernel cannot
    reach it, and several threads' caches leave some."""
    with serving(kind):
        assert done("act_and_learn", device(kind, f",mbufs={max(mbufs, 24)}")).split()[0] == "acted"
        assert done("push_one_by_one", device(kind, f",mbufs={mbufs}")).strip() == "2000"


@pytest.mark.parametrize("mbufs", [64, 4095])
def test_threads_that_live_on_leave_mbufs_to_those_that_come(kind, mbufs):
    """Given 100 threads over two links, each with frames enough for a cache of its own, none of
    which ends. Expect the weights in each thread's hands, and in the main one's."""
    with serving(kind):
        assert done("live_on", device(kind, f",mbufs={mbufs}"), "100").strip() == "101"


# -- frames made by hand, in the server's namespace ------------------------------------------------

ASKED, SO_RCVBUFFORCE = 20, 33


@contextmanager
def raw_socket() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as opened:
        opened.bind((INTERFACE, 0))
        opened.settimeout(WAIT_S)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)  # it hears the links' own too
        yield opened


def mac_of_here() -> bytes:
    shown = subprocess.run(
        ["ip", "-br", "link", "show", INTERFACE], capture_output=True, text=True, check=True
    )
    return bytes.fromhex(shown.stdout.split()[2].replace(":", ""))


def question(mine: bytes) -> bytes:
    """Who has the links' address?"""
    fixed = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1)
    asked = mine + socket.inet_aton(ASKER) + bytes(6) + socket.inet_aton(OWN)
    return (b"\xff" * 6 + mine + b"\x08\x06" + fixed + asked).ljust(60, b"\0")


def ping(mine: bytes, its: bytes, number: int) -> bytes:
    body = struct.pack(">BBHHH", 8, 0, 0, 9, number) + b"ping"
    body = body[:2] + struct.pack(">H", checksum(body)) + body[4:]
    ends = socket.inet_aton(ASKER) + socket.inet_aton(OWN)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0x4000, 64, 1, 0) + ends
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    return (its + mine + b"\x08\x00" + head + body).ljust(60, b"\0")


def answered(wire: socket.socket) -> tuple[str, bytes]:
    """What the links answered to ASKER next, and from which MAC address."""
    asker, own, end = socket.inet_aton(ASKER), socket.inet_aton(OWN), time.monotonic() + WAIT_S
    while True:
        assert time.monotonic() < end, "no answer"
        frame = wire.recv(2048)
        if frame[12:14] == b"\x08\x06" and frame[21] == 2 and frame[28:32] == own:
            if frame[38:42] == asker:
                return "arp", frame[6:12]
        elif frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[26:34] == own + asker:
            return "echo", frame[6:12]


# -- what the processes of the other namespace do --------------------------------------------------


def act_and_learn(url: str) -> None:
    play = Episodes(SMALL, 3, seed=1)
    with Client(url, timeout=WAIT_S) as client, Client(url, timeout=WAIT_S) as learner:
        with client.writer("main", 3, autoreset="disabled") as writer:
            for _ in range(100):
                writer.add_batch(**play.step())
            writer.flush()
        print("acted", len(client.sample("main", 64)), len(learner.sample("main", 64)))


def push_one_by_one(url: str) -> None:
    with Client(url, timeout=WAIT_S) as client:
        for seed in range(10):
            rows = plain_rows(200, seed)
            keys = client.extend("plain", rows)
            assert np.array_equal(client.get("plain", keys)["x"][:, 0], rows["x"])
        print(client.size("plain"))


def act_as_three(url: str) -> None:
    """Prints the rows stored, the batches drawn, and frames to ports that no link had."""
    stored, drawn, playing = [], 0, threading.Event()

    def act(number: int, client: Client) -> None:
        play = Episodes(SMALL, 4, seed=number)
        with client.writer("main", 4, autoreset="disabled") as writer:
            for _ in range(200):
                writer.add_batch(**play.step())
                playing.set()
            stored.append(writer.flush().steps_stored)

    with ExitStack() as open_:
        clients = [open_.enter_context(Client(url, timeout=WAIT_S)) for _ in range(4)]
        actors = [threading.Thread(target=act, args=(i, clients[i])) for i in range(3)]
        for actor in actors:
            actor.start()
        playing.wait(WAIT_S)
        batches = open_.enter_context(contextlib.closing(clients[3].batches("main", 64)))
        while drawn < 50 or any(actor.is_alive() for actor in actors):
            assert len(next(batches)) == 64
            drawn += 1
        for actor in actors:
            actor.join()
        facts = [fact for client in clients for fact in client.facts()]
        closed = sum(fact.value for fact in facts if fact.name == "closed_port")
    print(sum(stored), drawn, closed)


def come_and_go(url: str, seed: str) -> None:
    """Prints how many rows were pushed and how many were asked for."""
    pushed, asked, failed = [], [], []
    held = Client(url, timeout=WAIT_S)  # so that the device outlives some of the threads' links

    def work(thread: int) -> None:
        rng = random.Random(1000 * int(seed) + thread)
        try:
            with ExitStack() as unexpected:
                for round_ in range(8):
                    links = [Client(url, timeout=WAIT_S) for _ in range(rng.randint(1, 2))]
                    for client in links:
                        unexpected.callback(client.close)
                    rng.shuffle(links)
                    for client in links:
                        rows = plain_rows(rng.randint(1, 400), rng.randrange(1 << 20))
                        keys = client.extend("plain", rows)
                        batch = client.get("plain", keys)
                        assert batch.valid.all()
                        assert np.array_equal(batch["x"][:, 0], rows["x"]), "another one's answer"
                        pushed.append(len(keys))
                        asked.append(len(client.sample("plain", 200)))
                    for client in links:
                        client.close()
                    if thread == round_ == 3:
                        held.close()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and leaked_mbufs() == 0
    with Client(url, timeout=WAIT_S) as again:  # the device was closed, and opens anew
        assert again.size("plain") == min(sum(pushed), 1 << 16)
    assert leaked_mbufs() == 0
    print(sum(pushed), sum(asked))


def live_on(url: str, count: str) -> None:
    """Prints in how many threads, this one too, the weights were pulled."""
    with Client(url, timeout=WAIT_S) as one, Client(url, timeout=WAIT_S) as other:
        weights, over, had = random.Random(7).randbytes(1 << 19), threading.Event(), []
        one.publish_weights(weights)

        def pull(client: Client, done: threading.Event | None = None) -> None:
            try:
                had.append(client.pull_weights()[1] == weights)
            finally:
                if done is not None:
                    done.set()
                    over.wait(WAIT_S)

        threads = []
        for number in range(int(count)):
            done = threading.Event()
            threads.append(threading.Thread(target=pull, args=((one, other)[number % 2], done)))
            threads[-1].start()
            done.wait(WAIT_S)
            if len(had) <= number:
                break
        pull(one)
        over.set()
        for thread in threads:
            thread.join()
        print(had.count(True))


def be_silent(url: str) -> None:
    """Prints what overflowed of the silent link's, of the other one's, and what was drawn."""
    with Client(url, timeout=WAIT_S) as busy, Client(url, timeout=WAIT_S) as silent:
        busy.extend("plain", plain_rows(2000))
        batches = silent.batches("plain", 500, prefetch=4, pump=False)  # asked for at once
        for seed in range(20):
            rows = plain_rows(200, seed)
            keys = busy.extend("plain", rows)
            assert np.array_equal(busy.get("plain", keys)["x"][:, 0], rows["x"])
            assert len(busy.sample("plain", 300)) == 300
        facts = [fact.value for link in (silent, busy) for fact in link.facts()
                 if fact.name == "ring_full"]  # fmt: skip
        print(*facts, sum(len(next(batches)) for _ in range(4)))


def look_on(url: str, count: str) -> None:
    """Links that look at their device until their process is ended."""
    links = [Client(url, timeout=WAIT_S) for _ in range(int(count))]

    def look(client: Client) -> None:
        while True:
            client.ping()

    for client in links:
        threading.Thread(target=look, args=(client,), daemon=True).start()
    print("looking", flush=True)
    sys.stdin.read()


def lose(url: str) -> None:
    """Says what was told that the device is gone. A call that is not told waits for its timeout,
    which is longer than the test waits for this process."""
    client, other = (Client(url, timeout=10 * WAIT_S) for _ in range(2))
    writer = client.writer("main")
    step = {"action": 0, "reward": 0.0, "terminated": False, "truncated": False}

    def meet(what: str, call: Callable[[], Any]) -> None:
        with pytest.raises(ReplayError, match="the network device was taken away"):
            while True:
                call()
        print(what, flush=True)

    other.ping()
    print("there", flush=True)
    meet("sampling", partial(other.sample, "main", 1))  # nothing is there: it waits
    meet("pinging", client.ping)
    meet("adding", lambda: (writer.add(observation=np.zeros(3), **step), writer.flush()))
    with pytest.raises(ReplayError, match="the network device was taken away"):
        writer.close()
    with pytest.raises(ReplayError, match="this process still has it open: close its clients"):
        Client(url)
    client.close()
    other.close()
    with pytest.raises(ReplayError, match="there is no network interface"):
        Client(url)
    print("closed")


def serve_on(kind: str) -> None:
    """Serves until the device is gone, and says why."""
    url = f"dpdk://{SERVER}:{PORT}?{on(kind)}"
    with Server((table(),), url, insecure=True) as server:
        print("serving", flush=True)
        while not server.lost:
            time.sleep(0.01)
        print(server.lost)
    print("closed")


def refused(open_: Callable[[], Any]) -> None:
    """Prints why."""
    try:
        open_().close()
        print("it was opened")
    except ReplayError as error:
        print(str(error))


def disagree(kind: str, *wrong: str) -> None:
    base = f"dpdk://{SERVER}:{PORT}?{on(kind)}"
    with Client(device(kind), timeout=WAIT_S) as first:
        for words in wrong:
            if words.startswith("vdev="):
                refused(partial(Client, device(words.removeprefix("vdev="))))
            else:
                refused(partial(Client, f"{base},{words}"))
        with ExitStack() as others:
            for _ in range(15):
                others.enter_context(Client(device(kind), timeout=WAIT_S))
            refused(partial(Client, device(kind)))
            assert first.size("plain") == 0
    with Client(device(kind, ",mbufs=8"), timeout=WAIT_S):
        refused(partial(Client, device(kind, ",mbufs=8")))
    mine = base.replace(SERVER, "198.18.0.8")  # the other one is served elsewhere
    serve = partial(Server, (table(),), mine, insecure=True)
    with Client(device(kind), timeout=WAIT_S):
        refused(serve)
    with serve():
        refused(partial(Client, device(kind)))


def fork(url: str) -> None:
    """Prints what the child met, its exit status, and the rows stored by its parent."""
    with Client(url, timeout=WAIT_S) as one, Client(url, timeout=WAIT_S) as other:
        one.extend("plain", plain_rows(200))

        def live() -> None:
            for call in (partial(one.size, "plain"), partial(Client, url)):
                try:
                    call()
                except ForkedError:
                    print("forked", flush=True)
            one.close()
            other.close()
            print("ended", flush=True)

        child = multiprocessing.get_context("fork").Process(target=live)
        child.start()
        child.join(WAIT_S)
        other.extend("plain", plain_rows(200))
        print(child.exitcode, one.size("plain"))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
