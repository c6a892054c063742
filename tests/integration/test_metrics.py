"""A broker's metrics and health over HTTP: the metrics equal the clients' work."""

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from klog_broker.app import BrokerServer
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.monitoring.catalog import BY_NAME, ONLY_IN_CLUSTER
from klog_broker.produce.kernel_loading import load_produce_kernel
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    batch,
    create_topic,
    fetch,
    produce,
    produce_request,
    topic_id_of,
)

TOPIC = "t"
LISTENS = {"metrics.listener": "127.0.0.1:0"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, LISTENS) as running:
        yield running


def get(broker: BrokerThread, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type, body."""
    connection = HTTPConnection("127.0.0.1", broker.broker.metrics_port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def scrape(broker: BrokerThread) -> Samples:
    status, content_type, text = get(broker, "/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: Any) -> float | None:
    wanted = frozenset((key, str(each)) for key, each in labels.items())
    return samples.get((name, wanted))


def send(broker: BrokerThread, topic: str, records: int, size_bytes: int = 100) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, bytes(size_bytes), partition=number % 2)
    assert producer.flush(30) == 0


def consume(broker: BrokerThread, topic: str, records: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            # Without commits, only the topic's own records are written.
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in (0, 1)])
    found = 0
    while found < records:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found += 1
    consumer.close()


def test_what_was_sent_and_read_is_counted(broker: BrokerThread) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 2, 1)])
        send(broker, TOPIC, 1000)
        consume(broker, TOPIC, 1000)
        logs = broker.broker.services.logs
        sizes = broker.in_loop(lambda: [logs.get((TOPIC, each)).size_bytes for each in (0, 1)])
        prefix = "kafka_server_brokertopicmetrics"

        def all_told() -> Samples | None:
            found = scrape(broker)
            is_told = value(found, f"{prefix}_messagesin_total", topic=TOPIC) == 1000
            read = value(found, f"{prefix}_bytesout_total", topic=TOPIC) or 0
            return found if is_told and read >= sum(sizes) else None

        found = eventually(all_told)
        assert value(found, f"{prefix}_messagesin_total") == 1000
        assert value(found, f"{prefix}_bytesin_total", topic=TOPIC) == sum(sizes)
        assert value(found, f"{prefix}_bytesout_total", topic=TOPIC) == sum(sizes)
        ends = [
            value(found, "kafka_log_log_logendoffset", topic=TOPIC, partition=each)
            for each in (0, 1)
        ]
        assert ends == [500, 500]
        assert sum(
            value(found, "kafka_log_log_size", topic=TOPIC, partition=each) or 0 for each in (0, 1)
        ) == sum(sizes)
        admin.delete_topics([TOPIC])

        def is_gone() -> Samples | None:
            after = scrape(broker)
            return None if value(after, f"{prefix}_messagesin_total", topic=TOPIC) else after

        # The totals do not fall.
        assert value(eventually(is_gone), f"{prefix}_messagesin_total") == 1000


def _newer_api_versions(client: RawClient) -> bytes:
    frame = bytearray(client.frame(ApiVersionsRequest(), 3))
    frame[6:8] = (99).to_bytes(2, "big")
    return bytes(frame)


def test_requests_are_counted_by_api_version_and_error(broker: BrokerThread) -> None:
    prefix = "kafka_network_requestmetrics"
    with broker.client() as client:
        create_topic(client, "t")
        for _ in range(5):
            assert produce(client, "t", batch(b"x")).error_code == ErrorCode.NONE
        for _ in range(3):
            produce(client, "nowhere", batch(b"x"))
        topic_id = topic_id_of(client, "t")
        for offset in (0, 5, 77, 78):
            fetch(client, topic_id, offset=offset)
        # One fetch waits for longer than any other one.
        fetch(client, topic_id, offset=5, max_wait_ms=300)
        client.send_bytes(_newer_api_versions(client))
        client.receive_frame()

        def all_told() -> Samples | None:
            found = scrape(broker)
            told = value(found, f"{prefix}_requests_total", request="ApiVersions", version="other")
            return found if told == 1 else None

        found = eventually(all_told)
    versions = {
        (labels["request"], labels["version"]): count
        for (name, pairs), count in found.items()
        if name == f"{prefix}_requests_total" and (labels := dict(pairs))
    }
    assert versions["Produce", "9"] == 8
    assert sum(count for (api, _), count in versions.items() if api == "Fetch") == 5
    assert value(found, f"{prefix}_errors_total", request="Fetch", error="OFFSET_OUT_OF_RANGE") == 2
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert value(found, f"{prefix}_errors_total", request="Produce", error=unknown) == 3
    assert value(found, f"{prefix}_totaltimems_count", request="Fetch") == 5
    assert (value(found, f"{prefix}_totaltimems_sum", request="Fetch") or 0) >= 300
    assert value(found, f"{prefix}_totaltimems_bucket", request="Fetch", le="250") == 4


def test_planned_requests_are_counted_as_others_are(tmp_path: Path) -> None:
    with (
        BrokerThread(tmp_path, LISTENS, load_kernel=load_produce_kernel) as broker,
        broker.client() as client,
    ):
        create_topic(client, "t")
        plans = broker.broker.plans
        assert plans is not None
        broker.in_loop(plans.load)
        eventually(lambda: plans.planner is not None, 240)
        for version, count in ((9, 40), (7, 3), (9, 2)):
            frame = [client.frame(produce_request("t", batch(b"x")), version) for _ in range(count)]
            client.send_bytes(b"".join(frame))
            for _ in range(count):
                client.receive_frame()
        planner = plans.planner
        assert planner is not None and planner.requests >= 40
        found = scrape(broker)
    name = "kafka_network_requestmetrics_requests_total"
    assert value(found, name, request="Produce", version=9) == 42
    assert value(found, name, request="Produce", version=7) == 3
    assert value(found, "kafka_network_requestmetrics_totaltimems_count", request="Produce") == 45
    assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 45


def test_exactly_the_metrics_of_the_catalogue_are_served(tmp_path: Path) -> None:
    with BrokerThread(tmp_path, LISTENS) as broker, broker.client() as client:
        create_topic(client, "t")
        produce(client, "t", batch(b"x"))
        produce(client, "nowhere", batch(b"x"))
        # Make each rare event happen once.
        with broker.client() as other:
            other.send_bytes(b"\xff" * 8)
        eventually(lambda: broker.counter("connections-closed-for-bad-input") == 1)
        _, _, text = get(broker, "/metrics")
    told = {family.name: family for family in text_string_to_metric_families(text)}
    for name, row in BY_NAME.items():
        if name in ONLY_IN_CLUSTER:
            continue
        # The parser takes a counter's ending for no part of its name.
        family = told.pop(name.removesuffix("_total") if row.kind == "counter" else name)
        assert (family.type, family.documentation) == (row.kind, row.meaning)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} in (set(row.labels), set()), sample
    assert not told


def test_the_text_of_a_busy_broker_says_each_thing_once(broker: BrokerThread) -> None:
    with broker.client() as client:
        create_topic(client, "t", partitions=30)
    _, _, text = get(broker, "/metrics")
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    assert sum("kafka_log_log_size{" in line for line in lines) == 30
    found = scrape(broker)
    assert value(found, "kafka_server_replicamanager_leadercount") == 30
    assert value(found, "kafka_controller_kafkacontroller_globaltopiccount") == 1
    assert value(found, "kafka_controller_kafkacontroller_globalpartitioncount") == 30


def test_health_reports_an_offline_directory(tmp_path: Path) -> None:
    directories = f"{tmp_path}/a,{tmp_path}/b"
    with BrokerThread(None, LISTENS | {"log.dirs": directories}) as broker:
        status, content_type, text = get(broker, "/ready")
        assert (status, content_type, json.loads(text)["state"]) == (
            200,
            "application/json",
            "ready",
        )
        second = broker.in_loop(lambda: broker.broker.services.logs.directories[1])
        broker.in_loop(lambda: second.go_offline(OSError(5, "the disk is gone")))
        status, _, text = get(broker, "/health")
        assert (status, json.loads(text)["offline_directories"]) == (200, [f"{tmp_path}/b"])
        found = scrape(broker)
        assert value(found, "kafka_log_logmanager_offlinelogdirectorycount") == 1
        name = "kafka_log_logmanager_logdirectoryoffline"
        assert value(found, name, logdirectory=f"{tmp_path}/a") == 0
        assert value(found, name, logdirectory=f"{tmp_path}/b") == 1


def test_nothing_listens_unless_it_is_asked_for(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker:
        assert broker.broker.metrics_port is None


def test_a_port_that_is_taken_refuses_the_start(broker: BrokerThread, tmp_path: Path) -> None:
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": f"127.0.0.1:{broker.broker.metrics_port}",
    }
    second = BrokerServer(BrokerConfig.load(None, overrides, data=tmp_path / "second"))
    with pytest.raises(CannotStart) as caught:
        second.start()
    assert caught.value.exit_code is ExitCode.REFUSED_ADDRESS
    assert re.match(r"cannot listen on metrics.listener=127.0.0.1:\d+: ", str(caught.value))
