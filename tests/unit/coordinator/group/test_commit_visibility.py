"""Committed offsets and when readers may see them: not before they would survive a power cut."""

from typing import Any

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.runtime.fake_network import FakeStream

OFFSETS = TopicPartition("__consumer_offsets", 0)


@pytest.fixture
def broker() -> MemoryBroker:
    """Commits are acknowledged when they are synced."""
    broker = new_broker(with_kernel=False)
    flushed = CreatableTopicConfig(name="flush.messages", value="1")
    topic = CreatableTopic(
        name=OFFSETS.topic, num_partitions=1, replication_factor=1, configs=[flushed]
    )
    answer = broker.call(CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == 0
    assert broker.call(FindCoordinatorRequest(key="g"), 3).error_code == 0
    return broker


def commit(broker: MemoryBroker, offset: int, *partitions: int) -> FakeStream:
    rows = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=offset)
        for each in partitions or (0,)
    ]
    topics = [OffsetCommitRequestTopic(name="plain", partitions=rows)]
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    return broker.send(request, 7)


def code_of(stream: FakeStream) -> int:
    answer: Any = decode_response(bytes(stream.sent[4:]), ApiKey.OFFSET_COMMIT, 7)
    return int(answer.topics[0].partitions[0].error_code)


def committed(broker: MemoryBroker) -> dict[int, int]:
    """Return the group's committed offsets, requested in both ways."""
    everything = broker.call(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert everything.error_code == 0
    found = {
        each.partition_index: each.committed_offset
        for topic in everything.topics
        for each in topic.partitions
    }
    named = OffsetFetchRequestTopic(name="plain", partition_indexes=[0, 1, 2])
    by_name = broker.call(OffsetFetchRequest(group_id="g", topics=[named]), 7)
    for each in by_name.topics[0].partitions:
        assert each.committed_offset == found.get(each.partition_index, -1)
    return found


def test_a_commit_is_not_shown_before_it_is_acknowledged(broker: MemoryBroker) -> None:
    assert code_of(commit(broker, 5)) == 0
    assert committed(broker) == {0: 5}
    broker.helpers.is_held = True
    newer, other, newest = commit(broker, 6), commit(broker, 1, 1), commit(broker, 7, 0, 2)
    assert not newer.sent + other.sent + newest.sent
    assert committed(broker) == {0: 5}
    broker.helpers.release()
    broker.turns()
    assert [code_of(each) for each in (newer, other, newest)] == [0, 0, 0]
    assert committed(broker) == {0: 7, 1: 1, 2: 7}
    assert code_of(commit(broker, 8)) == 0
    assert committed(broker) == {0: 8, 1: 1, 2: 7}


def test_the_first_commit_of_a_group_neither(broker: MemoryBroker) -> None:
    broker.helpers.is_held = True
    stream = commit(broker, 5, 0, 0)
    assert (committed(broker), bytes(stream.sent)) == ({}, b"")
    broker.helpers.release()
    broker.turns()
    assert (code_of(stream), committed(broker)) == (0, {0: 5})


def test_an_offset_that_is_to_be_forgotten_is_shown_until_that_is_durable(
    broker: MemoryBroker,
) -> None:
    assert code_of(commit(broker, 5)) == 0
    broker.helpers.is_held = True
    broker.broker.services.groups.delete_topic_offsets("plain")
    assert committed(broker) == {0: 5}
    broker.helpers.release()
    broker.turns()
    assert committed(broker) == {}
