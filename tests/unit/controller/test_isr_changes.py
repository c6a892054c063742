"""In-sync sets that a leader may have, and the error codes for all others."""

from typing import Any

import pytest

from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.isr_changes import (
    alter_partition_response,
    append_response,
    broker_epoch_error,
    decide_isr_changes,
    split_request,
)
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.metadata.image import BrokerRegistration
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)

TOPIC_ID = UUID(int=7)
PARTITION = TopicPartition("t", 0)
EPOCHS = {1: 11, 2: 12, 3: 13, 4: 14, 5: 15}


def context(*, is_recovering: bool = False) -> ControllerContext:
    """1 leads 2, 3 and 5 in epoch 6; 5 is about to stop; 4 has no replica."""
    made = ControllerContext()
    for number, epoch in EPOCHS.items():
        made.put_broker(RegisteredBroker(BrokerRegistration(BrokerId(number), ()), epoch))
    made.begin_shutdown(BrokerId(5))
    made.put_topic("t", TopicId(TOPIC_ID))
    made.assign(PARTITION, tuple(map(BrokerId, (1, 2, 3, 5))))
    in_sync = tuple(map(BrokerId, (1,) if is_recovering else (1, 2)))
    state = LeaderAndIsr(BrokerId(1), LeaderEpoch(6), in_sync, is_recovering)
    made.put_leadership(PARTITION, Leadership(state, 1, 9, 20))
    return made


def asked(isr: dict[int, int], *, broker_id: int = 1, **fields: Any) -> AlterPartitionRequest:
    members = [BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in isr.items()]
    values = {"partition_index": 0, "leader_epoch": 6, "partition_epoch": 9, **fields}
    topic_id = values.pop("topic_id", TOPIC_ID)
    data = PartitionData(new_isr_with_epochs=members, **values)
    topics = [TopicData(topic_id=topic_id, partitions=[data])]
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=11, topics=topics)


def epochs(*brokers: int) -> dict[int, int]:
    return {each: EPOCHS[each] for each in brokers}


@pytest.mark.parametrize(
    ("isr", "fields", "error"),
    [
        (epochs(1, 2, 3), {"leader_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        (epochs(1, 2, 3), {"partition_epoch": 10}, ErrorCode.NOT_CONTROLLER),
        (epochs(1, 2, 3), {"leader_epoch": 5}, ErrorCode.FENCED_LEADER_EPOCH),
        (epochs(1, 2, 3), {"partition_epoch": 8}, ErrorCode.INVALID_UPDATE_VERSION),
        (epochs(1, 2, 3), {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        (epochs(2, 3), {}, ErrorCode.INVALID_REQUEST),
        ({}, {}, ErrorCode.INVALID_REQUEST),
        (epochs(1, 4), {}, ErrorCode.INVALID_REQUEST),
        (epochs(1), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        (epochs(1), {"leader_recovery_state": 2}, ErrorCode.INVALID_REQUEST),
        (epochs(1, 5), {}, ErrorCode.INELIGIBLE_REPLICA),
        ({1: 11, 3: 12}, {}, ErrorCode.INELIGIBLE_REPLICA),
        ({1: 11, 3: -1}, {}, ErrorCode.INELIGIBLE_REPLICA),
        ({1: 10, 3: 13}, {}, ErrorCode.INELIGIBLE_REPLICA),
        (epochs(1, 2), {"partition_index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (epochs(1, 2), {"topic_id": UUID(int=8)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_what_is_refused_changes_nothing(
    isr: dict[int, int], fields: dict[str, Any], error: ErrorCode
) -> None:
    made, request = context(), asked(isr, **fields)
    decision = decide_isr_changes(made, request)
    assert decision.changes == {}
    (partition,) = alter_partition_response(made, request, decision).topics[0].partitions
    assert partition.error_code == error


def test_a_set_of_current_replicas_is_taken() -> None:
    made, request = context(), asked(epochs(1, 3))
    decision = decide_isr_changes(made, request)
    state = LeaderAndIsr(BrokerId(1), LeaderEpoch(6), (BrokerId(1), BrokerId(3)))
    assert decision.changes == {PARTITION: state}
    made.put_leadership(PARTITION, Leadership(state, 2, 10, 20))
    (partition,) = alter_partition_response(made, request, decision).topics[0].partitions
    assert (partition.error_code, partition.isr, partition.partition_epoch) == (0, [1, 3], 10)
    assert (partition.leader_id, partition.leader_epoch) == (1, 6)


def test_what_is_so_already_is_answered_whatever_version_the_leader_knows() -> None:
    made, request = context(), asked({2: -1, 1: -1}, partition_epoch=3)
    decision = decide_isr_changes(made, request)
    assert decision.changes == {}
    (partition,) = alter_partition_response(made, request, decision).topics[0].partitions
    assert (partition.error_code, partition.isr, partition.partition_epoch) == (0, [1, 2], 9)


def test_a_request_for_the_present_isr_gets_a_new_partition_epoch() -> None:
    """A leader that gave a request up needs its end, however the request names the followers."""
    made, request = context(), asked({1: -1, 2: -1})
    decision = decide_isr_changes(made, request)
    assert decision.changes == {PARTITION: made.leadership(PARTITION).state}  # type: ignore[union-attr]
    assert not decision.errors


def test_a_leader_says_that_it_has_recovered() -> None:
    made = context(is_recovering=True)
    (state,) = decide_isr_changes(made, asked(epochs(1))).changes.values()
    assert not state.is_recovering
    assert decide_isr_changes(made, asked(epochs(1, 2), leader_recovery_state=1)).errors


def test_a_topic_that_is_to_be_deleted_is_none() -> None:
    made = context()
    made.queue_deletion("t")
    decision = decide_isr_changes(made, asked(epochs(1, 3)))
    assert list(decision.errors.values()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_only_the_registered_broker_epoch_is_accepted() -> None:
    made, unknown = context(), ErrorCode.BROKER_ID_NOT_REGISTERED
    assert broker_epoch_error(made, 1, 11, unknown) is ErrorCode.NONE
    assert broker_epoch_error(made, 5, 15, unknown) is ErrorCode.NONE
    assert broker_epoch_error(made, 1, 10, unknown) is ErrorCode.STALE_BROKER_EPOCH
    assert broker_epoch_error(made, 1, -1, unknown) is ErrorCode.STALE_BROKER_EPOCH
    assert broker_epoch_error(made, 6, 10, unknown) is unknown


@pytest.mark.parametrize("counts", [(), (0, 0), (1, 2), (500,), (499, 1, 1), (10, 1_200, 3, 800)])
def test_a_long_request_is_decided_in_parts_and_answered_as_one(counts: tuple[int, ...]) -> None:
    topics = [
        TopicData(
            topic_id=UUID(int=number),
            partitions=[PartitionData(partition_index=each) for each in range(count)],
        )
        for number, count in enumerate(counts, 100)
    ]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=11, topics=topics)
    answered = AlterPartitionResponse()
    sizes = []
    for part in split_request(request):
        assert (part.broker_id, part.broker_epoch) == (1, 11)
        sizes.append(sum(len(topic.partitions) for topic in part.topics))
        append_response(
            answered, alter_partition_response(context(), part, decide_isr_changes(context(), part))
        )
    assert sum(sizes) == sum(counts)
    assert all(size == 500 for size in sizes[:-1])
    assert [
        (topic.topic_id, [each.partition_index for each in topic.partitions])
        for topic in answered.topics
    ] == [
        (topic.topic_id, [each.partition_index for each in topic.partitions])
        for topic in topics
        if topic.partitions
    ]
