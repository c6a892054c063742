"""Sends everything again to a broker whose queued requests were dropped (`request_queues.py`).

The broker gets the same requests as after a registration. The other brokers get nothing, because
the states of the broker's replicas did not change. StopReplica requests with deletions are sent
again: a dropped request may or may not have arrived, and deleting an absent replica succeeds.
"""

from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.controller.zookeeper import deletions
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.znode_writer import PARTITIONS_A_TURN, EventContext
from klog_broker.metadata.zookeeper.conversation import Steps
from pyspark_klog.ids import BrokerId, TopicPartition


def catch_up(work: EventContext, broker_id: BrokerId) -> Steps[None]:
    """Send a broker all metadata, then the role of each of its replicas.

    The full UpdateMetadata request must come first, because a broker treats a topic that its
    metadata lacks as deleted; a transaction coordinator would skip the markers of such a topic.
    """
    picture, context = work.picture, work.picture.context
    picture.catch_up(broker_id)
    if broker_id not in context.brokers:
        return
    yield from work.writer.tell_all(picture)
    for count, partition in enumerate(context.partitions_on(broker_id), 1):
        _tell(picture, partition, broker_id)
        if count % PARTITIONS_A_TURN == 0:
            yield from work.writer.next_turn(picture)
    yield from deletions.go_on(work)


def _tell(picture: ControllerState, partition: TopicPartition, broker_id: BrokerId) -> None:
    context = picture.context
    if context.is_to_be_deleted(partition.topic):
        state = context.replica_state(partition, broker_id)
        if state is ReplicaState.DELETION_STARTED:
            context.step_replica(partition, broker_id, ReplicaState.DELETION_INELIGIBLE)
    elif broker_id in context.failed(partition):
        picture.batch.stop(partition, (broker_id,), deletes=False)
    elif context.leadership(partition) is not None:
        picture.batch.lead_again(partition, broker_id)
