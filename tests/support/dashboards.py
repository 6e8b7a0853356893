"""The queries that deploy/ ships: of the Grafana dashboard and of Prometheus' alert rules.

Shared by the quick test (every name exists) and by `make test-prometheus` (every query answers).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "replay-server.json"
ALERTS = DEPLOY / "prometheus_alerts.yml"


def dashboard_queries() -> list[tuple[str, str, str]]:
    """(panel, query, legend) of each target of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in panels
        for target in panel.get("targets", [])
    ]


def alert_queries() -> list[tuple[str, str]]:
    """(alert, query) of each rule, as the file is laid out: `alert:`, then `expr:`."""
    found = re.findall(
        r"- alert: (\w+)\n +expr: (\|\n(?: {10,}.*\n)+|.*\n)", ALERTS.read_text(), re.MULTILINE
    )
    return [(name, expression.removeprefix("|").strip()) for name, expression in found]


def metric_names(query: str) -> set[str]:
    """The names of metrics in a query."""
    return set(re.findall(r"\b(?:replay|process)_\w+", query))


def filled_in(query: str, window: str) -> str:
    """A dashboard's query as Grafana would send it, for every instance."""
    query = query.replace("$__rate_interval", window).replace("$instance", ".+")
    assert "$" not in query, query
    return query
