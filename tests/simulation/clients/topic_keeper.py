"""An administrator of a cluster: creates, extends, deletes and recreates topics of a few names.

Each record names the topic id that it was meant for: a later topic of the same name must not have
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyspark_klog.records.builder import BatchBuilder
from tests.simulation.checks.records import batches_in
from tests.simulation.clients.base import Lost, Script, check_code
from tests.simulation.clients.multi_broker import MOVED, Following, RoamingAdmin
from tests.simulation.machine import Machine
from tests.simulation.plan import TopicPlan
from tests.simulation.world import Violation
from tests.support.log.harness import read_batches

ANOTHERS = "a recreated topic has only its own records"
_NAMES = ("own-0", "own-1")
_BY_ID = 13
"""From this version on Produce and Fetch name topics by id."""
_WAITS_MS = 3_000
_REFUSED = (
    *MOVED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


class TopicKeeper(Following, RoamingAdmin):
    """Works until the end; its last topics stay."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, topics=(), goes_on=False, **named)
        self._wanted_partitions: list[TopicPartition] = []
        self._ids: dict[str, UUID] = {}
        """The ids of the topics that had these names when they were last used."""

    def wants(self) -> list[TopicPartition]:
        return self._wanted_partitions

    def script(self) -> Script:
        world = self.world
        while not self.must_end:
            topic = TopicPlan(world.random.choice(_NAMES), world.between(1, 2), False)
            self._replicas = world.between(2, 3)
            yield from self._create(topic, was_tried=True)  # The topic may still be in deletion.
            yield from self._use(topic.name)
            if world.chance(0.5):
                yield from self._grow(topic.name, topic.partitions + world.between(1, 2))
                yield from self._use(topic.name)
            if not self.must_end:
                yield from self._delete(topic.name, is_there=False)

    def _grow(self, name: str, partitions: int) -> Script:
        """Try once to add partitions: the topic may have as many already, or be in deletion."""
        wanted = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_WAITS_MS)
        try:
            yield from self.connect()
            reply = yield from self.call_broker(
                request, CreatePartitionsResponse, high=3, waits_ms=_WAITS_MS
            )
        except Lost:
            return
        code = check_code(
            self,
            reply.results[0].error_code,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.REQUEST_TIMED_OUT,
            *self._expected,
        )
        self.note(f"{name} grows to {partitions}: {code.name}")
        self._was_refused(code)

    # --- its records -----------------------------------------------------------------------------
    def _use(self, name: str) -> Script:
        for _ in range(self.world.between(0, 4)):
            try:
                yield from self.connect()
                yield from self._use_once(name)
            except Lost:
                continue

    def _use_once(self, name: str) -> Script:
        """Write to and read from one led partition, by the topic id that the broker knows."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        reply = yield from self.call_broker(request, MetadataResponse, low=10)
        (row,) = reply.topics
        if row.error_code:
            return
        self._wanted_partitions = [
            TopicPartition(name, each.partition_index) for each in row.partitions
        ]
        yield from self.look()
        if self._led:
            chosen = self.world.random.choice(self._led)
            before = self._ids.get(name, row.topic_id)
            self._ids[name] = row.topic_id
            if before != row.topic_id:
                # Write with the old id, as a client that does not know the new topic.
                yield from self._write(chosen, before)
            yield from self._write(chosen, row.topic_id)
            yield from self._read(chosen, row.topic_id)

    def _write(self, partition: TopicPartition, topic_id: UUID) -> Script:
        builder = BatchBuilder()
        for _ in range(self.world.between(1, 3)):
            builder.append(None, _name_of(topic_id), self.world.clock.now_ms())
        data = PartitionProduceData(index=partition.partition, records=builder.build())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_WAITS_MS,
            topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])],
        )
        reply = yield from self.call_broker(
            request, ProduceResponse, low=_BY_ID, high=_BY_ID, waits_ms=_WAITS_MS
        )
        check_code(self, reply.responses[0].partition_responses[0].error_code, *_REFUSED)

    def _read(self, partition: TopicPartition, topic_id: UUID) -> Script:
        wanted = FetchPartition(
            partition=partition.partition, fetch_offset=0, partition_max_bytes=1_000_000
        )
        request = FetchRequest(topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])])
        reply = yield from self.call_broker(request, FetchResponse, low=_BY_ID, high=_BY_ID)
        for topic in reply.responses:
            row = topic.partitions[0]
            check_code(self, row.error_code, *_REFUSED)
            for batch in batches_in(bytes(row.records or b""), f"{self.name}: {partition}"):
                check_own(partition, topic_id, batch)


def _name_of(topic_id: UUID) -> bytes:
    return b"%s;" % topic_id.hex.encode()


def check_kept(machines: Sequence[Machine]) -> None:
    """Check that no log has a record of another topic that had the same name."""
    for machine in machines:
        for log in machine.logs():
            if log.topic_partition.topic in _NAMES:
                for batch in read_batches(log, log.log_end_offset):
                    check_own(log.topic_partition, log.topic_id, batch)


def check_own(partition: TopicPartition, topic_id: UUID, batch: Any) -> None:
    """Check that all records of a batch are meant for the topic of that id."""
    for record in batch.records():
        if record.value != _name_of(topic_id):
            raise Violation(ANOTHERS, f"{partition} of {topic_id} has {record.value!r}")
