"""Cases that klog's client must pass on any broker of Kafka's protocol: klog and Apache Kafka."""

import itertools
import uuid
from collections.abc import Callable, Iterable

import pytest

from pyspark_klog.client.admin.groups import (
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    delete_group,
    delete_offsets,
    list_groups,
)
from pyspark_klog.client.admin.records_deletion import delete_records
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.consumer.offsets import (
    EARLIEST,
    LATEST,
    NOT_FOUND,
    first_local_offset,
    list_offsets,
)
from pyspark_klog.client.errors import DeliveryFailed, TopicMissing
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, TopicPartition
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Header, Record
from tests.support.eventually import eventually
from tests.support.records.record_sets import iterate

_numbers = itertools.count(1)


def new_topic(servers: str, partitions: int = 2, **configs: str) -> str:
    """A topic of its own for a test; underscores in the configs' names stand for dots."""
    name = f"case-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
    settings: dict[str, str | None] = {k.replace("_", "."): v for k, v in configs.items()}
    # The records here have timestamps of 1970, which the default retention would delete.
    settings.setdefault("retention.ms", "-1")
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, settings)])
    return name


def client_of(servers: str, **settings: str | int) -> BlockingClient:
    """A client; underscores in the settings' names stand for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return BlockingClient({"bootstrap.servers": servers, **named})


def batch(
    keys: Iterable[bytes | None], codec: Codec = Codec.NONE, *, size: int = 20, at_ms: int = 1_000
) -> tuple[bytes, int]:
    """A batch and its number of records; each has a header and a value of ``size`` bytes."""
    builder = BatchBuilder(codec=codec)
    for number, key in enumerate(keys):
        value = None if key == b"tombstone" else (b"-" if key is None else key) * size
        builder.append(key, value, at_ms + number, [Header("h", b"1"), Header("n", None)])
    return builder.build(), builder.record_count


def read(
    client: BlockingClient,
    partition: TopicPartition,
    start: int,
    end: int,
    on_lost: Callable[[OffsetsLost], None] | None = None,
    topic_id: uuid.UUID = NO_TOPIC_ID,
) -> list[Record]:
    """The records from ``start`` up to ``end``, without regard to transactions."""

    def fail(lost: OffsetsLost) -> None:
        raise lost

    fetcher = RangeFetcher(
        client,
        partition,
        start,
        end,
        progress_timeout_ms=20_000,
        on_lost=on_lost or fail,
        topic_id=topic_id,
    )
    return [
        record
        for chunk in fetcher
        for record in iterate(chunk.data, allow_partial=True)
        if start <= record.offset < end
    ]


def records_come_back_as_they_were_written(servers: str, codec: Codec) -> None:
    """Keys, nulls, headers, timestamps and order, through every codec."""
    topic = new_topic(servers)
    keys = [b"a", None, b"", b"tombstone", b"b" * 300]
    with client_of(servers) as client:
        producer = Producer(client)
        assert producer.partition_count(topic) == 2
        for _ in range(20):
            producer.add(TopicPartition(topic, 1), *batch(keys, codec))
        producer.flush()
        assert producer.written_records == 100
        found = read(client, TopicPartition(topic, 1), 0, 100)
    assert [r.offset for r in found] == list(range(100))
    assert [r.key for r in found] == keys * 20
    assert [r.value for r in found[:4]] == [b"a" * 20, b"-" * 20, b"", None]
    assert [r.timestamp_ms for r in found[:5]] == [1_000, 1_001, 1_002, 1_003, 1_004]
    assert found[0].headers == (Header("h", b"1"), Header("n", None))


def offsets_are_found(servers: str) -> None:
    """The ends, and where a time lies."""
    topic = new_topic(servers)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with client_of(servers) as client:
        producer = Producer(client)
        for at_ms in (1_000, 2_000, 3_000):
            producer.add(first, *batch([b"k"] * 10, at_ms=at_ms))
        producer.flush()
        both = [first, second]
        ends = list_offsets(client, dict.fromkeys(both, LATEST))
        begins = list_offsets(client, dict.fromkeys(both, EARLIEST))
        assert [ends[p].offset for p in both] == [30, 0]
        assert [begins[p].offset for p in both] == [0, 0]
        at = list_offsets(client, {first: 2_005, second: 2_005})
        assert (at[first].offset, at[first].timestamp_ms) == (15, 2_005)
        assert at[second].offset == NOT_FOUND
        assert list_offsets(client, {first: 9_000})[first].offset == NOT_FOUND


def a_leader_reports_its_own_records(servers: str) -> None:
    """All of a log that is in no remote tier, if asked as the leader of its epoch."""
    topic = new_topic(servers, 1)
    partition = TopicPartition(topic, 0)
    with client_of(servers) as client:
        producer = Producer(client)
        producer.add(partition, *batch([b"k"] * 10))
        producer.flush()
        delete_records(client, {partition: 4})
        info = client.leader_of(partition, client.deadline())
        link = client.link_to_broker(info.leader, client.deadline())
        versions = link.connection.versions
        assert versions is not None
        if versions.newest(ApiKey.LIST_OFFSETS, 8) is None:
            assert first_local_offset(client, link, partition, info.leader_epoch) is None
            return
        assert first_local_offset(client, link, partition, info.leader_epoch) == 4
        with pytest.raises(BrokerError, match="UNKNOWN_LEADER_EPOCH"):
            first_local_offset(client, link, partition, info.leader_epoch + 1)


def small_fetches_read_everything(servers: str) -> None:
    """Many replies, each with part of a range; the range's ends lie inside batches."""
    topic = new_topic(servers, 1)
    partition = TopicPartition(topic, 0)
    with client_of(servers, max_partition_fetch_bytes=3_000) as client:
        producer = Producer(client)
        for number in range(50):
            producer.add(partition, *batch([b"%d" % number] * 30))
        producer.flush()
        found = read(client, partition, 7, 1_493)
    assert [r.offset for r in found] == list(range(7, 1_493))
    assert found[0].key == b"0" and found[-1].key == b"49"


