"""Groups and transactions while their partitions get other leaders: in the middle of a commit, a
join, an end. No request waits for ever, no response is false, and timers act at leaders only.
"""

from typing import Any

import pytest

from klog_broker.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog_broker.replication.errors import EndReason
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.describe_groups import DescribeGroupsRequest
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.list_groups import ListGroupsRequest
from pyspark_klog.protocol.apis.list_transactions import ListTransactionsRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.cluster.broker import ME, answer_of
from tests.support.coordinator.transaction_client import (
    PLAIN,
    TIMEOUT_MS,
    MemoryClient,
    broker_with_coordinators,
)
from tests.support.runtime.fake_network import FakeStream

NONE, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR
OTHER_BROKER = BrokerId(1)
SESSION_MS = 10_000


class World:
    """A broker, and the controller's requests about the coordinators' partitions."""

    def __init__(self) -> None:
        self.broker = broker_with_coordinators(group_initial_rebalance_delay_ms=0)
        self.client = MemoryClient(self.broker, raises=False)
        partition = self.broker.broker.services.transactions.partition_for("tx")
        assert partition is not None
        self.partitions = {CONSUMER_OFFSETS: 0, TRANSACTION_STATE: partition}

    def log(self, topic: str) -> Any:
        return self.broker.log(topic, self.partitions[topic])

    def _order(self, topic: str, **options: Any) -> None:
        number = self.partitions[topic]
        hosted = self.broker.broker.services.replicas.partition(topic, number)
        assert hosted is not None
        epoch = hosted.epochs.leader_epoch + 1
        self.broker.assign(topic, number, leader_epoch=epoch, **options)

    def lead_alone(self, topic: str) -> None:
        self._order(topic)

    def lead_with_another(self, topic: str) -> None:
        """Add a second in-sync replica that fetches nothing: no record becomes visible."""
        self._order(topic, replicas=(ME, OTHER_BROKER))

    def follow(self, topic: str) -> None:
        self._order(topic, leader=OTHER_BROKER, replicas=(ME, OTHER_BROKER))

    # --- groups ----------------------------------------------------------------------------------
    def commit(self, offset: int) -> tuple[FakeStream, OffsetCommitRequest]:
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        topics = [OffsetCommitRequestTopic(name="plain", partitions=rows)]
        request = OffsetCommitRequest(group_id="g", topics=topics)
        return self.broker.send(request, 7), request

    def join(self) -> tuple[FakeStream, JoinGroupRequest]:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return self.broker.send(request, 3), request

    def joined(self) -> Any:
        return answer_of(*self.join(), 3)

    def sync(self, joined: Any) -> tuple[FakeStream, SyncGroupRequest]:
        given = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        request = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[given],
        )
        return self.broker.send(request, 3), request

    def groups(self) -> dict[str, str]:
        found = self.broker.call(ListGroupsRequest(), 4)
        assert found.error_code == NONE
        return {each.group_id: each.group_state for each in found.groups}

    # --- transactions ----------------------------------------------------------------------------
    def begin_transaction(self) -> None:
        """Begin a transaction with a record and a group's offsets."""
        assert self.client.init() == NONE
        assert self.client.add(PLAIN) == [NONE]
        assert self.client.produce(PLAIN, b"v", version=11) is NONE
        assert self.client.add_offsets() == NONE
        assert self.client.commit_offsets(5) == [NONE]

    def send_end_txn(self) -> tuple[FakeStream, EndTxnRequest]:
        request = EndTxnRequest(
            transactional_id="tx",
            producer_id=self.client.producer_id,
            producer_epoch=self.client.epoch,
            committed=True,
        )
        return self.broker.send(request, 4), request

    def transactions(self) -> dict[str, str]:
        found = self.broker.call(ListTransactionsRequest(), 0)
        assert found.error_code == NONE
        rows = found.transaction_states
        return {each.transactional_id: each.transaction_state for each in rows}


@pytest.fixture
def world() -> World:
    return World()


def is_answered(sent: tuple[FakeStream, Any]) -> bool:
    return bool(sent[0].sent)


def commit_code(sent: tuple[FakeStream, Any]) -> int:
    return int(answer_of(*sent, 7).topics[0].partitions[0].error_code)


# --- groups ---------------------------------------------------------------------------------------
def test_a_commit_that_is_not_replicated_is_not_acknowledged(world: World) -> None:
    assert commit_code(world.commit(3)) == NONE
    world.lead_with_another(CONSUMER_OFFSETS)
    sent = world.commit(4)
    assert not is_answered(sent)
    assert world.client.committed() == 3
    world.follow(CONSUMER_OFFSETS)
    assert commit_code(sent) == NOT_COORDINATOR
    assert commit_code(world.commit(5)) == NOT_COORDINATOR
    # No record was truncated meanwhile, so the log's records count.
    world.lead_alone(CONSUMER_OFFSETS)
    assert world.client.committed() == 4


def test_requests_go_on_waiting_while_the_broker_leads_on_in_a_newer_epoch(
    world: World,
) -> None:
    """The set of followers changes, and the coordinator stays the same, as in Kafka."""
    world.lead_with_another(CONSUMER_OFFSETS)
    commits = world.commit(4)
    world.lead_with_another(CONSUMER_OFFSETS)
    assert not is_answered(commits)
    world.lead_alone(CONSUMER_OFFSETS)
    assert commit_code(commits) == NONE
    assert world.client.committed() == 4
    assert answer_of(*world.sync(world.joined()), 3).error_code == NONE
    joins = world.join()
    world.lead_alone(CONSUMER_OFFSETS)
    assert not is_answered(joins)
    world.follow(CONSUMER_OFFSETS)
    assert answer_of(*joins, 3).error_code == NOT_COORDINATOR


