"""Deletes committed offsets that have expired (offsets.retention.minutes) or whose topic was
deleted."""

import logging
from functools import partial

from klog_broker.coordinator.group.classic.subscriptions import offset_expiry
from klog_broker.coordinator.group.shard_state import (
    GroupEntry,
    GroupShardState,
)
from klog_broker.coordinator.runtime import CoordinatorRuntime
from klog_broker.coordinator.shard import Shard, ShardStatus
from klog_broker.log.errors import LogError
from klog_broker.runtime.event_loop.slices import Slices, Steps
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.state_records.consumer_offsets import Key, Value

GroupShard = Shard[Key, Value, GroupShardState]
GroupRuntime = CoordinatorRuntime[Key, Value, GroupShardState]

_log = logging.getLogger("klog.group")

TOMBSTONES_AT_ONCE = 500
"""Largest number of a group's offsets that one batch deletes. A batch that exceeds the log's
largest batch size is split."""

# How many offsets OffsetCleanup can examine at the cost of one element, the unit (about 5 us) in
# which long work reports its cost to the event loop (runtime/event_loop/slices.py).
_SEEN_AN_ELEMENT = 20


class OffsetCleanup:
    """Deletes the expired offsets of all groups, and the offsets of deleted topics. The work is
    divided into slices, so that the event loop serves requests in between."""

    def __init__(
        self,
        runtime: GroupRuntime,
        clock: Clock,
        slices: Slices,
        *,
        retention_ms: int,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._slices = slices
        self._retention_ms = retention_ms
        self._not_forgotten = RateLimit()

    def expire(self) -> Steps:
        """Delete the expired committed offsets of all groups that this broker coordinates."""
        for shard in list(self._runtime.serving()):
            for entry in list(shard.state.groups.values()):
                yield 1
                yield from self._expire_group(shard, entry)

    def _expire_group(self, shard: GroupShard, entry: GroupEntry) -> Steps:
        """Delete the group's expired offsets, one part in each step, and then the group if it is
        empty and has no offsets.

        Each step decides by the group's state at that time. An offset stays while an open
        transaction has committed an offset of the same partition, because the tombstone would
        remove this pending offset, too.
        """
        for part in entry.offsets.in_parts(TOMBSTONES_AT_ONCE):
            expiry = offset_expiry(entry.group)
            if not _is_served(shard, entry) or expiry is None:
                return
            now_ms = self._clock.now_ms()
            over = entry.offsets.expired(part, expiry, now_ms, self._retention_ms)
            over = [each for each in over if each not in entry.pending_offsets]
            if over:
                self._delete_offsets(shard, entry, over)
            yield len(part) // _SEEN_AN_ELEMENT + len(over)
        if _is_served(shard, entry) and not entry.offsets:
            self._delete_offsets(shard, entry, [])

    def delete_topic_offsets(self, topic: str) -> None:
        """Delete the offsets committed so far in a deleted topic, even those of open transactions.

        Shards that are still loading delete the offsets when they start to serve.
        """
        for shard in self._runtime.shards():
            if shard.status is ShardStatus.SERVING:
                self._delete_topic_offsets(shard, topic)
            elif shard.status is ShardStatus.LOADING:
                shard.when_serving.append(partial(self._delete_topic_offsets, shard, topic))

    def _delete_topic_offsets(self, shard: GroupShard, topic: str) -> None:
        def steps() -> Steps:
            end_offset = shard.log.log_end_offset
            for entry in shard.state.groups_with(topic):
                yield 1
                partitions = entry.offsets.partitions(topic)
                for first in range(0, len(partitions), TOMBSTONES_AT_ONCE):
                    if not _is_served(shard, entry):
                        break
                    numbers = partitions[first : first + TOMBSTONES_AT_ONCE]
                    gone = [
                        TopicPartition(topic, number)
                        for number in numbers
                        if (at := entry.offsets.record_offset(topic, number)) is not None
                        # end_offset is the end of the shard's log when this cleanup began: a commit
                        # from there on may be for a new topic of the same name.
                        and at < end_offset
                    ]
                    if gone:
                        self._delete_offsets(shard, entry, gone)
                    yield len(numbers) // _SEEN_AN_ELEMENT + len(gone)
            for group_id, pending in shard.state.pending_in(topic, end_offset).items():
                for first in range(0, len(pending), TOMBSTONES_AT_ONCE):
                    part = pending[first : first + TOMBSTONES_AT_ONCE]
                    holder = shard.state.groups.get(group_id)
                    if holder is not None and shard.serving_error() is ErrorCode.NONE:
                        self._delete_offsets(shard, holder, _older(holder, part, end_offset))
                    yield len(part)

        self._slices.run(steps(), lambda: shard.serving_error() is ErrorCode.NONE)

    def _delete_offsets(
        self, shard: GroupShard, entry: GroupEntry, gone: list[TopicPartition]
    ) -> None:
        records = shard.state.tombstones(entry, gone)
        if not records:
            return
        group_id = entry.group.group_id
        try:
            shard.append_in_parts(records)
        except (LogError, BrokerError) as error:
            if self._not_forgotten.allows(self._clock.monotonic_ms()):
                more = self._not_forgotten.pop_suppressed_note()
                _log.warning(
                    "group=%r cleanup failed; expired offsets, offsets of a deleted topic, or the"
                    " group without offsets may remain: %s%s",
                    group_id,
                    error,
                    more,
                )
        else:
            self._runtime.schedule(shard, group_id)


def _older(
    entry: GroupEntry, partitions: list[TopicPartition], end_offset: Offset
) -> list[TopicPartition]:
    """Return the elements of ``partitions`` for which the group has no committed offset, or one
    whose record is before ``end_offset``."""
    found = ((each, entry.offsets.record_offset(*each)) for each in partitions)
    return [each for each, at in found if at is None or at < end_offset]


def _is_served(shard: GroupShard, entry: GroupEntry) -> bool:
    """Whether the group still exists and this broker is its coordinator."""
    is_there = shard.state.groups.get(entry.group.group_id) is entry
    return is_there and shard.serving_error() is ErrorCode.NONE