def offsets_out_of_range_are_reported(servers: str) -> None:
    """OffsetsLost names the requested and the existing range; with a handler, a read goes on."""
    topic = new_topic(servers, 1)
    partition = TopicPartition(topic, 0)
    lost: list[OffsetsLost] = []
    with client_of(servers) as client:
        producer = Producer(client)
        producer.add(partition, *batch([b"k"] * 10))
        producer.flush()
        with pytest.raises(OffsetsLost, match=r"offset 500 .* 500 to 600 .* 0 to 10 are there"):
            read(client, partition, 500, 600)
        assert read(client, partition, 500, 600, lost.append) == []
    assert [(e.start, e.available) for e in lost] == [(500, (0, 10))]


def a_large_batch_is_split_for_a_topic_of_small_ones(servers: str) -> None:
    """Records arrive in order whatever the topic's max.message.bytes, unless one is too large."""
    topic = new_topic(servers, 1, max_message_bytes="2000")
    partition = TopicPartition(topic, 0)
    with client_of(servers) as client:
        producer = Producer(client)
        # The second one would fit, and both are under way before the first is answered.
        whole = (batch([b"%03d" % n for n in range(*some)]) for some in ((0, 190), (190, 200)))
        producer.add_all((partition, *each) for each in whole)
        producer.flush()
        found = read(client, partition, 0, 200)
        assert [r.key for r in found] == [b"%03d" % n for n in range(200)]
        with pytest.raises(DeliveryFailed, match=r"larger than the topic takes \(max.message"):
            producer.add(partition, *batch([b"k"], size=3_000))
            producer.flush()
        with pytest.raises(DeliveryFailed, match="failed before"):
            producer.flush()


def topics_are_administered(servers: str) -> None:
    """Created, described, grown, listed, deleted; refusals have Kafka's codes."""
    topic = new_topic(servers, 2, retention_ms="12345000")
    with Admin(servers) as admin:
        assert topic in admin.list_topics()
        described = admin.describe_topics([topic])[topic]
        assert sorted(described.partitions) == [0, 1]
        assert all(p.leader >= 0 for p in described.partitions.values())
        retention = admin.describe_configs(topic)["retention.ms"]
        assert (retention.value, retention.is_default) == ("12345000", False)
        admin.create_partitions(topic, 3)
        assert len(admin.describe_topics([topic])[topic].partitions) == 3
        with pytest.raises(BrokerError) as caught:
            admin.create_topics([NewTopic(topic, 1, 1)])
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(BrokerError) as caught:
            admin.create_partitions(topic, 1)
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
        with pytest.raises(BrokerError) as caught:
            admin.create_topics([NewTopic("no/such name", 1, 1)])
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        admin.create_topics([NewTopic(f"{topic}-try", 1, 1)], validate_only=True)
        assert f"{topic}-try" not in admin.list_topics()
        admin.delete_topics([topic])
        with pytest.raises(BrokerError) as caught:
            admin.delete_topics([topic])
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # The controller knows at once; the broker that is asked hears of it a moment later.
        eventually(lambda: topic not in admin.list_topics(), deadline_s=20)
        with pytest.raises(TopicMissing, match="does not exist"):
            admin.describe_topics([topic])
        cluster = admin.describe_cluster()
        assert cluster.cluster_id and cluster.brokers