def test_end_txn_is_answered_once_it_is_replicated_in_a_newer_epoch(world: World) -> None:
    world.begin_transaction()
    world.lead_with_another(TRANSACTION_STATE)
    sent = world.send_end_txn()
    assert not is_answered(sent)
    world.lead_alone(TRANSACTION_STATE)
    assert answer_of(*sent, 4).error_code == NONE
    world.broker.pass_time(1_000)
    assert world.transactions() == {"tx": "CompleteCommit"}
    assert world.client.stable_offset() == 2


def test_a_member_that_waits_for_others_looks_up_its_coordinator_again(world: World) -> None:
    first = world.joined()
    assert answer_of(*world.sync(first), 3).error_code == NONE
    waits = world.join()
    assert not is_answered(waits)
    world.follow(CONSUMER_OFFSETS)
    assert answer_of(*waits, 3).error_code == NOT_COORDINATOR
    assert world.joined().error_code == NOT_COORDINATOR


def test_an_assignment_that_is_not_replicated_is_handed_to_nobody(world: World) -> None:
    world.lead_with_another(CONSUMER_OFFSETS)
    waits = world.sync(world.joined())
    assert not is_answered(waits)
    world.follow(CONSUMER_OFFSETS)
    assert answer_of(*waits, 3).error_code == NOT_COORDINATOR


def test_groups_are_listed_where_they_are_led(world: World) -> None:
    assert answer_of(*world.sync(world.joined()), 3).error_code == NONE
    assert world.groups() == {"g": "Stable"}
    services = world.broker.broker.services
    # Its coordinator hears of a leadership's end a moment later.
    leader = services.replicas.led[CONSUMER_OFFSETS, 0]
    leader.ended = EndReason.RESIGNED
    assert services.groups.groups() == (NONE, [])
    leader.ended = None
    world.follow(CONSUMER_OFFSETS)
    assert world.groups() == {}
    described = world.broker.call(DescribeGroupsRequest(groups=["g"]), 5)
    assert described.groups[0].error_code == NOT_COORDINATOR
    world.lead_alone(CONSUMER_OFFSETS)
    assert world.groups() == {"g": "Stable"}


def test_sessions_end_at_the_leader_only(world: World) -> None:
    assert answer_of(*world.sync(world.joined()), 3).error_code == NONE
    end_offset = world.log(CONSUMER_OFFSETS).log_end_offset
    world.follow(CONSUMER_OFFSETS)
    world.broker.pass_time(3 * SESSION_MS)
    assert world.log(CONSUMER_OFFSETS).log_end_offset == end_offset
    world.lead_alone(CONSUMER_OFFSETS)
    world.broker.pass_time(SESSION_MS - 1_000)
    assert world.groups() == {"g": "Stable"}
    world.broker.pass_time(2_000)
    assert world.groups() == {"g": "Empty"}


# --- transactions ---------------------------------------------------------------------------------
def test_an_end_txn_that_is_not_replicated_is_neither_acknowledged_nor_carried_out(
    world: World,
) -> None:
    world.begin_transaction()
    world.lead_with_another(TRANSACTION_STATE)
    sent = world.send_end_txn()
    world.broker.pass_time(1_000)
    assert not is_answered(sent)
    assert world.client.stable_offset() == 0
    world.follow(TRANSACTION_STATE)
    assert answer_of(*sent, 4).error_code == NOT_COORDINATOR
    world.broker.pass_time(1_000)
    assert world.client.stable_offset() == 0
    world.lead_alone(TRANSACTION_STATE)
    world.broker.pass_time(1_000)
    assert world.client.stable_offset() == world.broker.log(*PLAIN).log_end_offset == 2
    assert world.client.committed(stable=True) == 5
    assert world.transactions() == {"tx": "CompleteCommit"}


def test_offsets_count_once_their_marker_is_replicated(world: World) -> None:
    world.begin_transaction()
    world.lead_with_another(CONSUMER_OFFSETS)
    assert answer_of(*world.send_end_txn(), 4).error_code == NONE
    world.broker.pass_time(1_000)
    assert world.transactions() == {"tx": "PrepareCommit"}
    assert world.client.committed(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.follow(CONSUMER_OFFSETS)
    world.broker.pass_time(1_000)
    assert world.transactions() == {"tx": "PrepareCommit"}
    world.lead_alone(CONSUMER_OFFSETS)
    world.broker.pass_time(2_000)
    assert world.transactions() == {"tx": "CompleteCommit"}
    assert world.client.committed(stable=True) == 5


def test_transactions_are_listed_where_they_are_led(world: World) -> None:
    world.begin_transaction()
    assert world.transactions() == {"tx": "Ongoing"}
    world.follow(TRANSACTION_STATE)
    assert world.transactions() == {}
    described = world.broker.call(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)
    assert described.transaction_states[0].error_code == NOT_COORDINATOR
    assert world.client.init() == NOT_COORDINATOR
    assert world.client.add(PLAIN) == [NOT_COORDINATOR]
    assert world.client.end_transaction() == NOT_COORDINATOR


def test_transactions_time_out_at_the_leader_only(world: World) -> None:
    world.begin_transaction()
    world.follow(TRANSACTION_STATE)
    end_offset = world.log(TRANSACTION_STATE).log_end_offset
    world.broker.pass_time(2 * TIMEOUT_MS)
    assert world.log(TRANSACTION_STATE).log_end_offset == end_offset
    assert world.client.stable_offset() == 0
    world.lead_alone(TRANSACTION_STATE)
    for _ in range(3):
        world.broker.pass_time(10_000)
    assert world.transactions() == {"tx": "CompleteAbort"}
    assert world.client.stable_offset() == 2
