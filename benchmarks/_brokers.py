"""The two brokers of a benchmark, klog's and Apache Kafka's, with their topics and clients."""

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._load.jobs import LoadFailed, Target
from benchmarks._turns import progress
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import broker_error
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.testing import Broker
from tests.support.eventually import eventually
from tests.support.peers import KafkaServer

KLOG = "klog"
KAFKA = "Kafka"
# Both brokers soon release the pages of a deleted topic, so that the next run finds them warm.
_DELETE_DELAY_MS = 100
_GONE_DEADLINE_S = 30.0
_WARM_DEADLINE_S = 300.0
_SHOWN_CHARACTERS = 3_000
_KAFKA_HEAP_MB = 1024
_LATEST = -1
_client_settings = {"connections.max.idle.ms": "600000"}


@dataclass
class Side:
    """A running broker: its address, its process and its data folder."""

    name: str
    host: str
    port: int
    pid: int
    data: Path
    client: BlockingClient
    output: Callable[[], str]
    """The broker's log so far."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def create_topic(
        self, purpose: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic whose partitions serve; return its name, which is unique here."""
        name = f"bench-{purpose}-{next(self._numbers)}"
        Admin(client=self.client).create_topics([NewTopic(name, partitions, 1, configs or {})])
        # Kafka's metadata has a topic a moment before its partitions exist. If a first batch is
        # refused then, and later ones are not, Java's idempotent producer retries forever.
        deadline_ms = self.client.deadline()
        for partition in range(partitions):
            ask = partial(self.end_offset, name, partition)
            self.client.run_with_retries(
                ask, deadline_ms, f"{self.name} serving {name}-{partition}"
            )
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until its files are gone."""
        Admin(client=self.client).delete_topics([name])
        of_topic = re.compile(rf"{re.escape(name)}-\d+(\..*)?")

        def is_gone() -> bool:
            return not any(of_topic.fullmatch(entry.name) for entry in self.data.iterdir())

        eventually(is_gone, _GONE_DEADLINE_S, f"{self.name} removing the files of {name}")

    @contextmanager
    def topic(
        self, purpose: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        """A topic that exists for the with statement."""
        name = self.create_topic(purpose, partitions, configs)
        try:
            yield name
        finally:
            self.delete_topic(name)

    def target(self, topic: str, partition: int = 0) -> Target:
        """A partition as a target of the load generator."""
        info = Admin(client=self.client).describe_topics([topic])[topic]
        return Target(self.host, self.port, self.pid, topic, str(info.topic_id), partition)

    def newest_version(self, api_key: ApiKey) -> int:
        """The newest version of an API that both this broker and klog's own client support."""
        return self.client.link_to_any(self.client.deadline()).connection.version(api_key)

    def producer_id(self) -> tuple[int, int]:
        """A producer id and epoch for an idempotent producer."""
        deadline_ms = self.client.deadline()

        def request_id() -> tuple[int, int]:
            link = self.client.link_to_any(deadline_ms)
            reply = self.client.call(link, InitProducerIdResponse, _init_producer_id)
            _check(reply.error_code, "InitProducerId")
            return reply.producer_id, reply.producer_epoch

        # Kafka loads its first block of producer ids at the first request.
        return self.client.run_with_retries(request_id, deadline_ms, "InitProducerId")

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The end offset of a partition."""

        def build(_: int) -> ListOffsetsRequest:
            row = ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
            return ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[row])]
            )

        link = self.client.link_to_any(self.client.deadline())
        reply = self.client.call(link, ListOffsetsResponse, build, low=1)
        found = reply.topics[0].partitions[0]
        _check(found.error_code, f"ListOffsets of {topic}")
        return found.offset

    def expect_records(self, topic: str, expected: int, partitions: int = 1) -> None:
        """Raise LoadFailed unless the new topic holds ``expected`` records."""
        found = sum(self.end_offset(topic, partition) for partition in range(partitions))
        if found != expected:
            raise LoadFailed(f"{self.name}: {topic} holds {found} records, expected {expected}")


@dataclass(frozen=True)
class Pair:
    """klog and Apache Kafka; a measurement uses one of them while the other is idle."""

    klog: Side
    kafka: Side

    def common_version(self, api_key: ApiKey) -> int:
        """The newest version of an API that both brokers support."""
        return min(side.newest_version(api_key) for side in (self.klog, self.kafka))


@contextmanager
def klog_broker(settings: Mapping[str, str] | None = None) -> Iterator[Side]:
    """A klog broker with an empty temporary folder and compiled kernels.

    `./dev bench` has compiled them; but a broker with a cold cache would use its generic path for a
    while, and the measurement would show that path. ``settings`` are the broker's, by Kafka's
    names.
    """
    for package in ("pyspark_klog", "klog_broker"):
        command = [sys.executable, "-m", f"{package}.warm"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_WARM_DEADLINE_S)
    named: dict[str, Any] = {
        name.replace(".", "_"): text for name, text in (settings or {}).items()
    }
    with (
        Broker(log_segment_delete_delay_ms=_DELETE_DELAY_MS, **named) as broker,
        _client(broker.bootstrap_servers) as client,
    ):
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with explaining(KLOG, broker.output):
            yield Side(KLOG, host, int(port), broker.pid, broker.data, client, broker.output)


@contextmanager
def kafka_broker(settings: Mapping[str, str] | None = None) -> Iterator[Side]:
    """Apache Kafka's newest release with an empty log folder."""
    properties = {"log.segment.delete.delay.ms": str(_DELETE_DELAY_MS), **(settings or {})}
    server = KafkaServer(properties=properties, heap_mb=_KAFKA_HEAP_MB)
    with server, _client(server.bootstrap_servers) as client, explaining(KAFKA, server.output):
        at = "127.0.0.1", server.port, server.pid, server.log_dir
        yield Side(KAFKA, *at, client, server.output)


@contextmanager
def both(settings: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """Both brokers, with the same settings."""
    with klog_broker(settings) as klog, kafka_broker(settings) as kafka:
        yield Pair(klog, kafka)


@contextmanager
def explaining(name: str, output: Callable[[], str]) -> Iterator[None]:
    """Print a broker's last output if the measurement fails."""
    try:
        yield
    except Exception:
        progress(f"the end of what {name} printed:\n{output()[-_SHOWN_CHARACTERS:]}")
        raise


@contextmanager
def _client(bootstrap_servers: str) -> Iterator[BlockingClient]:
    with BlockingClient({"bootstrap.servers": bootstrap_servers, **_client_settings}) as client:
        yield client


def _init_producer_id(_: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def _check(number: int, what: str) -> None:
    if number != ErrorCode.NONE:
        raise broker_error(ErrorCode(number), what)
