"""Several servers beside each other: whose options are whose, and `serve --shards`."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack

import pytest

from replay_server import Client
from replay_server.errors import ConfigError
from replay_server.observe.snapshot import EndpointSource
from replay_server.server import ServerOptions
from replay_server.serving.shards import shard_options

CARD = "dpdk://10.0.0.1:7400?port=0000:03:00.0"
URLS = {
    "udp://127.0.0.1:7400": "udp://127.0.0.1:7401",
    "udp://[::1]:7400?mtu=1024": "udp://[::1]:7401?mtu=1024",
    CARD: "dpdk://10.0.0.1:7401?port=0000:03:00.0&queues=2",
    f"{CARD},queues=2": "dpdk://10.0.0.1:7401?port=0000:03:00.0,queues=2",
    "dpdk://10.0.0.1:7400?vdev=net_af_packet,iface=a": (
        "dpdk://10.0.0.1:7401?vdev=net_af_packet,iface=a&queues=2"
    ),
    "dpdk://10.0.0.1:7400?vdev=net_ring": "dpdk://10.0.0.1:7401?vdev=net_ring",
}


@pytest.mark.parametrize("url", URLS)
def test_each_shard_has_its_own_port_and_a_card_its_queues(url):
    """Given a url. Expect the next port, the same device, and as many queues as shards."""
    first, second = shard_options(ServerOptions(url=url, seed=5, core=1), 2)
    assert (second.url, second.seed, second.core) == (URLS[url], 6, 2)
    assert first.url.replace(":7400", ":7401") == second.url and (first.seed, first.core) == (5, 1)
    if "queues=" not in url:
        assert shard_options(ServerOptions(url=url), 1) == (ServerOptions(url=url),)


@pytest.mark.parametrize(("queues", "count"), [(4, 1), (4, 2), (1, 2), (16, 1)])
def test_a_queue_without_a_shard_is_refused(queues, count):
    """Given queues that no shard reads, or shards that share one. Expect one sentence: clients
    there would get no answer, and nothing at the server would tell."""
    for device in ("port=0000:03:00.0", "vdev=net_af_packet,iface=a", "vdev=net_af_xdp,iface=a"):
        for sign in "&,":
            url = f"dpdk://10.0.0.1:7400?{device}{sign}queues={queues}"
            with pytest.raises(ConfigError, match=f"queues={queues} with shards = {count}: each"):
                shard_options(ServerOptions(url=url), count)


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://a", "udp://127.0.0.1:65535"])
def test_shards_need_ports(url):
    """Given shards at an address without ports enough, or too many of them. Expect ConfigError, and
    where there are, a region of its own for each."""
    with pytest.raises(ConfigError, match="each has a port of its own"):
        shard_options(ServerOptions(url=url), 2)
    with pytest.raises(ConfigError, match="expected 1 to 16"):
        shard_options(ServerOptions(url=url), 17)
    for memif in ("vdev=net_memif,role=server,socket=/run/x", "socket=/run/x&vdev=net_memif0"):
        with pytest.raises(ConfigError, match="a memif socket has one server"):
            shard_options(ServerOptions(url=f"dpdk://10.0.0.1:7400?{memif}"), 2)
    options = shard_options(ServerOptions(url="udp://127.0.0.1:7400", region="a"), 2)
    assert [each.region for each in options] == ["a.0", "a.1"]


def free_ports() -> int:
    """A port that is free, as is the one behind it."""
    for _ in range(100):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two:
                try:
                    two.bind(("127.0.0.1", port + 1))
                except (OSError, OverflowError):
                    continue
            return port
    raise AssertionError("no two free ports")


def test_serve_starts_both_and_stops_both():
    """Given serve --shards 2. Expect two servers that know nothing of each other, and one end."""
    port = free_ports()
    command = [sys.executable, "-m", "replay_server", "serve", "--env", "CartPole-v1"]
    command += ["--url", f"udp://127.0.0.1:{port}", "--shards", "2", "--seed", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = iter(process.stdout.readline, "")
        said = [next(line for line in lines if line.startswith("serving")) for _ in range(2)]
        assert [re.findall(r":(\d+) \(seed (\d)", line)[0] for line in said] == [
            (str(port), "3"),
            (str(port + 1), "4"),
        ]
        addresses = [f"udp://127.0.0.1:{port + i}" for i in range(2)]
        with Client(addresses[0]) as one, Client(addresses[1]) as two:
            assert one.stats().sessions == two.stats().sessions == 1
        process.send_signal(signal.SIGTERM)
        stopped = [line.split(":", 1)[0] for line in lines if line.startswith("stopped")]
        assert len(stopped) == 2 and process.wait(20) == 0


def test_shards_have_regions_and_one_metrics_endpoint(tmp_path):
    """Given serve --shards 2 with regions and metrics, killed, started again. Expect regions taken
    over, each series once for each shard, and `stats` at the endpoint to tell the sum."""
    pytest.importorskip("prometheus_client")
    port = free_ports()
    command = [sys.executable, "-m", "replay_server", "serve", "--env", "CartPole-v1"]
    command += ["--url", f"udp://127.0.0.1:{port}", "--shards", "2", "--seed", "3"]
    command += ["--region", str(tmp_path / "region"), "--metrics", "127.0.0.1:0"]
    for start in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = iter(process.stdout.readline, "")
            said = []
            while not (said and said[-1].startswith("metrics at")):
                said.append(next(lines))
            took = [line for line in said if line.startswith("took over")]
            assert len(took) == 2 * start, said
            url = said[-1].split()[-1]
            with ExitStack() as open_:
                for number, count in enumerate((1, 2)):
                    for _ in range(count):
                        address = f"udp://127.0.0.1:{port + number}"
                        open_.enter_context(Client(address)).ping()
                text = urllib.request.urlopen(url, timeout=30).read().decode()
                assert 'replay_sessions_open{shard="0"} 1.0' in text
                assert 'replay_sessions_open{shard="1"} 2.0' in text
                assert text.count("# TYPE replay_sessions_open ") == 1
                look = EndpointSource(url, 30.0).look()
                assert look.sessions_open == 3 and len(look.tables) == 1
                assert set(look.sessions) == {"0/0", "1/0", "1/1"}
                assert look.tables[0].capacity == 200_000
                assert "dropped_in" not in look.times and look.times["ping"][-1][1] >= 3
            process.kill()
