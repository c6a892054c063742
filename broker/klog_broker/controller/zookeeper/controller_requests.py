"""Requests that the controller carries out for brokers and clients.

Brokers send AlterPartition, ControlledShutdown and AllocateProducerIds; mostly clients request
leader elections (ElectLeaders) and the creation, extension and deletion of topics. Each may be
carried out again after a response of ZooKeeper was lost, and then returns the same result: a change
that is already in ZooKeeper counts as the request's own. (But a block of producer ids may remain
unused.) A write that an access list forbids raises WriteDenied, and writes nothing; only
ElectLeaders and ControlledShutdown skip its partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.decisions.isr_changes import (
    alter_partition_response,
    append_response,
    broker_epoch_error,
    decide_isr_changes,
    split_request,
)
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.decisions.requested_election import requested_election
from klog_broker.controller.zookeeper.errors import (
    ControllerStateOutdated,
    WriteDenied,
    WriteRefused,
)
from klog_broker.controller.zookeeper.znode_writer import (
    LOOKED_AT_A_TURN,
    PARTITIONS_A_TURN,
    EventContext,
    has_state,
)
from klog_broker.metadata.zookeeper.conversation import Steps, exists, get
from klog_broker.runtime.zookeeper.sessions import (
    Create,
    MultiFailed,
    NoAuth,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Stat,
    ZooKeeperError,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, ProducerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from pyspark_klog.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from pyspark_klog.znodes.cluster import (
    ProducerIdBlock,
    decode_producer_id_block,
    encode_producer_id_block,
)
from pyspark_klog.znodes.configs import TOPICS, config_path, encode_config, entity
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import PRODUCER_ID_BLOCK, delete_topic_path, topic_path
from pyspark_klog.znodes.topics import (
    PartitionAssignment,
    TopicAssignment,
    encode_topic,
)

PRODUCER_IDS_A_BLOCK = 1_000
_MAX_ID = (1 << 63) - 1
_UNKNOWN_EPOCH = -1

TOO_LARGE = ErrorCode.INVALID_REQUEST
"""The error if a topic's assignment or configuration does not fit into a znode."""

ElectionErrors = dict[TopicPartition, ErrorCode]


def alter_partition(
    work: EventContext, request: AlterPartitionRequest
) -> Steps[AlterPartitionResponse]:
    """Carry out AlterPartition: write the ISRs that a leader requests, as far as they are valid."""
    context = work.controller_state.context
    stale = ErrorCode.STALE_BROKER_EPOCH
    fault = broker_epoch_error(context, request.broker_id, request.broker_epoch, stale)
    if fault is not ErrorCode.NONE:
        return AlterPartitionResponse(error_code=fault)
    response = AlterPartitionResponse()
    for count, part in enumerate(split_request(request)):
        if count:
            yield from work.writer.next_turn(work.controller_state)
        decision = decide_isr_changes(context, part)
        yield from work.writer.write_states(
            work.controller_state, decision.changes, notifies_replicas=False
        )
        append_response(response, alter_partition_response(context, part, decision))
    return response


def shut_down(
    work: EventContext, request: ControlledShutdownRequest
) -> Steps[ControlledShutdownResponse]:
    """Carry out ControlledShutdown: move leadership away from a broker, and remove it from ISRs.

    The response names the partitions that the broker still leads, usually because no other replica
    is in sync. Partitions with one replica are not named.
    """
    controller_state, context = work.controller_state, work.controller_state.context
    broker_id = BrokerId(request.broker_id)
    broker = context.brokers.get(broker_id)
    if broker is None:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    if request.broker_epoch not in (_UNKNOWN_EPOCH, broker.epoch):
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    context.begin_shutdown(broker_id)
    replicated = []
    for count, partition in enumerate(context.partitions_on(broker_id), 1):
        if len(context.assignment(partition)) > 1 and not context.is_to_be_deleted(partition.topic):
            replicated.append(partition)
            controller_state.mark_unsettled((partition,))
        if count % LOOKED_AT_A_TURN == 0:
            yield from work.writer.pause()
    yield from work.writer.settle(controller_state)
    remaining = []
    for count, partition in enumerate(replicated, 1):
        if count % PARTITIONS_A_TURN == 0:
            yield from work.writer.next_turn(controller_state)
        known = context.leadership(partition)
        if known is None:
            continue
        if known.state.leader == broker_id:
            remaining.append(
                RemainingPartition(topic_name=partition.topic, partition_index=partition.partition)
            )
        else:
            controller_state.mark_replica_offline(partition, broker_id)
            controller_state.batch.add_stop_replica(partition, (broker_id,), deletes=False)
    return ControlledShutdownResponse(remaining_partitions=remaining)


