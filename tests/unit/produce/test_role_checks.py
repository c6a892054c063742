"""Produce's checks of a partition's role before it appends."""

import pytest

from klog_broker.metadata.role_changes import RoleAssignment
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.records.legacy import encode_message
from tests.support.api.produce_frames import batch, frame, produce_responses
from tests.support.cluster.broker import NOW_MS, MemoryBroker, new_broker
from tests.support.raw_requests import produce_request

ME, OTHER = BrokerId(0), BrokerId(1)


def produced(broker: MemoryBroker, topic: str, acks: int = -1) -> list[int]:
    stream = broker.connect()
    stream.inbox += frame(batch(b"a"), topic, acks=acks)
    broker.turns()
    return [each.error_code for each in produce_responses(stream)]


@pytest.mark.parametrize("with_kernel", [True, False])
@pytest.mark.parametrize(("replicas", "code"), [(1, 0), (2, ErrorCode.NOT_ENOUGH_REPLICAS)])
def test_acks_all_asks_for_no_more_replicas_than_there_are(
    with_kernel: bool, replicas: int, code: int
) -> None:
    """min.insync.replicas=2 counts as 1 for a single replica, as since Kafka 3.7."""
    broker = new_broker(with_kernel=with_kernel)
    topic = "two-in-sync"
    broker.assign(topic, replicas=(ME, OTHER)[:replicas], in_sync=(ME,))
    assert produced(broker, topic) == [code]
    assert broker.log(topic).log_end_offset == (0 if code else 1)
    assert broker.planned == (1 if with_kernel and not code else 0)


@pytest.mark.parametrize("with_kernel", [True, False])
def test_a_plan_goes_by_the_role_of_now(with_kernel: bool) -> None:
    broker = new_broker(with_kernel=with_kernel)

    def order(leader: BrokerId, leader_epoch: int) -> RoleAssignment:
        return broker.role_assignment("plain", leader=leader, leader_epoch=leader_epoch)

    assert produced(broker, "plain", acks=1) == [0]
    broker.apply(order(OTHER, 1))
    assert produced(broker, "plain", acks=1) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    broker.apply(order(ME, 2))
    assert produced(broker, "plain", acks=1) == [0]
    assert broker.planned == (2 if with_kernel else 0)
    log = broker.log("plain")
    assert [log.end_offset_for_epoch(epoch).end_offset for epoch in (0, 2)] == [1, 2]


@pytest.mark.parametrize("with_kernel", [True, False])
def test_acks_all_is_not_answered_while_others_have_to_have_it(with_kernel: bool) -> None:
    broker = new_broker(with_kernel=with_kernel)
    broker.assign("plain", replicas=(ME, OTHER))
    stream = broker.connect()
    stream.inbox += frame(batch(b"a"), "plain", acks=-1)
    broker.turns()
    assert not stream.sent, "broker 1 is in sync, and does not have it yet"
    assert broker.planned == (1 if with_kernel else 0)
    broker.assign("plain", replicas=(ME, OTHER), in_sync=(ME,))
    assert [each.error_code for each in produce_responses(stream)] == [0]


@pytest.mark.parametrize("version", [2, 3, 9])
@pytest.mark.parametrize("records", [None, b""])
def test_missing_records_are_an_error(version: int, records: bytes | None) -> None:
    broker = new_broker(with_kernel=False)
    answer = broker.call(produce_request("plain", records), version)
    (row,) = answer.responses[0].partition_responses
    assert row.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", [2, 3, 9])
def test_batches_of_old_formats_are_an_error_since_version_3(version: int) -> None:
    broker = new_broker(with_kernel=False)
    answer = broker.call(
        produce_request("plain", encode_message(1, 0, NOW_MS, b"k", b"v")), version
    )
    (row,) = answer.responses[0].partition_responses
    assert row.error_code == (ErrorCode.INVALID_RECORD if version >= 3 else 0)
