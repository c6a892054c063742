"""Failed replicas: replicas that a live broker reports as unusable in its LeaderAndIsr response.

Such a replica is offline, as in Kafka (replicasOnOfflineDirs): it does not lead, leaves the ISR,
and is named as offline in UpdateMetadata. In Kafka this lasts until the broker registers again. In
klog, the controller sends LeaderAndIsr again from time to time, because a disk that was full when
the log was to be created may have free space again.
"""

import logging

from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.request_batch import BrokerRequest
from klog_broker.controller.zookeeper.znode_writer import EventContext
from klog_broker.metadata.zookeeper.conversation import Steps
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrResponse

_log = logging.getLogger("klog.controller")

_HAS_ITS_ROLE = (
    ErrorCode.NONE,
    # The broker already has this role: the first response was lost, and the request sent again.
    ErrorCode.STALE_CONTROLLER_EPOCH,
)


def is_news(work: EventContext, answer: LeaderAndIsrResponse) -> bool:
    """Whether a response reports a failed replica, or may report that a replica works again."""
    return answer.error_code == ErrorCode.NONE and (
        work.picture.context.has_failed
        or any(
            each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for topic in answer.topics
            for each in topic.partition_errors
        )
    )


def take(work: EventContext, order: BrokerRequest, answer: LeaderAndIsrResponse) -> Steps[None]:
    """Mark replicas as failed or working by a LeaderAndIsr response, and settle partitions."""
    context, broker_id = work.picture.context, order.broker_id
    broker = context.brokers.get(broker_id)
    if broker is None or broker.epoch != order.broker_epoch:
        return
    for topic in answer.topics:
        name = context.topic_name(TopicId(topic.topic_id))
        for each in topic.partition_errors:
            partition = TopicPartition(name or "", each.partition_index)
            if broker_id not in context.assignment(partition):
                continue
            if each.error_code in _HAS_ITS_ROLE:
                _works(work.picture, partition, broker_id)
            elif each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                _failed(work.picture, partition, broker_id)
    yield from work.writer.settle(work.picture)


def ask_again(work: EventContext) -> Steps[None]:
    """Send LeaderAndIsr again for all failed replicas."""
    picture = work.picture
    for partition, brokers in picture.context.all_failed().items():
        picture.unsettle((partition,), tell=brokers)
    yield from work.writer.settle(picture)


def _works(picture: ControllerState, partition: TopicPartition, broker_id: BrokerId) -> None:
    context = picture.context
    if broker_id not in context.failed(partition):
        return
    context.replica_works(partition, broker_id)
    if context.is_to_be_deleted(partition.topic):
        return
    _log.info("broker_id=%d can use its log of %s again", broker_id, partition)
    picture.replica_came(partition, broker_id)
    picture.batch.tell(context.brokers, (partition,))
    # Send LeaderAndIsr once more: the response may be to a request of an older leader epoch, or a
    # StopReplica request may have followed that one.
    picture.unsettle((partition,), tell=(broker_id,))


def _failed(picture: ControllerState, partition: TopicPartition, broker_id: BrokerId) -> None:
    context = picture.context
    if broker_id in context.failed(partition):
        return
    context.replica_fails(partition, broker_id)
    if context.is_to_be_deleted(partition.topic):
        return  # The response to the StopReplica request with the deletion decides.
    _log.warning(
        "broker_id=%d cannot use its log of %s: the replica is offline", broker_id, partition
    )
    known = context.leadership(partition)
    if (
        known is not None
        and known.state.leader == broker_id
        and context.state(partition) is PartitionState.ONLINE
    ):
        context.step(partition, PartitionState.OFFLINE)
    picture.replica_went(partition, broker_id)
    picture.batch.stop(partition, (broker_id,), deletes=False)
    picture.batch.tell(context.brokers, (partition,))
    picture.unsettle((partition,))
