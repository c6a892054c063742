"""State that lives as long as a Python worker of Spark's: connections, metadata, memory."""

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks._load.spark_fill import Records, fill
from benchmarks._load.spark_jobs import MICRO_RECORDS
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.sink.dead_letters import TaskIds
from pyspark_klog.spark.sink.row_writer import SinkRows
from pyspark_klog.spark.source.rows import RangeReader
from pyspark_klog.spark.workers import clients
from pyspark_klog.testing import Broker

_CHECKOUT = Path(__file__).resolve().parents[2]
_MICRO_BATCHES = 400
_MOST_GROWTH_BYTES = 8_000_000


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(clients, "_clients", {})
    monkeypatch.setattr(clients, "_producers", {})
    # For ever: no matter for a worker, but for the process of the tests.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with Broker() as broker:
        yield broker
        for client in clients._clients.values():
            client.close()


def _create(broker: Broker, *topics: str) -> None:
    with BlockingClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        Admin(client=client).create_topics([NewTopic(topic, 4, 1) for topic in topics])


def _options(broker: Broker, **more: str) -> Options:
    return read_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **more})


def _read(options: Options, topic: str, end: int) -> list[int]:
    batches = RangeReader(options).read(OffsetRange(topic, 0, 0, end))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_tasks_of_a_worker_share_a_connection(broker: Broker) -> None:
    _create(broker, "t", "to")
    fill(broker.bootstrap_servers, "t", Records(400))
    source = _options(broker, subscribe="t").for_batch()
    sink = _options(broker, topic="to")
    for _ in range(3):
        batches = RangeReader(source).read(OffsetRange("t", 0, 0, 100))
        SinkRows(sink, TaskIds()).write(batch.select(["key", "value"]) for batch in batches)
    assert len(clients._clients) == len({source.client, sink.client}) == 1
    (client,) = clients._clients.values()
    (link,) = client.links
    assert link.connection.error is None
    assert len(clients._producers) == 1
    assert next(iter(clients._producers.values())).written_records == 300


def test_a_worker_outlives_its_broker(broker: Broker) -> None:
    """The broker restarts on its port, and all connections of earlier tasks are gone."""
    _create(broker, "t", "to")
    fill(broker.bootstrap_servers, "t", Records(400))
    source = _options(broker, subscribe="t").for_batch()
    sink = _options(broker, topic="to")

    def copy() -> int:
        batches = RangeReader(source).read(OffsetRange("t", 0, 0, 100))
        return SinkRows(sink, TaskIds()).write(b.select(["key", "value"]) for b in batches)

    assert copy() == 100
    (client,) = clients._clients.values()
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        assert _read(source, "t", 100) == list(range(100))
        assert copy() == 100
    assert list(clients._clients.values()) == [client]


def test_a_worker_is_frozen_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is frozen at the end of a task, since Spark loads more code with the first rows."""
    _create(broker, "t")
    fill(broker.bootstrap_servers, "t", Records(400))
    frozen: list[str] = []
    monkeypatch.setattr(clients, "_frozen", set())
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("once"))
    source = _options(broker, subscribe="t").for_batch()
    rows = RangeReader(source).read(OffsetRange("t", 0, 0, 100))
    assert next(rows).num_rows == 100
    assert not frozen
    assert not list(rows)
    assert frozen == ["once"]
    _read(source, "t", 100)
    assert frozen == ["once"]


def test_memory_is_flat_over_many_micro_batches(broker: Broker) -> None:
    """`./dev bench spark --rows batches` does 20,000 of them."""
    _create(broker, "t", "to")
    count = _MICRO_BATCHES * MICRO_RECORDS
    assert fill(broker.bootstrap_servers, "t", Records(count)) == count
    command = [sys.executable, "-m", "benchmarks._load.spark_batches", broker.bootstrap_servers]
    ran = subprocess.run(
        [*command, "t", "to", str(_MICRO_BATCHES)],
        cwd=_CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    found = json.loads(ran.stdout)
    assert found["records"] == count
    assert found["late_bytes"] - found["early_bytes"] < _MOST_GROWTH_BYTES
