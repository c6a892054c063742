"""Offsets that are committed in a transaction count when its marker says so, live and replayed."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.api.offset_fetch import handle
from klog_broker.coordinator.group.offset_cleanup import GroupShard
from klog_broker.coordinator.shard import RecordProducer
from klog_broker.resources.authorizer import ALLOWS_ALL
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from pyspark_klog.protocol.message import Response
from pyspark_klog.records.control import ControlType, EndTransactionMarker
from pyspark_klog.state_records.consumer_offsets import Key, Value
from pyspark_klog.state_records.group_metadata import GroupMetadataKey
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from tests.support.cluster.coordinators import HostedGroups
from tests.support.cluster.state_log import MemoryStateLog

COMMIT = EndTransactionMarker(ControlType.COMMIT, 0)
ABORT = EndTransactionMarker(ControlType.ABORT, 0)
ONE, OTHER = RecordProducer(1, 0), RecordProducer(2, 0)


def replayed(log: MemoryStateLog) -> GroupShard:
    """Return a serving shard with the state that a log has."""
    return HostedGroups(log).serving_shard


@dataclass
class Offsets:
    """One shard's offsets; each look compares the shard with a replay of its log."""

    log: MemoryStateLog = field(default_factory=MemoryStateLog)

    def __post_init__(self) -> None:
        self.shard = replayed(self.log)

    def commit(self, offset: int, producer: RecordProducer | None = None, topic: str = "t") -> None:
        self.shard.append([committed(offset, topic)], producer)

    def forget(self) -> None:
        self.shard.append([(OffsetCommitKey(group="g", topic="t", partition=0), None)])

    def seen(self, topic: str = "t") -> int | None:
        found = [visible(shard, topic) for shard in (self.shard, replayed(self.log))]
        assert found[0] == found[1], "a replay comes to the same"
        return found[0]


def committed(offset: int, topic: str = "t") -> tuple[Key, Value | None]:
    key = OffsetCommitKey(group="g", topic=topic, partition=0)
    return key, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)


def visible(shard: GroupShard, topic: str = "t") -> int | None:
    offsets = shard.state.visible_offsets("g", shard.log.high_watermark)
    found = offsets.get(TopicPartition(topic, 0))
    assert (found is not None) == (0 in offsets.partitions(topic))
    return None if found is None else found.offset


@pytest.fixture
def offsets() -> Offsets:
    return Offsets()


def test_a_marker_of_commit_makes_them_committed(offsets: Offsets) -> None:
    offsets.commit(5)
    offsets.commit(6, ONE)
    offsets.commit(1, ONE, "new")
    assert (offsets.seen(), offsets.seen("new")) == (5, None)
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert (offsets.seen(), offsets.seen("new")) == (6, 1)
    assert [each.group.group_id for each in offsets.shard.state.groups_with("new")] == ["g"]


def test_a_marker_of_abort_drops_them(offsets: Offsets) -> None:
    offsets.commit(6, ONE)
    offsets.shard.append_marker(ONE, ABORT, transaction_version=0)
    assert offsets.seen() is None
    assert not offsets.shard.state.groups, "the group was only there for them"
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert offsets.seen() is None, "a transaction ends once"


def test_transactions_of_two_producers_end_by_themselves(offsets: Offsets) -> None:
    offsets.commit(6, ONE)
    offsets.commit(7, OTHER)
    offsets.shard.append_marker(OTHER, COMMIT, transaction_version=0)
    assert offsets.seen() == 7
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert offsets.seen() == 7, "the later record counts, not the later marker"


def test_a_later_commit_outside_of_the_transaction_counts(offsets: Offsets) -> None:
    offsets.commit(6, ONE)
    offsets.commit(9)
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert offsets.seen() == 9


def test_a_tombstone_drops_what_is_pending_too(offsets: Offsets) -> None:
    offsets.commit(5)
    offsets.commit(6, ONE)
    offsets.forget()
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert offsets.seen() is None


def test_groups_are_found_by_topic_as_long_as_they_have_an_offset_in_it(
    offsets: Offsets,
) -> None:
    state = offsets.shard.state
    offsets.commit(5)
    offsets.commit(5, topic="other")
    assert [each.group.group_id for each in state.groups_with("t")] == ["g"]
    offsets.forget()
    assert (state.groups_with("t"), len(state.groups_with("other"))) == ([], 1)


def test_a_group_with_pending_offsets_is_not_forgotten(offsets: Offsets) -> None:
    offsets.commit(5)
    offsets.commit(6, ONE, "other")
    entry = offsets.shard.state.groups["g"]
    tombstones = offsets.shard.state.tombstones(entry, [TopicPartition("t", 0)])
    assert [type(key) for key, _ in tombstones] == [OffsetCommitKey]
    offsets.shard.append([(GroupMetadataKey(group="g"), None)])
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert offsets.seen("other") == 6


