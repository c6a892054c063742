"""How long committed offsets are kept (KIP-211), on a broker whose clock is the test's."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from klog_broker.coordinator.group.coordinator import Commit, CommitRequest, MemberName
from klog_broker.coordinator.group.offset_cleanup import TOMBSTONES_AT_ONCE
from klog_broker.coordinator.shard import RecordProducer
from klog_broker.metadata.image import CONSUMER_OFFSETS
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.leave_group import LeaveGroupRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest
from pyspark_klog.records.control import ControlType, EndTransactionMarker
from tests.support.cluster.broker import ME, MemoryBroker, new_broker
from tests.support.cluster.server import know_topics

READS_PLAIN = b"\0\0" + b"\0\0\0\1" + b"\0\5plain" + b"\xff\xff\xff\xff"
HALF_AN_HOUR_MS = 1_800_000
READS_BOTH = b"\0\0" + b"\0\0\0\2" + b"\0\5plain" + b"\0\x09compacted" + b"\xff\xff\xff\xff"
BEFORE_MS, AFTER_MS = 59_000, 2_000  # of a retention of one minute, looked at each second


class Groups:
    """A broker that keeps offsets for one minute."""

    def __init__(self) -> None:
        self.broker: MemoryBroker = new_broker(
            with_kernel=False,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=1000,
            offsets_topic_num_partitions=1,
            group_initial_rebalance_delay_ms=0,
        )
        for _ in range(2):
            found = self.broker.call(FindCoordinatorRequest(key="g"), 3)
        assert found.error_code == 0

    def wait(self, ms: int) -> None:
        for _ in range(ms // 1000):
            self.broker.clock.advance(1000)
            self.broker.turns()

    def move(self) -> None:
        """Move the coordinator to another broker and back."""
        for epoch, leader in ((1, BrokerId(1)), (2, ME)):
            order = self.broker.role_assignment(
                CONSUMER_OFFSETS, leader=leader, leader_epoch=epoch, in_sync=(leader,)
            )
            self.broker.apply(order)

    def join(
        self, kind: str = "consumer", metadata: bytes = READS_PLAIN, member_id: str = ""
    ) -> dict[str, Any]:
        """A member alone in its group, stable."""
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=HALF_AN_HOUR_MS,
            rebalance_timeout_ms=HALF_AN_HOUR_MS,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        reply = self.broker.call(request, 3)
        name = {"member_id": reply.member_id, "generation_id": reply.generation_id}
        synced = self.broker.call(SyncGroupRequest(group_id="g", **name), 2)
        assert synced.error_code == 0
        return name

    def commit(self, *topics: str, member_id: str = "", generation_id: int = -1) -> list[int]:
        rows = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
            for topic in topics
        ]
        request = OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            topics=rows,
        )
        answer = self.broker.call(request, 6)
        return [each.partitions[0].error_code for each in answer.topics]

    def leave(self, member_id: str, **_: Any) -> None:
        request = LeaveGroupRequest(group_id="g", member_id=member_id)
        assert self.broker.call(request, 1).error_code == 0

    def kept(self) -> set[str]:
        answer = self.broker.call(OffsetFetchRequest(group_id="g", topics=None), 5)
        return {topic.name for topic in answer.topics}


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_offsets_without_a_group_go_so_long_after_their_commit(groups: Groups) -> None:
    assert groups.commit("plain") == [0]
    groups.wait(BEFORE_MS // 2)
    assert groups.commit("compacted") == [0]
    groups.wait(BEFORE_MS // 2)
    assert groups.kept() == {"plain", "compacted"}
    groups.wait(AFTER_MS + 1000)
    assert groups.kept() == {"compacted"}


def test_offsets_of_a_group_that_had_members_go_so_long_after_the_last_has_left(
    groups: Groups,
) -> None:
    member = groups.join()
    assert groups.commit("plain", **member) == [0]
    groups.wait(120_000)
    groups.leave(**member)
    groups.wait(BEFORE_MS)
    assert groups.kept() == {"plain"}
    groups.wait(AFTER_MS)
    assert groups.kept() == set()


def test_a_stable_consumer_group_loses_what_it_is_not_subscribed_to(groups: Groups) -> None:
    member = groups.join()
    assert groups.commit("plain", "compacted", **member) == [0, 0]
    groups.wait(BEFORE_MS)
    assert groups.kept() == {"plain", "compacted"}
    groups.wait(AFTER_MS)
    assert groups.kept() == {"plain"}


def test_what_a_member_has_subscribed_to_since_is_kept_over_a_move(groups: Groups) -> None:
    member = groups.join()
    member = groups.join(metadata=READS_BOTH, member_id=member["member_id"])
    assert groups.commit("plain", "compacted", **member) == [0, 0]
    groups.move()
    groups.wait(120_000)
    assert groups.kept() == {"plain", "compacted"}


def test_an_offset_is_kept_while_a_transaction_has_a_newer_one(groups: Groups) -> None:
    assert groups.commit("plain") == [0]
    groups.wait(BEFORE_MS // 2)
    coordinator, codes = groups.broker.broker.services.groups, [ErrorCode.UNKNOWN_SERVER_ERROR]
    producer, newer = RecordProducer(5, 0), [Commit(TopicPartition("plain", 0), 7, -1, "")]
    request = CommitRequest("g", MemberName(""), -1, newer, lambda told: codes.extend(told))
    coordinator.commit_in_transaction(request, producer)
    assert codes.pop() is ErrorCode.NONE
    groups.wait(BEFORE_MS // 2 + 2 * AFTER_MS)
    assert groups.kept() == {"plain"}
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    coordinator.append_marker(0, producer, marker, 0, codes.append)
    assert codes.pop() is ErrorCode.NONE
    assert groups.kept() == {"plain"}
    groups.wait(BEFORE_MS)
    assert groups.kept() == set()


@pytest.mark.parametrize(("kind", "metadata"), [("connect", READS_PLAIN), ("consumer", b"?")])
def test_a_group_whose_topics_are_not_known_loses_nothing(
    groups: Groups, kind: str, metadata: bytes
) -> None:
    assert groups.commit("plain", "compacted", **groups.join(kind, metadata)) == [0, 0]
    groups.wait(120_000)
    assert groups.kept() == {"plain", "compacted"}


def test_a_group_that_rebalances_loses_nothing(groups: Groups) -> None:
    assert groups.commit("plain", "compacted", **groups.join()) == [0, 0]
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=HALF_AN_HOUR_MS,
        rebalance_timeout_ms=HALF_AN_HOUR_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=READS_PLAIN)],
    )
    groups.broker.send(request, 3)  # it waits for the first member, which does not come
    groups.wait(120_000)
    assert groups.kept() == {"plain", "compacted"}


def test_a_member_of_a_deleted_group_may_not_commit(groups: Groups) -> None:
    name = {"member_id": "consumer-1", "generation_id": 3}
    assert groups.commit("plain", **name) == [ErrorCode.ILLEGAL_GENERATION]
    assert groups.kept() == set()
    member = groups.join()
    groups.leave(**member)
    assert groups.commit("plain", **member) != [0]
    assert groups.kept() == set()


def many_offsets(count: int, group: str = "many") -> tuple[Groups, Callable[[], int]]:
    """Return a group with ``count`` offsets in the topic "wide", and a count of those left."""
    groups = Groups()
    know_topics(groups.broker.broker, ["wide"], partitions=count)
    rows = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in range(count)
    ]
    topic = OffsetCommitRequestTopic(name="wide", partitions=rows)
    groups.broker.call(OffsetCommitRequest(group_id=group, topics=[topic]), 7)

    def kept() -> int:
        request = OffsetFetchRequest(group_id=group, topics=None)
        topics = groups.broker.call(request, 5).topics
        return sum(len(topic.partitions) for topic in topics)

    return groups, kept


def test_offsets_of_a_deleted_topic_are_forgotten_in_several_turns() -> None:
    count = 8 * TOMBSTONES_AT_ONCE + 1
    groups, kept = many_offsets(count)
    assert groups.commit("plain") == [0]
    offsets_log = groups.broker.log("__consumer_offsets")
    before = offsets_log.log_end_offset
    coordinator = groups.broker.broker.services.groups
    coordinator.delete_topic_offsets("wide")
    assert offsets_log.log_end_offset - before <= 2 * TOMBSTONES_AT_ONCE
    last = Commit(TopicPartition("wide", count - 1), 1, -1, "")
    coordinator.commit(CommitRequest("many", MemberName(""), -1, [last], lambda _: None))
    groups.broker.turns()
    assert kept() == 1, "it was committed after the deletion, in a new topic of this name"
    assert groups.kept() == {"plain"}


def test_many_offsets_are_forgotten_in_several_turns() -> None:
    count = 8 * TOMBSTONES_AT_ONCE + 1
    groups, kept = many_offsets(count)
    offsets_log = groups.broker.log("__consumer_offsets")
    groups.wait(BEFORE_MS)
    assert kept() == count
    before = offsets_log.log_end_offset
    written = []
    groups.broker.clock.advance(AFTER_MS)
    for _ in range(10):
        groups.broker.broker.loop.run_turn(0)
        written.append(offsets_log.log_end_offset)
    assert max(b - a for a, b in pairwise([before, *written])) <= 4 * TOMBSTONES_AT_ONCE
    # And one for the group, which has none left.
    assert written[-1] - before == count + 1
    assert kept() == 0


def test_tombstones_that_do_not_fit_into_one_batch_are_written_as_several() -> None:
    groups, kept = many_offsets(TOMBSTONES_AT_ONCE, "g" * 4_000)
    groups.wait(BEFORE_MS)
    assert kept() == TOMBSTONES_AT_ONCE
    groups.wait(2 * AFTER_MS)
    assert kept() == 0
    assert groups.broker.broker.services.groups.groups()[1] == []


def test_an_expiry_may_lie_behind_all_time(groups: Groups) -> None:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name="plain", partitions=[row])]
    request = OffsetCommitRequest(
        group_id="g", retention_time_ms=(1 << 63) - 1, member_id="", topics=topics
    )
    answer = groups.broker.call(request, 4)
    assert answer.topics[0].partitions[0].error_code == 0
    groups.wait(AFTER_MS)
    assert groups.kept() == {"plain"}
