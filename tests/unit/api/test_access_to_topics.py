"""Access to topics: a denied topic gets TOPIC_AUTHORIZATION_FAILED, and other topics are served."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis import (
    add_partitions_to_txn,
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    txn_offset_commit,
)
from pyspark_klog.protocol.message import Request
from tests.support.api.produce_frames import batch
from tests.support.cluster.broker import MemoryBroker, new_broker, topic_ids
from tests.support.security.rules import Rules

TOPIC = AclResourceType.TOPIC
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOBODY = "nobody-made-it"

Codes = dict[str, int]


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def broker(rules: Rules) -> Iterator[MemoryBroker]:
    found = new_broker(
        with_kernel=False,
        authorizer=rules,
        auto_create_topics_enable="true",
        delete_topic_enable="true",
    )
    for key, kind in (("g", 0), ("t", 1)):
        found.call(find_coordinator.FindCoordinatorRequest(key=key, key_type=kind), 3)
        found.turns()
    # The clients are no brokers: these may read every topic.
    rules.deny(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster")
    yield found
    found.close()


def named(topic: str, *, by_id: bool, field: str = "name") -> dict[str, Any]:
    return {"topic_id": topic_ids().get(topic, UUID(int=99))} if by_id else {field: topic}


def _produce(topics: list[str], version: int) -> Request:
    rows = [produce.PartitionProduceData(index=0, records=batch(b"x"))]
    return produce.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(**named(each, by_id=version >= 13), partition_data=rows)
            for each in topics
        ],
    )


def _fetch(topics: list[str], version: int) -> Request:
    rows = [fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        session_id=0,
        session_epoch=-1,
        topics=[
            fetch.FetchTopic(**named(each, by_id=version >= 13, field="topic"), partitions=rows)
            for each in topics
        ],
    )


def _list_offsets(topics: list[str], _: int) -> Request:
    rows = [list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[list_offsets.ListOffsetsTopic(name=each, partitions=rows) for each in topics],
    )


def _epochs(topics: list[str], _: int) -> Request:
    rows = [offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(topic=each, partitions=rows)
            for each in topics
        ],
    )


def _producers(topics: list[str], _: int) -> Request:
    return describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=t, partition_indexes=[0]) for t in topics]
    )


def _delete_records(topics: list[str], _: int) -> Request:
    rows = [delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
    return delete_records.DeleteRecordsRequest(
        timeout_ms=1000,
        topics=[delete_records.DeleteRecordsTopic(name=t, partitions=rows) for t in topics],
    )


def _commit(topics: list[str], version: int) -> Request:
    rows = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    return offset_commit.OffsetCommitRequest(
        group_id="g",
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                **named(each, by_id=version >= 10), partitions=rows
            )
            for each in topics
        ],
    )


def _committed(topics: list[str], _: int) -> Request:
    return offset_fetch.OffsetFetchRequest(
        group_id="g",
        topics=[
            offset_fetch.OffsetFetchRequestTopic(name=t, partition_indexes=[0]) for t in topics
        ],
    )


def _forget(topics: list[str], _: int) -> Request:
    rows = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    return offset_delete.OffsetDeleteRequest(
        group_id="g",
        topics=[offset_delete.OffsetDeleteRequestTopic(name=t, partitions=rows) for t in topics],
    )


def _commit_in_transaction(topics: list[str], version: int) -> Request:
    rows = [
        txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    ]
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                **named(each, by_id=version >= 6), partitions=rows
            )
            for each in topics
        ],
    )


def _add_partitions(topics: list[str], _: int) -> Request:
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=t, partitions=[0]) for t in topics
        ],
    )


def _metadata(topics: list[str], version: int) -> Request:
    rows = []
    for each in topics:
        ids = {} if version < 12 or each == NOBODY else {"topic_id": topic_ids()[each]}
        rows.append(metadata.MetadataRequestTopic(name=None if ids else each, **ids))
    return metadata.MetadataRequest(topics=rows, allow_auto_topic_creation=False)


def _describe_topics(topics: list[str], _: int) -> Request:
    row = describe_topic_partitions.TopicRequest
    return describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[row(name=each) for each in topics], response_partition_limit=100
    )


def _create_partitions(topics: list[str], _: int) -> Request:
    row = create_partitions.CreatePartitionsTopic
    return create_partitions.CreatePartitionsRequest(
        topics=[row(name=each, count=9, assignments=None) for each in topics],
        timeout_ms=1000,
        validate_only=True,
    )


def _delete(topics: list[str], version: int) -> Request:
    row = delete_topics.DeleteTopicState
    return delete_topics.DeleteTopicsRequest(
        topics=[row(name=each) for each in topics], timeout_ms=1000
    )


def _settings(topics: list[str], _: int) -> Request:
    row = describe_configs.DescribeConfigsResource
    return describe_configs.DescribeConfigsRequest(
        resources=[row(resource_type=2, resource_name=each) for each in topics]
    )


def _alter(topics: list[str], _: int) -> Request:
    row = alter_configs.AlterConfigsResource
    return alter_configs.AlterConfigsRequest(
        resources=[row(resource_type=2, resource_name=each) for each in topics],
        validate_only=True,
    )


def _alter_some(topics: list[str], _: int) -> Request:
    row = incremental_alter_configs.AlterConfigsResource
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[row(resource_type=2, resource_name=each) for each in topics],
        validate_only=True,
    )


FAMILIES: dict[str, tuple[Callable[[list[str], int], Request], int, AclOperation]] = {
    "produce by name": (_produce, 9, AclOperation.WRITE),
    "produce by id": (_produce, 13, AclOperation.WRITE),
    "fetch by name": (_fetch, 12, AclOperation.READ),
    "fetch by id": (_fetch, 13, AclOperation.READ),
    "list offsets": (_list_offsets, 5, AclOperation.DESCRIBE),
    "ends of epochs": (_epochs, 4, AclOperation.DESCRIBE),
    "producers": (_producers, 0, AclOperation.READ),
    "delete records": (_delete_records, 2, AclOperation.DELETE),
    "commit by name": (_commit, 8, AclOperation.READ),
    "commit by id": (_commit, 10, AclOperation.READ),
    "committed": (_committed, 7, AclOperation.DESCRIBE),
    "forget offsets": (_forget, 0, AclOperation.READ),
    "commit in a transaction": (_commit_in_transaction, 5, AclOperation.READ),
    "commit in a transaction by id": (_commit_in_transaction, 6, AclOperation.READ),
    "add partitions": (_add_partitions, 3, AclOperation.WRITE),
    "metadata by name": (_metadata, 9, AclOperation.DESCRIBE),
    "metadata by id": (_metadata, 12, AclOperation.DESCRIBE),
    "describe topics": (_describe_topics, 0, AclOperation.DESCRIBE),
    "create partitions": (_create_partitions, 3, AclOperation.ALTER),
    "delete topics by name": (_delete, 6, AclOperation.DELETE),
    "describe settings": (_settings, 4, AclOperation.DESCRIBE_CONFIGS),
    "alter settings": (_alter, 2, AclOperation.ALTER_CONFIGS),
    "alter some settings": (_alter_some, 1, AclOperation.ALTER_CONFIGS),
}


def codes(response: Any) -> list[int]:
    """The error of each topic of a response, in order; that of its first partition, if any."""
    rows = next(
        rows
        for field in (
            "responses",
            "topics",
            "results",
            "results_by_topic_v3_and_below",
        )
        if (rows := getattr(response, field, None))
    )
    if isinstance(response, describe_topic_partitions.DescribeTopicPartitionsResponse):
        rows = sorted(rows, key=lambda row: row.name, reverse=True)
    return [_code(row) for row in rows]


def _code(row: Any) -> int:
    for field in ("partition_responses", "partitions", "results_by_partition"):
        for each in getattr(row, field, None) or ():
            code = getattr(each, "error_code", getattr(each, "partition_error_code", None))
            if code:
                return int(code)
    return int(getattr(row, "error_code", 0))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_denied_topic_is_refused_and_another_topic_is_served_as_before(
    family: str, broker: MemoryBroker, rules: Rules
) -> None:
    make, version, operation = FAMILIES[family]
    if make is _forget:
        broker.call(_commit(["plain", "compacted"], 8), 8)
    (alone,) = codes(broker.call(make(["compacted"], version), version))
    assert alone != DENIED
    rules.deny(operation, TOPIC, "plain")
    found = codes(broker.call(make(["plain", "compacted"], version), version))
    if family == "add partitions":
        assert found == [DENIED, ErrorCode.OPERATION_NOT_ATTEMPTED]
    elif family == "delete topics by name":
        # The first call has deleted the topic.
        assert found == [DENIED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    else:
        assert found == [DENIED, alone]
    rules.allow_everything()
    for other in AclOperation:
        if other is not operation:
            rules.deny(other, TOPIC, "plain")
    # The request needs no further operation.
    assert codes(broker.call(make(["plain"], version), version)) != [DENIED]


BY_NAME = [each for each in FAMILIES if "by id" not in each]


@pytest.mark.parametrize("family", BY_NAME)
def test_a_denied_topic_may_exist_or_not(family: str, broker: MemoryBroker, rules: Rules) -> None:
    make, version, operation = FAMILIES[family]
    if make is _forget:
        broker.call(_commit(["plain"], 8), 8)
    rules.deny(operation, TOPIC, NOBODY)
    assert codes(broker.call(make([NOBODY], version), version)) == [DENIED]


def test_lists_of_all_topics_leave_denied_topics_out(broker: MemoryBroker, rules: Rules) -> None:
    rules.deny(AclOperation.DESCRIBE, TOPIC, "plain")
    seen = broker.call(metadata.MetadataRequest(topics=None), 9)
    names = {each.name for each in seen.topics}
    assert "plain" not in names and "compacted" in names
    described = broker.call(
        describe_topic_partitions.DescribeTopicPartitionsRequest(response_partition_limit=2000), 0
    )
    names = {each.name for each in described.topics}
    assert "plain" not in names and "compacted" in names
    broker.call(_commit(["plain", "compacted"], 8), 8)
    offsets = broker.call(offset_fetch.OffsetFetchRequest(group_id="g", topics=None), 7)
    assert [each.name for each in offsets.topics] == ["compacted"]


def test_a_topic_is_created_only_for_a_client_that_may_create_it(
    broker: MemoryBroker, rules: Rules
) -> None:
    new = create_topics.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[new], timeout_ms=1000)
    wanted = [metadata.MetadataRequestTopic(name="new")]
    ask = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
    rules.deny(AclOperation.CREATE, TOPIC, "new")
    rules.deny(AclOperation.CREATE, AclResourceType.CLUSTER, "kafka-cluster")
    assert codes(broker.call(request, 5)) == [DENIED]
    assert codes(broker.call(ask, 9)) == [DENIED]
    rules.allow_everything()
    # Access to the cluster is enough.
    rules.deny(AclOperation.CREATE, TOPIC, "new")
    assert codes(broker.call(request, 5)) == [ErrorCode.NONE]


def test_the_name_of_an_id_is_not_shown_to_a_client_that_may_not_describe_the_topic(
    broker: MemoryBroker, rules: Rules
) -> None:
    asked = delete_topics.DeleteTopicState(name=None, topic_id=topic_ids()["plain"])
    request = delete_topics.DeleteTopicsRequest(topics=[asked], timeout_ms=1000)
    rules.deny(AclOperation.DELETE, TOPIC, "plain")
    (seen,) = broker.call(request, 6).responses
    assert (seen.name, seen.error_code) == ("plain", DENIED)
    rules.deny(AclOperation.DESCRIBE, TOPIC, "plain")
    (seen,) = broker.call(request, 6).responses
    assert (seen.name, seen.error_code) == (None, DENIED)
