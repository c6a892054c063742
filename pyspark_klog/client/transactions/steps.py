"""The requests of a transaction, one class each: builds the request, reads its response. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyspark_klog.client.errors import error_code
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.producer.batches import ADDS_IMPLICITLY, NO_IDENTITY, Identity
from pyspark_klog.client.transactions.outcomes import Step
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pyspark_klog.protocol.message import Request, Response

GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""

_ONE_KEY = 3
"""The last version of FindCoordinator with a single key; later versions have several keys."""
_RAISES_EPOCH = 3
"""The first version of InitProducerId (Kafka 2.5) with which a producer can go on after an error,
under another epoch of the same producer id (KIP-360)."""
_ONE_TRANSACTION = 3
"""The last version of AddPartitionsToTxn for clients; only brokers send later versions."""
_WITH_MEMBERS = 3
"""The first version of TxnOffsetCommit with the group's member and generation (KIP-447)."""
_TOPIC_NAMES = 5
"""The last version of TxnOffsetCommit that names topics; later ones use only topic ids, which this
client does not send."""
_IMPLICIT_OFFSETS = 5
_ENDS_EPOCH = 5
"""The first versions of TxnOffsetCommit and EndTxn that a producer uses with transaction.version 2
(KIP-890)."""


class CoordinatorKey(NamedTuple):
    """Identifies the coordinator of a group or of a transactional id."""

    kind: int
    key: str


class ConsumerGroupMetadata(NamedTuple):
    """The member that commits a group's offsets. A group id alone stands for a client outside the
    group, whose commits the coordinator accepts only while the group has no members. If the other
    fields are set, the coordinator refuses the commit of a member of an older generation
    (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


Codes = list[tuple[str, ErrorCode]]
"""The error codes of a response. Before each code stands the text that names the partition or group
of the code; an error message appends this text to the description of the request."""


class PendingStep:
    """A request of a transaction, which is sent again until it has a final response."""

    step: Step
    request: Request
    response: type[Response]
    versions: tuple[int, int | None] = (0, None)
    """The lowest and the highest version in which this client can send the request; None instead of
    the highest version: the newest that klog knows."""

    def __init__(self, coordinator: CoordinatorKey | None) -> None:
        """``coordinator`` is the receiver of the request; with None any broker can answer it."""
        self.coordinator = coordinator
        self.failures = 0
        self.not_before_ms = 0
        self.last_error = ""

    def codes(self, response: Any) -> Codes:
        """The error codes of a response, each after the text that names its partition or group."""
        return [("", error_code(response.error_code))]


class FindCoordinator(PendingStep):
    """Asks any broker for the address of the coordinator ``wanted``."""

    step = Step.FIND_COORDINATOR
    response = FindCoordinatorResponse
    versions = (1, _ONE_KEY)

    def __init__(self, wanted: CoordinatorKey) -> None:
        super().__init__(None)
        self.wanted = wanted
        self.request = FindCoordinatorRequest(key=wanted.key, key_type=wanted.kind)

    def codes(self, response: FindCoordinatorResponse) -> Codes:
        kind = "group" if self.wanted.kind == GROUP else "transactional id"
        return [(f" of {kind} {self.wanted.key}", error_code(response.error_code))]

    def address(self, response: FindCoordinatorResponse) -> Address:
        """The coordinator's address in the response."""
        return Address(response.host, response.port)


class Initialize(PendingStep):
    """Asks for a producer id, which ends the open transaction of the transactional id's last
    producer.

    With an ``identity`` a running producer asks for its next epoch.
    """

    step = Step.INITIALIZE
    response = InitProducerIdResponse
    versions = (_RAISES_EPOCH, None)

    def __init__(self, owner: CoordinatorKey, timeout_ms: int, identity: Identity) -> None:
        super().__init__(owner)
        self.request = InitProducerIdRequest(
            transactional_id=owner.key,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )

    def identity(self, response: InitProducerIdResponse) -> Identity:
        """The producer id and epoch in the response."""
        return Identity(response.producer_id, response.producer_epoch)


