"""Describes a transactional id, as its coordinator knows it (DescribeTransactions)."""

from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.coordinators import TRANSACTION, Coordinator, run_at_coordinator
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


class TransactionDescription(NamedTuple):
    """The state of a transactional id, from its coordinator."""

    state: str
    """Kafka's name of the state: Empty, Ongoing, PrepareCommit, CompleteAbort ..."""
    partitions: frozenset[TopicPartition]
    """The transaction's partitions whose topics the client's user may describe."""
    coordinator_id: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    timeout_ms: int = 0
    start_ms: int = -1
    """When the id's latest transaction began, in ms since 1970; -1 if there is none."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics of `partitions`."""
        return frozenset(partition.topic for partition in self.partitions)


def describe_transaction(
    client: BlockingClient, transactional_id: str, deadline_ms: int | None = None
) -> TransactionDescription:
    """Ask the coordinator for the state of a transactional id.

    :raises UnsupportedByBroker: by brokers older than Kafka 3.0
    :raises BrokerError: TRANSACTIONAL_ID_NOT_FOUND, or the error if the client's user may not
        describe the id
    """
    what = f"state of transactional id {transactional_id}"
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def attempt(link: Link, coordinator: Coordinator) -> TransactionDescription:
        response = client.call(link, DescribeTransactionsResponse, lambda _: request)
        for row in response.transaction_states:
            code = error_code(row.error_code)
            if code is not ErrorCode.NONE:
                raise broker_error(code, what)
            partitions = frozenset(
                TopicPartition(topic.topic, number)
                for topic in row.topics
                for number in topic.partitions
            )
            producer = (coordinator.broker_id, row.producer_id, row.producer_epoch)
            times = (row.transaction_timeout_ms, row.transaction_start_time_ms)
            return TransactionDescription(row.transaction_state, partitions, *producer, *times)
        raise broker_error(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, what)

    asking = f"asking for the {what}"
    return run_at_coordinator(client, transactional_id, attempt, deadline_ms, asking, TRANSACTION)
