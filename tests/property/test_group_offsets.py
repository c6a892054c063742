"""Any order of commits, transactions and deletions leaves the offsets that a simple model has; a
replay of the log comes to the same."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klog_broker.coordinator.group.deletions import Deletions, GroupCodes, OffsetCodes
from klog_broker.coordinator.group.offset_cleanup import GroupShard, OffsetCleanup
from klog_broker.coordinator.shard import RecordProducer
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.control import ControlType, EndTransactionMarker
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from tests.support.cluster.coordinators import HostedGroups
from tests.support.cluster.state_log import MemoryStateLog

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("orders", "audit"), (0, 1), (1, 2)
PLACES = [(group, topic, number) for group in GROUPS for topic in TOPICS for number in PARTITIONS]
groups, topics = st.sampled_from(GROUPS), st.sampled_from(TOPICS)
places = st.lists(st.sampled_from(PLACES), min_size=1, max_size=4, unique=True)
producers = st.sampled_from(PRODUCERS)

Place = tuple[str, str, int]


class Kept(NamedTuple):
    offset: int
    record_offset: int


def seen(shard: GroupShard) -> dict[Place, tuple[int | None, bool]]:
    """Return each place's offset, and whether the offset is stable."""
    found: dict[Place, tuple[int | None, bool]] = {}
    for group, topic, number in PLACES:
        offsets = shard.state.visible_offsets(group, shard.log.high_watermark)
        partition = TopicPartition(topic, number)
        at = offsets.get(partition)
        found[group, topic, number] = (
            None if at is None else at.offset,
            offsets.is_stable(partition),
        )
    return found


class OffsetsOfGroups(RuleBasedStateMachine):
    """The model holds the committed offsets, and each producer's open transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryStateLog()
        self.hosted = HostedGroups(self.log)
        self.shard = self.hosted.serving_shard
        runtime, services = self.hosted.runtime, self.hosted.time.services
        self.deletions = Deletions(runtime, services.slices)
        self.forgetting = OffsetCleanup(
            runtime, services.clock, services.slices, retention_ms=1_000
        )
        self.committed: dict[Place, Kept] = {}
        self.open: dict[int, dict[Place, Kept]] = {each: {} for each in PRODUCERS}

    @rule(places=places, offset=st.integers(0, 99), producer=st.one_of(st.none(), producers))
    def commit(self, places: list[Place], offset: int, producer: int | None) -> None:
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
        first = self.log.log_end_offset
        records = [(OffsetCommitKey(group=g, topic=t, partition=p), value) for g, t, p in places]
        self.shard.append(records, None if producer is None else RecordProducer(producer, 0))
        into = self.committed if producer is None else self.open[producer]
        for number, place in enumerate(places):
            into[place] = Kept(offset, first + number)

    @rule(producer=producers, commits=st.booleans())
    def end_transaction(self, producer: int, commits: bool) -> None:
        marker = EndTransactionMarker(ControlType.COMMIT if commits else ControlType.ABORT, 0)
        self.shard.append_marker(RecordProducer(producer, 0), marker, transaction_version=0)
        ended, self.open[producer] = self.open[producer], {}
        for place, kept in ended.items() if commits else ():
            before = self.committed.get(place)
            if before is None or before.record_offset < kept.record_offset:
                self.committed[place] = kept

    def forget(self, gone: set[Place]) -> None:
        for kept in (self.committed, *self.open.values()):
            for place in gone & kept.keys():
                del kept[place]

    @rule(names=st.lists(groups, max_size=2, unique=True))
    def delete_groups(self, names: list[str]) -> None:
        told: list[GroupCodes] = []
        known = {each: each in self.shard.state.groups for each in names}
        self.deletions.delete_groups(names, told.append)
        expected = {True: ErrorCode.NONE, False: ErrorCode.GROUP_ID_NOT_FOUND}
        assert told == [{name: expected[is_known] for name, is_known in known.items()}]
        assert not self.shard.state.groups.keys() & set(names)
        self.forget({place for place in PLACES if place[0] in names})

    @rule(group=groups, topic=topics, numbers=st.lists(st.sampled_from(PARTITIONS), unique=True))
    def delete_offsets(self, group: str, topic: str, numbers: list[int]) -> None:
        told: list[tuple[ErrorCode, OffsetCodes]] = []
        partitions = [TopicPartition(topic, number) for number in numbers]
        is_known = group in self.shard.state.groups
        self.deletions.delete_offsets(group, partitions, lambda *found: told.append(found))
        if is_known:
            assert told == [(ErrorCode.NONE, dict.fromkeys(partitions, ErrorCode.NONE))]
            self.forget({(group, topic, number) for number in numbers})
        else:
            assert told == [(ErrorCode.GROUP_ID_NOT_FOUND, {})]

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.forgetting.delete_topic_offsets(topic)
        self.hosted.time.settle()
        self.forget({place for place in PLACES if place[1] == topic})

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        pending = {place for kept in self.open.values() for place in kept}
        expected = {
            place: (
                self.committed[place].offset if place in self.committed else None,
                place not in pending,
            )
            for place in PLACES
        }
        assert seen(self.shard) == expected
        replayed = HostedGroups(self.log).serving_shard
        assert seen(replayed) == expected
        assert replayed.state.groups.keys() == self.shard.state.groups.keys()


TestOffsetsOfGroups = OffsetsOfGroups.TestCase
TestOffsetsOfGroups.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
