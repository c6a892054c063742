"""A broker with transactions as a model: decoded requests in, responses out, no socket, no clock.

The model follows Kafka 4.3's rules for one coordinator and one leader of all partitions: the
coordinator's states and epochs in both forms (transaction.version 0 and 2), sequences, the window
of five batches. `write_markers` writes the markers; until then the coordinator answers
CONCURRENT_TRANSACTIONS.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult as _Added,
)
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
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
from pyspark_klog.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pyspark_klog.protocol.message import Request, Response
from pyspark_klog.records.batch import BatchView

TOPIC = "t"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
Owner = tuple[int, int]
"""A producer id and the epoch that a batch was written in."""


@dataclass
class Log:
    """One partition, for one producer."""

    epoch: int = -1
    next_sequence: int = 0
    window: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))
    open: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)

    def append(self, batch: BatchView) -> ErrorCode:
        epoch, sequence, count = batch.producer_epoch, batch.base_sequence, batch.record_count
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > self.epoch:
            if sequence != 0 and self.epoch >= 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._begin(epoch, sequence)
        if (sequence, count) in self.window:
            return ErrorCode.NONE
        if sequence != self.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.open += [(record.value or b"").decode() for record in batch.records()]
        self.window.append((sequence, count))
        self.next_sequence += count
        return ErrorCode.NONE

    def append_marker(self, epoch: int, *, commit: bool) -> None:
        """A marker: with the epoch of the next transaction where every one has its own."""
        if epoch > self.epoch:
            self._begin(epoch, 0)
        self.committed += self.open if commit else []
        self.open = []

    def _begin(self, epoch: int, sequence: int) -> None:
        self.epoch, self.next_sequence = epoch, sequence
        self.window.clear()


@dataclass
class _Transaction:
    producer_id: int = 7
    epoch: int = 0
    last_epoch: int = -1
    state: str = "empty"
    commit: bool = False
    members: set[TopicPartition | str] = field(default_factory=set)
    pending: dict[TopicPartition, int] = field(default_factory=dict)


class TransactionModel:
    """The brokers: node 0 coordinates, node 1 leads.

    ``version`` is their transaction.version. Before Kafka 3.6 a leader does not ask whether a
    transaction is open (``verifies``).
    """

    def __init__(self, version: int, *, verifies: bool = True) -> None:
        self.version = version
        self._verifies = verifies
        self.logs = {partition: Log() for partition in PARTITIONS}
        self.offsets: dict[TopicPartition, int] = {}
        self._transactions: dict[str, _Transaction] = {}

    def answer(self, request: Request) -> Response:
        """Carry out a request."""
        if isinstance(request, InitProducerIdRequest):
            return self._initialize(request)
        if isinstance(request, EndTxnRequest):
            return self._end(request)
        if isinstance(request, ProduceRequest):
            code = self._begin_produce(request)
            return response_with_error(request, code) if code else self._produce(request)
        if isinstance(request, AddPartitionsToTxnRequest | AddOffsetsToTxnRequest):
            return response_with_error(request, self._add(*_joined(request)))
        if isinstance(request, TxnOffsetCommitRequest):
            return response_with_error(request, self._commit_offsets(request))
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=0, host="coordinator", port=1)
        rows = [
            MetadataResponsePartition(partition_index=p.partition, leader_id=1) for p in PARTITIONS
        ]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=0, host="coordinator", port=1),
                MetadataResponseBroker(node_id=1, host="leader", port=1),
            ],
            topics=[MetadataResponseTopic(name=TOPIC, partitions=rows)],
        )

    def write_markers(self) -> None:
        """Write the markers of every transaction whose end is decided."""
        for each in self._transactions.values():
            if each.state != "prepare":
                continue
            for log in (self.logs[p] for p in each.members if isinstance(p, TopicPartition)):
                log.append_marker(each.epoch, commit=each.commit)
            self.offsets |= each.pending if each.commit else {}
            each.members, each.pending, each.state = set(), {}, "complete"

    # --- the coordinator -------------------------------------------------------------------------
    def _initialize(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        name = request.transactional_id or ""
        if name not in self._transactions:
            self._transactions[name] = _Transaction()
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        found = self._transactions[name]
        goes_on = request.producer_id >= 0
        if goes_on and request.producer_epoch != found.epoch:
            if request.producer_epoch != found.last_epoch:
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED.value)
        elif found.state == "ongoing":
            found.epoch, found.last_epoch = found.epoch + 1, -1
            found.state, found.commit = "prepare", False
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS.value)
        elif found.state == "prepare":
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS.value)
        else:
            found.last_epoch = found.epoch if goes_on else -1
            found.epoch, found.state = found.epoch + 1, "empty"
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _add(self, name: str, owner: Owner, members: Iterable[TopicPartition | str]) -> ErrorCode:
        found = self._transactions.get(name)
        if found is None or owner[0] != found.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if owner[1] != found.epoch:
            return ErrorCode.PRODUCER_FENCED
        if found.state == "prepare":
            return ErrorCode.CONCURRENT_TRANSACTIONS
        found.state = "ongoing"
        found.members.update(members)
        return ErrorCode.NONE

    def _end(self, request: EndTxnRequest) -> EndTxnResponse:
        found = self._transactions[request.transactional_id]
        is_same = request.committed == found.commit
        bumps = self.version >= 2
        code = ErrorCode.NONE
        if bumps and request.producer_epoch == found.last_epoch and found.state != "ongoing":
            if found.state == "prepare":
                code = ErrorCode.CONCURRENT_TRANSACTIONS
            elif found.state == "complete" and not is_same:
                code = ErrorCode.INVALID_TXN_STATE
        elif request.producer_epoch != found.epoch:
            code = ErrorCode.PRODUCER_FENCED
        elif found.state == "ongoing":
            found.state, found.commit = "prepare", request.committed
            if bumps:
                found.epoch, found.last_epoch = found.epoch + 1, found.epoch
        elif found.state == "prepare":
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif bumps and not request.committed:
            found.epoch, found.last_epoch = found.epoch + 1, found.epoch
        elif bumps or found.state == "empty" or not is_same:
            code = ErrorCode.INVALID_TXN_STATE
        if code or not bumps:
            return EndTxnResponse(error_code=code.value)
        return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    # --- the log and the group -------------------------------------------------------------------
    def _begin_produce(self, request: ProduceRequest) -> ErrorCode:
        batches = [BatchView(data.records) for data in _rows(request)]
        owner = (batches[0].producer_id, batches[0].producer_epoch)
        members = {TopicPartition(TOPIC, data.index) for data in _rows(request)}
        assert all(each.is_transactional for each in batches)
        found = self._transactions[request.transactional_id or ""]
        if self.version >= 2:
            code = self._add(request.transactional_id or "", owner, members)
            fenced = code is ErrorCode.PRODUCER_FENCED
            return ErrorCode.INVALID_PRODUCER_EPOCH if fenced else code
        is_member = found.state == "ongoing" and members <= found.members
        allowed = is_member or not self._verifies
        return ErrorCode.NONE if allowed else ErrorCode.INVALID_TXN_STATE

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        rows = []
        for data in _rows(request):
            code = self.logs[TopicPartition(TOPIC, data.index)].append(BatchView(data.records))
            rows.append(PartitionProduceResponse(index=data.index, error_code=code.value))
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=rows)]
        )

    def _commit_offsets(self, request: TxnOffsetCommitRequest) -> ErrorCode:
        name, group = request.transactional_id, request.group_id
        owner = (request.producer_id, request.producer_epoch)
        found = self._transactions[name]
        if self.version >= 2:
            if code := self._add(name, owner, [group]):
                return code
        elif owner[1] != found.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        elif group not in found.members:
            return ErrorCode.INVALID_TXN_STATE
        for topic in request.topics:
            for row in topic.partitions:
                found.pending[TopicPartition(topic.name, row.partition_index)] = (
                    row.committed_offset
                )
        return ErrorCode.NONE


def _joined(request: Any) -> tuple[str, Owner, list[TopicPartition | str]]:
    if isinstance(request, AddOffsetsToTxnRequest):
        owner = (request.producer_id, request.producer_epoch)
        return request.transactional_id, owner, [request.group_id]
    return (
        request.v3_and_below_transactional_id,
        (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        [TopicPartition(t.name, n) for t in request.v3_and_below_topics for n in t.partitions],
    )


def _rows(request: ProduceRequest) -> list[Any]:
    return [data for topic in request.topic_data for data in topic.partition_data]


def response_with_error(request: Request, code: ErrorCode) -> Response:
    """A response with the same error code for each requested item."""
    number = code.value
    if isinstance(request, ProduceRequest):
        rows = [PartitionProduceResponse(index=d.index, error_code=number) for d in _rows(request)]
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=rows)]
        )
    if isinstance(request, AddPartitionsToTxnRequest):
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    _Added(partition_index=n, partition_error_code=number) for n in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    if isinstance(request, TxnOffsetCommitRequest):
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=number
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    replies: dict[type[Request], Any] = {
        InitProducerIdRequest: InitProducerIdResponse,
        EndTxnRequest: EndTxnResponse,
        AddOffsetsToTxnRequest: AddOffsetsToTxnResponse,
        FindCoordinatorRequest: FindCoordinatorResponse,
    }
    reply: Response = replies[type(request)](error_code=number)
    return reply
