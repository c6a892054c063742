"""Hanging transactions: list the producers of partitions, find transactions that hang, end one.

A transaction hangs if it is open in a partition's log and its coordinator does not know of it: no
marker will ever end it, and readers of committed records wait for it.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pyspark_klog.client.admin.transaction_descriptions import describe_transaction
from pyspark_klog.client.admin.transaction_listing import TransactionFilter, list_transactions
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.leaders import LeaderResults, call_leaders
from pyspark_klog.client.errors import error_code
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from pyspark_klog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_ENDED = frozenset(("Empty", "CompleteCommit", "CompleteAbort", "Dead"))
"""States in which a transactional id has no transaction in any partition."""


class ActiveProducer(NamedTuple):
    """A producer that has written to a partition, as the partition's leader knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The coordinator epoch of the producer's last marker; -1 if there was none."""
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int
    """The first offset of the producer's open transaction; -1 without one."""


class PartitionTransaction(NamedTuple):
    """A transaction that a producer has open in a partition."""

    partition: TopicPartition
    producer: ActiveProducer


def active_producers(
    client: BlockingClient,
    partitions: Iterable[TopicPartition],
    deadline_ms: int | None = None,
) -> LeaderResults[list[ActiveProducer]]:
    """The producers that each partition's leader knows, sorted by producer id.

    Needs brokers of Kafka 2.8 or newer (DescribeProducers).
    """

    def describe_producers(
        link: Link, by_topic: dict[str, list[int]]
    ) -> dict[TopicPartition, list[ActiveProducer] | ErrorCode]:
        topics = [TopicRequest(name=t, partition_indexes=p) for t, p in by_topic.items()]
        request = DescribeProducersRequest(topics=topics)
        response = client.call(link, DescribeProducersResponse, lambda _: request)
        results: dict[TopicPartition, list[ActiveProducer] | ErrorCode] = {}
        for topic in response.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code != ErrorCode.NONE:
                    results[partition] = error_code(row.error_code)
                    continue
                results[partition] = sorted(
                    ActiveProducer(
                        *(each.producer_id, each.producer_epoch, each.coordinator_epoch),
                        *(each.last_sequence, each.last_timestamp, each.current_txn_start_offset),
                    )
                    for each in row.active_producers
                )
        return results

    return call_leaders(client, partitions, describe_producers, "describe producers", deadline_ms)


def find_idle_transactions(
    producers: Iterable[ActiveProducer], partition: TopicPartition, before_ms: int
) -> list[PartitionTransaction]:
    """The open transactions of a partition whose producers last wrote before ``before_ms``."""
    return [
        PartitionTransaction(partition, each)
        for each in producers
        if each.start_offset >= 0 and each.last_timestamp_ms < before_ms
    ]


def find_hanging_transactions(
    client: BlockingClient, suspects: Collection[PartitionTransaction]
) -> list[PartitionTransaction]:
    """The ``suspects`` that hang: no coordinator lists an unfinished transaction of the producer in
    the partition. Needs brokers of Kafka 3.0 or newer."""
    if not suspects:
        return []
    ids = sorted({each.producer.producer_id for each in suspects})
    known: dict[int, frozenset[TopicPartition]] = {}
    for listed in list_transactions(client, None, TransactionFilter(producer_ids=ids)):
        if listed.state in _ENDED:
            continue
        try:
            known[listed.producer_id] = describe_transaction(
                client, listed.transactional_id
            ).partitions
        except BrokerError as error:
            # If the coordinator has forgotten the transactional id since it listed the id, the
            # transaction has ended, so ``known`` gets none of its partitions.
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return [
        each
        for each in suspects
        if each.partition not in known.get(each.producer.producer_id, frozenset())
    ]


def abort_in_partition(
    client: BlockingClient,
    partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    deadline_ms: int | None = None,
) -> None:
    """Write the marker that aborts a transaction in one partition, in place of its coordinator.

    The client's user needs permission to alter the cluster.

    :raises KlogError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED, if a newer
        producer or coordinator has written to the partition
    """

    def write_marker(
        link: Link, by_topic: dict[str, list[int]]
    ) -> dict[TopicPartition, bool | ErrorCode]:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(name=t, partition_indexes=p) for t, p in by_topic.items()
            ],
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        response = client.call(link, WriteTxnMarkersResponse, lambda _: request)
        return {
            TopicPartition(topic.name, row.partition_index): row.error_code == ErrorCode.NONE
            or error_code(row.error_code)
            for answered in response.markers
            for topic in answered.topics
            for row in topic.partitions
        }

    for error in call_leaders(
        client, [partition], write_marker, "abort", deadline_ms
    ).refused.values():
        raise error
