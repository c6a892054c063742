"""DescribeProducers: the producers of a partition, and the starts of their open transactions."""

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.log.transactional_log import NOW_MS, append_end_marker, write


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def described(broker: MemoryBroker, *partitions: tuple[str, int]) -> list[PartitionResponse]:
    topics = [TopicRequest(name=name, partition_indexes=[index]) for name, index in partitions]
    response = broker.call(DescribeProducersRequest(topics=topics), 0)
    return [each for topic in response.topics for each in topic.partitions]


def test_producers_and_the_starts_of_their_open_transactions(broker: MemoryBroker) -> None:
    log = broker.log("plain", 1)
    write(log, 5, 0, 3, is_transactional=False)
    write(log, 7, 0, 2, epoch=4)
    write(log, 8, 0)
    append_end_marker(log, 8, commit=True, epoch=1, coordinator_epoch=3)
    (answer,) = described(broker, ("plain", 1))
    assert (answer.partition_index, answer.error_code) == (1, 0)
    assert [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in answer.active_producers
    ] == [(5, 0, 2, 1_002, -1, -1), (7, 4, 1, 1_001, -1, 3), (8, 1, -1, NOW_MS, 3, -1)]


def test_what_cannot_be_described(broker: MemoryBroker) -> None:
    answers = described(broker, ("plain", 99), ("none", 0), ("plain", 0), ("plain", 0))
    unknown, twice = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in answers] == [unknown, unknown, twice, twice]
    assert all(not each.active_producers for each in answers)
    assert answers[2].error_message == "the partition is listed twice"