def retried_batches_are_written_once(servers: str) -> None:
    """The same batch sent again under its sequence is recognised by the broker."""
    topic = new_topic(servers, 1)
    partition = TopicPartition(topic, 0)
    with client_of(servers) as client:
        producer = Producer(client)
        for round_number in range(5):
            for number in range(6):
                producer.add(partition, *batch([b"%d-%d" % (round_number, number)] * 3))
            # Close connections with requests in flight: the producer cannot know what was written.
            for link in client.links:
                link.close()
            producer.flush()
        found = read(client, partition, 0, list_offsets(client, {partition: LATEST})[partition][0])
    wanted = [b"%d-%d" % (r, n) for r in range(5) for n in range(6) for _ in range(3)]
    assert [r.key for r in found] == wanted


def a_groups_offsets_are_stored(servers: str) -> None:
    """Committed from outside, read back, listed."""
    topic = new_topic(servers, 2)
    group = f"group-of-{topic}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with client_of(servers) as client:
        assert committed_offsets(client, group) == {}
        commit_offsets(client, group, {first: CommittedOffset(7, metadata="at seven")})
        assert committed_offsets(client, group) == {first: CommittedOffset(7, -1, "at seven")}
        commit_offsets(client, group, {first: CommittedOffset(8), second: CommittedOffset(0)})
        assert committed_offsets(client, group, [second]) == {second: CommittedOffset(0)}
        assert committed_offsets(client, group, [first])[first].offset == 8
        listed = {g.group_id: g for g in list_groups(client)}
        assert (listed[group].state, listed[group].member_count) == ("Empty", 0)


def groups_are_deleted(servers: str) -> None:
    """Whole groups are deleted, or their offsets in some partitions."""
    topic = new_topic(servers, 2)
    group = f"group-of-{topic}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with client_of(servers) as client:
        commit_offsets(client, group, {first: CommittedOffset(7), second: CommittedOffset(8)})
        gone = TopicPartition(topic, 9)
        refused = {gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert delete_offsets(client, group, [first, gone]) == refused
        assert committed_offsets(client, group) == {second: CommittedOffset(8)}
        delete_group(client, group)
        assert committed_offsets(client, group) == {}
        assert group not in {each.group_id for each in list_groups(client)}
        for attempt in (
            lambda: delete_group(client, group),
            lambda: delete_offsets(client, group, [first]),
        ):
            with pytest.raises(BrokerError) as caught:
                attempt()
            assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def a_recreated_topic_is_another_one(servers: str) -> None:
    """With topic ids, the old topic's offsets are not read from the new topic; commits are gone."""
    topic = new_topic(servers, 1)
    partition, group = TopicPartition(topic, 0), f"group-of-{topic}"
    lost: list[OffsetsLost] = []
    with client_of(servers, retry_backoff_ms=10) as client, Admin(client=client) as admin:
        commit_offsets(client, group, {partition: CommittedOffset(0, metadata="the old one")})
        topic_id = client.refresh([topic]).topic_id(topic)
        admin.delete_topics([topic])
        eventually(lambda: topic not in admin.list_topics(), deadline_s=60)
        admin.create_topics([NewTopic(topic, 1, 1)])
        producer = Producer(client)
        producer.add(partition, *batch([b"k"] * 20))
        producer.flush()
        assert len(read(client, partition, 0, 20)) == 20
        has_ids = topic_id != NO_TOPIC_ID  # since Kafka 2.8
        assert len(read(client, partition, 0, 20, lost.append, topic_id)) == (0 if has_ids else 20)
        eventually(lambda: committed_offsets(client, group) == {}, deadline_s=60)
    found = [(error.is_recreated, str(topic_id) in str(error)) for error in lost]
    assert found == [(True, True)] * has_ids


CASES: tuple[Callable[[str], None], ...] = (
    a_recreated_topic_is_another_one,
    a_groups_offsets_are_stored,
    groups_are_deleted,
    a_leader_reports_its_own_records,
    offsets_are_found,
    small_fetches_read_everything,
    offsets_out_of_range_are_reported,
    a_large_batch_is_split_for_a_topic_of_small_ones,
    topics_are_administered,
    retried_batches_are_written_once,
)