def test_readers_see_the_end_of_a_transaction_when_its_marker_is_visible(
    offsets: Offsets,
) -> None:
    offsets.commit(5)
    offsets.commit(6, ONE)
    offsets.log.follows = False
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert offsets.seen() == 5
    offsets.commit(7)
    offsets.log.high_watermark = offsets.log.log_end_offset - 1  # type: ignore[assignment]
    assert offsets.seen() == 6
    offsets.log.high_watermark = offsets.log.log_end_offset
    assert offsets.seen() == 7


def test_what_is_committed_while_somebody_reads_is_not_seen_too_early(offsets: Offsets) -> None:
    """The response with many offsets is assembled in several turns."""
    old, new = TopicPartition("t", 0), TopicPartition("new", 0)
    offsets.commit(5)
    shard = offsets.shard
    reader = shard.state.visible_offsets("g", shard.log.high_watermark)
    offsets.log.follows = False
    offsets.commit(6)
    offsets.commit(1, topic="new")
    found = reader.get(old)
    assert found is not None
    assert found.offset == 5
    assert reader.get(new) is None
    assert not reader.is_stable(old)
    offsets.log.high_watermark = offsets.log.log_end_offset
    assert (offsets.seen(), offsets.seen("new")) == (6, 1)


# --- fetches of stable offsets (KIP-447) ---------------------------------------------------------
def is_stable(offsets: Offsets, topic: str = "t") -> bool:
    found = [
        shard.state.visible_offsets("g", shard.log.high_watermark).is_stable(
            TopicPartition(topic, 0)
        )
        for shard in (offsets.shard, replayed(offsets.log))
    ]
    assert found[0] == found[1], "a replay comes to the same"
    return found[0]


@pytest.mark.parametrize("marker", [COMMIT, ABORT])
def test_an_offset_is_not_stable_while_a_transaction_has_one_for_it(
    offsets: Offsets, marker: EndTransactionMarker
) -> None:
    assert is_stable(offsets), "nobody knows the group"
    offsets.commit(5)
    offsets.commit(6, ONE)
    offsets.commit(7, ONE)
    assert not is_stable(offsets)
    assert is_stable(offsets, "other")
    offsets.commit(8, OTHER)
    offsets.shard.append_marker(ONE, marker, transaction_version=0)
    assert not is_stable(offsets), "the other's is still open"
    offsets.shard.append_marker(OTHER, marker, transaction_version=0)
    assert is_stable(offsets)


def test_a_tombstone_leaves_nothing_to_wait_for(offsets: Offsets) -> None:
    offsets.commit(5)
    offsets.commit(6, ONE)
    offsets.forget()
    assert is_stable(offsets)


def test_an_offset_is_not_stable_before_the_end_of_its_transaction_can_be_seen(
    offsets: Offsets,
) -> None:
    offsets.commit(5)
    offsets.commit(6, ONE)
    offsets.log.follows = False
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert offsets.seen() == 5
    assert not is_stable(offsets)
    offsets.log.high_watermark = offsets.log.log_end_offset
    assert (offsets.seen(), is_stable(offsets)) == (6, True)


@pytest.mark.parametrize("names_partitions", [True, False])
def test_a_fetch_of_stable_offsets_gets_unstable_offset_commit(
    offsets: Offsets, names_partitions: bool
) -> None:
    offsets.commit(5)
    offsets.commit(4, topic="other")
    offsets.commit(6, ONE)
    topics = [OffsetFetchRequestTopic(name=each, partition_indexes=[0]) for each in ("other", "t")]

    def fetch(*, require_stable: bool) -> list[tuple[int, int]]:
        request = OffsetFetchRequest(
            group_id="g",
            topics=topics if names_partitions else None,
            require_stable=require_stable,
        )
        shard = offsets.shard
        seen = shard.state.visible_offsets("g", shard.log.high_watermark)
        groups = SimpleNamespace(committed=lambda _: (ErrorCode.NONE, seen))
        no_topics = SimpleNamespace(image=SimpleNamespace(topic=lambda _: None))
        services: Any = SimpleNamespace(groups=groups, metadata=no_topics, authorizer=ALLOWS_ALL)
        context: Any = SimpleNamespace(api_version=7)
        steps = handle(services, request, context)
        assert not isinstance(steps, Response)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            rows = [each for topic in end.value.topics for each in topic.partitions]
            return [(each.committed_offset, each.error_code) for each in rows]

    assert fetch(require_stable=False) == [(4, 0), (5, 0)]
    assert fetch(require_stable=True) == [(4, 0), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    offsets.shard.append_marker(ONE, COMMIT, transaction_version=0)
    assert fetch(require_stable=True) == [(4, 0), (6, 0)]
