"""Asks a transaction's coordinator, on any broker, whether the transaction includes partitions.

Implements KIP-890, part 1, like Kafka's AddPartitionsToTxnManager.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from klog_broker.coordinator.broker_request_sender import (
    BrokerRequestSender,
    Codes,
    PartitionCodes,
    RequestPart,
    code_of,
    known_code,
)
from klog_broker.coordinator.transaction.coordinator import PartitionErrors, TransactionCoordinator
from klog_broker.metadata.image import TRANSACTION_STATE, MetadataImage
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE = 4


class VerificationRequest(NamedTuple):
    """A producer's transaction and the partitions to verify. With ``adds``, partitions that the
    transaction lacks are added to it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    adds: bool


class VerificationApi:
    """The API AddPartitionsToTxn as brokers use it among themselves: one request for many
    transactions."""

    response_class = AddPartitionsToTxnResponse
    versions = (BATCHED_SINCE, None)

    def build(self, contents: list[VerificationRequest]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(transactions=[_written(each) for each in contents])

    def read(
        self, response: AddPartitionsToTxnResponse
    ) -> Mapping[Hashable, PartitionCodes] | ErrorCode:
        """Return the error codes of the partitions by transactional id, or one error code for the
        whole request."""
        if response.error_code:
            error = known_code(response.error_code)
            not_allowed = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return ErrorCode.INVALID_TXN_STATE if not_allowed else error
        return {
            result.transactional_id: {
                TopicPartition(topic.name, each.partition_index): known_code(
                    each.partition_error_code
                )
                for topic in result.topic_results
                for each in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }


class TransactionVerifier:
    """Verifies transactions with this broker's ``coordinator``, or else by a request to the broker
    that leads the transactional id's partition of ``__transaction_state``.

    Loop thread only.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        image: Callable[[], MetadataImage],
        coordinator: TransactionCoordinator,
        others: BrokerRequestSender[VerificationRequest, AddPartitionsToTxnResponse],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._coordinator = coordinator
        self._others = others

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """Check that the producer's transaction includes the partitions; with ``adds``, add missing
        ones.

        ``done`` gets an error code for each partition, as from TransactionCoordinator.verify.
        Further codes are NETWORK_EXCEPTION if the coordinator's broker did not respond,
        COORDINATOR_NOT_AVAILABLE if no broker is the coordinator now, INVALID_TXN_STATE if the
        coordinator's broker did not authorize this broker, and UNKNOWN_SERVER_ERROR if the response
        lacks the partition.
        """
        asked = VerificationRequest(transactional_id, producer_id, producer_epoch, partitions, adds)
        coordinator = self._coordinator
        if coordinator.serving_error(transactional_id) is ErrorCode.NOT_COORDINATOR:
            leader = self._leader(transactional_id)
            if leader is None:
                done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            if leader != self._broker_id:
                on_result = partial(_answered, asked, done)
                self._others.enqueue_part(
                    leader, RequestPart(transactional_id, asked, len(partitions), on_result)
                )
                return
        coordinator.verify(
            transactional_id, producer_id, producer_epoch, partitions, adds=adds, done=done
        )

    def _leader(self, transactional_id: str) -> BrokerId | None:
        number = self._coordinator.partition_for(transactional_id)
        state = None if number is None else self._image().partition(TRANSACTION_STATE, number)
        if state is None:
            return None
        leader = state.leader
        return leader if leader == self._broker_id or self._others.has_broker(leader) else None


def _answered(
    asked: VerificationRequest,
    done: Callable[[PartitionErrors], None],
    codes: Codes,
) -> None:
    done({each: code_of(codes, each) for each in asked.partitions})


def _written(asked: VerificationRequest) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in asked.partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        verify_only=not asked.adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )
