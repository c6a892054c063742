"""Input for a log cleaner, the same for Kafka's and for klog's.

The input is made by a seed: batches of every codec, with and without producer ids, tombstones,
headers, transactions that overlap, commit and abort. Both brokers get the same batches one after
the other, so that every record and marker has the same offset on both.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.coordinator.transaction_client import TransactionClient
from tests.support.eventually import eventually
from tests.support.peers import OLDEST_KAFKA
from tests.support.raw_client import RawClient
from tests.support.raw_requests import produce_request

HELD_OFF, EAGER = "1", "0.01"
START_MS = 4_000_000_000_000
"""Later than any marker, which gets the broker's time: such a time ends no segment."""
_HOUR_MS = 3_600_000
_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": HELD_OFF,
    "segment.bytes": str(1 << 20),
    "segment.ms": str(_HOUR_MS),
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
    "index.interval.bytes": "256",
}
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.initial.task.delay.ms": "200",
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
"""Cleaner settings for both brokers. A cleaner that has nothing to do sleeps for its backoff."""
UNDECIDED = "undecided"
"""A topic with a transaction that stays open: it is cleaned no farther."""
TOPICS: Mapping[str, Mapping[str, str]] = {
    "kept": {**_COMPACTED, "delete.retention.ms": str(1 << 40)},
    "gone": {**_COMPACTED, "delete.retention.ms": "0"},
    "recoded": {**_COMPACTED, "delete.retention.ms": "0", "compression.type": "zstd"},
    UNDECIDED: {**_COMPACTED, "delete.retention.ms": "0"},
    "appended": {
        **_COMPACTED,
        "delete.retention.ms": str(1 << 40),
        "message.timestamp.type": "LogAppendTime",
    },
}
"""One partition each, by name. Segments roll where records' times leap, and by size in the topic
whose times are the broker's."""


@dataclass
class _Transaction:
    client: TransactionClient
    topic: str | None = None  # where the open one writes


@dataclass
class _Topic:
    random: Random
    large: bool
    time_ms: int
    end: int = 0
    writes: int = 0


