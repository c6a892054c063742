"""The metrics of a broker's connections, disks and cleaner."""

import pytest

from klog_broker.log.directory.free_space import MEASURE_INTERVAL_MS
from klog_broker.runtime.system import descriptors
from tests.support.cluster.broker import new_broker
from tests.support.monitoring.scraping import METRICS_LISTENER, Samples, scrape

FLOOR = 1_000_000
DATA = {"logdirectory": "/data"}
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def test_free_space_and_the_floor_of_each_directory() -> None:
    broker = new_broker(
        with_kernel=False,
        topics=("plain",),
        metrics_listener=METRICS_LISTENER,
        log_dir_min_free_bytes=FLOOR,
    )
    directory = "klog_log_directory"
    for free, refuses_records, refuses_state in (
        (2 * FLOOR, 0, 0),
        (FLOOR // 2, 1, 0),
        (FLOOR // 8, 1, 1),
    ):
        broker.files.free_bytes = free
        broker.pass_time(MEASURE_INTERVAL_MS + 100)
        found = scrape(broker)
        assert free - FLOOR // 8 < (value(found, f"{directory}_free_bytes", **DATA) or 0) <= free
        assert value(found, f"{directory}_min_free_bytes", **DATA) == FLOOR
        assert value(found, f"{directory}_refuses_records", **DATA) == refuses_records
        assert value(found, f"{directory}_refuses_state", **DATA) == refuses_state
        assert (value(found, f"{directory}_total_bytes", **DATA) or 0) > 2 * FLOOR


def test_the_free_space_is_shown_without_a_floor() -> None:
    broker = new_broker(
        with_kernel=False,
        topics=("plain",),
        metrics_listener=METRICS_LISTENER,
        log_dir_min_free_bytes=0,
    )
    name = "klog_log_directory_free_bytes"
    assert value(scrape(broker), name, **DATA) is None
    assert (value(scrape(broker), name, **DATA) or 0) > 0


def test_connections_are_counted_against_the_limit_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 128)
    broker = new_broker(with_kernel=False, topics=("plain",), metrics_listener=METRICS_LISTENER)
    found = scrape(broker)
    assert value(found, "klog_max_connections") == 128 - 128 // 3 - 64
    assert value(found, CONNECTIONS) == 0
    for _ in range(22):
        broker.connect()
    assert value(scrape(broker), CONNECTIONS) == 22


def test_the_time_since_the_cleaner_looked_for_a_log_stays_short_while_it_works() -> None:
    """Kafka's metric has this meaning: monitoring compares it with log.cleaner.backoff.ms."""
    broker = new_broker(with_kernel=False, topics=("plain",), metrics_listener=METRICS_LISTENER)
    name = "kafka_log_logcleanermanager_time_since_last_run_ms"
    for _ in range(10):
        broker.pass_time(60_000)
    assert (value(scrape(broker), name) or 0) < 20_000
