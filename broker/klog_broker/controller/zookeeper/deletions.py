"""Deletes topics: a znode /admin/delete_topics/NAME requests the deletion of the topic NAME.

A deletion is complete when every assigned broker has confirmed the deletion of its replica, so the
deletion waits for unavailable brokers. Then the topic's znodes are deleted. The topic's own znode,
its configuration and its deletion request go last, in one multi, so that the next controller finds
either the request with its topic, or neither.
"""

import logging
from collections.abc import Iterable
from functools import partial
from itertools import count

from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.errors import ControllerStateOutdated, WriteDenied
from klog_broker.controller.zookeeper.request_batch import BrokerRequest
from klog_broker.controller.zookeeper.request_sender import BrokerResponse
from klog_broker.controller.zookeeper.topic_events import NewId, refresh_topics
from klog_broker.controller.zookeeper.znode_writer import PARTITIONS_A_TURN, EventContext
from klog_broker.metadata.zookeeper.conversation import Steps, exists, together
from klog_broker.runtime.zookeeper.sessions import Children, Delete, NoAuth, NoNode
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaResponse
from pyspark_klog.znodes.configs import TOPICS, config_path, entity
from pyspark_klog.znodes.paths import delete_topic_path, topic_path

_log = logging.getLogger("klog.controller")

_AT_ONCE = 200
"""The most znodes that are deleted in one multi, or whose children are requested concurrently."""


def process_topic_deletions(work: EventContext, new_id: NewId) -> Steps[None]:
    """Read which topics are to be deleted, begin their deletion, and retry failed deletions.

    With delete.topic.enable=false, remove the deletion requests from ZooKeeper instead.
    """
    context = work.controller_state.context
    names = yield from work.reader.deletions()
    if not work.controller_state.deletes_topics:
        for name in names:
            _log.warning("topic=%s is not deleted: delete.topic.enable=false", name)
            yield from _delete(work, [delete_topic_path(name)])
        return
    if any(context.topic_id(name) is None for name in names):
        # The topic may have been created just before the deletion request, and this controller may
        # not have read it yet.
        yield from refresh_topics(work, new_id)
    collected = 0
    for name in names:
        if context.topic_id(name) is None:
            yield from _delete_request_znode(work, name)
        elif not context.is_to_be_deleted(name):
            collected += yield from _queue(work, name)
            if collected >= PARTITIONS_A_TURN:
                collected = 0
                yield from work.writer.next_turn(work.controller_state)
    yield from send_deletions(work)
    yield from delete_znodes_of(work, context.to_be_deleted)


def send_deletions(work: EventContext) -> Steps[None]:
    """Send StopReplica to all registered brokers that hold replicas of topics to be deleted, except
    for replicas that are deleted or whose broker has yet to answer such a request."""
    controller_state, context = work.controller_state, work.controller_state.context
    numbers = count(1)
    for topic in context.to_be_deleted:
        for partition in context.partitions_of(topic):
            for broker_id in context.assignment(partition):
                if broker_id in context.brokers:
                    _send_deletion(controller_state, partition, broker_id)
            if next(numbers) % PARTITIONS_A_TURN == 0:
                yield from work.writer.next_turn(controller_state)


def _send_deletion(
    controller_state: ControllerState, partition: TopicPartition, broker_id: BrokerId
) -> None:
    context = controller_state.context
    state = context.replica_state(partition, broker_id)
    if state is ReplicaState.DELETION_INELIGIBLE:
        context.change_replica_state(partition, broker_id, ReplicaState.OFFLINE)
    elif state is not ReplicaState.OFFLINE:
        return
    context.change_replica_state(partition, broker_id, ReplicaState.DELETION_STARTED)
    controller_state.batch.add_stop_replica(partition, (broker_id,), deletes=True)


def process_stop_replica_response(
    work: EventContext, broker_request: BrokerRequest, response: BrokerResponse
) -> bool:
    """Take in a broker's StopReplica response; return whether all its deletions succeeded."""
    request, context = broker_request.request, work.controller_state.context
    assert isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse)
    failed = {
        TopicPartition(each.topic_name, each.partition_index)
        for each in response.partition_errors
        if each.error_code != ErrorCode.NONE
    }
    is_done = True
    for topic in request.topic_states:
        for state in topic.partition_states:
            partition = TopicPartition(topic.topic_name, state.partition_index)
            known = context.replica_state(partition, broker_request.broker_id)
            if not state.delete_partition or known is not ReplicaState.DELETION_STARTED:
                continue
            if response.error_code == ErrorCode.NONE and partition not in failed:
                after = ReplicaState.DELETION_SUCCESSFUL
            else:
                after, is_done = ReplicaState.DELETION_INELIGIBLE, False
                _log.warning(
                    "broker_id=%d could not delete %s", broker_request.broker_id, partition
                )
            context.change_replica_state(partition, broker_request.broker_id, after)
    return is_done


