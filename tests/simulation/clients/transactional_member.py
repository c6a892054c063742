"""A member that commits its offsets in transactions, as a copy from topic to topic does (KIP-447).

Its generation goes with the offsets: a member that was taken for dead is refused, though its
producer is not fenced. All members of its group read stable offsets.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.client.producer.batches import ADDS_IMPLICITLY
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
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
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.simulation.clients.base import Lost, Script, check_code
from tests.simulation.clients.member import GROUP, Member
from tests.simulation.plan import LONGEST_TIMEOUT_MS

_NONE = ErrorCode.NONE
_TRANSACTIONAL = 1
_LATER = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_OVER = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""The transaction has taken too long or cannot be written, so its outcome is unknown."""
_REFUSED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)


class TransactionalMember(Member):
    """A member with its own transactional id: only itself or a timeout ends a transaction."""

    reads_stable = True

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._id = f"of-{self.name}"
        self._version = self.world.random.choice((0, ADDS_IMPLICITLY))
        self._producer_id, self._epoch = -1, -1

    def script(self) -> Script:
        yield from self.connect()
        yield from self._initialize()
        yield from super().script()

    def _initialize(self) -> Script:
        """Get a producer id, which also ends the last transaction."""
        found = FindCoordinatorRequest(key=self._id, key_type=_TRANSACTIONAL)
        yield from self._until_done(found, FindCoordinatorResponse, low=1, high=3)
        timeout_ms = self.world.between(1_000, LONGEST_TIMEOUT_MS)
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=timeout_ms
        )
        reply = yield from self._until_done(request, InitProducerIdResponse, high=5)
        self._producer_id, self._epoch = reply.producer_id, reply.producer_epoch

    def _until_done(
        self, request: Any, response_class: Any, **versions: int
    ) -> Generator[Any, Any, Any]:
        """Send until it succeeds; Lost if it cannot succeed."""
        while True:
            reply = yield from self.call_broker(request, response_class, **versions)
            code = check_code(self, reply.error_code, *_LATER, *_OVER)
            if code is _NONE:
                return reply
            self.note(f"{type(request).__name__}: {code.name}")
            if code not in _LATER:
                self._start_over()
            yield from self.sleep(self.world.between(10, 200))

    def _start_over(self) -> None:
        self.hang_up()
        raise Lost

    def _ask_commit(
        self, request: OffsetCommitRequest
    ) -> Generator[Any, Any, OffsetCommitResponse]:
        """Commit the offsets in a transaction, and commit or abort it by the group's response."""
        producer = {
            "transactional_id": self._id,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
        }
        adds = self._version >= ADDS_IMPLICITLY
        if not adds:
            added = AddOffsetsToTxnRequest(group_id=GROUP, **producer)
            yield from self._until_done(added, AddOffsetsToTxnResponse, high=3)
        if self.world.chance(0.05):
            yield from self.sleep(self.world.between(0, 5_000))
        reply = yield from self.call_broker(
            self._in_transaction(request, producer),
            TxnOffsetCommitResponse,
            low=5 if adds else 3,
            high=5 if adds else 4,
            waits_ms=5_000,
        )
        codes = [
            check_code(self, row.error_code, *_LATER, *_OVER, *_REFUSED)
            for topic in reply.topics
            for row in topic.partitions
        ]
        worst = next((code for code in codes if code is not _NONE), _NONE)
        self.note(f"commits in a transaction: {worst.name}")
        if worst in _LATER or worst in _OVER:
            self._start_over()
        end = EndTxnRequest(committed=worst is _NONE, **producer)
        answer = yield from self._until_done(
            end, EndTxnResponse, low=5 if adds else 3, high=5 if adds else 4
        )
        if adds:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        return _answer(request, worst)

    def _in_transaction(
        self, request: OffsetCommitRequest, producer: dict[str, Any]
    ) -> TxnOffsetCommitRequest:
        names = {topic_id: name for name, topic_id in self._ids.items()}
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic.name or names[topic.topic_id],
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_metadata="",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return TxnOffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            topics=topics,
            **producer,
        )


def _answer(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """An OffsetCommit response with this code for all partitions."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
