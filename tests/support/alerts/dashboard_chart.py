"""Draws monitoring/klog-dashboard.json with the values that Prometheus has of a real cluster.

``./dev python -m tests.support.alerts.dashboard_chart`` writes docs/images/dashboard.png after
ten minutes of load, in which a broker is killed and started again.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.support.alerts.prometheus import Prometheus
from tests.support.repo.documents import ROOT

DASHBOARD = ROOT / "monitoring" / "klog-dashboard.json"
CHART = ROOT / "docs" / "images" / "dashboard.png"

_VARIABLES = {"$job": "klog", "$instance": ".*"}
_METRICS_PORT = re.compile(r"serving metrics host=127\.0\.0\.1 port=(\d+)")
_LOAD_S = 600.0
_SETTLE_S = 6.0  # three scrapes
_DRAWN_LINES = 9
_COLUMNS = 24


@dataclass(frozen=True)
class DrawnPanel:
    """A panel of the dashboard with its place in Grafana's grid, and its lines by their legends:
    times in seconds since the beginning, and values."""

    title: str
    place: Mapping[str, int]
    lines: Mapping[str, tuple[list[float], list[float]]]


def load_cluster(folder: Path, load_s: float) -> list[DrawnPanel]:
    """Let clients use three brokers for ``load_s`` seconds; return the panels with their values. A
    third of the time before the end a broker is killed, and started again later."""
    settings = {"metrics_listener": "127.0.0.1:0", "zookeeper_session_timeout_ms": 3_000}
    with testing.KlogCluster(3, **settings) as cluster, Prometheus(folder) as prometheus:
        _scrape(cluster, prometheus)
        begin_s = time.time()
        with _Clients(cluster.bootstrap_servers) as clients:
            clients.run(load_s * 0.6)
            cluster.broker(2).kill()
            clients.run(load_s * 0.2)
            cluster.broker(2).start()
            _scrape(cluster, prometheus)
            clients.run(load_s * 0.2 + _SETTLE_S)
        return [_drawn(panel, prometheus, begin_s, time.time()) for panel in _panels()]


def draw(panels: list[DrawnPanel], path: Path) -> None:
    """Write the chart; the path's suffix chooses the file format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import EngFormatter

    height = max(each.place["y"] + each.place["h"] for each in panels)
    figure = plt.figure(figsize=(13, 0.3 * height))
    for panel in panels:
        place = panel.place
        left, width = place["x"] / _COLUMNS, place["w"] / _COLUMNS
        bottom = 1 - (place["y"] + place["h"]) / height
        if not panel.lines and place["h"] == 1:
            figure.text(0.005, bottom, panel.title, fontsize=11, weight="bold")
            continue
        axes = figure.add_axes(
            (left + 0.04, bottom + 1.6 / height, width - 0.05, (place["h"] - 2.6) / height)
        )
        for legend, (times, values) in list(panel.lines.items())[:_DRAWN_LINES]:
            axes.plot(times, values, label=legend or panel.title, linewidth=1)
        axes.set_title(panel.title, fontsize=8, loc="left")
        axes.tick_params(labelsize=6)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(
                fontsize=5, ncol=3, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.1)
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=70)
    plt.close(figure)


class _Clients:
    """A producer, a consumer in a group, and a transactional producer, which each send or read some
    records ten times a second."""

    def __init__(self, servers: str) -> None:
        self._servers = {"bootstrap.servers": servers}
        self._producer = Producer({**self._servers, "acks": "all"})
        self._transactional = Producer({**self._servers, "transactional.id": "payments"})
        self._consumer = Consumer(
            {**self._servers, "group.id": "billing", "auto.offset.reset": "earliest"}
        )

    def __enter__(self) -> _Clients:
        topics = [NewTopic(name, 6, 3) for name in ("orders", "payments")]
        topics.append(NewTopic("customers", 3, 3, {"cleanup.policy": "compact"}))
        with Admin(self._servers["bootstrap.servers"]) as admin:
            admin.create_topics(topics)
        self._transactional.init_transactions(60)
        self._consumer.subscribe(["orders", "payments"])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._producer.flush(60)

    def run(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for number in range(5):
                self._producer.produce("orders", b"x" * 500, b"key-%d" % number)
                self._producer.produce("customers", b"y" * 100, b"key-%d" % number)
            self._producer.poll(0)
            self._transactional.begin_transaction()
            self._transactional.produce("payments", b"z" * 200)
            self._transactional.commit_transaction(60)
            self._consumer.consume(50, timeout=0.1)


def _scrape(cluster: testing.KlogCluster, prometheus: Prometheus) -> None:
    """Scrape each broker at the port that its last start has opened."""
    ports = {
        f"broker-{number}": int(_METRICS_PORT.findall(broker.output())[-1])
        for number, broker in enumerate(cluster.brokers, 1)
    }
    prometheus.scrape(ports)


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return panels


def _drawn(
    panel: dict[str, Any], prometheus: Prometheus, begin_s: float, end_s: float
) -> DrawnPanel:
    lines = {}
    for target in panel.get("targets", ()):
        expression = target["expr"]
        for name, value in _VARIABLES.items():
            expression = expression.replace(name, value)
        for labels, points in prometheus.query_range(expression, begin_s, end_s):
            times = [at_s - begin_s for at_s, _ in points]
            legend = "".join(_filled(target["legendFormat"], labels))
            lines[legend] = times, [value for _, value in points]
    return DrawnPanel(panel["title"], panel["gridPos"], lines)


def _filled(legend: str, labels: Mapping[str, str]) -> Iterator[str]:
    """The parts of a legend, in which ``{{name}}`` stands for the value of a label."""
    for part in re.split(r"(\{\{\w+\}\})", legend):
        yield labels.get(part[2:-2], "") if part.startswith("{{") else part


def main() -> None:
    """Write the chart of docs/metrics.md."""
    with tempfile.TemporaryDirectory(prefix="klog-prometheus-") as folder:
        draw(load_cluster(Path(folder), _LOAD_S), CHART)


if __name__ == "__main__":
    main()
