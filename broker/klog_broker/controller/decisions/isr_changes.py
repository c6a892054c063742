"""AlterPartition: a leader requests a new ISR, and the controller decides (KIP-497).

The functions perform no I/O. The error codes are those of Kafka 3.9.1's controller. klog has four
more rules:

- A replica may be in the new ISR only if its broker has the epoch that the request names for it. An
  epoch of -1, which Kafka's own brokers send in ZooKeeper mode, never matches (KIP-903).
- Only the partition's leader may send the request.
- The ISR must be a subset of the replicas without repetition, and contain the leader. Kafka writes
  the ISR that its brokers send. This rule and the first one hold only for an ISR that differs from
  the present one.
- A request for the present ISR in the present partition epoch is written, too. The write raises the
  partition epoch, so that no request of the leader that was sent earlier can take effect.
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


class IsrDecision(NamedTuple):
    """The decision on a request: the partition states (leader and ISR) to write to ZooKeeper, and
    the errors to answer, by topic id and partition index."""

    changes: dict[TopicPartition, LeaderAndIsr]
    errors: dict[tuple[TopicId, int], ErrorCode]


def broker_epoch_error(
    context: ControllerContext, broker_id: int, broker_epoch: int, unknown: ErrorCode
) -> ErrorCode:
    """The error for a request whose broker epoch is not the registered one; NONE if it matches.

    `unknown` is the error for a broker that is not registered.
    """
    broker = context.brokers.get(BrokerId(broker_id))
    if broker is None:
        return unknown
    return ErrorCode.NONE if broker.epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH


def split_request(request: AlterPartitionRequest) -> Iterator[AlterPartitionRequest]:
    """Split a request into requests of at most 500 partitions.

    A broker may lead thousands of partitions, and the controller handles the parts in different
    event-loop turns, so that no turn takes long. Each partition is decided independently of the
    others, so the split does not change the result.
    """

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


def decide_isr_changes(context: ControllerContext, request: AlterPartitionRequest) -> IsrDecision:
    """Decide for each partition which state to write. The caller has checked the broker epoch.

    A partition that already has the requested state, and whose request names an older partition
    epoch, is neither in the changes nor in the errors: the response has its present state.
    """
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
    return IsrDecision(changes, errors)


def alter_partition_response(
    context: ControllerContext, request: AlterPartitionRequest, decision: IsrDecision
) -> AlterPartitionResponse:
    """The response to a request. The caller has written the changes of the IsrDecision."""
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


def append_response(to: AlterPartitionResponse, part: AlterPartitionResponse) -> None:
    """Append `part`, the response to one part of a request, to the response `to`. The parts must
    come in the order in which `split_request` yields them."""
    for topic in part.topics:
        if to.topics and to.topics[-1].topic_id == topic.topic_id:
            to.topics[-1].partitions += topic.partitions
        else:
            to.topics.append(topic)


def _result(
    context: ControllerContext, topic_id: TopicId, asked: PartitionData, decision: IsrDecision
) -> PartitionResult:
    index = asked.partition_index
    error = decision.errors.get((topic_id, index))
    known = context.leadership(TopicPartition(context.topic_name(topic_id) or "", index))
    if error is not None or known is None:
        code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResult(partition_index=index, error_code=code)
    wanted = decision.changes.get(TopicPartition(context.topic_name(topic_id) or "", index))
    if wanted not in (None, known.state):
        # The state was not written, because the access list (ACL) of a znode forbids it.
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
        # A different order of the same ISR is no change.
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
    """The error for one partition, NONE if there is none. The checks come in Kafka's order."""
    state, leader_epoch = known.state, LeaderEpoch(asked.leader_epoch)
    if asked.partition_epoch > known.partition_epoch or leader_epoch > state.leader_epoch:
        # The leader knows a later state than this controller: another controller was elected.
        return ErrorCode.NOT_CONTROLLER
    if leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if _wanted(known, asked) == state:
        # The requested state is already written: the first response was lost, or the leader
        # requests the present ISR. A repeated request names an old partition epoch, so this check
        # must come before the check of that epoch.
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
