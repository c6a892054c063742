"""DescribeTopicPartitions: pages of topics in order of names, and cursors."""

from typing import Any

import pytest

from klog_broker.api.describe_topic_partitions import MAX_PARTITIONS
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.support.cluster.broker import TOPICS, MemoryBroker, new_broker, topic_ids

Row = tuple[str, list[int]]
ALL = sorted((name, number) for name, (count, _) in TOPICS.items() for number in range(count))


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def describe_partitions(
    broker: MemoryBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(
        topics=topics, response_partition_limit=limit, cursor=at
    )
    return broker.call(request, 0)


def rows(response: Any) -> list[tuple[str, list[int]]]:
    return [
        (topic.name, [each.partition_index for each in topic.partitions])
        for topic in response.topics
    ]


def next_of(response: Any) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_the_fields_of_a_topic(broker: MemoryBroker) -> None:
    response = describe_partitions(broker, "plain")
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "plain", False)
    assert topic.topic_id == topic_ids()["plain"]
    assert topic.topic_authorized_operations > 0
    assert [each.partition_index for each in topic.partitions] == [0, 1, 2]
    last = topic.partitions[2]
    (me,) = last.replica_nodes
    assert (last.error_code, last.leader_id, last.leader_epoch, last.isr_nodes) == (0, me, 0, [me])
    assert (last.eligible_leader_replicas, last.last_known_elr) == ([], [])
    assert last.offline_replicas == []
    assert response.next_cursor is None


def test_a_partition_of_an_offline_disk_has_no_leader(broker: MemoryBroker) -> None:
    broker.broker.services.logs.on_directory_offline = None  # the broker would end
    broker.log("plain").log_directory.go_offline(OSError("the disk is gone"))
    broker.turns()
    (topic,) = describe_partitions(broker, "plain").topics
    assert {each.leader_id for each in topic.partitions} == {-1}
    assert topic.partitions[0].offline_replicas == topic.partitions[0].replica_nodes


def test_names_are_sorted_and_answered_once(broker: MemoryBroker) -> None:
    response = describe_partitions(broker, "plain", "none", "compacted", "plain", "a b", "")
    assert [(each.name, ErrorCode(each.error_code).name) for each in response.topics] == [
        ("", "INVALID_TOPIC_EXCEPTION"),
        ("a b", "INVALID_TOPIC_EXCEPTION"),
        ("compacted", "NONE"),
        ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("plain", "NONE"),
    ]


@pytest.mark.parametrize(
    ("limit", "cursor", "found", "then"),
    [
        (4, None, [("compacted", [0]), ("plain", [0, 1, 2])], None),
        (3, None, [("compacted", [0]), ("plain", [0, 1])], ("plain", 2)),
        (1, None, [("compacted", [0])], ("plain", 0)),
        (0, None, [("compacted", [0])], ("plain", 0)),
        (-(2**31), None, [("compacted", [0])], ("plain", 0)),
        (1, ("plain", 0), [("plain", [0])], ("plain", 1)),
        (2, ("plain", 1), [("plain", [1, 2])], None),
        (2, ("plain", 3), [("plain", [])], None),
        (2**31 - 1, ("plain", 2**31 - 1), [("plain", [])], None),
    ],
)
def test_pages(
    broker: MemoryBroker,
    limit: int,
    cursor: tuple[str, int] | None,
    found: list[Row],
    then: tuple[str, int] | None,
) -> None:
    response = describe_partitions(broker, "plain", "compacted", limit=limit, cursor=cursor)
    assert (rows(response), next_of(response)) == (found, then)


def test_a_page_may_begin_with_an_unknown_topic(broker: MemoryBroker) -> None:
    assert next_of(describe_partitions(broker, "compacted", "gone", limit=1)) == ("gone", 0)
    response = describe_partitions(broker, "gone", "plain", cursor=("gone", 3))
    assert [each.error_code for each in response.topics] == [3, 0]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_all_topics_page_by_page(broker: MemoryBroker, limit: int) -> None:
    found: list[tuple[str, int]] = []
    cursor = None
    while True:
        response = describe_partitions(broker, limit=limit, cursor=cursor)
        page = [(name, number) for name, numbers in rows(response) for number in numbers]
        assert 0 < len(page) <= limit
        found += page
        cursor = next_of(response)
        if cursor is None:
            break
    assert found == ALL


def test_a_cursor_between_topics(broker: MemoryBroker) -> None:
    response = describe_partitions(broker, limit=1, cursor=("plaim", 77))
    assert rows(response) == [("plain", [0])]
    assert rows(describe_partitions(broker, cursor=("zzz", 0))) == []


@pytest.mark.parametrize(
    ("names", "cursor"),
    [
        (["plain"], ("compacted", 0)),
        (["plain"], ("zzz", 0)),
        (["plain"], ("plain", -1)),
        (["plain"], ("plain", -(2**31))),
    ],
)
def test_wrong_cursors(broker: MemoryBroker, names: list[str], cursor: tuple[str, int]) -> None:
    response = describe_partitions(broker, *names, cursor=cursor)
    assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert next_of(response) is None


def test_a_page_has_an_end_of_its_own(broker: MemoryBroker) -> None:
    topic = CreatableTopic(name="wide", num_partitions=MAX_PARTITIONS + 1, replication_factor=1)
    broker.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    response = describe_partitions(broker, "wide", limit=2**31 - 1)
    assert rows(response) == [("wide", list(range(MAX_PARTITIONS)))]
    assert next_of(response) == ("wide", MAX_PARTITIONS)
