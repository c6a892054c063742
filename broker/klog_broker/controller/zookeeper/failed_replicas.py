"""Failed replicas: replicas that a live broker reports as unusable in its LeaderAndIsr response.

Such a replica is offline, as in Kafka (replicasOnOfflineDirs): it does not lead, leaves the ISR,
and is named as offline in UpdateMetadata. In Kafka a replica stays failed until its broker
registers again. In klog, the controller sends LeaderAndIsr again from time to time, because a disk
that was full when the log was to be created may have free space again.
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
    # A broker answers a repeated LeaderAndIsr request (whose first response was lost) with this
    # error for each partition, because it already has the role of this leader epoch.
    ErrorCode.STALE_CONTROLLER_EPOCH,
)


def may_change_replicas(work: EventContext, response: LeaderAndIsrResponse) -> bool:
    """Whether a response reports a failed replica, or may report that a replica that has failed
    before works again."""
    return response.error_code == ErrorCode.NONE and (
        work.controller_state.context.has_failed_replicas
        or any(
            each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for topic in response.topics
            for each in topic.partition_errors
        )
    )


def process_leader_and_isr_response(
    work: EventContext, broker_request: BrokerRequest, response: LeaderAndIsrResponse
) -> Steps[None]:
    """Mark replicas as failed or working, as a LeaderAndIsr response says; elect new leaders."""
    context, broker_id = work.controller_state.context, broker_request.broker_id
    broker = context.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_request.broker_epoch:
        return
    for topic in response.topics:
        name = context.topic_name(TopicId(topic.topic_id))
        for each in topic.partition_errors:
            partition = TopicPartition(name or "", each.partition_index)
            if broker_id not in context.assignment(partition):
                continue
            if each.error_code in _HAS_ITS_ROLE:
                _mark_working(work.controller_state, partition, broker_id)
            elif each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                _mark_failed(work.controller_state, partition, broker_id)
    yield from work.writer.settle(work.controller_state)


def send_roles_again(work: EventContext) -> Steps[None]:
    """Send LeaderAndIsr again for all replicas that brokers have reported as failed."""
    controller_state = work.controller_state
    for partition, brokers in controller_state.context.failed_replicas().items():
        controller_state.mark_unsettled((partition,), notified=brokers)
    yield from work.writer.settle(controller_state)


def _mark_working(
    controller_state: ControllerState, partition: TopicPartition, broker_id: BrokerId
) -> None:
    context = controller_state.context
    if broker_id not in context.failed_brokers(partition):
        return
    context.mark_replica_working(partition, broker_id)
    if context.is_to_be_deleted(partition.topic):
        return
    _log.info("broker_id=%d can use its log of %s again", broker_id, partition)
    controller_state.mark_replica_online(partition, broker_id)
    controller_state.batch.add_update_metadata(context.brokers, (partition,))
    # Send LeaderAndIsr once more, so that the broker surely has the replica's present role: the
    # response may be to a request of an older leader epoch, or a StopReplica request may have
    # followed the LeaderAndIsr request.
    controller_state.mark_unsettled((partition,), notified=(broker_id,))


def _mark_failed(
    controller_state: ControllerState, partition: TopicPartition, broker_id: BrokerId
) -> None:
    context = controller_state.context
    if broker_id in context.failed_brokers(partition):
        return
    context.mark_replica_failed(partition, broker_id)
    if context.is_to_be_deleted(partition.topic):
        return  # The broker's StopReplica response decides the replica's next state.
    _log.warning(
        "broker_id=%d cannot use its log of %s: the replica is offline", broker_id, partition
    )
    known = context.leadership(partition)
    if (
        known is not None
        and known.state.leader == broker_id
        and context.state(partition) is PartitionState.ONLINE
    ):
        context.change_state(partition, PartitionState.OFFLINE)
    controller_state.mark_replica_offline(partition, broker_id)
    controller_state.batch.add_stop_replica(partition, (broker_id,), deletes=False)
    controller_state.batch.add_update_metadata(context.brokers, (partition,))
    controller_state.mark_unsettled((partition,))