def elect_leaders(
    work: EventContext,
    partitions: Sequence[TopicPartition] | None,
    attempted: dict[TopicPartition, LeaderAndIsr],
    *,
    unclean: bool,
    leader: BrokerId | None = None,
) -> Steps[ElectionErrors]:
    """Carry out ElectLeaders for these partitions; return the error code of each.

    If `partitions` is None, leaders are elected for all partitions, except for partitions of topics
    that are to be deleted. Without `unclean`, elects the preferred replicas. With `unclean`, elects
    any online replica, for partitions without an online leader. With `leader`, elects the replica
    of this broker. `attempted` has the states that
    earlier attempts of this request may have written; this attempt adds its own.
    """
    context = work.controller_state.context
    asked: Iterable[TopicPartition] = partitions or ()
    if partitions is None:
        topics = (each for each in context.topics if not context.is_to_be_deleted(each))
        asked = (each for topic in topics for each in context.partitions_of(topic))
    errors: ElectionErrors = {}
    changes: dict[TopicPartition, LeaderAndIsr] = {}
    for count, partition in enumerate(asked, 1):
        if count % LOOKED_AT_A_TURN == 0:
            yield from work.writer.pause()
        elected = requested_election(context, partition, unclean=unclean, leader=leader)
        if isinstance(elected, LeaderAndIsr):
            changes[partition] = elected
            errors[partition] = ErrorCode.NONE
        elif elected is ErrorCode.ELECTION_NOT_NEEDED and _is_elected(
            context, partition, attempted
        ):
            errors[partition] = ErrorCode.NONE
        else:
            errors[partition] = elected
    attempted.update(changes)
    yield from work.writer.write_states(work.controller_state, changes)
    for count, (partition, state) in enumerate(changes.items(), 1):
        if count % LOOKED_AT_A_TURN == 0:
            yield from work.writer.pause()
        if not has_state(context, partition, state):
            errors[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
    return errors


def _is_elected(
    context: ControllerContext,
    partition: TopicPartition,
    attempted: Mapping[TopicPartition, LeaderAndIsr],
) -> bool:
    """Whether an earlier attempt of the same request has elected the partition's present leader."""
    known, state = context.leadership(partition), attempted.get(partition)
    if known is None or state is None:
        return False
    return (known.state.leader, known.state.leader_epoch) == (state.leader, state.leader_epoch)


def allocate_producer_ids(
    work: EventContext, request: AllocateProducerIdsRequest
) -> Steps[AllocateProducerIdsResponse]:
    """Carry out AllocateProducerIds: return a block of ids that no broker has ever had."""
    unknown = ErrorCode.BROKER_ID_NOT_REGISTERED
    context = work.controller_state.context
    fault = broker_epoch_error(context, request.broker_id, request.broker_epoch, unknown)
    if fault is not ErrorCode.NONE:
        return AllocateProducerIdsResponse(error_code=fault)
    node = yield from get(work.session, PRODUCER_ID_BLOCK)
    if not isinstance(node, Node):
        raise _read_error(work, PRODUCER_ID_BLOCK, node)
    try:
        first = decode_producer_id_block(node.data).last + 1 if node.data else 0
    except ZnodeError as error:
        work.reader.log_unusable_znode(PRODUCER_ID_BLOCK, node.data, str(error))
        return AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    last = first + PRODUCER_IDS_A_BLOCK - 1
    if last > _MAX_ID:
        return AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    block = ProducerIdBlock(BrokerId(request.broker_id), ProducerId(first), ProducerId(last))
    data = encode_producer_id_block(block)
    yield from work.writer.write([Set(PRODUCER_ID_BLOCK, data, node.stat.version)])
    return AllocateProducerIdsResponse(
        producer_id_start=first, producer_id_len=PRODUCER_IDS_A_BLOCK
    )


def _read_error(work: EventContext, path: str, error: ZooKeeperError) -> ControllerStateOutdated:
    if isinstance(error, NoAuth):
        work.reader.log_unusable_znode(path, b"", str(error))
        return WriteDenied(f"{path} may not be read")
    return ControllerStateOutdated(f"{path} cannot be read: {error}")


# --- changes of topics: write the znodes; a watch then makes the controller read the change -----


@dataclass(frozen=True, slots=True)
class ValidatedTopic:
    """A topic to create, already validated. No other topic has its id."""

    name: str
    topic_id: TopicId
    replicas: tuple[tuple[BrokerId, ...], ...]
    configs: Mapping[str, str]


def create_topic(work: EventContext, topic: ValidatedTopic) -> Steps[ErrorCode]:
    """Create a topic's znodes: its assignment and its configuration.

    Leaders are elected later, when the controller sees the new znode.
    """
    settings = config_path(entity(TOPICS, topic.name))
    there = yield from exists(work.session, settings)
    if isinstance(there, ZooKeeperError):
        raise ControllerStateOutdated(f"{settings} cannot be read: {there}")
    config = encode_config(topic.configs)
    partitions = {number: PartitionAssignment(each) for number, each in enumerate(topic.replicas)}
    # Encode in the next event-loop turn: for 10,000 partitions the dictionary takes 4 ms, and its
    # encoding takes 6 ms.
    yield from work.writer.pause()
    assignment = encode_topic(TopicAssignment(topic.topic_id, partitions))
    operations: list[Operation] = [Create(topic_path(topic.name), assignment)]
    operations.append(
        Set(settings, config) if isinstance(there, Stat) else Create(settings, config)
    )
    try:
        answer = yield from work.writer.try_write(operations)
    except WriteRefused:
        return TOO_LARGE
    if not isinstance(answer, MultiFailed):
        return ErrorCode.NONE
    work.writer.check_allowed(operations, answer)
    if answer.index > 0 or not isinstance(answer.error, NodeExists):
        raise ControllerStateOutdated(f"topic {topic.name} was not created: {answer}")
    found = yield from get(work.session, topic_path(topic.name))
    is_made = yield from _is_of(work, topic, found)
    return ErrorCode.NONE if is_made else ErrorCode.TOPIC_ALREADY_EXISTS


def _is_of(work: EventContext, topic: ValidatedTopic, found: Node | ZooKeeperError) -> Steps[bool]:
    if not isinstance(found, Node):
        return False
    try:
        assignment = yield from work.reader.assignment(topic.name, found.data)
    except ZnodeError:
        return False
    return assignment.topic_id == topic.topic_id


def add_partitions(
    work: EventContext, name: str, replicas: Mapping[int, tuple[BrokerId, ...]]
) -> Steps[ErrorCode]:
    """Add partitions to a topic. `replicas` has their assignments by partition number; the numbers
    must continue those of the topic's present partitions."""
    node = yield from get(work.session, topic_path(name))
    if isinstance(node, NoNode):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not isinstance(node, Node):
        raise _read_error(work, topic_path(name), node)
    try:
        known = yield from work.reader.assignment(name, node.data)
    except ZnodeError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    added = {number: PartitionAssignment(each) for number, each in replicas.items()}
    if added.items() <= known.partitions.items():
        return ErrorCode.NONE
    if work.controller_state.context.is_to_be_deleted(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if sorted(added) != list(range(len(known.partitions), len(known.partitions) + len(added))):
        return ErrorCode.INVALID_PARTITIONS
    yield from work.writer.pause()
    data = encode_topic(replace(known, partitions={**known.partitions, **added}))
    try:
        yield from work.writer.write([Set(topic_path(name), data, node.stat.version)])
    except WriteRefused:
        return TOO_LARGE
    return ErrorCode.NONE


def delete_topic(work: EventContext, name: str, topic_id: TopicId) -> Steps[ErrorCode]:
    """Request a topic's deletion by creating the znode /admin/delete_topics/NAME.

    Clients stop seeing the topic soon after. Each broker with a replica deletes its logs of the
    topic as soon as the broker is available. The znode has the topic's name and not its id, so the
    znode is created only if the topic of this name still has the id `topic_id`.
    """
    if work.controller_state.context.topic_id(name) != topic_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    operations: list[Operation] = [Create(delete_topic_path(name), b"")]
    answer = yield from work.writer.try_write(operations)
    work.writer.check_allowed(operations, answer)
    if isinstance(answer, MultiFailed) and not isinstance(answer.error, NodeExists):
        raise ControllerStateOutdated(
            f"{delete_topic_path(name)}, which requests a deletion, was not created: {answer}"
        )
    return ErrorCode.NONE