class Writer:
    """Writes rounds of input through one connection.

    The seed and the number of the round alone determine the records of a round.
    """

    def __init__(self, client: RawClient, seed: int, version: str | None = None) -> None:
        self._client = client
        self._seed = seed
        self._raises = version != OLDEST_KAFKA
        self._sequences: dict[tuple[int, int, str], int] = {}

    def write(
        self, round_number: int, batches: int = 120, *, with_producers: bool = True
    ) -> dict[str, int]:
        """Appends a round to every topic; returns where each ends. Without producers all batches
        are plain: the last ones of earlier producers lose their records, and then their markers."""
        random = Random(f"{self._seed}-{round_number}")
        idempotent = self._idempotent()
        open_ones = [self._transactional(f"tid-{number}") for number in range(3)]
        ends = {}
        for name, configs in TOPICS.items():
            large = "message.timestamp.type" in configs
            topic = _Topic(random, large, START_MS + round_number * 5_000 * _HOUR_MS)
            topic.end = end_offset(self._client, name)
            for number in range(batches):
                if name == UNDECIDED and (round_number, number) == (0, batches * 3 // 4):
                    stays = self._transactional("stays-open").client
                    self._append(name, topic, stays, transactional=True)
                self._step(name, topic, idempotent, open_ones if with_producers else [])
            for each in open_ones:
                self._end(each, topic, commit=random.random() < 0.5)
            # The cleaner leaves the active segment alone: make one plain batch the active segment.
            topic.time_ms += 2 * _HOUR_MS
            self._append(name, topic, None, transactional=False)
            ends[name] = topic.end
        return ends

    def _step(
        self, name: str, topic: _Topic, idempotent: TransactionClient, all_of: list[_Transaction]
    ) -> None:
        random, chance = topic.random, topic.random.random()
        topic.time_ms += random.randint(-30_000, 120_000)
        if random.random() < 0.12:
            topic.time_ms += 2 * _HOUR_MS
        if chance < 0.35 or not all_of:
            self._append(name, topic, None, transactional=False)
        elif chance < 0.5:
            self._append(name, topic, idempotent, transactional=False)
        else:
            one = random.choice(all_of)
            if one.topic is not None and chance > 0.8:
                self._end(one, topic, commit=random.random() < 0.5)
                return
            one.topic = name
            self._append(name, topic, one.client, transactional=True)

    def _end(self, one: _Transaction, topic: _Topic, *, commit: bool) -> None:
        """Ends the transaction, if it is open, and waits for its marker."""
        if one.topic is None:
            return
        name, one.topic = one.topic, None
        assert one.client.end_transaction(commit=commit) == 0
        topic.end += 1
        eventually(lambda: end_offset(self._client, name) == topic.end, what="the marker")

    def _append(
        self, name: str, topic: _Topic, producer: TransactionClient | None, *, transactional: bool
    ) -> None:
        random = topic.random
        ids: dict[str, Any] = {}
        place = (producer.producer_id, producer.epoch, name) if producer else (-1, -1, name)
        if producer is not None:
            ids = {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": self._sequences.get(place, 0),
            }
        builder = BatchBuilder(
            codec=random.choice(list(Codec)), is_transactional=transactional, **ids
        )
        for _ in range(random.randint(1, 8)):
            builder.append(*_record(topic))
        count, records = builder.record_count, builder.build()
        transactional_id = None
        if producer is not None and transactional:
            transactional_id = producer.transactional_id
            if not self._raises:
                eventually(lambda: producer.add(TopicPartition(name, 0)) == [0])
        request = produce_request(name, records, transactional_id=transactional_id)

        def is_appended() -> bool:
            answer = self._client.call(request, 12 if self._raises else 11)
            row = answer.responses[0].partition_responses[0]
            # The transaction before may not be over, as for a client that is quicker than markers.
            if row.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                return False
            if row.error_code != ErrorCode.NONE or row.base_offset != topic.end:
                raise RuntimeError(f"{name} at {topic.end}: {row}")
            return True

        eventually(is_appended, what="the transaction before being over")
        topic.end += count
        self._sequences[place] = self._sequences.get(place, 0) + count

    def _idempotent(self) -> TransactionClient:
        one = TransactionClient(self._client, None)  # type: ignore[arg-type]
        eventually(lambda: one.init(timeout_ms=60_000) == 0, 30)
        return one

    def _transactional(self, transactional_id: str) -> _Transaction:
        client = TransactionClient(self._client, transactional_id, raises=self._raises)
        eventually(lambda: find_transaction_coordinator(self._client, transactional_id), 30)
        eventually(lambda: client.init(timeout_ms=600_000) == 0, 30)
        return _Transaction(client)


def _record(
    topic: _Topic,
) -> tuple[bytes, bytes | None, int, Sequence[tuple[str, bytes | None]]]:
    """Mostly of a few keys, some of a key that comes once, a quarter of them without a value."""
    random = topic.random
    topic.writes += 1
    key = b"k%d" % random.randint(0, 40)
    if random.random() < 0.05:
        key = b"once-%d-%d" % (topic.time_ms, topic.writes)
    text = random.randbytes(random.randint(0, 10_000 if topic.large else 30)).hex()
    value = None if random.random() < 0.25 else f"{topic.writes}:{text}".encode()
    headers: list[tuple[str, bytes | None]] = []
    if random.random() < 0.2:
        headers = [("trace", b"%d" % topic.writes), ("none", None)]
    return key, value, topic.time_ms + random.randint(-5_000, 5_000), headers


def find_transaction_coordinator(client: RawClient, transactional_id: str) -> bool:
    """Makes the broker create its topic; whether it is there."""
    request = FindCoordinatorRequest(key=transactional_id, key_type=1)
    return bool(client.call(request, 3).error_code == 0)


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, 1, 1, dict(rows)) for name, rows in TOPICS.items()])


def set_cleaning(client: RawClient, ratio: str, topics: Iterable[str] = TOPICS) -> None:
    """Lets the cleaner at the topics (`EAGER`), or keeps it away (`HELD_OFF`)."""
    _alter(client, {name: {"min.cleanable.dirty.ratio": ratio} for name in topics})


def set_settings(client: RawClient) -> None:
    """Gives the topics their settings, which a broker that takes them in does not know."""
    _alter(client, TOPICS)


def _alter(client: RawClient, configs: Mapping[str, Mapping[str, str]]) -> None:
    resources = [
        AlterConfigsResource(
            resource_type=2,
            resource_name=topic,
            configs=[
                AlterableConfig(name=name, config_operation=0, value=value)
                for name, value in rows.items()
            ],
        )
        for topic, rows in configs.items()
    ]
    answer = client.call(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert all(each.error_code == 0 for each in answer.responses), answer


def end_offset(client: RawClient, topic: str) -> int:
    """Return the partition's end for readers of uncommitted records."""
    return offset_for(client, topic, -1)[0]


def offset_for(
    client: RawClient, topic: str, timestamp_ms: int, isolation_level: int = 0
) -> tuple[int, int]:
    """ListOffsets: the offset and its time."""
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[row])],
    )
    found = client.call(request, 7).topics[0].partitions[0]
    assert found.error_code == 0, found
    return found.offset, found.timestamp
