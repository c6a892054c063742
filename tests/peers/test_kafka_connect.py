"""Kafka Connect on klog: a file, line by line, into a topic, and from there into another file.

Workers and the broker are killed in the middle. The sink writes each line at least once; a source
is exactly once if its worker has `exactly.once.source.support`.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.testing.ports import free_port
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.kafka.killed_programs import JavaProgram

pytestmark = [pytest.mark.peers, pytest.mark.timeout(170)]

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
CONFIGS, OFFSETS, STATUS = STORES = ("connect-configs", "connect-offsets", "connect-status")
TOPIC = "lines"
DEADLINE_S = 60.0

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.backoff.ms": 100,
}
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "200",
    "plugin.discovery": "service_load",
    "consumer.isolation.level": "read_committed",
    "consumer.session.timeout.ms": "3000",
    "consumer.heartbeat.interval.ms": "500",
    "consumer.auto.offset.reset": "earliest",
}
CLUSTER = {
    "group.id": "connect",
    "config.storage.topic": CONFIGS,
    "offset.storage.topic": OFFSETS,
    "status.storage.topic": STATUS,
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "2",
    "status.storage.partitions": "2",
    # Several segments, which are cleaned at once.
    "offset.storage.segment.bytes": "16000",
    "status.storage.segment.bytes": "16000",
    "exactly.once.source.support": "enabled",
    # A worker reads the offsets up to their end when it starts, so it waits until the transaction
    # that the killed worker left open has timed out: 60 s by default.
    "producer.transaction.timeout.ms": "3000",
    # A killed worker is detected soon, and its tasks are assigned again.
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "500",
}


class World:
    """A broker, a worker of Connect, and the two files."""

    def __init__(self, folder: Path, main: str) -> None:
        self.folder = folder
        self.source, self.sink = folder / "source.txt", folder / "sink.txt"
        self.data = folder / "data"
        self.broker = BrokerProcess(self.data, SETTINGS)
        self.lines: list[str] = []
        self.rest_port = free_port()
        self._main = main
        with Admin(self.servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1, {})])
        self.write(2_000)
        self.worker = self.start_worker()

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def connectors(self) -> dict[str, dict[str, str]]:
        package = "org.apache.kafka.connect.file"
        return {
            "source": {
                "connector.class": f"{package}.FileStreamSourceConnector",
                "tasks.max": "1",
                "file": str(self.source),
                "topic": TOPIC,
                "batch.size": "100",
            },
            "sink": {
                "connector.class": f"{package}.FileStreamSinkConnector",
                "tasks.max": "1",
                "file": str(self.sink),
                "topics": TOPIC,
            },
        }

    def start_worker(self) -> JavaProgram:
        settings = {
            **WORKER,
            "bootstrap.servers": self.servers,
            "listeners": f"http://127.0.0.1:{self.rest_port}",
        }
        files = [self.folder / "worker.properties"]
        if self._main == DISTRIBUTED:
            settings |= CLUSTER
        else:
            settings["offset.storage.file.filename"] = str(self.folder / "positions")
            for name, config in self.connectors().items():
                files.append(self.folder / f"{name}.properties")
                write_properties(files[-1], {"name": name, **config})
        write_properties(files[0], settings)
        arguments = [str(each) for each in files]
        self.worker = JavaProgram(self._main, arguments, self.folder / "worker.txt")
        return self.worker

    def restart_broker(self) -> None:
        port = self.broker.address[1]
        self.broker.kill()
        self.broker = BrokerProcess(self.data, SETTINGS, port)

    def write(self, count: int) -> None:
        """Further lines for the source."""
        new = [f"line {len(self.lines) + number}" for number in range(count)]
        with self.source.open("a", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in new)
        self.lines += new

    def sunk(self) -> list[str]:
        """The lines of the sink's file that are whole."""
        if not self.sink.exists():
            return []
        return self.sink.read_text(encoding="ascii").rpartition("\n")[0].splitlines()

    def until_sunk(self) -> None:
        """Wait until the sink has written all lines, in their order."""
        wanted = len(self.lines)

        def is_there() -> bool:
            self.worker.expect_running()
            # Lines that the connector has read beyond a full batch come when the file grows.
            self.write(1)
            return len(set(self.sunk())) >= wanted

        eventually(is_there, DEADLINE_S, "the lines coming out of the sink")
        found = without_repetitions(self.sunk())
        assert found == self.lines[: len(found)]

    def until_some_are_sunk(self, before: int) -> None:
        """Waits until lines behind the first ``before`` have come through."""
        eventually(lambda: self.lines[before] in set(self.sunk()), DEADLINE_S, "some lines")

    def call_worker(self, method: str, path: str, body: object = None) -> Any:
        """A request to the worker's REST interface; None until it serves."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.rest_port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        self.worker.expect_running()
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return json.load(reply)
        except (urllib.error.URLError, ConnectionError):
            return None

    def create_connectors(self) -> None:
        for name, config in self.connectors().items():
            path = f"/connectors/{name}/config"
            eventually(
                lambda p=path, c=config: self.call_worker("PUT", p, c), DEADLINE_S, f"the {name}"
            )


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    lines = [f"{name}={value}\n" for name, value in properties.items()]
    path.write_text("".join(lines), encoding="utf-8")


def without_repetitions(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


@contextmanager
def world_of(folder: Path, main: str) -> Iterator[World]:
    world = World(folder, main)
    try:
        yield world
    finally:
        world.worker.kill()
        world.broker.kill()


def committed(servers: str) -> list[str]:
    """The values of the topic's committed records."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "the topic cannot be read to its end"
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        found.append(message.value().decode())


def policies(servers: str) -> dict[str, str | None]:
    """The cleanup policy of each of the workers' topics."""
    with Admin(servers) as admin:
        return {name: admin.describe_configs(name)["cleanup.policy"].value for name in STORES}


def test_a_standalone_worker(tmp_path: Path) -> None:
    """The worker keeps the source's position in a file: lines may come again after a kill."""
    with world_of(tmp_path, STANDALONE) as world:
        world.until_sunk()
        for kill in ("worker", "broker"):
            before = len(world.lines)
            world.write(20_000)
            world.until_some_are_sunk(before)
            if kill == "worker":
                world.worker.kill()
                world.start_worker()
            else:
                world.restart_broker()
            world.write(100)
            world.until_sunk()
        found = without_repetitions(committed(world.servers))
        assert found == world.lines[: len(found)]


def test_a_worker_of_a_cluster(tmp_path: Path) -> None:
    """The worker keeps its state in three compacted topics, and the source is exactly once."""
    with world_of(tmp_path, DISTRIBUTED) as world:
        world.create_connectors()
        world.until_sunk()
        assert policies(world.servers) == dict.fromkeys(STORES, "compact")
        for kill in ("worker", "broker", "both"):
            before = len(world.lines)
            world.write(20_000)
            world.until_some_are_sunk(before)
            if kill != "broker":
                world.worker.kill()
            if kill != "worker":
                world.restart_broker()
            if kill != "broker":
                world.start_worker()
            world.write(100)
            world.until_sunk()
        found = committed(world.servers)
        assert found == world.lines[: len(found)]
        assert re.search(rf"/{OFFSETS}-\d cleaned_to=", world.broker.log())
