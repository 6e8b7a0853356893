"""A page that shows a run as it goes: `run --page 127.0.0.1:8080`, for a browser on this machine.

    /        the page, one file (page.html): nothing is fetched from elsewhere or can be changed
    /run     what does not change: the plan's processes and edges, a few settings
    /news    ?from=BYTE&said=N: lines of metrics behind that byte of metrics.jsonl, which programs
             run, and what was said since; the browser keeps the history

A look costs a read of what is new. scrapes.py bounds what whoever connects can cost. Requests that
name another host are refused: a page elsewhere cannot read this one through the browser.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from deploy.explain import carried
from deploy.graph import graph
from deploy.plan import Plan
from replay_server.errors import ConfigError
from replay_server.observe.metrics import only_here, split_address
from replay_server.observe.scrapes import ScrapeServer
from replay_server.training.presets import Preset
from replay_server.training.runs import METRICS

FILE = Path(__file__).with_name("page.html")
NEWS_MAX = 256 << 10  # bytes of metrics in an answer
SAID_MAX = 1000
HEADERS = [
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; "
     "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
     "frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]  # fmt: skip


def check_address(address: str) -> tuple[str, int]:
    """(host, port); ConfigError where it is none, or where other machines would reach it."""
    host, port = split_address(address, "--page:")
    if not only_here(host, "--page:"):
        raise ConfigError(
            f"--page {address}: other machines would reach it, and it has no password; say "
            f"127.0.0.1:{port}, and come to it by `ssh -L {port}:127.0.0.1:{port} HOST`"
        )
    return host, port


def page_at(address: str, number: int) -> str:
    """Where agent `number` has its page: the ports from the given one on; 0 and nowhere stay."""
    if not address:
        return ""
    host, port = check_address(address)
    named = f"[{host}]" if ":" in host else host
    return f"{named}:{port + number * (port > 0)}"


def require_free(address: str) -> None:
    """ConfigError where a page cannot be served at this address."""
    host, port = check_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ConfigError(
            f"--page {address}: {os.strerror(error.errno or 0)}; say another port, or 0 for any "
            "that is free"
        ) from error


def new_lines(path: Path, begin: int) -> tuple[list[dict[str, Any]], int, bool]:
    """Whole lines of the file behind that byte, where they end, and whether there are more."""
    if not path.exists():
        return [], 0, False
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(begin if 0 <= begin <= size else 0)
        begin = file.tell()
        data = file.read(NEWS_MAX)
    whole = data[: data.rfind(b"\n") + 1]
    lines = []
    for line in whole.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # what a kill cut short
    full = len(data) == NEWS_MAX
    end = begin + (len(whole) if whole or not full else len(data))  # no line is as long as that
    return lines, end, full


class Page:
    """Serves one run's page from when it is made until `close`. processes: asked for what runs,
    {name, kind, alive} each. ConfigError where the address is not to be had."""

    def __init__(
        self,
        address: str,
        folder: Path,
        plan: Plan,
        settings: Preset,
        *,
        seed: int,
        minutes: float,
        processes: Callable[[], list[dict[str, Any]]],
    ) -> None:
        host, port = check_address(address)
        self.path, self.processes = folder / METRICS, processes
        self.begin = time.time()
        self.said: list[dict[str, Any]] = []
        self.facts = {
            "folder": str(folder),
            "policy": plan.policy,
            "transport": plan.transport,
            "env": settings.env,
            "seed": seed,
            "minutes": minutes,
            "mark": settings.mark,
            "capacity": settings.capacity,
            "processes": [
                {
                    "name": process.name,
                    "fragments": process.fragments,
                    "replicas": process.replicas,
                    "device": process.device,
                }
                for process in plan.processes
            ],
            "edges": [
                {
                    "source": edge.source,
                    "target": edge.target,
                    "name": edge.name,
                    "by": carried(edge, plan),
                }
                for edge in graph().edges
            ],
        }
        try:
            self.http = ScrapeServer(host, port, self.answer, lambda: None)
        except OSError as error:
            raise ConfigError(f"--page {address}: {error.strerror or error}") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.http.server_port}/"

    def say(self, sentence: str) -> None:
        """An event of the run itself, with the time."""
        if len(self.said) < SAID_MAX:
            self.said.append({"time": time.time(), "event": "said", "said": sentence})

    def news(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """What is new behind what the browser has."""
        begin, said = (_number(query, name) for name in ("from", "said"))
        lines, end, more = new_lines(self.path, begin)
        return {
            "lines": lines,
            "next": end,
            "more": more,
            "said": self.said[said:],
            "said_next": len(self.said),
            "processes": self.processes(),
            "elapsed": time.time() - self.begin,
        }

    def answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """The WSGI program."""
        path, kind = environ.get("PATH_INFO", "/"), "application/json"
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", b"this page is only read"
        elif not is_here(environ.get("HTTP_HOST", "")):
            status, body = "403 Forbidden", b"asked under another name than this machine's own"
        elif path == "/":
            status, body, kind = "200 OK", FILE.read_bytes(), "text/html; charset=utf-8"
        elif path == "/run":
            status, body = "200 OK", json.dumps(self.facts).encode()
        elif path == "/news":
            news = self.news(parse_qs(environ.get("QUERY_STRING", "")))
            status, body = "200 OK", json.dumps(news).encode()
        else:
            status, body = "404 Not Found", b"there are /, /run and /news"
        if not status.startswith("200"):
            kind = "text/plain"
        start(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *HEADERS])
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]

    def close(self) -> None:
        """Serves no more."""
        self.http.close()


def is_here(host: str) -> bool:
    """Whether the Host of a request is this machine by a name that only it has."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.removeprefix("[").removesuffix("]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _number(query: dict[str, list[str]], name: str) -> int:
    """A count of the query; 0 where it is none."""
    word = query.get(name, ["0"])[0]
    return int(word) if word.isascii() and word.isdigit() and len(word) < 19 else 0
