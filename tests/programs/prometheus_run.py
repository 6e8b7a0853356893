"""A real Prometheus scrapes a demo run; every query of the dashboard has to return data.

    python tests/programs/prometheus_run.py --binaries DIR [--minutes 4]

DIR holds `prometheus` and `promtool`. promtool judges the configuration and the alert rules, with
deploy/prometheus_alerts_test.yml; then `deploy demo --metrics` runs, Prometheus scrapes it once a
second by deploy/prometheus.yml, and all queries are asked over its HTTP API until, while something
is drawn, each returns at least one finite number. Exit code 0: all did.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

from dashboards import ALERTS, DEPLOY, alert_queries, dashboard_queries, filled_in

ROOT = DEPLOY.parent
WINDOW = "30s"
LEARNING = "Per second: items drawn"  # has to be more than nothing when all is judged


def free_port() -> int:
    """A port nobody has; another program may take it first, and then the test says so."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def configured(folder: Path, target: str) -> Path:
    """deploy/prometheus.yml with this target, scraped once a second, beside its rules."""
    text = (DEPLOY / "prometheus.yml").read_text()
    for old, new in (('["127.0.0.1:9464"]', f'["{target}"]'), ("interval: 5s", "interval: 1s")):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / ALERTS.name).write_text(ALERTS.read_text())
    (folder / "prometheus.yml").write_text(text)
    return folder / "prometheus.yml"


def answers(url: str, query: str) -> list[float]:
    """The numbers an instant query returns."""
    asked = f"{url}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return [float(series["value"][1]) for series in result]


def ask_all(url: str, queries: dict[str, str]) -> dict[str, list[float]]:
    """The finite numbers of each query that returns any; nothing while Prometheus is starting."""
    try:
        told = {name: answers(url, query) for name, query in queries.items()}
    except OSError:
        return {}
    finite = {name: [n for n in numbers if math.isfinite(n)] for name, numbers in told.items()}
    return {name: numbers for name, numbers in finite.items() if numbers}


def judge_rules(promtool: Path) -> None:
    """promtool's own words about configuration and rules; raises where it is not content."""
    for words in (
        ("check", "config", DEPLOY / "prometheus.yml"),
        ("test", "rules", DEPLOY / "prometheus_alerts_test.yml"),
    ):
        subprocess.run([promtool, *map(str, words)], check=True)


def main() -> int:
    """Runs all three and judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4.0)
    args = parser.parse_args()
    judge_rules(args.binaries / "promtool")
    queries = {
        f"{panel}: {legend}": filled_in(query, WINDOW)
        for panel, query, legend in dashboard_queries()
    }
    seen: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="prometheus-") as scratch:
        folder = Path(scratch)
        target, own = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        commands = (
            [
                args.binaries / "prometheus",
                f"--config.file={configured(folder, target)}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={own}",
                "--log.level=error",
            ],
            [
                *(sys.executable, "-m", "deploy", "demo", "--seed", "1", "--metrics", target),
                *("--minutes", str(args.minutes), "--run", folder / "run"),
            ],
        )
        started = [subprocess.Popen(list(map(str, words)), cwd=ROOT) for words in commands]
        until = time.monotonic() + args.minutes * 60
        try:
            while time.monotonic() < until and started[1].poll() is None:
                threading.Event().wait(1.0)
                seen = ask_all(f"http://{own}", queries)
                if len(seen) == len(queries) and max(seen[LEARNING]) > 0.0:
                    break
            rules = {name: answers(f"http://{own}", query) for name, query in alert_queries()}
        finally:
            for process in reversed(started):
                process.send_signal(signal.SIGINT)
                process.wait(60)
    for name, numbers in seen.items():
        print(f"{name:60} {len(numbers):3} series, such as {numbers[0]:g}")
    missing = queries.keys() - seen.keys()
    for name in sorted(missing):
        print(f"NO DATA {name}: {queries[name]}")
    print(f"{len(rules)} alert rules evaluated; true now: {[n for n, v in rules.items() if v]}")
    print(f"prometheus: {len(seen)} of {len(queries)} dashboard queries returned data")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
