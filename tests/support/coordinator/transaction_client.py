"""A transactional producer that sends the requests that a test chooses; errors are results."""

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, UUID, TopicPartition
from pyspark_klog.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.log.transactional_log import write
from tests.support.raw_requests import batch, produce_request

TIMEOUT_MS = 60_000
PLAIN, OTHER = TopicPartition("plain", 0), TopicPartition("plain", 1)


def broker_with_coordinators(*, with_kernel: bool = False, **settings: object) -> MemoryBroker:
    """The topics of both coordinators are there, with few partitions."""
    broker = new_broker(
        with_kernel=with_kernel,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=2,
        **settings,
    )
    for _ in range(100):
        # The disk comes from a broker with the same seed: otherwise ids of topics come again.
        broker.broker.services.chance.uuid()
    for key_type in (0, 1):
        answers = [broker.call(FindCoordinatorRequest(key="x", key_type=key_type), 3)]
        answers.append(broker.call(FindCoordinatorRequest(key="x", key_type=key_type), 3))
        assert answers[-1].error_code == 0
    return broker


class Caller(Protocol):
    """A connection to a broker, or a broker in memory."""

    def call(self, request: Any, version: int) -> Any: ...


class TransactionClient:
    """Speaks the versions of transaction.version 2, or (``raises`` false) those before."""

    def __init__(
        self, caller: Caller, transactional_id: str = "tx", *, raises: bool = True
    ) -> None:
        self.caller = caller
        self.transactional_id = transactional_id
        self.raises = raises
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[tuple[int, TopicPartition], int] = {}

    def init(self, version: int = 5, *, timeout_ms: int = TIMEOUT_MS, **more: Any) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **more
        )
        answer = self.caller.call(request, version)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add(self, *partitions: TopicPartition, version: int = 3) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=each.topic, partitions=[each.partition])
                for each in partitions
            ],
        )
        topics = self.caller.call(request, version).results_by_topic_v3_and_below
        return [row.partition_error_code for each in topics for row in each.results_by_partition]

    def produce(
        self, partition: TopicPartition, *values: bytes, version: int | None = None
    ) -> ErrorCode:
        """Records of the transaction, by a request."""
        first = self._sequences.get((self.epoch, partition), 0)
        records = batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            is_transactional=True,
        )
        request = produce_request(
            partition.topic, records, partition.partition, transactional_id=self.transactional_id
        )
        version = (12 if self.raises else 11) if version is None else version
        answer = self.caller.call(request, version)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self._sequences[self.epoch, partition] = first + len(values)
        return code

    def end_transaction(self, *, commit: bool = True, version: int | None = None) -> int:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        version = (5 if self.raises else 4) if version is None else version
        answer = self.caller.call(request, version)
        if answer.error_code == 0 and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add_offsets(self, group: str = "g", version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return int(self.caller.call(request, version).error_code)

    def commit_offsets(
        self,
        offset: int,
        group: str = "g",
        version: int | None = None,
        *,
        topic_id: UUID = NO_TOPIC_ID,
        generation_id: int = -1,
        **member: Any,
    ) -> list[int]:
        """Commit offsets in the transaction; from version 6 on by ``topic_id``."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="plain",
                    topic_id=topic_id,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata="m"
                        )
                    ],
                )
            ],
            generation_id_or_member_epoch=generation_id,
            **member,
        )
        version = (5 if self.raises else 4) if version is None else version
        topics = self.caller.call(request, version).topics
        return [row.error_code for each in topics for row in each.partitions]

    def committed(
        self, group: str = "g", of: TopicPartition = PLAIN, *, stable: bool = False
    ) -> int | ErrorCode:
        """The offset that readers of the group see, or an error."""
        topic = OffsetFetchRequestTopic(name=of.topic, partition_indexes=[of.partition])
        request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=stable)
        row = self.caller.call(request, 7).topics[0].partitions[0]
        return ErrorCode(row.error_code) if row.error_code else int(row.committed_offset)


class MemoryClient(TransactionClient):
    """A client of a broker in memory, which does the work of Produce itself."""

    def __init__(
        self, broker: MemoryBroker, transactional_id: str = "tx", *, raises: bool = True
    ) -> None:
        super().__init__(broker, transactional_id, raises=raises)
        self.broker = broker

    def verify(self, partition: TopicPartition = PLAIN, *, adds: bool = True) -> ErrorCode:
        """Verify a partition with the coordinator, as Produce does before it appends."""
        answers: list[dict[TopicPartition, ErrorCode]] = []
        self.broker.broker.services.transactions.verify(
            self.transactional_id,
            self.producer_id,
            self.epoch,
            [partition],
            adds=adds,
            done=answers.append,
        )
        return answers[0][partition]

    def write(self, partition: TopicPartition = PLAIN, sequence: int = 0) -> None:
        """Records of the transaction, appended as by a Produce request that was verified."""
        log = self.broker.log(*partition)
        write(log, self.producer_id, sequence, epoch=self.epoch, bumps=self.raises)

    def stable_offset(self, partition: TopicPartition = PLAIN) -> int:
        return int(self.broker.log(*partition).last_stable_offset)


def codes(*found: int | Sequence[int]) -> list[ErrorCode]:
    """Numbers as codes."""
    flat = [each for row in found for each in ([row] if isinstance(row, int) else row)]
    return [ErrorCode(each) for each in flat]
