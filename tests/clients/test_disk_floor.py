"""A disk that is nearly full, and producers of all kinds: they wait until there is room."""

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from klog_broker.runtime.disk.files import DiskUsage, RealFiles
from pyspark_klog.client.admin.configs import (
    ConfigChange,
    ConfigOperation,
    Resource,
    ResourceType,
    alter_configs,
)
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually

DEADLINE_S = 60.0
FLOOR = 1 << 20


class Disk(RealFiles):
    """A disk that reports the usage that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = threading.Event()

    def disk_usage(self, path: Path) -> DiskUsage:
        found = super().disk_usage(path)
        # Below the floor, and above the quarter of it at which commits of groups are refused.
        return found._replace(usable_bytes=FLOOR // 2) if self.is_full.is_set() else found


@pytest.mark.parametrize("kind", ["librdkafka", "librdkafka idempotent", "kafka-python"])
def test_a_producer_waits_for_free_disk_space_and_a_consumer_goes_on(
    tmp_path: Path, kind: str
) -> None:
    disk = Disk()
    settings = {"log.dir.min.free.bytes": FLOOR}
    with BrokerThread(tmp_path / "data", settings, files=disk) as broker:
        servers = broker.bootstrap_servers
        delivered: list[object] = []
        if kind == "kafka-python":
            python = KafkaProducer(bootstrap_servers=servers, acks="all", retries=1000)

            def send(value: bytes) -> None:
                python.send("topic", value).add_both(delivered.append)

        else:
            producer = Producer(
                {"bootstrap.servers": servers, "enable.idempotence": "idempotent" in kind}
            )

            def send(value: bytes) -> None:
                producer.produce("topic", value, on_delivery=lambda error, _: told(error))

            def told(error: object) -> None:
                delivered.append(error)

        def is_delivered(count: int) -> bool:
            if kind != "kafka-python":
                producer.poll(0)
            return len(delivered) >= count

        def refuses() -> bool:
            (directory,) = broker.broker.services.logs.directories
            return directory.space.refuses_clients

        send(b"before")
        eventually(lambda: is_delivered(1), DEADLINE_S, "the first record")
        disk.is_full.set()
        eventually(refuses, DEADLINE_S, "the refusal")
        for number in range(10):
            send(b"%d" % number)
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["topic"])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"before"
        consumer.commit(asynchronous=False)
        assert not is_delivered(2)
        disk.is_full.clear()
        eventually(lambda: is_delivered(11), DEADLINE_S, "the other records")
        values = []
        end_s = time.monotonic() + DEADLINE_S
        while len(values) < 10 and time.monotonic() < end_s:
            found = consumer.poll(1.0)
            if found is not None:
                values.append(found.value())
        assert values == [b"%d" % number for number in range(10)]
        consumer.close()
        if kind == "kafka-python":
            python.close()
        else:
            assert delivered == [None] * 11


def test_the_floor_is_lowered_while_the_broker_runs(tmp_path: Path) -> None:
    name = "log.dir.min.free.bytes"
    with BrokerThread(tmp_path / "data", {name: 1 << 60}) as broker:
        servers = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        told: list[object] = []
        producer.produce("topic", b"waits", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(1) == 1
        with BlockingClient({"bootstrap.servers": servers}) as client:
            lower = ConfigChange(name, ConfigOperation.SET, "0")
            alter_configs(client, Resource(ResourceType.BROKER, ""), [lower])
        assert producer.flush(DEADLINE_S) == 0
        assert told == [None]