def topics_of(broker_request: BrokerRequest) -> list[str]:
    """The topics that a StopReplica request names."""
    assert isinstance(broker_request.request, StopReplicaRequest)
    return [each.topic_name for each in broker_request.request.topic_states]


def delete_znodes_of(work: EventContext, topics: Iterable[str]) -> Steps[None]:
    """Delete the znodes of those topics to be deleted that have no replica left."""
    context = work.controller_state.context
    for topic in topics:
        if context.is_to_be_deleted(topic) and context.is_deleted(topic):
            if not (yield from _erase(work, topic)):
                # The access list of a znode forbids the deletion of a topic's znodes. The next
                # `process_topic_deletions` tries again.
                continue
            yield from work.writer.in_turns(work.controller_state.remove_topic(topic))
            _log.info("topic=%s is deleted", topic)


def _queue(work: EventContext, topic: str) -> Steps[int]:
    """Begin the deletion of a topic, and return the number of its partitions.

    One UpdateMetadata request marks all partitions as deleted, so that no broker shows clients only
    a part of the topic.
    """
    controller_state, context = work.controller_state, work.controller_state.context
    context.queue_deletion(topic)
    controller_state.unpublished.pop(topic, None)
    partitions = context.partitions_of(topic)
    unavailable: set[BrokerId] = set()
    for number, partition in enumerate(partitions, 1):
        controller_state.pop_unsettled(partition)
        state = context.state(partition)
        if state in (PartitionState.ONLINE, PartitionState.NEW):
            context.change_state(partition, PartitionState.OFFLINE)
        if state is not PartitionState.NON_EXISTENT:
            context.change_state(partition, PartitionState.NON_EXISTENT)
        for broker_id in context.assignment(partition):
            if broker_id not in context.brokers:
                unavailable.add(broker_id)
            if context.replica_state(partition, broker_id) is not ReplicaState.DELETION_INELIGIBLE:
                context.change_replica_state(partition, broker_id, ReplicaState.OFFLINE)
                if broker_id not in context.brokers:
                    context.change_replica_state(
                        partition, broker_id, ReplicaState.DELETION_INELIGIBLE
                    )
        if number % PARTITIONS_A_TURN == 0:
            yield from work.writer.pause()
    if unavailable:
        _log.warning(
            "topic=%s the deletion waits until its brokers are registered: brokers=%s",
            topic,
            ",".join(map(str, sorted(unavailable))),
        )
    yield from work.writer.in_turns(controller_state.batch.collect(partitions))
    return len(partitions)


def _delete_request_znode(work: EventContext, topic: str) -> Steps[None]:
    """Delete a topic's deletion request if the topic has no znode, not even an unreadable one."""
    stat = yield from exists(work.session, topic_path(topic))
    if stat is None:
        yield from _delete(work, [delete_topic_path(topic)])


def _erase(work: EventContext, topic: str) -> Steps[bool]:
    last = [topic_path(topic), delete_topic_path(topic)]
    settings = config_path(entity(TOPICS, topic))
    stat = yield from exists(work.session, settings)
    if stat is not None:
        last.append(settings)
    return (yield from _delete(work, last))


def _delete(work: EventContext, paths: list[str]) -> Steps[bool]:
    """Delete these znodes in one multi, after deleting everything below them.

    Returns False if an access list forbids a read or a deletion; the log then names the znode.
    """
    try:
        yield from _delete_all(work, paths)
    except WriteDenied:
        return False
    return True


def _delete_all(work: EventContext, paths: list[str]) -> Steps[None]:
    below: list[str] = []
    parents = paths
    while parents:
        found = []
        for first in range(0, len(parents), _AT_ONCE):
            found += yield from _children(work, parents[first : first + _AT_ONCE])
        below += found
        parents = found
    below.reverse()
    for first in range(0, len(below), _AT_ONCE):
        some = below[first : first + _AT_ONCE]
        yield from work.writer.write([Delete(each) for each in some])
    yield from work.writer.write([Delete(each) for each in paths])


def _children(work: EventContext, parents: list[str]) -> Steps[list[str]]:
    """The paths of the children of these znodes. A znode that does not exist has no children."""
    answers = yield from together([partial(work.session.children, each) for each in parents])
    found: list[str] = []
    for parent, response in zip(parents, answers, strict=True):
        if isinstance(response, Children):
            found += [f"{parent}/{name}" for name in response.names]
        elif isinstance(response, NoAuth):
            work.reader.log_unusable_znode(parent, b"", str(response))
            raise WriteDenied(f"the access list of {parent} forbids reading its children")
        elif not isinstance(response, NoNode):
            raise ControllerStateOutdated(f"the children of {parent} cannot be read: {response}")
    return found
