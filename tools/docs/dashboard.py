"""Prints monitoring/klog-dashboard.json, a dashboard of Grafana, from dashboard_rows.py."""

import json
from typing import Any

from tools.docs.dashboard_rows import SECTIONS, Panel, Query

_OF = 'job="$job",instance=~"$instance"'
_WIDTH = 8
_HEIGHT = 7
_COLUMNS = 24 // _WIDTH
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_expressions() -> list[str]:
    """Return all expressions of the dashboard."""
    return [
        _expression(query)
        for section in SECTIONS
        for panel in section.panels
        for query in panel.queries
    ]


def dashboard() -> str:
    """monitoring/klog-dashboard.json."""
    panels: list[dict[str, Any]] = []
    at = 0
    for section in SECTIONS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": section.title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": at},
                "panels": [],
            }
        )
        at += 1
        for number, panel in enumerate(section.panels):
            line, column = divmod(number, _COLUMNS)
            place = {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": at + line * _HEIGHT}
            panels.append(_graph(panel, len(panels) + 1, place))
        at += -(-len(section.panels) // _COLUMNS) * _HEIGHT
    return json.dumps(_DASHBOARD | {"panels": panels}, indent=2) + "\n"


def _graph(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _SOURCE,
                "expr": _expression(query),
                "legendFormat": query.legend,
            }
            for position, query in enumerate(panel.queries)
        ],
    }


def _expression(query: Query) -> str:
    return query.expression.replace("OF}", _OF + "}")


def _variable(name: str, label: str, query: str, *, is_multiple: bool) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": is_multiple,
        "includeAll": is_multiple,
    }


_DASHBOARD: dict[str, Any] = {
    "title": "klog",
    "uid": "klog",
    "description": "Brokers of klog: docs/metrics.md explains the metrics.",
    "tags": ["klog", "kafka"],
    "schemaVersion": 39,
    "version": 1,
    "editable": True,
    "timezone": "browser",
    "refresh": "30s",
    "time": {"from": "now-3h", "to": "now"},
    "templating": {
        "list": [
            {
                "name": "datasource",
                "label": "Prometheus",
                "type": "datasource",
                "query": "prometheus",
            },
            _variable("job", "Job", "label_values(klog_build_info, job)", is_multiple=False),
            _variable(
                "instance",
                "Broker",
                'label_values(klog_build_info{job="$job"}, instance)',
                is_multiple=True,
            ),
        ]
    },
}
