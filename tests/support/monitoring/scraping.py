"""Scrapes the metrics of a broker in memory, and reads Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from klog_broker.monitoring.sources import Sources
from klog_broker.monitoring.text import MetricsText
from tests.support.cluster.broker import MemoryBroker

Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]

METRICS_LISTENER = "127.0.0.1:9404"
"""The setting metrics.listener of a broker in memory, whose second listener it then is."""


def parse_samples(text: str) -> Samples:
    """Return the values of a text of metrics, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def get(memory: MemoryBroker, path: str) -> tuple[int, str]:
    """Return the status and the body of the response to a GET request."""
    stream = memory.network.arrive(listener=1)
    stream.inbox += f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    memory.turns()
    head, _, body = bytes(stream.sent).partition(b"\r\n\r\n")
    stream.is_at_end = True
    memory.turns()
    return int(head.split()[1]), body.decode()


def scrape(memory: MemoryBroker) -> Samples:
    """Return the present metrics of a broker."""
    # The broker reuses a rendered text for a second.
    memory.pass_time(1001)
    status, text = get(memory, "/metrics")
    assert status == 200
    return parse_samples(text)


def section_samples(
    section: Callable[[Sources, MetricsText], Iterator[int]], **cluster: Any
) -> Samples:
    """Return the samples of one section of the metrics. ``cluster`` has the results of the methods
    of `MonitoredCluster` that the section calls."""
    methods = {name: lambda result=result: result for name, result in cluster.items()}
    sources: Any = SimpleNamespace(cluster=SimpleNamespace(**methods))
    text = MetricsText()
    for _ in section(sources, text):
        pass
    return parse_samples(b"".join(text.finish()).decode())
