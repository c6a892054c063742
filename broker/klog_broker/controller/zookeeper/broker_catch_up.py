"""Sends a broker all metadata and its replicas' roles again after its requests were dropped.

A replica's role, leader or follower of a partition, is sent in LeaderAndIsr.

`request_queues.py` drops the requests if a broker does not answer, and its queue becomes too large.
The other brokers get no metadata and no roles, because the states of the broker's replicas did not
change. StopReplica requests with deletions are sent again: a dropped
request may or may not have arrived, and deleting an absent replica succeeds.
"""

from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.controller.zookeeper import deletions
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.znode_writer import PARTITIONS_A_TURN, EventContext
from klog_broker.metadata.zookeeper.conversation import Steps
from pyspark_klog.ids import BrokerId, TopicPartition


def send_everything_again(work: EventContext, broker_id: BrokerId) -> Steps[None]:
    """Send a broker all metadata, then LeaderAndIsr for its replicas (StopReplica for failed ones).

    The full UpdateMetadata request must come first, because a broker treats a topic that its
    metadata lacks as deleted. LeaderAndIsr may make the broker a transaction coordinator, which
    would then skip the transaction markers of such a topic.
    """
    controller_state, context = work.controller_state, work.controller_state.context
    controller_state.resume_requests(broker_id)
    if broker_id not in context.brokers:
        return
    yield from work.writer.send_full_metadata(controller_state)
    for count, partition in enumerate(context.partitions_on(broker_id), 1):
        _send_role(controller_state, partition, broker_id)
        if count % PARTITIONS_A_TURN == 0:
            yield from work.writer.next_turn(controller_state)
    yield from deletions.send_deletions(work)


def _send_role(
    controller_state: ControllerState, partition: TopicPartition, broker_id: BrokerId
) -> None:
    context = controller_state.context
    if context.is_to_be_deleted(partition.topic):
        state = context.replica_state(partition, broker_id)
        if state is ReplicaState.DELETION_STARTED:
            context.change_replica_state(partition, broker_id, ReplicaState.DELETION_INELIGIBLE)
    elif broker_id in context.failed_brokers(partition):
        controller_state.batch.add_stop_replica(partition, (broker_id,), deletes=False)
    elif context.leadership(partition) is not None:
        controller_state.batch.add_leader_and_isr_for(partition, broker_id)
