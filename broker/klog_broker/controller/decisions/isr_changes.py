"""AlterPartition: a leader asks for another in-sync set, the controller decides (KIP-497). Pure.

The answers are those of Kafka 3.9.1's controller, with four rules more. A replica is eligible only
in the broker's epoch that the leader has met it in, and -1, which Kafka's own brokers send with
ZooKeeper, is none (KIP-903). Only the leader may ask. The set is some of the replicas, each once,
the leader among them: Kafka writes what its brokers say. And who asks for the set that there is, in
the present partition epoch, gets a new epoch: no request that was sent before that counts any more.
"""

from collections.abc import Iterator
from typing import NamedTuple

from klog_broker.controller.decisions.context import ControllerContext, Leadership
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicData,
    TopicResult,
)

_PARTITIONS_A_PART = 500


class Decision(NamedTuple):
    """What is to be written, and what is answered beside it."""

    changes: dict[TopicPartition, LeaderAndIsr]
    errors: dict[tuple[TopicId, int], ErrorCode]


def broker_fault(
    context: ControllerContext, broker_id: int, broker_epoch: int, unknown: ErrorCode
) -> ErrorCode:
    """Whether a request is from the life of the broker that is registered."""
    broker = context.brokers.get(BrokerId(broker_id))
    if broker is None:
        return unknown
    return ErrorCode.NONE if broker.epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH


def parts(request: AlterPartitionRequest) -> Iterator[AlterPartitionRequest]:
    """The request as several of a few partitions each: those of a broker may be thousands, and each
    partition is decided on alone."""

    def part(topics: list[TopicData]) -> AlterPartitionRequest:
        return AlterPartitionRequest(
            broker_id=request.broker_id, broker_epoch=request.broker_epoch, topics=topics
        )

    topics: list[TopicData] = []
    left = _PARTITIONS_A_PART
    for topic in request.topics:
        first, count = 0, len(topic.partitions)
        while first < count:
            some = topic.partitions[first : first + left]
            topics.append(TopicData(topic_id=topic.topic_id, partitions=some))
            first += len(some)
            left -= len(some)
            if not left:
                yield part(topics)
                topics, left = [], _PARTITIONS_A_PART
    if topics:
        yield part(topics)


def decide(context: ControllerContext, request: AlterPartitionRequest) -> Decision:
    """What becomes of each partition; the broker's epoch has been checked."""
    changes: dict[TopicPartition, LeaderAndIsr] = {}
    errors: dict[tuple[TopicId, int], ErrorCode] = {}
    for topic in request.topics:
        topic_id = TopicId(topic.topic_id)
        name = context.topic_name(topic_id)
        for asked in topic.partitions:
            key = (topic_id, asked.partition_index)
            if name is None:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            partition = TopicPartition(name, asked.partition_index)
            known = context.leadership(partition)
            if known is None or context.is_to_be_deleted(name):
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            fault = _fault(context, partition, BrokerId(request.broker_id), asked, known)
            wanted = _wanted(known, asked)
            if fault is not ErrorCode.NONE:
                errors[key] = fault
            elif wanted != known.state or asked.partition_epoch == known.partition_epoch:
                changes[partition] = wanted
    return Decision(changes, errors)


def answer(
    context: ControllerContext, request: AlterPartitionRequest, decision: Decision
) -> AlterPartitionResponse:
    """Once the changes are written."""
    return AlterPartitionResponse(
        topics=[
            TopicResult(
                topic_id=topic.topic_id,
                partitions=[
                    _result(context, TopicId(topic.topic_id), each, decision)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def add_answer(to: AlterPartitionResponse, part: AlterPartitionResponse) -> None:
    """The answer to the next part."""
    for topic in part.topics:
        if to.topics and to.topics[-1].topic_id == topic.topic_id:
            to.topics[-1].partitions += topic.partitions
        else:
            to.topics.append(topic)


def _result(
    context: ControllerContext, topic_id: TopicId, asked: PartitionData, decision: Decision
) -> PartitionResult:
    index = asked.partition_index
    error = decision.errors.get((topic_id, index))
    known = context.leadership(TopicPartition(context.topic_name(topic_id) or "", index))
    if error is not None or known is None:
        code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResult(partition_index=index, error_code=code)
    wanted = decision.changes.get(TopicPartition(context.topic_name(topic_id) or "", index))
    if wanted not in (None, known.state):
        # It may not be written.
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        return PartitionResult(partition_index=index, error_code=code)
    return PartitionResult(
        partition_index=index,
        leader_id=known.state.leader,
        leader_epoch=known.state.leader_epoch,
        isr=list(known.state.in_sync),
        leader_recovery_state=int(known.state.is_recovering),
        partition_epoch=known.partition_epoch,
    )


def _wanted(known: Leadership, asked: PartitionData) -> LeaderAndIsr:
    in_sync = tuple(BrokerId(each.broker_id) for each in asked.new_isr_with_epochs)
    if frozenset(in_sync) == frozenset(known.state.in_sync):
        # The same in another order is no change.
        in_sync = known.state.in_sync
    return LeaderAndIsr(
        known.state.leader, known.state.leader_epoch, in_sync, asked.leader_recovery_state == 1
    )


def _fault(
    context: ControllerContext,
    partition: TopicPartition,
    broker_id: BrokerId,
    asked: PartitionData,
    known: Leadership,
) -> ErrorCode:
    """In Kafka's order."""
    state, leader_epoch = known.state, LeaderEpoch(asked.leader_epoch)
    if asked.partition_epoch > known.partition_epoch or leader_epoch > state.leader_epoch:
        # The broker knows more than this controller: another one must be there by now.
        return ErrorCode.NOT_CONTROLLER
    if leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if _wanted(known, asked) == state:
        # Done already: the answer before this one was lost. So it comes before the next check.
        return ErrorCode.NONE
    if asked.partition_epoch != known.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    in_sync = [BrokerId(each.broker_id) for each in asked.new_isr_with_epochs]
    replicas = context.assignment(partition)
    is_a_set = len(set(in_sync)) == len(in_sync) and set(in_sync) <= set(replicas)
    if not is_a_set or broker_id not in in_sync or asked.leader_recovery_state not in (0, 1):
        return ErrorCode.INVALID_REQUEST
    if asked.leader_recovery_state == 1 and (not state.is_recovering or len(in_sync) > 1):
        return ErrorCode.INVALID_REQUEST
    online = context.online_for(partition)
    for each in asked.new_isr_with_epochs:
        member = BrokerId(each.broker_id)
        if member not in online or context.brokers[member].epoch != each.broker_epoch:
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
