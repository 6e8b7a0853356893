"""Several servers beside each other: whose options are whose, and `serve --shards`."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import pytest

from replay_server import Client
from replay_server.errors import ConfigError
from replay_server.server import ServerOptions
from replay_server.shards import shard_options

CARD = "dpdk://10.0.0.1:7400?port=0000:03:00.0"
URLS = {
    "udp://127.0.0.1:7400": "udp://127.0.0.1:7401",
    "udp://[::1]:7400?mtu=1024": "udp://[::1]:7401?mtu=1024",
    CARD: "dpdk://10.0.0.1:7401?port=0000:03:00.0&queues=2",
    f"{CARD},queues=4": "dpdk://10.0.0.1:7401?port=0000:03:00.0,queues=4",
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
    assert shard_options(ServerOptions(url=url), 1) == (ServerOptions(url=url),)


@pytest.mark.parametrize("url", ["udp://127.0.0.1:0", "loopback://a", "udp://127.0.0.1:65535"])
def test_shards_need_ports(url):
    with pytest.raises(ConfigError, match="each has a port of its own"):
        shard_options(ServerOptions(url=url), 2)
    with pytest.raises(ConfigError, match="expected 1 to 16"):
        shard_options(ServerOptions(url=url), 17)
    with pytest.raises(ConfigError, match="memory of one server"):
        shard_options(ServerOptions(url="udp://127.0.0.1:7400", region="a"), 2)


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