class AddPartitions(PendingStep):
    """Adds partitions to the transaction. Only needed before transaction.version 2, from which on a
    Produce request adds its partitions itself (KIP-890)."""

    step = Step.ADD_PARTITIONS
    response = AddPartitionsToTxnResponse
    versions = (0, _ONE_TRANSACTION)

    def __init__(
        self, owner: CoordinatorKey, identity: Identity, partitions: Iterable[TopicPartition]
    ) -> None:
        super().__init__(owner)
        self.partitions = list(partitions)
        topics: dict[str, list[int]] = defaultdict(list)
        for partition in self.partitions:
            topics[partition.topic].append(partition.partition)
        self.request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=owner.key,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in topics.items()
            ],
        )

    def codes(self, response: AddPartitionsToTxnResponse) -> Codes:
        found = [
            (f": {topic.name}-{row.partition_index}", error_code(row.partition_error_code))
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
        # OPERATION_NOT_ATTEMPTED means that another partition failed: report the other's error.
        tried = [each for each in found if each[1] is not ErrorCode.OPERATION_NOT_ATTEMPTED]
        return tried if any(code is not ErrorCode.NONE for _, code in tried) else found


class AddOffsets(PendingStep):
    """Adds a group's offsets to the transaction. Only needed before transaction.version 2, from
    which on TxnOffsetCommit adds the group itself (KIP-890)."""

    step = Step.ADD_OFFSETS
    response = AddOffsetsToTxnResponse

    def __init__(self, owner: CoordinatorKey, identity: Identity, group_id: str) -> None:
        super().__init__(owner)
        self._group_id = group_id
        self.request = AddOffsetsToTxnRequest(
            transactional_id=owner.key,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )

    def codes(self, response: AddOffsetsToTxnResponse) -> Codes:
        return [(f": {self._group_id}", error_code(response.error_code))]


class CommitOffsets(PendingStep):
    """Commits a group's offsets as a part of the transaction."""

    step = Step.COMMIT_OFFSETS
    response = TxnOffsetCommitResponse

    def __init__(
        self,
        transactional_id: str,
        identity: Identity,
        transaction_version: int,
        member: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        super().__init__(CoordinatorKey(GROUP, member.group_id))
        self._group_id = member.group_id
        implicit = transaction_version >= ADDS_IMPLICITLY
        self.versions = (
            (_IMPLICIT_OFFSETS, _TOPIC_NAMES)
            if implicit
            else (_WITH_MEMBERS, _IMPLICIT_OFFSETS - 1)
        )
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for partition, at in sorted(offsets.items()):
            topics[partition.topic].append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
            )
        self.request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=member.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )

    def codes(self, response: TxnOffsetCommitResponse) -> Codes:
        group = self._group_id
        return [
            (f": {topic.name}-{row.partition_index} of group {group}", error_code(row.error_code))
            for topic in response.topics
            for row in topic.partitions
        ]


class End(PendingStep):
    """Commits or aborts the transaction."""

    response = EndTxnResponse

    def __init__(
        self, owner: CoordinatorKey, identity: Identity, transaction_version: int, *, commit: bool
    ) -> None:
        super().__init__(owner)
        self.step = Step.COMMIT if commit else Step.ABORT
        ends_epoch = transaction_version >= ADDS_IMPLICITLY
        self.versions = (_ENDS_EPOCH, None) if ends_epoch else (0, _ENDS_EPOCH - 1)
        self.request = EndTxnRequest(
            transactional_id=owner.key,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )

    def identity(self, response: EndTxnResponse) -> Identity:
        """The producer id and epoch for the next transaction; NO_IDENTITY if the response has none,
        as before version 5 of EndTxn."""
        if response.producer_id < 0:
            return NO_IDENTITY
        return Identity(response.producer_id, response.producer_epoch)
