"""Replicas that a live broker cannot use: KAFKA_STORAGE_ERROR in answers to LeaderAndIsr."""

import pytest

from klog_broker.controller.zookeeper.controller import FAILED_RETRY_MS
from klog_broker.metadata.image import NO_BROKER
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.stop_replica import (
    StopReplicaRequest,
)
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
)
from pyspark_klog.znodes.paths import (
    partition_state_path,
)
from pyspark_klog.znodes.topics import (
    PartitionState,
)
from tests.support.cluster.controller import PARTITION, THREE, TOPIC_ID, TWO, Controlled


@pytest.fixture
def cluster() -> Controlled:
    return Controlled.of_three()


def test_a_leader_that_cannot_use_its_log_is_offline_until_its_broker_is_back(
    cluster: Controlled,
) -> None:
    cluster.broken = {2}
    cluster.create(2, 3)
    assert cluster.state() == PartitionState(THREE, LeaderEpoch(1), (THREE,), 3)
    told = [order for number, order in cluster.requests if isinstance(order, UpdateMetadataRequest)]
    states = [each.topic_states[0].partition_states[0] for each in told if each.topic_states]
    assert (states[-1].leader, states[-1].offline_replicas) == (3, [2])
    stops = [number for number, order in cluster.requests if isinstance(order, StopReplicaRequest)]
    assert stops == [TWO]
    asked = AlterPartitionRequest(
        broker_id=3, broker_epoch=cluster.epoch(3), topics=[_wanted(THREE, TWO, cluster=cluster)]
    )
    answer = cluster.call(cluster.controller.alter_partition, asked)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    elect = cluster.controller.elect_leaders
    unable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.call(elect, [PARTITION], unclean=False) == {PARTITION: unable}
    assert cluster.controller.offline_partitions == 0
    # No replica is left: broker 2 is alive but cannot use its log, so it does not lead.
    cluster.unregister_broker(3)
    assert cluster.state() == PartitionState(NO_BROKER, LeaderEpoch(2), (THREE,), 3)
    assert cluster.controller.offline_partitions == 1
    cluster.unclean.add("t")
    cluster.controller.elect_again()
    cluster.advance(500)
    assert cluster.state() == PartitionState(NO_BROKER, LeaderEpoch(2), (THREE,), 3)
    cluster.broken = set()
    cluster.unregister_broker(2)
    cluster.register(2)
    found = cluster.state()
    assert found is not None and found.leader == TWO


def test_a_follower_that_cannot_use_its_log_is_not_in_sync(cluster: Controlled) -> None:
    cluster.broken = {3}
    cluster.create(2, 3)
    assert cluster.state() == PartitionState(TWO, LeaderEpoch(1), (TWO,), 3)
    cluster.requests.clear()
    cluster.register(4)
    cluster.controller.elect_again()
    cluster.advance(500)
    assert cluster.state() == PartitionState(TWO, LeaderEpoch(1), (TWO,), 3)
    cluster.broken = set()
    cluster.unregister_broker(3)
    cluster.register(3)
    asked = AlterPartitionRequest(
        broker_id=2, broker_epoch=cluster.epoch(2), topics=[_wanted(TWO, THREE, cluster=cluster)]
    )
    answer = cluster.call(cluster.controller.alter_partition, asked)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_replica_whose_log_works_again_may_be_in_sync_and_lead(cluster: Controlled) -> None:
    cluster.broken = {3}
    cluster.create(3, 2)
    assert cluster.state() == PartitionState(TWO, LeaderEpoch(1), (TWO,), 3)
    cluster.advance(FAILED_RETRY_MS)
    assert cluster.state() == PartitionState(TWO, LeaderEpoch(1), (TWO,), 3)
    cluster.broken = set()
    cluster.requests.clear()
    cluster.advance(FAILED_RETRY_MS)
    told = [order for number, order in cluster.requests if isinstance(order, UpdateMetadataRequest)]
    assert told[-1].topic_states[0].partition_states[0].offline_replicas == []
    # There are two requests, because the first success may respond to an older request than the
    # one that failed.
    roles = [order for number, order in cluster.requests if isinstance(order, LeaderAndIsrRequest)]
    assert len(roles) == 2
    asked = AlterPartitionRequest(
        broker_id=2, broker_epoch=cluster.epoch(2), topics=[_wanted(TWO, THREE, cluster=cluster)]
    )
    answer = cluster.call(cluster.controller.alter_partition, asked)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    # No other broker gets a retry from now on.
    cluster.requests.clear()
    cluster.advance(2 * FAILED_RETRY_MS)
    assert cluster.requests == []


def test_a_replica_with_a_lost_response_counts_as_working(cluster: Controlled) -> None:
    """The first request was carried out; its repetition is too old for the broker."""
    cluster.broken = {3}
    cluster.create(3, 2)
    cluster.broken, cluster.has_roles = set(), {3}
    cluster.advance(FAILED_RETRY_MS + 500)
    asked = AlterPartitionRequest(
        broker_id=2, broker_epoch=cluster.epoch(2), topics=[_wanted(TWO, THREE, cluster=cluster)]
    )
    answer = cluster.call(cluster.controller.alter_partition, asked)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    cluster.requests.clear()
    cluster.advance(2 * FAILED_RETRY_MS)
    assert cluster.requests == []


def test_the_last_one_leads_again_when_it_can_use_its_log(cluster: Controlled) -> None:
    cluster.broken = {2}
    cluster.create(2)
    assert cluster.state() == PartitionState(NO_BROKER, LeaderEpoch(1), (TWO,), 3)
    cluster.broken = set()
    cluster.advance(FAILED_RETRY_MS + 500)
    assert cluster.state() == PartitionState(TWO, LeaderEpoch(2), (TWO,), 3)


def test_the_last_replica_in_sync_stays_it_though_its_log_failed(cluster: Controlled) -> None:
    cluster.broken = {2}
    cluster.create(2)
    assert cluster.state() == PartitionState(NO_BROKER, LeaderEpoch(1), (TWO,), 3)


def _wanted(*members: BrokerId, cluster: Controlled) -> TopicData:
    """Return an ISR change of partition 0 to these members, based on the present state."""
    known = cluster.state()
    assert known is not None
    data = PartitionData(
        partition_index=0,
        leader_epoch=known.leader_epoch,
        partition_epoch=cluster.stat(partition_state_path(PARTITION)).version,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=cluster.epoch(each)) for each in members
        ],
    )
    return TopicData(topic_id=TOPIC_ID, partitions=[data])
