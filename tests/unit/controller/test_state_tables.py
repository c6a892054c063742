"""docs/controller.md: current; its tables: whole, and checked."""

import pytest

from klog_broker.controller.decisions import partition_states, replica_states
from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.decisions.replica_states import ReplicaState
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import BrokerId, TopicPartition

PARTITION = TopicPartition("orders", 3)


def test_the_tables_name_every_state_and_every_state_can_be_left() -> None:
    assert list(partition_states.STEPS) == list(PartitionState)
    assert list(replica_states.STEPS) == list(ReplicaState)
    assert all(partition_states.STEPS.values())
    assert all(replica_states.STEPS.values())


@pytest.mark.parametrize("before", PartitionState)
@pytest.mark.parametrize("after", PartitionState)
def test_a_step_of_a_partition(before: PartitionState, after: PartitionState) -> None:
    if after in partition_states.STEPS[before]:
        partition_states.check_step(PARTITION, before, after)
        return
    text = f"partition orders-3 is {before.value} and cannot become {after.value}; it may become "
    with pytest.raises(InvariantViolation, match=text):
        partition_states.check_step(PARTITION, before, after)


@pytest.mark.parametrize("before", ReplicaState)
@pytest.mark.parametrize("after", ReplicaState)
def test_a_step_of_a_replica(before: ReplicaState, after: ReplicaState) -> None:
    if after in replica_states.STEPS[before]:
        replica_states.check_step(PARTITION, BrokerId(2), before, after)
        return
    text = f"the replica of orders-3 on broker 2 is {before.value} and cannot become {after.value}"
    with pytest.raises(InvariantViolation, match=text):
        replica_states.check_step(PARTITION, BrokerId(2), before, after)


def test_a_deletion_that_began_ends_or_is_tried_again() -> None:
    steps = replica_states.STEPS
    assert set(steps[ReplicaState.DELETION_STARTED]) == {
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.DELETION_INELIGIBLE,
    }
    assert ReplicaState.OFFLINE in steps[ReplicaState.DELETION_INELIGIBLE]
    assert ReplicaState.NON_EXISTENT in steps[ReplicaState.DELETION_SUCCESSFUL]
