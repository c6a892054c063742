"""Finds a producer's open transactions by asking the leaders of partitions."""

from collections import defaultdict
from functools import partial

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)


def find_open_transactions(
    client: BlockingClient,
    producer_id: int,
    producer_epoch: int,
    topic: str,
    deadline_ms: int | None = None,
) -> dict[int, int]:
    """The first offset of the transaction that the producer has open in each partition of the
    topic, begun with an epoch older than ``producer_epoch``. A transaction of this or a newer epoch
    is left out: it belongs to the producer itself, or to one that has taken its transactional id
    over.

    :raises UnsupportedByBroker: by brokers older than Kafka 2.8
    :raises BrokerError: TOPIC_AUTHORIZATION_FAILED, if the client's user may not read the topic
    :raises TimedOut: if a partition still has no leader at the deadline
    """
    deadline = client.deadline() if deadline_ms is None else deadline_ms
    what = f"open transactions of producer {producer_id} in {topic}"

    def attempt() -> dict[int, int]:
        info = client.refresh([topic], deadline).topics[topic]
        if info.error is not ErrorCode.NONE:
            raise broker_error(info.error, what)
        by_leader: dict[int, list[int]] = defaultdict(list)
        for number in info.partitions:
            partition = client.leader_of(TopicPartition(topic, number), deadline)
            by_leader[partition.leader].append(number)
        rows: list[PartitionResponse] = []
        for broker_id, numbers in by_leader.items():
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=topic, partition_indexes=numbers)]
            )
            link = client.link_to_broker(broker_id, deadline)
            response = client.call(link, DescribeProducersResponse, partial(_same, request))
            rows += (row for answered in response.topics for row in answered.partitions)
        return dict(_open_of(row, producer_id, producer_epoch, what) for row in rows)

    found = client.run_with_retries(attempt, deadline, f"asking for the {what}")
    return {number: offset for number, offset in found.items() if offset >= 0}


def _same(request: DescribeProducersRequest, _: int) -> DescribeProducersRequest:
    return request


def _open_of(
    row: PartitionResponse, producer_id: int, producer_epoch: int, what: str
) -> tuple[int, int]:
    """The partition's number, and the first offset of the transaction that the producer has open
    there, begun with an epoch older than ``producer_epoch``; -1 if there is none."""
    code = error_code(row.error_code)
    if code is not ErrorCode.NONE:
        raise broker_error(code, what)
    offsets = [
        each.current_txn_start_offset
        for each in row.active_producers
        if each.producer_id == producer_id and each.producer_epoch < producer_epoch
    ]
    return row.partition_index, max(offsets, default=-1)
