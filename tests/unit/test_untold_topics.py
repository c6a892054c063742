"""What a broker in a cluster says before the controller has told it of the topics."""

from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.metadata.image import ImageDraft
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.leader_of_many import OTHER, THIRD, FakeFollower, LeaderOfMany
from tests.support.log_harness import batch
from tests.support.produce_paths import answer_of
from tests.support.replica_world import ME


def untold(**options: Any) -> LeaderOfMany:
    """Orders came, and the image shows no topic yet."""
    leader = LeaderOfMany(**options)
    leader.lead(in_sync=(ME, OTHER, THIRD))
    metadata = leader.services.metadata
    draft = ImageDraft(metadata.image)
    for topic in list(metadata.image.topics.values()):
        draft.forget(topic)
    shown: Any = SimpleNamespace(image=draft.image(), topic_configs=metadata.topic_configs)
    leader.services.metadata = shown
    return leader


def test_followers_are_answered_by_the_ids_of_the_orders() -> None:
    leader = untold()
    leader.send(acks=1)
    follower = FakeFollower(leader, OTHER)
    assert follower.fetch(0).error_code == ErrorCode.NONE
    FakeFollower(leader, THIRD).fetch(1)
    follower.fetch(1)
    assert leader.log().high_watermark == 1


def test_a_leadership_that_is_over_is_known_by_no_id() -> None:
    leader = untold()
    leader.resign()
    answer = FakeFollower(leader, OTHER).fetch(0, leader_epoch=9)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("with_kernel", [False, True])
def test_records_are_taken_by_the_ids_of_the_orders(with_kernel: bool) -> None:
    leader = untold(with_kernel=with_kernel)
    data = PartitionProduceData(index=0, records=bytearray(batch()))
    topic = TopicProduceData(topic_id=leader.ids["plain"], partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])
    answer = answer_of(leader.memory.send(request, 13), request, 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert leader.log().log_end_offset == 1


def test_old_consumers_read_before_the_image_shows_the_topic() -> None:
    """Their answers are converted, if the topic's settings allow that."""
    leader = untold()
    leader.send(acks=1)
    for number in (OTHER, THIRD):
        FakeFollower(leader, number).fetch(1)
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="plain", partitions=[row])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
    stream = leader.memory.send(request, 3)
    leader.memory.turns()
    answer: Any = answer_of(stream, request, 3)
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 1)
