"""Committed offsets of all groups: append them, tell them, forget them in time."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from klog_broker.coordinator.group.offsets import CommittedOffset, commit_key
from klog_broker.coordinator.group.shards import GroupShard, GroupShards
from klog_broker.coordinator.group.state import GroupEntry, GroupShardState, Records
from klog_broker.coordinator.shard import append_error
from klog_broker.log.errors import LogError
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.rate_limit import RateLimit
from klog_broker.runtime.slices import Steps
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue

_log = logging.getLogger("klog.group")

TOMBSTONES_AT_ONCE = 500
"""Offsets of a group that are forgotten in one turn, as one batch."""

# Offsets that are looked at while one is answered about.
_SEEN_AN_ELEMENT = 50

CommitAnswer = Callable[[dict[TopicPartition, ErrorCode]], None]


@dataclass(frozen=True, slots=True)
class Commit:
    """One partition of an OffsetCommit; ``commit_ms`` and ``expire_ms`` are -1 unless given."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int = -1
    expire_ms: int = -1


class OffsetCommits:
    """``on_buried`` is called with a group of which tombstones have been written."""

    def __init__(
        self,
        shards: GroupShards,
        clock: Clock,
        *,
        metadata_max_bytes: int,
        retention_ms: int,
        on_buried: Callable[[GroupShardState, GroupEntry], None],
    ) -> None:
        self._shards = shards
        self._clock = clock
        self._metadata_max_bytes = metadata_max_bytes
        self._retention_ms = retention_ms
        self._on_buried = on_buried
        self._not_expired = RateLimit()
        self._deleted_topics: dict[int, dict[str, None]] = {}
        """By partition that still loads: topics whose offsets are to be forgotten afterwards, in
        the order of their deletion."""

    def commit(self, group_id: str, commits: list[Commit], answer: CommitAnswer) -> None:
        """Append what a group that was found may commit; answer once it is visible."""
        longest = self._metadata_max_bytes
        results = {
            c.partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            if len(c.metadata.encode()) > longest
            else ErrorCode.NONE
            for c in commits
        }
        now_ms = self._clock.now_ms()
        records: Records = [
            (commit_key(group_id, c.partition), _commit_value(c, now_ms))
            for c in commits
            if results[c.partition] is ErrorCode.NONE
        ]
        shard, state = self._shards.of_group(group_id)
        try:
            if records:
                _append(shard, state, group_id, records)
        except LogError as failure:
            answer(_failed(results, append_error(failure)))
            return
        shard.when_visible(lambda code: answer(_failed(results, retriable(code))))

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets of a group that was found, but for what is not visible yet; none for a group
        that nobody knows."""
        shard, state = self._shards.of_group(group_id)
        state.unseen.passed(shard.log.high_watermark)
        entry = state.groups.get(group_id)
        latest: dict[TopicPartition, CommittedOffset] = {}
        if entry is not None:
            book = entry.offsets
            latest = {p: found for p in book if (found := book.get(p)) is not None}
        return state.unseen.visible(group_id, latest)

    def expire(self) -> Steps:
        """Forget what has served its time."""
        for shard, state in list(self._shards.loaded()):
            for entry in list(state.groups.values()):
                yield 1 + len(entry.offsets) // _SEEN_AN_ELEMENT
                yield from self._expire_group(shard, state, entry)

    def _expire_group(self, shard: GroupShard, state: GroupShardState, entry: GroupEntry) -> Steps:
        """A part of its offsets a step: those of which it still holds when their turn comes."""
        now_ms = self._clock.now_ms()
        over = entry.offsets.expired(entry.group, now_ms, self._retention_ms)
        for first in range(0, max(len(over), 1), TOMBSTONES_AT_ONCE):
            some = over[first : first + TOMBSTONES_AT_ONCE]
            if first:
                yield len(some)
            if state.groups.get(entry.group.group_id) is not entry:
                return
            records = state.expire(entry, now_ms, self._retention_ms, some)
            self._bury(shard, state, entry, records)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: so are the offsets committed in it."""
        for partition in self._shards.loading():
            self._deleted_topics.setdefault(partition, {})[topic] = None
        for shard, state in self._shards.loaded():
            self._forget_topics(shard, state, [topic])

    def loaded(self, partition: int) -> None:
        """What was deleted meanwhile is forgotten now."""
        shard, state = self._shards.at(partition)
        self._forget_topics(shard, state, self._deleted_topics.pop(partition, {}))

    def _forget_topics(
        self, shard: GroupShard, state: GroupShardState, topics: Iterable[str]
    ) -> None:
        for topic in topics:
            for entry in list(state.groups.values()):
                self._bury(shard, state, entry, state.forget_topic(entry, topic))

    def _bury(
        self, shard: GroupShard, state: GroupShardState, entry: GroupEntry, records: Records
    ) -> None:
        if not records:
            return
        try:
            _append(shard, state, entry.group.group_id, records)
        except LogError as error:
            if self._not_expired.allows(self._clock.monotonic_ms()):
                group_id, more = entry.group.group_id, self._not_expired.take_note()
                _log.warning("not-expired group=%r reason=%s%s", group_id, error, more)
        else:
            self._on_buried(state, entry)


def _append(shard: GroupShard, state: GroupShardState, group_id: str, records: Records) -> None:
    """Append one group's records; readers see what they change once it is visible."""
    entry = state.groups.get(group_id)
    keys = [key for key, _ in records if isinstance(key, OffsetCommitKey)]
    partitions = [TopicPartition(key.topic, key.partition) for key in keys]
    replaced = [(each, entry.offsets.get(each) if entry else None) for each in partitions]
    shard.append(records)
    log = shard.log
    state.unseen.passed(log.high_watermark)
    if replaced and log.high_watermark < log.log_end_offset:
        state.unseen.add(group_id, replaced, log.log_end_offset)


def retriable(code: ErrorCode) -> ErrorCode:
    """Why a record did not become visible, as clients of a coordinator know it."""
    if code is ErrorCode.NONE:
        return code
    storage = code is ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_COORDINATOR if storage else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _commit_value(commit: Commit, now_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_ms if commit.commit_ms >= 0 else now_ms,
        expire_timestamp=commit.expire_ms,
    )


def _failed(
    results: dict[TopicPartition, ErrorCode], error: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    if error is ErrorCode.NONE:
        return results
    return {p: error if code is ErrorCode.NONE else code for p, code in results.items()}
